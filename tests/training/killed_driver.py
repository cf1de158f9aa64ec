"""A program: trains in a child that is killed with -9 at a random moment, again and again, until one may end by itself.

Its arguments are a folder, a schedule as JSON, how often to kill, and a seed. It prints one JSON object: how many
children were killed, whether the weights at the end are those of a run that nothing disturbed, the ledger's counts, and
the requests that were learnt from.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from pydantic import TypeAdapter

from autoclave.config import CheckpointConfig, ScheduleConfig, TrainConfig
from autoclave.training.checkpoints import latest_checkpoint
from autoclave.training.schedules import Iteration
from tests.training.killed_trainer import in_child
from tests.training.test_run_to_end import CONFIG, go_on, run_in

SETTINGS: TrainConfig = CONFIG.model_copy(update={"checkpoint": CheckpointConfig(every=1, keep=1)})


def train(folder: Path, schedule: ScheduleConfig, kill_after_s: float | None = None) -> None:
    """Train from the newest checkpoint to the end, and leave in `result` what became of it."""
    if kill_after_s is not None:
        timer = threading.Timer(kill_after_s, lambda: os.kill(os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    found = latest_checkpoint(folder / "checkpoints", SETTINGS)
    with run_in(folder, config=SETTINGS, schedule=schedule, goes_on_from=found) as run:
        given = run.schedule

        def noted(stages, items, course) -> Iterator[Iteration]:
            for step, iteration in enumerate(given(stages, items, course), start=course.done + 1):
                names = [rollout.request for group in iteration.learned.groups for rollout in group.rollouts]
                (folder / f"learnt-{step}.json").write_text(json.dumps(names))
                yield iteration

        run = replace(run, schedule=noted)
        go_on(run, found)
        weights = run.stages.actor.export_weights().result()
        digest = hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()
        (folder / "result").write_text(json.dumps({"digest": digest, "counts": run.requests.counts()}))


def main(parent: Path, schedule: ScheduleConfig, kills: int, seed: int) -> None:
    """See above."""
    torch.set_num_threads(1)
    draw = random.Random(seed)
    started = time.monotonic()
    assert in_child(lambda: train(parent / "whole", schedule)) == 0
    whole_s = time.monotonic() - started
    folder, codes = parent / "killed", []
    for _ in range(kills):
        code = in_child(lambda: train(folder, schedule, draw.uniform(0.1, 1.0) * whole_s))
        assert code in (0, -signal.SIGKILL), code
        codes.append(code)
    assert in_child(lambda: train(folder, schedule)) == 0
    whole, killed = (json.loads((path / "result").read_text()) for path in (parent / "whole", folder))
    learnt = [
        name for step in range(SETTINGS.steps) for name in json.loads((folder / f"learnt-{step + 1}.json").read_text())
    ]
    print(  # noqa: T201
        json.dumps(
            {
                "killed": codes.count(-signal.SIGKILL),
                "is_same": whole["digest"] == killed["digest"],
                "counts": killed["counts"],
                "learnt": learnt,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), TypeAdapter(ScheduleConfig).validate_json(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
