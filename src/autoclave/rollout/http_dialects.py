"""Protocols of servers: OpenAI's completions, and SGLang's own interface."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from safetensors.torch import save_file
from torch import Tensor

from autoclave.core import ConfigError, EngineFault, FinishReason, InputError
from autoclave.core.rollout import LogProbKind
from autoclave.rollout.http_server import Line, Server, Unavailable
from autoclave.rollout.interface import SamplingParameters
from autoclave.rollout.responses import seed_number

SEED_BITS = 53
"""Bits of an integer that every reader of JSON keeps exactly."""

REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rest of a request that is still to be sampled."""

    name: str
    context: list[int]
    """The prompt and what was sampled so far."""
    parameters: SamplingParameters
    tokens: int
    """Most tokens."""
    seed: tuple[int, ...]
    end_tokens: list[int]


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that a server sampled since the last piece."""

    tokens: list[int]
    log_probs: list[float]
    reason: FinishReason | None = None
    """Finish reason of the last piece; None before."""
    cached_tokens: int = 0
    """Tokens of the context that the server had computed before, as it says at the end."""


class Dialect(Protocol):
    """A kind of server."""

    def kind(self, parameters: SamplingParameters) -> LogProbKind:
        """Return the kind of log-probs that the server gives.

        Raises InputError: of a distribution that we have no use for.
        """
        ...

    def stream(self, wanted: Wanted, line: Line) -> Iterator[Piece]:
        """Sample, piece by piece; see `Server.events` for what is raised."""
        ...

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Give the server, which has no requests, other weights, and drop what it cached of the old ones.

        Raises ConfigError: it cannot take weights. EngineFault, InputError: it refused them, or does not answer.
        """


class OpenAi:
    """`/v1/completions`, with the extensions that servers have in common; see docs/how-to/engines.md."""

    def __init__(self, server: Server, model: str, log_probs: Literal["temperature_1", "sampling_temperature"]) -> None:
        self._server, self._log_probs = server, log_probs
        self._model = model or server.only_model("sampler.engine.model")

    def kind(self, parameters: SamplingParameters) -> LogProbKind:
        if self._log_probs == "temperature_1":
            if parameters.temperature not in (0.0, 1.0):
                raise InputError(
                    f"temperature = {parameters.temperature}: the log-probs of this server are those at temperature 1; "
                    "start it so that they are those at the sampling temperature (vLLM: --logprobs-mode "
                    "processed_logprobs) and set sampler.engine.log_probs=sampling_temperature"
                )
            return "raw"
        return "processed" if parameters.top_p < 1 and parameters.temperature > 0 else "raw"

    def stream(self, wanted: Wanted, line: Line) -> Iterator[Piece]:
        asked = wanted.parameters
        body = {
            "model": self._model,
            "prompt": wanted.context,
            "max_tokens": wanted.tokens,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "seed": seed_number(wanted.seed, SEED_BITS),
            "stop": list(asked.stops),
            "stop_token_ids": wanted.end_tokens,
            "logprobs": 1,
            "return_token_ids": True,
            "stream": True,
        }
        for event in self._server.events("/v1/completions", body, line):
            if error := event.get("error"):
                raise Unavailable(str(error))
            for choice in event.get("choices", ()):
                scores = choice.get("logprobs") or {}
                tokens = self._tokens(choice, scores)
                reason = REASONS.get(choice.get("finish_reason") or "")
                if choice.get("finish_reason") and not reason:
                    raise Unavailable(f"the server ended the request with {choice['finish_reason']!r}")
                yield Piece(tokens, list(scores.get("token_logprobs") or ()), reason)

    def _tokens(self, choice: Mapping[str, Any], scores: Mapping[str, Any]) -> list[int]:
        if choice.get("token_ids") is not None:
            return list(choice["token_ids"])
        names = scores.get("tokens") or []
        if all(str(name).startswith("token_id:") for name in names):
            return [int(name.partition(":")[2]) for name in names]
        raise InputError(
            f"{self._server.url} does not say which tokens it sampled; it must understand return_token_ids, as vLLM "
            "does"
        )

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        raise ConfigError(
            "sampler.engine.name = openai: such a server takes no weights, so it can be evaluated and not trained; "
            "use transformers, vllm or sglang"
        )


class Sglang:
    """`/generate` and what is needed to change weights. Written against the interface of SGLang 0.5."""

    def __init__(self, server: Server, model_folder: Path, weights_folder: str) -> None:
        self._server, self._model_folder, self._weights_folder = server, model_folder, weights_folder
        self._server.ask("GET", "/health")

    def kind(self, parameters: SamplingParameters) -> LogProbKind:
        """At the temperature, before top-p: SGLang's own choice, unless SGLANG_RETURN_ORIGINAL_LOGPROB is set there."""
        return "raw"

    def stream(self, wanted: Wanted, line: Line) -> Iterator[Piece]:
        asked = wanted.parameters
        body = {
            "rid": wanted.name,
            "input_ids": wanted.context,
            "sampling_params": {
                "temperature": asked.temperature,
                "top_p": asked.top_p,
                "max_new_tokens": wanted.tokens,
                "stop": list(asked.stops),
                "stop_token_ids": wanted.end_tokens,
                "sampling_seed": seed_number(wanted.seed, SEED_BITS),  # heeded with --enable-deterministic-inference
            },
            "return_logprob": True,
            "stream": True,
        }
        count = 0
        for event in self._server.events("/generate", body, line):
            if error := event.get("error"):
                raise Unavailable(str(error))
            about = event["meta_info"]
            ended = (about.get("finish_reason") or {}).get("type")
            if ended and ended not in REASONS:
                raise Unavailable(f"the server ended the request: {about['finish_reason']}")
            # All so far, or with --incremental-streaming-output those since the last event.
            scores = about["output_token_logprobs"]
            new = scores[max(0, len(scores) - (int(about["completion_tokens"]) - count)) :]
            count += len(new)
            yield Piece(
                [int(score[1]) for score in new],
                [float(score[0]) for score in new],
                REASONS.get(ended or ""),
                int(about.get("cached_tokens") or 0),
            )

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        if not self._weights_folder:
            raise ConfigError(
                "sampler.engine.weights_folder: name a folder that this process can write and the server can read; new "
                "weights go through it"
            )
        folder = Path(self._weights_folder) / f"autoclave-{version}"
        self._write(folder, weights)
        try:
            self._server.ask("POST", "/pause_generation", {"mode": "abort"})
            try:
                self._load(version, folder)
            finally:
                self._server.ask("POST", "/continue_generation", {})
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _load(self, version: int, folder: Path) -> None:
        body = {"model_path": str(folder), "weight_version": str(version), "flush_cache": True}
        answer = self._server.ask("POST", "/update_weights_from_disk", body) or {}
        if not answer.get("success"):
            raise EngineFault(f"{self._server.url} did not take weights {version}: {answer.get('message', answer)}")
        self._server.ask("POST", "/flush_cache")

    def _write(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """A model's folder with these weights; a tied tensor once."""
        folder.mkdir(parents=True)
        for path in self._model_folder.iterdir():
            if path.is_file() and ".safetensors" not in path.suffixes:
                shutil.copy(path, folder)
        places: set[int] = set()
        distinct = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in weights.items()
            if not (tensor.data_ptr() in places or places.add(tensor.data_ptr()))
        }
        save_file(distinct, folder / "model.safetensors", {"format": "pt"})
