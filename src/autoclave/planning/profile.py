"""A workload to simulate: responses of each iteration, and what a token, a reward, learning and a publish take."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import ConfigDict, Field

_STRICT = ConfigDict(extra="forbid")
_Count = Annotated[int, Field(ge=1)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Work:
    """One response: how long it gets, and how long its reward takes."""

    __pydantic_config__ = _STRICT
    group: Annotated[int, Field(ge=0)]
    """Number of the prompt that it answers within its iteration."""
    tokens: _Count
    reward_s: _NotNegative


@dataclass(frozen=True, slots=True)
class Profile:
    """A workload and the devices it runs on. Times are of one device."""

    __pydantic_config__ = _STRICT
    profile: str
    """Its name."""
    devices: _Count
    """Of sampler and trainer together; `simulate` is given a split of its own."""
    slots: _Count
    """Requests that a sampler device runs at once."""
    token_ms: _Positive
    batch_slope: _NotNegative
    judge_slots: _Count
    train_ms_per_token: _NotNegative
    """Everything that learning does, over response tokens."""
    mini_batches: _Count
    """Steps that an iteration is divided into by the minibatch pipeline."""
    sync_s: _NotNegative
    iterations: Annotated[tuple[Annotated[tuple[Work, ...], Field(min_length=1)], ...], Field(min_length=1)]
    """Of each iteration the responses, in the order in which they are requested."""

    def token_s(self, running: int) -> float:
        """Seconds of a token of each of `running` requests on one device."""
        return self.token_ms / 1e3 * (1 + self.batch_slope * running)

    def train_s(self, tokens: int, devices: int) -> float:
        return tokens * self.train_ms_per_token / 1e3 / devices

    def slowed(self, factor: float) -> "Profile":
        """The same work where sampler, judge and trainer take `factor` times as long."""
        slower = tuple(tuple(replace(w, reward_s=w.reward_s * factor) for w in part) for part in self.iterations)
        token_ms, train_ms = self.token_ms * factor, self.train_ms_per_token * factor
        return replace(self, token_ms=token_ms, train_ms_per_token=train_ms, iterations=slower)

    def of_at_least(self, iterations: int) -> "Profile":
        """The same iterations, all of them again until there are so many."""
        return replace(self, iterations=self.iterations * -(-iterations // len(self.iterations)))
