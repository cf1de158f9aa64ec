"""Where the CPU time of a stdin test goes, part by part: for `judge.py --budget`.

Functions of the judging thread are wrapped by a clock of that thread's CPU time; what they call in turn is not theirs.
Each test's process is known from its verdict, and the first processes of cells with their zygote are the rest. Of
programs with 15 and with 150 tests, the slope is what a test costs and the intercept what a program costs.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch

from autoclave.core import Problem, Verdict
from autoclave.judge.evaluation import Evaluation
from autoclave.judge.kinds.stdin import StdinKind
from autoclave.sandbox import pool
from autoclave.sandbox.cgroups import GroupMeter

SIZES = (15, 150)
FIRST_PROCESS = "first process and zygote"
_THREAD = "judging thread: the rest"
_PARTS: dict[str, list[tuple[object, str]]] = {
    "streams, orders, waiting": [(pool, "run_tests")],
    "control group": [(GroupMeter, "__init__"), *((GroupMeter, name) for name in vars(GroupMeter) if name[0] != "_")],
    "outcome": [(pool, "outcome_of")],
    "comparison": [(StdinKind, "_compare")],
    "opening a cell": [(pool.ZygotePool, "open")],
    "closing a cell": [(pool.ZygoteCell, "close")],
    _THREAD: [(Evaluation, "run")],
}


class Measured(Protocol):
    """A judge, and the CPU seconds of it and all its processes."""

    def verdicts(self, problem: Problem, sources: Sequence[str]) -> list[Verdict]: ...

    def cpu_s(self) -> float: ...


class Clock:
    """CPU seconds of this thread by part, each without the parts that it calls."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inner_s = 0.0

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            outer_s, self._inner_s = self._inner_s, 0.0
            started = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                took_s = time.thread_time() - started
                self.spent[part] += took_s - self._inner_s
                self._inner_s = outer_s + took_s

        return call

    @contextmanager
    def running(self) -> Iterator[None]:
        patches = [
            patch.object(owner, name, self.timed(part, vars(owner)[name]))
            for part, places in _PARTS.items()
            for owner, name in places
        ]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in patches:
                each.stop()


def budget(measure: Measured, problem_of: Callable[[int], Problem], source: str, num_tests: int) -> dict[str, float]:
    """CPU microseconds of each part: of a test under its name, of a program under `program: ` and its name."""
    costs = [_cost(measure, problem_of(size), source, max(1, num_tests // size)) for size in SIZES]
    few, many = SIZES
    found: dict[str, float] = {}
    for part in costs[0].keys() | costs[1].keys():
        slope = (costs[1][part] - costs[0][part]) / (many - few)
        found[part], found[f"program: {part}"] = slope, costs[0][part] - few * slope
    return found


def _cost(measure: Measured, problem: Problem, source: str, num_programs: int) -> dict[str, float]:
    """CPU microseconds of each part, for a program."""
    clock = Clock()
    measure.cpu_s()
    with clock.running():
        before_s, own_s = measure.cpu_s(), time.process_time()
        verdicts = measure.verdicts(problem, [source] * num_programs)
        own_s, all_s = time.process_time() - own_s, measure.cpu_s() - before_s
    spent = clock.spent
    spent["judge: other threads"] = own_s - sum(spent.values())
    tests_s = sum(test.cpu_s for verdict in verdicts for test in verdict.tests)
    spent["process of the test"] = tests_s
    spent[FIRST_PROCESS] = all_s - own_s - tests_s
    return {part: seconds / num_programs * 1e6 for part, seconds in spent.items()}


def show(found: Mapping[str, float], floor_us: tuple[float, float], scratch_us: float) -> None:
    """Print a table of `budget`, beside the two parts of the fork floor."""
    print(f"{'CPU microseconds':<40}{'a test':>12}{'a program':>12}")
    parts = [part for part in found if not part.startswith("program: ")]
    for part in sorted(parts, key=lambda part: -found[part]):
        print(f"{part:<40}{found[part]:>12.1f}{found['program: ' + part]:>12.1f}")
    total, program = sum(found[part] for part in parts), sum(found["program: " + part] for part in parts)
    print(f"{'all':<40}{total:>12.1f}{program:>12.1f}")
    print(f"{'fork floor: parent / child':<40}{floor_us[0]:>12.1f}{floor_us[1]:>12.1f}")
    print(f"{'scratch, if a test has written to it':<40}{scratch_us:>12.1f}")
