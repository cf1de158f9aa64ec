"""The model of a folder as a source of responses, sampled by the engine of the settings."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autoclave.compose.libraries import settle_libraries
from autoclave.compose.workers import open_samplers
from autoclave.config import BenchmarkConfig, ModelConfig, SamplerConfig, TrainConfig
from autoclave.core import Completion, FinishReason
from autoclave.core.futures import chained
from autoclave.core.json import canonical_json
from autoclave.core.rollout import IntArray
from autoclave.evaluation.responses import Response, ResponseRequest
from autoclave.evaluation.submissions import THINKING_BEGIN
from autoclave.models import encode_prompt, load_tokenizer
from autoclave.rollout import Request

_END_TOKENS = 16


class FolderModel:
    """The model in folder `path`, whose content `digest` stands for. Its workers end with `opened`.

    Raises InputError: it cannot be used. HostError: this host lacks what the engine needs.
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

    def respond(self, requests: Sequence[ResponseRequest]) -> list[Future[Response]]:
        prompts = [self._encoded(request) for request in requests]
        completions = self._samplers.submit(
            [
                Request(prompt, request.parameters, self._numbers(request))
                for prompt, request in zip(prompts, requests, strict=True)
            ]
        )
        return [
            chained(completion, partial(_response, self._opening(prompt)))
            for completion, prompt in zip(completions, prompts, strict=True)
        ]

    def account(self) -> Mapping[str, Any]:
        """Nothing is spent that is counted."""
        return {}

    def close(self) -> None:
        """The samplers end with what opened them."""

    def _encoded(self, request: ResponseRequest) -> IntArray:
        if request.is_chat:
            return encode_prompt(self._tokenizer, request.messages)
        return np.asarray(self._tokenizer.encode(request.messages[-1]["content"]), dtype=np.int64)

    def _opening(self, prompt: IntArray) -> str:
        """The begin of reasoning where the template puts it into the prompt: it belongs to the response."""
        end = str(self._tokenizer.decode(prompt[-_END_TOKENS:])).rstrip()
        return f"{THINKING_BEGIN}\n" if end.endswith(THINKING_BEGIN) else ""

    def _numbers(self, request: ResponseRequest) -> tuple[int, ...]:
        """Seed of a response: of the question and the sample, not of other questions."""
        name = hashlib.sha256(canonical_json([request.messages, request.is_chat])).digest()
        return (self._seed, int.from_bytes(name[:6], "big"), request.sample)


def _response(opening: str, found: Completion) -> Response:
    finish = "stop" if found.finish_reason is FinishReason.STOP else "length"
    return Response(opening + found.text, finish, len(found.tokens), len(found.prompt_tokens))
