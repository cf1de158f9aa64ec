"""Commands and generated code over the folder of file actions: in a sealed cell, on a layer of their own.

The tree is the lower layer of an overlay whose upper folder lies in the stash, so the command writes there and the tree
stays as it is. Where the host cannot stack folders, the command gets a copy of the tree. What it wrote becomes steps
(see `capture.py`), which are taken when the action is run.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autoclave.core import HostError, InputError, Outcome
from autoclave.runtime.files.capture import NOT_COMPARED, Capture, captured, claim, own_entry, remove_tree
from autoclave.runtime.files.glances import glance_inside
from autoclave.runtime.files.operations import Command, Python
from autoclave.runtime.files.reversal import differences, undoing_command
from autoclave.runtime.files.scope import Entry, Scope
from autoclave.runtime.interface import Json
from autoclave.workspaces import CommandLimits, SealedCommand, overlay_problem, python_executable, run_command

if TYPE_CHECKING:
    from autoclave.runtime.vault.cells import Outfit

_PROGRAM, _PACKAGES = "/program.py", "/packages"
_MOST_TOLD = 8192
"""Of what a command printed so many characters are recorded, from each end of it half."""


Outfits = Callable[[Sequence[str], Path, int, str], "AbstractContextManager[Outfit]"]
"""Gives a command what it needs to use services: their names, a folder for files, the port of the way out, a purpose.
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """The steps that do to the tree what a command did; how it ended, as JSON data; and a digest of the tree that it
    saw, as it was before the command began.
    """

    capture: Capture
    told: Json
    seen: str


class CommandRunner:
    """Runs commands over the folder of `scope`; what they write is kept in `stash` until it is claimed.

    `install` gives the folder of the packages that generated code may import, by their names; `outfit` what a command
    gets to use services (see `vault.cells`). Without them it may have none.
    """

    def __init__(
        self,
        scope: Scope,
        stash: Path,
        limits: CommandLimits | None = None,
        install: Callable[[Sequence[str]], Path] | None = None,
        outfit: Outfits | None = None,
    ) -> None:
        self._scope, self._stash, self._limits = scope, stash, limits or CommandLimits()
        self._install, self._outfit = install, outfit

    def run(self, operation: Command, folder: Path) -> Ran:
        """Run a command; what it brought into the tree is in `folder` then. An undo that it comes with is tested.

        Raises:
            InputError: it failed, met a limit, or is none; or its undo does not take it back.
            HostError: the host lacks what is needed to seal it.
            SandboxFault: it could not be run.
        """
        layers = folder.with_name(f".{folder.name}")
        self._require_one_mount(operation.within)
        seen = self.seen_by(operation)
        try:
            for name in ("upper", "work"):
                (layers / name).mkdir(parents=True)
            with self._scope.folder(operation.within) as tree:  # walked without following links
                self._prepare_upper(tree, layers / "upper")
                with Scope(layers / "upper") as empty:
                    top = own_entry(empty)
                told = {"method": self.method, **self._write(operation, tree, layers)}
                with Scope(layers / "upper") as written:
                    capture = captured(written, self._scope, operation.within, top, is_whole=self.method == "copy")
                    if undo := undoing_command(operation):
                        if not capture.steps:
                            raise InputError(f"{operation.do}: it changes nothing here, so its undo cannot be tested")
                        told["undo"] = self._test(undo, tree, written, top, layers)
                    claim(written, capture, folder)
        finally:
            remove_tree(layers)
        if capture.left_out:
            told["left_out"] = capture.left_out
        return Ran(capture, told, seen)

    def seen_by(self, operation: Command) -> str:
        """A digest of what a command sees of the tree as it is now, which changes when somebody changes that.

        O(what is in its folder), 3 to 4 microseconds for each.
        """
        return glance_inside(operation.within, self._scope)

    def _prepare_upper(self, tree: int, upper: Path) -> None:
        """Give a command a layer that is, at first, like the folder that it sees."""
        if self.method == "copy":
            _copy(tree, upper)
            return
        for name in os.listxattr(tree):
            if name.startswith(NOT_COMPARED):
                continue
            with contextlib.suppress(OSError):  # this user may not set all of them
                os.setxattr(upper, name, os.getxattr(tree, name))
        upper.chmod(stat.S_IMODE(os.fstat(tree).st_mode))

    def _write(self, operation: Command, tree: int, layers: Path) -> dict[str, Any]:
        """Have a command write into the upper of `layers`; how it ended."""
        limits = replace(self._limits, wall_s=operation.timeout_s)
        outcome = self._outcome(operation, self._command(operation, tree, layers), limits)
        _require_success(operation, outcome, limits)
        return _told(outcome)

    def _test(self, undo: Command, tree: int, written: Scope, top: Entry, layers: Path) -> dict[str, Any]:
        """Run an undo over a copy of what its action wrote, and look whether all is as it was; how it ended."""
        trial = layers / "trial"
        for name in ("upper", "work"):
            (trial / name).mkdir(parents=True)
        _copy(written.descriptor, trial / "upper")
        told = self._write(undo, tree, trial)
        with Scope(trial / "upper") as after:
            left = captured(after, self._scope, undo.within, top, is_whole=self.method == "copy")
            if found := list(differences(left, after, self._scope, undo.undo_compared)):
                more = f" and {len(found) - 5} more" if len(found) > 5 else ""
                raise InputError(
                    f"undo: after it {', '.join(map(repr, found[:5]))}{more} would not be as before; nothing was done. "
                    "Fix: another undo, or none, and what is replaced is kept"
                )
        return told

    def _outcome(self, operation: Command, command: SealedCommand, limits: CommandLimits) -> Outcome:
        if not operation.secrets:
            return run_command(command, limits)
        if self._outfit is None:
            raise InputError(f"secrets {', '.join(operation.secrets)}: nothing gives keys to commands here")
        with self._outfit(operation.secrets, command.layers, command.port, operation.do) as outfit:
            environment = {**command.environment, **outfit.environment}
            shown = (*command.shown, *outfit.shown)
            command = replace(command, listens=True, environment=environment, shown=shown)
            outcome = run_command(command, limits, outfit.serve)
            if outfit.alarms:
                raise InputError(f"{operation.do}: {outfit.alarms[0]}; nothing was done")
        return outcome

    def _require_one_mount(self, within: str) -> None:
        """Look that nothing is mounted below the folder: no overlay could be put over it, and a copy would have it all.

        Raises:
            InputError: something is.
        """
        folder = self._scope.root / within
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            place = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4])
            if place.startswith(f"{folder}/"):
                raise InputError(
                    f"path {place[len(str(self._scope.root)) + 1 :]!r}: is another file system, over which commands "
                    "are not run; give them a part without it (within)"
                )

    @cached_property
    def method(self) -> Literal["overlay", "copy"]:
        """How commands get a tree of their own on this host."""
        return "copy" if overlay_problem(self._stash) else "overlay"

    def _command(self, operation: Command, descriptor: int, layers: Path) -> SealedCommand:
        tree, about = self._scope.root / operation.within, os.fstat(descriptor)
        given: dict[str, Any] = {
            "stdin": operation.stdin.encode("utf-8", "surrogateescape"),
            "method": self.method,
            "tree_inode": (about.st_dev, about.st_ino),  # whatever has become of its path meanwhile
        }
        if not isinstance(operation, Python):
            return SealedCommand(operation.command, tree, layers, **given)
        program = layers / "program.py"
        program.write_text(operation.source, encoding="utf-8", errors="surrogateescape")
        shown = [(str(program), _PROGRAM)]
        environment: Mapping[str, str] = {}
        if operation.packages:
            if self._install is None:
                raise InputError(
                    f"packages {', '.join(operation.packages)}: there is no list of allowed packages (--packages FILE)"
                )
            shown.append((str(self._install(operation.packages)), _PACKAGES))
            environment = {"PYTHONPATH": _PACKAGES}
        argv = (python_executable(), "-s", "-P", "-B", _PROGRAM)
        return SealedCommand(argv, tree, layers, shown=tuple(shown), environment=environment, **given)


def commands_problem(folder: Path) -> str:
    """Why a command over a tree on the file system of `folder` needs a copy of it; empty if it does not.

    Raises:
        IsolationError: no command can be sealed here.
    """
    return overlay_problem(folder)


def _copy(tree: int, to: Path) -> None:
    done = subprocess.run(
        ["cp", "-a", "--reflink=auto", "--", ".", str(to)],
        cwd=f"/proc/self/fd/{tree}", capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise HostError(f"{to}: the tree cannot be copied for a command ({done.stderr.strip()[-300:]})")


def _require_success(operation: Command, outcome: Outcome, limits: CommandLimits) -> None:
    if outcome.ended == "exited" and outcome.exit_code in operation.accepted_codes:
        return
    how = {
        "exited": f"exited with {outcome.exit_code}",
        "signalled": f"was ended by signal {outcome.signal}",
        "wall_time": f"took more than {limits.wall_s:g} s",
        "cpu_time": f"used more than {limits.cpu_s:g} s of CPU",
        "memory": f"used more than {limits.memory_mb} MiB of memory",
        "output": f"printed more than {limits.output_bytes} bytes",
        "disk": f"wrote more than {limits.disk_mb} MiB",
    }.get(outcome.ended, f"met the limit of {outcome.ended}")
    last = outcome.stderr.decode(errors="backslashreplace").strip()[-500:]
    raise InputError(f"{operation.do}: {how}{f': {last}' if last else ''}; nothing was done")


def _told(outcome: Outcome) -> dict[str, Any]:
    return {
        "ended": outcome.ended,
        "exit_code": outcome.exit_code,
        "stdout": _shortened(outcome.stdout),
        "stderr": _shortened(outcome.stderr),
        "wall_s": round(outcome.wall_s, 3),
        "cpu_s": round(outcome.cpu_s, 3),
        "lacking": outcome.detail,
    }


def _shortened(content: bytes) -> str:
    text = content.decode(errors="backslashreplace")
    half = _MOST_TOLD // 2
    return text if len(text) <= _MOST_TOLD else f"{text[:half]}\n... {len(text) - 2 * half} more ...\n{text[-half:]}"
