"""A program: writes a checkpoint in a child that is killed with -9 at its n-th file operation, for n = 1, 2, 3 ...

For each n it prints a JSON line with what was left; the last line is that of the child that ended by itself. Light: no
tensor library, and so no threads that a fork would lose.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from autoclave.config import CheckpointConfig, TrainConfig
from autoclave.core.files import write_manifest
from autoclave.training.checkpoints import Checkpoints, latest_checkpoint

CONFIG = TrainConfig(checkpoint=CheckpointConfig(keep=1))
CONTENT = {"actor/shard-1": 9000, "actor/shard-2": 10, "algorithm.json": 5000}
"""Files of a checkpoint, and how often each repeats the number of its step."""


class State:
    """Writes each file in two pieces, with an operation to be killed at between the two."""

    def __init__(self, step: int) -> None:
        self._step = step

    def begin_save(self, folder: Path) -> None:
        """Write all files."""
        for name, size in CONTENT.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            with path.open("w") as file:
                file.write(str(self._step) * (size // 2))
                file.flush()
                sys.audit("killed_writer.half", str(path))
                file.write(str(self._step) * (size - size // 2))
        write_manifest(folder / "actor")

    def finish_save(self, wait: bool) -> bool:
        """They are written."""
        return True


def save(parent: Path, step: int) -> None:
    """Save the checkpoint of a step, of one digit."""
    with Checkpoints(parent, CONFIG, State(step)) as checkpoints:
        checkpoints.begin(step, {})


def is_whole(folder: Path, step: int) -> bool:
    """Every file of the checkpoint is there to its end."""
    return all((folder / name).read_text() == str(step) * size for name, size in CONTENT.items())


def save_until_killed(parent: Path, operation: int) -> int:
    """Save step 2 in a child that dies at its n-th operation below `parent`; its exit code."""
    pid = os.fork()
    if pid == 0:
        left = operation

        def count(event: str, arguments: tuple) -> None:
            nonlocal left
            if arguments and str(arguments[0]).startswith(str(parent)):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        save(parent, 2)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def main(parent: Path) -> None:
    """Try n = 1, 2, 3 ... until the child ends by itself."""
    code, operation = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        operation += 1
        shutil.rmtree(parent, ignore_errors=True)
        save(parent, 1)
        code = save_until_killed(parent, operation)
        found = latest_checkpoint(parent, CONFIG)
        line = {
            "code": code,
            "step": found and found.step,
            "is_whole": bool(found and is_whole(found.folder, found.step)),
        }
        save(parent, 3)
        print(json.dumps(line | {"after_the_next": sorted(path.name for path in parent.iterdir())}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
