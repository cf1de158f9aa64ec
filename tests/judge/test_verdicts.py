"""What becomes of programs: each status, its message, and the order of tests."""

from __future__ import annotations

from typing import Any

import pytest

from autoclave.core import Ended, InputError, Outcome, Problem, Program, SandboxFault, Status, StoredTests
from autoclave.core.outcome import LIMIT_OF_ERRNO, LIMITS
from autoclave.judge import JudgeJob
from autoclave.judge.messages import failure_of, reported_failure
from autoclave.judge.profiles import SCRIPT
from autoclave.sandbox.pool import ZygoteCell

SUM = "print(sum(map(int, input().split())))"


def test_a_right_program_is_accepted_with_a_result_for_every_test(judged, stdin_problem):
    verdict = judged(stdin_problem(("1 2\n", "3\n"), ("4 5", "9")), SUM)
    assert (verdict.status, verdict.reward, verdict.failing_test, verdict.fault) == (Status.ACCEPTED, 1.0, None, None)
    assert (verdict.problem_id, verdict.id, verdict.level, verdict.message) == ("p", "x", "sealed", "")
    assert [(result.index, result.status) for result in verdict.tests] == [(0, "accepted"), (1, "accepted")]
    assert all(0 < result.cpu_s < 1 and 0 < result.wall_s < 5 and result.memory_mb > 1 for result in verdict.tests)


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("print(8)", "wrong_answer", "the output does not match"),
        ("", "wrong_answer", "the output does not match"),
        ("a b", "compile_error", "SyntaxError: invalid syntax (line 1)"),
        ("\n\n1 / 0", "runtime_error", "ZeroDivisionError (line 3)"),
        ("def f():\n    raise KeyError\nf()", "runtime_error", "KeyError (line 2)"),
        ("import sys; sys.exit(3)", "runtime_error", "exit code 3"),
        ("import sys; sys.exit('no')", "runtime_error", "exit code 1"),
        ("import os; os._exit(0)", "wrong_answer", "the output does not match"),
        ("exit()", "wrong_answer", "the output does not match"),
        ("import os; os.abort()", "runtime_error", "killed by SIGABRT"),
        ("import os; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)", "runtime_error", None),
        ("def f(): return f() + 1\nf()", "runtime_error", "RecursionError (line 1)"),
        ("x = [0] * 10**10", "memory_limit", "memory limit"),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory_limit", "memory limit"),
        ("while True: print('x' * 10_000)", "output_limit", "output limit"),
        ("import sys\nwhile True: print('x' * 10_000, file=sys.stderr)", "output_limit", "output limit"),
        ("import os\nwhile True: os.fork()", "runtime_error", "process limit"),
        ("f = open('f', 'w')\nwhile True: f.write('x' * 10**6)", "runtime_error", "disk limit"),
        ("import os; os.close(1); os.write(2, b'7')", "wrong_answer", "the output does not match"),
        ("import sys; sys.stdout.close()", "wrong_answer", "the output does not match"),
    ],
)
def test_a_failing_program_is_told_how_it_failed(judged, stdin_problem, source: str, status: str, message: str | None):
    verdict = judged(stdin_problem(("3 4\n", "7\n")), source)
    assert (verdict.status, verdict.reward, verdict.fault) == (status, 0.0, None)
    assert message is None or verdict.message == message
    assert verdict.failing_test == (None if status == "compile_error" else 0)


def test_an_endless_loop_exceeds_the_time_limit(judged, stdin_problem):
    verdict = judged(stdin_problem(("", ""), time_limit_s=0.5), "sum(range(10**12))")
    assert (verdict.status, verdict.message) == ("time_limit", "CPU time limit")


def test_a_sleeper_exceeds_the_time_limit(judged, stdin_problem):
    verdict = judged(stdin_problem(("", ""), time_limit_s=0.5), "import time; time.sleep(99)")
    assert (verdict.status, verdict.message) == ("time_limit", "wall time limit (it slept or waited)")


def test_messages_hold_no_text_of_the_test_or_of_the_answer(judged, stdin_problem):
    sources = [
        "import sys; sys.exit(input())",
        "raise ValueError(input())",
        "raise type(input(), (Exception,), {})",
        "int(input())",
        "import sys; print(input(), file=sys.stderr); 1 / 0",
        "assert False, input()",
        "print(input())",
    ]
    problem = stdin_problem(("SecretInput", "SecretAnswer"))
    messages = [judged(problem, source).message for source in sources]
    assert all(messages)
    assert "Secret" not in "".join(messages)
    assert messages[2] == "an exception (line 1)"


def test_the_first_failing_test_decides_and_ends_the_job(judged, stdin_problem):
    problem = stdin_problem(("1", "1"), ("2", "x"), ("3", "3"), ("4", "y"))
    verdict = judged(problem, "n = input()\nprint(n if n != '4' else 1 / 0)")
    assert (verdict.status, verdict.failing_test, len(verdict.tests)) == ("wrong_answer", 1, 2)


def test_all_results_are_given_when_asked_for(judged, stdin_problem):
    problem = stdin_problem(("1", "1"), ("2", "x"), ("3", "3"), ("4", "y"))
    verdict = judged(problem, "n = input()\nprint(n if n != '4' else 1 / 0)", stop_at_failure=False)
    assert (verdict.status, verdict.failing_test) == ("wrong_answer", 1)
    assert [result.status for result in verdict.tests] == ["accepted", "wrong_answer", "accepted", "runtime_error"]


def test_the_longest_inputs_are_chosen_and_run_in_index_order(judged, stdin_problem, call_problem):
    problem = stdin_problem(("a", ""), ("bbb", ""), ("cc", ""), ("ddd", ""), ("eee", ""))
    assert [result.index for result in judged(problem, "", tests="longest:2").tests] == [1, 3]
    assert [result.index for result in judged(problem, "", tests="longest:9").tests] == [0, 1, 2, 3, 4]
    calls = call_problem("f", ([1], 1), ([[1, 2, 3]], [1, 2, 3]), ([2], 2))
    assert [result.index for result in judged(calls, "def f(x): return x", tests="longest:1").tests] == [1]


@pytest.mark.parametrize("checker", ["lcb", "tokens", "exact"])
def test_the_checker_of_the_problem_compares(judged, stdin_problem, checker: str):
    verdict = judged(stdin_problem(("", "1.0  2\n"), checker=checker), "print('1 2')")
    assert verdict.status == ("accepted" if checker == "lcb" else "wrong_answer")


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"checker": "magic"}, "checker"), ({"profile": "numpy"}, "profile"), ({"language": "cobol"}, "language")],
)
def test_what_this_judge_does_not_know_is_refused_at_once(judge, stdin_problem, fields: dict[str, str], field: str):
    problem = stdin_problem(("", ""), **fields)
    with pytest.raises(InputError, match=rf"problem 'p': {field} = '.*': must be one of"):
        judge.submit(JudgeJob(problem, Program("", fields.get("language", "python"))))


def test_kinds_of_tests_that_are_judged_elsewhere_are_refused_at_once(judge):
    with pytest.raises(InputError, match=r"problem 'p': tests\.kind = 'stored'"):
        judge.submit(JudgeJob(Problem("s", StoredTests("stored", "0" * 64), id="p"), Program("")))


@pytest.mark.parametrize("tests", ["some", "longest:0", "longest:", ""])
def test_an_unknown_choice_of_tests_is_refused_at_once(judge, stdin_problem, tests: str):
    with pytest.raises(InputError, match="must be all or longest:N"):
        judge.submit(JudgeJob(stdin_problem(("", "")), Program(""), tests=tests))


def test_a_program_in_another_language_than_the_problem_is_refused_at_once(judge, stdin_problem):
    with pytest.raises(InputError, match=r"program\.language"):
        judge.submit(JudgeJob(stdin_problem(("", "")), Program("", "cpp")))


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("entry_point", "arguments", "output", "reason"),
    [
        ("f", [object()], 1, "tests.cases[1].arguments cannot be sent to a program: object"),
        ("f", LOOP, 1, "tests.cases[1].arguments cannot be sent to a program: nested too deep"),
        ("f", [], {1: 2}, "tests.cases[1].output: must be JSON data"),
        ("f", [], (1, 2), "tests.cases[1].output: must be JSON data"),
        ("f", [], LOOP, "tests.cases[1].output: must be JSON data"),
        ("", [], 1, "tests.entry_point = '': must be a name such as 'f' or 'Solution.f'"),
        ("f()", [], 1, "tests.entry_point = 'f()': must be a name"),
    ],
)
def test_calls_that_can_only_fail_are_refused_before_anything_runs(
    judge, call_problem, entry_point: str, arguments: Any, output: Any, reason: str
):
    problem = call_problem(entry_point, ([], 1), (arguments, output))
    for refuse in (judge.check, lambda problem: judge.submit(JudgeJob(problem, Program("")))):
        with pytest.raises(InputError) as caught:
            refuse(problem)
        assert str(caught.value).startswith(f"problem 'p': {reason}")


def test_an_output_that_no_program_could_print_is_refused_before_anything_runs(judge, stdin_problem):
    with pytest.raises(
        InputError, match=r"problem 'p': tests\.cases\[0\]\.output: has 2\.1 MiB, but sandbox\.output_limit"
    ):
        judge.check(stdin_problem(("", "x" * 2_200_000)))
    judge.check(stdin_problem(("", "x" * 2_000_000 + " " * 1_000_000)))  # blanks at the end need not be printed


def test_an_exit_code_that_a_broken_runner_gives_is_told_apart(judged, stdin_problem):
    problem = stdin_problem(("", "7"))
    own = judged(problem, "import os; os._exit(70)")
    broken = judged(problem, "import sys\nsys._getframe(1).f_globals.pop('_flush')")
    assert {(verdict.status, verdict.message) for verdict in (own, broken)} == {
        ("runtime_error", "exit code 70 (its own, or it broke the code that runs it)")
    }


@pytest.mark.parametrize(
    ("printed", "status"),
    [
        ("'1.' + '0' * 1_000_000", "accepted"),
        ("'1.' + '0' * 1_100_000", "wrong_answer"),  # above 1 MiB, and far longer than what is expected
        ("' ' * 900_000 + '1' + ' ' * 900_000", "accepted"),
    ],
)
def test_an_output_far_longer_than_what_is_expected_is_refused_unread(judged, stdin_problem, printed: str, status: str):
    assert judged(stdin_problem(("", "1")), f"print({printed})").status == status


@pytest.mark.parametrize(
    ("outputs", "sleep_s", "lengths"),
    [
        (["x" * 20_000, "x", "x" * 20_000], 0, [[0], [1], [0]]),
        (["x"] * 6, 0.02, [[1] * 6, [1] * 2, [1] * 2, [1] * 2, [1] * 2, [1]]),
    ],
    ids=["large outputs", "a slow program"],
)
def test_short_outputs_only_are_handed_down_and_few_if_no_test_follows(
    judged, stdin_problem, monkeypatch, outputs: list[str], sleep_s: float, lengths: list[list[int]]
):
    handed, run_ahead = [], ZygoteCell.run_ahead

    def recorded(cell, tests):
        handed.append([len(expected) for _, expected in tests])
        return run_ahead(cell, tests)

    monkeypatch.setattr(ZygoteCell, "run_ahead", recorded)
    problem = stdin_problem(*((str(len(output)), output) for output in outputs))
    source = f"import time; time.sleep({sleep_s}); print('x' * int(input()))"
    assert judged(problem, source).status == "accepted"
    assert handed == lengths


# --- Limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", sorted(set(Ended) - {Ended.EXITED, Ended.SIGNALLED}))
def test_every_limit_has_a_status_and_a_message_of_its_own(ended: Ended):
    failed = failure_of(Outcome(ended, None, None, b"", b"", 0, 0, 0.0, 0.0, 0.0), "x")
    assert failed
    assert "limit" in failed[1]
    others = [
        failure_of(Outcome(each, None, None, b"", b"", 0, 0, 0.0, 0.0, 0.0), "x") for each in Ended if each != ended
    ]
    assert failed not in others


def test_a_cell_names_the_limit_behind_every_error_of_the_table_and_behind_no_other():
    cell: dict[str, Any] = {"__name__": "runner"}
    exec(SCRIPT.source, cell)
    named = {number: cell["account_of"](OSError(number, "")).partition(" ")[0] for number in range(1, 134)}
    assert {number: name for number, name in named.items() if name != "-"} == LIMIT_OF_ERRNO
    errors = MemoryError(), RuntimeError("can't start new thread"), ValueError()
    assert [cell["account_of"](error).partition(" ")[0] for error in errors] == ["memory", "processes", "-"]


@pytest.mark.parametrize("name", sorted(set(LIMIT_OF_ERRNO.values())))
def test_an_exception_of_a_check_that_a_limit_explains_has_its_status_and_message(name: str):
    assert reported_failure(f"{name} OSError 1", "x") == LIMITS[name].failure


def test_an_account_that_names_an_unknown_limit_is_a_fault():
    with pytest.raises(SandboxFault, match=r"'no_such'; must be one of memory, processes, disk, open_files, or -"):
        reported_failure("no_such OSError 1", "x")


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ("import os\nwhile True: os.dup(0)", LIMITS[Ended.OPEN_FILES].failure),
        ("import os\nwhile True: os.pipe()", LIMITS[Ended.OPEN_FILES].failure),
        ("files = []\nwhile True: files.append(open('/dev/null'))", LIMITS[Ended.OPEN_FILES].failure),
        ("import mmap\nmmap.mmap(-1, 1 << 40)", LIMITS[Ended.MEMORY].failure),
        ("try: import os; [os.dup(0) for _ in range(100)]\nexcept OSError: result = 7", (Status.ACCEPTED, "")),
        ("import sys\nframe = sys._getframe()\nwhile 'test' not in frame.f_locals: frame = frame.f_back\n"
         "frame.f_locals['test'].report('no_such - 0')\nimport os; os._exit(1)",
         (Status.RUNTIME_ERROR, "the program made its cell fail")),
    ],
    ids=["dup", "pipe", "open", "mmap", "caught", "unknown"],
)  # fmt: skip
def test_what_a_program_fails_for_want_of_is_named(judged, stdin_problem, call_problem, body: str, failure):
    problems = stdin_problem(("", "7")), call_problem("f", ([], 7))
    function = "def f():\n    {}\n    return result".format(body.replace("\n", "\n    "))
    verdicts = judged(problems[0], f"{body}\nprint(result)"), judged(problems[1], function)
    assert [(verdict.status, verdict.message) for verdict in verdicts] == [failure] * 2


@pytest.mark.parametrize(
    ("limit", "failure"),
    [("disk", LIMITS[Ended.DISK].failure), ("no_such", (Status.RUNTIME_ERROR, "the program made its cell fail"))],
)
def test_an_answer_to_a_call_may_name_known_limits_only(judged, call_problem, limit: str, failure):
    forged = (
        "import os, sys\ncell = sys._getframe(1).f_globals\n"
        f"cell['send_frame'](cell['encode'](['error', '{limit} - 0']))\nos._exit(0)"
    )
    verdict = judged(call_problem("f", ([], 7)), forged)
    assert (verdict.status, verdict.message) == failure
