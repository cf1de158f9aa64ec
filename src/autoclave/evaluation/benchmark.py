"""Run a benchmark: sample every question, and grade each response as soon as it completes."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from autoclave.core.futures import chained
from autoclave.evaluation.benchmark_result import GradedResponse
from autoclave.evaluation.questions import Question
from autoclave.evaluation.responses import ResponseRequest, ResponseSource
from autoclave.rollout import SamplingParameters


def graded_responses(
    questions: Sequence[Question],
    num_samples: Callable[[str], int],
    source: ResponseSource,
    parameters: SamplingParameters,
    *,
    is_chat: bool,
    tick: Callable[[], object] = lambda: None,
) -> list[GradedResponse]:
    """Return graded responses to all questions, by question and sample in order. `tick` is called after each.

    Raises:
        Exception: the final error of the source or the judge; completed responses stay in the cache of the source.
    """
    pairs = [
        (question, ResponseRequest(question.info.id, question.messages, is_chat, parameters, sample))
        for question in questions
        for sample in range(num_samples(question.info.id))
    ]
    responses = source.respond([request for _, request in pairs])
    # grading starts in the thread that completes the response
    grades = [chained(response, question.grade) for (question, _), response in zip(pairs, responses, strict=True)]
    found: list[GradedResponse] = []
    for (_, request), given, graded in zip(pairs, responses, grades, strict=True):
        response, grade = given.result(), graded.result().result()
        rest = {"response": response.text, "finish": response.finish, "tokens": response.tokens}
        found.append(GradedResponse(request.question_id, request.sample, **asdict(grade), **rest))
        tick()
    return found
