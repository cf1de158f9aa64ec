"""Short runs of a recipe, timed: what `autoclave plan --calibrate` learns rates from."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from autoclave.compose.training import train
from autoclave.config import (
    AsynchronousConfig,
    EvaluationConfig,
    OneOffPipelineConfig,
    ScheduleConfig,
    SynchronousConfig,
    TrainConfig,
)


@contextmanager
def calibration_runs(config: TrainConfig, *, iterations: int, say: Callable[[str], None]) -> Generator[list[Path]]:
    """Folders of runs of `config`, so many iterations each, which are gone after the block.

    In the first, sampler and trainer take turns, so that each shows its own rates. Where they have pools of their own,
    both work at once in a second and a third: on devices that share something, such as cores, that makes both slower.
    In the third, requests of several batches mix.

    Raises:
        AutoclaveError: as `train`.
    """
    schedules: list[ScheduleConfig] = [SynchronousConfig()]
    if config.workers.places()["sampler"] != config.workers.places()["actor"]:
        is_own = isinstance(config.schedule, AsynchronousConfig) and config.schedule.max_staleness
        schedules += [OneOffPipelineConfig(), config.schedule if is_own else AsynchronousConfig(max_staleness=2)]
    with TemporaryDirectory(prefix="autoclave-calibration-") as parent:
        folders: list[Path] = []
        for schedule in schedules:
            changes = {
                "name": f"calibration-{schedule.name}",
                "steps": iterations,
                "schedule": schedule,
                "evaluation": EvaluationConfig(every=0, samples=1, final_samples=1, problems=1),
                "loggers": (),
            }
            folders.append(Path(parent) / schedule.name)
            train(config.model_copy(update=changes), folders[-1], say=say)
        yield folders
