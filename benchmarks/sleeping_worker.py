"""The worker of a sleeping device. A process imports this and no model library, so that eight of them start soon."""

from __future__ import annotations

from sleeping import SleepingEngine
from workbook import Scale

from autoclave.planning.profile import Profile
from autoclave.workers import Dispatch, register
from autoclave.workers.sampler.worker import Batches, StepOutput


class SleepingWorker:
    """Stands for a `SamplerWorker`; its device can be another one for each run, so that processes are started once."""

    def __init__(self) -> None:
        self._engine: SleepingEngine | None = None

    @register(Dispatch.ONE_TO_ALL)
    def become(self, profile: Profile, scale: Scale, mixes_batches: bool = True) -> None:
        """Be a device of `profile` that has done nothing yet."""
        self._engine = SleepingEngine(profile, scale, mixes_batches=mixes_batches)

    @register(Dispatch.EACH)
    def advance(self, batches: Batches, seconds: float) -> StepOutput:
        """Take `batches` on, and sleep; see `SamplerWorker`."""
        engine = self._awake()
        for batch in batches:
            engine.add(batch)
        return StepOutput(engine.step(seconds), engine.stats)

    @register(Dispatch.ONE_TO_ALL)
    def take_weights(self, version: int) -> None:
        """Stamp what comes with `version`; see `ReceivesWeights`."""
        self._awake().update_weights(version, {})

    def _awake(self) -> SleepingEngine:
        assert self._engine, "a device that nobody told the profile of"
        return self._engine
