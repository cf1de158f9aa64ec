"""Tasks of execution semantics: an alignment sample becomes a prompt, the values in an answer are compared with the
true ones.

Source: Jiang et al., CodeRL+, section 3.2 (rewards, equation 5), appendix C (trace inference); output prediction and
test output prediction are those of LiveCodeBench (Jain et al., arXiv:2403.07974).
"""

from collections.abc import Mapping
from concurrent.futures import Future
from statistics import fmean
from typing import Any, Literal, cast

from autoclave.core import MAIN_PROGRAM, AlignmentSample, CallTests, Problem, Reward, StdinTests, TaskItem
from autoclave.core.futures import completed
from autoclave.core.trace import literal, value_of
from autoclave.problems.prompts import Messages, fenced, plain_messages
from autoclave.tasks.alignment_samples import input_of, is_answerable
from autoclave.tasks.final_values import BadAnswerError, is_same, last_object, which_right, written

EXACT, PARTLY, WRONG, BAD_FORMAT = "exact", "partly", "wrong", "bad_format"
"""Reasons of rewards: all values right, some, none; and a malformed answer."""
VARIABLE = "variable/"
"""Prefix of the parts of a reward that are 1 or 0 for the value of one variable."""


class _ValuePrediction:
    """Base of the tasks: messages of an alignment sample, and the reward of an answer in JSON."""

    name: str

    def __init__(self, template: "Template" = "code", *, float_tolerance: float = 0.0) -> None:
        self._template: Template = template
        self._float_tolerance = float_tolerance

    def item(self, sample: AlignmentSample) -> TaskItem:
        return _item(self.name, sample, self._messages(sample))

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """Return the share of `response` that is right; of a malformed answer 0, with the reason `bad_format`."""
        try:
            share, parts = self._value(item.payload, last_object(response))
        except BadAnswerError:
            return completed(Reward(0.0, BAD_FORMAT))
        return completed(Reward(share, EXACT if share == 1 else PARTLY if share else WRONG, parts))

    def _messages(self, sample: AlignmentSample) -> Messages:
        raise NotImplementedError

    def _value(self, sample: AlignmentSample, answer: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        """Return the reward in [0, 1] and its parts."""
        return float(self._has_output(sample, answer)), {}

    def _has_output(self, sample: AlignmentSample, answer: Mapping[str, Any]) -> bool:
        if FINAL_OUTPUT not in answer:
            return False
        given = answer[FINAL_OUTPUT]
        given = _trimmed(given) if sample.entry == MAIN_PROGRAM and isinstance(given, str) else given
        return is_same(_output(sample), given, float_tolerance=self._float_tolerance)

    def _right(self, sample: AlignmentSample, values: Mapping[str, Any]) -> dict[str, bool]:
        return which_right(sample.values, values, float_tolerance=self._float_tolerance)


class ExecutionSemantics(_ValuePrediction):
    """Prediction of the final values of variables, or without variables of the output; rewarded by the right share."""

    name = "execution_semantics"

    def _messages(self, sample: AlignmentSample) -> Messages:
        messages = values_messages if sample.variables else output_messages
        return messages(sample, self._template)

    def _value(self, sample: AlignmentSample, answer: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        if not sample.variables:
            return super()._value(sample, answer)
        right = self._right(sample, answer)
        return fmean(right.values()), {f"{VARIABLE}{name}": float(is_right) for name, is_right in right.items()}


class TraceInference(_ValuePrediction):
    """Prediction of output and final values together; right only if all of it is (Exact@1)."""

    name = "trace_inference"

    def _messages(self, sample: AlignmentSample) -> Messages:
        return trace_messages(sample, self._template)

    def _value(self, sample: AlignmentSample, answer: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        values = answer.get(VARIABLES)
        if not isinstance(values, dict) or not self._has_output(sample, answer):
            return 0.0, {}
        return float(all(self._right(sample, cast("dict[str, Any]", values)).values())), {}


class OutputPrediction(_ValuePrediction):
    """Prediction of the output or return value of a given program; right or wrong."""

    name = "output_prediction"

    def _messages(self, sample: AlignmentSample) -> Messages:
        return output_messages(sample, self._template)


class TestOutputPrediction(OutputPrediction):
    """Prediction of the right output for an input from the statement of a problem; right or wrong."""

    __test__ = False  # not a test class of pytest
    name = "test_output_prediction"

    def item_of(self, problem: Problem, test: int) -> TaskItem | None:
        """Return the messages for a test; None if its output has no form in JSON."""
        tests = problem.tests
        given = input_of(problem, test)
        if given is None or not isinstance(tests, StdinTests | CallTests):
            return None
        if isinstance(tests, StdinTests):
            entry, result = MAIN_PROGRAM, tests.cases[test].output
        else:
            entry, result = tests.entry_point, literal(tests.cases[test].output)
        if not is_answerable(result, entry):
            return None
        sample = AlignmentSample(problem_id=problem.id, test=test, program="", entry=entry, input=given, result=result)
        return _item(self.name, sample, right_output_messages(problem, sample, self._template))


def answer_to(sample: AlignmentSample, task: str) -> str:
    """Return the last line of a right answer."""
    if task == TraceInference.name:
        return written({FINAL_OUTPUT: _output(sample), VARIABLES: sample.values})
    if task == ExecutionSemantics.name and sample.variables:
        return written(sample.values)
    return written({FINAL_OUTPUT: _output(sample)})


def _item(task: str, sample: AlignmentSample, messages: Messages) -> TaskItem:
    name = f"{sample.problem_id}/{task}/{sample.key[:12]}"
    return TaskItem(task, name, name, messages, sample)


def _output(sample: AlignmentSample) -> Any:
    """Return the value that the program returns, or its printed text without blanks at the ends of lines."""
    if sample.result is None:
        raise ValueError(f"the alignment sample of problem {sample.problem_id!r} has no result")
    is_main = sample.entry == MAIN_PROGRAM
    return _trimmed(sample.result) if is_main else value_of(sample.result)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n"))


Template = Literal["plain", "code"]

FINAL_OUTPUT = "final_output"
"""Key of the value that a program returns or prints."""
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


def values_messages(sample: AlignmentSample, template: Template) -> Messages:
    """Ask for the final values of the variables of `sample`."""
    is_main, names = sample.entry == MAIN_PROGRAM, written(list(sample.variables))
    if template == "plain":
        return plain_messages(f"{_plain(sample)}\nvalues: {', '.join(sample.variables)}")
    question = _VALUES.format(when=_WHEN[is_main], names=names)
    return _messages(sample, question, _KEYS_OF_VARIABLES, {"count": 3, "name": "ab"})


def output_messages(sample: AlignmentSample, template: Template) -> Messages:
    """Ask for what the program of `sample` returns or prints."""
    is_main = sample.entry == MAIN_PROGRAM
    if template == "plain":
        return plain_messages(f"{_plain(sample)}\noutput:")
    keys = _KEY_OF_OUTPUT.format(what=_WHAT[is_main])
    return _messages(sample, _OUTPUT[is_main], keys, {FINAL_OUTPUT: "3\n4" if is_main else [3, 4]})


def trace_messages(sample: AlignmentSample, template: Template) -> Messages:
    """Ask for both: the output, and the final values of the variables of `sample`."""
    is_main, names = sample.entry == MAIN_PROGRAM, written(list(sample.variables))
    if template == "plain":
        return plain_messages(f"{_plain(sample)}\noutput and values: {', '.join(sample.variables)}")
    question = _BOTH.format(output=_OUTPUT[is_main], when=_WHEN[is_main], names=names)
    keys = _KEYS_OF_BOTH.format(what=_WHAT[is_main])
    return _messages(
        sample, question, keys, {FINAL_OUTPUT: "3" if is_main else 3, VARIABLES: {"count": 2, "name": "ab"}}
    )


def right_output_messages(problem: Problem, sample: AlignmentSample, template: Template) -> Messages:
    """Ask for the right output on the input of `sample`, from the statement of its problem alone."""
    is_main = sample.entry == MAIN_PROGRAM
    if template == "plain":
        return plain_messages(f"{problem.statement}\n{sample.input.rstrip()}\noutput:")
    keys = _KEY_OF_OUTPUT.format(what=_WHAT[is_main])
    parts = [_STATEMENT, fenced(problem.statement), "Input:", fenced(sample.input.rstrip("\n"))]
    return plain_messages("\n\n".join([*parts, _last_line(keys, {FINAL_OUTPUT: "3\n4" if is_main else [3, 4]})]))


def _plain(sample: AlignmentSample) -> str:
    return f"{sample.program}\n# {sample.input.rstrip()}"


def _messages(sample: AlignmentSample, question: str, keys: str, example: object) -> Messages:
    is_main = sample.entry == MAIN_PROGRAM
    parts = [
        _PROGRAM.format(given=_GIVEN[is_main]),
        fenced(sample.program, "python"),
        "Standard input:" if is_main else "Call:",
        fenced(sample.input.removesuffix("\n")),
        question,
        _last_line(keys, example),
    ]
    return plain_messages("\n\n".join(parts))


def _last_line(keys: str, example: object) -> str:
    return _LAST_LINE.format(keys=keys, example=written(example))
