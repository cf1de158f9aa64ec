"""Destinations of metrics beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow.

Their packages are imported when a logger is opened, and are configured by their own environment variables
(WANDB_MODE, WANDB_PROJECT, MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME ...).
"""

import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from autoclave.config import TrainConfig
from autoclave.core import HostError
from autoclave.core.files import write_atomically
from autoclave.core.install import install_command
from autoclave.core.json import leaves
from autoclave.runs.folder import MetricSink

_log = logging.getLogger(__name__)
PROJECT = "autoclave"
"""Project (W&B) or experiment (MLflow) of runs, unless the environment names another."""


def require_loggers(names: Sequence[str]) -> None:
    """Check that the packages of these loggers are there. Raises HostError: one is not; the message says the fix."""
    for name in names:
        if find_spec(name) is None:
            raise HostError(
                f"loggers = [{', '.join(names)}]: {name} is not installed here. Fix: {install_command(name)}, "
                "or leave it out"
            )


def open_sinks(config: TrainConfig, folder: Path) -> list[MetricSink]:
    """The sinks of the run in `folder`; one that goes on with a run of before appends to what it holds.

    Raises HostError: one cannot be reached.
    """
    if not (has_board := find_spec("tensorboard") is not None):
        _log.warning("no event files for TensorBoard, which is not installed; metrics.jsonl has all metrics")
    return [*([TensorBoard(folder)] if has_board else []), *(LOGGERS[name](config, folder) for name in config.loggers)]


class TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(folder / "tensorboard"))

    def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._board.close()


class WandbLogger:
    """Weights & Biases. Each kind of metrics has a step of its own, because they are counted apart."""

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        import wandb  # pyright: ignore[reportMissingImports]  an extra

        run_id = _remembered(folder / "loggers" / "wandb_run", lambda: uuid.uuid4().hex[:8])
        self._error: type[Exception] = wandb.errors.Error
        self._end_service: Callable[[], None] = wandb.teardown
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=config.name,
                id=run_id,
                resume="allow",
                dir=str(folder / "loggers"),
                config=config.model_dump(mode="json"),
            )
        except self._error as error:
            raise HostError(f"wandb: {_line(error)}; WANDB_MODE=offline needs no server") from error
        self._kinds: set[str] = set()

    def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        try:
            if kind not in self._kinds:
                self._run.define_metric(f"{kind}/*", step_metric=f"{kind}/step")
                self._kinds.add(kind)
            self._run.log({f"{kind}/{name}": value for name, value in metrics.items()} | {f"{kind}/step": step})
        except self._error as error:
            raise HostError(f"wandb: {_line(error)}") from error

    def close(self) -> None:
        self._run.finish()
        self._end_service()


class MlflowLogger:
    """MLflow, by its client: no state of the process is touched."""

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]  an extra
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]
        from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]

        self._errors: tuple[type[Exception], ...] = (MlflowException, OSError)  # also those of `requests`
        self._metric = Metric
        try:
            self._client = MlflowClient()
            self._run = _remembered(folder / "loggers" / "mlflow_run", lambda: self._create(config))
        except self._errors as error:
            raise HostError(f"mlflow: {_line(error)}; MLFLOW_TRACKING_URI names the server or folder") from error

    def _create(self, config: TrainConfig) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        run = self._client.create_run(experiment, run_name=config.name)
        for path, value in leaves(config.model_dump(mode="json")):
            self._client.log_param(run.info.run_id, path, str(value)[:500])
        return run.info.run_id

    def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """See `MetricSink`. Signs that MLflow has no room for in names become underscores."""
        now = int(time.time() * 1000)
        plain = {re.sub(r"[^\w\-./ ]", "_", f"{kind}/{name}"): value for name, value in metrics.items()}
        try:
            self._client.log_batch(self._run, [self._metric(name, value, now, step) for name, value in plain.items()])
        except self._errors as error:
            raise HostError(f"mlflow: {_line(error)}") from error

    def close(self) -> None:
        try:
            self._client.set_terminated(self._run)
        except self._errors as error:
            raise HostError(f"mlflow: {_line(error)}") from error


LOGGERS: Mapping[str, Callable[[TrainConfig, Path], MetricSink]] = {"wandb": WandbLogger, "mlflow": MlflowLogger}
"""By the name of the setting, which is that of the package and of the extra."""


def _remembered(path: Path, make: Callable[[], str]) -> str:
    """The name of the run in a service: that in the file `path`, or a new one, which is written there."""
    if not path.is_file():
        write_atomically(path, make() + "\n")
    return path.read_text(encoding="utf-8").strip()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
