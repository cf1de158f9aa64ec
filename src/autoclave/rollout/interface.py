"""What is asked of an engine, and two protocols: an `Engine` samples where it is, a `Sampler` reaches one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from autoclave.core import Completion, Reward, TaskItem
from autoclave.core.rollout import IntArray


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How to sample. `temperature` 0 is greedy; its log-probs are those at temperature 1."""

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


Deliver = Callable[[int, Completion], None]
"""Called with the position of a request and its completion, the moment it is done."""


RewardFunction = Callable[[TaskItem, str], Future[Reward]]
"""What a response to an item earns. Returns at once; the future holds a reward of None after a fault of the judge."""


class Engine(Protocol):
    """Samples responses with weights of its own."""

    def generate(self, requests: Sequence[Request], deliver: Deliver) -> None:
        """Sample all `requests`; returns when the last one was delivered."""
        ...

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Take over `weights` by name. Completions from now on are stamped with `version`."""
        ...


class Sampler(Protocol):
    """Somewhere that responses can be asked for."""

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        """A future for each request, in order; each is set as soon as its response is done."""
        ...


def uniforms(seed: tuple[int, ...], count: int) -> np.ndarray:
    """`count` float64 in [0, 1) that depend on `seed` alone, not on the batch or the machine."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).random(count)
