"""Hypothesis strategies for the nouns: `from tests.strategies import problems`. A new field is added here too."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from autoclave.core import (
    AnswerTests,
    CallCase,
    CallTests,
    CheckTests,
    Completion,
    CustomChecker,
    Ended,
    Fault,
    FinishReason,
    FloatChecker,
    Group,
    MaskReason,
    Outcome,
    Problem,
    Program,
    Reward,
    Rollout,
    Status,
    StdinCase,
    StdinTests,
    StoredTests,
    Submission,
    TaskItem,
    TestResult,
    Tests,
    Trace,
    TraceStatus,
    Verdict,
)
from autoclave.core.trace import literal

SHORT = 20
_SECONDS = st.floats(0, 1e4)
_COUNTS = st.integers(0, 1 << 40)


def texts() -> st.SearchStrategy[str]:
    """Any text that has a UTF-8 form."""
    return st.text(max_size=SHORT)


def names() -> st.SearchStrategy[str]:
    """Python names."""
    return st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,9}", fullmatch=True)


def plain_values() -> st.SearchStrategy[Any]:
    """What JSON can hold."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts()
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4), max_leaves=8
    )


# --- Problems and programs -----------------------------------------------------------------------------------------


def entry_points() -> st.SearchStrategy[str]:
    """`f` or `Solution.f`."""
    return st.lists(names(), min_size=1, max_size=2).map(".".join)


def stdin_tests() -> st.SearchStrategy[StdinTests]:
    """One to four runs."""
    cases = st.lists(st.builds(StdinCase, texts(), texts()), min_size=1, max_size=4)
    return st.builds(StdinTests, st.just("stdin"), cases)


def call_tests() -> st.SearchStrategy[CallTests]:
    """One to four calls."""
    case = st.builds(CallCase, st.lists(plain_values(), max_size=3), plain_values())
    return st.builds(CallTests, st.just("call"), entry_points(), st.lists(case, min_size=1, max_size=4), texts())


def tests() -> st.SearchStrategy[Tests]:
    """Tests of every kind."""
    return st.one_of(
        stdin_tests(),
        call_tests(),
        st.builds(CheckTests, st.just("check"), entry_points(), texts(), texts(), texts(), st.booleans()),
        st.builds(AnswerTests, st.just("answer"), texts(), st.sampled_from(["math", "value", "text"])),
        st.builds(StoredTests, st.just("stored"), st.text("0123456789abcdef", min_size=64, max_size=64)),
    )


def checkers() -> st.SearchStrategy[Any]:
    """Names, known or not, and both objects."""
    tolerances = st.builds(FloatChecker, st.just("float"), st.floats(0, 0.5), st.floats(0, 10))
    return st.just("lcb") | texts() | tolerances | st.builds(CustomChecker, st.just("custom"), texts())


def problems() -> st.SearchStrategy[Problem]:
    """Problems with an id, all other fields free."""
    return st.builds(
        Problem,
        statement=texts(),
        tests=tests(),
        id=st.text(min_size=1, max_size=SHORT),
        starter_code=texts(),
        solutions=st.lists(texts(), max_size=2),
        time_limit_s=st.none() | st.floats(1e-3, 1e3),
        memory_limit_mb=st.none() | st.integers(1, 1 << 20),
        checker=checkers(),
        profile=st.just("lcb") | texts(),
        language=st.just("python") | texts(),
        source=texts(),
        released=st.none() | st.dates(),
        difficulty=texts(),
        tags=st.lists(texts(), max_size=3),
    )


def programs() -> st.SearchStrategy[Program]:
    """Source text that mostly does not compile."""
    return st.builds(Program, texts(), st.sampled_from(["python", "cpp"]))


def submissions() -> st.SearchStrategy[Submission]:
    """Lines of a programs file with an id of their own; `where` is that of a first line of a file `programs.jsonl`."""
    where = st.just("programs.jsonl:1")
    return st.builds(Submission, texts(), texts(), texts(), st.none(), where) | st.builds(
        Submission, texts(), texts(), st.none(), texts(), where
    )


# --- Results -------------------------------------------------------------------------------------------------------


def outcomes() -> st.SearchStrategy[Outcome]:
    """Ends of runs; exit code and signal fit the end."""

    def of(ended: Ended) -> st.SearchStrategy[Outcome]:
        return st.builds(
            Outcome,
            st.just(ended),
            st.integers(0, 255) if ended is Ended.EXITED else st.none(),
            st.integers(1, 64) if ended is Ended.SIGNALLED else st.none(),
            st.binary(max_size=SHORT),
            st.binary(max_size=SHORT),
            _COUNTS,
            _COUNTS,
            _SECONDS,
            _SECONDS,
            _SECONDS,
            texts(),
        )

    return st.sampled_from(Ended).flatmap(of)


def results() -> st.SearchStrategy[TestResult]:
    """Results of single tests."""
    return st.builds(TestResult, _COUNTS, st.sampled_from(Status), _SECONDS, _SECONDS, _SECONDS)


def verdicts() -> st.SearchStrategy[Verdict]:
    """Verdicts as a judge gives them: the reward follows from the status, or there is a fault and neither."""
    levels = st.sampled_from(["sealed", "restricted", "open"])
    judged = st.builds(
        Verdict.of,
        st.sampled_from(Status),
        problem_id=texts(),
        id=texts(),
        failing_test=st.none() | st.integers(0, 1000),
        tests=st.lists(results(), max_size=3),
        level=levels,
        message=texts(),
    )
    faults = st.builds(Verdict.none, st.builds(Fault, texts(), texts()), problem_id=texts(), id=texts(), level=levels)
    return judged | faults


def primitives() -> st.SearchStrategy[Any]:
    """What a variable of a trace may hold."""
    return st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=SHORT)


def traces() -> st.SearchStrategy[Trace]:
    """Traces of every status, and those that a fault prevented."""
    variables = st.dictionaries(names(), primitives().map(literal), max_size=4)
    ends = st.one_of(
        st.tuples(st.sampled_from(TraceStatus), st.none()),
        st.tuples(st.none(), st.builds(Fault, texts(), texts())),
    )

    def of(end: tuple[TraceStatus | None, Fault | None]) -> st.SearchStrategy[Trace]:
        return st.builds(
            Trace,
            problem_id=texts(),
            id=texts(),
            test=st.integers(0, 1000),
            status=st.just(end[0]),
            entry=entry_points() | st.just("<module>"),
            variables=variables,
            left_out=_COUNTS,
            result=st.none() | texts(),
            is_result_whole=st.booleans(),
            message=texts(),
            fault=st.just(end[1]),
        )

    return ends.flatmap(of)


# --- Rollouts ------------------------------------------------------------------------------------------------------


def items() -> st.SearchStrategy[TaskItem]:
    """Items of one user message."""
    messages = texts().map(lambda text: ({"role": "user", "content": text},))
    return st.builds(TaskItem, names(), texts(), texts(), messages, plain_values())


def completions() -> st.SearchStrategy[Completion]:
    """Zero to eight sampled tokens with finite log-probabilities, all by one policy version."""

    def of_length(length: int) -> st.SearchStrategy[Completion]:
        tokens = st.lists(st.integers(0, 1 << 17), min_size=length, max_size=length)
        log_probs = st.lists(st.floats(-50, 0, width=32), min_size=length, max_size=length)
        return st.builds(
            Completion,
            st.lists(st.integers(0, 1 << 17), max_size=4).map(lambda ids: np.array(ids, np.int64)),
            tokens.map(lambda ids: np.array(ids, np.int64)),
            log_probs.map(lambda values: np.array(values, np.float32)),
            st.sampled_from(["raw", "processed"]),
            st.sampled_from(FinishReason),
            texts(),
            st.integers(0, 100).map(lambda version: ((version, 0, length),)),
            _SECONDS,
            _SECONDS,
        )

    return st.integers(0, 8).flatmap(of_length)


def rewards() -> st.SearchStrategy[Reward]:
    """With and without a value."""
    parts = st.dictionaries(names(), st.floats(0, 1), max_size=2)
    return st.builds(Reward, st.none() | st.floats(0, 1), texts(), parts, st.none() | verdicts())


def rollouts(item: TaskItem | None = None) -> st.SearchStrategy[Rollout]:
    """Answered items; all of `item` if one is given."""
    asked = items() if item is None else st.just(item)
    masks = st.none() | st.sampled_from(MaskReason)
    turns = st.lists(completions(), min_size=1, max_size=3).map(tuple)
    return st.builds(Rollout, asked, st.integers(0, 63), turns, rewards(), masks)


def groups() -> st.SearchStrategy[Group]:
    """One to four rollouts of one item."""

    def of_item(item: TaskItem) -> st.SearchStrategy[Group]:
        return st.builds(Group, st.just(item), st.lists(rollouts(item), min_size=1, max_size=4).map(tuple))

    return items().flatmap(of_item)
