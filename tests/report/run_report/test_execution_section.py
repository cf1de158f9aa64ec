from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoclave.report.charts import Interval
from autoclave.report.run_report import write_report
from autoclave.report.run_report.execution import execution_section, sample_cases
from autoclave.report.run_report.figures import curve_sections
from autoclave.runs.reader import read_run

EVALUATION = {"problems": 100, "samples": 4, "pass@1/low": 0.01, "pass@1/high": 0.09, "greedy": 0.06}


def metrics(step: int, **more: float) -> dict[str, Any]:
    found = {"reward": 0.3 + step / 100, "exact_share": 0.25, "bad_format_share": 0.125, "share": 0.375, "short": step}
    return {"kind": "train", "step": step, **{f"alignment/{key}": value for key, value in found.items()}, **more}


def evaluated(task: str, step: int, value: float) -> dict[str, Any]:
    return {"kind": f"evaluation/{task}", "step": step, "pass@1": value, **EVALUATION}


def case(group: str, sample: int, reason: str, **alignment_sample: Any) -> dict[str, Any]:
    words = {
        "problem_id": group, "test": 0, "program": f"n = {sample}", "entry": "<module>", "input": "3",
        "variables": {"n": "3"}, "source": "failed", "version": 6,
    }  # fmt: skip
    response = "n is 3" if reason == "bad_format" else json.dumps({"n": 3 if reason == "exact" else 4})
    return {
        "task": "execution_semantics", "item": f"{group}/execution_semantics/0", "group": group, "sample": sample,
        "prompt": "p", "response": response, "reward": float(reason == "exact"), "reason": reason, "verdict": None,
        "reward_parts": {} if reason == "bad_format" else {"variable/n": float(reason == "exact")},
        "alignment_sample": words | alignment_sample,
    }  # fmt: skip


@pytest.fixture
def aligned(make_run, add_lines, write_rollouts) -> Path:
    """A run with alignment samples from its second step on, evaluated twice on two tasks."""
    folder = make_run(steps=4)
    accuracy = {f"alignment/accuracy/{name}": 0.5 for name in ("kind/int", "kind/str")}
    accuracy |= {f"alignment/accuracy/length/{name}": 0.4 for name in ("under-1600", "under-200", "from-1600")}
    lines = [metrics(step, **(accuracy if step > 1 else {})) for step in range(1, 5)]
    for step, value in ((0, 0.02), (4, 0.05)):
        lines += [evaluated("test_output_prediction", step, value), evaluated("execution_semantics", step, value)]
    add_lines(folder / "metrics.jsonl", lines)
    write_rollouts(folder, 4, [case("a", n, reason) for n, reason in enumerate(("wrong", "exact", "exact"))])
    return folder


def page(folder: Path) -> str:
    """The section of the page, empty if there is none."""
    found = re.search(r'<section id="execution">.*?</section>', write_report(folder).read_text("utf-8"), re.DOTALL)
    return found[0] if found else ""


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


# --- Charts and table ----------------------------------------------------------------------------------------------


def test_a_run_without_alignment_samples_has_no_such_section(make_run):
    folder = make_run(steps=3)
    assert execution_section(read_run(folder)) is None
    assert page(folder) == ""
    assert "#execution" not in write_report(folder).read_text("utf-8")


def test_each_number_of_alignment_samples_is_drawn(aligned: Path):
    section = execution_section(read_run(aligned))
    assert section is not None
    drawn = {figure.title: figure for figure in section.figures}
    assert [title for title, figure in drawn.items() if figure.svg is None] == []
    assert "step 2\nreward: 32.0%\nexact: 25.0%\nmalformed: 12.5%" in (drawn["Answers to alignment samples"].svg or "")
    assert "step 4\nalignment samples: 37.5%" in (drawn["Alignment samples in the batch"].svg or "")
    assert "step 4\nshort: 4" in (drawn["Shortage"].svg or "")
    assert [label for label, _ in drawn["By kind of variable"].legend] == ["int", "str"]
    assert [label for label, _ in drawn["By length of program"].legend] == ["under 200", "under 1600", "from 1600"]


def test_the_share_that_was_asked_for_stands_beside_the_measured_one(aligned: Path):
    (aligned / "config.yaml").write_text("name: demo\nalignment:\n  share: 0.5\n")
    section = execution_section(read_run(aligned))
    assert section is not None
    (figure,) = [figure for figure in section.figures if figure.title == "Alignment samples in the batch"]
    assert "step 1\nalignment samples: 37.5%\nwanted: 50.0%" in (figure.svg or "")


def test_held_out_tasks_stand_beside_held_out_problems_with_their_intervals(aligned: Path):
    section = execution_section(read_run(aligned))
    assert section is not None
    assert [row.name for row in section.rows] == ["held-out problems", "execution_semantics", "test_output_prediction"]
    row = section.rows[1]
    assert (row.before, row.after, row.items) == (Interval(0.02, 0.01, 0.09), Interval(0.05, 0.01, 0.09), 100)
    figure = section.figures[-1]
    assert [label for label, _ in figure.legend] == [
        "held-out problems",
        "execution semantics",
        "test output prediction",
    ]
    assert (figure.svg or "").count('class="band ') == 3
    assert "execution semantics 100 2.0% 1.0% to 9.0% 5.0% 1.0% to 9.0% 6.0% 6.0%" in words(page(aligned))


def test_task_evaluations_alone_have_a_section_without_cases(make_run, add_lines):
    folder = make_run(steps=1)
    add_lines(folder / "metrics.jsonl", [evaluated("trace_inference", 0, 0.5)])
    section = execution_section(read_run(folder))
    assert section is not None
    assert [figure.title for figure in section.figures] == ["Held out"]
    assert "Cases" not in page(folder)
    assert "50.0%" in page(folder)


def test_alignment_samples_without_evaluations_and_rollouts_show(make_run, add_lines):
    folder = make_run(steps=0, evaluated=False, is_finished=False)
    add_lines(folder / "metrics.jsonl", [metrics(1)])
    assert "No answers to alignment samples recorded yet." in words(page(folder))


def test_names_of_metrics_are_never_markup(aligned: Path, add_lines):
    evil = "</svg><script>alert(1)</script>"
    named = {f"alignment/accuracy/kind/{evil}": 0.5, f"alignment/accuracy/length/{evil}": 0.5}
    add_lines(aligned / "metrics.jsonl", [metrics(5, **named), evaluated(evil, 5, 0.5)])
    assert write_report(aligned).read_text("utf-8").count("<script") == 1


# --- Cases ---------------------------------------------------------------------------------------------------------


def test_a_case_shows_the_program_the_input_and_both_values(aligned: Path):
    shown = page(aligned)
    said = words(shown)
    assert "wrong step 4 · a/execution_semantics/0" in said
    assert (
        "alignment sample: variables · program: a failed response of version 6 of the policy n = 0 standard input 3"
        in said
    )
    assert "n 3 4 wrong" in said
    assert shown.count("<article") == 1  # one of each alignment sample


@pytest.fixture
def write(write_rollouts, tmp_path: Path) -> Callable[[int, list[dict[str, Any]]], Path]:
    return lambda step, records: write_rollouts(tmp_path, step, records)


def test_cases_are_right_and_wrong_ones_of_the_last_steps(write):
    reasons = ("wrong", "exact", "partly", "bad_format")
    early = write(3, [case(f"{reason}-{n}", 0, reason) for n in range(3) for reason in reasons])
    late = write(4, [case(f"late-{n}", 0, "exact") for n in range(5)])
    found = sample_cases([early, late])
    assert [(found.step, found.reason) for found in found] == [
        (3, "wrong"), (3, "wrong"), (3, "partly"), (3, "bad_format"), (4, "exact"), (4, "exact"),
    ]  # fmt: skip


def test_programs_are_no_cases_and_cases_no_sample_programs(make_run, write_rollouts, add_lines):
    folder = make_run(steps=1)
    add_lines(folder / "metrics.jsonl", [metrics(1)])
    program = {
        "item": "b",
        "group": "b",
        "response": "print(1)",
        "reward": 0.0,
        "reason": "wrong",
        "alignment_sample": None,
    }
    write_rollouts(folder, 1, [program, case("a", 0, "wrong")])
    text = write_report(folder).read_text("utf-8")
    samples = text.partition('<section id="rollouts">')[2]
    assert ("print(1)" in samples, "a/execution_semantics/0" in samples) == (True, False)
    assert ("print(1)" in page(folder), "a/execution_semantics/0" in page(folder)) == (False, True)


def test_a_damaged_alignment_sample_or_file_leaves_the_other_cases(write):
    whole = write(3, [case("a", 0, "wrong")])
    damaged = write(4, [case("b", 0, "exact"), case("c", 0, "wrong") | {"alignment_sample": {"problem_id": 3}}])
    cut = write(5, [case(f"g{n}", 0, "partly", program=str(7**n)) for n in range(300)])
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    assert [found.item[0] for found in sample_cases([whole, damaged, cut])] == ["a", "g", "b"]


@pytest.mark.parametrize("evil", ["</pre><script>alert(1)</script>", '" onclick="x', "<b>" * 333_334, "\u202e\x00"])
def test_hostile_cases_are_bounded_text(aligned: Path, write_rollouts, evil: str):
    alignment_sample = {"program": evil, "input": evil, "variables": {evil: evil}}
    write_rollouts(aligned, 4, [case("a", 0, "wrong", **alignment_sample) | {"response": evil, "item": "a"}])
    shown = page(aligned)
    assert len(shown) < 300_000
    assert not re.search(r"<script|<b>{2}|onclick=\"x|[\x00\u202e]", shown)


# --- The gap -------------------------------------------------------------------------------------------------------


def test_the_gap_of_trainer_and_sampler_is_one_chart(make_run, add_lines):
    folder = make_run(steps=2)
    names = ("policy/log_prob_mismatch", "publish/mismatch_mean", "publish/mismatch_max", "publish/mismatch_k3")
    gaps = dict(zip(names, (0.5, 0.1, 0.4, 0.01), strict=True))
    add_lines(folder / "metrics.jsonl", [{"kind": "train", "step": 3, **gaps}])
    figures = [figure for _, figures in curve_sections(read_run(folder)) for figure in figures]
    (gap,) = [figure for figure in figures if figure.title.startswith("Gap")]
    said = "largest in training: 0.5\nlargest after publish: 0.4\nmean after publish: 0.1\nk3 after publish: 0.01"
    assert said in (gap.svg or "")


def test_a_run_that_was_not_probed_has_the_gap_of_training_alone(make_run, add_lines):
    folder = make_run(steps=2)
    add_lines(folder / "metrics.jsonl", [{"kind": "train", "step": 3, "policy/log_prob_mismatch": 0.5}])
    figures = [figure for _, figures in curve_sections(read_run(folder)) for figure in figures]
    (gap,) = [figure for figure in figures if figure.title.startswith("Gap")]
    assert gap.legend == (("largest in training", "accent"),)
