"""Requests for responses, and two protocols: an `Engine` samples in its process, a `Sampler` passes requests on."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np

from autoclave.core import Completion, EndState, TaskItem
from autoclave.core.futures import completed
from autoclave.core.rollout import IntArray, LogProbKind

if TYPE_CHECKING:
    from torch import Tensor

    from autoclave.models import Digest


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Sampling parameters. `temperature` 0 is greedy; its log-probs are those at temperature 1."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 96
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one response. Its random numbers depend on `seed` alone: equal seed and weights, equal response."""

    prompt_tokens: IntArray
    parameters: SamplingParameters
    seed: tuple[int, ...]


class End(NamedTuple):
    """The end of a rollout, by the names of the fields of `Rollout`."""

    end_state: EndState | None = None
    ended_by: str = ""
    tool_errors: int = 0
    tools_s: float = 0.0


Next = tuple[Request, str]
"""The request for a turn, whose prompt begins with all tokens so far, and the text that is read before it."""


class Turns(Protocol):
    """The turns of one rollout. Futures that fail with a FaultError leave it without a verdict; those of engines and
    workers end the run.
    """

    def begin(self) -> Future[Next]:
        """Return the first turn."""
        ...

    def following(self, turns: Sequence[Completion]) -> Future[Next | End]:
        """Return what follows `turns`; the numbers of a request are those of `request_of_turn`."""
        ...

    def close(self) -> None:
        """Release everything; may be called at any time, and twice."""


class NextTurn(Protocol):
    """Goes on with rollouts after each turn."""

    @property
    def together(self) -> bool:
        """The samples of an item begin each turn together, so that the requests of a batch do not depend on time."""
        ...

    def most_turns(self, item: TaskItem) -> int:
        """Return the number of turns that rollouts of `item` can have."""
        ...

    def __call__(self, item: TaskItem, first: Request) -> Turns:
        """Return the turns of a rollout of `item`, of which `first` is the first request."""
        ...


class OneTurn:
    """The `NextTurn` of rollouts that are over after their first."""

    together = True

    def most_turns(self, item: TaskItem) -> int:
        return 1

    def __call__(self, item: TaskItem, first: Request) -> Turns:
        return _One(first)


class _One:
    """The one turn of a rollout."""

    def __init__(self, first: Request) -> None:
        self._first = first

    def begin(self) -> Future[Next]:
        return completed((self._first, ""))

    def following(self, turns: Sequence[Completion]) -> Future[Next | End]:
        return completed(End())

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters of an engine: requests now, tokens since the start."""

    running: int
    """Requests being sampled."""
    waiting: int
    """Requests added and not yet being sampled."""
    prompt_tokens: int
    """Prompt tokens computed; a prompt that several samples share counts once."""
    sampled_tokens: int


class Engine(Protocol):
    """Samples responses with weights of its own. One thread calls all methods."""

    def add(self, requests: Mapping[int, Request]) -> None:
        """Queue `requests`, in order. The keys are unique; `step` returns each completion with the key of its request.

        The requests of one call are a batch; see `ScheduleSettings.mixes_batches`.
        """

    def step(self, seconds: float) -> list[tuple[int, Completion]]:
        """Sample for about `seconds`, less if no request is left; return the responses that ended."""
        ...

    def update_weights(self, version: int, weights: "Mapping[str, Tensor]") -> None:
        """Load `weights` by Hugging Face's names; one of two tied tensors may be missing.

        An engine that holds an adapter gets the adapter's matrices only; see `AdapterEngine`.
        The tensors do not change before the next update, so the engine may keep references to them; it must not write
        to them. Tokens sampled from now on carry `version`. Requests in flight continue with the new weights, and
        everything cached of the old ones, such as keys and values, is dropped.
        """

    @property
    def stats(self) -> EngineStats: ...

    def close(self) -> None:
        """Release all resources; the engine is not used afterwards."""


@runtime_checkable
class InspectableEngine(Protocol):
    """An engine that can read the weights in its memory, for the weight-sync check."""

    def weight_digests(self) -> "Mapping[str, Digest]":
        """Return digests of the weights in memory, by the names of `update_weights`; unreadable weights are absent."""
        ...


@runtime_checkable
class AdapterEngine(Protocol):
    """An engine that can hold a LoRA adapter beside the frozen base weights, which it has from the start."""

    @property
    def holds_adapter(self) -> bool:
        """True if the engine was made with an adapter: `update_weights` then gets weights of the adapter."""
        ...

    def adapter_digests(self) -> "Mapping[str, Digest]":
        """Return digests of the adapter's matrices in memory, by the names of `update_weights`."""
        ...


@runtime_checkable
class SleepingEngine(Protocol):
    """An engine that can free its device for other worker groups of its pool, and keeps its requests meanwhile."""

    def sleep(self) -> None:
        """Free as much of the device's memory as possible."""

    def wake_up(self) -> None:
        """Allocate that memory again."""


def broken_rule(done: object, version: int) -> str | None:
    """Return the first rule that a completion of an engine with weights of `version` breaks; None if it keeps all."""
    if not isinstance(done, Completion):
        return f"{done!r:.60}: must be an autoclave.core.Completion"
    size, log_probs, ranges = len(done.tokens), np.asarray(done.log_probs, dtype=np.float64), done.policy_versions
    ends, kinds = [0, *(stop for _, _, stop in ranges)], get_args(LogProbKind)
    covers = [start for _, start, _ in ranges] == ends[:-1] and ends == sorted({*ends}) and ends[-1] == size
    is_known, has_numbers = (
        all(0 <= each <= version for each, _, _ in ranges),
        (log_probs > -np.inf) & (log_probs < 0.01),
    )
    rules = (
        (isinstance(done.text, str), f"text = {done.text!r:.60}: must be a str"),
        (size > 0, "tokens: must be at least one, such as that of the end"),
        (len(log_probs) == size, f"log_probs: must be {size}, as the tokens, not {len(log_probs)}"),
        (has_numbers.all(), "log_probs: must be finite and at most 0"),  # 0.01: formats of few bits round
        (done.log_prob_kind in kinds, f"log_prob_kind = {done.log_prob_kind!r}: must be one of {', '.join(kinds)}"),
        (covers, f"policy_versions = {ranges}: ranges must cover the {size} tokens, one after the other"),
        (is_known, f"policy_versions = {ranges}: versions must be those of update_weights so far, 0 to {version}"),
    )
    return next((rule for is_kept, rule in rules if not is_kept), None)


class Sampler(Protocol):
    """Anything that requests for responses can be submitted to."""

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        """Return a future for each request, in order; each is set when its response ends."""
        ...


def uniforms(seed: tuple[int, ...], count: int) -> np.ndarray:
    """`count` float64 in [0, 1) that depend on `seed` alone, not on the batch or the machine."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).random(count)
