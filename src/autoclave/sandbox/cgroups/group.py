"""One control group per zygote: made, locked, filled, removed.

A group that is in use is locked (`flock` on its folder), and the kernel frees the lock when the judging process dies,
however that happens. So a process that gets the lock of another's group knows that its owner has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoclave.core import SandboxFault
from autoclave.sandbox.cgroups.files import CpuTime, Memory, MemoryV1, MemoryV2, OpenFolder, Processes
from autoclave.sandbox.exhaustion import cause_of

_REMOVE_TIMEOUT_S = 10.0
_counter = itertools.count()
_log = logging.getLogger(__name__)


class Group:
    """A group with all controllers of a place, and its open files."""

    def __init__(self, place: Place) -> None:
        """Make it.

        Raises:
            SandboxFault: the kernel refuses.
        """
        self._locks: dict[Path, int] = {}
        self._folders: list[OpenFolder] = []
        self._watcher: Watcher | None = None
        self._removing = threading.Lock()
        try:
            self._watcher = Watcher.of(place.folders, self)
            self._make(place.folders)
            self._open(place)
        except OSError as error:
            self.remove()
            raise SandboxFault(f"no control group can be made: {cause_of(error)}") from None
        except BaseException:
            self.remove()
            raise

    def take_in(self, pid: int) -> None:
        """Move a process here; its later children are born here.

        Raises:
            SandboxFault: the kernel refuses.
        """
        try:
            for folder in self._locks:
                (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise SandboxFault(f"a zygote cannot be moved into its control group: {error}") from None

    def remove(self) -> None:
        """Remove it once its last process has ended. May be called again, and from several threads."""
        with self._removing:
            self._remove_folders()
            if self._watcher:
                self._watcher.leave(self)

    def _remove_folders(self) -> None:
        for folder in self._folders:
            folder.close()
        deadline = time.monotonic() + _REMOVE_TIMEOUT_S
        while self._locks:
            folder, lock = self._locks.popitem()
            _remove(folder, deadline)
            os.close(lock)

    def _make(self, parents: list[Path]) -> None:
        while True:
            name = f"{PREFIX}{os.getpid()}-{next(_counter)}"
            try:
                for parent in parents:
                    self._make_one(parent / name)
            except (FileExistsError, BlockingIOError, FileNotFoundError):  # another process made or removed it
                self._remove_folders()
                if not all(parent.is_dir() for parent in parents):
                    raise
            else:
                return

    def _make_one(self, folder: Path) -> None:
        folder.mkdir()
        self._locks[folder] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._locks[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(self._locks[folder]), folder.stat()):  # removed before it was locked
            raise FileNotFoundError(folder)

    def _open(self, place: Place) -> None:
        self._folders = [OpenFolder(folder) for folder in self._locks]
        own = dict(zip(place.folders, self._folders, strict=True))
        memory, cpu, pids = (place.seats.get(name) for name in ("memory", "cpu", "pids"))
        assert memory is not None
        assert cpu is not None
        kind = MemoryV1 if memory.version == 1 else MemoryV2
        self.memory: Memory = kind(own[memory.folder])
        self.cpu = CpuTime(own[cpu.folder], cpu.version)
        self.processes = Processes(own[pids.folder]) if pids else None


def remove_stale_groups(place: Place) -> None:
    """Remove the groups of judging processes that were killed. Those of living ones are locked."""
    for parent in place.folders:
        for folder in parent.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # in use, or removed by another process
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    folder.rmdir()
                finally:
                    os.close(lock)


def _remove(folder: Path, deadline: float) -> None:
    """Remove one folder. Killed processes leave a group a little after they died."""
    pause_s = 0.001
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                _log.warning("control group %s stays behind: %s", folder, error)
                return
        else:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


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
    """Seats of the controllers `memory`, `cpu` and `pids`, and the reason for each missing one."""

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
    """Return why no group with this controller can be made at `seat`; empty if one can."""
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


PREFIX = "autoclave-cell-"
_PAUSES_S = "0 .01 .02 .05 .1 .2 .5 1 2 4"
"""Before each attempt: killed processes leave a group a little after they died."""
_SCRIPT = """
read -r _ && exit
for pause in {pauses}; do
    sleep $pause
    left=
    for group in {groups}; do
        [ ! -d "$group" ] || rmdir "$group" 2>/dev/null || left=1
    done
    [ "$left" ] || exit
done
"""
_lock = threading.Lock()
_users: dict[Watcher, set[int]] = {}


class Watcher:
    """Shared by all groups below the same folders. It waits on a pipe that this process alone holds."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.groups = _own_groups(folders)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT.format(pauses=_PAUSES_S, groups=self.groups)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )

    @classmethod
    def of(cls, folders: Sequence[Path], user: object) -> Watcher:
        """Return the watcher of `folders`, started if there is none. It runs until all of its users have left.

        Raises OSError: no process can be started.
        """
        with _lock:
            found = next((each for each in _users if each.groups == _own_groups(folders)), None) or cls(folders)
            _users.setdefault(found, set()).add(id(user))
            return found

    def leave(self, user: object) -> None:
        """End it if it has no other user. May be called again, and from several threads."""
        with _lock:
            users = _users.get(self, set())
            users.discard(id(user))
            if not users and _users.pop(self, None) is not None:
                self._process.communicate(b"\n")


def _own_groups(folders: Sequence[Path]) -> str:
    """Patterns of the groups of this process, as the shell reads them."""
    return " ".join(f"{shlex.quote(str(folder))}/{PREFIX}{os.getpid()}-*" for folder in folders)
