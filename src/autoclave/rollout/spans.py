"""The spans of one collection: its requests and rewards, recorded from the callbacks of sampler and judge."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoclave.core import Completion, Reward
from autoclave.core.timeline import Role, Timeline


@dataclass(slots=True)
class CollectionSpans:
    """Records what a collection for `step` does. One is made before its first request is submitted."""

    timeline: Timeline
    step: int
    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self.timeline.now()

    def sampled(self, item: str, sample: int, completion: Completion) -> float:
        """A request ended. Returns the time now, for `judged`.

        The completion has times of the clock of wherever it was sampled. They are moved to lie between the begin of
        the collection and now, since nothing can have happened outside of that.
        """
        self.timeline.record(
            Role.SAMPLER,
            f"{item}#{sample}",
            self.timeline.placed(completion.started_at or completion.submitted_at),
            self.timeline.placed(completion.finished_at),
            step=self.step,
            lane=completion.sampled_by,
            attributes={
                "tokens": len(completion.tokens),
                "finish_reason": completion.finish_reason,
                "version": completion.policy_versions[-1][0] if completion.policy_versions else None,
            },
            not_before=self._begun,
        )
        return self.timeline.now()

    def judged(self, item: str, sample: int, reward: Reward, asked: float) -> None:
        """The reward that was asked for at `asked` is there."""
        self.timeline.record(
            Role.JUDGE,
            f"{item}#{sample}",
            asked,
            self.timeline.now(),
            step=self.step,
            attributes={"reward": reward.value, "reason": reward.reason},
        )
