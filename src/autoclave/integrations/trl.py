"""A reward function for TRL's trainers (`reward_funcs=`).

TRL calls it with the completions of a batch and the columns of the data set, of which `problem` holds what is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from autoclave.core import InputError
from autoclave.integrations.scoring import GivenProblem, RewardRule, Scorer
from autoclave.judge import Judge


class CodeReward:
    """Rewards by the judge, for `GRPOTrainer(reward_funcs=...)` and the other trainers that take such functions.

    A fault of the judge raises `JudgeFault`, which ends the step. With `on_fault="none"` the reward is None, which TRL
    1.16 leaves out of the baseline and gives no advantage, if this is the only reward function; beside others, and in
    older versions, None counts as 0, so leave it at `raise` there.
    """

    __name__ = "code_reward"

    def __init__(
        self,
        settings: Sequence[str] = (),
        *,
        judge: Judge | None = None,
        reward: RewardRule = "binary",
        column: str = "problem",
        on_fault: Literal["raise", "none"] = "raise",
    ) -> None:
        """Open the judge; see `Scorer`. `column` of the data set has the problems.

        Raises:
            ConfigError: a setting cannot be used.
            IsolationError: this host does not offer the isolation level of the settings.
            HostError: no judge server responds.
        """
        if on_fault not in ("raise", "none"):
            raise InputError(f"on_fault = {on_fault!r}: must be raise or none")
        self._scorer = Scorer(settings, judge=judge, reward=reward)
        self._column = column
        self._on_fault = on_fault

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the rewards of completions.

        Raises:
            InputError: the column is missing, or a problem cannot be judged.
            JudgeFault: the judge failed, and `on_fault` is `raise`.
        """
        problems: Sequence[GivenProblem] | None = columns.get(self._column)
        if problems is None:
            raise InputError(f"the data set has no column {self._column!r}. Fix: set `column` to the one with problems")
        verdicts = self._scorer.verdicts([_text(completion) for completion in completions], problems)
        if log_metric is not None:
            log_metric("judge/no_verdict", sum(verdict.status is None for verdict in verdicts) / len(verdicts))
        may_be_none = self._on_fault == "none"
        return [None if v.status is None and may_be_none else self._scorer.value(v) for v in verdicts]

    def close(self) -> None:
        """Close the judge, if it was opened here."""
        self._scorer.close()


def _text(completion: Any) -> str:
    """Return a completion as a string; of messages, the last one."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
