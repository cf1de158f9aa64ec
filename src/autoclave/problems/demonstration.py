"""What a warm start imitates."""

from __future__ import annotations

from dataclasses import dataclass

from autoclave.problems.prompts import Messages


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt and a response to imitate, which may be wrong. `task_id` is of the form of a problem's id."""

    task_id: str
    messages: Messages
    response: str
    is_right: bool
