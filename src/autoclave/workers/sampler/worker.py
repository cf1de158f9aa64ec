"""The worker that holds an engine, and its messages; loads no model library. Used through `pool.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoclave.core import Completion
from autoclave.rollout import Engine, EngineStats, Request, SleepingEngine
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.weights.receiving import ReceivesWeights

if TYPE_CHECKING:
    import torch


Batches = tuple[Mapping[int, Request], ...]
"""Requests to add, by their numbers."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Output of an engine's step."""

    done: list[tuple[int, Completion]]
    stats: EngineStats


class SamplerWorker(MeasuresMemory, ReceivesWeights):
    """Holds an engine on `device`, by default the CPU."""

    def __init__(self, engine: Engine, device: "torch.device | None" = None) -> None:
        self._engine, self.device = engine, device

    def onload(self) -> None:
        if isinstance(self._engine, SleepingEngine):
            self._engine.wake_up()

    def offload(self) -> None:
        if isinstance(self._engine, SleepingEngine):
            self._engine.sleep()

    def close(self) -> None:
        """Close the engine, which may hold a resource that another one in this process needs."""
        self._engine.close()

    @register(Dispatch.EACH)
    def advance(self, batches: Batches, seconds: float) -> StepOutput:
        """Add `batches`, and sample for about `seconds`, or until no request is left."""
        for batch in batches:
            self._engine.add(batch)
        return StepOutput(self._engine.step(seconds), self._engine.stats)
