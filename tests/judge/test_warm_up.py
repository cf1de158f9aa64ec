"""Runners are warmed before the first program: each warm-up succeeds, and a program cannot detect it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from autoclave.config.languages import ProfileConfig
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError, Outcome, Problem, Program, StdinCase, StdinTests
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.judge.plain_data import decode, encode
from autoclave.judge.profiles import CALL_SERVER, CANDIDATE, CHECK_HOST, CUSTOM_CHECKER, PROFILES, SCRIPT, SCRIPT_TRACE
from autoclave.sandbox import Profile, Runner, Sandbox
from autoclave_testing.sandboxes import LIMITS, MINIMAL

WARMED = (SCRIPT, CALL_SERVER, CANDIDATE, CHECK_HOST)
INTERPRETER_STATE = """
import sys
is_seeded = "random" in sys.modules  # one that a program imports itself seeds itself
import gc, os, random, threading, warnings, atexit, linecache, signal
def is_open(number):
    try: os.fstat(number)
    except OSError: return False
    return True
found = [
    sorted(sys.modules), sorted(globals()), gc.isenabled(), is_seeded and random.random(), threading.active_count(),
    sys.argv, os.getcwd(), sorted(linecache.cache), atexit._ncallbacks(), warnings.filters,
    [is_open(number) for number in range(12)], sys.stdin is sys.__stdin__, sys.stdin.seekable(), sys.stdin.tell(),
    sys.stdout is sys.__stdout__, os._exit.__module__, sys.getrecursionlimit(), sys.path, signal.getsignal(2),
    sys.gettrace(), sys.getprofile(), sys.stdin.encoding, sys.stdout.errors, sys.exc_info(), sys.getswitchinterval(),
]
"""


def run(sandbox: Sandbox, runner: Runner, source: str, profile: Profile = PROFILES["plain"]) -> Outcome:
    with sandbox.open(source.encode(), profile, LIMITS, runner) as cell:
        return cell.run(b"one\ntwo\n")


@pytest.mark.parametrize("profile", ["plain", "lcb"])
@pytest.mark.parametrize("runner", WARMED, ids=lambda runner: runner.name)
def test_each_warm_up_succeeds(sandbox: Sandbox, runner: Runner, profile: str, caplog: pytest.LogCaptureFixture):
    content = b"{" if runner in (CANDIDATE, CHECK_HOST) else b"x = 1"
    with sandbox.open(content, PROFILES[profile], LIMITS, runner):
        pass
    assert not caplog.records
    assert runner.is_warmed


@pytest.mark.parametrize("profile", ["plain", "lcb"])
def test_a_script_cannot_detect_a_warm_up(sandbox: Sandbox, profile: str):
    source = f"{INTERPRETER_STATE}\nprint(found, sys.stdin.read())"
    for first in (True, False):  # the second time in a zygote that other runners have met before
        outcomes = [
            run(
                sandbox,
                replace(SCRIPT, name=f"script_{first}_{warmed}", is_warmed=warmed),
                source,
                PROFILES[profile],
            )
            for warmed in (first, not first)
        ]
        assert outcomes[0].stdout == outcomes[1].stdout
        assert outcomes[0].stdout.endswith(b"one\ntwo\n\n")


def test_a_called_function_cannot_detect_a_warm_up(sandbox: Sandbox):
    source = (
        f"def f(n):\n    {INTERPRETER_STATE.strip().replace(chr(10), chr(10) + '    ')}\n    return repr(found[:-9]), n"
    )
    answers: list[object] = []
    for warmed in (False, True):
        runner = replace(CALL_SERVER, name=f"call_{warmed}", is_warmed=warmed)
        with sandbox.open(source.encode(), PROFILES["lcb"], LIMITS, runner) as cell:
            session = cell.session()
            session.send(encode({"entry_point": "f", "preamble": "", "arguments": [3]}))
            answers.append(decode(session.receive() or b""))
            session.close()
    assert answers[0] == answers[1]
    assert answers[0][0] == "value"


PREAMBLES = {
    "input that was bound": ("import sys; input = sys.stdin.readline", "print(sum(map(int, input().split())))"),
    "lines as an iterator": (
        "import sys\nlines = iter(sys.stdin)\ndef input(): return next(lines)",
        "print(sum(map(int, input().split())))",
    ),
    "output that is collected": (
        "import atexit, io, sys\nsys.stdout = collected = io.StringIO()\n"
        "atexit.register(lambda: sys.__stdout__.write(collected.getvalue()))",
        "print(sum(map(int, input().split())))",
    ),
    "print that counts": (
        "import builtins\nshow, count = print, [0]\ndef counting(*args):\n    count[0] += 1; show(*args)\n"
        "builtins.print = counting",
        "import builtins; builtins.print(count[0] + 7)",
    ),
    "handlers of a library": ("import logging", "import logging, atexit; print(7 if atexit._ncallbacks() else 0)"),
}


@pytest.mark.parametrize(("preamble", "source"), PREAMBLES.values(), ids=PREAMBLES)
def test_what_a_profile_of_ones_own_prepares_is_untouched_when_the_program_starts(preamble: str, source: str):
    profiles = {"own": ProfileConfig(base="plain", preamble=preamble)}
    problem = Problem("", StdinTests("stdin", [StdinCase("3 4\n", "7\n")] * 2), id="p", profile="own")
    try:
        judge = LocalJudge(SandboxConfig(), JudgeConfig(workers=1, profiles=profiles))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with judge:
        verdict = judge.submit(JudgeJob(problem, Program(source))).result(timeout=60)
    assert verdict.is_accepted, verdict


def test_runners_that_keep_state_of_a_test_are_not_warmed():
    assert not SCRIPT_TRACE.is_warmed
    assert not CUSTOM_CHECKER.is_warmed


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        ("raise ValueError('no sample')", "no sample"),
        ("return b'raise ZeroDivisionError', b'', b''", "ZeroDivisionError"),
        ("return b'import os; os._exit(3)', b'', b''", "status 3"),
        ("return b'import sys; sys.exit(0)', b'', b''", "SystemExit"),
        ("return b'syntax error', b'', b''", "invalid syntax"),
    ],
)
def test_a_warm_up_that_fails_is_logged_and_harms_nothing(
    sandbox: Sandbox, sample: str, reason: str, caplog: pytest.LogCaptureFixture
):
    runner = Runner("careless", f"{MINIMAL.source}\ndef warm_up():\n    {sample}\n", is_warmed=True)
    with caplog.at_level(logging.WARNING):
        outcome = run(sandbox, runner, "import sys; print(sys.stdin.read())")
    assert outcome.stdout == b"one\ntwo\n\n"
    assert [reason in record.getMessage() for record in caplog.records] == [True]
