"""Confinement of the processes of a cell: one class per kind, chosen by the judge's plan.

zygote          enter()                 once, before any program
zygote          start_cell()            a fork that becomes the first process of a cell
zygote          end_cell(pid)           kills it with its descendants, and undoes their changes
zygote          leave()                 when the judge has ended
first process   begin_cell(limits)      before the program is prepared
first process   kill_all()              after each test, until nothing is left to reap
first process   renew_scratch()         after each test
test            enter_test()            before the runner
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any, Protocol

from . import linux
from .contained import Contained
from .enter import enter
from .program_file import executable
from .unsealed import Open, Restricted

PROGRAM_FOLDER = "/program"


class Confinement(Protocol):
    """One kind of confinement. The module documents when and by which process each method is called."""

    test_id: "int | None"
    """User and group of tests inside of the cell; None when all processes have the same."""

    @property
    def own_descriptor(self) -> int:
        """Descriptor that a test keeps besides its own; -1 for none."""
        ...

    @property
    def num_own_processes(self) -> int:
        """Processes besides the test's that the kernel counts against its limit."""
        ...

    def enter(self, request_ids: Callable[[], None]) -> None:
        """Confine the zygote irrevocably. `request_ids` has the judge write the id maps."""

    def start_cell(self) -> int:
        """Fork the first process of a cell; 0 in it."""
        ...

    def end_cell(self, pid: int) -> int:
        """Kill all processes of a cell and undo their changes. Return the wait status of the first, `pid`."""
        ...

    def leave(self) -> None:
        """Remove all that outlives the zygote."""

    def begin_cell(self, disk_bytes: int, num_files: int) -> None:
        """Prepare the first process and the file system of the cell."""

    def place(self, name: str, content: bytes) -> str:
        """Put an executable file into the cell, which tests can only read and run."""
        ...

    def kill_all(self) -> None:
        """Kill every process of the cell but the first, which is the caller."""

    def renew_scratch(self) -> None:
        """Make a new scratch file system for the next test."""

    def enter_test(self) -> None:
        """Give up the privileges of the first process, and change to the scratch folder."""


class Sealed:
    """Namespaces, a read-only root, a tmpfs for each test, seccomp; as root a user of its own for tests."""

    own_descriptor = -1

    def __init__(self, plan: "dict[str, Any]") -> None:
        self._plan = plan
        self.test_id: int | None = plan["test_id"] if plan["ids"] == "range" else None
        self.num_own_processes = 2 if self.test_id is None else 0
        self._scratch = ""

    def enter(self, request_ids: Callable[[], None]) -> None:
        enter(self._plan, request_ids)

    clone_flags = linux.CLONE_NEWPID | linux.CLONE_NEWNS  # the filter refuses System V calls, so no ipc namespace

    def start_cell(self) -> int:
        return linux.clone(self.clone_flags)

    def end_cell(self, pid: int) -> int:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # the kernel ends a process namespace with its first process
        return os.waitpid(pid, 0)[1]

    def leave(self) -> None:
        pass  # namespaces and mounts end with their last process

    def begin_cell(self, disk_bytes: int, num_files: int) -> None:
        owner = os.getuid() if self.test_id is None else self.test_id
        self._scratch = f"mode=0700,uid={owner},gid={owner},size={disk_bytes},nr_inodes={num_files}"
        linux.die_with_parent()
        linux.set_dumpable(False)
        self._mount_scratch()

    def place(self, name: str, content: bytes) -> str:
        size = len(content) + (1 << 20)
        flags = linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("program", PROGRAM_FOLDER, "tmpfs", flags, f"mode=0755,size={size}")
        path = executable(PROGRAM_FOLDER, name, content)
        linux.mount(None, PROGRAM_FOLDER, None, linux.MS_REMOUNT | linux.MS_RDONLY | flags)
        return path

    def kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def renew_scratch(self) -> None:
        linux.unmount("/tmp")
        self._mount_scratch()

    def enter_test(self) -> None:
        if self.test_id is None:
            linux.set_dumpable(True)  # else the judge, an ordinary user, could not read its memory use
        else:
            os.setresgid(self.test_id, self.test_id, self.test_id)
            os.setresuid(self.test_id, self.test_id, self.test_id)
        linux.drop_capabilities()
        os.chdir("/tmp")

    def _mount_scratch(self) -> None:
        linux.mount("scratch", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, self._scratch)


_KINDS: "dict[str, Callable[[dict[str, Any]], Confinement]]" = {
    "sealed": Sealed,
    "contained": Contained,
    "restricted": Restricted,
    "open": Open,
}


def confinement_of(plan: "dict[str, Any]") -> Confinement:
    """Return the confinement of the plan."""
    return _KINDS[plan["confinement"]](plan)
