"""A reward function for verl: `reward.custom_reward_function.path=pkg://autoclave.integrations.verl`.

`reward_model.ground_truth` of a row is the problem: a line of a problem file, its digest at a judge server, or JSON of
`{"inputs", "outputs", "fn_name"}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoclave.integrations.scoring import RewardRule, scorer_of_process


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    *,
    settings: Sequence[str] = (),
    reward: RewardRule = "binary",
    **_: Any,
) -> dict[str, Any]:
    """Return the reward of a response: `score`, `acc` (whether all tests passed) and `status`.

    `settings` and `reward` come from `custom_reward_function.reward_kwargs`. The judge is opened once per process.

    Raises:
        InputError: a problem or a setting cannot be used.
        JudgeFault: the judge failed. verl has no reward for that, so the exception ends the step.
    """
    scorer = scorer_of_process(tuple(settings), reward)
    verdict = scorer.submit(solution_str, ground_truth).result()
    value = scorer.value(verdict)
    return {"score": value, "acc": verdict.is_accepted, "status": verdict.status.value if verdict.status else ""}
