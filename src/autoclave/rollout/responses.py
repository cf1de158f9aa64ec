"""Responses being sampled, and their completions: the part that all engines share."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from autoclave.core import Completion, FinishReason
from autoclave.core.rollout import LogProbKind
from autoclave.rollout.interface import Request


@dataclass(slots=True, eq=False)
class Growing:
    """A request being sampled, with the tokens so far."""

    number: int
    request: Request
    versions: list[tuple[int, int]] = field(default_factory=list)
    """Versions of the weights, and the first token that was sampled with each."""
    submitted_at: float = field(default_factory=time.time)
    """Seconds since 1970."""
    started_at: float | None = None
    """Time at which it got its first slot; None if the engine does not report it."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    @property
    def tokens_left(self) -> int:
        """Number of tokens that may still be sampled."""
        return self.request.parameters.max_new_tokens - len(self.tokens)

    def append(self, tokens: list[int], log_probs: list[float]) -> None:
        self.tokens += tokens
        self.log_probs += log_probs


class Responses:
    """Makes completions with the tokenizer of a policy."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_tokens: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.end_tokens = end_tokens
        """Ids that end a response."""

    def text(self, tokens: list[int]) -> str:
        """Text of the tokens, without special ones."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def completion(self, growing: Growing, reason: FinishReason, kind: LogProbKind) -> Completion:
        """The response as it is now; a stop string that ended it, and what follows, is cut from the text alone."""
        text, stops = self.text(growing.tokens), growing.request.parameters.stops
        return Completion(
            prompt_tokens=growing.request.prompt_tokens,
            tokens=np.array(growing.tokens, dtype=np.int64),
            log_probs=np.array(growing.log_probs, dtype=np.float32),
            log_prob_kind=kind,
            finish_reason=reason,
            text=text[: min((text.find(stop) for stop in stops if stop in text), default=None)],
            policy_versions=_ranges(growing.versions, len(growing.tokens)),
            submitted_at=growing.submitted_at,
            finished_at=time.time(),
            started_at=growing.started_at,
        )


def load_responses(folder: Path) -> Responses:
    """Return `Responses` with tokenizer and end tokens of the policy in `folder`."""
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    if (folder / "generation_config.json").is_file():
        generation = GenerationConfig.from_pretrained(str(folder))
    else:
        generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(str(folder)))
    ends = generation.eos_token_id
    return Responses(tokenizer, frozenset([*([ends] if isinstance(ends, int) else ends or []), tokenizer.eos_token_id]))


def seed_number(seed: tuple[int, ...], bits: int) -> int:
    """Return an integer of `bits` bits that depends on all of `seed`, for engines with integer seeds."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> (64 - bits)


def _ranges(versions: list[tuple[int, int]], length: int) -> tuple[tuple[int, int, int], ...]:
    """Return `(version, start, stop)` of the versions that sampled a token."""
    stops = [start for _, start in versions[1:]] + [length]
    pairs = zip(versions, stops, strict=True)
    return tuple((version, start, stop) for (version, start), stop in pairs if stop > start)
