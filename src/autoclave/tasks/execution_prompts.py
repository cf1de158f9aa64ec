"""Chat messages of alignment samples. What a program and its input contain stands in fences that it cannot
end.
"""

from __future__ import annotations

from typing import Literal

from autoclave.core import MAIN_PROGRAM, AlignmentSample, Problem
from autoclave.problems.prompts import Messages, fenced, plain_messages
from autoclave.tasks.final_values import written

Template = Literal["plain", "code"]

FINAL_OUTPUT = "final_output"
"""The key of what a program returns or prints."""
VARIABLES = "variables"

_PROGRAM = "Here is a Python program and {given}. It ends normally; what it computes may be wrong."
_GIVEN = {True: "the standard input that it reads", False: "a call of its function"}
_VALUES = "Work out the value that each of these variables has {when}: {names}"
_WHEN = {True: "when the program ends", False: "when the function returns"}
_OUTPUT = {True: "Work out what it prints.", False: "Work out what the call returns."}
_BOTH = """{output} And work out the value that each of these variables has {when}: {names}"""
_STATEMENT = "Below is a task and an input for it. Work out the right output for this input; write no program."
_LAST_LINE = (
    "You may reason first. The last line of your answer must be one JSON object and nothing else. {keys} Integers are "
    "written like 3, floats like 3.0 (or NaN, Infinity, -Infinity), text in double quotes, and true, false and null "
    "mean True, False and None. Example of a last line: {example}"
)
_KEYS_OF_VARIABLES = "Its keys are the variables, its values are theirs."
_KEY_OF_OUTPUT = f'It has one key, "{FINAL_OUTPUT}": {{what}}.'
_KEYS_OF_BOTH = f'It has two keys: "{FINAL_OUTPUT}", {{what}}, and "{VARIABLES}", an object with the value of each.'
_WHAT = {True: "the printed text as a string", False: "the returned value"}


def values_messages(alignment_sample: AlignmentSample, template: Template) -> Messages:
    """Ask for the final values of the variables of `alignment_sample`."""
    is_main, names = alignment_sample.entry == MAIN_PROGRAM, written(list(alignment_sample.variables))
    if template == "plain":
        return plain_messages(f"{_plain(alignment_sample)}\nvalues: {', '.join(alignment_sample.variables)}")
    question = _VALUES.format(when=_WHEN[is_main], names=names)
    return _asked(alignment_sample, question, _KEYS_OF_VARIABLES, {"count": 3, "name": "ab"})


def output_messages(alignment_sample: AlignmentSample, template: Template) -> Messages:
    """Ask for what the program of `alignment_sample` returns or prints."""
    is_main = alignment_sample.entry == MAIN_PROGRAM
    if template == "plain":
        return plain_messages(f"{_plain(alignment_sample)}\noutput:")
    keys = _KEY_OF_OUTPUT.format(what=_WHAT[is_main])
    return _asked(alignment_sample, _OUTPUT[is_main], keys, {FINAL_OUTPUT: "3\n4" if is_main else [3, 4]})


def trace_messages(alignment_sample: AlignmentSample, template: Template) -> Messages:
    """Ask for both: the output, and the final values of the variables of `alignment_sample`."""
    is_main, names = alignment_sample.entry == MAIN_PROGRAM, written(list(alignment_sample.variables))
    if template == "plain":
        return plain_messages(f"{_plain(alignment_sample)}\noutput and values: {', '.join(alignment_sample.variables)}")
    question = _BOTH.format(output=_OUTPUT[is_main], when=_WHEN[is_main], names=names)
    keys = _KEYS_OF_BOTH.format(what=_WHAT[is_main])
    return _asked(
        alignment_sample, question, keys, {FINAL_OUTPUT: "3" if is_main else 3, VARIABLES: {"count": 2, "name": "ab"}}
    )


def right_output_messages(problem: Problem, alignment_sample: AlignmentSample, template: Template) -> Messages:
    """Ask for the right output on the input of `alignment_sample`, from the statement of its problem alone."""
    is_main = alignment_sample.entry == MAIN_PROGRAM
    if template == "plain":
        return plain_messages(f"{problem.statement}\n{alignment_sample.input.rstrip()}\noutput:")
    keys = _KEY_OF_OUTPUT.format(what=_WHAT[is_main])
    parts = [_STATEMENT, fenced(problem.statement), "Input:", fenced(alignment_sample.input.rstrip("\n"))]
    return plain_messages("\n\n".join([*parts, _last_line(keys, {FINAL_OUTPUT: "3\n4" if is_main else [3, 4]})]))


def _plain(alignment_sample: AlignmentSample) -> str:
    return f"{alignment_sample.program}\n# {alignment_sample.input.rstrip()}"


def _asked(alignment_sample: AlignmentSample, question: str, keys: str, example: object) -> Messages:
    is_main = alignment_sample.entry == MAIN_PROGRAM
    parts = [
        _PROGRAM.format(given=_GIVEN[is_main]),
        fenced(alignment_sample.program, "python"),
        "Standard input:" if is_main else "Call:",
        fenced(alignment_sample.input.removesuffix("\n")),
        question,
        _last_line(keys, example),
    ]
    return plain_messages("\n\n".join(parts))


def _last_line(keys: str, example: object) -> str:
    return _LAST_LINE.format(keys=keys, example=written(example))
