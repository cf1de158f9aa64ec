"""A judge in a process of its own: what happens when one of the two processes dies, and what passes between them."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, cast

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError, JudgeFault, Problem, Program, child
from autoclave.judge import JudgeJob, ProcessJudge
from autoclave.judge import process as process_module
from autoclave.judge.process_host import Forwarding
from tests.judge.judge_conformance import DEADLINE_S, ECHO, fresh, stdin_problem

SLOW = "import time; time.sleep(1.5); print(input())"
MAIN = """
import sys, time
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Problem, Program, StdinCase, StdinTests
from autoclave.judge import JudgeJob, ProcessJudge
judge = ProcessJudge(SandboxConfig(), JudgeConfig(workers=1))
judge.submit(JudgeJob(Problem("s", StdinTests("stdin", [StdinCase("a", "a")])), Program("while True: pass")))
time.sleep(0.5)
print(judge.process_id, flush=True)
time.sleep(600)
"""


@pytest.fixture
def judge() -> Iterator[ProcessJudge]:
    try:
        opened = ProcessJudge(SandboxConfig(), JudgeConfig(workers=1))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def test_a_process_whose_judge_is_gone_ends_without_an_error():
    own, end = socket.socketpair()
    start = [
        sys.executable,
        "-c",
        child._START,
        json.dumps([sys.path, "autoclave.judge.process_host", end.fileno(), []]),
    ]
    process = subprocess.Popen(start, pass_fds=[end.fileno()], stderr=subprocess.PIPE)
    own.close()
    end.close()
    assert (process.communicate(timeout=DEADLINE_S)[1], process.returncode) == (b"", 0)


def kill(judge: ProcessJudge) -> None:
    os.kill(judge.process_id, signal.SIGKILL)


def wait_until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_process_had_in_hand_when_it_died_is_judged_by_the_next(judge: ProcessJudge, caplog):
    problem = stdin_problem(("a", "a"))
    first = judge.process_id
    futures = [judge.submit(JudgeJob(problem, fresh(SLOW), f"{number}")) for number in range(3)]
    time.sleep(0.3)
    kill(judge)
    verdicts = [future.result(DEADLINE_S) for future in futures]
    assert [(verdict.id, verdict.is_accepted) for verdict in verdicts] == [("0", True), ("1", True), ("2", True)]
    assert judge.process_id != first
    assert "signal 9" in caplog.text


def test_a_job_that_was_in_hand_at_each_death_gets_a_fault_and_others_a_verdict(judge: ProcessJudge):
    problem = stdin_problem(("a", "a"))
    endless = judge.submit(JudgeJob(problem, fresh("import time; time.sleep(15)"), "endless"))
    trace = judge.trace(JudgeJob(problem, fresh("x = 1; import time; time.sleep(15)"), "traced"), 0)
    for _ in range(2):
        time.sleep(0.3)
        first = judge.process_id
        kill(judge)
        wait_until(lambda first=first: judge.process_id != first)
    verdict = endless.result(DEADLINE_S)
    assert (verdict.id, verdict.problem_id, verdict.status) == ("endless", "p", None)
    assert verdict.fault
    assert "signal 9" in verdict.fault.detail
    assert verdict.level == judge.level
    with pytest.raises(JudgeFault, match="signal 9"):
        trace.result(DEADLINE_S)
    assert judge.submit(JudgeJob(problem, fresh(ECHO))).result(DEADLINE_S).is_accepted


def test_while_no_process_can_be_started_jobs_get_faults_and_later_ones_verdicts(judge: ProcessJudge, monkeypatch):
    problem = stdin_problem(("a", "a"))
    monkeypatch.setattr(process_module, "_PAUSES_S", (0.0, 0.01))
    start = child._START
    monkeypatch.setattr(child, "_START", "raise SystemExit(7)")
    kill(judge)
    verdict = judge.submit(JudgeJob(problem, fresh(ECHO))).result(DEADLINE_S)
    assert verdict.fault
    assert "exit code 7" in verdict.fault.detail
    monkeypatch.setattr(child, "_START", start)
    assert judge.submit(JudgeJob(problem, fresh(ECHO))).result(DEADLINE_S).is_accepted


def test_a_process_that_dies_at_the_start_is_a_fault(monkeypatch):
    monkeypatch.setattr(child, "_START", "raise SystemExit(7)")
    with pytest.raises(JudgeFault, match="exit code 7"):
        ProcessJudge()


def test_isolation_below_the_minimum_is_refused_at_the_start():
    with pytest.raises(IsolationError):
        ProcessJudge(SandboxConfig(level="open", minimum_level="open"))


def test_a_cancelled_job_is_cancelled_in_the_process_too(judge: ProcessJudge):
    problem = stdin_problem(("a", "a"), time_limit_s=3.0)
    running = judge.submit(JudgeJob(problem, fresh("while True: pass")))
    never = [judge.submit(JudgeJob(problem, fresh("while True: pass"))) for _ in range(200)]  # ten minutes and more
    last = judge.submit(JudgeJob(problem, fresh(ECHO)))
    assert all(future.cancel() for future in never)
    assert last.result(DEADLINE_S).is_accepted
    assert running.result(DEADLINE_S).status == "time_limit"
    assert judge.state().startswith("0 programs wait")


def test_a_problem_is_sent_once_and_let_go_with_its_last_holder(judge: ProcessJudge, monkeypatch):
    sent: list[object] = []
    put = judge._process.outbox.put
    monkeypatch.setattr(judge._process.outbox, "put", lambda *message: sent.append(message[0]) or put(*message))
    problem = stdin_problem(("a", "a"))
    for number in range(3):
        assert judge.submit(JudgeJob(problem, fresh(ECHO), f"{number}")).result(DEADLINE_S).is_accepted
    del problem
    gc.collect()
    assert sent == ["hold", "begin", "begin", "begin", "release"]


def test_what_the_process_logs_is_logged_here(judge: ProcessJudge, caplog):
    forwarded: list[logging.LogRecord] = []

    class Box:
        @staticmethod
        def put(name: str, record: logging.LogRecord) -> None:
            forwarded.append(record)

    try:
        raise ValueError("of a cell")
    except ValueError:
        error = sys.exc_info()
    record = logging.LogRecord("autoclave.judge.local", logging.WARNING, "f", 1, "heard %s", (lambda: 0,), error)
    Forwarding(cast("Any", Box)).handle(record)
    local_end, remote_end = Pipe()
    local_end.send(forwarded[0])
    judge._take("log", remote_end.recv())
    assert "heard <function" in caplog.text
    assert "ValueError: of a cell" in caplog.text


def test_a_process_whose_owner_was_killed_ends_with_all_its_cells(tmp_path):
    with subprocess.Popen([sys.executable, "-c", MAIN], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as owner:
        assert owner.stdout
        pid = int(owner.stdout.readline())
        below = _descendants(pid)
        assert below  # zygotes and cells
        owner.kill()
    wait_until(lambda: not any(is_alive(each) for each in (pid, *below)))


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in os.listdir(f"/proc/{pid}/task"):
            children += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    except OSError:
        return []
    found = {int(child) for child in children}
    return sorted(found | {below for child in found for below in _descendants(child)})


def test_a_closed_judge_takes_nothing(judge: ProcessJudge):
    problem: Problem = stdin_problem(("a", "a"))
    judge.close()
    judge.close()
    with pytest.raises(RuntimeError, match="closed"):
        judge.submit(JudgeJob(problem, Program(ECHO)))
    assert not is_alive(judge.process_id)
