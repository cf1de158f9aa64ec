"""Tasks about what programs do: an alignment sample becomes a prompt, and the values in an answer are compared with
true ones.

Source: Jiang et al., CodeRL+, section 3.2 (rewards, equation 5), appendix C (trace inference); output prediction and
test output prediction are those of LiveCodeBench (Jain et al., arXiv:2403.07974).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from statistics import fmean
from typing import Any, cast

from autoclave.core import MAIN_PROGRAM, AlignmentSample, CallTests, Problem, Reward, StdinTests, TaskItem
from autoclave.core.trace import literal, value_of
from autoclave.tasks.alignment_samples import input_of, is_answerable
from autoclave.tasks.execution_prompts import (
    FINAL_OUTPUT,
    VARIABLES,
    Template,
    output_messages,
    right_output_messages,
    trace_messages,
    values_messages,
)
from autoclave.tasks.final_values import BadAnswerError, is_same, last_object, which_right, written

EXACT, PARTLY, WRONG, BAD_FORMAT = "exact", "partly", "wrong", "bad_format"
"""Reasons of rewards: all values right, some, none; and an answer that is none."""
VARIABLE = "variable/"
"""Before the name of a variable: the part of a reward that says whether its value was right, 1 or 0."""


class ExecutionSemantics:
    """Final values of variables, or what a program returns or prints: the reward is the share that is right."""

    name = "execution_semantics"

    def __init__(self, template: Template = "code", *, float_tolerance: float = 0.0) -> None:
        self._template: Template = template
        self._float_tolerance = float_tolerance

    def item(self, alignment_sample: AlignmentSample) -> TaskItem:
        """Messages that ask the policy about `alignment_sample`."""
        messages = values_messages if alignment_sample.variables else output_messages
        return _item(self.name, alignment_sample, messages(alignment_sample, self._template))

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """Reward of `response`: a malformed answer 0, with the reason `bad_format`."""
        alignment_sample: AlignmentSample = item.payload
        return _rewarded(response, lambda found: self._value(alignment_sample, found))

    def _value(self, alignment_sample: AlignmentSample, found: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        if not alignment_sample.variables:
            return float(_is_output(alignment_sample, found, self._float_tolerance)), {}
        right = which_right(alignment_sample.values, found, float_tolerance=self._float_tolerance)
        return fmean(right.values()), {f"{VARIABLE}{name}": float(is_right) for name, is_right in right.items()}


class TraceInference:
    """Output and final values together; right only if all of it is (Exact@1)."""

    name = "trace_inference"

    def __init__(self, template: Template = "code", *, float_tolerance: float = 0.0) -> None:
        self._template: Template = template
        self._float_tolerance = float_tolerance

    def item(self, alignment_sample: AlignmentSample) -> TaskItem:
        """Messages that ask about `alignment_sample`, which has a result and variables."""
        return _item(self.name, alignment_sample, trace_messages(alignment_sample, self._template))

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """1 or 0."""
        alignment_sample: AlignmentSample = item.payload
        return _rewarded(response, lambda found: (float(self._is_right(alignment_sample, found)), {}))

    def _is_right(self, alignment_sample: AlignmentSample, found: Mapping[str, Any]) -> bool:
        given = found.get(VARIABLES)
        if not isinstance(given, dict) or not _is_output(alignment_sample, found, self._float_tolerance):
            return False
        answers = cast("dict[str, Any]", given)
        return all(which_right(alignment_sample.values, answers, float_tolerance=self._float_tolerance).values())


class OutputPrediction:
    """Prediction of what a given program returns or prints; right or wrong."""

    name = "output_prediction"

    def __init__(self, template: Template = "code", *, float_tolerance: float = 0.0) -> None:
        self._template: Template = template
        self._float_tolerance = float_tolerance

    def item(self, alignment_sample: AlignmentSample) -> TaskItem:
        """Messages that ask about `alignment_sample`, which has a result."""
        return _item(self.name, alignment_sample, output_messages(alignment_sample, self._template))

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """1 or 0."""
        alignment_sample: AlignmentSample = item.payload
        return _rewarded(
            response, lambda found: (float(_is_output(alignment_sample, found, self._float_tolerance)), {})
        )


class TestOutputPrediction(OutputPrediction):
    """The right output for an input, from the statement of a problem; right or wrong."""

    __test__ = False  # not a test class of pytest
    name = "test_output_prediction"

    def item_of(self, problem: Problem, test: int) -> TaskItem | None:
        """Messages that ask the policy about a test; None if its output cannot be asked for."""
        tests = problem.tests
        given = input_of(problem, test)
        if given is None or not isinstance(tests, StdinTests | CallTests):
            return None
        is_main = isinstance(tests, StdinTests)
        result = tests.cases[test].output if isinstance(tests, StdinTests) else literal(tests.cases[test].output)
        entry = MAIN_PROGRAM if is_main else tests.entry_point
        if not is_answerable(result, entry):
            return None
        alignment_sample = AlignmentSample(
            problem_id=problem.id, test=test, program="", entry=entry, input=given, result=result
        )
        return _item(self.name, alignment_sample, right_output_messages(problem, alignment_sample, self._template))


def answer_to(alignment_sample: AlignmentSample, task: str) -> str:
    """The last line of a right answer."""
    if task == TraceInference.name:
        return written({FINAL_OUTPUT: _output(alignment_sample), VARIABLES: alignment_sample.values})
    if task == ExecutionSemantics.name and alignment_sample.variables:
        return written(alignment_sample.values)
    return written({FINAL_OUTPUT: _output(alignment_sample)})


def _item(task: str, alignment_sample: AlignmentSample, messages: tuple[dict[str, str], ...]) -> TaskItem:
    name = f"{alignment_sample.problem_id}/{task}/{alignment_sample.key[:12]}"
    return TaskItem(task, name, name, messages, alignment_sample)


def _rewarded(response: str, value: Callable[[Mapping[str, Any]], tuple[float, dict[str, float]]]) -> Future[Reward]:
    """A reward, which is there at once, by the `value` of an answer and its parts."""
    reward: Future[Reward] = Future()
    try:
        share, parts = value(last_object(response))
    except BadAnswerError:
        reward.set_result(Reward(0.0, BAD_FORMAT))
        return reward
    reward.set_result(Reward(share, EXACT if share == 1 else PARTLY if share else WRONG, parts))
    return reward


def _output(alignment_sample: AlignmentSample) -> Any:
    """Result that the program of `alignment_sample` returns or prints; of printed text without blanks at the ends of
    lines.
    """
    if alignment_sample.result is None:
        raise ValueError(f"alignment sample of problem {alignment_sample.problem_id!r}: it has no result")
    return (
        _trimmed(alignment_sample.result)
        if alignment_sample.entry == MAIN_PROGRAM
        else value_of(alignment_sample.result)
    )


def _is_output(alignment_sample: AlignmentSample, found: Mapping[str, Any], float_tolerance: float) -> bool:
    if FINAL_OUTPUT not in found:
        return False
    given = found[FINAL_OUTPUT]
    given = _trimmed(given) if alignment_sample.entry == MAIN_PROGRAM and isinstance(given, str) else given
    return is_same(_output(alignment_sample), given, float_tolerance=float_tolerance)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n"))
