"""Task of writing a program: a problem becomes a prompt, the judge's verdict becomes the reward."""

from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from autoclave.config import CodeGenerationConfig
from autoclave.core import (
    CallTests,
    EndState,
    JudgeFault,
    Observation,
    Problem,
    Program,
    Reward,
    Rollout,
    StdinTests,
    TaskItem,
    Verdict,
)
from autoclave.core.futures import chained, completed
from autoclave.core.trace import literal
from autoclave.judge import EXTRACTION_RULES, Judge, JudgeJob
from autoclave.judge.extraction import program_place
from autoclave.tasks.alignment_samples import input_of
from autoclave.tasks.interface import badly_formed, full_marks, item_of, rewarded

_OVER, _LAST = Observation((), is_end=True), Observation((), is_end=True, ended_by="turns")
SHOWN_CHARACTERS = 1000
"""Most characters of an input or expected output that the policy reads."""


class CodeGeneration:
    """Items from problems, and rewards by `judge`.

    `binary`: 1 if all tests pass, else 0; judging stops at the first failure. `fraction`: share of tests passed, with
    several turns of hidden ones. A response without a program earns 0 and is never run.

    With `turns` above 1, the policy reads how its program did on the public tests while it fails one of them, and may
    answer again. Hidden tests say nothing before the last turn.
    """

    name = "code_generation"

    def __init__(self, judge: Judge, config: CodeGenerationConfig) -> None:
        self._judge = judge
        self._config = config
        self.turns = config.turns
        self._public: dict[int, tuple[Problem, Problem]] = {}

    def item(self, problem: Problem) -> TaskItem:
        return item_of(self.name, problem, self._config.template)

    def program_of(self, item: TaskItem, response: str) -> str | None:
        """Return the program in a response to `item`, None without one."""
        return EXTRACTION_RULES[self._config.extraction](response) if item.task == self.name else None

    def place_of(self, item: TaskItem, response: str) -> tuple[int, int] | None:
        """Return start and end of that program, in characters of the response."""
        return program_place(response, self._config.extraction) if item.task == self.name else None

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        problem: Problem = item.payload
        source = self.program_of(item, response)
        if source is None:
            return badly_formed(self._judge, item, "no program in the response")
        job = JudgeJob(
            problem,
            Program(source, problem.language),
            id=item.id,
            tests=self._config.tests,
            stop_at_failure=self._config.reward == "binary",
        )
        hidden = partial(_hidden_share, self._num_public(problem) if self.turns > 1 else 0)
        return rewarded(self._judge, job, full_marks if self._config.reward == "binary" else hidden)

    def grade(self, rollout: Rollout) -> Future[Reward]:
        return self.reward(rollout.item, rollout.last.text)

    def environment(self, item: TaskItem) -> "PublicTests":
        return PublicTests(self, item)

    def observation(self, item: TaskItem, response: str) -> Future[Observation]:
        """Return what the public tests say of a response."""
        public, source = self._public_part(item.payload), self.program_of(item, response)
        if public is None:
            return completed(_OVER)
        if source is None:
            return completed(_told("The answer has no program."))
        job = JudgeJob(public, Program(source, public.language), id=item.id)
        return chained(self._judge.submit(job), lambda verdict: _observation(public, verdict))

    def _num_public(self, problem: Problem) -> int:
        cases = problem.tests.cases if isinstance(problem.tests, StdinTests | CallTests) else ()
        return min(self._config.public_tests, max(len(cases) - 1, 0))

    def _public_part(self, problem: Problem) -> Problem | None:
        """Return the problem with its public tests alone; None if none can be told, or none would be hidden."""
        number = self._num_public(problem)
        if not number or not isinstance(problem.tests, StdinTests | CallTests):
            return None
        if id(problem) not in self._public:  # made once, as the judge prepares each
            cases = problem.tests.cases[:number]
            self._public[id(problem)] = problem, replace(problem, tests=replace(problem.tests, cases=cases))
        return self._public[id(problem)][1]


class PublicTests:
    """The `Environment` of an episode in which the policy reads what public tests say of each turn but the last."""

    tools = ()

    def __init__(self, task: CodeGeneration, item: TaskItem) -> None:
        self._task, self._item, self._left = task, item, task.turns

    def start(self, item: TaskItem, seed: tuple[int, ...]) -> Future[Observation]:
        return completed(Observation(()))

    def step(self, action: str) -> Future[Observation]:
        self._left -= 1
        return self._task.observation(self._item, action) if self._left else completed(_LAST)

    def end(self) -> Future[EndState | None]:
        return completed(None)

    def close(self) -> None:
        pass


def _hidden_share(public: int, verdict: Verdict) -> float:
    return replace(verdict, tests=[test for test in verdict.tests if test.index >= public]).passed_share


def _observation(problem: Problem, verdict: Verdict) -> Observation:
    if verdict.status is None:
        raise JudgeFault(f"no verdict on public tests: {verdict.fault}")
    if verdict.is_accepted:
        return _OVER
    lines = [f"{verdict.status.replace('_', ' ')}: {verdict.message}".removesuffix(": ")]
    if verdict.failing_test is not None and isinstance(problem.tests, StdinTests | CallTests):
        lines += ["Input:", _short(input_of(problem, verdict.failing_test) or "")]
        lines += ["Expected:", _short(expected_of(problem.tests, verdict.failing_test))]
    return _told("\n".join(lines))


def expected_of(tests: StdinTests | CallTests, test: int) -> str:
    """Return the expected output or value of a test as text."""
    return tests.cases[test].output if isinstance(tests, StdinTests) else literal(tests.cases[test].output)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ..."


def _told(text: str) -> Observation:
    return Observation(({"role": "user", "content": text},))
