"""Problems of a run, generated or from files: for training, for demonstrations, and held out."""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

from autoclave.config import (
    DeduplicationConfig,
    ProblemFilesConfig,
    SftConfig,
    SyntheticConfig,
    TaskSettings,
    TrainConfig,
)
from autoclave.config.model_fit import require_problems
from autoclave.core import AnswerTests, ConfigError, InputError, Problem, read_problems
from autoclave.core.plugins import find_plugin
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.deduplication import find_duplicates
from autoclave.problems.prompts import DemonstratedProgram, Demonstration, fenced, problem_messages


class ProblemSource(Protocol):
    """Problems of another package: those to train on and to hold out, and what a warm start imitates."""

    train: list[Problem]
    heldout: list[Problem]
    heldout_description: str

    def demonstrations(self, sft: SftConfig) -> list[Demonstration]:
        """Return what a warm start imitates; if empty, it imitates the solutions of the training problems."""
        ...


class ProgramSource(ProblemSource, Protocol):
    """Generated programming problems, whose teacher also shows how programs compute, and several attempts at a task."""

    def demonstrations(self, sft: SftConfig, *, fences: bool = True) -> list[Demonstration]:
        """The same; with `fences`, each program is in a fence."""
        ...

    def demonstrated_programs(self, sft: SftConfig, *, misreading_rate: float) -> Iterator[DemonstratedProgram]:
        """Yield programs without end, with their intermediate values, in which operations may be overlooked."""
        ...

    def demonstrated_attempts(
        self, sft: SftConfig, *, turns: int, fences: bool = True
    ) -> Iterator[tuple[Problem, list[Demonstration]]]:
        """Yield problems without end, each with `turns` attempts at it."""
        ...


def program_source(config: SyntheticConfig) -> ProgramSource:
    """Return the generated problems of these settings. Raises HostError: their package is not installed."""
    return cast("ProgramSource", find_plugin("autoclave.problems", config.name, "problems.name")(config))


class ProblemSets:
    """Problems of a run: `train`, demonstrations for the warm start, and `heldout`."""

    def __init__(self, config: TrainConfig) -> None:
        """Generate or read them.

        Raises:
            InputError: a file is missing, or a line of it is not valid.
            ConfigError: there are no problems, or one is not of the kind of the task.
        """
        self._config, self._source = config, None
        require_problems(config)
        if isinstance(config.problems, ProblemFilesConfig):
            self.train, self.heldout, self.heldout_description = _of_files(config.problems, config.task)
        else:
            make = find_plugin("autoclave.problems", config.problems.name, "problems.name")
            source = self._source = cast("ProblemSource", make(config.problems))
            self.train, self.heldout, self.heldout_description = (
                source.train,
                source.heldout,
                source.heldout_description,
            )
            for name, found in (("train", self.train), ("heldout", self.heldout)):
                require_fitting(found, config.task, f"problems.name = {config.problems.name}, {name}")

    def demonstrations(self) -> list[Demonstration]:
        """Return the demonstrations of the warm start: of problems from files, every solution, in their order.

        Raises:
            ConfigError: problems from files have no solutions to imitate.
        """
        if isinstance(self._config.problems, SyntheticConfig):
            return cast("ProgramSource", self._source).demonstrations(self._config.sft, fences=not self._takes_whole)
        if self._source and (found := self._source.demonstrations(self._config.sft)):
            return found
        template = self._config.task.template
        found = [
            Demonstration(problem.id, problem_messages(problem, template), self._response(problem, solution), True)
            for problem in self.train
            for solution in problem.solutions
        ]
        if not found:
            raise ConfigError(
                "sft.steps: the training problems have no solutions to imitate. Fix: set sft.steps=0 and model.path, "
                "since the embedded model is trained on them too"
            )
        return found

    @property
    def _takes_whole(self) -> bool:
        """True if a whole response is the program."""
        return getattr(self._config.task, "extraction", "") == "whole"

    def _response(self, problem: Problem, solution: str) -> str:
        """Return the response out of which the task takes this solution."""
        is_whole = self._takes_whole or isinstance(problem.tests, AnswerTests)
        return solution if is_whole else fenced(solution, problem.language)

    def demonstrated_programs(self) -> Iterator[DemonstratedProgram]:
        """Return programs like those of the demonstrations.

        Raises:
            ConfigError: the training problems have no solutions.
        """
        if isinstance(self._config.problems, SyntheticConfig):
            alignment = self._config.alignment
            rate = alignment.sft_error_rate if alignment else 0.0
            return cast("ProgramSource", self._source).demonstrated_programs(self._config.sft, misreading_rate=rate)
        found = [DemonstratedProgram(problem, solution) for problem in self.train for solution in problem.solutions]
        if not found:
            raise ConfigError(
                "alignment.sft_share: the training problems have no solutions for alignment samples. Fix: set it to 0"
            )
        return iter(found)


def require_fitting(problems: Iterable[Problem], task: TaskSettings, where: str) -> None:
    """Check that `problems`, which are from the place that `where` names, are of the kind of `task`.

    Raises:
        ConfigError: a problem has tests of another kind.
    """
    for problem in problems:
        has_answer = isinstance(problem.tests, AnswerTests)
        if has_answer is not task.asks_for_answers:
            expected = "mathematics" if has_answer else "code_generation"
            raise ConfigError(
                f"{where}: problem {problem.id!r} has tests of kind {problem.tests.kind!r}, which are not of "
                f"task.name={task.name}. Fix: task.name={expected}, or leave the problem out"
            )


def _of_files(files: ProblemFilesConfig, task: TaskSettings) -> tuple[list[Problem], list[Problem], str]:
    if files.path:
        problems = list(read_problems(files.path))
        require_fitting(problems, task, f"problems.path = {files.path}")
        train, heldout = split_problems(problems, files.heldout_share, files.seed)
        return (
            train,
            heldout,
            f"{files.heldout_share:.0%} of the problems of {files.path}, without near duplicates of training problems.",
        )
    train, heldout = (list(read_problems(path)) for path in (files.train, files.heldout) if path)
    require_fitting(train, task, f"problems.train = {files.train}")
    require_fitting(heldout, task, f"problems.heldout = {files.heldout}")
    trained = set(map(task_key, train))
    same = next((problem.id for problem in heldout if task_key(problem) in trained), None)
    if same is not None:
        raise InputError(f"problems.heldout: {same!r} has the same tests as a problem of {files.train}")
    return train, heldout, f"The problems of {files.heldout}."


def split_problems(problems: Sequence[Problem], share: float, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Return the problems to train on and those to hold out, as by `heldout_ids`, both in their order.

    Raises InputError: all problems have equal tests. HostError: a library is missing.
    """
    candidates = [ProblemCandidate(problem, Origin("", str(number))) for number, problem in enumerate(problems)]
    heldout = heldout_ids(candidates, share, seed)
    if not heldout:
        raise InputError(f"{len(problems)} problems are too few to hold some out: all have the same tests")
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[problem.id in heldout].append(problem)
    return sides


def heldout_ids(candidates: Iterable[ProblemCandidate], share: float, seed: int) -> set[str]:
    """Return the ids of a share of the problems, at least one; an empty set if all have the same tests.

    Problems with equal tests, and near duplicates by the rules of curation, are on one side. The choice depends on ids
    and `seed`, so that it is stable for most problems when others are added. `candidates` are read twice, one at a
    time; their ids are unique.

    Raises HostError: a library is missing.
    """
    groups = _groups(candidates)
    count = sum(map(len, groups))
    most, heldout = max(1, round(share * count)), set[str]()
    for group in sorted(groups, key=lambda group: hashlib.sha256(f"{seed} {group[0]}".encode()).digest()):
        if len(heldout) + len(group) <= most:
            heldout.update(group)
    if not heldout or len(heldout) == count:
        heldout = set(min(groups, key=len)) if len(groups) > 1 else set()
    return heldout


def task_key(problem: Problem) -> tuple[str, str]:
    """Return a key of the task: the digest of the tests, and for answers also the words of the statement."""
    return problem.digest, " ".join(problem.statement.split()) if isinstance(problem.tests, AnswerTests) else ""


def _groups(candidates: Iterable[ProblemCandidate]) -> list[list[str]]:
    """Return groups of ids that must be on one side."""
    parents: dict[str, str] = {}
    first: dict[tuple[str, str], str] = {}
    for candidate in candidates:
        parents[candidate.problem.id] = first.setdefault(task_key(candidate.problem), candidate.problem.id)

    def root(id: str) -> str:
        while parents[id] != id:
            id = parents[id]
        return id

    with tempfile.TemporaryDirectory() as folder:
        found = find_duplicates(candidates, DeduplicationConfig(), [], Path(folder))
    for duplicate in found.dropped:
        parents[root(duplicate.dropped.id)] = root(duplicate.kept.id)
    groups: dict[str, list[str]] = {}
    for id in parents:
        groups.setdefault(root(id), []).append(id)
    return list(groups.values())
