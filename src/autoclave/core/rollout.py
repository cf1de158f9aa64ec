"""Items for the policy and its responses: `TaskItem`, `Completion`, `Reward`, `Rollout`, `Group`.

These are all that driver, schedules and buffers know of a task. Arrays are numpy, so that they cross processes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from autoclave.core.verdict import Verdict

IntArray = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]
LogProbKind = Literal["raw", "processed"]


class FinishReason(StrEnum):
    """Reason for which sampling of a response ended."""

    STOP = "stop"
    """The policy ended it: end-of-sequence token or a stop string."""
    LENGTH = "length"
    """The limit of new tokens cut it."""


class MaskReason(StrEnum):
    """Reason for which a rollout does not train."""

    OVERLONG = "overlong"
    """The length limit cut the response (overlong filtering)."""
    TURNS = "turns"
    """The limit of turns ended the episode."""
    FORMAT = "format"
    """The response holds no program, and such responses are left out."""
    LENGTH_VARIANCE = "length_variance"
    """By its length the response would dominate the variance of its minibatch."""
    NO_VERDICT = "no_verdict"
    """The judge had a fault; the rollout neither trains nor counts in its group's baseline."""


@dataclass(frozen=True, slots=True)
class TaskItem:
    """One thing to ask the policy. `group_key` names what samples of it are compared with each other."""

    task: str
    id: str
    group_key: str
    messages: tuple[Mapping[str, str], ...]
    payload: Any


@dataclass(frozen=True, slots=True)
class Completion:
    """Response of an engine to one request.

    `prompt_tokens` (P,) int64 is its context; of a later turn of a rollout only what was added since the turn before.
    `tokens` (T,) int64 includes the end-of-sequence token if it was sampled; `log_probs` (T,) float32 are natural
    logarithms, `raw` = of the model's own distribution at the sampling temperature, `processed` = after top-p.
    `policy_versions` are `(version, start, stop)` token ranges. Times are seconds since 1970 where it was sampled.
    """

    prompt_tokens: IntArray
    tokens: IntArray
    log_probs: FloatArray
    log_prob_kind: LogProbKind
    finish_reason: FinishReason
    text: str
    policy_versions: tuple[tuple[int, int, int], ...]
    submitted_at: float
    finished_at: float
    started_at: float | None = None
    """Time at which an engine began to sample it; None if the engine does not report it."""
    sampled_by: str = ""
    """The replica, where there are several."""
    observed: str = ""
    """Text that the policy read since the turn before; in the first turn, beside the messages of the item."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Messages that the policy reads before a turn; with `is_end` there is no further turn."""

    messages: tuple[Mapping[str, str], ...]
    is_end: bool = False
    ended_by: str = ""
    """With `is_end` the limit that ended the episode, such as `malformed_calls`; empty if the policy ended it."""
    errors: int = 0
    """Tool calls of the turn that failed or were malformed."""


@dataclass(frozen=True, slots=True)
class EndState:
    """Declared files that an episode left where its policy acted, as data for a grader elsewhere."""

    files: Mapping[str, bytes]
    """Contents of regular files, by path relative to the workspace, in `/` notation without `..`."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons why declared paths were not carried out, such as a link or a size over the limit."""
    changes: str = ""
    """Patch from the files of the start, cut where it is long, for people to look at; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A number to learn from, or None when there is no verdict; `reason` says in a word why it is what it is."""

    value: float | None
    reason: str
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    verdict: Verdict | None = None

    @staticmethod
    def of(verdict: Verdict, value: Callable[[Verdict], float]) -> "Reward":
        """The `value` of a verdict as a reward, None without one."""
        if verdict.status is None:
            return Reward(None, "no_verdict", verdict=verdict)
        return Reward(value(verdict), verdict.status, {"tests_passed": verdict.passed_share}, verdict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One answered item: what was sampled, what it earned, and whether it trains.

    An episode is a rollout of several turns. The tokens of a turn stand behind all those of the turns before it.
    """

    item: TaskItem
    sample: int
    turns: tuple[Completion, ...]
    reward: Reward
    mask_reason: MaskReason | None = None
    request: tuple[int, ...] = ()
    """The numbers that its random numbers came from, which no other rollout of a run has."""
    length_limit: int = field(kw_only=True)
    """Most tokens that each turn could have had; those of one batch may differ (`length_schedule`)."""
    most_turns: int = field(kw_only=True, default=1)
    """Most turns that it could have had."""
    end_state: EndState | None = field(kw_only=True, default=None)
    """State that it left in its environment, if that has one."""
    ended_by: str = field(kw_only=True, default="")
    """The limit that ended the episode: `turns`, `context`, or one of its environment; empty if none did."""
    tool_errors: int = field(kw_only=True, default=0)
    """Tool calls that failed or were malformed."""
    tools_s: float = field(kw_only=True, default=0.0)
    """Seconds in which its environment acted."""

    @property
    def last(self) -> Completion:
        """Its last turn, which is judged."""
        return self.turns[-1]

    @property
    def is_cut(self) -> bool:
        """The limit of new tokens cut a turn."""
        return any(turn.finish_reason is FinishReason.LENGTH for turn in self.turns)

    @property
    def num_sampled(self) -> int:
        """Tokens that the policy sampled, in all turns."""
        return sum(len(turn.tokens) for turn in self.turns)

    @property
    def policy_versions(self) -> tuple[tuple[int, int, int], ...]:
        """`(version, start, stop)` ranges of the sampled tokens of all turns, as of one turn."""
        starts = accumulate((len(turn.tokens) for turn in self.turns), initial=0)
        pairs = zip(starts, self.turns, strict=False)
        return tuple((v, start + a, start + b) for start, turn in pairs for v, a, b in turn.policy_versions)

    @property
    def requests(self) -> list[tuple[int, ...]]:
        """The numbers of the request of each turn; see `request_of_turn`."""
        return [request_of_turn(self.request, turn) for turn in range(len(self.turns))]

    def masked(self, reason: MaskReason) -> "Rollout":
        """The same rollout, kept out of training. The first reason stays."""
        return self if self.mask_reason else replace(self, mask_reason=reason)

    @property
    def is_trained(self) -> bool:
        return self.mask_reason is None


TURN = 0x7475726E
"""Stands before the number of a turn, so that no other request has the same numbers."""


def request_of_turn(first: tuple[int, ...], turn: int) -> tuple[int, ...]:
    """Return the numbers of the request for a turn, of a rollout whose first request has the numbers `first`."""
    return (*first, TURN, turn) if turn else first


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one item in one iteration, in order of `sample`."""

    item: TaskItem
    rollouts: tuple[Rollout, ...]
