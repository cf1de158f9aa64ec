"""Sampling and judging of one iteration: groups come out as they complete.

Judging of a response starts the moment it is sampled. A turn begins when what is read before it is there; where the
requests of one batch must not depend on time, when that is so for all samples of its item (`NextTurn.together`).
Callbacks run on the threads of sampler and judge, put groups together, and resample groups; readers only wait.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice

from autoclave.core import Completion, FaultError, Group, Reward, Rollout, TaskItem
from autoclave.core.futures import attempted, completed, gathered
from autoclave.core.timeline import Role, Timeline
from autoclave.environments import Grader
from autoclave.rollout.checked_rewards import leaves_no_verdict, named, no_verdict, settled, started
from autoclave.rollout.interface import End, Next, NextTurn, OneTurn, Request, Sampler, Turns

Resample = Callable[[int, int, Group], Sequence[Request] | None]
"""From the index of an item, its number of resamples and its group: the requests that replace it, None to keep it."""

Name = tuple[int, ...]
"""Key of a request: its seed."""

STALL_S = 3600.0
"""Seconds without a sampled token or a verdict after which waiting callers get an error."""


@dataclass(slots=True)
class CollectionTimes:
    """Ends of the parts of a collection (`time.monotonic`), and the number of resampled groups."""

    started: float = field(default_factory=time.monotonic)
    sampled: float = 0.0
    judged: float = 0.0
    resamples: int = 0

    @property
    def sample_s(self) -> float:
        """Seconds until the last response was sampled."""
        return self.sampled - self.started

    @property
    def judge_tail_s(self) -> float:
        """Seconds of judging that sampling did not hide."""
        return max(0.0, self.judged - self.sampled)


@dataclass(frozen=True, slots=True)
class Account:
    """Fate of the requests of a collection."""

    asked: list[Name]
    """Requests made since the last account."""
    replaced: list[Name]
    """Requests of groups that were resampled since then."""
    there: list[Name]
    """Requests of its groups, complete or not; without the groups that were taken."""


class Collection:
    """The groups of one iteration, in flight or complete."""

    def __init__(
        self,
        items: Sequence[TaskItem],
        requests: Sequence[Sequence[Request]],
        sampler: Sampler,
        grade: Grader,
        *,
        next_turn: NextTurn | None = None,
        resample: Resample | None = None,
        complete: Mapping[int, Group] | None = None,
        spans: "CollectionSpans | None" = None,
        stall_s: float = STALL_S,
    ) -> None:
        """Start sampling `requests[i]`, the samples of `items[i]`, and grading them.

        Args:
            items: prompts.
            requests: the samples of each item; an item without any has no group.
            sampler: samples the responses.
            grade: returns the reward of a rollout; the one that it gets has none yet.
            next_turn: goes on with a rollout; by default every rollout has one turn.
            resample: returns other requests for a group that is to be replaced.
            complete: groups that exist already, by the index of their item, which has no requests.
            spans: records begin and end of each request and reward.
            stall_s: see `STALL_S`.
        """
        self._spans = spans or CollectionSpans(Timeline(), 0)
        self.times = CollectionTimes()
        self._items, self._sampler, self._grade, self._resample = items, sampler, grade, resample
        self._next_turn: NextTurn = next_turn or OneTurn()
        self._asks_once = next_turn is None and resample is None
        self._stall_s = stall_s
        self._changed = threading.Condition()
        self._complete: dict[int, Group] = dict(complete or {})  # in order of completion
        self._sizes = [len(samples) for samples in requests]
        self._open = sorted({*self._complete, *(index for index, size in enumerate(self._sizes) if size)})
        self._rollouts: list[dict[int, Rollout]] = [{} for _ in items]
        self._resamples = [0 for _ in items]
        self._requests: list[Sequence[Request]] = list(requests)
        self._turns: list[dict[int, tuple[Completion, ...]]] = [{} for _ in items]
        self._following: list[dict[int, Next | None]] = [{} for _ in items]
        self._running: list[dict[int, Turns]] = [{} for _ in items]
        self._observed: dict[Name, str] = {}
        self._later: list[list[Name]] = [[] for _ in items]
        self._asked: list[Name] = []
        self._replaced: list[Name] = []
        self._error: BaseException | None = None
        self._listener: threading.Event | None = None
        self._unsampled = self._unjudged = 0
        first = {index: samples for index, samples in enumerate(requests) if samples}
        self._note(first)
        self._begin(first)

    def __len__(self) -> int:
        """Number of groups, complete or in flight; those that were taken do not count."""
        return len(self._open)

    @property
    def num_complete(self) -> int:
        """Number of groups that can be taken now.

        Raises:
            Exception: as iterating does.
        """
        with self._changed:
            if self._error:
                raise self._error
            return len(self._complete)

    @property
    def known(self) -> dict[int, Group | None]:
        """Each group that was not taken, by the index of its item; None for one that is not complete."""
        with self._changed:
            return {index: self._complete.get(index) for index in self._open}

    def __iter__(self) -> Iterator[Group]:
        """Groups in order of completion; waits for each.

        Raises:
            FaultError: nothing was sampled or judged for `stall_s`; the message says what it waits for.
            Exception: whatever sampling or judging raised; the rest of the collection is lost.
        """
        for number in range(len(self)):
            self._wait_for(lambda number=number: len(self._complete) > number)
            yield next(islice(self._complete.values(), number, None))

    def in_order(self) -> Iterator[Group]:
        """Groups in the order of the items; waits for each, and raises as iterating does."""
        for index in tuple(self._open):
            self._wait_for(lambda index=index: index in self._complete)
            yield self._complete[index]

    def result(self) -> list[Group]:
        """All groups in the order of the items; waits for the last, and raises as iterating does."""
        return list(self.in_order())

    def take(self, count: int) -> list[Group]:
        """The first `count` groups to complete, in the order of their items; they are not part of it any more."""
        with self._changed:
            taken = sorted(islice(self._complete, count))
            self._open = [index for index in self._open if index not in taken]
            return [self._complete.pop(index) for index in taken]

    def wait_until_sampled(self) -> None:
        """Wait until all its requests are sampled; raises as iterating does."""
        self._wait_for(lambda: not self._unsampled and (self._asks_once or len(self._complete) == len(self)))

    def take_account(self) -> Account:
        """Requests since the last call and the state of their groups, at one instant."""
        with self._changed:
            done = [rollout for group in self._complete.values() for rollout in group.rollouts]
            there = [name for rollout in done for name in rollout.requests]
            for index in self._open:
                if index not in self._complete:
                    there += [*(request.seed for request in self._requests[index]), *self._later[index]]
            account = Account(self._asked, self._replaced, there)
            self._asked, self._replaced = [], []
        return account

    def abandon(self, why: str) -> None:
        """Submit nothing more and end all episodes; readers get an error with `why`. Requests in flight go on."""
        self._fail(FaultError(why))

    def notify(self, event: threading.Event) -> None:
        """Set `event` whenever something is sampled or judged or fails, in place of the one given before."""
        with self._changed:
            self._listener = event

    def wait_for(self, event: threading.Event) -> None:
        """Wait for an event that some collection sets; raises as iterating does when it is not set for `stall_s`."""
        if not event.wait(self._stall_s):
            raise self._stalled()

    def state(self) -> str:
        """Description of what the collection waits for."""
        return (
            f"{len(self._complete)} of {len(self)} groups are complete; {self._unsampled} responses wait for the "
            f"sampler, {self._unjudged} for the judge"
        )

    # --- Callbacks

    def _note(self, requests: Mapping[int, Sequence[Request]]) -> None:
        """Count these requests as submitted; with the lock, or before other threads know of the collection."""
        self._unsampled += sum(map(len, requests.values()))
        self._asked += [request.seed for samples in requests.values() for request in samples]

    def _begin(self, requests: Mapping[int, Sequence[Request]]) -> None:
        """Begin rollouts by these requests, all `_sizes` of each item; sample them when these or all have begun."""
        try:
            for index, samples in requests.items():
                with named(self._items[index]):
                    for n, each in enumerate(samples):
                        turns = self._next_turn(self._items[index], each)
                        with self._changed:
                            self._running[index][n] = turns
            parts: dict[int, dict[tuple[int, int], Future[Next]]] = {}
            for i, n in ((index, n) for index in requests for n in range(self._sizes[index])):
                begun = parts.setdefault(0 if self._next_turn.together else i, {})
                begun[i, n] = attempted(self._running[i][n].begin)
            for part in parts.values():
                gathered(part.values()).add_done_callback(lambda _, part=part: self._begun(part))
        except BaseException as error:  # noqa: BLE001  it is raised where the collection is read
            self._fail(error)

    def _begun(self, begun: Mapping[tuple[int, int], Future[Next]]) -> None:
        try:
            requests: dict[tuple[int, int], Request] = {}
            for (index, sample), done in begun.items():
                with named(self._items[index]):
                    requests[index, sample], self._observed[self._requests[index][sample].seed] = done.result()
            if self._error:
                self._fail(self._error)  # closes what has begun since then
            else:
                self._sample(requests)
        except BaseException as error:  # noqa: BLE001  it is raised where the collection is read
            self._fail(error)

    def _sample(self, requests: Mapping[tuple[int, int], Request]) -> None:
        """Sample these requests, by the index of their item and the number of their sample."""
        futures = self._sampler.submit(list(requests.values()))
        for (index, sample), future in zip(requests, futures, strict=True):
            future.add_done_callback(lambda done, index=index, sample=sample: self._sampled(index, sample, done))

    def _sampled(self, index: int, sample: int, future: Future[Completion]) -> None:
        try:
            completion, item = future.result(), self._items[index]
            with self._changed:
                self._unsampled -= 1
                self._unjudged += 1
                if self._unsampled == 0:
                    self.times.sampled = time.monotonic()
                if self._error:
                    return
                before, running = self._turns[index].get(sample, ()), self._running[index][sample]
                observed = self._observed.pop(self._requests[index][sample].seed, "")
                turns = self._turns[index][sample] = with_turn(before, completion, observed)
                self._tell()
            asked = self._spans.sampled(item.id, sample, completion)
            following = attempted(lambda: running.following(turns))
            following.add_done_callback(lambda done: self._followed(index, sample, asked, done))
        except BaseException as error:  # noqa: BLE001  it is raised where the collection is read
            self._fail(error)

    def _followed(self, index: int, sample: int, asked: float, future: Future[Next | End]) -> None:
        """Grade a rollout that has no further turn, or begin its next one; see `NextTurn.together`."""
        try:
            fault = future.exception()
            with named(self._items[index]):
                found = End() if leaves_no_verdict(fault) else future.result()
            with self._changed:
                following, turns = self._following[index], self._turns[index]
                following[sample] = None if isinstance(found, End) else found
                is_due = not self._next_turn.together or len(following) == self._sizes[index]
                begun = self._begin_turn(index) if is_due and not self._error else {}
            if begun:
                self._sample(begun)
            if isinstance(found, End) and not self._error:
                self._running[index][sample].close()
                rollout = self._ended(index, sample, turns[sample], found)
                is_fault = leaves_no_verdict(fault)
                reward = completed(no_verdict("environment", fault)) if is_fault else started(self._grade, rollout)
                reward.add_done_callback(lambda done: self._judged(index, sample, rollout, asked, done))
        except BaseException as error:  # noqa: BLE001  it is raised where the collection is read
            self._fail(error)

    def _begin_turn(self, index: int) -> dict[tuple[int, int], Request]:
        """Note the requests of the next turn of an item's samples, and return them."""
        begun = {n: each for n, each in sorted(self._following[index].items()) if each}
        for sample, (request, observed) in begun.items():
            del self._following[index][sample]
            self._observed[self._requests[index][sample].seed] = observed
            self._later[index].append(request.seed)
            self._asked.append(request.seed)
        self._unsampled += len(begun)
        self._unjudged -= len(begun)
        return {(index, sample): request for sample, (request, _) in begun.items()}

    def _ended(self, index: int, sample: int, turns: tuple[Completion, ...], end: End) -> Rollout:
        """Return a rollout that is to be graded."""
        item, request = self._items[index], self._requests[index][sample]
        return Rollout(
            item,
            self._resamples[index] * self._sizes[index] + sample,  # samples of an item are numbered through
            turns,
            Reward(None, "ungraded"),
            request=request.seed,
            length_limit=request.parameters.max_new_tokens,
            most_turns=self._next_turn.most_turns(item),
            **end._asdict(),
        )

    def _judged(self, index: int, sample: int, rollout: Rollout, asked: float, future: Future[Reward]) -> None:
        try:
            with named(rollout.item):
                reward = settled(future, rollout.item)
            self._spans.judged(rollout.item.id, sample, reward, asked)
            self._put(index, sample, replace(rollout, reward=reward))
        except BaseException as error:  # noqa: BLE001  it is raised where the collection is read
            self._fail(error)

    def _put(self, index: int, sample: int, rollout: Rollout) -> None:
        size, item = self._sizes[index], self._items[index]
        with self._changed:
            self._unjudged -= 1
            found = self._rollouts[index]
            found[sample] = rollout
            is_complete = len(found) == size
            self._tell()
        if not is_complete:
            return
        group = Group(item, tuple(found[i] for i in range(size)))
        requests = self._resample(index, self._resamples[index], group) if self._resample else None
        with self._changed:
            self._rollouts[index], self._turns[index], self._following[index], self._running[index] = {}, {}, {}, {}
            if requests and self._error:
                return
            if requests:
                self._replaced += [name for rollout in group.rollouts for name in rollout.requests]
                self._later[index] = []
                self._requests[index] = requests
                self._resamples[index] += 1
                self.times.resamples += 1
                self._note({index: requests})
            else:
                self._complete[index] = group
                self.times.judged = time.monotonic()
                self._tell()
        if requests:
            self._begin({index: requests})

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            running = [each for turns in self._running for each in turns.values()]
            self._tell()
        for each in running:
            with contextlib.suppress(Exception):  # the first error is told
                each.close()

    def _tell(self) -> None:
        self._changed.notify_all()
        if self._listener:
            self._listener.set()

    def _wait_for(self, is_there: Callable[[], bool]) -> None:
        with self._changed:
            while not self._error and not is_there():
                if not self._changed.wait(self._stall_s):
                    raise self._stalled()
            if self._error and not is_there():
                raise self._error

    def _stalled(self) -> FaultError:
        return FaultError(f"nothing was sampled or judged for {self._stall_s:.0f} s: {self.state()}")


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


def with_turn(turns: tuple[Completion, ...], completion: Completion, observed: str) -> tuple[Completion, ...]:
    """Return `turns` and a further one, whose prompt begins with all their tokens; these are left out of it."""
    known = sum(len(turn.prompt_tokens) + len(turn.tokens) for turn in turns)
    return (*turns, replace(completion, prompt_tokens=completion.prompt_tokens[known:], observed=observed))
