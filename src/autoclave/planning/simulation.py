"""Simulation of a schedule on given devices: the least time that an ideal run takes.

The schedules are those of `training/schedules.py`, with nothing lost between two stages: rewards start when a response
is done, the next iteration is sampled as soon as its weights are there and the sampler is free (also while rewards of
the last are outstanding), and a publish takes the trainer's time but not the sampler's.

An iteration begins when the weights that it needs are published, which depends on earlier iterations alone. So
iterations are computed one after the other: requests on their devices, rewards in the order of the responses, updates,
publish. Only the asynchronous schedule begins later ones before the responses of an earlier one are done.

`ScheduleRun` is the result of a schedule, simulated or measured.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter

from autoclave.core import ConfigError
from autoclave.core.timeline import Interval, Role, Span, clipped, intersection, seconds, union
from autoclave.planning.profile import Profile, Work


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


class ScheduleName(StrEnum):
    """Order in which the three stages run; in order of how far samples may be from the policy that learns from them."""

    SYNCHRONOUS = "synchronous"
    """Sample and judge, learn, publish."""
    MINIBATCH_PIPELINE = "minibatch_pipeline"
    """Learn from each minibatch of whole groups, in order of completion, while the others are sampled."""
    ONE_OFF_PIPELINE = "one_off_pipeline"
    """The sampler is one iteration ahead of the trainer."""
    ASYNCHRONOUS = "asynchronous"
    """The sampler is at most so many iterations ahead, and does not wait for the last response of one."""


@dataclass(frozen=True, slots=True)
class Split:
    """Devices of sampler and trainer; `is_shared` if they are the same ones, which take turns."""

    samplers: int
    trainers: int
    is_shared: bool = False

    @staticmethod
    def time_sharing(devices: int) -> "Split":
        """All devices sample, then all learn."""
        return Split(devices, devices, is_shared=True)

    def __str__(self) -> str:
        return f"{self.samplers} shared" if self.is_shared else f"{self.samplers}:{self.trainers}"


def simulate(
    profile: Profile,
    schedule: ScheduleName,
    split: Split,
    *,
    max_staleness: int = 1,
    keeps_groups: bool = False,
    rewards_after_sampling: bool = False,
) -> ScheduleRun:
    """Run the iterations of `profile` once.

    Args:
        profile: the work and the speed of devices.
        max_staleness: of `asynchronous`: by how many updates the weights that sample may be behind.
        keeps_groups: groups are assigned to sampler devices in turn, as by the pool of a run, not single requests.
        rewards_after_sampling: of `synchronous`: rewards start when all of an iteration is sampled.

    Raises:
        ConfigError: the split has no device for a role, or shares devices that the schedule uses at the same time.
    """
    _check(schedule, split, max_staleness)
    mixes = schedule is ScheduleName.ASYNCHRONOUS
    ahead = max_staleness if mixes else int(schedule is ScheduleName.ONE_OFF_PIPELINE)
    parts = profile.mini_batches if schedule is ScheduleName.MINIBATCH_PIPELINE else 1
    samplers = [_SamplerDevice(lane, profile) for lane in range(split.samplers)]
    judge = _Judge(profile.judge_slots)
    trained: list[Span] = []
    published: list[float] = []
    sampled_at, num_begun = 0.0, 0
    for iteration in range(len(profile.iterations)):
        while num_begun <= min(iteration + (ahead if mixes else 0), len(profile.iterations) - 1):
            start = published[num_begun - 1 - ahead] if num_begun > ahead else 0.0
            start = start if mixes else max(start, sampled_at)  # weights change only while samplers are idle
            _request(samplers, start, num_begun, profile.iterations[num_begun], keeps_groups=keeps_groups)
            num_begun += 1
        sampled_at = max(sampler.finish(iteration) for sampler in samplers)
        responses = sorted((s for sampler in samplers for s in sampler.take(sampled_at)), key=attrgetter("end"))
        for response in responses:
            work = profile.iterations[response.step - 1][int(response.name)]
            judge.add(response, work, sampled_at if rewards_after_sampling else response.end)
        complete = judge.complete(iteration)
        bounds = [round(len(complete) * part / parts) for part in range(parts + 1)]
        for first, stop in pairwise(bounds):
            if first < stop:
                free_at = trained[-1].end if trained else 0.0
                tokens = sum(tokens for _, tokens in complete[first:stop])
                work_s = profile.train_s(tokens, split.trainers)
                trained.append(_span(Role.TRAINER, max(free_at, complete[stop - 1][0]), work_s, iteration))
        trained.append(_span(Role.PUBLISH, trained[-1].end, profile.sync_s, iteration))
        published.append(trained[-1].end)
    spans = [*(span for sampler in samplers for span in sampler.spans), *judge.spans, *trained]
    spans.sort(key=attrgetter("end"))
    return ScheduleRun(split.samplers, tuple(spans), tuple(published), ahead if mixes else 0)


def _check(schedule: ScheduleName, split: Split, max_staleness: int) -> None:
    if split.samplers < 1 or split.trainers < 1:
        raise ConfigError(f"split {split}: sampler and trainer need at least one device each")
    if max_staleness < 0:
        raise ConfigError(f"max_staleness = {max_staleness}: must be at least 0")
    is_serial = schedule is ScheduleName.SYNCHRONOUS or (schedule is ScheduleName.ASYNCHRONOUS and not max_staleness)
    if split.is_shared and not is_serial:
        raise ConfigError(
            f"split {split}: {schedule} samples and learns at the same time, which devices that take turns cannot; "
            "divide them (such as Split(3, 5)), or take synchronous"
        )


def _span(role: Role, start: float, seconds: float, iteration: int) -> Span:
    return Span(role, str(role), start, start + seconds, iteration + 1)


def _request(
    samplers: "Sequence[_SamplerDevice]", start: float, iteration: int, works: Sequence[Work], *, keeps_groups: bool
) -> None:
    """Assign the requests of an iteration to devices in turn, one by one or by groups."""
    turns = {group: turn for turn, group in enumerate(dict.fromkeys(work.group for work in works))}
    for sampler in samplers:
        sampler.advance(start)
    for number, work in enumerate(works):
        samplers[(turns[work.group] if keeps_groups else number) % len(samplers)].add(iteration, number, work.tokens)
    for sampler in samplers:
        sampler.fill()


class _SamplerDevice:
    """Runs up to `slots` requests at once; the others wait in order.

    All that run have the same speed, so one number, the tokens that a request would have had by now if it had run from
    the start, says how far each is: a request that starts at p with n tokens ends at p + n. Between two events the
    speed does not change.
    """

    def __init__(self, lane: int, profile: Profile) -> None:
        self.spans: list[Span] = []
        self._lane, self._profile = str(lane), profile
        self._waiting: deque[tuple[int, int, int]] = deque()  # iteration, request, tokens
        self._running: list[tuple[float, int, int, float]] = []  # end in tokens, iteration, request, start in s
        self._left: Counter[int] = Counter()
        self._tokens = self._now = 0.0
        self._num_taken = 0

    def add(self, iteration: int, request: int, tokens: int) -> None:
        """Queue a request; `fill` comes next."""
        self._waiting.append((iteration, request, tokens))
        self._left[iteration] += 1

    def fill(self) -> None:
        while self._waiting and len(self._running) < self._profile.slots:
            iteration, request, tokens = self._waiting.popleft()
            heappush(self._running, (self._tokens + tokens, iteration, request, self._now))

    def finish(self, iteration: int) -> float:
        """Go on until all requests of an iteration are done; returns when its last one was."""
        while self._left[iteration]:
            self._end_next()
        return max((span.end for span in self.spans if span.step == iteration + 1), default=0.0)

    def advance(self, until: float) -> None:
        while self._running and self._next_end() <= until:
            self._end_next()
        if self._running and until > self._now:
            self._tokens += (until - self._now) / self._profile.token_s(len(self._running))
        self._now = max(self._now, until)

    def take(self, until: float) -> list[Span]:
        """The requests that were done since the last call, up to a moment."""
        self.advance(until)
        taken, self._num_taken = self.spans[self._num_taken :], len(self.spans)
        return taken

    def _next_end(self) -> float:
        left = max(0.0, self._running[0][0] - self._tokens)
        return self._now + left * self._profile.token_s(len(self._running))

    def _end_next(self) -> None:
        self._now, self._tokens = self._next_end(), self._running[0][0]  # exactly: equal lengths end at one moment
        while self._running and self._running[0][0] <= self._tokens:
            _, iteration, request, start = heappop(self._running)
            self.spans.append(Span(Role.SAMPLER, str(request), start, self._now, iteration + 1, self._lane))
            self._left[iteration] -= 1
        self.fill()


class _Judge:
    """Slots that take rewards first come, first served."""

    def __init__(self, slots: int) -> None:
        self.spans: list[Span] = []
        self._free_at = [(0.0, slot) for slot in range(slots)]
        self._groups: defaultdict[int, dict[int, tuple[float, int]]] = defaultdict(dict)

    def add(self, response: Span, work: Work, asked_at: float) -> None:
        """Compute the reward of a response as soon as it is its turn."""
        free_at, slot = heappop(self._free_at)
        start = max(asked_at, free_at)
        end = start + work.reward_s
        heappush(self._free_at, (end, slot))
        self.spans.append(Span(Role.JUDGE, response.name, start, end, response.step, str(slot)))
        groups = self._groups[response.step - 1]
        complete_at, tokens = groups.get(work.group, (0.0, 0))
        groups[work.group] = max(complete_at, end), tokens + work.tokens

    def complete(self, iteration: int) -> list[tuple[float, int]]:
        """The groups of an iteration in order of completion: when each was complete, and its tokens."""
        return sorted(self._groups[iteration].values(), key=lambda group: group[0])
