"""What a warm start imitates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autoclave.core import Problem
from autoclave.problems.prompts import Messages


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt and a response to imitate, which may be wrong. `task_id` is of the form of a problem's id."""

    task_id: str
    messages: Messages
    response: str
    is_right: bool


@dataclass(frozen=True, slots=True)
class DemonstratedProgram:
    """A program with a problem whose tests it can be run on, and what a teacher would say of such runs."""

    problem: Problem
    program: str
    workings: Sequence[Sequence[str]] = field(default_factory=list[Sequence[str]])
    """For each test, lines such as `n: 3`: what holds after each piece of the program as it is read. Empty: not
    known."""
    misread: Sequence[str] = field(default_factory=list[str])
    """For each test, the program that a careless teacher takes it for. Empty: it is read as it is."""

    def read_on(self, test: int) -> str:
        """The program whose values the teacher tells on a test."""
        return self.misread[test] if self.misread else self.program
