"""A checkpoint is whole or absent: whatever kills or fails a save, the newest one can be resumed from."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.config import CheckpointConfig, TrainConfig
from autoclave.core import CheckpointError, HostError
from autoclave.core.files import write_manifest
from autoclave.training.checkpoints import (
    FREE_TO_CHANGE,
    Checkpoint,
    Checkpoints,
    SavedState,
    find_checkpoint,
    kept_of,
    latest_checkpoint,
    policy_inputs,
)
from tests.training import killed_trainer, killed_writer

CONFIG = TrainConfig()


def config_of(**settings) -> TrainConfig:
    return TrainConfig(checkpoint=CheckpointConfig(**settings))


class Files:
    """A state of two files in a part of its own; `fail` is raised in place of the writing."""

    def __init__(self, content: str, fail: BaseException | None = None, *, is_slow: bool = False) -> None:
        self._content, self._fail, self.is_done = content, fail, not is_slow

    def begin_save(self, folder: Path) -> None:
        self._part = folder / "actor"
        self._part.mkdir()
        (self._part / "half").write_text("half")

    def finish_save(self, wait: bool) -> bool:
        if self._fail:
            raise self._fail
        if wait or self.is_done:
            (self._part / "weights").write_text(self._content)
            write_manifest(self._part)
        return wait or self.is_done


def save(
    parent: Path,
    step: int,
    *,
    config: TrainConfig = CONFIG,
    state: SavedState | None = None,
    score: float | None = None,
    inputs: dict[str, object] | None = None,
) -> Path:
    with Checkpoints(parent, config, state or Files(f"weights of step {step}"), inputs) as checkpoints:
        checkpoints.begin(step, {"rl": step * 1.5}, score)
    return parent / f"step-{step:06d}"


def steps(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def kept(parent: Path) -> list[int]:
    return [int(name.removeprefix("step-")) for name in steps(parent)]


# --- Saving and finding --------------------------------------------------------------------------------------------


def test_the_newest_checkpoint_is_found_with_what_was_saved(tmp_path: Path):
    for step in (5, 10):
        save(tmp_path, step, score=step / 20)
    found = latest_checkpoint(tmp_path, CONFIG)
    assert (found.step, found.seconds, found.score) == (10, {"rl": 15.0}, 0.5)
    assert (found.folder / "actor" / "weights").read_text() == "weights of step 10"


def test_a_folder_without_checkpoints_has_none(tmp_path: Path):
    assert latest_checkpoint(tmp_path / "checkpoints", CONFIG) is None


def test_a_checkpoint_gets_its_name_when_it_is_written_or_when_somebody_waits_for_it(tmp_path: Path):
    state = Files("slow", is_slow=True)
    with Checkpoints(tmp_path, CONFIG, state) as checkpoints:
        checkpoints.begin(5, {})
        checkpoints.finish(wait=False)
        assert latest_checkpoint(tmp_path, CONFIG) is None
        state.is_done = True
        checkpoints.finish(wait=False)
        assert latest_checkpoint(tmp_path, CONFIG).step == 5
        state.is_done = False
        checkpoints.begin(10, {})
        checkpoints.begin(15, {})  # waits for that of step 10
        assert latest_checkpoint(tmp_path, CONFIG).step == 10
    assert latest_checkpoint(tmp_path, CONFIG).step == 15


def test_what_is_being_written_when_a_run_fails_is_finished(tmp_path: Path):
    def fail() -> None:
        with Checkpoints(tmp_path, CONFIG, Files("slow", is_slow=True)) as checkpoints:
            checkpoints.begin(5, {})
            raise RuntimeError("the judge is gone")

    with pytest.raises(RuntimeError, match="the judge is gone"):
        fail()
    assert latest_checkpoint(tmp_path, CONFIG).step == 5


# --- Which are kept ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_few_are_kept(tmp_path: Path, keep):
    for step in range(1, 6):
        save(tmp_path, step, config=config_of(keep=keep))
    assert kept(tmp_path) == list(range(6 - keep, 6))


def test_the_best_few_are_kept_besides_and_of_equals_the_earliest(tmp_path: Path):
    scores = {1: 0.4, 2: 0.5, 3: None, 4: 0.5, 5: 0.45, 6: 0.1, 7: 0.2}
    for step, score in scores.items():
        save(tmp_path, step, score=score, config=config_of(keep=1, keep_best=2))
    assert kept(tmp_path) == [2, 4, 7]
    assert find_checkpoint(tmp_path, "best").step == 2


@given(
    st.lists(st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_dropping_as_one_goes_keeps_what_choosing_at_the_end_would_keep(scores, keep, keep_best):
    config = config_of(keep=keep, keep_best=keep_best)
    every = [Checkpoint(Path(str(step)), step, {}, score) for step, score in enumerate(scores)]
    left: list[Checkpoint] = []
    for checkpoint in every:
        left = kept_of([*left, checkpoint], config)
    ranked = sorted((c for c in every if c.score is not None), key=lambda c: (-c.score, c.step))
    assert {c.step for c in left} == {c.step for c in (*every[-keep:], *ranked[:keep_best])}


def test_a_checkpoint_is_found_by_its_step_or_as_the_last_or_the_best(tmp_path: Path):
    for step, score in ((5, 0.75), (10, 0.5)):
        save(tmp_path, step, score=score)
    assert {which: find_checkpoint(tmp_path, which).step for which in ("5", "10", "last", "best")} == {
        "5": 5,
        "10": 10,
        "last": 10,
        "best": 5,
    }
    with pytest.raises(CheckpointError, match=r"no checkpoint '7'; there are: 5 \(0\.750\), 10 \(0\.500\)"):
        find_checkpoint(tmp_path, "7")


def test_without_a_score_there_is_no_best(tmp_path: Path):
    save(tmp_path, 5)
    with pytest.raises(CheckpointError, match="no checkpoint 'best'; there are: 5 "):
        find_checkpoint(tmp_path, "best")


# --- Failures ------------------------------------------------------------------------------------------------------


def test_killed_at_any_file_operation_a_whole_newest_checkpoint_is_left(tmp_path: Path):
    script = subprocess.run(
        [sys.executable, killed_writer.__file__, str(tmp_path / "checkpoints")],
        capture_output=True,
        text=True,
        timeout=600,
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


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.slow
def test_killed_at_fsyncs_and_renames_a_run_is_resumed_to_the_same_weights(tmp_path: Path, every: int):
    script = subprocess.run(
        [sys.executable, "-m", killed_trainer.__name__, str(tmp_path), str(every)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert script.returncode == 0, script.stderr
    outcomes = [json.loads(line) for line in script.stdout.splitlines()]
    assert [outcome["code"] for outcome in outcomes] == [-9] * (len(outcomes) - 1) + [0]
    assert all(outcome["is_same"] for outcome in outcomes)
    steps = [outcome["resumed_from"] for outcome in outcomes]
    assert steps == sorted(steps)
    assert set(steps) == {0, 1, 2}
    if every > 1:
        return
    places = "\n".join(outcome["at"] for outcome in outcomes)  # no kind of file was passed over
    for step in (1, 2):
        for name in ("algorithm.json", "state.json", "actor/shard-", "actor/manifest.json"):
            assert f"fsync /checkpoints/.step-00000{step}.partial/{name}" in places
        assert f"rename /checkpoints/.step-00000{step}.partial" in places


def test_a_state_that_cannot_be_saved_leaves_the_older_checkpoint(tmp_path: Path):
    save(tmp_path, 5)
    with pytest.raises(RuntimeError, match="no state"):
        save(tmp_path, 10, state=Files("", RuntimeError("no state")))
    assert latest_checkpoint(tmp_path, CONFIG).step == 5
    assert steps(tmp_path) == ["step-000005"]


def test_a_full_disk_is_a_fault_of_the_host_and_leaves_the_older_checkpoint(tmp_path: Path):
    save(tmp_path, 5)
    with pytest.raises(HostError, match=r"step-000010: cannot be written \(No space left on device\). The older"):
        save(tmp_path, 10, state=Files("", OSError(errno.ENOSPC, "No space left on device")))
    assert latest_checkpoint(tmp_path, CONFIG).step == 5


def test_a_limit_on_the_size_of_files_leaves_the_older_checkpoint(tmp_path: Path):
    save(tmp_path, 5)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(HostError, match="step-000010: cannot be written"):
            save(tmp_path, 10, state=Files("x" * 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert steps(tmp_path) == ["step-000005"]
    save(tmp_path, 10)
    assert latest_checkpoint(tmp_path, CONFIG).step == 10


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda part: (part / "weights").unlink(), r"weights: missing"),
        (lambda part: (part / "weights").write_text("x"), r"weights: damaged \(it has 1 bytes, written were 18\)"),
        (lambda part: (part / "weights").write_text("weights of step 11"), r"weights: damaged \(its checksum"),
        (lambda part: (part / "manifest.json").unlink(), r"manifest\.json: damaged"),
        (lambda part: (part / "manifest.json").write_text("[]"), r"manifest\.json: damaged"),
        (shutil.rmtree, r"actor/manifest\.json: damaged"),
    ],
)
def test_a_lost_or_damaged_file_is_named_with_the_fix(tmp_path: Path, damage, message):
    save(tmp_path, 5)
    damage(save(tmp_path, 10) / "actor")
    with pytest.raises(CheckpointError, match=message) as refused:
        latest_checkpoint(tmp_path, CONFIG)
    assert f"Fix: move {tmp_path}/step-000010 away to resume from step-000005" in str(refused.value)
    (tmp_path / "step-000010").rename(tmp_path / "away")
    assert latest_checkpoint(tmp_path, CONFIG).step == 5


# --- Another configuration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "changed", "was", "now"),
    [
        ("seed", {"seed": 7}, "0", "7"),
        ("optimizer.warmup_steps", {"optimizer": {"warmup_steps": 7}}, "0", "7"),
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
        "pools": {"other": {"executor": "spawn", "processes": 2}},
        "workers": {"actor": "other", "sampler": "other"},
        "watchdog_s": 60,
        "worker_restarts": 2,
        "loggers": ["mlflow"],
        "sft": {"checkpoint_every": 7},
        "trainer": {
            "sharding": "zero2",
            "shard_size": 2,
            "activation_checkpointing": True,
            "cpu_offload": True,
            "compile": True,
            "logits_chunk": 7,
            "packing": "always",
            "liger": True,
        },
        "optimizer": {"learning_rate": 1e-5},
    }
    inner = {"sft", "trainer", "optimizer"}
    parts = {f"{key}.{name}" for key in inner for name in changed[key]}
    of_others = {"critic.optimizer.learning_rate", "trainer.critic_sharding", "trainer.reference_sharding"}
    assert parts | of_others | set(changed) - inner == set(FREE_TO_CHANGE)
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
    folder = save(tmp_path, 5)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"seconds": 3}))
    with pytest.raises(CheckpointError, match="damaged"):
        latest_checkpoint(tmp_path, CONFIG)


# --- Another architecture ------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_architecture_is_refused_with_the_first_key_that_differs(tmp_path: Path):
    def inputs(width: int) -> dict[str, object]:
        return {"architecture": {"model_type": "llama", "hidden_size": width}}

    save(tmp_path, 5, inputs=inputs(32))
    assert latest_checkpoint(tmp_path, CONFIG, inputs(32)).step == 5
    with pytest.raises(CheckpointError, match=r"made with architecture\.hidden_size = 32, now it is 64"):
        latest_checkpoint(tmp_path, CONFIG, inputs(64))
    with pytest.raises(CheckpointError, match=r"made with architecture = \{.*\}, now it is None"):
        latest_checkpoint(tmp_path, CONFIG)


def test_an_architecture_is_what_decides_the_shapes_of_weights(tmp_path: Path):
    content = {"model_type": "llama", "hidden_size": 32, "transformers_version": "5", "dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert policy_inputs(tmp_path) == {"architecture": {"model_type": "llama", "hidden_size": 32}}
    with pytest.raises(CheckpointError, match="a run is resumed with the policy that it began with"):
        policy_inputs(tmp_path / "nowhere")
