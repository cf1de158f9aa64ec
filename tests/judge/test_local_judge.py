"""The judge around the verdicts: order, duplicates, faults, borderline runs, closing."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
import time
import weakref
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Ended, FloatChecker, InputError, IsolationError, Outcome, Program, Status
from autoclave.core.sized_cache import SizedCache
from autoclave.judge import JudgeJob, LocalJudge, stream
from autoclave.judge.gate import Gate
from autoclave.judge.kinds import kind_of
from autoclave.judge.limits import ProblemLimits, limits_of

ECHO = "print(input())"
SLOW = "import time; time.sleep(0.3); print(input())"


@pytest.fixture
def fresh_judge(judge):
    """A judge with one worker, for tests that break it. (`judge` skips where none can be made.)"""
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=1, time_limit_range=(0.5, 20.0))) as opened:
        yield opened


def children(pid: int) -> list[int]:
    """Process ids of those that `pid` started; none if it has ended."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            found += map(int, task.read_text().split())
    return found


def zygotes() -> list[int]:
    """Process ids of the zygotes of this process."""
    return [pid for pid in children(os.getpid()) if b"\0zygote\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_verdicts_come_in_the_order_of_the_jobs(judge, stdin_problem):
    problem = stdin_problem(("a", "a"))
    jobs = [JudgeJob(problem, Program(f"{SLOW if i % 5 == 0 else ECHO}  # {i}"), str(i)) for i in range(20)]
    results = list(stream(judge, jobs, pending_limit=4))
    assert [(job.id, verdict.id, verdict.status) for job, verdict in results] == [
        (str(i), str(i), "accepted") for i in range(20)
    ]


def test_a_stream_draws_no_more_jobs_than_its_limit(judge, stdin_problem):
    problem = stdin_problem(("a", "a"))
    drawn = 0

    def jobs():
        nonlocal drawn
        for i in range(50):
            drawn += 1
            yield JudgeJob(problem, Program(f"{ECHO}  # stream {i}"))

    ahead = []
    for done, _ in enumerate(stream(judge, jobs(), pending_limit=5), start=1):
        ahead.append(drawn - done)
    assert done == 50
    assert max(ahead) < 5


def test_a_stream_stops_at_a_problem_that_cannot_be_judged(judge, stdin_problem):
    jobs = [JudgeJob(stdin_problem(("a", "a"), checker=checker), Program(ECHO)) for checker in ("lcb", "magic", "lcb")]
    with pytest.raises(InputError):
        list(stream(judge, jobs))


def test_identical_programs_are_judged_once_and_answered_under_their_own_ids(fresh_judge, stdin_problem):
    problem = stdin_problem(("a", "a"))
    jobs = [JudgeJob(replace(problem, id=f"p{i}"), Program(SLOW), str(i)) for i in range(6)]
    futures = [fresh_judge.submit(job) for job in jobs]
    verdicts = [future.result(60) for future in futures]
    assert [(v.problem_id, v.id, v.status) for v in verdicts] == [(f"p{i}", str(i), "accepted") for i in range(6)]
    assert len({tuple(result.wall_s for result in verdict.tests) for verdict in verdicts}) == 1
    again = fresh_judge.submit(replace(jobs[0], id="again"))
    assert again.done()
    assert again.result().id == "again"


def test_a_group_of_identical_programs_is_judged_once_for_each_way_of_judging(fresh_judge, stdin_problem):
    problem = stdin_problem(("a", "b"), ("c", "c"))
    jobs = [JudgeJob(problem, Program(SLOW), f"{stop} {i}", stop_at_failure=stop) for i in range(3) for stop in (0, 1)]
    verdicts = {job.id: fresh_judge.submit(job) for job in jobs}
    for stop, num_results in (("0", 2), ("1", 1)):
        same = [future.result(60) for name, future in verdicts.items() if name.startswith(stop)]
        assert [(verdict.status, verdict.failing_test) for verdict in same] == [("wrong_answer", 0)] * 3
        assert {len(verdict.tests) for verdict in same} == {num_results}
        assert len({verdict.tests[0].wall_s for verdict in same}) == 1
    assert sorted(future.result().id for future in verdicts.values()) == sorted(verdicts)


def test_another_checker_or_profile_is_another_problem(fresh_judge, stdin_problem):
    statuses = [
        fresh_judge.submit(JudgeJob(stdin_problem(("", "1.0"), **fields), Program("print(1)"))).result(60).status
        for fields in ({}, {"checker": "exact"}, {"checker": "float"}, {"checker": FloatChecker("float", 0, 0)})
    ]
    assert statuses == ["accepted", "wrong_answer", "accepted", "accepted"]


def test_the_verdict_cache_is_bounded_by_the_number_of_results(fresh_judge, stdin_problem, monkeypatch):
    monkeypatch.setattr(fresh_judge, "_verdicts", SizedCache(10))
    problem = stdin_problem(("a", "a"), ("b", "b"))  # three each: the verdict and two results
    for i in range(6):
        fresh_judge.submit(JudgeJob(problem, Program(f"{ECHO}  # {i}"))).result(60)
    assert (len(fresh_judge._verdicts), fresh_judge._verdicts.size) == (3, 9)
    known = [fresh_judge.submit(JudgeJob(problem, Program(f"{ECHO}  # {i}"))) for i in (3, 4, 5)]
    assert all(future.done() for future in known)


def test_a_large_source_is_not_kept_with_its_verdict(fresh_judge, stdin_problem):
    program = Program(ECHO + "  # " + "x" * 1_000_000)
    assert fresh_judge.submit(JudgeJob(stdin_problem(("a", "a")), program)).result(60).is_accepted
    assert len(repr(fresh_judge._verdicts._entries)) < 10_000


def test_a_problem_is_validated_once_and_forgotten_with_its_last_holder(fresh_judge, stdin_problem, monkeypatch):
    validated: list[str] = []
    monkeypatch.setattr(
        "autoclave.judge.validation.kind_of",
        lambda problem, known: validated.append(problem.id) or kind_of(problem, known),
    )
    problem = stdin_problem(("a", "a"))
    fresh_judge.check(problem)
    futures = [fresh_judge.submit(JudgeJob(problem, Program(f"{ECHO}  # {i}"))) for i in range(3)]
    assert all(future.result(60).is_accepted for future in futures)
    assert validated == ["p"]
    gone = weakref.ref(problem)
    del problem, futures
    other = stdin_problem(("b", "b"))
    fresh_judge.submit(JudgeJob(other, Program(ECHO))).result(60)  # the worker lets go of its last job
    gc.collect()
    assert gone() is None
    assert [known.problem() for known in fresh_judge._validation._known.values()] == [other]


def test_other_tests_or_another_program_are_not_the_same(fresh_judge, stdin_problem):
    problem = stdin_problem(("a", "a"), ("bb", "x"))
    accepted = fresh_judge.submit(JudgeJob(stdin_problem(("a", "a")), Program(ECHO))).result(60)
    wrong = fresh_judge.submit(JudgeJob(problem, Program(ECHO))).result(60)
    longest = fresh_judge.submit(JudgeJob(problem, Program(ECHO), tests="longest:1")).result(60)
    assert (accepted.status, wrong.failing_test, len(longest.tests)) == ("accepted", 1, 1)


def test_a_killed_zygote_is_replaced_without_a_trace_in_the_verdict(fresh_judge, stdin_problem):
    problem = stdin_problem(("a", "a"))
    assert fresh_judge.submit(JudgeJob(problem, Program(f"{ECHO}  # first"))).result(60).is_accepted
    before = fresh_judge.submit(JudgeJob(problem, Program(f"import time; time.sleep(0.5); {ECHO}")))
    time.sleep(0.2)
    for pid in zygotes():
        os.kill(pid, signal.SIGKILL)
    assert before.result(60).is_accepted
    assert fresh_judge.submit(JudgeJob(problem, Program(f"{ECHO}  # after"))).result(60).is_accepted


def test_a_sandbox_that_is_gone_gives_no_verdict_and_no_reward(fresh_judge, stdin_problem):
    for sandbox in fresh_judge._sandboxes:
        sandbox.close()
    verdict = fresh_judge.submit(JudgeJob(stdin_problem(("a", "a")), Program(ECHO), "x")).result(60)
    assert (verdict.status, verdict.reward, verdict.id) == (None, None, "x")
    assert verdict.fault
    assert verdict.fault.kind == "sandbox"
    assert "closed" in verdict.fault.detail


def test_a_program_that_makes_its_cells_fail_again_and_again_is_to_blame(
    fresh_judge, stdin_problem, monkeypatch, caplog
):
    import autoclave.judge.evaluation as evaluation
    from autoclave.core import SandboxFault

    judge_test = evaluation.Evaluation._judge

    def failing(self, cell, index):
        if "evil" in self._prepared.job.program.source:
            raise SandboxFault("the cell died during a test")
        return judge_test(self, cell, index)

    monkeypatch.setattr(evaluation.Evaluation, "_judge", failing)
    with caplog.at_level(logging.ERROR):
        verdict = fresh_judge.submit(JudgeJob(stdin_problem(("a", "a")), Program("evil = 1"))).result(60)
    assert (verdict.status, verdict.reward, verdict.message) == ("runtime_error", 0.0, "the program made its cell fail")
    assert "alarm" in caplog.text


@pytest.mark.parametrize(("stop", "statuses"), [(True, "ar"), (False, "arr")])
def test_a_program_that_makes_its_cells_fail_keeps_what_is_known_and_gains_nothing(
    fresh_judge, stdin_problem, monkeypatch, stop: bool, statuses: str
):
    import autoclave.judge.evaluation as evaluation
    from autoclave.core import SandboxFault

    judge_test = evaluation.Evaluation._judge

    def failing(self, cell, index):
        if index == 1 and "evil" in self._prepared.job.program.source:
            raise SandboxFault("the cell died during a test")
        return judge_test(self, cell, index)

    monkeypatch.setattr(evaluation.Evaluation, "_judge", failing)
    job = JudgeJob(stdin_problem(("a", "a"), ("b", "b"), ("c", "c")), Program(f"{ECHO}  # evil"), stop_at_failure=stop)
    verdict = fresh_judge.submit(job).result(60)
    assert (verdict.status, verdict.reward, verdict.failing_test) == ("runtime_error", 0.0, 1)
    assert verdict.message == "the program made its cell fail"
    assert "".join(result.status[0] for result in verdict.tests) == statuses
    assert [result.index for result in verdict.tests] == list(range(len(statuses)))


def test_the_test_whose_account_claims_a_fault_is_the_one_that_failed(fresh_judge, stdin_problem):
    source = (
        "import os, sys\nframe = sys._getframe()\nwhile 'test' not in frame.f_locals: frame = frame.f_back\n"
        "line = input()\nprint(line, flush=True)\n"
        "if line == 'c': frame.f_locals['test'].report('setting up')\nos._exit(0)"
    )
    problem = stdin_problem(*((line, line) for line in "abcd"))
    verdict = fresh_judge.submit(JudgeJob(problem, Program(source))).result(60)
    assert (verdict.status, verdict.failing_test) == ("runtime_error", 2)
    assert [result.status for result in verdict.tests] == ["accepted", "accepted", "runtime_error"]


def test_closing_cancels_what_waits_and_ends_what_runs(judge, stdin_problem):
    opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=1, time_limit_range=(0.5, 300.0)))
    problem = stdin_problem(("a", "a"), time_limit_s=300.0)
    futures = [opened.submit(JudgeJob(problem, Program(f"while True: pass  # {i}"))) for i in range(3)]
    deadline = time.monotonic() + 60
    while not any(map(children, zygotes())):  # until a cell is there
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started = time.monotonic()
    opened.close()
    assert time.monotonic() - started < 60  # what runs would go on for five minutes of CPU time
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(5)
    with pytest.raises(RuntimeError, match="closed"):
        opened.submit(JudgeJob(problem, Program("")))


def test_a_job_that_was_cancelled_while_it_waited_is_not_run(fresh_judge, stdin_problem, monkeypatch):
    import autoclave.judge.evaluation as evaluation

    run, ran, are_cancelled = evaluation.Evaluation.run, [], threading.Event()

    def run_later(self):
        ran.append(self._prepared.job.id)
        assert are_cancelled.wait(60)
        return run(self)

    monkeypatch.setattr(evaluation.Evaluation, "run", run_later)
    problem = stdin_problem(("a", "a"))
    jobs = [JudgeJob(problem, Program(f"{ECHO}  # c{i // 2}"), str(i)) for i in range(8)]
    futures = [fresh_judge.submit(job) for job in jobs]
    for i in (2, 3, 4):  # both who want the second program, and one who wants the third
        assert futures[i].cancel()
    are_cancelled.set()
    assert all(future.result(60).is_accepted for i, future in enumerate(futures) if i not in (2, 3, 4))
    assert ran == ["0", "4", "6"]
    assert fresh_judge.submit(jobs[2]).result(60).is_accepted


def test_a_job_that_is_cancelled_while_it_runs_ends_with_the_test_that_it_is_in(
    fresh_judge, stdin_problem, monkeypatch
):
    import autoclave.judge.evaluation as evaluation

    judge_test, begun, are_submitted = evaluation.Evaluation._judge, [], threading.Event()

    def judge_and_cancel(self, trial, index):
        assert are_submitted.wait(60)
        if self._prepared.job.id == "unwanted":
            begun.append(index)
            if index == 1:
                assert future.cancel()
        return judge_test(self, trial, index)

    problem = stdin_problem(*[(str(i), str(i)) for i in range(5)])
    monkeypatch.setattr(evaluation.Evaluation, "_judge", judge_and_cancel)
    first = fresh_judge.submit(JudgeJob(problem, Program(ECHO)))
    future = fresh_judge.submit(JudgeJob(problem, Program("print(input())  # one"), "unwanted"))
    kept = fresh_judge.submit(JudgeJob(problem, Program("print(input())  # other"), "wanted"))
    are_submitted.set()
    assert kept.result(60).is_accepted
    assert begun == [0, 1]
    assert first.done()
    again = fresh_judge.submit(JudgeJob(problem, Program("print(input())  # one"), "again")).result(60)
    assert (again.is_accepted, len(again.tests)) == (True, 5)  # what was seen of it is not remembered


def test_isolation_below_the_minimum_is_refused_at_the_start():
    with pytest.raises(IsolationError):
        LocalJudge(SandboxConfig(level="open", minimum_level="open"))


def outcome(ended: Ended, cpu_s: float, wait_s: float | None = None) -> Outcome:
    return Outcome(ended, 0, None, b"", b"", 0, 0, cpu_s, cpu_s, 10.0, wait_s=wait_s)


@pytest.mark.parametrize(
    ("ended", "cpu_s", "is_borderline"),
    [
        (Ended.EXITED, 7.9, False),
        (Ended.EXITED, 8.0, True),
        (Ended.EXITED, 10.0, True),
        (Ended.EXITED, 12.5, True),
        (Ended.CPU_TIME, 12.51, False),
        (Ended.WALL_TIME, 3.0, True),
        (Ended.WALL_TIME, 20.0, False),
        (Ended.MEMORY, 3.0, False),
    ],
)
def test_runs_near_the_limit_are_borderline(stdin_problem, ended: Ended, cpu_s: float, is_borderline: bool):
    limits = limits_of(stdin_problem(time_limit_s=10.0), SandboxConfig(), JudgeConfig())
    assert limits.is_borderline(outcome(ended, cpu_s)) is is_borderline


@pytest.mark.parametrize(("system_s", "is_borderline"), [(0.5, False), (5.9, False), (6.0, True), (15.0, True)])
def test_a_run_far_above_the_limit_is_borderline_if_the_kernel_alone_brought_it_there(
    stdin_problem, system_s: float, is_borderline: bool
):
    limits = limits_of(stdin_problem(("", ""), time_limit_s=10.0), SandboxConfig(), JudgeConfig())
    ended = replace(outcome(Ended.CPU_TIME, 16.0), system_s=system_s)
    assert limits.is_borderline(ended) is is_borderline


@pytest.mark.parametrize(("printed", "is_borderline"), [(4095, False), (4096, True)])
def test_a_wall_that_was_met_by_one_that_prints_much_is_borderline(stdin_problem, printed: int, is_borderline: bool):
    limits = limits_of(stdin_problem(("", ""), time_limit_s=10.0), SandboxConfig(), JudgeConfig())
    ended = replace(outcome(Ended.WALL_TIME, 3.0, 0.0), stdout=bytes(printed - 1), stderr=b"!")
    assert limits.is_borderline(ended) is is_borderline


@pytest.mark.parametrize(("wait_s", "is_borderline"), [(0.0, False), (30.9, False), (31.1, True), (None, True)])
def test_a_run_that_met_the_wall_is_repeated_only_if_it_waited_longer_than_was_given_back(
    stdin_problem, wait_s: float | None, is_borderline: bool
):
    limits = limits_of(stdin_problem(time_limit_s=10.0), SandboxConfig(), JudgeConfig())  # the wall is at 31 seconds
    assert limits.is_borderline(outcome(Ended.WALL_TIME, 3.0, wait_s)) is is_borderline


@pytest.mark.parametrize(
    ("ended", "cpu_s", "wait_s", "is_starved"),
    [
        (Ended.WALL_TIME, 3.0, 124.1, True),  # four times the wall
        (Ended.WALL_TIME, 3.0, 123.9, False),
        (Ended.WALL_TIME, 3.0, None, False),
        (Ended.WALL_TIME, 10.0, 140.0, False),
        (Ended.EXITED, 3.0, 140.0, False),
        (Ended.CPU_TIME, 10.1, 140.0, False),
    ],
)
def test_a_run_that_others_kept_from_its_core_decides_nothing(stdin_problem, ended, cpu_s, wait_s, is_starved):
    limits = limits_of(stdin_problem(time_limit_s=10.0), SandboxConfig(), JudgeConfig())
    assert limits.is_starved(outcome(ended, cpu_s, wait_s)) is is_starved


def test_a_starved_run_alone_is_tried_again_and_the_first_that_is_not_decides(
    judged, stdin_problem, monkeypatch: pytest.MonkeyPatch
):
    starved = iter([True, False])
    alone, count = Gate.alone, []
    monkeypatch.setattr(Gate, "alone", lambda gate: (count.append(gate), alone(gate))[1])
    monkeypatch.setattr(ProblemLimits, "is_borderline", lambda limits, ended: True)
    monkeypatch.setattr(ProblemLimits, "is_starved", lambda limits, ended: next(starved))
    assert judged(stdin_problem(("", "1")), "print(1)").is_accepted
    assert len(count) == 2


def test_a_sleeper_or_a_stopped_program_costs_one_wall_limit(judged, stdin_problem, monkeypatch: pytest.MonkeyPatch):
    repeated: list[object] = []
    alone = Gate.alone
    monkeypatch.setattr(Gate, "alone", lambda gate: (repeated.append(gate), alone(gate))[1])
    for source in ("import time; time.sleep(99)", "import os; os.kill(os.getpid(), 19)"):
        assert judged(stdin_problem(("", ""), time_limit_s=0.5), source).status == "time_limit"
    assert repeated == []


@pytest.mark.parametrize(("own", "used"), [(None, 6.0), (1.0, 6.0), (7.5, 7.5), (100.0, 12.0)])
def test_a_problems_time_limit_is_clipped_to_the_range(stdin_problem, own: float | None, used: float):
    limits = limits_of(stdin_problem(time_limit_s=own), SandboxConfig(), JudgeConfig())
    assert (limits.time_limit_s, limits.first.cpu_s, limits.exact.cpu_s) == (used, 1.25 * used, used)
    assert limits.exact.wall_s == 3 * used + 1


@pytest.mark.parametrize(("own", "used"), [(None, 512), (64, 64), (4096, 512)])
def test_the_smaller_memory_limit_counts(stdin_problem, own: int | None, used: int):
    assert limits_of(stdin_problem(memory_limit_mb=own), SandboxConfig(), JudgeConfig()).exact.memory_mb == used


def test_a_borderline_run_is_decided_alone_at_exactly_the_limit(judged, stdin_problem):
    # CPU time is measured by the program itself, so that it lands between the limit and the grace on any machine.
    source = "import time\nwhile time.process_time() < {}: pass\nprint('a')"
    problem = stdin_problem(("", "a"), time_limit_s=1.0)
    over = judged(problem, source.format(1.2))
    under = judged(problem, source.format(0.85))
    assert (over.status, under.status) == ("time_limit", "accepted")
    assert over.tests[0].cpu_s < 1.19  # stopped at the limit, not at the grace


def test_who_is_alone_waits_for_others_and_others_wait():
    gate = Gate()
    log: list[str] = []
    inside, may_leave = threading.Event(), threading.Event()

    def shared():
        with gate.shared():
            log.append("shared in")
            inside.set()
            may_leave.wait(10)
            log.append("shared out")

    def alone():
        with gate.alone():
            log.append("alone in")
            time.sleep(0.05)
            log.append("alone out")

    def late():
        with gate.shared():
            log.append("late")

    threads = [threading.Thread(target=shared), threading.Thread(target=alone), threading.Thread(target=late)]
    threads[0].start()
    inside.wait(10)
    threads[1].start()
    while not gate._num_waiting_alone:
        time.sleep(0.001)
    threads[2].start()
    may_leave.set()
    for thread in threads:
        thread.join(10)
    assert log == ["shared in", "shared out", "alone in", "alone out", "late"]


def test_the_status_names_are_those_of_the_file_format():
    assert [status.value for status in Status] == (
        [
            "accepted",
            "wrong_answer",
            "runtime_error",
            "compile_error",
            "time_limit",
            "memory_limit",
            "output_limit",
            "bad_format",
        ]
    )
