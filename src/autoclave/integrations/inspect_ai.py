"""A scorer for Inspect (`inspect_ai`). The metadata of a sample has the problem, as `problem`."""

import asyncio
from collections.abc import Sequence

from inspect_ai.scorer import CORRECT, INCORRECT, Score, Target, accuracy, scorer, stderr
from inspect_ai.scorer import Scorer as InspectScorer
from inspect_ai.solver import TaskState

from autoclave.core import InputError
from autoclave.integrations.scoring import problem_of, scorer_of_process


@scorer(metrics=[accuracy(), stderr()])
def sealed_judge(settings: Sequence[str] = (), key: str = "problem") -> InspectScorer:
    """CORRECT if the program in the answer passes all tests, else INCORRECT.

    A fault of the judge raises `JudgeFault`: Inspect marks the sample as an error, leaves it out of all metrics, and
    continues or stops by `fail_on_error`.

    Args:
        settings: as on the command line of `autoclave judge`. The judge is opened once per process.
        key: of the sample's metadata that has the problem.
    """

    async def score(state: TaskState, target: Target) -> Score:
        if key not in state.metadata:
            raise InputError(f"the sample has no metadata {key!r}. Fix: set `key` to the one with the problem")
        own = await asyncio.to_thread(scorer_of_process, tuple(settings), "binary")
        problem = problem_of(state.metadata[key])
        response = state.output.completion
        verdict = await asyncio.wrap_future(await asyncio.to_thread(own.submit, response, problem))
        is_right = own.value(verdict) == 1.0
        return Score(
            value=CORRECT if is_right else INCORRECT,
            answer=own.program_in(response, problem),
            explanation=verdict.message,
            metadata={"status": verdict.status, "failing_test": verdict.failing_test, "level": verdict.level},
        )

    return score
