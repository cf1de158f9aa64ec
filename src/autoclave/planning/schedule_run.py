"""Result of a schedule, simulated or measured: seconds per iteration, who was busy, what was hidden behind what."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from autoclave.core.timeline import Interval, Role, Span, clipped, intersection, seconds, union


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """All work of a run as spans, and when its iterations ended.

    Where the sampler runs ahead without waiting, that many iterations at either end are not steady: at first it has no
    older ones to finish, at last no further ones to begin. Shares are of whole cycles of the others, from the first
    request of an iteration to that of another, or from update to update where requests of iterations overlap; of the
    whole run if there are too few iterations.
    """

    samplers: int
    """Sampler devices, each of which is a lane."""
    spans: Sequence[Span]
    """Of samplers, judge, trainer and publishes; a span is of step i + 1 where it belongs to iteration i."""
    ends: Sequence[float]
    """Times at which the weights trained on each iteration were published, in seconds from the start."""
    ahead: int = 0
    """By how many iterations the sampler may run ahead without waiting for the last response of one."""

    @property
    def whole_s(self) -> float:
        """Seconds per iteration with filling and draining of the pipeline."""
        return self.ends[-1] / len(self.ends)

    @property
    def steady_s(self) -> float:
        """Seconds from the end of one iteration to that of the next, on average; `whole_s` if there are too few."""
        first, last = self._steady
        return (self.ends[last] - self.ends[first]) / (last - first) if first < last else self.whole_s

    @property
    def _steady(self) -> tuple[int, int]:
        """The first and the last iteration whose end counts."""
        return self.ahead, len(self.ends) - 1 - self.ahead

    @property
    def cycles(self) -> Interval:
        """The seconds that shares are of."""
        first, last = self._steady
        if last - first < 2:
            return 0.0, self.ends[-1]
        role = Role.TRAINER if self.ahead else Role.SAMPLER
        begins = [min(span.start for span in self.of(role, iteration)) for iteration in (first + 1, last)]
        return begins[0], begins[1]

    def of(self, role: Role, iteration: int | None = None) -> list[Span]:
        """The work of a role, of one iteration or all, in the order in which it ended."""
        return [span for span in self.spans if span.role is role and iteration in (None, span.step - 1)]

    def busy_share(self, role: Role) -> float:
        first, last = self.cycles
        return seconds(self._busy(role)) / (last - first)

    def sampler_device_share(self) -> float:
        """The share of the time in which a sampler device had a request, the mean over devices."""
        first, last = self.cycles
        lanes: defaultdict[str, list[Interval]] = defaultdict(list)
        for span in self.of(Role.SAMPLER):
            lanes[span.lane].append(span.interval)
        busy = sum(seconds(union(clipped(own, self.cycles))) for own in lanes.values())
        return busy / (last - first) / self.samplers

    def hidden_reward_share(self) -> float:
        """Of the time in which the judge worked: how much of it sampler or trainer worked too. 1 if it never did."""
        return self._hidden(Role.JUDGE, (Role.SAMPLER, Role.TRAINER))

    def hidden_training_share(self) -> float:
        """Of the time in which the trainer worked: how much of it the sampler worked too. 1 if it never did."""
        return self._hidden(Role.TRAINER, (Role.SAMPLER,))

    def _hidden(self, role: Role, behind: Sequence[Role]) -> float:
        own = self._busy(role)
        return seconds(intersection(own, self._busy(*behind))) / seconds(own) if own else 1.0

    def _busy(self, *roles: Role) -> list[Interval]:
        """Intervals in which at least one of these roles worked, within `cycles`."""
        return union(clipped((span.interval for role in roles for span in self.of(role)), self.cycles))
