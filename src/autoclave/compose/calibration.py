"""Short runs of a recipe, timed: what `autoclave plan --calibrate` learns rates from."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from autoclave.compose.training import train
from autoclave.config import EvaluationConfig, OneOffPipelineConfig, SynchronousConfig, TrainConfig


@contextmanager
def calibration_runs(config: TrainConfig, *, iterations: int, say: Callable[[str], None]) -> Generator[list[Path]]:
    """Folders of runs of `config`, so many iterations each, which are gone after the block.

    In the first, sampler and trainer take turns, so that each shows its own rates. Where they have pools of their own,
    in the second both work at once: on devices that share something, such as cores, that makes both slower.

    Raises:
        AutoclaveError: as `train`.
    """
    schedules: list[SynchronousConfig | OneOffPipelineConfig] = [SynchronousConfig()]
    if config.workers.places()["sampler"] != config.workers.places()["actor"]:
        schedules.append(OneOffPipelineConfig())
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
