"""A model on a benchmark: every question is asked, every response graded the moment it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from autoclave.evaluation.benchmark_result import GradedResponse
from autoclave.evaluation.questions import Grade, Question
from autoclave.evaluation.responses import Asked, Response, ResponseSource
from autoclave.rollout import SamplingParameters


def graded_responses(
    questions: Sequence[Question],
    num_samples: Callable[[str], int],
    source: ResponseSource,
    parameters: SamplingParameters,
    *,
    is_chat: bool,
    tick: Callable[[], None] = lambda: None,
) -> list[GradedResponse]:
    """Graded responses to all questions, by question and sample in order. `tick` is called after each.

    Raises:
        Exception: what the source or the judge raised for good; responses that are there already are in the cache of
            the source, if it has one.
    """
    asked = [
        (question, Asked(question.about.id, question.messages, is_chat, parameters, sample))
        for question in questions
        for sample in range(num_samples(question.about.id))
    ]
    given = source.respond([each for _, each in asked])
    graded = [_graded(question, response) for (question, _), response in zip(asked, given, strict=True)]
    found: list[GradedResponse] = []
    for (_, each), future in zip(asked, graded, strict=True):
        response, grade = future.result()
        found.append(
            GradedResponse(
                each.question_id,
                each.sample,
                grade.status,
                grade.score,
                response.text,
                grade.submission,
                grade.tests_passed,
                grade.message,
                response.finish,
                response.tokens,
            )
        )
        tick()
    return found


def _graded(question: Question, given: Future[Response]) -> Future[tuple[Response, Grade]]:
    """A response with its grade; grading starts when the response is there."""
    both: Future[tuple[Response, Grade]] = Future()

    def judge(done: Future[Response]) -> None:
        try:
            response = done.result()
            question.grade(response).add_done_callback(lambda grade: finish(response, grade))
        except BaseException as error:  # noqa: BLE001  it is raised where the grade is waited for
            both.set_exception(error)

    def finish(response: Response, grade: Future[Grade]) -> None:
        try:
            both.set_result((response, grade.result()))
        except BaseException as error:  # noqa: BLE001  as above
            both.set_exception(error)

    given.add_done_callback(judge)
    return both
