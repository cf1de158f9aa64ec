"""A program: trains in a child that is killed with -9 at its n-th fsync or rename of a checkpoint, for several n.

Each time another child resumes. For each n it prints a JSON line: how the first one ended, at which operation, from
which step the second went on, and whether its weights are those of a run that nothing disturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from autoclave.config import CheckpointConfig, TrainConfig
from autoclave.training.checkpoints import latest_checkpoint
from autoclave.training.train import run_to_end
from autoclave.training.watchdog import StopRequest
from tests.training.test_run_to_end import CONFIG, run_in

STEPS = 2
SETTINGS: TrainConfig = CONFIG.model_copy(update={"steps": STEPS, "checkpoint": CheckpointConfig(every=1, keep=1)})


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a child that does `work`."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def train(folder: Path) -> None:
    """Train from the newest checkpoint to the end, and leave a digest of the weights in `result`."""
    found = latest_checkpoint(folder / "checkpoints", SETTINGS)
    with run_in(folder, config=SETTINGS, goes_on_from=found) as run:
        run_to_end(run, done=found.step if found else 0, stop=StopRequest())
        weights = run.stages.actor.export_weights().result()
    digest = hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()
    (folder / "result").write_text(json.dumps([found.step if found else 0, digest]))


def train_until_killed(folder: Path, operation: int) -> None:
    """Train, and die at the n-th fsync or rename of something in the folder of checkpoints, before it happens."""
    left = operation

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(what: Any, *rest: Any, **words: Any) -> Any:
            nonlocal left
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what)
            if path.startswith(str(folder / "checkpoints")):
                left -= 1
                if left == 0:
                    (folder / "killed").write_text(f"{name} {path.removeprefix(str(folder))}")
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(what, *rest, **words)

        return counting

    for name in ("fsync", "rename", "replace"):
        setattr(os, name, watched(name, getattr(os, name)))
    train(folder)


def main(parent: Path, every: int) -> None:
    """Try n = 1, 1 + `every`, 1 + 2 `every` ... until the child ends by itself."""
    torch.set_num_threads(1)
    whole = parent / "whole"
    assert in_child(lambda: train(whole)) == 0
    _, expected = json.loads((whole / "result").read_text())
    code, operation = -signal.SIGKILL, 1 - every
    while code == -signal.SIGKILL:
        operation += every
        folder = parent / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        code = in_child(lambda: train_until_killed(folder, operation))  # noqa: B023  it is done with it by then
        at = (folder / "killed").read_text() if code else ""
        assert in_child(lambda: train(folder)) == 0  # noqa: B023
        resumed_from, digest = json.loads((folder / "result").read_text())
        line = {"code": code, "at": at, "resumed_from": resumed_from, "is_same": digest == expected}
        print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
