"""What hooks and the shell of agent hosts cost, and whether the observer misses changes; part of `agents.py`."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from shell_budget import told

from autoclave.act.client import exchange
from autoclave.act.install import hook_command
from autoclave.act.observer import Observer, ToolUse, observer_folder
from autoclave.act.resident import hand_over
from autoclave.runtime.opening import default_state, open_records, open_session
from autoclave.runtime.policy import Grant

_PER_FOLDER = 100


def build(root: Path, num_files: int) -> Path:
    for number in range(num_files):
        folder = root / f"folder{number // _PER_FOLDER}"
        if number % _PER_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"file{number % _PER_FOLDER}").write_text(f"line\n{number}\n" * 20)
    return root


def observer_overhead(place: Path, num_files: int, rounds: int) -> dict[str, float]:
    """Milliseconds that a host waits for both hooks of a tool use that changes one file, and of one that changes none.

    A tenth of a second passes between tool uses, as a model takes longer. `observer_first_s`: the start of an observer
    with the first copy of the folder.
    """
    root = build(place / "observed", num_files)
    began = time.perf_counter()
    hand_over("start", b"{}", root, None, "main")
    first_s = time.perf_counter() - began
    folder = observer_folder(default_state(root))
    commands = {event: shlex.split(hook_command(folder, event, ["--root", str(root)])) for event in ("before", "after")}
    times: dict[bool, list[float]] = {True: [], False: []}

    def fire(event: str, number: int) -> float:
        what = {"session_id": "s", "tool_name": "Bash", "tool_use_id": f"{number}", "tool_input": {"command": "x"}}
        begun = time.perf_counter()
        subprocess.run(commands[event], input=json.dumps(what).encode(), check=True)
        return time.perf_counter() - begun

    for number in range(2 * rounds):
        time.sleep(0.1)
        before = fire("before", number)
        if is_changing := number % 2 == 0:
            (root / "folder0" / "file0").write_text(f"{number}\n")
        times[is_changing].append(before + fire("after", number))
    with contextlib.suppress(ConnectionResetError):  # it ends without an answer
        exchange(str(folder), "stop", b"{}")
    spread = sorted(times[True])
    print(f"both hooks: {spread[0] * 1000:.1f} to {spread[-1] * 1000:.1f} ms in {rounds} rounds")
    changing, quiet = (statistics.median(times[each]) * 1000 for each in (True, False))
    return {"observer_overhead_ms": changing, "observer_quiet_ms": quiet, "observer_first_s": first_s}


def shell_overhead(place: Path, num_files: int, rounds: int) -> dict[str, float]:
    """Milliseconds from start to end of a small command by `act shell --resident`, beyond those that it takes alone.

    Half a second passes between commands, as a model takes longer. `shell_alone_ms`: by `act shell` without the process
    that is kept, which loads everything.
    """
    root = build(place / "shell", num_files)
    with open_records(root) as (_, permissions):
        permissions.grant(Grant(resources=("files/**", "programs/**"), verbs=("*",)))
    line = [sys.executable, "-m", "autoclave", "act", "shell", "--root", str(root)]
    folder, clocks = default_state(root) / "shell", place / "clocks"
    folder.mkdir(parents=True)
    clocked = [sys.executable, "-c", "import shell_budget; shell_budget.main()", str(folder), str(root), str(clocks)]
    resident = subprocess.Popen(clocked, cwd=Path(__file__).parent)
    while not (folder / "socket").exists():  # or the command would start a process of its own
        assert resident.poll() is None, "the process of act shell has ended"
        time.sleep(0.1)
    quick = shlex.split(subprocess.run([*line, "--resident"], stdout=subprocess.PIPE, check=True).stdout.decode())
    prefixes = {"bare": [], "resident": quick, "alone": [*line, "--"]}
    times: dict[str, list[float]] = {name: [] for name in prefixes}
    for number in range(rounds + 1):
        for name, prefix in prefixes.items():
            if name == "alone" and number % 10:
                continue
            time.sleep(0.5)
            began = time.perf_counter()
            subprocess.run([*prefix, "sh", "-c", f"echo {number} > folder0/file0"], cwd=root, check=True)
            if number:
                times[name].append(time.perf_counter() - began)
    with contextlib.suppress(ConnectionResetError):  # it ends without an answer
        exchange(str(folder), "stop", b"")
    resident.wait(60)
    spread = sorted(times["resident"])
    print(f"act shell: {spread[0] * 1000:.1f} to {spread[-1] * 1000:.1f} ms in {rounds} rounds, {told(clocks)}")
    bare, ours, alone = (statistics.median(found or [0.0]) * 1000 for found in times.values())
    return {"shell_overhead_ms": ours - bare, "shell_alone_ms": alone - bare if alone else 0.0}


# --- Changes ---------------------------------------------------------------------------------------------------------


def missed_changes(place: Path, num_uses: int) -> dict[str, float]:
    """The number of changed entries that no step covers, over so many random tool uses."""
    draw, root = random.Random(0), build(place / "random", 300)
    num_missed = num_changed = 0
    with Observer(root) as observer:
        receipts = []
        for number in range(num_uses):
            use = ToolUse(f"{number}", "Bash")
            observer.before(use)
            was = manifest(root)
            for _ in range(draw.randint(1, 3)):
                with contextlib.suppress(OSError):  # as of tools
                    draw.choice(KINDS)(draw, draw.choice(files(root)), root)
            action, _ = observer.after(use)
            now = manifest(root)
            receipts.append((action, {path for path in was.keys() | now.keys() if was.get(path) != now.get(path)}))
    with open_session(root) as session:
        for action, changed in receipts:
            num_changed += len(changed)
            steps = [step["path"] for step in session.actions.receipt(action)["steps"]] if action else []
            num_missed += sum(not any(f"{path}/".startswith(f"{step}/") for step in steps) for path in changed)
    print(f"{num_changed} changed entries in {num_uses} tool uses, {num_missed} missed")
    return {"changes_missed": num_missed}


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def manifest(root: Path) -> dict[str, tuple[object, ...]]:
    """All that an undo restores of each entry, but the times of folders."""
    found: dict[str, tuple[object, ...]] = {}
    for path in root.rglob("*"):
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        time_ns = 0 if path.is_dir() and not path.is_symlink() else about.st_mtime_ns
        found[str(path.relative_to(root))] = (about.st_mode, time_ns, content)
    return found


def same_size_and_time(draw: random.Random, path: Path, root: Path) -> None:
    about = path.stat()
    with path.open("r+b") as file:
        file.write(draw.randbytes(3))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def mapped(draw: random.Random, path: Path, root: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        content[draw.randrange(len(content))] = draw.randrange(256)


KINDS: tuple[Callable[[random.Random, Path, Path], object], ...] = (
    lambda draw, path, root: path.write_bytes(draw.randbytes(100)),
    lambda draw, path, root: path.with_name(f"new{draw.randrange(99)}").write_bytes(draw.randbytes(100)),
    lambda draw, path, root: path.replace(draw.choice(files(root))),
    lambda draw, path, root: path.rename(path.with_name(f"moved{draw.randrange(99)}")),
    lambda draw, path, root: path.chmod(draw.choice([0o600, 0o644, 0o755])),
    lambda draw, path, root: path.with_name(f"link{draw.randrange(99)}").symlink_to(path.name),
    lambda draw, path, root: os.link(path, path.with_name(f"other{draw.randrange(99)}")),
    lambda draw, path, root: os.truncate(path, draw.randrange(1, 200)),
    lambda draw, path, root: (path.parent / f"folder{draw.randrange(99)}" / "in").mkdir(parents=True),
    lambda draw, path, root: path.unlink() if draw.random() < 0.5 else None,
    same_size_and_time,
    mapped,
)
