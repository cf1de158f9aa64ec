"""Turns interleave: while one episode runs a tool, others sample. Samplers and tools sleep; the rest is that of a run.

Slot time is idle where a slot is free while a turn is ready: its tool is done, or its episode has begun, and no engine
samples it. The engines of one kind (vLLM, servers) sample whatever is there side by side. The others keep batches
apart in a synchronous schedule, so that a run can be repeated bit for bit: turns of an item begin together there, and
slots are idle for it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from threading import Timer
from typing import Any

import numpy as np
from harness import sized
from sleeping_worker import SleepingWorker
from workbook import Scale, Workbook, items, requests

from autoclave.core import Completion, Reward, Rollout, TaskItem
from autoclave.core.futures import completed
from autoclave.core.rollout import request_of_turn
from autoclave.planning.profile import Profile, Work
from autoclave.rollout import Collection, Request
from autoclave.rollout.interface import End, Next
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool

SLOTS, TOOL_S, TURN_S, TURNS = 4, 2.0, 0.5, 3
TOKENS = 100
"""Tokens of a turn, on average."""


class Tools:
    """A `NextTurn` whose tools take `TOOL_S`, or up to half of it more or less; `ready` has when turns could begin."""

    def __init__(self, together: bool, spread: float, scale: Scale) -> None:
        self.together, self._spread, self._scale = together, spread, scale
        self.ready = list[float]()

    def most_turns(self, item: TaskItem) -> int:
        return TURNS

    def __call__(self, item: TaskItem, first: Request) -> _Acting:
        draw = random.Random(str(first.seed))
        return _Acting(self, first, [TOOL_S * (1 + draw.uniform(-1, 1) * self._spread) for _ in range(TURNS)])

    def later(self, seconds: float, found: Next | End) -> Future[Next | End]:
        future = Future[Next | End]()

        def done() -> None:
            if not isinstance(found, End):
                self.ready.append(time.time())
            future.set_result(found)

        Timer(seconds / self._scale.time, done).start()
        return future


class _Acting:
    """The turns of an episode, each followed by a tool."""

    def __init__(self, of: Tools, first: Request, seconds: list[float]) -> None:
        self._of, self._first, self._seconds = of, first, seconds

    def begin(self) -> Future[Next]:
        self._of.ready.append(time.time())
        return completed((self._first, ""))

    def following(self, turns: Sequence[Completion]) -> Future[Next | End]:
        known = [part for turn in turns for part in (turn.prompt_tokens, turn.tokens)]
        numbers = request_of_turn(self._first.seed, len(turns))
        request = Request(np.concatenate([*known, [1]]), self._first.parameters, numbers)
        found = End() if len(turns) == TURNS else (request, "")
        return self._of.later(self._seconds[len(turns) - 1], found)

    def close(self) -> None:
        pass


def idle_share(ready: Sequence[float], turns: Sequence[tuple[float, float]], slots: int) -> float:
    """Return the share of slot time that is idle while a turn is ready.

    Args:
        ready: times at which turns could have begun, as many as there are turns.
        turns: begin and end of each turn.
        slots: turns that can run at a time.
    """
    changes = [(at, 1, 0) for at in ready] + [(begin, -1, 1) for begin, _ in turns] + [(end, 0, -1) for _, end in turns]
    waiting = running = 0
    idle, since = 0.0, min(ready)
    for at, came, began in sorted(changes):
        idle += (at - since) * (slots - running) * (waiting > 0)
        since, waiting, running = max(at, since), waiting + came, running + began
    return idle / (slots * (since - min(ready)))


def measured(
    device: WorkerGroup[Any], episodes: int, scale: Scale, *, spread: float = 0.0, mixes: bool = True
) -> tuple[float, float]:
    """Return the idle share, and the seconds that all took, of episodes in groups of eight."""
    draw = random.Random(0)
    works = [Work(number // 8, round(TOKENS * (1 + draw.uniform(-1, 1) * spread)), 0.0) for number in range(episodes)]
    profile = Profile("episodes", 1, SLOTS, TURN_S * 1e3 / TOKENS, 0.0, 1, 0.0, 1, 0.0, (tuple(works),))
    device.become(profile, scale, mixes).result()
    book, tools = Workbook(profile), Tools(together=not mixes, spread=spread, scale=scale)
    with closing(SamplerPool([device])) as sampler:
        collection = Collection(items(book, 0), requests(book, 0), sampler, _graded, next_turn=tools)
        rollouts = [rollout for group in collection.result() for rollout in group.rollouts]
        account = collection.take_account()
    names = sorted(name for rollout in rollouts for name in rollout.requests)
    assert names == sorted(account.asked) == sorted(account.there)
    assert len(names) == episodes * TURNS
    turns = [(turn.started_at or 0.0, turn.finished_at) for rollout in rollouts for turn in rollout.turns]
    return idle_share(tools.ready, turns, SLOTS), (max(end for _, end in turns) - min(tools.ready)) * scale.time


def _graded(rollout: Rollout) -> Future[Reward]:
    return completed(Reward(1.0, "accepted"))


def idle_figures(options: argparse.Namespace) -> dict[str, Any]:
    """Return the idle share with equal times, with times that differ, and where batches are kept apart."""
    episodes, scale = sized(options, (32, Scale(1.0)), (32, Scale(4.0)), (8, Scale(50.0)))
    kinds: dict[str, dict[str, Any]] = {"": {}, "_varied": {"spread": 0.5}, "_apart": {"spread": 0.5, "mixes": False}}
    figures: dict[str, Any] = {}
    with closing(ResourcePool("device")) as pool:
        device = WorkerGroup(pool, SleepingWorker, name="device")
        for kind, chosen in kinds.items():
            share, seconds = measured(device, episodes, scale, **chosen)
            print(f"{kind[1:] or 'equal':<8} idle {share:.4f} of the slot time while a turn is ready; {seconds:.1f} s")
            figures[f"sampler_idle_share{kind}"] = share
    return figures
