"""Verdicts and rewards of graders, from the results of tests or conditions."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from autoclave.core import ExhaustedFault, Program, SandboxFault
from autoclave.core.verdict import Fault, Status, TestResult, Verdict
from autoclave.judge.plain_run import PlainRunner, RunOrder

VALUES: dict[str, Callable[[Verdict], float]] = {
    "binary": lambda verdict: float(verdict.is_accepted),
    "fraction": attrgetter("passed_share"),
}
"""Values of a verdict: 1 if all tests pass, else 0; or the share of tests passed."""


def verdict_of(results: Sequence[Status | TestResult], messages: Sequence[str], item_id: str, level: str) -> Verdict:
    """Return the verdict of tests, which has status and message of the first that failed."""
    tests = [
        each if isinstance(each, TestResult) else TestResult(index, each, 0.0, 0.0, 0.0)
        for index, each in enumerate(results)
    ]
    failed = next((test for test in tests if test.status is not Status.ACCEPTED), None)
    return Verdict.of(
        failed.status if failed else Status.ACCEPTED,
        problem_id=item_id,
        id=item_id,
        failing_test=failed.index if failed else None,
        tests=tests,
        level=level,
        message=messages[failed.index] if failed else "",
    )


def verdict_of_fault(fault: SandboxFault, runner: PlainRunner, item_id: str, level: str) -> Verdict:
    """Return no verdict, or a failure where a control program runs: then the end state made its cells fail."""
    try:
        is_own = not isinstance(fault, ExhaustedFault)
        if is_own and runner.run(Program("", "python"), RunOrder()).outcome.exit_code == 0:
            return verdict_of([Status.RUNTIME_ERROR], ["it made its cell fail"], item_id, level)
    except SandboxFault:
        pass
    return Verdict.none(Fault("sandbox", str(fault)), problem_id=item_id, id=item_id, level=level)
