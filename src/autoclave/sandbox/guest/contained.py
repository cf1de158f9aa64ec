"""The way of a container: the engine has made namespaces, a read-only root and a tmpfs; the rest is done here.

The zygote is the container's main process and gives up root at once. It keeps three capabilities, to give tests a user
of their own and to kill what they leave; a test holds none. Only one cell is open at a time, so all processes but the
zygote and the first process of that cell are the test's.
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
        os.chown(_PROGRAM_FOLDER, -1, self._own_id)  # to a group of one's own no capability is needed
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
        """Fork the first process of a cell; 0 in it."""
        return linux.clone()

    def end_cell(self, pid: int) -> int:
        """Kill the cell and restore what it could change. The wait status of its first process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        leftovers.reap_all()
        self.renew_scratch()
        leftovers.empty_folder(_PROGRAM_FOLDER)
        return status

    def leave(self) -> None:
        """Nothing to do: when the main process of a container ends, all others do."""

    def begin_cell(self, disk_bytes: int, num_files: int) -> None:
        """Adopt what tests leave."""
        linux.die_with_parent()
        linux.set_dumpable(False)
        linux.adopt_orphans()

    def place(self, name: str, content: bytes) -> str:
        """Put an executable file into the cell, where tests may not write."""
        return executable(_PROGRAM_FOLDER, name, content)

    def kill_all(self) -> None:
        """Kill every process of the container but this one and its main process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def renew_scratch(self) -> None:
        """Empty what tests can write, as their user. Raises OSError when something stays."""
        os.setresuid(-1, self._test_id, -1)
        try:
            for folder in self._plan["scratch"]:
                leftovers.empty_folder(folder)
                os.utime(folder)
            for device in self._plan["devices"]:
                os.utime(device)  # else its times would tell the next test of this one
        finally:
            os.setresuid(-1, self._own_id, -1)

    def enter_test(self) -> None:
        """Give up all that the first process needs."""
        os.setresgid(self._test_id, self._test_id, self._test_id)
        os.setresuid(self._test_id, self._test_id, self._test_id)
        linux.drop_capabilities()
        if self._ruleset:
            self._ruleset.restrict()
        os.chdir("/tmp")

    @property
    def own_descriptor(self) -> int:
        """Descriptor that a test still needs when it closes all it was not given; -1 for none."""
        return self._ruleset.descriptor if self._ruleset else -1

    @property
    def num_own_processes(self) -> int:
        """Tests have a user of their own."""
        return 0

    def _allow_files(self) -> None:
        """Hide, where Landlock is available, /proc and /sys from tests, too."""
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
    """Two user ids that other containers do not use: limits on processes are counted per user."""
    with open("/proc/self/uid_map") as file:
        ranges = [[int(field) for field in line.split()] for line in file]
    wanted = _FIRST_ID + 2 * (number % _PAIRS)
    if any(inside <= wanted and wanted + 1 < inside + length for inside, _, length in ranges):
        return wanted
    inside, _, length = max(ranges, key=lambda entry: entry[2])
    return inside + length - 2 - 2 * (number % (length // 4))
