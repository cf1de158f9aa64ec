"""The timeline of a run: what real stages record, what metrics say of it, and what a resumed run makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.core import JudgeFault
from autoclave.core.timeline import Role
from autoclave.runs.reader import read_metrics
from autoclave.runs.timeline import read_steps, role_times, share_metrics, timeline_steps
from autoclave.training.checkpoints import latest_checkpoint
from autoclave.training.train import run_to_end
from autoclave.training.watchdog import StopRequest

from .test_run_to_end import CONFIG, run_in


def test_a_run_keeps_a_timeline_of_each_step_with_what_was_done_after_its_barrier(tmp_path: Path):
    with run_in(tmp_path) as run:
        run_to_end(run, done=0, stop=StopRequest())
    found = {timeline.step: timeline for timeline in read_steps(tmp_path, timeline_steps(tmp_path))}
    done = {step: [span.role for span in timeline.spans] for step, timeline in found.items()}
    learnt = [Role.TRAINER, Role.PUBLISH]
    driver = {step: [role for role in roles if role not in (Role.SAMPLER, Role.JUDGE)] for step, roles in done.items()}
    assert driver == {
        0: [Role.EVALUATION],
        1: learnt,
        2: [*learnt, Role.EVALUATION],
        3: [*learnt, Role.CHECKPOINT],
        4: [*learnt, Role.EVALUATION, Role.CHECKPOINT],
    }
    for step, timeline in found.items():
        assert all(span.step == step for span in timeline.spans)
        inside = [timeline.start <= span.start and span.end <= timeline.end for span in timeline.spans]
        after = [span.role in (Role.EVALUATION, Role.CHECKPOINT) for span in timeline.spans]
        assert inside == [not is_after for is_after in after] or step == 0
    (learn,) = (span for span in found[1].spans if span.role is Role.TRAINER)
    assert learn.attributes == {"rollouts": 16}


def test_metrics_say_of_each_step_what_its_timeline_does(tmp_path: Path):
    with run_in(tmp_path) as run:
        run_to_end(run, done=0, stop=StopRequest())
    rows = read_metrics(tmp_path / "metrics.jsonl")["train"]
    for row, timeline in zip(rows, read_steps(tmp_path, [1, 2, 3, 4]), strict=True):
        expected = share_metrics(role_times(timeline.spans, timeline.window))
        expected.pop("hidden/reward", None)  # of a judge that takes microseconds, which is what files are rounded to
        assert {name: row[name] for name in expected} == pytest.approx(expected, abs=5e-3)
        assert row["busy/trainer"] > 0
        assert row["hidden/trainer"] == 0  # the schedule is synchronous


def test_a_resumed_run_replaces_the_steps_that_it_does_again_and_goes_on(tmp_path: Path):
    with run_in(tmp_path) as run:
        run_to_end(run, done=0, stop=StopRequest())
    before = {timeline.step: timeline for timeline in read_steps(tmp_path, timeline_steps(tmp_path))}
    checkpoint = latest_checkpoint(tmp_path / "checkpoints", CONFIG)
    with run_in(tmp_path, goes_on_from=checkpoint) as run:
        run_to_end(run, done=2, stop=StopRequest())
    after = {timeline.step: timeline for timeline in read_steps(tmp_path, timeline_steps(tmp_path))}
    assert [step for step in before if before[step] == after[step]] == [0, 1, 2]
    assert after[3].start > before[4].end
    assert sorted(after) == [0, 1, 2, 3, 4]


def test_the_step_that_ended_a_run_is_on_record(tmp_path: Path):
    with run_in(tmp_path, lambda response: None) as run, pytest.raises(JudgeFault):
        run_to_end(run, done=0, stop=StopRequest())
    assert timeline_steps(tmp_path) == [0, 1]
