"""Worlds of episodes: the cost of a reset, and whether a reset leaves a difference.

`reset`: a world of 10,000 files and 100,000 rows, of which an episode changes 20 files and 200 rows: `reset_speedup` is
the time of removing and making that world, over that of its reset, when a command and a statement changed it;
`reset_speedup_by_actions`, when 20 writes and a statement did. Both cells have the same disk, in turn.

`differences`: episodes of random changes in a small world, each followed by a reset. A manifest of `world_changes.py`,
which shares no code with the world's own, is compared with that of the world as it was prepared.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from harness import argument_parser, finish, print_environment, seconds, sized
from world_changes import ALL, build, manifest_of, random_changes

from autoclave.environments.worlds import World


def resets(place: Path, files: int, rows: int, rounds: int) -> dict[str, float]:
    """Measure resets, and removing and making the world."""
    command = "for file in folder-*/*; do echo new > $file; n=$((n + 1)); [ $n = 20 ] && exit; done"
    by_command = [{"do": "run", "command": ["sh", "-c", command]}]
    by_actions = [{"do": "write", "path": f"folder-0/file-{each}.txt", "content": "new"} for each in range(20)]
    changed = min(200, rows)
    statement = {"do": "sql", "database": "shop", "statements": [f"UPDATE orders SET state='x' WHERE id < {changed}"]}
    recreating, by = list[float](), {"": list[float](), "_by_actions": list[float]()}
    for number in range(rounds):
        with World(place, lambda tree: build(tree, files, rows)) as world:
            for _ in range(2 if number == 0 else 1):  # a first one that is not counted: parts are loaded on first use
                for name, operations in (("", by_command), ("_by_actions", by_actions)):
                    world.begin([ALL])
                    for each in (*operations, statement):
                        done = world.session.attempt(each)
                        assert not done.is_error, done
                    by[name].append(seconds(world.reset))
            if number == 0:
                by = {name: took[1:] for name, took in by.items()}

        def recreate() -> None:
            shutil.rmtree(place)
            (place / "world" / "files").mkdir(parents=True)
            build(place / "world", files, rows)

        recreating.append(seconds(recreate))
        shutil.rmtree(place)
    figures = {"recreate_ms": median(recreating) * 1000}
    for name, took in by.items():
        figures |= {f"reset{name}_ms": median(took) * 1000, f"reset_speedup{name}": median(recreating) / median(took)}
    return figures


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


PARTS = ("reset", "differences")


def main() -> None:
    """Measure the parts that the options name."""
    parser = argument_parser("What a reset of a world costs, and whether a reset leaves a difference")
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
        if "differences" in options.only:
            episodes = options.episodes or sized(options, 10_000, 300, 2)
            figures |= differences(Path(folder, "differences"), episodes, options.seed)
    finish("worlds", figures, options.json)


if __name__ == "__main__":
    main()
