"""Prompts of benchmarks: prompts by name, and texts with places to fill in.

The sentences are ours. Who compares with figures that were measured with other ones gives those in a file of his own
(docs/how-to/evaluation.md): a model's score depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from autoclave.core import CallTests, CheckTests, ConfigError, Problem
from autoclave.core.json import nearest
from autoclave.problems.prompts import Messages, fenced, plain_messages, problem_messages

_PLACE = re.compile(r"\{(\w+)\}")
_CODER = "You are an expert Python programmer. You write correct programs that handle every case the task allows."
_TESTS = "Your code has to pass these tests:\n\n{tests}"
_BLOCK = "Answer with the whole program in one fenced block:\n\n```python\n# your program\n```"
_CONTINUE = (
    "This is the beginning of the program:\n\n{code}\n\nContinue it where it ends. Answer with what follows, and not "
    "with the beginning, in one fenced block:\n\n```python\n# the rest of the program\n```"
)
_VALUE = (
    "Work it out step by step. Then write the value as a Python literal on the last line, in this form:\n\n"
    "Answer: [1, 'a']"
)
_ARGUMENTS = (
    "Work it out step by step. Then write a call with literal arguments on the last line, in this form:\n\n"
    "Answer: f([1, 2], 'a')"
)


def _code_with_tests(problem: Problem) -> Messages:
    if not isinstance(problem.tests, CheckTests):
        return problem_messages(problem, "code")
    tests = _TESTS.format(tests=fenced(problem.tests.source.strip(), "python"))
    return _asked(_CODER, problem.statement, tests, _BLOCK)


def _continuation(problem: Problem) -> Messages:
    beginning = _CONTINUE.format(code=fenced(problem.starter_code, "python"))
    return _asked(_CODER, problem.statement, beginning)


def _asked(system: str, *parts: str) -> Messages:
    user = {"role": "user", "content": "\n\n".join(part for part in parts if part)}
    return ({"role": "system", "content": system}, user) if system else (user,)


PROMPTS: Mapping[str, Callable[[Problem], Messages]] = {
    "plain": lambda problem: plain_messages(problem.statement),
    "completion": lambda problem: plain_messages(problem.statement),
    "code": lambda problem: problem_messages(problem, "code"),
    "code_with_tests": _code_with_tests,
    "continuation": _continuation,
    "math": lambda problem: problem_messages(problem, "math"),
    "value": lambda problem: _asked("", problem.statement, _VALUE),
    "call_arguments": lambda problem: _asked("", problem.statement, _ARGUMENTS),
}
"""Messages of a problem, by the name of the prompt."""
_PLACES: Mapping[str, Callable[[Problem], str]] = {
    "statement": lambda problem: problem.statement,
    "starter_code": lambda problem: problem.starter_code,
    "entry_point": lambda problem: (
        problem.tests.entry_point if isinstance(problem.tests, CallTests | CheckTests) else ""
    ),
    "tests": lambda problem: problem.tests.source.strip() if isinstance(problem.tests, CheckTests) else "",
}


def prompt_of(name: str, system: str | None) -> Callable[[Problem], Messages]:
    """Return the prompt of a problem: the prompt of that name, or `name` itself as a text with places.

    `system` takes the place of the prompt's own system message; an empty one takes it away.

    Raises:
        ConfigError: there is no such prompt, and the text has no place for the statement.
    """
    ask = PROMPTS.get(name) or _filled_in(name)

    def messages(problem: Problem) -> Messages:
        asked = ask(problem)
        if system is None:
            return asked
        others = tuple(message for message in asked if message["role"] != "system")
        return ({"role": "system", "content": system}, *others) if system else others

    return messages


def _filled_in(text: str) -> Callable[[Problem], Messages]:
    places = _PLACE.findall(text)
    if "statement" not in places:
        known = "" if places else f"{nearest(text, list(PROMPTS))}; "
        can = ", ".join(f"{{{name}}}" for name in _PLACES)
        raise ConfigError(f"prompt = {text!r}: {known}a text of your own needs {{statement}}, of the places {can}")
    return lambda problem: plain_messages(
        _PLACE.sub(lambda place: _PLACES[place[1]](problem) if place[1] in _PLACES else place[0], text)
    )
