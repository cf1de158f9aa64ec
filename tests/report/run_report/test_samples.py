from __future__ import annotations

import pytest

from autoclave.report.run_report import page as samples
from autoclave.report.run_report.page import sample_step


def _record(group: str, sample: int, status: str | None, **more: object) -> dict[str, object]:
    verdict = {"problem_id": group, "id": "", "status": status, "failing_test": None, "level": "sealed", "message": ""}
    verdict |= {"reward": None if status is None else float(status == "accepted"), "tests": [], "fault": None}
    record = {"step": 5, "item": group, "group": group, "sample": sample, "prompt": "p", "response": "r", "tokens": 3}
    return record | {"reward": verdict["reward"], "reason": "", "verdict": verdict} | more


@pytest.fixture
def write(write_rollouts, tmp_path):
    """Write a rollout file of step 5 and give its path."""
    return lambda records: write_rollouts(tmp_path, 5, records)


def test_partly_accepted_groups_come_first_then_one_that_failed_and_one_that_was_accepted(write):
    outcomes = {"won-1": "aa", "won-2": "aa", "lost-1": "ff", "lost-2": "ff", "mixed-1": "af", "mixed-2": "fa"}
    words = {"a": "accepted", "f": "wrong_answer"}
    path = write([_record(name, i, words[each]) for name, line in outcomes.items() for i, each in enumerate(line)])
    step = sample_step(path, 4)
    assert [group.item for group in step.groups] == ["mixed-1", "mixed-2", "lost-1", "won-1"]
    assert step.step == 5


def test_siblings_are_in_order_of_sample_also_when_the_file_mixes_groups(write):
    path = write([_record(name, sample, "accepted") for sample in (2, 0, 1) for name in ("a", "b")])
    group = sample_step(path, 2).groups[0]
    assert [rollout.record["sample"] for rollout in group.rollouts] == [0, 1, 2]
    assert (group.num_accepted, group.num_rollouts) == (3, 3)


def test_the_first_accepted_and_the_first_failed_are_open(write):
    statuses = [None, "wrong_answer", "accepted", "accepted", "time_limit"]
    group = sample_step(write([_record("a", i, status) for i, status in enumerate(statuses)]), 1).groups[0]
    assert [rollout.record["sample"] for rollout in group.open_rollouts] == [2, 1]
    assert [rollout.outcome for rollout in group.rollouts] == ["none", "failed", "accepted", "accepted", "failed"]


def test_a_large_group_is_cut_and_counted(write):
    group = sample_step(write([_record("a", i, "accepted") for i in range(40)]), 1).groups[0]
    assert (len(group.rollouts), group.num_rollouts) == (16, 40)


def test_a_fault_says_why_there_is_no_verdict(write):
    record = _record("a", 0, None, reason="accepted")
    record["verdict"] = {**record["verdict"], "fault": {"kind": "SandboxFault", "detail": "no cell"}}
    rollout = sample_step(write([record]), 1).groups[0].rollouts[0]
    assert (rollout.status, rollout.message) == ("no_verdict", "SandboxFault: no cell")


def test_a_file_cut_by_a_kill_gives_what_is_readable(write):
    path = write([_record(f"g{i}", 0, "accepted", response=str(7**i) * 20) for i in range(200)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert len(sample_step(path, 4).groups) == 4


def test_only_the_beginning_of_a_long_file_is_read(write, monkeypatch):
    monkeypatch.setattr(samples, "SCANNED_ROLLOUTS", 10)
    path = write([_record(f"g{i}", 0, "accepted") for i in range(50)])
    assert len(sample_step(path, 40).groups) == 10
