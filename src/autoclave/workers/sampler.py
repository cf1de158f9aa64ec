"""The worker that holds an engine. `sampler_pool.py` is how others reach such workers."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from autoclave.rollout import Engine
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.sampler_orders import Orders, Progress


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
