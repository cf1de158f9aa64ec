"""Confinement in a container, whose engine has made namespaces, a read-only root and a tmpfs.

The zygote is the container's main process and gives up root at once. It keeps three capabilities, to give tests a user
of their own and to kill their processes; a test holds none. Only one cell is open at a time, so all processes but the
zygote and the first process of that cell belong to the test.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from . import landlock, leftovers, linux
from .filter import filter_program
from .program_file import executable

_PROGRAM_FOLDER = "/program"
_FIRST_ID = 0x70000000
_PAIRS = 1 << 20
_CHANGE_GROUP, _CHANGE_USER, _KILL = 6, 7, 5  # capabilities


class Contained:
    """For a container without privileges, with a tmpfs for each folder in the plan's `scratch`."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        self._plan = plan
        self._own_id = _id_pair(plan["number"])
        self.test_id: int | None = self._own_id + 1
        self._test_id = self._own_id + 1
        self._ruleset: landlock.Ruleset | None = None

    def enter(self, request_ids: Callable[[], None]) -> None:
        """Become an ordinary user that may act for the user of tests, and load the filter."""
        for folder in self._plan["scratch"]:
            os.chmod(folder, 0o1777)  # podman gives its tmpfs the modes of the folder below
        os.setgroups([self._own_id])
        os.chown(_PROGRAM_FOLDER, -1, self._own_id)  # needs no capability for a group of one's own
        os.chmod(_PROGRAM_FOLDER, 0o775)
        linux.keep_capabilities_over_users()
        os.setgroups([])
        os.setresgid(self._own_id, self._own_id, self._own_id)
        os.setresuid(self._own_id, self._own_id, self._own_id)
        linux.hold_capabilities(_CHANGE_GROUP, _CHANGE_USER, _KILL)
        linux.renounce_privileges()
        linux.set_dumpable(False)
        self._allow_files()
        linux.load_filter(filter_program(linux.MACHINE, may_mount=False))

    def start_cell(self) -> int:
        return linux.clone()

    def end_cell(self, pid: int) -> int:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        leftovers.reap_all()
        self.renew_scratch()
        leftovers.empty_folder(_PROGRAM_FOLDER)
        return status

    def leave(self) -> None:
        pass  # a container ends with its main process

    def begin_cell(self, disk_bytes: int, num_files: int) -> None:
        linux.die_with_parent()
        linux.set_dumpable(False)
        linux.adopt_orphans()

    def place(self, name: str, content: bytes) -> str:
        return executable(_PROGRAM_FOLDER, name, content)

    def kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def renew_scratch(self) -> None:
        """Empty the folders that tests can write, as their user. Raises OSError if a file stays."""
        os.setresuid(-1, self._test_id, -1)
        try:
            for folder in self._plan["scratch"]:
                leftovers.empty_folder(folder)
                os.utime(folder)
            for device in self._plan["devices"]:
                os.utime(device)  # else the next test could read the times that this one set
        finally:
            os.setresuid(-1, self._own_id, -1)

    def enter_test(self) -> None:
        os.setresgid(self._test_id, self._test_id, self._test_id)
        os.setresuid(self._test_id, self._test_id, self._test_id)
        linux.drop_capabilities()
        if self._ruleset:
            self._ruleset.restrict()
        os.chdir("/tmp")

    @property
    def own_descriptor(self) -> int:
        return self._ruleset.descriptor if self._ruleset else -1

    @property
    def num_own_processes(self) -> int:
        return 0

    def _allow_files(self) -> None:
        """Hide /proc and /sys from tests, where Landlock is available."""
        if landlock.version() < landlock.FIRST_WITH_TRUNCATE:
            return
        ruleset = landlock.Ruleset()
        for path in self._plan["readable"]:
            ruleset.allow(path, landlock.READ_ONLY)
        for path in self._plan["devices"]:
            ruleset.allow(path, landlock.READ_WRITE)
        for path in self._plan["scratch"]:
            ruleset.allow(path, landlock.EVERYTHING)
        ruleset.allow(_PROGRAM_FOLDER, landlock.READ_ONLY)
        self._ruleset = ruleset


def _id_pair(number: int) -> int:
    """Return the first of two user ids that no other container uses: process limits are counted per user."""
    with open("/proc/self/uid_map") as file:
        ranges = [[int(field) for field in line.split()] for line in file]
    wanted = _FIRST_ID + 2 * (number % _PAIRS)
    if any(inside <= wanted and wanted + 1 < inside + length for inside, _, length in ranges):
        return wanted
    inside, _, length = max(ranges, key=lambda entry: entry[2])
    return inside + length - 2 - 2 * (number % (length // 4))
