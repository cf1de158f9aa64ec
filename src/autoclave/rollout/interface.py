"""Requests to an engine, and two protocols: an `Engine` samples where it is, a `Sampler` reaches one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from autoclave.core import Completion, Reward, TaskItem
from autoclave.core.rollout import IntArray

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
    """One response wanted. `seed` alone decides its random numbers: the same seed and weights, the same response."""

    prompt_tokens: IntArray
    parameters: SamplingParameters
    seed: tuple[int, ...]


RewardFunction = Callable[[TaskItem, str], Future[Reward]]
"""Reward of a response to an item. Returns at once; the future holds a reward of None after a fault of the judge."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters of an engine: current, and since it was made."""

    running: int
    """Requests that are being sampled."""
    waiting: int
    """Requests that were added and have no place yet."""
    prompt_tokens: int
    """Prompt tokens computed; those that samples of one prompt share count once."""
    sampled_tokens: int


class Engine(Protocol):
    """Samples responses with weights of its own, a little at a time. One thread calls it, and nothing runs between."""

    def add(self, requests: Mapping[int, Request]) -> None:
        """Take these on, in order; each is known by a number that the caller chose and that no other has.

        Requests that are added together are a batch.
        """
        ...

    def abort(self, numbers: Collection[int]) -> None:
        """End these requests. The next `step` gives what was sampled of each, with the finish reason ABORT.

        Numbers of requests that are not here, or no longer, are ignored.
        """
        ...

    def step(self, seconds: float) -> list[tuple[int, Completion]]:
        """Sample on for about `seconds`, less if nothing is left to sample; returns what was done or aborted."""
        ...

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Take over `weights` by name (Hugging Face's names; a tied tensor may be left out).

        An engine that holds an adapter is given the matrices of that alone; see `AdapterEngine`.
        They stay as they are until the next update, so that an engine may compute with them; it must not write to them.
        Tokens sampled from now on are stamped with `version`, those of requests in the making too: these go on with
        the new weights, and what was cached of the old ones is dropped.
        """
        ...

    @property
    def stats(self) -> EngineStats: ...

    def close(self) -> None:
        """Free what it holds; it is not used again."""
        ...


@runtime_checkable
class InspectableEngine(Protocol):
    """An engine that reads back the weights that it computes with."""

    def weight_digests(self) -> Mapping[str, Digest]:
        """Digests of the weights in its own memory, by the names of `update_weights`; those out of reach are absent."""
        ...


@runtime_checkable
class AdapterEngine(Protocol):
    """An engine that can compute with an adapter beside frozen weights, which it has from the start."""

    @property
    def holds_adapter(self) -> bool:
        """True if it was made with an adapter, which new weights are those of."""
        ...

    def adapter_digests(self) -> Mapping[str, Digest]:
        """Digests of the adapter's matrices in its own memory, by the names of `update_weights`."""
        ...


@runtime_checkable
class SleepingEngine(Protocol):
    """An engine that can leave its device to other worker groups of its pool, with all that it has to do."""

    def sleep(self) -> None:
        """Let go of the memory of the device, as far as it can."""
        ...

    def wake_up(self) -> None:
        """Take it again."""
        ...


class Sampler(Protocol):
    """Somewhere that responses can be asked for."""

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        """A future for each request, in order; each is set as soon as its response is done."""
        ...


def uniforms(seed: tuple[int, ...], count: int) -> np.ndarray:
    """`count` float64 in [0, 1) that depend on `seed` alone, not on the batch or the machine."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).random(count)
