"""A run's folder: nothing is overwritten, and what a killed run left is still readable."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from autoclave.algorithms import LedgerEntry
from autoclave.core import FinishReason, InputError, MaskReason
from autoclave.runs.folder import MetricsLog, RunFolder
from tests.training_parts import completion, group_of

# --- The folder ----------------------------------------------------------------------------------------------------


def test_an_existing_folder_is_moved_aside_with_all_that_it_holds(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    RunFolder.create(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []
    (aside,) = (path for path in tmp_path.iterdir() if path.name != "run")
    assert aside.name.startswith("run.")
    assert (aside / "summary.json").read_text() == "{}"


def test_a_plan_that_was_made_for_the_run_stays(tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plan.json").write_text("{}")
    RunFolder.create(folder, keep="plan.json")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # a plan alone is no run
    (folder / "config.yaml").write_text("of an earlier run")
    RunFolder.create(folder, keep="plan.json")
    assert [path.name for path in folder.iterdir()] == ["plan.json"]
    (aside,) = (path for path in tmp_path.iterdir() if path != folder)
    assert sorted(path.name for path in aside.iterdir()) == ["config.yaml", "plan.json"]


def test_folders_moved_aside_at_one_time_do_not_collide(tmp_path: Path):
    for number in range(4):
        RunFolder.create(tmp_path / "run").write_config(f"number: {number}\n")
    configs = sorted(path.read_text() for path in tmp_path.glob("run*/config.yaml"))
    assert configs == [f"number: {number}\n" for number in range(4)]


def test_an_empty_folder_is_used_as_it_is(tmp_path: Path):
    (tmp_path / "run").mkdir()
    RunFolder.create(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(InputError, match="is a file; give a folder"):
        RunFolder.create(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


def test_what_is_no_run_cannot_be_resumed(tmp_path: Path):
    with pytest.raises(InputError, match="start it without --resume"):
        RunFolder.existing(tmp_path)


# --- Metrics -------------------------------------------------------------------------------------------------------


def lines(folder: RunFolder) -> list[str]:
    return [line for line in (folder.path / "metrics.jsonl").read_text().splitlines() if line.strip()]


def test_metrics_are_one_strict_object_per_line(tmp_path: Path):
    folder = RunFolder.create(tmp_path / "run")
    log = MetricsLog(folder)
    log.write("train", 1, {"reward/mean": math.nan, "families": {"a": {"pass@1": math.inf, "problems": 3}}})
    log.close()
    (line,) = lines(folder)
    found = json.loads(line)
    assert (found["kind"], found["step"], found["reward/mean"]) == ("train", 1, None)
    assert found["families"] == {"a": {"pass@1": None, "problems": 3}}


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path: Path):
    folder = RunFolder.create(tmp_path / "run")
    log = MetricsLog(folder)
    log.write("train", 1, {"loss": 1.0})
    assert json.loads(lines(folder)[0])["loss"] == 1.0
    log.close()


def test_a_torn_line_spoils_no_other(tmp_path: Path):
    folder = RunFolder.create(tmp_path / "run")
    torn = '{"kind": "train", "step": 2, "los'
    (folder.path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n' + torn)
    log = MetricsLog(folder)
    log.write("train", 2, {"loss": 1.0})
    log.close()
    first, middle, last = lines(folder)
    assert middle == torn
    assert (json.loads(first)["step"], json.loads(last)["step"]) == (1, 2)


# --- Rollouts ------------------------------------------------------------------------------------------------------


def test_every_rollout_is_kept_with_what_it_earned_and_whether_it_trained(tmp_path: Path):
    folder = RunFolder.create(tmp_path / "run")
    completions = [completion(text="one"), completion(text="two", finish_reason=FinishReason.LENGTH)]
    group = group_of([1.0, None], completions, mask_reasons=[None, MaskReason.NO_VERDICT])
    account = [
        LedgerEntry(1.0, True, 1.0, None, 0.5, 0.25, 1.5),
        LedgerEntry(None, False, 1.0, None, None, None, None),
    ]
    log_probs = np.array([-0.123456, -2.0, -np.inf], dtype=np.float32)
    folder.write_rollouts(3, [group], [asdict(entry) for entry in account], [log_probs, None])
    with gzip.open(tmp_path / "run" / "rollouts" / "step-000003.jsonl.gz", "rt") as file:
        first, second = (json.loads(line) for line in file)
    assert (first["response"], first["reward"], first["mask_reason"]) == ("one", 1.0, None)
    assert first["ledger"] == {
        "reward": 1.0, "in_baseline": True, "group_mean": 1.0, "group_std": None,
        "advantage": 0.5, "weight": 0.25, "importance": 1.5,
    }  # fmt: skip
    assert first["verdict"]["status"] == "accepted"
    assert (second["reward"], second["ledger"]["advantage"], second["mask_reason"]) == (None, None, "no_verdict")
    assert second["verdict"]["fault"]["detail"] == "no cell could be made"
    assert (first["token_ids"], first["sampler_log_probs"], first["log_prob_kind"]) == ([5, 6, 1], [-1.0] * 3, "raw")
    assert (first["trainer_log_probs"], second["trainer_log_probs"]) == ([-0.12346, -2.0, None], None)
    assert first["format"] == second["format"] == "autoclave-rollout/1"
    assert (second["finish_reason"], second["prompt"], second["sample"]) == ("length", "Solve item.", 1)
