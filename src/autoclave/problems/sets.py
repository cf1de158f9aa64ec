"""The problems of a run, generated or from files: what it learns from, what it imitates, what it is measured on."""

from __future__ import annotations

from collections.abc import Iterator

from autoclave.config import (
    ArithmeticConfig,
    CurriculumConfig,
    FunctionsConfig,
    ProblemFilesConfig,
    TaskSettings,
    TrainConfig,
)
from autoclave.config.model_fit import require_problems
from autoclave.core import AnswerTests, ConfigError, InputError, Problem, read_problems
from autoclave.problems.arithmetic import arithmetic_demonstrations, build_arithmetic
from autoclave.problems.curriculum import build_curriculum, demonstrated_programs, demonstrations
from autoclave.problems.demonstration import DemonstratedProgram, Demonstration
from autoclave.problems.fitting import require_fitting
from autoclave.problems.functions import build_functions
from autoclave.problems.prompts import fenced, problem_messages
from autoclave.problems.splitting import asked, split_problems

_HELDOUT_CURRICULUM = (
    "Problems whose program contains a pair of neighbouring operations that occurs next to each other in no problem "
    "or demonstration of training; problems that behave like one of training are excluded as well."
)
_HELDOUT_ARITHMETIC = (
    "Calculations with a pair of operations in a row that occurs so in no problem or demonstration of training."
)
_HELDOUT_FUNCTIONS = "Functions that no problem of training asks for, whatever its constant."


class ProblemSets:
    """The problems of a run: what it learns from, what it imitates, and what it is measured on."""

    def __init__(self, config: TrainConfig) -> None:
        """Generate or read them.

        Raises:
            InputError: a file is missing, or a line of it cannot be used.
            ConfigError: there are none, or one is not of the kind that the task asks.
        """
        self._config = config
        require_problems(config)
        if isinstance(config.problems, CurriculumConfig):
            curriculum = build_curriculum(config.problems)
            self.train, self.heldout = curriculum.train, curriculum.heldout
            self.heldout_description = _HELDOUT_CURRICULUM
        elif isinstance(config.problems, ArithmeticConfig):
            arithmetic = build_arithmetic(config.problems)
            self.train, self.heldout = arithmetic.train, arithmetic.heldout
            self.heldout_description = _HELDOUT_ARITHMETIC
        elif isinstance(config.problems, FunctionsConfig):
            self.train, self.heldout = build_functions(config.problems)
            self.heldout_description = _HELDOUT_FUNCTIONS
        elif isinstance(config.problems, ProblemFilesConfig):
            self.train, self.heldout, self.heldout_description = _of_files(config.problems, config.task)

    def demonstrations(self) -> list[Demonstration]:
        """What the warm start imitates: of problems from files, every solution that they have, in their order.

        Raises:
            ConfigError: problems from files have no solutions to imitate.
        """
        if isinstance(self._config.problems, CurriculumConfig):
            return demonstrations(self._config.problems, self._config.sft)
        if isinstance(self._config.problems, ArithmeticConfig):
            return arithmetic_demonstrations(self._config.problems, self._config.sft)
        template = self._config.task.template
        found = [
            Demonstration(problem.id, problem_messages(problem, template), _response(problem, solution), True)
            for problem in self.train
            for solution in problem.solutions
        ]
        if not found:
            raise ConfigError(
                "sft.steps: the training problems have no solutions to imitate; set sft.steps=0 and give model.path, "
                "because the embedded model is made from them too"
            )
        return found

    def demonstrated_programs(self) -> Iterator[DemonstratedProgram]:
        """Programs like those that the warm start imitates.

        Raises:
            ConfigError: there are none.
        """
        if isinstance(self._config.problems, CurriculumConfig):
            alignment = self._config.alignment
            rate = alignment.sft_error_rate if alignment else 0.0
            return demonstrated_programs(self._config.problems, self._config.sft, misreading_rate=rate)
        found = [DemonstratedProgram(problem, solution) for problem in self.train for solution in problem.solutions]
        if not found:
            raise ConfigError(
                "alignment.sft_share: the training problems have no solutions to make alignment samples of; set it to 0"
            )
        return iter(found)


def _of_files(files: ProblemFilesConfig, task: TaskSettings) -> tuple[list[Problem], list[Problem], str]:
    if files.path:
        problems = list(read_problems(files.path))
        require_fitting(problems, task, f"problems.path = {files.path}")
        train, heldout = split_problems(problems, files.heldout_share, files.seed)
        return (
            train,
            heldout,
            f"{files.heldout_share:.0%} of the problems of {files.path}, no near duplicates of others.",
        )
    train, heldout = (list(read_problems(path)) for path in (files.train, files.heldout) if path)
    require_fitting(train, task, f"problems.train = {files.train}")
    require_fitting(heldout, task, f"problems.heldout = {files.heldout}")
    learnt = set(map(asked, train))
    same = next((problem.id for problem in heldout if asked(problem) in learnt), None)
    if same is not None:
        raise InputError(f"problems.heldout: {same!r} has the same tests as a problem of {files.train}")
    return train, heldout, f"The problems of {files.heldout}."


def _response(problem: Problem, solution: str) -> str:
    """A solution as it is imitated: a program in a fence; the solution of mathematics is a response already."""
    return solution if isinstance(problem.tests, AnswerTests) else fenced(solution, problem.language)
