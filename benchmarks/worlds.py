"""Worlds of episodes: the cost of a reset, of a fork, and whether a reset leaves a difference.

`reset`: a world of 10,000 files and 100,000 rows, of which an episode changes 20 files and 200 rows: `reset_speedup` is
the time of removing and making that world, over that of its reset, when a command and a statement changed it;
`reset_speedup_by_actions`, when 20 writes and a statement did. Both have the same disk, in turn; `cpu` is the CPU time
of this process alone, which depends less on what else the machine does.

`forks`: `fork_ms` is the time until the first command in a new fork has ended, beside that of the same command without
a world (`sh -c`), and in a copy-on-write workspace of `sandlock`, if it is installed.

`differences`: episodes of random changes in a small world, each followed by a reset. A manifest of `world_changes.py`,
which shares no code with the world's own, is compared with that of the world as it was prepared.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from harness import argument_parser, finish, print_environment, seconds, sized
from world_changes import ALL, build, manifest_of, random_changes

from autoclave.environments.worlds import World

Cost = tuple[float, float]


def cost(work: Callable[[], object]) -> Cost:
    """Return the wall-clock and the CPU milliseconds of this process for some work."""
    cpu_s, wall_s = time.process_time(), seconds(work)
    return wall_s * 1000, (time.process_time() - cpu_s) * 1000


def resets(place: Path, files: int, rows: int, rounds: int) -> dict[str, float]:
    """Measure resets, and removing and making the world."""
    command = "for file in folder-*/*; do echo new > $file; n=$((n + 1)); [ $n = 20 ] && exit; done"
    by_command = [{"do": "run", "command": ["sh", "-c", command]}]
    by_actions = [{"do": "write", "path": f"folder-0/file-{each}.txt", "content": "new"} for each in range(20)]
    changed = min(200, rows)
    statement = {"do": "sql", "database": "shop", "statements": [f"UPDATE orders SET state='x' WHERE id < {changed}"]}
    recreating, by = list[Cost](), {"": list[Cost](), "_by_actions": list[Cost]()}
    for number in range(rounds):
        with World(place, lambda tree: build(tree, files, rows)) as world:
            for _ in range(2 if number == 0 else 1):  # a first one that is not counted: parts are loaded on first use
                for name, operations in (("", by_command), ("_by_actions", by_actions)):
                    world.begin([ALL])
                    for each in (*operations, statement):
                        done = world.session.attempt(each)
                        assert not done.is_error, done
                    by[name].append(cost(world.reset))
            if number == 0:
                by = {name: took[1:] for name, took in by.items()}

        def recreate() -> None:
            shutil.rmtree(place)
            (place / "world" / "files").mkdir(parents=True)
            build(place / "world", files, rows)

        recreating.append(cost(recreate))
        shutil.rmtree(place)
    figures = dict[str, float]()
    for kind, place_of in (("", 0), ("_cpu", 1)):
        whole = figures[f"recreate{kind}_ms"] = median(each[place_of] for each in recreating)
        for name, costs in by.items():
            part = figures[f"reset{name}{kind}_ms"] = median(each[place_of] for each in costs)
            figures[f"reset_speedup{name}{kind}"] = whole / part
    return figures


def forks(place: Path, files: int, rows: int, count: int) -> dict[str, float | None]:
    """Measure forks with a first command, and their resets."""
    figures: dict[str, float | None] = {}
    command = ["sh", "-c", "echo new > files/folder-0/file-1.txt"]
    with World(place, lambda tree: build(tree, files, rows)) as world:

        def fork() -> None:
            with world.fork() as made:
                assert made.run(command).exit_code == 0

        fork()
        took = {"fork_ms": [seconds(fork) * 1000 for _ in range(count)]}
        with world.fork() as made:
            made.run(command)
            figures["fork_reset_ms"] = seconds(made.reset) * 1000
        files_folder = world.tree / "files"
        bare = ["sh", "-c", "echo new > /dev/null"]
        took["command_ms"] = [
            seconds(lambda: subprocess.run(bare, cwd=files_folder, check=True)) * 1000 for _ in range(count)
        ]
        if find_spec("sandlock"):
            took["sandlock_fork_ms"] = [seconds(lambda: _in_sandlock(world.tree, command)) * 1000 for _ in range(count)]
    for name, values in took.items():
        hundredths = quantiles(values, n=100, method="inclusive")
        figures |= {f"{name}_p50": median(values), f"{name}_p99": hundredths[98]}
    return figures


def _in_sandlock(tree: Path, command: list[str]) -> None:
    from sandlock import BranchAction, Sandbox  # pyright: ignore[reportMissingImports]

    read = [path for path in ("/usr", "/lib", "/lib64", "/bin", "/etc", "/dev") if Path(path).exists()]
    with tempfile.TemporaryDirectory() as storage:
        box = Sandbox(
            fs_readable=[*read, str(tree)],
            fs_writable=[str(tree)],
            workdir=str(tree),
            cwd=str(tree),
            fs_storage=storage,
            on_exit=BranchAction.ABORT,
            on_error=BranchAction.ABORT,
        )
        done = box.run(command)
    assert done.success, done
    assert (tree / "files/folder-0/file-1.txt").read_text() == "line 1\n" * 5


def differences(place: Path, episodes: int, seed: int) -> dict[str, int]:
    """Count the resets after which an independent manifest differs, in episodes of random changes."""
    drawn, found, attempted, done = random.Random(seed), 0, 0, 0
    with World(place, lambda tree: build(tree, 20, 60), check_every=50) as world:
        prepared = manifest_of(world.tree)
        for _ in range(episodes):
            world.begin([ALL])
            snapshot, at_snapshot = "", {}
            for each in random_changes(world.tree, drawn):
                attempted += 1
                done += not world.session.attempt(each).is_error
                if not snapshot and drawn.random() < 0.2:
                    snapshot, at_snapshot = world.snapshot(), manifest_of(world.tree)
            if snapshot and drawn.random() < 0.5:
                world.restore(snapshot)
                found += manifest_of(world.tree) != at_snapshot
            world.reset()
            found += manifest_of(world.tree) != prepared
    return {"reset_differences": found, "episodes": episodes, "changes_attempted": attempted, "changes_done": done}


PARTS = ("reset", "forks", "differences")


def main() -> None:
    """Measure the parts that the options name."""
    parser = argument_parser("What a reset and a fork of a world cost, and whether a reset leaves a difference")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--episodes", type=int, help="random episodes of `differences`")
    parser.add_argument("--seed", type=int, default=0, help="of `differences`")
    options = parser.parse_args()
    print_environment()
    figures: dict[str, Any] = {}
    files, rows = sized(options, (10_000, 100_000), (10_000, 100_000), (40, 200))
    with tempfile.TemporaryDirectory() as folder:
        if "reset" in options.only:
            figures |= resets(Path(folder, "reset"), files, rows, sized(options, 5, 2, 1))
        if "forks" in options.only:
            figures |= forks(Path(folder, "forks"), files, rows, sized(options, 64, 16, 2))
        if "differences" in options.only:
            episodes = options.episodes or sized(options, 10_000, 300, 2)
            figures |= differences(Path(folder, "differences"), episodes, options.seed)
    finish("worlds", figures, options.json)


if __name__ == "__main__":
    main()
