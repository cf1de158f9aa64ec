"""Alignment samples and answers as pages show them: the program, what it was given, and each value beside the one it
has.

Everything here was written by a model, so all of it is cut to what is shown. Nothing is escaped; templates do that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autoclave.core import MAIN_PROGRAM, AlignmentSample
from autoclave.core.trace import literal
from autoclave.report.text import shortened
from autoclave.runs.reader import number
from autoclave.runs.rollouts import RecordedRollout
from autoclave.tasks.execution_semantics import EXACT, FINAL_OUTPUT, VARIABLE
from autoclave.tasks.final_values import BadAnswerError, last_object

SHOWN_PROGRAM = 8000
"""Most characters shown of a program, and of its input."""
SHOWN_VALUE = 400
"""Most characters shown of a value, and of the name of a variable."""
SHOWN_VALUES = 32
"""Most variables shown of an alignment sample."""


@dataclass(frozen=True, slots=True)
class ShownAlignmentSample:
    """The question."""

    kind: Literal["variables", "output"]
    program: str
    program_label: str
    """Origin and author of the program."""
    input: str
    input_label: str


@dataclass(frozen=True, slots=True)
class AnsweredValue:
    """One value that was asked for. Values are spelled as Python does; `predicted` is None where there is none."""

    name: str
    true: str
    predicted: str | None
    is_right: bool


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """The answer; `malformed` gives the reason for which it is not valid, and is empty if it is."""

    values: tuple[AnsweredValue, ...]
    num_left_out: int
    """Values that were asked and are not shown."""
    num_others: int
    """Keys in the answer that were not requested."""
    malformed: str


def shown_alignment_sample(alignment_sample: AlignmentSample) -> ShownAlignmentSample:
    is_main = alignment_sample.entry == MAIN_PROGRAM
    return ShownAlignmentSample(
        kind="variables" if alignment_sample.variables else "output",
        program=shortened(alignment_sample.program, SHOWN_PROGRAM),
        program_label=_origin(alignment_sample),
        input=shortened(alignment_sample.input, SHOWN_PROGRAM),
        input_label="standard input" if is_main else "call",
    )


def shown_answer(rollout: RecordedRollout) -> ShownAnswer | None:
    """The answer of `rollout` beside what is true; None if it does not answer an alignment sample.

    Raises DataError: what is recorded as its alignment sample is none.
    """
    alignment_sample = rollout.alignment_sample
    if alignment_sample is None:
        return None
    found, malformed = _answer(rollout)
    asked = _asked(alignment_sample)
    values = [
        AnsweredValue(
            name=shortened(label, SHOWN_VALUE),
            true=shortened(true, SHOWN_VALUE),
            predicted=_spelled(found[key]) if key in found else None,
            is_right=_is_right(rollout, alignment_sample, key),
        )
        for key, label, true in asked[:SHOWN_VALUES]
    ]
    num_others = len(found.keys() - {key for key, _, _ in asked})
    return ShownAnswer(tuple(values), max(0, len(asked) - SHOWN_VALUES), num_others, malformed)


def _answer(rollout: RecordedRollout) -> tuple[Mapping[str, Any], str]:
    """The object that `rollout` answered with, or why there is none."""
    try:
        return last_object(rollout.response), ""
    except BadAnswerError as error:
        return {}, str(error)


def _asked(alignment_sample: AlignmentSample) -> list[tuple[str, str, str]]:
    """`(key in an answer, what it is called, true value)` of all that `alignment_sample` asks for."""
    if alignment_sample.variables:
        return [(name, name, text) for name, text in alignment_sample.variables.items()]
    if alignment_sample.entry == MAIN_PROGRAM:
        return [(FINAL_OUTPUT, "what it prints", literal((alignment_sample.result or "").rstrip()))]
    return [(FINAL_OUTPUT, "what it returns", alignment_sample.result or "")]


def _is_right(rollout: RecordedRollout, alignment_sample: AlignmentSample, key: str) -> bool:
    """As it was rewarded: a run may count floats as right that are not equal."""
    if not alignment_sample.variables:
        return rollout.reason == EXACT
    return number(rollout.reward_parts, f"{VARIABLE}{key}") == 1


def _spelled(value: Any) -> str:
    try:
        return shortened(literal(value), SHOWN_VALUE)
    except (ValueError, RecursionError):
        return "(too deep or too large to show)"


def _origin(alignment_sample: AlignmentSample) -> str:
    match alignment_sample.source:
        case "reference":
            return "a solution of the problem"
        case "random":
            return f"a response of version {alignment_sample.version} of the policy"
        case "failed":
            return f"a failed response of version {alignment_sample.version} of the policy"
