"""How a problem becomes chat messages.

Templates have names: `plain` is the statement alone, for the tiny policy, whose warm start taught it the form of an
answer; `code` and `math` say what to answer with, for general instruction-tuned models.
Not here: tokens and chat templates of tokenizers, and how a program or an answer is found in a response.
"""

from __future__ import annotations

import re
from typing import Literal

from autoclave.core import CallTests, CheckTests, Problem

Messages = tuple[dict[str, str], ...]
Template = Literal["plain", "code", "math"]

_SYSTEM = "You are an expert Python programmer. You write correct programs that handle every case the task allows."
_STDIN = "Write a Python program that reads from standard input and writes to standard output."
_CALL = "Write Python code that defines `{name}`; it will be imported and called. Do not read input or print."
_STARTER = "Begin with this code:\n\n```python\n{code}\n```"
_ANSWER = "Answer with the whole program in one fenced block:\n\n```python\n# your program\n```"

_SOLVE = "Solve the problem step by step. Write the final answer, and nothing else, into \\boxed{}."


def problem_messages(problem: Problem, template: Template) -> Messages:
    """The chat messages that ask for a program, or an answer, that solves `problem`."""
    if template == "math":
        return plain_messages(f"{problem.statement}\n\n{_SOLVE}")
    return plain_messages(problem.statement) if template == "plain" else _code_messages(problem)


def plain_messages(statement: str) -> Messages:
    """The template `plain`, of which only the statement is needed."""
    return ({"role": "user", "content": statement},)


def _code_messages(problem: Problem) -> Messages:
    tests = problem.tests
    task = _CALL.format(name=tests.entry_point) if isinstance(tests, (CallTests, CheckTests)) else _STDIN
    parts = [problem.statement, task]
    if problem.starter_code:
        parts.append(_STARTER.format(code=problem.starter_code))
    parts.append(_ANSWER)
    return ({"role": "system", "content": _SYSTEM}, {"role": "user", "content": "\n\n".join(parts)})


def fenced(text: str, language: str = "") -> str:
    """`text` in a fence that ends where it does, whatever it contains."""
    inside = max((len(run) for run in re.findall("`{3,}", text)), default=2)  # lines may end in many ways
    fence = "`" * (inside + 1)
    return f"{fence}{language}\n{text}\n{fence}"
