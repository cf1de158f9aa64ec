"""Confinement without namespaces. `Open` only cleans up after tests; `Restricted` also confines them, by Landlock.

Both give a test a fresh folder, kill its processes by walking down from processes that adopt orphans, and set the
kernel's limits per process. As root, tests have a user of their own, which also makes their processes countable.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from . import landlock, leftovers, linux
from .filter import filter_program, metadata_filter
from .program_file import executable

_SEARCH_EVERYWHERE = 2  # the capability CAP_DAC_READ_SEARCH
_OF_THE_ZYGOTE = (0, 1, 3, 5, 6, 7)  # over owners and modes of files, to kill, to change group and user
_SLACK = 256
"""Processes that the user of the judge may start meanwhile. Only the judge's samples bound a test below it."""


class Open:
    """No isolation. Tests run as the judge's user and see what it sees."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        self._plan = plan
        self.test_id: int | None = plan["test_id"]
        self._area = f"{plan['folder']}/area"
        self._scratch = f"{self._area}/scratch"
        self._programs = f"{plan['folder']}/program"

    def enter(self, request_ids: Callable[[], None]) -> None:
        linux.adopt_orphans()
        os.mkdir(self._area, 0o711)
        os.mkdir(self._programs, 0o755)

    def start_cell(self) -> int:
        return linux.clone()

    def end_cell(self, pid: int) -> int:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        leftovers.kill_below()
        leftovers.reap_all()
        leftovers.empty_folder(self._area)
        leftovers.empty_folder(self._programs)
        return status

    def leave(self) -> None:
        leftovers.kill_below()
        leftovers.reap_all()
        leftovers.empty_folder(self._plan["folder"])
        os.rmdir(self._plan["folder"])

    def begin_cell(self, disk_bytes: int, num_files: int) -> None:
        linux.die_with_parent()
        linux.adopt_orphans()
        self._make_scratch()

    def place(self, name: str, content: bytes) -> str:
        return executable(self._programs, name, content)

    def kill_all(self) -> None:
        leftovers.kill_below()

    def renew_scratch(self) -> None:
        leftovers.empty_folder(self._area)
        self._make_scratch()

    def enter_test(self) -> None:
        self._change_user()
        self._go_to_scratch()
        linux.die_with_parent()

    @property
    def own_descriptor(self) -> int:
        return -1

    @property
    def num_own_processes(self) -> int:
        """All processes of the judge's user, if tests share it."""
        return 0 if self.test_id is not None else leftovers.count_processes(os.getuid()) + _SLACK

    @property
    def _kept_by_tests(self) -> "tuple[int, ...]":
        """One capability, where the interpreter lies in a folder that only root may pass."""
        return (_SEARCH_EVERYWHERE,) if self._plan["is_interpreter_private"] else ()

    def _change_user(self) -> None:
        if self.test_id is not None:
            linux.keep_capabilities_over_users()
            os.setgroups([])
            os.setresgid(self.test_id, self.test_id, self.test_id)
            os.setresuid(self.test_id, self.test_id, self.test_id)
            linux.hold_capabilities(*self._kept_by_tests)

    def _make_scratch(self) -> None:
        os.mkdir(self._scratch, 0o700)
        if self.test_id is not None:
            os.chown(self._scratch, self.test_id, self.test_id)

    def _go_to_scratch(self) -> None:
        os.chdir(self._scratch)
        os.environ["TMPDIR"] = self._scratch


class Restricted(Open):
    """Confines files by Landlock and system calls by seccomp; as root with a user of its own for tests."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        super().__init__(plan)
        self._ruleset: landlock.Ruleset | None = None

    def enter(self, request_ids: Callable[[], None]) -> None:
        """Confine the zygote as well, though less: it must see processes, and clean up."""
        super().enter(request_ids)
        linux.renounce_privileges()
        linux.hold_capabilities(*(() if self.test_id is None else (*_OF_THE_ZYGOTE, *self._kept_by_tests)))
        own = self._allowed_files()
        own.allow("/proc", landlock.READ_ONLY)
        own.allow(self._plan["folder"], landlock.EVERYTHING)
        own.allow(os.path.dirname(self._plan["folder"]), landlock.REMOVE_FOLDERS)
        self._ruleset = self._allowed_files()
        own.restrict()
        linux.load_filter(filter_program(linux.MACHINE, may_mount=False))

    def begin_cell(self, disk_bytes: int, num_files: int) -> None:
        super().begin_cell(disk_bytes, num_files)
        linux.set_dumpable(False)

    def enter_test(self) -> None:
        self._change_user()
        linux.set_dumpable(self.test_id is None)  # else the judge, an ordinary user, could not read its memory use
        self._go_to_scratch()
        assert self._ruleset
        self._ruleset.restrict()  # the remaining capabilities search folders, but open no other file
        linux.load_filter(metadata_filter(linux.MACHINE))
        linux.die_with_parent()

    @property
    def own_descriptor(self) -> int:
        return self._ruleset.descriptor if self._ruleset else -1

    def _allowed_files(self) -> landlock.Ruleset:
        ruleset = landlock.Ruleset()
        for path in self._plan["readable"]:
            ruleset.allow(path, landlock.READ_ONLY)
        for path in self._plan["listed"]:
            ruleset.allow(path, landlock.LIST)
        for path in self._plan["devices"]:
            ruleset.allow(path, landlock.READ_WRITE)
        ruleset.allow(self._programs, landlock.READ_ONLY)
        ruleset.allow(self._area, landlock.EVERYTHING)
        return ruleset
