"""The cell of a check serves the programs of its problem one after the other, and none notices the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError, Problem, Program, SandboxFault, Status, Verdict
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.judge.profiles import CHECK_HOST, PROFILES
from autoclave.judge.spare_cells import Held, SpareCells
from autoclave.sandbox import Sandbox
from autoclave_testing.sandboxes import LIMITS, MINIMAL

JUDGE = JudgeConfig(workers=1, time_limit_range=(0.5, 20.0), default_time_limit_s=2.0)
SAME = "def f(n): return n"
HELD = Held(b"print(input())", PROFILES["plain"], LIMITS, MINIMAL)


def children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


@pytest.fixture
def alone() -> Iterator[Callable[[Problem, str], Verdict]]:
    """alone(problem, source): the verdict of a judge with one worker, each program judged again."""
    try:
        opened = LocalJudge(SandboxConfig(), JUDGE)
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    count = iter(range(1000))
    with opened:
        yield lambda problem, source: opened.submit(JudgeJob(problem, Program(f"{source}\n# {next(count)}\n"))).result(
            timeout=60
        )


@pytest.mark.parametrize(
    "check",
    [
        "seen = []\ndef check(candidate):\n    seen.append(1)\n    assert len(seen) == 1 == candidate(1)",
        "import os\ndef check(candidate):\n    assert os.listdir('/tmp') == []\n    open('/tmp/mark', 'w').close()\n"
        "    assert candidate(1) == 1",
        "import builtins\ndef check(candidate):\n    assert not hasattr(builtins, 'mark')\n    builtins.mark = 1\n"
        "    assert candidate(1) == 1",
    ],
    ids=["variable", "file", "builtin"],
)
def test_what_a_check_leaves_is_gone_for_the_next_program(alone, check_problem, check: str):
    problem = check_problem(check, invocation="check(candidate)")
    verdicts = [alone(problem, source) for source in (SAME, "def f(n): return 2", SAME, "def f(n): 1 / 0", SAME)]
    assert [verdict.status for verdict in verdicts] == [
        Status.ACCEPTED,
        Status.WRONG_ANSWER,
        Status.ACCEPTED,
        Status.RUNTIME_ERROR,
        Status.ACCEPTED,
    ]


def test_programs_that_die_or_flood_leave_the_check_as_it_was(alone, check_problem):
    problem = check_problem("assert f(3) == 3")
    hostile = [
        "import os\ndef f(n): os._exit(0)",
        "def f(n): return 'x' * (64 << 20)",
        "import os, signal\ndef f(n): os.kill(os.getpid(), signal.SIGKILL)",
        "def f(n):\n    while True: pass",
        "import os\ndef f(n):\n    while True: os.write(3, b'x' * 1000)",
    ]
    for source in hostile:
        assert not alone(problem, source).is_accepted
        assert alone(problem, SAME).is_accepted


def test_another_problem_gets_a_check_of_its_own(alone, check_problem):
    first, second = check_problem("assert f(3) == 3"), check_problem("assert f(3) == 4", id="q")
    more = "def f(n): return n + 1"
    verdicts = [alone(*pair).is_accepted for pair in ((first, SAME), (second, SAME), (second, more), (first, more))]
    assert verdicts == [True, False, True, False]


def test_a_kept_cell_whose_zygote_is_killed_costs_no_verdict(alone, check_problem):
    problem = check_problem("assert f(3) == 3")
    before = children()
    assert alone(problem, SAME).is_accepted
    for zygote in children() - before:
        os.kill(zygote, signal.SIGKILL)
    assert alone(problem, SAME).is_accepted


def test_a_judge_that_is_closed_leaves_no_cell(check_problem):
    before = children(), set(os.listdir("/proc/self/fd"))
    with LocalJudge(SandboxConfig(), JUDGE) as judge:
        judge.submit(JudgeJob(check_problem("assert f(3) == 3"), Program(SAME))).result(timeout=60)
    assert (children(), set(os.listdir("/proc/self/fd"))) == before


def test_one_cell_waits_per_sandbox_and_only_for_the_same_content_and_limits(sandbox: Sandbox):
    spare = SpareCells()
    first = spare.take(sandbox, HELD).cell
    spare.keep(sandbox, HELD, first)
    assert spare.take(sandbox, HELD).cell is first
    second = spare.take(sandbox, HELD).cell
    assert second is not first
    spare.keep(sandbox, HELD, first)
    spare.keep(sandbox, HELD, second)
    with pytest.raises(SandboxFault):
        first.run(b"closed")
    for other in (replace(HELD, content=b"print(1)"), replace(HELD, limits=replace(LIMITS, cpu_s=1))):
        cell = spare.take(sandbox, other).cell
        assert cell is not second
        cell.close()
    spare.close()


def test_the_runner_of_checks_is_what_is_kept(alone, check_problem, monkeypatch: pytest.MonkeyPatch):
    kept: list[str] = []
    keep = SpareCells.keep
    monkeypatch.setattr(
        SpareCells, "keep", lambda spare, box, held, cell: (kept.append(held.runner.name), keep(spare, box, held, cell))
    )
    alone(check_problem("assert f(3) == 3"), SAME)
    assert kept == [CHECK_HOST.name]
