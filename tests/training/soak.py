"""Tiny iterations of any schedule on real samplers, while engines, the judge and the trainer fail at random.

The policy is a number: the version of its weights, and which life of the run made them. An engine samples that number
as each token, so that a response says itself which weights it is of. The trainer is a worker that can be killed; the
run then lives again from its last checkpoint, as a real one does. What must hold is checked at each iteration, at each
checkpoint and at the end.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from autoclave.config import CodeGenerationConfig, JudgeConfig, ScheduleConfig
from autoclave.core import (
    EngineFault,
    Group,
    MaskReason,
    Problem,
    Reward,
    Rollout,
    StdinCase,
    StdinTests,
    TaskItem,
    WorkerDied,
)
from autoclave.judge import LocalJudge
from autoclave.rollout import Collection, Request, by_last_turn
from autoclave.tasks import CodeGeneration
from autoclave.training.learned import Learned, ShuffledItems
from autoclave.training.metrics import RunStages
from autoclave.training.request_ledger import RequestLedger
from autoclave.training.saved_groups import load_groups, names_of, save_groups
from autoclave.training.schedules import RunProgress, choose_schedule
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.spawn_executor import SpawnExecutor
from tests.training.chaos import Chaos, Role, descendants
from tests.training.history import History
from tests.training.soak_workers import CountingTrainer
from tests.training_parts import earned, item, request
from tests.workers.sample_engines import VERSIONS, CountingEngine, CountingWorker, Handed, make_worker

PROBLEMS, SAMPLES, TOKENS = 4, 2, 3
SAVES_EVERY = 3
"""Iterations between checkpoints."""
WAIT_S = 300.0
"""Longest wait for anything; a run that hangs fails by it."""
SILENT_S = 5.0
"""A process that samples and says nothing for so long is ended."""
PROGRAMMING = Problem(
    statement="Print 4.", tests=StdinTests("stdin", [StdinCase("", "4\n")]), id="four", profile="plain"
)


# --- The three stages ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Soaked:
    """What happened."""

    iterations: int = 0
    """Learnt from, those that were done again included."""
    lives: int = 1
    """How often the run began, from its last checkpoint all times but the first."""
    faults: Counter[str] = field(default_factory=Counter)
    counts: Mapping[str, int] = field(default_factory=dict)


class SoakStages:
    """Collect, learn and publish, on two samplers and a trainer."""

    def __init__(
        self,
        pools: Sequence[ResourcePool],
        makes: Sequence[Callable[[], object]],
        reward: Callable[[TaskItem, str], Future[Reward]],
        *,
        restarts: int,
        timeout_s: float = WAIT_S,
        strike: Callable[[], object] = lambda: None,
    ) -> None:
        """With a worker in each of `pools`, by the same place of `makes`: two that sample, and one that learns.

        `strike` is called at the beginning of each stage.
        """
        self.found, self.version, self._grade, self._strike = Soaked(), 0, by_last_turn(reward), strike
        *samplers, self.trainer = (
            WorkerGroup(pool, make, name=pool.name) for pool, make in zip(pools, makes, strict=True)
        )
        self.sampler = SamplerPool(samplers, in_flight=8, restarts=restarts, timeout_s=timeout_s, say=self._heard)

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection:
        self._strike()
        wanted = range(len(items)) if known is None else [index for index, group in known.items() if group is None]
        complete = {index: group for index, group in (known or {}).items() if group}

        def requests(index: int, times: int) -> list[Request]:
            samples = range(times * SAMPLES, (times + 1) * SAMPLES)
            return [request([3 + index], 0, iteration, index, n, max_new_tokens=TOKENS) for n in samples]

        def resample(index: int, times: int, group: Group) -> list[Request] | None:
            return requests(index, times + 1) if not times and (iteration + index) % 5 == 0 else None

        asked = [requests(index, 0) if index in wanted else [] for index in range(len(items))]
        return Collection(items, asked, self.sampler, self._grade, resample=resample, complete=complete, stall_s=WAIT_S)

    def learn(self, groups: Sequence[Group]) -> Learned:
        self._strike()
        self.trainer.learn(self._weights(self.version + 1)).result(WAIT_S)
        groups = [replace(group, rollouts=tuple(map(_masked, group.rollouts))) for group in groups]
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        self.found.faults["no verdict"] += sum(rollout.reward.value is None for rollout in rollouts)
        return Learned(groups, [_Entry(float(r.is_trained)) for r in rollouts], {"loss": 1.0}, [None] * len(rollouts))

    def publish(self, version: int) -> Mapping[str, float]:
        self._strike()
        weights = self.trainer.export().result(WAIT_S)
        self.sampler.update_weights(version, Handed(version, weights)).result(WAIT_S)
        self.version = version
        return {}

    def go_on(self, done: int) -> None:
        """Take the weights of a checkpoint, after `done` iterations."""
        self.version = done
        self.trainer.learn(self._weights(done)).result(WAIT_S)
        self.publish(done)

    def live_again(self) -> None:
        """Restart all workers."""
        self.found.lives += 1
        self.version = 0
        _until_it_holds(lambda: self.trainer.restart().result(WAIT_S))
        _until_it_holds(self.sampler.restart)

    def _weights(self, version: int) -> int:
        return (self.found.lives - 1) * VERSIONS + version

    def _heard(self, line: str) -> None:
        self.found.faults["a sampler removed" if "is removed" in line else "a sampler restarted"] += 1


@dataclass(frozen=True, slots=True)
class _Entry:
    weight: float


def _masked(rollout: Rollout) -> Rollout:
    return rollout.masked(MaskReason.NO_VERDICT) if rollout.reward.value is None else rollout


def _until_it_holds(restart: Callable[[], object]) -> None:
    for _ in range(20):
        try:
            restart()
        except WorkerDied:
            continue
        return
    raise AssertionError("killed each time that it was started")


def deserved(response: str) -> float:
    """What a response earns from a judge without fault."""
    return float(zlib.crc32(response.encode()) % 4 > 0)


# --- What fails ----------------------------------------------------------------------------------------------------


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

    def update_weights(self, version: int, weights: int) -> None:
        self._fail()
        super().update_weights(version, weights)

    def _fail(self) -> None:
        if self._draw.random() < self._chance:
            raise EngineFault("the engine is dead")


@contextmanager
def failing_parts(*, seed: int = 0, chance: float = 0.1) -> Generator[SoakStages]:
    """Stages in this process. One of so many rewards has no verdict; engines and trainer fail more rarely."""

    def engine(draw: random.Random) -> CountingWorker:
        return CountingWorker(Faulty(draw, chance / 10))

    names = ("sampler-0", "sampler-1", "trainer")
    draws = {name: random.Random(f"{seed} {name}") for name in (*names, "judge")}
    makes = [partial(engine, draws[name]) for name in names[:2]]
    with ExitStack() as opened:
        judge = opened.enter_context(ThreadPoolExecutor(2, thread_name_prefix="judge"))

        def reward(asked: TaskItem, response: str) -> Future[Reward]:
            return judge.submit(earned, None if draws["judge"].random() < chance else deserved(response))

        pools = [ResourcePool(name) for name in names]
        for pool in pools:
            opened.callback(pool.close)
        trainer = partial(CountingTrainer, draws["trainer"], chance / 4)
        stages = SoakStages(pools, [*makes, trainer], reward, restarts=3)
        opened.callback(stages.sampler.close)
        yield stages


@contextmanager
def killed_processes(*, seed: int = 0, chance: float = 0.1) -> Generator[SoakStages]:
    """Stages of processes: two that sample, one that learns, those of a judge. All are killed and stopped."""
    executors = {name: SpawnExecutor([()]) for name in ("sampler-0", "sampler-1", "trainer")}
    shares = {"sampler-0": (0.15, 2 * SILENT_S), "sampler-1": (0.15, 2 * SILENT_S), "trainer": (0.1, 1.0)}
    roles = {name: Role(partial(_newest, executors[name]), *share) for name, share in shares.items()}
    with ExitStack() as opened:
        judge = opened.enter_context(LocalJudge(judge_config=JudgeConfig(workers=2)))
        task = CodeGeneration(judge, CodeGenerationConfig())
        programming = task.item(PROGRAMMING)

        def reward(asked: TaskItem, response: str) -> Future[Reward]:
            program = f"import time\ntime.sleep(0.02)\nprint({3 + deserved(response):.0f})  # {response}"
            return task.reward(programming, f"```python\n{program}\n```")

        pools = [ResourcePool(name, executor) for name, executor in executors.items()]
        for pool in pools:
            opened.callback(pool.close)
        chaos = Chaos(roles | {"judge": Role(_cells, 0.6, 1.0)}, seed=seed, chance=chance)
        makes = [make_worker, make_worker, CountingTrainer]
        stages = SoakStages(pools, makes, reward, restarts=5, timeout_s=SILENT_S, strike=chaos.perhaps)
        opened.callback(stages.sampler.close)
        with chaos:
            yield stages
        stages.found.faults += chaos.strikes


def _newest(executor: SpawnExecutor) -> Sequence[int]:
    """The processes that an executor started last."""
    return executor._started[-1].process_ids


def _cells() -> Sequence[int]:
    """Processes of the sandbox, down to the first one of each cell. Below are programs, which may kill themselves."""
    return [number for number, (depth, command) in descendants().items() if " zygote " in command and depth <= 3]


# --- The run -------------------------------------------------------------------------------------------------------


def soak(config: ScheduleConfig, folder: Path, stages: SoakStages, *, total: int) -> Soaked:
    """Do `total` iterations, and check that each request of each was learnt from once, by weights that may be."""
    source = ShuffledItems([item(name) for name in "abcdefg"], per_iteration=PROBLEMS, seed=0)
    ledger, history, found = RequestLedger(), History(problems=PROBLEMS, samples=SAMPLES), stages.found
    last_versions = [VERSIONS]  # by life, the last one that counts
    checkpoint: Path | None = None
    while len(history.learnt) < total:
        try:
            known = load_groups(checkpoint, source) if checkpoint else {}
            if checkpoint:
                ledger.load(checkpoint, names_of(known))
                history.check(ledger.counts())
                stages.go_on(history.saved)
            schedule = choose_schedule(config, 2)
            for iteration in schedule(RunStages(stages, ledger), source, RunProgress(history.saved, total, known)):
                found.iterations += 1
                ledger.check(iteration.ahead.values())
                rollouts = [rollout for group in iteration.learned.groups for rollout in group.rollouts]
                check_rollouts(rollouts, versions_in(config, len(history.learnt)), last_versions)
                history.learnt.append([rollout.request for rollout in rollouts])
                history.check(ledger.counts())
                if len(history.learnt) % SAVES_EVERY == 0:
                    known = iteration.known()  # may fail, and is then no checkpoint
                    checkpoint = folder / f"{found.iterations}"
                    checkpoint.mkdir(parents=True)
                    save_groups(known, checkpoint)
                    ledger.save(checkpoint)
                    history.check(ledger.counts())
                    history.saved = len(history.learnt)
        except (WorkerDied, EngineFault):
            history.go_back()
            last_versions = [*(min(last, history.saved) for last in last_versions), VERSIONS]
            ledger.restart()
            stages.live_again()
    found.counts = ledger.counts()
    history.check_end(found.counts, total)
    return found


def versions_in(config: ScheduleConfig, iteration: int) -> range:
    """Of the weights that responses may be of, from which an iteration learns."""
    oldest = {"asynchronous": getattr(config, "max_staleness", 0), "one_off_pipeline": 1}.get(config.name, 0)
    return range(iteration - oldest, iteration + 1)


def check_rollouts(rollouts: Sequence[Rollout], allowed: range, last_versions: Sequence[int]) -> None:
    """Each token is of the weights that its stamp says, which were published in a life that counts, and may be.

    Each reward is what a judge without fault gives, or none.
    """
    for rollout in rollouts:
        tokens, ranges = rollout.last.tokens.tolist(), rollout.last.policy_versions
        stamps = [version for version, start, stop in ranges for _ in range(start, stop)]
        assert len(tokens) == TOKENS
        assert stamps == [token % VERSIONS for token in tokens]
        assert all(version in allowed for version in stamps), (stamps, allowed)
        assert all(token % VERSIONS <= last_versions[token // VERSIONS] for token in tokens), (tokens, last_versions)
        assert rollout.reward.value in (None, deserved(rollout.last.text)), rollout
