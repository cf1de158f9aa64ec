"""One command on an overlay of a folder, for hosts that wrap their shell: shown as it runs, journalled, undoable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.session import Session
from autoclave.workspaces import CommandLimits

_LIMITS = CommandLimits(
    cpu_s=3600.0, memory_mb=4096, processes=1024, disk_mb=8192, scratch_mb=1024, open_files=4096, output_bytes=64 << 20
)


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
    files.commands.limits, files.commands.on_output = _LIMITS, _show
    given = {"do": "run", "command": tuple(command), "stdin": stdin, "network": network, "timeout_s": timeout_s}
    proposal = session.propose({**given, "accepted_codes": tuple(range(256))}, by="shell")
    session.run(proposal.action, proposal.plan.digest, approved_by="shell")
    warnings = tuple(each for each in proposal.plan.changes if each.startswith("warning: "))
    return Ran(proposal.action, int(proposal.plan.output["exit_code"]), warnings)


def _show(name: str, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(1 if name == "stdout" else 2, left) :]
