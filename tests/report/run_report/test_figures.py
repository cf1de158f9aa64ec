from __future__ import annotations

import pytest

from autoclave.report.run_report.figures import averaged, evaluation_figure, length_figure, running_mean, status_figure
from autoclave.report.run_report.tables import STAGES, stage_seconds
from autoclave.runs.reader import read_run


def test_a_running_mean_takes_the_same_number_of_neighbours_on_both_sides():
    means = running_mean([(0, 1.0), (1, 2.0), (2, 6.0), (3, 1.0), (4, 5.0)], window=5)
    assert means == [(0, 1.0), (1, 3.0), (2, 3.0), (3, 4.0), (4, 5.0)]


def test_long_runs_are_averaged_over_neighbouring_steps():
    rows = averaged([{"step": step, "x": float(step)} for step in range(1, 401)])  # 400 rows, at most 200 drawn
    assert len(rows) == 200
    assert rows[0] == {"step": 2, "x": 1.5}
    assert rows[-1] == {"step": 400, "x": 399.5}


def test_what_statuses_leave_to_one_has_no_verdict():
    figure = status_figure([{"step": 1, "status/accepted": 0.5, "status/time_limit": 0.25}])
    assert figure.legend == (("accepted", "accepted"), ("time limit", "time_limit"), ("no verdict", "no_verdict"))
    assert "no verdict: 25.0%\ntime limit: 25.0%\naccepted: 50.0%" in (figure.svg or "")


def test_evaluations_of_fewer_problems_are_told_apart(make_run):
    figure = evaluation_figure(read_run(make_run(steps=30)))
    assert (figure.svg or "").count("hollow") == 2  # steps 10 and 20
    assert "Rings" in figure.note


def test_stages_of_length_are_told_with_the_step_that_they_begin_at(make_run, add_lines):
    folder = make_run(steps=2)
    assert length_figure(read_run(folder), read_run(folder).train).note == "Sampled tokens."
    limits = [(1.0, 40.0), (1.0, 40.0), (1.25, 50.0), (2.0, 80.0)]  # the third step learnt from both
    keys = ("length_schedule/stage", "length_schedule/max_new_tokens")
    rows = [dict(zip(keys, values, strict=True)) for values in limits]
    lines = [{"kind": "train", "step": n, "response_length/mean": 30.0} | row for n, row in enumerate(rows, start=1)]
    add_lines(folder / "metrics.jsonl", lines)
    figure = length_figure(read_run(folder), read_run(folder).train)
    assert figure.note == "Sampled tokens. Stage 1 from step 1: 40 tokens; stage 2 from step 4: 80 tokens."
    assert [label for label, _ in figure.legend] == ["responses", "their limit"]


def test_stages_of_a_step_add_up_to_it():
    row = {
        "time/sample_s": 4.0, "time/judge_tail_s": 1.0, "time/collect_s": 5.5, "time/learn_s": 3.0,
        "time/log_prob_s": 1.0, "time/publish_s": 0.25, "time/step_s": 9.0,
    }  # fmt: skip
    seconds = stage_seconds(row)
    assert list(seconds) == list(STAGES)
    assert list(seconds.values()) == pytest.approx([4.0, 1.0, 0.5, 1.0, 2.0, 0.25, 0.25])
    assert sum(seconds.values()) == pytest.approx(9.0)
