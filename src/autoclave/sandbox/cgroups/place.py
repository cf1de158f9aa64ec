"""Place in which this process may make control groups: version 1, version 2, or some controllers in each.

Nothing is changed, with one exception. In version 2 a group that holds processes cannot hand controllers down. If this
process is alone in a group that it may write to, it moves itself into a leaf below; otherwise such a group is no place.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_LEAF = "autoclave-judge"
_FIRST_VERSION_NAMES = {"memory": "memory", "pids": "pids", "cpu": "cpuacct"}
FIX = (
    "as root nothing; else start it in a group of its own: systemd-run --user --scope -p Delegate=yes autoclave ... "
    "(in a container: mount /sys/fs/cgroup writable, with a group below for the judge alone)"
)


@dataclass(frozen=True, slots=True)
class Seat:
    """The folder below which groups with one controller can be made, and the version that its files follow."""

    folder: Path
    version: int


@dataclass(frozen=True, slots=True)
class Place:
    """Seats of the controllers `memory`, `cpu` and `pids`, and why one that is not there cannot be had."""

    seats: dict[str, Seat]
    missing: dict[str, str]

    @property
    def is_usable(self) -> bool:
        """True if groups can be made that measure both memory and CPU time."""
        return {"memory", "cpu"} <= self.seats.keys()

    @property
    def folders(self) -> list[Path]:
        """Folders below which a group is made, each once."""
        return list(dict.fromkeys(seat.folder for seat in self.seats.values()))


def find_place() -> Place:
    """Return where this process may make groups now."""
    try:
        own = Path("/proc/self/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError as error:
        return Place({}, dict.fromkeys(_FIRST_VERSION_NAMES, f"/proc is not readable: {error}"))
    return place_of(own, mounts)


def place_of(own: str, mounts: str) -> Place:
    """The place of a process, given its /proc/self/cgroup and /proc/self/mountinfo."""
    groups = _groups(own)
    first = {name: folder for kind, names, folder in _folders(groups, mounts) if kind == "cgroup" for name in names}
    second = next((folder for kind, _, folder in _folders(groups, mounts) if kind == "cgroup2"), None)
    seats: dict[str, Seat] = {}
    missing: dict[str, str] = {}
    for controller, first_name in _FIRST_VERSION_NAMES.items():
        if first_name in first:
            seat = Seat(first[first_name], 1)
        elif second is not None:
            seat = Seat(second.parent if second.name == _LEAF else second, 2)
        else:
            missing[controller] = "no control group file system is mounted"
            continue
        problem = _problem(seat, controller)
        if problem:
            missing[controller] = problem
        else:
            seats[controller] = seat
    return Place(seats, missing)


def _groups(own: str) -> dict[str, str]:
    """Controller -> path of the own group; version 2 under the empty name."""
    lines = [line.split(":", 2) for line in own.splitlines() if line.count(":") >= 2]
    return {name: path for _, names, path in lines for name in names.split(",")}


def _folders(groups: dict[str, str], mounts: str) -> list[tuple[str, list[str], Path]]:
    """File system, controllers and folder of the own group, for each mount that shows it."""
    found: list[tuple[str, list[str], Path]] = []
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        kind, *rest = right.split()
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, mount_point = left.split()[3:5]
        names = [name for name in rest[-1].split(",") if name in groups] if kind == "cgroup" else [""]
        path = groups.get(names[0]) if names else None
        if path is not None and (path == root or path.startswith(root.rstrip("/") + "/")):
            found.append((kind, names, Path(mount_point) / path[len(root.rstrip("/")) :].lstrip("/")))
    return found


def _problem(seat: Seat, controller: str) -> str:
    """Reason for which no group with this controller can be made at `seat`; empty when it can."""
    if not os.access(seat.folder, os.W_OK | os.X_OK):
        return f"{seat.folder} may not be written by this user"
    if seat.version == 1 or controller == "cpu":  # version 2 counts CPU time in every group
        return ""
    if controller not in _words(seat.folder / "cgroup.controllers"):
        return f"{seat.folder} was not given the controller {controller}"
    control = seat.folder / "cgroup.subtree_control"
    if controller in _words(control):
        return ""
    try:
        _leave(seat.folder)
        control.write_text(f"+{controller}")
    except OSError as error:
        return f"{control} cannot be set, other processes are in that group ({error.strerror})"
    return ""


def _leave(folder: Path) -> None:
    """Move this process into a leaf if it is alone in the group; the root of all may keep its processes."""
    if (folder / "cgroup.procs").read_text().split() == [str(os.getpid())]:
        with contextlib.suppress(FileExistsError):
            (folder / _LEAF).mkdir()
        (folder / _LEAF / "cgroup.procs").write_text(str(os.getpid()))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
