"""A run's alignment samples from end to end of a step, with scripted traces."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from autoclave.config import AlignmentConfig, AlignmentGrowthConfig, AlignmentLimitsConfig
from autoclave.core import (
    AlignmentSample,
    CallCase,
    CallTests,
    CheckpointError,
    ConfigError,
    FaultError,
    Group,
    JudgeFault,
    Problem,
    Reward,
    Rollout,
    Status,
    StdinCase,
    StdinTests,
    TaskItem,
    Trace,
    TraceStatus,
    Verdict,
)
from autoclave.tasks import ExecutionSemantics
from autoclave.training.alignment.alignment import Alignment, AlignmentSampler
from autoclave.training.alignment.candidates import Candidate, candidates
from autoclave.training.learned import ShuffledItems
from tests.training_parts import completion, settled

PROBLEMS = [
    Problem(f"Problem {n}.", StdinTests("stdin", [StdinCase(f"{k}\n", "") for k in range(3)]), id=f"p{n}")
    for n in range(12)
]
ITEMS = [TaskItem("code_generation", p.id, p.id, ({"role": "user", "content": p.statement},), p) for p in PROBLEMS]
PER_STEP = 10


def trace_of(candidate: Candidate) -> Trace:
    variables = {"y": str(1000 + len(candidate.program) + candidate.test)}
    return Trace(test=candidate.test, status=TraceStatus.FINISHED, entry="<module>", variables=variables)


class Tracer:
    """Traces at once, and keeps what it was asked."""

    def __init__(self, answers: Any = trace_of) -> None:
        self.asked: list[Candidate] = []
        self._answer = answers

    def __call__(self, candidate: Candidate) -> Future[Trace]:
        self.asked.append(candidate)
        try:
            return settled(self._answer(candidate))
        except JudgeFault as fault:
            return settled(fault)


def alignment(tracer: Any = None, objection: Any = lambda item: None, **settings: Any) -> Alignment:
    alignment_sampler = AlignmentSampler(
        item_of=ExecutionSemantics("plain").item,
        objection=objection,
        program_of=lambda item, response: response or None,
        trace=tracer or Tracer(),
        references=lambda: [Candidate(problem, f"y = {problem.id}", 0, 0) for problem in PROBLEMS],
    )
    programs = ShuffledItems(ITEMS, per_iteration=PER_STEP, seed=0)
    return Alignment(AlignmentConfig(template="plain", **settings), programs, alignment_sampler, seed=0)


def answered(
    items: Sequence[TaskItem], step: int, status: Status | None = Status.WRONG_ANSWER, size: int = 4
) -> list[Group]:
    """Groups of different programs, all judged alike."""
    return [
        Group(item, tuple(_rollout(item, (step, index, n), status) for n in range(size)))
        for index, item in enumerate(items)
    ]


def _rollout(item: TaskItem, request: tuple[int, ...], status: Status | None) -> Rollout:
    if isinstance(item.payload, AlignmentSample):
        reward = Reward(1.0, "exact")
    else:
        test = 1 if status is Status.WRONG_ANSWER else None
        verdict = Verdict("", "", status, None if status is None else 0.0, test)
        reward = Reward(verdict.reward, status or "no_verdict", verdict=verdict)
    text = f"y = {' '.join(map(str, request))} {item.id}"
    return Rollout(item, request[-1], (completion(text=text),), reward, request=request, length_limit=9)


def alignment_samples_of(items: Sequence[TaskItem]) -> list[AlignmentSample]:
    return [item.payload for item in items if isinstance(item.payload, AlignmentSample)]


def go(found: Alignment, steps: int, start: int = 0, **options: Any) -> list[dict[str, float]]:
    """The metrics of so many steps in which all programs fail."""
    metrics = []
    for step in range(start, start + steps):
        groups = answered(found.items.at(step), step, **options)
        found.begin(groups)
        metrics.append(found.settle(step + 1, (), groups))
    return metrics


def test_the_first_step_asks_for_programs_and_then_the_share_is_kept():
    rows = go(alignment(share=0.25), 9)
    assert [row["alignment/share"] for row in rows] == [0.0, 0.3, 0.2, 0.3, 0.2, 0.3, 0.2, 0.3, 0.2]
    assert [row["alignment/short"] for row in rows] == [2.0, *[0.0] * 8]


def test_programs_are_not_skipped_when_alignment_samples_take_their_place():
    found, asked = alignment(), list[str]()
    for step in range(6):
        asked += [item.id for item in found.items.at(step) if isinstance(item.payload, Problem)]
        go(found, 1, step)
    plain = ShuffledItems(ITEMS, per_iteration=PER_STEP, seed=0).at_positions(range(len(asked)))
    assert asked == [item.id for item in plain]


def test_a_failed_program_is_traced_on_the_test_that_it_failed_and_then_on_others():
    tracer = Tracer()
    go(alignment(tracer), 1)
    assert {candidate.test for candidate in tracer.asked} == {1}
    tracer = Tracer()
    found = alignment(tracer, tests_per_program=2, traced_per_step=1000)
    go(found, 1)
    by_program: dict[str, list[int]] = {}
    for candidate in tracer.asked:
        by_program.setdefault(candidate.program, []).append(candidate.test)
    assert all(tests[0] == 1 and len(set(tests)) == 2 for tests in by_program.values())


def test_programs_come_before_other_tests_of_the_same():
    tracer = Tracer()
    metrics = go(alignment(tracer, tests_per_program=3, traced_per_step=50), 1)
    assert metrics[0]["alignment/traced"] == 50
    runs = Counter(candidate.program for candidate in tracer.asked)
    assert Counter(runs.values()) == {2: 10, 1: 30}


def test_runs_of_one_program_follow_each_other():
    tracer = Tracer()
    go(alignment(tracer, tests_per_program=3, traced_per_step=100), 1)
    programs = [candidate.program for candidate in tracer.asked]
    assert len([program for program, _ in groupby(programs)]) == len(set(programs)) == 40


def test_what_is_asked_next_is_of_many_programs():
    found = alignment(tests_per_program=3, traced_per_step=100)
    go(found, 1)
    alignment_samples = alignment_samples_of(found.items.at(1))
    assert len({alignment_sample.program for alignment_sample in alignment_samples}) == len(alignment_samples) == 4
    assert {alignment_sample.test for alignment_sample in alignment_samples} == {1}  # the one that was failed


@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.RUNTIME_ERROR, Status.TIME_LIMIT, Status.BAD_FORMAT, None])
def test_only_wrong_answers_become_alignment_samples(status: Status | None):
    tracer = Tracer()
    go(alignment(tracer), 2, status=status)
    assert not tracer.asked


def test_any_program_may_become_an_alignment_sample_where_random_ones_are_asked_for():
    tracer = Tracer()
    rows = go(alignment(tracer, programs="random"), 2, status=Status.ACCEPTED)
    assert tracer.asked
    assert rows[-1]["alignment/share"] == 0.4


def test_solutions_become_alignment_samples_before_training_and_failed_programs_do_not():
    tracer = Tracer()
    found = alignment(tracer, programs="reference")
    found.begin_run()
    assert {candidate.program for candidate in tracer.asked} == {f"y = {problem.id}" for problem in PROBLEMS}
    assert {alignment_sample.source for alignment_sample in alignment_samples_of(found.items.at(0))} == {"reference"}
    go(found, 1)
    assert len(tracer.asked) == len(PROBLEMS)


def test_tracing_is_bounded_and_spread_over_problems_and_nothing_is_traced_twice():
    tracer = Tracer()
    found = alignment(tracer, traced_per_step=7)
    go(found, 1)
    assert len(tracer.asked) == 7
    assert len({candidate.problem.id for candidate in tracer.asked}) == 7
    again = answered(ITEMS[:PER_STEP], 0)
    found.begin(again)
    found.settle(2, (), again)
    keys = [(candidate.program, candidate.test) for candidate in tracer.asked]
    assert len(keys) == len(set(keys))


def test_while_few_alignment_samples_wait_more_is_traced():
    tracer = Tracer(lambda candidate: Trace(test=0, status=TraceStatus.RAISED, entry="<module>"))
    go(alignment(tracer), 1, size=8)
    assert len(tracer.asked) == 16  # four times 0.4 of 10
    found = alignment(tracer := Tracer(), share=0.1)
    go(found, 4)
    before = len(tracer.asked)
    go(found, 1, start=4)
    assert len(tracer.asked) - before == 2


def test_what_is_no_alignment_sample_is_counted_by_its_reason():
    def answer(candidate: Candidate) -> Trace:
        if candidate.problem.id == "p0":
            raise JudgeFault("no cell")
        status = TraceStatus.RAISED if candidate.problem.id == "p1" else TraceStatus.FINISHED
        variables = {} if candidate.problem.id == "p2" else {"y": "77"}
        return Trace(test=candidate.test, status=status, entry="<module>", variables=variables)

    found = alignment(Tracer(answer), lambda item: "prompt_too_long" if "p3" in item.id else None, traced_per_step=1000)
    groups = answered(ITEMS[:5], 0, size=2)
    found.begin(groups)
    metrics = found.settle(1, (), groups)
    counts = {name.rpartition("/")[2]: count for name, count in metrics.items() if "unusable" in name}
    assert counts == {"no_trace": 2, "did_not_end_normally": 2, "nothing_informative": 2, "prompt_too_long": 2}
    assert (metrics["alignment/traced"], metrics["alignment/added"]) == (10, 2)


def test_parts_of_a_step_share_what_may_be_traced():
    tracer = Tracer()
    found = alignment(tracer, traced_per_step=8)
    found = Alignment(
        found._config, ShuffledItems(ITEMS, per_iteration=PER_STEP, seed=0), found._alignment_sampler, seed=0, parts=2
    )
    groups = answered(found.items.at(0), 0)
    found.begin(groups[:5])
    assert len(tracer.asked) == 4
    found.begin(groups[5:])
    assert len(tracer.asked) == 8
    found.settle(1, (), groups)
    found.begin(answered(found.items.at(1), 1)[:5])
    assert len(tracer.asked) == 12


def test_alignment_samples_of_solutions_are_asked_in_rounds():
    found = alignment(programs="reference")
    found.begin_run()
    rows = go(found, 12)
    assert all(row["alignment/share"] == 0.4 for row in rows)
    assert not any(row["alignment/short"] for row in rows)


def test_alignment_samples_that_are_too_old_for_the_policy_are_dropped_and_counted():
    found = alignment(max_staleness=2, traced_per_step=1000)
    groups = answered(found.items.at(0), 0)
    found.begin(groups)
    found.settle(1, (), groups)
    assert found.settle(2, (), groups)["alignment/stale"] == 0
    row = found.settle(3, (), groups)
    assert row["alignment/stale"] > 0
    assert row["alignment/waiting"] == 0


def test_the_order_in_which_groups_complete_changes_nothing():
    one, other = alignment(tests_per_program=3), alignment(tests_per_program=3)
    groups = answered(one.items.at(0), 0)
    other.items.at(0)
    one.begin(groups)
    other.begin(groups[::-1])
    one.settle(1, (), groups)
    other.settle(1, (), groups)
    assert [item.id for item in one.items.at(1)] == [item.id for item in other.items.at(1)]


def test_alignment_samples_begin_small_and_grow():
    growth = AlignmentGrowthConfig(steps=4, variables=1, program_characters=20)
    config = AlignmentConfig(growth=growth, limits=AlignmentLimitsConfig(variables=5, program_characters=60))
    assert [config.limits_at(step).variables for step in range(6)] == [1, 2, 3, 4, 5, 5]
    assert [config.limits_at(step).program_characters for step in range(6)] == [20, 30, 40, 50, 60, 60]
    tracer = Tracer()
    found = alignment(tracer, growth=AlignmentGrowthConfig(steps=50, program_characters=5))
    go(found, 1)
    assert not tracer.asked  # all are longer


@pytest.mark.parametrize("ahead", [(), (5,)])
def test_it_goes_on_from_what_it_saved_as_if_nothing_had_happened(tmp_path: Path, ahead: tuple[int, ...]):
    whole, resumed = alignment(share=0.35, tests_per_program=2), alignment(share=0.35, tests_per_program=2)
    go(whole, 5)
    for iteration in ahead:  # begun, and not learnt from
        whole.items.at(iteration)
    whole.save(tmp_path)
    resumed.load(tmp_path)
    assert [[item.id for item in found.items.at(5)] for found in (whole, resumed)] == [
        [i.id for i in whole.items.at(5)]
    ] * 2
    assert go(whole, 6, start=5) == go(resumed, 6, start=5)
    assert [item.id for item in whole.items.at(11)] == [item.id for item in resumed.items.at(11)]


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", json.dumps({"step": 1, "buffer": {"waiting": [{}], "known": []}})]
)
def test_what_is_damaged_is_named(tmp_path: Path, content: str):
    (tmp_path / "alignment.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"alignment\.json: damaged"):
        alignment().load(tmp_path)
    with pytest.raises(CheckpointError, match=r"alignment\.json: damaged"):
        alignment().load(tmp_path / "missing")


def test_a_judge_that_makes_no_traces_ends_the_run():
    def answer(candidate: Candidate) -> Trace:
        raise JudgeFault("forbidden: needs traces:read")

    with pytest.raises(FaultError, match=r"has not traced one of \d+ programs: forbidden: needs traces:read"):
        go(alignment(Tracer(answer)), 1)


def test_solutions_without_an_alignment_sample_end_the_run_before_it_begins():
    found = alignment(Tracer(lambda candidate: replace(trace_of(candidate), variables={})), programs="reference")
    with pytest.raises(
        ConfigError, match=r"no solution of a training problem is an alignment sample \(nothing_informative \d+\)"
    ):
        found.begin_run()


def test_a_test_with_a_long_input_is_passed_over_for_one_with_a_short_one():
    cases = [StdinCase("1\n", ""), StdinCase("1 " * 50, ""), StdinCase("2\n", "")]
    item = replace(ITEMS[0], payload=Problem("?", StdinTests("stdin", cases), id="long"))
    tracer = Tracer()
    found = alignment(tracer, limits=AlignmentLimitsConfig(input_characters=10))
    groups = answered([item], 0)
    found.begin(groups)
    assert tracer.asked
    assert 1 not in {candidate.test for candidate in tracer.asked}  # which failed


def test_problems_whose_programs_leave_no_trace_are_passed_over():
    other = Problem("?", CallTests("call", "f", [CallCase([1], 2)]), id="cpp", language="cpp")
    item = TaskItem("code_generation", "cpp", "cpp", (), other)
    groups = answered([item], 0)
    assert not candidates(
        groups, lambda item, text: text, programs="failed", tests_per_program=1, fits=lambda *_: True, seed=(0,)
    )
