"""Zygotes that share the host's namespaces: `restricted`, shut in by Landlock and seccomp, and `open`, not at all."""

import contextlib
import errno
import os
import signal
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoclave.config.levels import Level
from autoclave.core import IsolationError
from autoclave.sandbox.cgroups import find_place, remove_stale_groups
from autoclave.sandbox.guest.leftovers import empty_folder
from autoclave.sandbox.host import check_landlock, may_change_user
from autoclave.sandbox.interface import Profile
from autoclave.sandbox.launch import Meter, Usage
from autoclave.sandbox.namespace.launch import Identity, NamespaceZygote, new_identity
from autoclave.sandbox.namespace.root import RootPlan, base_interpreter, root_plan
from autoclave.sandbox.watch import descendants
from autoclave.sandbox.zygote_process import ZygoteProcess

_LEAVE_TIMEOUT_S = 10.0
_COUNTED_FILES = 10_000


class OpenLauncher:
    """Zygotes without isolation. Started by root, tests have a user of their own all the same."""

    level: Level = "open"

    def __init__(self) -> None:
        self._root = root_plan(base_interpreter())
        self._place = find_place()
        if self._place.is_usable:
            remove_stale_groups(self._place)

    def launch(self, profile: Profile) -> "UnsealedZygote":
        process = ZygoteProcess(self._root.executable, self._place)
        folder = tempfile.mkdtemp(prefix="autoclave-")
        os.chmod(folder, 0o711)
        root = root_plan(self._root.executable, profile.packages, profile.paths)
        for source, target in root.placed:
            packages = Path(folder, "packages")
            packages.mkdir(exist_ok=True)
            (packages / Path(target).name).symlink_to(source)
        return UnsealedZygote(process, self._plan(folder, root), folder)

    def _plan(self, folder: str, root: RootPlan) -> dict[str, Any]:
        shown = [*root.binds, *(source for source, _ in root.placed), folder]
        identity = new_identity() if may_change_user() else Identity("single")
        is_own = identity.kind == "range"
        return {
            "confinement": "open",
            "folder": folder,
            "test_id": identity.base + 1 if is_own else None,
            "is_interpreter_private": is_own and not all(map(_is_public, shown)),
            "search_path": [f"{folder}/packages"] if root.placed else [],
        }


class RestrictedLauncher(OpenLauncher):
    """Zygotes for hosts that refuse namespaces."""

    level: Level = "restricted"

    def __init__(self) -> None:
        """Check the kernel.

        Raises IsolationError: its Landlock cannot confine files, or signals where tests share the user.
        """
        super().__init__()
        check = check_landlock()
        if not check.is_present:
            raise IsolationError(f"{check.name}: {check.detail}. Fix: {check.fix}")

    def _plan(self, folder: str, root: RootPlan) -> dict[str, Any]:
        readable, listed = _readable(root)
        readable += [source for source, _ in root.placed]
        listed += [f"{folder}/packages"] if root.placed else []
        devices = [path for path in root.binds if path.startswith("/dev/")]
        rules = {"confinement": "restricted", "readable": readable, "listed": listed, "devices": devices}
        return super()._plan(folder, root) | rules


class UnsealedZygote(NamespaceZygote):
    """A zygote that ends its cells itself, and has a folder on the host's disk."""

    def __init__(self, process: ZygoteProcess, plan: dict[str, Any], folder: str) -> None:
        super().__init__(process, plan, Identity("single"))
        self._folder = folder

    def meter(self, first_process: Callable[[], int]) -> "FolderMeter":
        return FolderMeter(super().meter(first_process), f"{self._folder}/area")

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self.control.shutdown(2)  # the zygote ends its cell and itself ...
        self._process.wait(_LEAVE_TIMEOUT_S)
        while self._process.is_running() and (left := list(descendants(self._process.pid))):
            for pid in left:  # ... or is killed
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        super().kill()
        if Path(self._folder).exists():
            empty_folder(self._folder)
            os.rmdir(self._folder)


class FolderMeter:
    """Counts files as well. Misses unlinked open files, which the limit of one file's size bounds."""

    def __init__(self, meter: Meter, folder: str) -> None:
        self._folder = folder
        self._meter = meter
        self.kills = meter.kills
        self.begin_cell = meter.begin_cell
        self.begin_test = meter.begin_test
        self.end_test = meter.end_test
        self.is_memory_exceeded = meter.is_memory_exceeded
        self.refusal_of_host = meter.refusal_of_host
        self.preparing_cpu_s = meter.preparing_cpu_s

    def usage(self) -> Usage:
        disk_mb, num_files = folder_use(self._folder)
        return replace(self._meter.usage(), disk_mb=disk_mb, num_files=num_files)


def folder_use(folder: str) -> tuple[float, int]:
    """Return MiB and number of the files below. In a folder too deep to follow, the number exceeds every limit."""
    num_bytes, num_files, waiting = 0, 0, [folder]
    while waiting and num_files < _COUNTED_FILES:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    num_files += 1
                    num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM):
                return num_bytes / 2**20, _COUNTED_FILES
    return num_bytes / 2**20, num_files


def _readable(root: RootPlan) -> tuple[list[str], list[str]]:
    """Return paths that may be read, and paths that may only be listed: folders with hidden parts."""
    readable: list[str] = []
    listed: list[str] = []
    for path in root.binds:
        hidden = {mask for mask in root.masks if os.path.dirname(mask) == path}
        if hidden:
            listed.append(path)
            readable += sorted({entry.path for entry in os.scandir(path)} - hidden)
        elif not path.startswith("/dev/"):
            readable.append(path)
    return readable, listed


def _is_public(path: str) -> bool:
    """Return whether every user may pass all folders on the way to `path`."""
    return all(os.stat(folder).st_mode & stat.S_IXOTH for folder in Path(path).resolve().parents)
