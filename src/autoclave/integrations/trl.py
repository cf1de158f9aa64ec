"""A reward function for TRL's trainers (`reward_funcs=`).

TRL calls it with the completions of a batch and the columns of the data set, of which `problem` holds what is judged.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from autoclave.core import InputError, Verdict
from autoclave.integrations.scoring import GivenProblem, RewardRule, Scorer
from autoclave.judge import Judge

Rewards = Callable[..., Sequence[float | None]]


class CodeReward:
    """Rewards by the judge, for `GRPOTrainer(reward_funcs=...)` and the other trainers that take such functions.

    A completion without a verdict has the reward None, which GRPO, RLOO and asynchronous GRPO of TRL 1.16 leave out of
    the baseline and give no advantage if all reward functions return None: give others as `reward.beside(other)`. Other
    trainers take None for 0; those do not pass `log_metric`, and get a `JudgeFault`.
    """

    __name__ = "code_reward"

    def __init__(
        self,
        settings: Sequence[str] = (),
        *,
        judge: Judge | None = None,
        reward: RewardRule = "binary",
        column: str = "problem",
        on_fault: Literal["none", "raise"] = "none",
    ) -> None:
        """Open the judge. Raises as `Scorer`.

        Args:
            column: of the data set, with the problems. The columns `starter_code` and `metadata` are read beside it.
            on_fault: `raise` always ends the step in place of a reward of None.
        """
        if on_fault not in ("raise", "none"):
            raise InputError(f"on_fault = {on_fault!r}: must be raise or none")
        self._scorer = Scorer(settings, judge=judge, reward=reward)
        self._column = column
        self._on_fault = on_fault
        self._last: tuple[Sequence[Any], Any, list[Verdict]] = ([], None, [])

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the rewards of completions; None where there is no verdict.

        Raises InputError: the column is missing. JudgeFault: there is no verdict, and `on_fault` is `raise` or the
        trainer would take None for 0.
        """
        verdicts = self._verdicts(completions, columns)
        if log_metric is not None:
            log_metric("judge/no_verdict", sum(verdict.status is None for verdict in verdicts) / len(verdicts))
        may_be_none = self._on_fault == "none" and log_metric is not None
        return [None if v.status is None and may_be_none else self._scorer.value(v) for v in verdicts]

    def beside(self, other: Rewards) -> Rewards:
        """Return another reward function with None where this one has no verdict, so that TRL masks the completion."""

        def masked(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
            verdicts = self._verdicts(completions, columns)
            rewards = other(prompts=prompts, completions=completions, **columns)
            return [None if v.status is None else reward for v, reward in zip(verdicts, rewards, strict=True)]

        masked.__name__ = getattr(other, "__name__", "reward")
        return masked

    def close(self) -> None:
        """Close the judge, if it was opened here."""
        self._scorer.close()

    def _verdicts(self, completions: Sequence[Any], columns: dict[str, Any]) -> list[Verdict]:
        """Return the verdicts on a batch, judged once for all functions that TRL calls with it."""
        problems: Sequence[GivenProblem] | None = columns.get(self._column)
        if problems is None:
            raise InputError(f"the data set has no column {self._column!r}. Fix: set `column` to the one with problems")
        if self._last[0] is not completions or self._last[1] is not problems:
            lists = {k: v for k, v in columns.items() if isinstance(v, list) and len(v) == len(completions)}
            rows = [{name: values[place] for name, values in lists.items()} for place in range(len(completions))]
            ids = [str(row.get("id", row.get("index", place))) for place, row in enumerate(rows)]
            texts = [_text(completion) for completion in completions]
            self._last = completions, problems, self._scorer.verdicts(texts, problems, ids, rows)
        return self._last[2]


def _text(completion: Any) -> str:
    """Return a completion as a string; of messages, the last one."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
