"""A program: trains in a child that is struck at a random moment, again and again, until one may end by itself.

It is killed with -9 three times of four, and else told to stop, as by Ctrl-C. The arguments are a folder, schedules as
a JSON list, how often to strike in each, a seed, and the most turns of an episode. For each schedule it prints a JSON
line: how often a child was killed and how often it stopped, the ledger's counts, and whether the weights at the end are
those of a run that nothing disturbed. What must hold of requests is checked at each iteration, at each checkpoint and
at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from autoclave.compose.tasks import next_turn_of
from autoclave.config import CheckpointConfig, EvaluationConfig, ScheduleConfig
from autoclave.core import EndState, IncompleteError, Observation, Problem, Reward, Rollout, TaskItem
from autoclave.core.futures import completed
from autoclave.core.rollout import TURN
from autoclave.training.checkpoints import latest_checkpoint
from autoclave.training.schedules import Iteration
from autoclave.training.watchdog import StopRequest
from tests.training.history import History
from tests.training.killed_trainer import in_child
from tests.training.test_run_to_end import CONFIG, go_on, run_in
from tests.training.toy import is_even
from tests.training_parts import tiny_policy

Strike = tuple[signal.Signals, float]
"""A signal, and after how many seconds it comes."""


def is_even_late(response: str) -> float:
    """Sampling takes longer than learning by this, so that a checkpoint finds batches that are begun."""
    time.sleep(0.01)
    return is_even(response)


class Guessing:
    """A `MultiTurnTask`: a turn that earns nothing is told so, after a while that depends on nothing, and followed by
    another. It is its own environment.
    """

    name, tools = "task", ()

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def item(self, problem: Problem) -> TaskItem:
        raise NotImplementedError

    def environment(self, item: TaskItem) -> Guessing:
        return self

    def grade(self, rollout: Rollout) -> Future[Reward]:
        raise NotImplementedError

    def start(self, item: TaskItem, seed: tuple[int, ...]) -> Future[Observation]:
        return completed(Observation(()))

    def step(self, action: str) -> Future[Observation]:
        told = Future[Observation]()
        found = Observation(({"role": "user", "content": "odd"},), is_end=bool(is_even(action)))
        threading.Timer(random.random() / 50, told.set_result, [found]).start()
        return told

    def end(self) -> Future[EndState | None]:
        return completed(None)

    def close(self) -> None:
        pass


def train(folder: Path, schedule: ScheduleConfig, steps: int, turns: int, strike: Strike | None = None) -> None:
    """Train from the newest checkpoint to the end, and leave in `result` what became of it."""
    once = {"checkpoint": CheckpointConfig(every=1, keep=1), "evaluation": EvaluationConfig(every=0)}
    config = CONFIG.model_copy(update={"steps": steps, **once})
    with StopRequest() as stop:
        if strike:
            timer = threading.Timer(strike[1], os.kill, [os.getpid(), strike[0]])
            timer.daemon = True
            timer.start()
        found = latest_checkpoint(folder / "checkpoints", config)
        tokenizer, together = tiny_policy().tokenizer, not schedule.mixes_batches
        next_turn = next_turn_of(Guessing(turns), tokenizer, None, together=together) if turns > 1 else None
        chosen: dict[str, Any] = {"config": config, "schedule": schedule, "next_turn": next_turn}
        with run_in(folder, is_even_late, goes_on_from=found, **chosen) as run:
            given, history = run.schedule, history_in(folder)
            history.saved = found.step if found else 0
            history.go_back()

            def noted(stages, items, run_progress) -> Iterator[Iteration]:
                note(folder, run_progress.done)
                history.check(run.requests.counts())
                for iteration in given(stages, items, run_progress):
                    rollouts = [rollout for group in iteration.learned.groups for rollout in group.rollouts]
                    names = [name for rollout in rollouts for name in rollout.requests]
                    note(folder, names)
                    history.learnt.append(names)
                    yield iteration
                    history.check(run.requests.counts())

            run = replace(run, schedule=noted)
            with suppress(IncompleteError):
                go_on(run, found, stop)
                weights = run.stages.actor.export_weights().result()
                digest = hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights)))
                several = any(TURN in name for name in history.names)
                result = {"digest": digest.hexdigest(), "counts": run.requests.counts(), "several_turns": several}
                (folder / "result").write_text(json.dumps(result))


def note(folder: Path, what: int | list) -> None:
    """Add a line: the step that a child went on from, or what it learnt from."""
    with (folder / "history").open("a") as file:
        file.write(json.dumps(what) + "\n")


def history_in(folder: Path) -> History:
    """What children learnt from, as far as it counts."""
    history = History(problems=2, samples=8)
    for line in (folder / "history").read_text().splitlines() if (folder / "history").exists() else []:
        found = json.loads(line)
        if isinstance(found, int):
            history.saved = found
            history.go_back()
        else:
            history.learnt.append([tuple(name) for name in found])
    return history


def strike_once(folder: Path, schedule: ScheduleConfig, steps: int, turns: int, strike: Strike) -> bool:
    """Train until struck; whether it was: not where so little was left to do that it ended before any strike.

    A strike that came too late, as the machine is faster now than when the time was chosen, comes again, earlier.
    """
    (number, after_s), before = strike, folder.with_name("before")
    least_s = after_s / 1000
    folder.mkdir(exist_ok=True)
    shutil.copytree(folder, before)
    while True:
        code = in_child(lambda: train(folder, schedule, steps, turns, (number, after_s)))  # noqa: B023  it is done by then
        assert code in (0, -signal.SIGKILL), code
        is_struck = not (folder / "result").exists()
        if is_struck or after_s < least_s:
            shutil.rmtree(before)
            return is_struck
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
        after_s /= 2


def strike_all(parent: Path, schedule: ScheduleConfig, strikes: int, seed: int, turns: int) -> dict[str, object]:
    """Strike that often or until a child is done, let the last one end, and compare it with a run of its own."""
    draw, steps, whole, struck = random.Random(seed), strikes + 2, parent / "whole", parent / "struck"
    started = time.monotonic()
    assert in_child(lambda: train(whole, schedule, steps, turns)) == 0
    step_s = (time.monotonic() - started) / steps
    numbers: list[signal.Signals] = []
    for _ in range(strikes):
        number = signal.SIGKILL if draw.random() < 0.75 else signal.SIGINT
        if not strike_once(struck, schedule, steps, turns, (number, draw.uniform(0, 4) * step_s)):
            break
        numbers.append(number)
    if not (struck / "result").exists():
        assert in_child(lambda: train(struck, schedule, steps, turns)) == 0
    undisturbed, found = (json.loads((folder / "result").read_text()) for folder in (whole, struck))
    history_in(struck).check_end(found["counts"], steps)
    return {
        "killed": numbers.count(signal.SIGKILL),
        "stopped": numbers.count(signal.SIGINT),
        "counts": found["counts"],
        "several_turns": found["several_turns"],
        "is_same": undisturbed["digest"] == found["digest"],
    }


def main(parent: Path, schedules: list[ScheduleConfig], strikes: int, seed: int, turns: int) -> None:
    """See above."""
    torch.set_num_threads(1)
    for number, schedule in enumerate(schedules):
        folder = parent / str(number)
        folder.mkdir()
        print(json.dumps(strike_all(folder, schedule, strikes, seed + number, turns)), flush=True)  # noqa: T201


if __name__ == "__main__":
    of_json = TypeAdapter(list[ScheduleConfig]).validate_json
    main(Path(sys.argv[1]), of_json(sys.argv[2]), *map(int, sys.argv[3:]))
