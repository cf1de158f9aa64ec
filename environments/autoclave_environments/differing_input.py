"""The task `differing_input` and its problems: find a number for which two functions differ, by running them."""

import random
import re
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import cast

from autoclave.config import SftConfig
from autoclave.core import CheckTests, Problem, Program, Reward, Rollout, TaskItem
from autoclave.core.closing import Closing
from autoclave.environments import Environment
from autoclave.environments.tools import ToolEnvironment, tool_calls, written_call
from autoclave.judge import Judge, JudgeJob
from autoclave.problems import Demonstration
from autoclave.tasks import badly_formed, full_marks, rewarded
from autoclave.workspaces import Declared, LocalWorkspaces, WorkspaceLimits, Workspaces
from autoclave.workspaces.tools import TOOLS
from autoclave_environments.settings import DifferingInputConfig, DifferingInputProblemsConfig

_HOW = "a.py and b.py are files; run them with the tools. Answer with the number alone."
_TOOLS = tuple(tool for tool in TOOLS if tool.name != "run_tests")
_LIMITS = WorkspaceLimits(call_cpu_s=5.0, call_wall_s=10.0, cpu_s=20.0, wall_s=60.0, call_output_bytes=1 << 12)
_PRIME = 101
"""Above all numbers, so that no two of them have equal multiples modulo it."""


class DifferingInput(Closing):
    """Episodes in sealed workspaces. The last number of the last turn is tried in fresh cells by the judge.

    There the functions run as they are, whatever the policy did to the files in its workspace.
    """

    name = "differing_input"

    def __init__(self, judge: Judge, config: DifferingInputConfig) -> None:
        self._judge, self._config, self.turns = judge, config, config.turns
        self._workspaces = cast("Workspaces", LocalWorkspaces(_LIMITS))

    def item(self, problem: Problem) -> TaskItem:
        text = problem.statement if self._config.template == "plain" else f"{problem.statement}\n\n{_HOW}"
        return TaskItem(self.name, problem.id, problem.id, ({"role": "user", "content": text},), problem)

    def environment(self, item: TaskItem) -> Environment:
        problem: Problem = item.payload
        files = {"a.py": problem.solutions[0].encode(), "b.py": problem.starter_code.encode()}
        tells_tools, nothing = self._config.template != "plain", Declared(patterns=())
        return ToolEnvironment(self._workspaces, files, _TOOLS, nothing, tells_tools=tells_tools)

    def grade(self, rollout: Rollout) -> Future[Reward]:
        """Return the reward of an answer; that of an episode without one, cut by its turns for example, is 0."""
        item, answer = rollout.item, re.findall(r"-?\d{1,9}\b", rollout.last.text)
        if not answer or tool_calls(rollout.last.text, _TOOLS):
            return badly_formed(self._judge, item, "no number in the last turn")
        problem, x = item.payload, int(answer[-1])
        check = f"\n\ndef check(candidate):\n    assert {x} in NUMBERS and candidate({x}) != g({x})\n"
        tests = replace(problem.tests, source=problem.tests.source + check)
        job = JudgeJob(replace(problem, tests=tests), Program(problem.solutions[0]), id=item.id)
        return rewarded(self._judge, job, full_marks)

    def close(self) -> None:
        """End all workspaces."""
        self._workspaces.close()


class DifferingInputProblems:
    """Generated pairs of functions `a.f` and `b.g`; see `autoclave.problems.ProblemSource`."""

    heldout_description = "Pairs of functions that are no training problem."

    def __init__(self, config: DifferingInputProblemsConfig) -> None:
        self._config = config
        problems = list(_drawn(config, "problems", config.train + config.heldout))
        self.train, self.heldout = problems[: config.train], problems[config.train :]

    def demonstrations(self, sft: SftConfig) -> list[Demonstration]:
        """Return the turns of a teacher: it searches, looks at what it found, and says it; or it guesses at once.

        It guesses with the probability `sft.error_rate`.
        """
        rng, found = random.Random(f"{self._config.seed} teacher"), list[Demonstration]()
        numbers = _numbers(self._config)
        search = f"import a, b; found = [x for x in range({numbers.start}, {numbers.stop}) if a.f(x) != b.g(x)]"
        calls = [written_call("python", {"code": code}) for code in (search, "found[0]")]
        for problem in _drawn(self._config, "demonstrations", sft.demonstrations):
            number, messages = problem.id.split("-")[1], ({"role": "user", "content": problem.statement},)
            if rng.random() < sft.error_rate:
                found.append(Demonstration(problem.id, messages, str(rng.choice(numbers)), False))
                continue
            for said, told in zip((*calls, number), ("", f"{number}\n", ""), strict=True):
                found.append(Demonstration(problem.id, messages, said, True))
                messages += ({"role": "assistant", "content": said}, {"role": "tool", "content": told})
        return found


def _numbers(config: DifferingInputProblemsConfig) -> range:
    return range(10 ** (config.digits - 1) if config.digits > 1 else 0, 10**config.digits)


def _drawn(config: DifferingInputProblemsConfig, part: str, count: int) -> Iterator[Problem]:
    rng, known = random.Random(f"{config.seed} {part}"), set[str]()
    while len(known) < count:
        problem = _problem(rng, _numbers(config))
        if problem.id not in known:
            known.add(problem.id)
            yield problem


def _problem(rng: random.Random, numbers: range) -> Problem:
    number, (factor, added, modulus) = rng.choice(numbers), (rng.randrange(2, _PRIME - 1) for _ in range(3))
    a = f"def f(x):\n    return ({factor} * x + {added}) % {modulus}\n"
    odd = f"{factor} * x % {_PRIME} == {factor * number % _PRIME}"
    b = f"def g(x):\n    return ({factor} * x + {added} + ({odd})) % {modulus}\n"
    last = numbers.stop - 1
    differ = f"NUMBERS = range({numbers.start}, {numbers.stop})\n\ndef check(candidate):\n"
    differ += "    assert any(candidate(x) != g(x) for x in NUMBERS)\n"
    return Problem(
        id=f"differing-{number}-{factor}-{added}-{modulus}",
        statement=f"Find x from {numbers.start} to {last} with a.f(x) != b.g(x).",
        solutions=[a],
        starter_code=b,
        tests=CheckTests("check", "f", f"{b}\n{differ}", "check(candidate)"),
        source="differing_input",
        tags=["differing_input"],
    )
