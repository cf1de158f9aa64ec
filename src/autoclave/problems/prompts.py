"""Convert a problem into chat messages.

Templates have names: `plain` is the statement alone, for the tiny policy, whose warm start trained the form of an
answer; `code` and `math` describe the form, for general instruction-tuned models.
Not here: tokens and chat templates of tokenizers, and the extraction of programs or answers from responses.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from autoclave.core import CallTests, CheckTests, Problem

Messages = tuple[dict[str, str], ...]
Template = Literal["plain", "code", "math"]

SYSTEM = "You are an expert Python programmer. You write correct programs that handle every case the task allows."
_STDIN = "Write a Python program that reads from standard input and writes to standard output."
_CALL = "Write Python code that defines `{name}`; it will be imported and called. Do not read input or print."
_STARTER = "Begin with this code:\n\n```python\n{code}\n```"
ANSWER_BLOCK = "Answer with the whole program in one fenced block:\n\n```python\n# your program\n```"

_SOLVE = "Solve the problem step by step. Write the final answer, and nothing else, into \\boxed{}."


def problem_messages(problem: Problem, template: Template) -> Messages:
    if template == "math":
        return plain_messages(f"{problem.statement}\n\n{_SOLVE}")
    return plain_messages(problem.statement) if template == "plain" else _code_messages(problem)


def plain_messages(statement: str) -> Messages:
    return ({"role": "user", "content": statement},)


def _code_messages(problem: Problem) -> Messages:
    tests = problem.tests
    task = _CALL.format(name=tests.entry_point) if isinstance(tests, (CallTests, CheckTests)) else _STDIN
    parts = [problem.statement, task]
    if problem.starter_code:
        parts.append(_STARTER.format(code=problem.starter_code))
    parts.append(ANSWER_BLOCK)
    return ({"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n\n".join(parts)})


def fenced(text: str, language: str = "") -> str:
    """Return `text` in a fence longer than any fence in it."""
    inside = max((len(run) for run in re.findall("`{3,}", text)), default=2)  # lines may end in many ways
    fence = "`" * (inside + 1)
    return f"{fence}{language}\n{text}\n{fence}"


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt and a response to imitate, which may be wrong. `task_id` is of the form of a problem's id."""

    task_id: str
    messages: Messages
    response: str
    is_right: bool


@dataclass(frozen=True, slots=True)
class DemonstratedProgram:
    """A program, a problem on whose tests it runs, and a teacher's account of these runs."""

    problem: Problem
    program: str
    workings: Sequence[Sequence[str]] = field(default_factory=list[Sequence[str]])
    """For each test, lines such as `n: 3`: the value after each piece of the program as read. Empty if unknown."""
    misread: Sequence[str] = field(default_factory=list[str])
    """For each test, the program as a careless teacher reads it. Empty: it is read correctly."""

    def read_on(self, test: int) -> str:
        """Return the program whose values the teacher writes on a test."""
        return self.misread[test] if self.misread else self.program
