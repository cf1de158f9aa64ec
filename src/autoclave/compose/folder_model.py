"""The model of a folder as a source of responses, sampled by the engine of the settings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from autoclave.compose.libraries import settle_libraries
from autoclave.compose.workers import open_samplers
from autoclave.config import BenchmarkConfig, ModelConfig, SamplerConfig, TrainConfig
from autoclave.core import Completion, FinishReason
from autoclave.core.json import canonical_json
from autoclave.core.rollout import IntArray
from autoclave.evaluation.responses import Asked, Response
from autoclave.evaluation.submissions import THINKING_BEGIN
from autoclave.models import encode_prompt, load_tokenizer
from autoclave.rollout import Request

_END_TOKENS = 16


class FolderModel:
    """The model in folder `path`, whose content `digest` stands for. Its workers end with `opened`.

    Raises:
        InputError: it cannot be used.
        HostError: this host lacks what the engine needs.
    """

    def __init__(
        self, config: BenchmarkConfig, path: Path, digest: str, opened: ExitStack, say: Callable[[str], None]
    ) -> None:
        model = config.model
        settings = TrainConfig(
            model=ModelConfig(dtype=model.dtype, device=model.device),
            sampler=SamplerConfig(engine=model.engine),
            seed=model.seed,
        )
        settle_libraries(settings)
        self._tokenizer = load_tokenizer(path, model.chat_template)
        self._samplers = opened.enter_context(open_samplers(settings, path, say))
        self._seed = model.seed
        engine = model.engine.model_dump(mode="json")
        self.identity: Any = ["folder", digest, engine, model.chat_template, model.dtype, model.seed]

    def respond(self, asked: Sequence[Asked]) -> list[Future[Response]]:
        """See `ResponseSource`."""
        prompts = [self._encoded(each) for each in asked]
        requests = [
            Request(prompt, each.parameters, self._numbers(each)) for prompt, each in zip(prompts, asked, strict=True)
        ]
        completions = self._samplers.submit(requests)
        return [_response(each, self._opening(prompt)) for each, prompt in zip(completions, prompts, strict=True)]

    def account(self) -> Mapping[str, Any]:
        """Nothing is spent that is counted."""
        return {}

    def close(self) -> None:
        """The samplers end with what opened them."""

    def _encoded(self, asked: Asked) -> IntArray:
        if asked.is_chat:
            return encode_prompt(self._tokenizer, asked.messages)
        return np.asarray(self._tokenizer.encode(asked.messages[-1]["content"]), dtype=np.int64)

    def _opening(self, prompt: IntArray) -> str:
        """The begin of reasoning where the template puts it into the prompt: it belongs to the response."""
        end = str(self._tokenizer.decode(prompt[-_END_TOKENS:])).rstrip()
        return f"{THINKING_BEGIN}\n" if end.endswith(THINKING_BEGIN) else ""

    def _numbers(self, asked: Asked) -> tuple[int, ...]:
        """Seed of a response: of the question and the sample, not of other questions."""
        name = hashlib.sha256(canonical_json([asked.messages, asked.is_chat])).digest()
        return (self._seed, int.from_bytes(name[:6], "big"), asked.sample)


def _response(completion: Future[Completion], opening: str) -> Future[Response]:
    response: Future[Response] = Future()

    def finish(done: Future[Completion]) -> None:
        try:
            found = done.result()
            cut = found.finish_reason is not FinishReason.STOP
            response.set_result(
                Response(opening + found.text, "length" if cut else "stop", len(found.tokens), len(found.prompt_tokens))
            )
        except BaseException as error:  # noqa: BLE001  it is raised where the response is waited for
            response.set_exception(error)

    completion.add_done_callback(finish)
    return response
