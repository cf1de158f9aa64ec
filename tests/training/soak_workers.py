"""The trainer of the soak, where a process of its own can import it without the libraries of models."""

from __future__ import annotations

import random

from autoclave.core import WorkerDied
from autoclave.workers import Dispatch, register


class CountingTrainer:
    """Its weights are a number. Where it cannot be killed, it says now and then that it was."""

    def __init__(self, draw: random.Random | None = None, chance: float = 0.0) -> None:
        self._weights, self._draw, self._chance = 0, draw or random.Random(), chance

    @register(Dispatch.ONE_TO_ALL)
    def learn(self, weights: int) -> None:
        self._fail()
        self._weights = weights

    @register(Dispatch.ONE_TO_ALL)
    def export(self) -> int:
        self._fail()
        return self._weights

    def _fail(self) -> None:
        if self._draw.random() < self._chance:
            raise WorkerDied.of("trainer", 0, "here", "was killed, so to speak")
