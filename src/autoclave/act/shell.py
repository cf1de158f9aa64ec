"""One command on an overlay of a folder, for hosts that wrap their shell: shown as it runs, journalled, undoable."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoclave.act.watch import Watch
from autoclave.core.scan import Scan
from autoclave.runtime.files.commands import secrets_in
from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.tree_digest import scan_of
from autoclave.runtime.session import Session
from autoclave.workspaces import CommandLimits, SealedCommand, warm_cell

_LIMITS = CommandLimits(
    cpu_s=3600.0, memory_mb=4096, processes=1024, disk_mb=8192, scratch_mb=1024, open_files=4096, output_bytes=64 << 20
)


_KNOWN_S = 60.0
"""Seconds for which a scan ahead counts: what is not reported must not refuse commands for long."""


_ahead: dict[tuple[int, int], Callable[[], Scan | None]] = {}
"""`CommandRunner.known` for the next command, by device and inode of the folder."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ran to its end: its action, its exit code, and warnings."""

    action: str
    exit_code: int
    warnings: tuple[str, ...]


def run_shell(
    session: Session, command: Sequence[str], *, network: bool = False, stdin: str = "", timeout_s: float = 3600.0
) -> Ran:
    """Run a command over the folder of a session, and apply what it changed, whatever its exit code.

    What it prints goes to this process's standard output and error as it comes. Raises as `Session.propose` and `run`,
    also where a signal or a limit ended it: nothing was changed in the folder then.
    """
    files = session.actions.managers["run"]
    assert isinstance(files, FileManager)
    files.commands.limits, files.commands.on_output, files.commands.is_applied_at_once = _LIMITS, _show, True
    files.commands.known = _ahead.pop(_identity(files.scope), files.commands.known)
    given = {"do": "run", "command": tuple(command), "stdin": stdin, "network": network, "timeout_s": timeout_s}
    proposal = session.propose({**given, "accepted_codes": tuple(range(256))}, by="shell")
    session.run(proposal.action, proposal.plan.digest, approved_by="shell")
    warnings = tuple(each for each in proposal.plan.changes if each.startswith("warning: "))
    return Ran(proposal.action, int(proposal.plan.output["exit_code"]), warnings)


def warm_up(root: Path, stash: Path) -> None:
    """Prepare the next `run_shell` over a folder in this thread.

    Its cell is made, and the folder is scanned and watched. A change that inotify does not report, as by a program that
    writes to a mapping, makes the scan differ from the one after the command, which is refused then.
    """
    with Scope(root) as scope:
        warm_cell(SealedCommand((), scope.root, stash), _LIMITS)
        watch, first = Watch(scope.descriptor), scan_of("", scope)
        watch.cover(dict(enumerate(first.folders)))
        watch.begin_look()
        found, until = scan_of("", scope), time.monotonic() + _KNOWN_S
        secrets_in("", found)
        if found.folders.keys() == first.folders.keys():  # all are watched
            _ahead[_identity(scope)] = lambda: found if time.monotonic() < until and watch.is_quiet else None


def _identity(scope: Scope) -> tuple[int, int]:
    about = os.fstat(scope.descriptor)
    return about.st_dev, about.st_ino


def _show(name: str, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(1 if name == "stdout" else 2, left) :]
