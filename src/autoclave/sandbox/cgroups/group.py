"""One control group per zygote: made, locked, filled, removed.

A group that is in use is locked (`flock` on its folder), and the kernel frees the lock when the judging process dies,
however that happens. So whoever gets the lock of a group that it did not make knows that nobody will remove it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import threading
import time
from pathlib import Path

from autoclave.core import SandboxFault
from autoclave.sandbox.cgroups.files import CpuTime, Memory, MemoryV1, MemoryV2, OpenFolder, Processes
from autoclave.sandbox.cgroups.place import Place
from autoclave.sandbox.cgroups.watcher import PREFIX, Watcher
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
            except (FileExistsError, BlockingIOError, FileNotFoundError):  # another made it, or removed it already
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
            with contextlib.suppress(OSError):  # in use, or somebody else removes it
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
