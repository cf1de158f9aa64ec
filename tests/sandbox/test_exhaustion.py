"""What the host runs out of is a fault that names it, never a verdict; when there is some again, all goes on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Generator

import pytest

from autoclave.core import SandboxFault
from autoclave.sandbox.cgroups import find_place
from autoclave.sandbox.exhaustion import cause_of, named_faults
from autoclave.sandbox.namespace.launch import NamespaceLauncher
from autoclave.sandbox.pool import ZygotePool
from tests.descriptors import free_descriptors

from .conftest import LIMITS, MINIMAL, PLAIN

pytestmark = pytest.mark.usefixtures("sandbox")  # skips where no cells can be made


def reported_by(act: Callable[[], object]) -> str:
    """The fault that `act` ends with, or nothing."""
    try:
        act()
    except SandboxFault as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize("number", range(6))
def test_a_test_without_descriptors_is_a_named_fault_and_the_next_one_runs(open_cell, number: int):
    with open_cell("print('fine')") as cell:
        before = os.listdir("/proc/self/fd")
        with free_descriptors(number):
            reported = reported_by(lambda: cell.run(b""))
        assert not reported or "no file descriptor left" in reported
        assert os.listdir("/proc/self/fd") == before
        assert cell.run(b"").stdout == b"fine\n"


@pytest.mark.parametrize("number", range(0, 30, 3))
def test_a_sandbox_without_descriptors_is_a_named_fault_and_leaves_nothing_open(number: int):
    sandbox = ZygotePool(NamespaceLauncher())
    before = os.listdir("/proc/self/fd")
    try:
        with free_descriptors(number):
            reported = reported_by(lambda: sandbox.open(b"pass", PLAIN, LIMITS, MINIMAL).close())
    finally:
        sandbox.close()
    assert not reported or "no file descriptor left" in reported
    assert os.listdir("/proc/self/fd") == before


JUDGING = """
import sys
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Problem, Program, StdinCase, StdinTests
from autoclave.judge import JudgeJob, LocalJudge
problem = Problem("s", StdinTests("stdin", [StdinCase("", "True\\n")]), id="p")
source = "import os\\nif os.fork() == 0: os._exit(0)\\nprint(os.wait()[1] == 0)\\n# "
with LocalJudge(SandboxConfig(), JudgeConfig(workers=1)) as judge:
    print(judge.submit(JudgeJob(problem, Program(source + "warm"))).result().status, flush=True)
    for line in sys.stdin:
        verdict = judge.submit(JudgeJob(problem, Program(source + line))).result()
        print(verdict.fault.detail if verdict.fault else verdict.status, flush=True)
"""


@pytest.fixture
def judging() -> Generator[Callable[[int | None], str], None, None]:
    """judging(number): judge a program that forks, where so many more processes may be made; what comes of it."""
    seat = find_place().seats.get("pids")
    if seat is None:
        pytest.skip(f"no control groups can be made: {find_place().missing}")
    group = seat.folder / f"test-{os.getpid()}"
    group.mkdir()
    script = f'echo $$ > {group}/cgroup.procs; exec {sys.executable} -c "$PROGRAM"'
    process = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=dict(os.environ, PROGRAM=JUDGING),
    )  # fmt: skip
    assert process.stdin
    assert process.stdout

    def judge(number: int | None) -> str:
        used = int((group / "pids.current").read_text())
        (group / "pids.max").write_text("max" if number is None else str(used + number))
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        return process.stdout.readline()

    try:
        assert process.stdout.readline() == "accepted\n"
        yield judge
    finally:
        with process:
            process.stdin.close()
            process.wait(60)
        for child in group.iterdir():
            if child.is_dir():
                child.rmdir()
        group.rmdir()


def test_a_host_without_room_for_a_process_is_a_named_fault(judging):
    assert judging(None) == "accepted\n"
    found = [judging(number) for number in range(7)]  # no zygote, no cell, no test, no child of the test, enough
    faults = [text for text in found if text != "accepted\n"]
    assert found[0] in faults
    assert found[-1] == judging(None) == "accepted\n"
    assert all("process" in text and "pids.max" in text for text in faults), faults


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM])
def test_every_known_lack_has_a_fix(number: int):
    assert ": " in cause_of(OSError(number, "x"))


def test_another_error_is_told_as_it_is():
    with pytest.raises(SandboxFault, match=r"opening: \[Errno 5\] Input/output error"), named_faults("opening"):
        raise OSError(5, "Input/output error")
