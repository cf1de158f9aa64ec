"""Metrics beside `metrics.jsonl`: what a sink is given, that a failing one ends no run, and the services that exist."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from autoclave.config import TrainConfig
from autoclave.core import HostError
from autoclave.runs.folder import MetricsLog, RunFolder
from autoclave.training import loggers
from autoclave.training.loggers import open_sinks, require_loggers


class Kept:
    """A sink that keeps what it is given; it fails at the writes whose numbers are in `fails_at`, and at the end."""

    def __init__(self, *fails_at: int, at_the_end: bool = False) -> None:
        self._fails_at, self._fails_at_the_end = fails_at, at_the_end
        self.written: list[tuple[str, int, dict[str, float]]] = []
        self.is_closed = False

    def write(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        self.written.append((kind, step, dict(metrics)))
        if len(self.written) in self._fails_at:
            raise HostError("service: not there")

    def close(self) -> None:
        self.is_closed = True
        if self._fails_at_the_end:
            raise HostError("service: not there")


def test_without_tensorboard_a_run_says_so_and_has_no_event_files(tmp_path: Path, monkeypatch, caplog):
    monkeypatch.setattr(loggers, "find_spec", lambda name: None if name == "tensorboard" else find_spec(name))
    assert open_sinks(TrainConfig(), tmp_path) == []
    assert "metrics.jsonl has all metrics" in caplog.text
    assert not list(tmp_path.iterdir())


METRICS = {"loss": 0.5, "count": 3, "pass@1": math.nan, "families": {"a": 1.0}, "split": "heldout", "flag": True}


def test_a_sink_is_given_the_finite_numbers_of_a_step_and_closed(tmp_path: Path):
    sink = Kept()
    log = MetricsLog(RunFolder.create(tmp_path / "run"), [sink])
    log.write("train", 7, METRICS)
    log.close()
    assert sink.written == [("train", 7, {"loss": 0.5, "count": 3.0})]
    assert sink.is_closed


def test_a_sink_that_fails_is_told_of_once_and_the_others_get_everything(tmp_path: Path):
    failing, other, said = Kept(2), Kept(), []
    log = MetricsLog(RunFolder.create(tmp_path / "run"), [failing, other], said.append)
    for step in range(4):
        log.write("train", step, {"loss": 0.5})
    log.close()
    assert said == ["no longer logging to it: service: not there; metrics.jsonl has everything"]
    assert (len(failing.written), len(other.written), other.is_closed) == (2, 4, True)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 4


def test_a_sink_that_fails_at_the_end_does_not_keep_others_open(tmp_path: Path):
    other, said = Kept(), []
    MetricsLog(RunFolder.create(tmp_path / "run"), [Kept(at_the_end=True), other], said.append).close()
    assert other.is_closed
    assert len(said) == 1


def test_tensorboard_is_always_there(tmp_path: Path):
    log = MetricsLog(RunFolder.create(tmp_path / "run"), open_sinks(TrainConfig(), tmp_path / "run"))
    log.write("train", 7, METRICS)
    log.close()
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    assert sorted(board.Tags()["scalars"]) == ["train/count", "train/loss"]
    assert [(event.step, event.value) for event in board.Scalars("train/loss")] == [(7, 0.5)]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_named_with_the_fix(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    with pytest.raises(HostError, match=rf"^loggers = \[{name}\]: {name} is not .*pip install .*\[{name}\]"):
        require_loggers([name])


# --- Services: extras, so these tests exist where they are installed -----------------------------------------------

OFFLINE = {"name": "named", "seed": 5}


if find_spec("mlflow"):

    def test_mlflow_holds_settings_and_metrics_and_goes_on_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        from mlflow import MlflowClient

        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
        config = TrainConfig(**OFFLINE, loggers=("mlflow",))
        for step in (1, 2):  # the second time the run is resumed
            log = MetricsLog(RunFolder(tmp_path), open_sinks(config, tmp_path))
            log.write("evaluation", step, {"pass@1": step / 10})
            log.close()
        client = MlflowClient()
        (run,) = client.search_runs([client.get_experiment_by_name("autoclave").experiment_id])
        assert (run.info.run_name, run.data.params["seed"], run.info.status) == ("named", "5", "FINISHED")
        history = client.get_metric_history(run.info.run_id, "evaluation/pass_1")
        assert [(metric.step, metric.value) for metric in history] == [(1, 0.1), (2, 0.2)]


if find_spec("wandb"):

    def test_wandb_works_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("WANDB_MODE", "offline")
        config = TrainConfig(**OFFLINE, loggers=("wandb",))
        log = MetricsLog(RunFolder.create(tmp_path / "run"), open_sinks(config, tmp_path / "run"))
        log.write("sft", 10, {"loss": 0.5})
        log.write("train", 1, {"loss": 0.25})  # a smaller step, of another kind
        log.close()
        (file,) = (tmp_path / "run" / "loggers").rglob("run-*.wandb")
        content = file.read_bytes()
        assert all(word in content for word in (b"train/loss", b"sft/step", b"group_size"))
        assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])["loss"] == 0.5
