"""Tiny iterations of any schedule on real samplers, while engines, the judge and the trainer fail at random.

The policy is a number: its version. An engine samples its version as each token, so that a response says itself which
weights it is of. The trainer is a worker that can be killed; the run then goes on from its last checkpoint, as a real
one does. What must hold is checked at each iteration and at the end.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from autoclave.config import ScheduleConfig
from autoclave.core import EngineFault, Group, MaskReason, Reward, TaskItem, WorkerDied
from autoclave.rollout import Collection, Request
from autoclave.training.items import ItemSource
from autoclave.training.learned import Learned
from autoclave.training.request_ledger import AccountedStages, RequestLedger
from autoclave.training.saved_groups import load_groups, names_of, save_groups
from autoclave.training.schedules import Course, Iteration, choose_schedule
from autoclave.workers import Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.sampler import SamplerWorker
from autoclave.workers.sampler_pool import SamplerPool
from autoclave.workers.spawn_executor import SpawnExecutor
from tests.training_parts import earned, item, request
from tests.workers.sample_engines import CountingEngine, make_worker

PROBLEMS, SAMPLES, TOKENS = 4, 2, 3
SAVES_EVERY = 3
"""Iterations between checkpoints."""
WAIT_S = 300.0
"""Longest wait for anything; a run that hangs fails by it."""


class CountingTrainer:
    """Has learnt so many times. Where it cannot be killed, it says now and then that it was."""

    def __init__(self, draw: random.Random | None = None, chance: float = 0.0) -> None:
        self._version, self._draw, self._chance = 0, draw or random.Random(), chance

    @register(Dispatch.ONE_TO_ALL)
    def learn(self, version: int) -> None:
        self._fail()
        self._version = version

    @register(Dispatch.ONE_TO_ALL)
    def export(self) -> int:
        self._fail()
        return self._version

    def _fail(self) -> None:
        if self._draw.random() < self._chance:
            raise WorkerDied.of("trainer", 0, "here", "was killed, so to speak")


class Faulty(CountingEngine):
    """Fails in one of many calls: dies, loses a request, or answers one twice."""

    def __init__(self, draw: random.Random, chance: float) -> None:
        super().__init__()
        self._draw, self._chance = draw, chance

    def add(self, requests: Mapping[int, Request]) -> None:
        self._fail()
        super().add(dict(list(requests.items())[self._draw.random() < self._chance :]))

    def step(self, seconds: float) -> list:
        self._fail()
        done = super().step(seconds)
        return done * 2 if self._draw.random() < self._chance else done

    def update_weights(self, version: int, weights: object) -> None:
        self._fail()
        super().update_weights(version, weights)

    def _fail(self) -> None:
        if self._draw.random() < self._chance:
            raise EngineFault("the engine is dead")


@dataclass(slots=True)
class Soaked:
    """What happened."""

    iterations: int = 0
    """Learnt from, those that were done again included."""
    faults: Counter[str] = field(default_factory=Counter)
    counts: Mapping[str, int] = field(default_factory=dict)


class SoakStages:
    """The three stages on real samplers and a real worker; `faults` strike as the seed says."""

    def __init__(self, seed: int, chance: float, *, processes: bool) -> None:
        self.draw, self._chance = random.Random(seed), chance
        self.soaked, self.version = Soaked(), 0
        self._processes = processes
        executors = [SpawnExecutor([()]) if processes else None for _ in range(3)]
        self.pools = [ResourcePool(f"pool-{number}", executor) for number, executor in enumerate(executors)]
        makes = [
            make_worker if processes else partial(_faulty_worker, random.Random(f"{seed}-{number}"), chance / 10)
            for number in range(2)
        ]
        samplers = [WorkerGroup(self.pools[n], makes[n], name=f"sampler-{n}") for n in range(2)]
        frail = partial(CountingTrainer, random.Random(f"{seed}-trainer"), chance / 4)
        self.trainer = WorkerGroup(self.pools[2], CountingTrainer if processes else frail, name="trainer")
        self.sampler = SamplerPool(samplers, in_flight=8, restarts=10**6, timeout_s=WAIT_S, say=self._heard)
        self._victims = [*samplers, self.trainer]
        self._judge = ThreadPoolExecutor(2, thread_name_prefix="soak-judge")

    def close(self) -> None:
        self.sampler.close()
        self._judge.shutdown()
        for pool in self.pools:
            pool.close()

    # --- The stages

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection:
        self._strike()
        wanted = range(len(items)) if known is None else [index for index, group in known.items() if group is None]
        complete = {index: group for index, group in (known or {}).items() if group}

        def requests(index: int, times: int) -> list[Request]:
            samples = range(times * SAMPLES, (times + 1) * SAMPLES)
            return [request([3 + index], 0, iteration, index, n, max_new_tokens=TOKENS) for n in samples]

        def refill(index: int, times: int, group: Group) -> list[Request] | None:
            return requests(index, times + 1) if not times and (iteration + index) % 5 == 0 else None

        asked = [requests(index, 0) if index in wanted else [] for index in range(len(items))]
        reward = self._reward
        return Collection(items, asked, self.sampler, reward, refill=refill, complete=complete, stall_s=WAIT_S)

    def learn(self, groups: Sequence[Group]) -> Learned:
        self._strike()
        self.trainer.learn(self.version + 1).result(WAIT_S)
        groups = [replace(group, rollouts=tuple(map(_masked, group.rollouts))) for group in groups]
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        return Learned(groups, [_Entry(float(r.is_trained)) for r in rollouts], {"loss": 1.0}, [None] * len(rollouts))

    def publish(self, version: int) -> None:
        self._strike()
        self.sampler.update_weights(version, self.trainer.export()).result(WAIT_S)
        self.version = version

    # --- Faults

    def _reward(self, asked: TaskItem, response: str) -> Future[Reward]:
        value = None if self.draw.random() < self._chance else 1.0
        self.soaked.faults["judge"] += value is None
        return self._judge.submit(earned, value)

    def _strike(self) -> None:
        """Perhaps kill somebody, a little later."""
        if not self._processes or self.draw.random() >= self._chance:
            return
        victim = self.draw.choice(self._victims)
        timer = threading.Timer(self.draw.uniform(0, 0.1), self._kill, [victim])
        timer.daemon = True
        timer.start()

    def _kill(self, victim: WorkerGroup) -> None:
        self.soaked.faults[victim.name] += 1
        for process in victim._ranks._processes:
            process.kill()

    def _heard(self, line: str) -> None:
        self.soaked.faults["engine"] += 1


@dataclass(frozen=True, slots=True)
class _Entry:
    weight: float


def _faulty_worker(draw: random.Random, chance: float) -> SamplerWorker:
    return SamplerWorker(Faulty(draw, chance))


def _masked(rollout):
    return rollout.masked(MaskReason.NO_VERDICT) if rollout.reward.value is None else rollout


def soak(
    config: ScheduleConfig, folder: Path, *, total: int, seed: int = 0, chance: float = 0.1, processes: bool = False
) -> Soaked:
    """Do `total` iterations, and check that each request of each was learnt from once, by weights that may be."""
    source = ItemSource([item(name) for name in "abcdefg"], per_iteration=PROBLEMS, seed=0)
    stages, ledger = SoakStages(seed, chance, processes=processes), RequestLedger()
    learnt: list[list[tuple[int, ...]]] = []
    checkpoint, done = None, 0
    try:
        while len(learnt) < total:
            try:
                known = load_groups(checkpoint, source) if checkpoint else {}
                if checkpoint:
                    ledger.load(checkpoint, names_of(known))
                    stages.trainer.learn(done).result(WAIT_S)
                    stages.sampler.update_weights(done, stages.trainer.export()).result(WAIT_S)
                schedule = choose_schedule(config, 2)
                for iteration in schedule(AccountedStages(stages, ledger), source, Course(done, total, known)):
                    stages.soaked.iterations += 1
                    ledger.check(iteration.ahead.values())
                    check_stamps(config, iteration, len(learnt))
                    learnt.append([r.request for g in iteration.learned.groups for r in g.rollouts])
                    if len(learnt) % SAVES_EVERY == 0:
                        known = iteration.known()  # may fail, and is then no checkpoint
                        checkpoint, done = folder / f"{stages.soaked.iterations}", len(learnt)
                        checkpoint.mkdir(parents=True)
                        save_groups(known, checkpoint)
                        ledger.save(checkpoint)
            except WorkerDied:
                stages.soaked.faults["run went on"] += 1
                del learnt[done:]
                stages.version = done
                ledger.begin_anew()
                _until_it_holds(lambda: stages.trainer.restart().result(WAIT_S))
                _until_it_holds(stages.sampler.restart)
        stages.soaked.counts = ledger.counts()
    finally:
        stages.close()
    check_end(learnt, stages.soaked.counts, total)
    return stages.soaked


def _until_it_holds(restart: Callable[[], object]) -> None:
    for _ in range(20):
        try:
            restart()
        except WorkerDied:
            continue
        return
    raise AssertionError("killed each time that it was started")


def check_stamps(config: ScheduleConfig, iteration: Iteration, number: int) -> None:
    """Each token is of the weights that its stamp says, and none is of weights too old."""
    allowed = {"asynchronous": getattr(config, "max_staleness", 0), "one_off_pipeline": 1}.get(config.name, 0)
    for group in iteration.learned.groups:
        for rollout in group.rollouts:
            tokens, ranges = rollout.completion.tokens.tolist(), rollout.completion.policy_versions
            assert len(tokens) == TOKENS
            assert tokens == [version for version, start, stop in ranges for _ in range(start, stop)]
            assert all(number - allowed <= version <= number for version in tokens), (number, tokens)


def check_end(learnt: list[list[tuple[int, ...]]], counts: Mapping[str, int], total: int) -> None:
    """Each place of each batch was learnt from once, and the ledger says so too."""
    names = [name for batch in learnt for name in batch]
    assert len(names) == len(set(names)), "a request was learnt from twice"
    places = sorted((iteration, index, sample % SAMPLES) for _, iteration, index, sample in names)
    assert places == [(i, g, n) for i in range(total) for g in range(PROBLEMS) for n in range(SAMPLES)]
    dropped = sum(count for name, count in counts.items() if name.startswith("dropped/"))
    assert counts["open"] == 0
    assert counts["dispatched"] == counts["trained"] + dropped + counts.get("requeued", 0)
    assert counts["trained"] + counts.get("dropped/no_verdict", 0) == len(names)
