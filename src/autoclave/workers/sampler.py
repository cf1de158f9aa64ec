"""The worker that holds an engine. `sampler_pool.py` is how others reach such workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from autoclave.core import Completion
from autoclave.rollout import Engine, EngineStats, Request
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory


@dataclass(frozen=True, slots=True)
class Orders:
    """What an engine is told before it samples on."""

    waves: tuple[Mapping[int, Request], ...] = ()
    """Requests to take on."""
    aborted: tuple[int, ...] = ()
    """Numbers of requests to end."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What an engine has done since it was asked last."""

    done: list[tuple[int, Completion]]
    stats: EngineStats


class SamplerWorker(MeasuresMemory):
    """Holds an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @register(Dispatch.EACH)
    def advance(self, orders: Orders, seconds: float) -> Progress:
        """Take `orders`, and sample on for about `seconds`, or until nothing is left."""
        for wave in orders.waves:
            self._engine.add(wave)
        if orders.aborted:
            self._engine.abort(orders.aborted)
        return Progress(self._engine.step(seconds), self._engine.stats)

    @register(Dispatch.ONE_TO_ALL)
    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Sample with `weights`, called `version`, from now on."""
        self._engine.update_weights(version, weights)
