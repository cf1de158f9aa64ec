"""A checkpoint is whole or absent: whatever kills or fails a save, the newest one can be resumed from."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.config import TrainConfig
from autoclave.core import CheckpointError, HostError
from autoclave.training.checkpoints import FREE_TO_CHANGE, Checkpoint, latest_checkpoint, save_checkpoint
from tests.training import killed_writer

CONFIG = TrainConfig()


def save(parent: Path, step: int, *, keep: int = 2, config: TrainConfig = CONFIG, save_state=None) -> Checkpoint:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(f"weights of step {step}")

    return save_checkpoint(parent, step, config, {"rl": step * 1.5}, keep=keep, save_state=save_state or write)


def steps(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


# --- Saving and finding --------------------------------------------------------------------------------------------


def test_the_newest_checkpoint_is_found_with_what_was_saved(tmp_path: Path):
    for step in (5, 10):
        save(tmp_path, step)
    found = latest_checkpoint(tmp_path, CONFIG)
    assert (found.step, found.seconds) == (10, {"rl": 15.0})
    assert (found.model / "weights").read_text() == "weights of step 10"


def test_a_folder_without_checkpoints_has_none(tmp_path: Path):
    assert latest_checkpoint(tmp_path / "checkpoints", CONFIG) is None


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_few_are_kept(tmp_path: Path, keep):
    for step in range(1, 6):
        save(tmp_path, step, keep=keep)
    assert steps(tmp_path) == [f"step-{step:06d}" for step in range(6 - keep, 6)]


# --- Failures ------------------------------------------------------------------------------------------------------


def test_killed_at_any_file_operation_a_whole_newest_checkpoint_is_left(tmp_path: Path):
    script = subprocess.run(
        [sys.executable, killed_writer.__file__, str(tmp_path / "checkpoints")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert script.returncode == 0, script.stderr
    outcomes = [json.loads(line) for line in script.stdout.splitlines()]
    assert len(outcomes) > 20
    assert [outcome["code"] for outcome in outcomes] == [-9] * (len(outcomes) - 1) + [0]
    assert all(outcome["is_whole"] for outcome in outcomes)
    saved = [outcome["step"] for outcome in outcomes]
    assert saved == sorted(saved)
    assert set(saved) == {1, 2}
    assert all(outcome["after_the_next"] == ["step-000003"] for outcome in outcomes)  # what was left is cleared up


def raises(error: Exception) -> Callable[[Path], None]:
    def save_state(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    return save_state


def test_a_state_that_cannot_be_saved_leaves_the_older_checkpoint(tmp_path: Path):
    save(tmp_path, 5)
    with pytest.raises(RuntimeError, match="no state"):
        save(tmp_path, 10, save_state=raises(RuntimeError("no state")))
    assert latest_checkpoint(tmp_path, CONFIG).step == 5
    assert steps(tmp_path) == ["step-000005"]


def test_a_full_disk_is_a_fault_of_the_host_and_leaves_the_older_checkpoint(tmp_path: Path):
    save(tmp_path, 5)
    with pytest.raises(HostError, match=r"step-000010: cannot be written \(No space left on device\)"):
        save(tmp_path, 10, save_state=raises(OSError(errno.ENOSPC, "No space left on device")))
    assert latest_checkpoint(tmp_path, CONFIG).step == 5


def test_a_limit_on_the_size_of_files_leaves_the_older_checkpoint(tmp_path: Path):
    def save_state(folder: Path) -> None:
        (folder / "weights").write_bytes(b"x" * 100_000)

    save(tmp_path, 5)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(HostError, match="step-000010: cannot be written"):
            save(tmp_path, 10, save_state=save_state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert steps(tmp_path) == ["step-000005"]
    assert save(tmp_path, 10).step == latest_checkpoint(tmp_path, CONFIG).step == 10


# --- Another configuration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "changed", "was", "now"),
    [
        ("seed", {"seed": 7}, "0", "7"),
        ("optimizer.learning_rate", {"optimizer": {"learning_rate": 0.5}}, "0.0004", "0.5"),
        ("algorithm.clip", {"algorithm": {"name": "grpo"}}, "None", "0.2"),
    ],
)
def test_a_checkpoint_of_another_configuration_is_refused_with_key_and_both_values(tmp_path, key, changed, was, now):
    save(tmp_path, 5)
    config = TrainConfig.model_validate_json(json.dumps(changed))
    with pytest.raises(CheckpointError) as refused:
        latest_checkpoint(tmp_path, config)
    message = str(refused.value)
    assert f"made with {key} = {was}" in message
    assert f"now it is {now}" in message
    assert "\n" not in message


def test_settings_that_decide_nothing_that_is_learnt_may_change(tmp_path: Path):
    save(tmp_path, 5)
    changed = {
        "name": "other",
        "evaluation": {"every": 1},
        "checkpoint": {"keep": 9},
        "health": {"window": 5},
        "judge": {"workers": 1},
        "sandbox": {"process_limit": 3},
        "no_verdict_limit": 0.9,
        "micro_batch_tokens": 5,
        "pools": {"other": {"executor": "spawn"}},
        "workers": {"actor": "other", "sampler": "other"},
        "worker_restarts": 2,
        "loggers": ["mlflow"],
    }
    assert changed.keys() == set(FREE_TO_CHANGE)
    assert latest_checkpoint(tmp_path, TrainConfig.model_validate_json(json.dumps(changed))).step == 5


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"5", b"{}", b'{"step": 5, "seconds": {}, "config": {"steps": -1}}', b"\xff", b'"text"'],
)
def test_damaged_state_is_refused_in_one_line(tmp_path: Path, content):
    save(tmp_path, 5)
    (tmp_path / "step-000005" / "state.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state\.json: damaged") as refused:
        latest_checkpoint(tmp_path, CONFIG)
    assert "\n" not in str(refused.value)


def test_a_lost_number_of_seconds_is_damage_too(tmp_path: Path):
    folder = save(tmp_path, 5).folder
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"seconds": 3}))
    with pytest.raises(CheckpointError, match="damaged"):
        latest_checkpoint(tmp_path, CONFIG)
