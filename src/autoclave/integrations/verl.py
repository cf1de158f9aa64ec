"""A reward function and a reward manager for verl, of 0.9 and newer with the default trainer (`trainer.use_v1`).

`reward_model.ground_truth` of a row is the problem: a line of a problem file, its digest at a judge server, or tests in
a form of public sets. Without a verdict the function raises. That trainer then leaves out the response: neither the
loss nor the baseline of its group, nor any other estimator, sees it. The older trainer ends the step.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from autoclave.core import Verdict
from autoclave.integrations.scoring import RewardRule, Scorer, scorer_of_process


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    settings: Sequence[str] = (),
    reward: RewardRule = "binary",
    **_: Any,
) -> dict[str, Any]:
    """Return the reward of a response: `score`, `acc` (whether all tests passed) and `status`.

    `settings` and `reward` come from `custom_reward_function.reward_kwargs`. The judge is opened once per process.

    Raises InputError: a setting cannot be used. JudgeFault: there is no verdict: verl leaves this response out. A row
    that cannot be judged is logged once.
    """
    scorer = scorer_of_process(tuple(settings), reward)
    return _rewarded(scorer, _submitted(scorer, data_source, solution_str, ground_truth, extra_info).result())


class RewardManager:
    """A reward manager that waits for verdicts without a thread for each response, unlike verl's `naive`.

    `reward.reward_kwargs` holds `settings` and `reward`, as of `compute_score`, which it replaces.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        """Open the judge of this process. verl gives `config` (the whole one) and the tokenizer of responses.

        Raises as `Scorer`.
        """
        given = config.reward.get("reward_kwargs") or {}
        self._scorer = scorer_of_process(tuple(given.get("settings", ())), given.get("reward", "binary"))
        self._tokenizer = tokenizer

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return `reward_score` and `reward_extra_info` of the last row of a trajectory.

        Raises JudgeFault: there is no verdict: verl leaves this response out.
        """
        row = data[-1]
        ids, columns = row.batch["responses"], row.non_tensor_batch
        ids = ids[: int(row.batch["attention_mask"][-len(ids) :].sum())]
        text = await asyncio.to_thread(self._tokenizer.decode, ids, skip_special_tokens=True)
        truth, extra = columns["reward_model"]["ground_truth"], columns.get("extra_info")
        source = columns.get("data_source", "")
        future = await asyncio.to_thread(_submitted, self._scorer, source, text, truth, extra)  # it may upload
        found = _rewarded(self._scorer, await asyncio.wrap_future(future))
        return {"reward_score": found["score"], "reward_extra_info": found}


def _submitted(scorer: Scorer, source: str, response: str, truth: Any, extra: Any) -> Future[Verdict]:
    row = extra or {}
    return scorer.submit(response, truth, f"{source}:{row.get('index', '')}", row)


def _rewarded(scorer: Scorer, verdict: Verdict) -> dict[str, Any]:
    value = scorer.value(verdict)
    return {"score": value, "acc": verdict.is_accepted, "status": verdict.status.value if verdict.status else ""}
