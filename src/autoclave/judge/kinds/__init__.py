"""Each kind of tests, how it is run and compared: one module per kind. Expected answers stay in this process."""

from autoclave.core import AnswerTests, CallTests, CheckTests, InputError, Problem, StdinTests
from autoclave.judge.environments import Environments
from autoclave.judge.kinds.answer import AnswerKind
from autoclave.judge.kinds.call import CallKind
from autoclave.judge.kinds.check import CheckKind
from autoclave.judge.kinds.interface import Judgement, TestKind, Trial
from autoclave.judge.kinds.stdin import StdinKind
from autoclave.judge.special import checker_of

__all__ = ["Judgement", "TestKind", "Trial", "kind_of"]


def kind_of(problem: Problem, environments: Environments) -> TestKind:
    """The tests of `problem`, whose programs run in one of `environments`.

    Raises InputError: this judge cannot run them; the message names the problem and the field. HostError: a requirement
    of its profile or language is missing on this host.
    """
    checker, tests = checker_of(problem), problem.tests
    if isinstance(tests, StdinTests):
        return StdinKind(problem, tests, checker, environments.of_problem(problem))
    if isinstance(tests, CallTests):
        return CallKind(problem, tests, checker, environments.of_problem(problem))
    if isinstance(tests, CheckTests):
        return CheckKind(problem, tests, environments.of_problem(problem), environments.spare_cells)
    if isinstance(tests, AnswerTests):
        return AnswerKind(problem, tests, environments.spare_cells)
    raise InputError(
        f"problem {problem.id!r}: tests.kind = {tests.kind!r}: this judge runs stdin, call, check and answer tests"
    )
