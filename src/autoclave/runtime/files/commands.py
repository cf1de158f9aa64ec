"""Commands and generated code over the folder of file actions: in a sealed cell, on a layer of their own.

The tree, seen at its own path, is the lower layer of an overlay whose upper folder lies in the stash, so the command
writes there and the tree stays as it is. Where the host cannot stack folders, the command gets a copy of the tree. What
it wrote becomes steps (see `capture.py`), which are taken when the action is run.

An undo that comes with a command is run over a copy of that layer, right after the command, and the plan says whether
it restores the tree. Trees are compared here; what a program prints decides nothing. The undo of the action itself
restores what was kept, in any case.
"""

import contextlib
import os
import re
import stat
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autoclave.core import HostError, InputError, Outcome
from autoclave.core.scan import Scan, unpacked
from autoclave.runtime.files.capture import Capture, captured, claim, joined, own_entry, remove_tree
from autoclave.runtime.files.operations import Command, Python, key_of
from autoclave.runtime.files.scope import Entry, Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.files.tree_digest import NOT_COMPARED, scan_of
from autoclave.runtime.interface import CommandFailed, Json
from autoclave.runtime.policy.grants import is_secret
from autoclave.workspaces import CommandLimits, SealedCommand, overlay_problem, python_executable, run_command

if TYPE_CHECKING:
    from autoclave.runtime.vault.egress import CredentialBundle

_PROGRAM, _PACKAGES = "/program.py", "/packages"
_MOST_TOLD = 8192
"""The number of characters of each output stream that are recorded, half of them from each end."""
_UNDO_TEST_S = 10.0
"""Time limit of the test of an undo, in seconds."""
_PROVED = "its own undo was tested, and restores the tree as the pre-images do"
_NETWORK = "warning: what it did over the network is not undone; files are restored exactly"
_HIDDEN = "warning: hidden from it, since their names say that they hold secrets: "
_LIMITS = CommandLimits()

CredentialBundles = Callable[[Sequence[str], Path, int, str], "AbstractContextManager[CredentialBundle]"]
"""Gives a command the use of services: takes their names, a folder for files, the port of the proxy, and a purpose."""


class CommandRunner:
    """Runs commands over the folder of `scope`; what they write is kept in `stash` until it is claimed.

    `install` returns the folder of packages that generated code may import, by their names; without it there are none.
    `bundle` gives a command the use of services (see `vault.cells`). Files whose names say that they hold secrets are
    hidden from a command, except those that `not_readable` leaves out. `shown` are other files and folders of the host
    that commands see, each with its path there; `on_outcome` gets each outcome, with all that was printed.
    """

    def __init__(
        self,
        scope: Scope,
        stash: Path,
        install: Callable[[Sequence[str]], Path] | None,
        bundle: CredentialBundles,
        not_readable: Callable[[Sequence[str]], Sequence[str]],
        shown: Sequence[tuple[str, str]] = (),
        on_outcome: Callable[[Outcome], object] | None = None,
    ) -> None:
        self._scope, self._stash = scope, stash
        self._install, self._bundle, self._not_readable = install, bundle, not_readable
        self.limits = _LIMITS
        self.on_output: Callable[[str, bytes], object] | None = None
        self.known: Callable[[], Scan | None] = lambda: None
        """Returns a scan of the scope that is still true, if there is one."""
        self.changed_since: Callable[[Scan, Sequence[Step]], str] | None = None
        """Where plans are run at once: returns a path of steps that others have changed since a scan, "" for none."""
        self._before: dict[str, Scan] = {}  # by action: of the scope, before a command whose plan is run at once
        self._shown, self._on_outcome = shown, on_outcome

    def run(self, operation: Command, folder: Path) -> tuple[list[Step], Json, str]:
        """Run a command; `folder` receives what it brings into the tree. An undo that it comes with is tested.

        Returns the steps that make its changes to the tree; its outcome, as JSON data; and a digest of the tree that
        it saw, from before it began ("" where plans are run at once).

        Raises:
            CommandFailed: it failed, or met a limit; with its output, and what it would have changed.
            InputError: it is not allowed.
            HostError, SandboxFault: it could not be run.
        """
        layers = folder.with_name(f".{folder.name}")
        self._require_one_mount(operation.within)
        self._identity = _git_identity(self._scope.root / operation.within)
        try:
            found = (not operation.within and self.known()) or scan_of(operation.within, self._scope)
            self._before = {folder.name: found} if self.changed_since and not operation.within else {}
            may_hide = secrets_in(operation.within, found)
            not_readable = set(self._not_readable(list(map(key_of, may_hide))))
            hidden = [path for path in may_hide if key_of(path) in not_readable]
            for name in ("upper", "work"):
                (layers / name).mkdir(parents=True)
            with self._scope.folder(operation.within) as tree:  # walked without following links
                self._prepare_upper(tree, layers / "upper")
                with Scope(layers / "upper") as written:
                    top = own_entry(written)
                    outcome = self._write(operation, tree, layers, hidden)
                    if self._on_outcome:
                        self._on_outcome(outcome)
                    capture = self._captured(written, operation, top)
                    told: dict[str, Any] = {"method": self.method, **_told(outcome)}
                    warnings = [f"{_HIDDEN}{_listed(hidden, 10)}"] if hidden else []
                    warnings += [_NETWORK] if operation.network else []
                    if failure := _failure(operation, outcome, self.limits):
                        changes = [*warnings, *(step.words for step in capture.steps)]
                        raise CommandFailed(failure, {**told, "changes": changes})
                    if undo := undoing_command(operation):
                        flaw = self._flaw_of(undo, capture, tree, written, top, layers, hidden)
                        told["undo"] = [f"warning: its own undo is ignored: {flaw}" if flaw else _PROVED]
                    claim(written, capture, folder)
        finally:
            self._identity()
            remove_tree(layers)
        told |= {"hidden": warnings, "left_out": capture.left_out}
        return capture.steps, told, "" if self._before else found.digest()

    def _captured(self, written: Scope, operation: Command, top: Entry) -> Capture:
        return captured(written, self._scope, operation.within, top, is_whole=self.method == "copy")

    def seen_by(self, action: str, operation: Command, steps: Sequence[Step]) -> str:
        """Return a digest as `run` does, of the tree as it is now.

        Raises InputError where plans are run at once, and somebody else has changed what the steps change.
        """
        if not self.changed_since or (before := self._before.get(action)) is None:
            return scan_of(operation.within, self._scope).digest()
        if changed := self.changed_since(before, steps):
            raise InputError(f"path {changed!r}: somebody else has changed it meanwhile; the command changed nothing")
        return ""

    def _prepare_upper(self, tree: int, upper: Path) -> None:
        """Make the layer of a command look like the folder that it sees."""
        if self.method == "copy":
            _copy_inside(tree, upper)
            return
        for name in os.listxattr(tree):
            if name.startswith(NOT_COMPARED):
                continue
            with contextlib.suppress(OSError):  # this user may not set all of them
                os.setxattr(upper, name, os.getxattr(tree, name))
        upper.chmod(stat.S_IMODE(os.fstat(tree).st_mode))

    def _write(self, operation: Command, tree: int, layers: Path, hidden: Sequence[str]) -> Outcome:
        """Have a command write into the upper of `layers`; how it ended."""
        command = self._command(operation, tree, layers)
        inner = tuple(os.path.relpath(path, operation.within or ".") for path in hidden)
        return self._outcome(operation, replace(command, hidden=inner))

    def _flaw_of(
        self,
        undo: Command,
        capture: Capture,
        tree: int,
        written: Scope,
        top: Entry,
        layers: Path,
        hidden: Sequence[str],
    ) -> str:
        """Run an undo over a copy of what its action wrote; return why it does not restore all, or ""."""
        if undo.secrets or undo.network:
            return "it cannot be tested, since its program has secrets or the network"
        if not capture.steps:
            return "it cannot be tested, since the action changes nothing here"
        trial = layers / "trial"
        for name in ("upper", "work"):
            (trial / name).mkdir(parents=True)
        _copy_inside(written.descriptor, trial / "upper")
        try:
            undo = undo.model_copy(update={"timeout_s": min(undo.timeout_s, _UNDO_TEST_S)})
            if failure := _failure(undo, self._write(undo, tree, trial, hidden), self.limits):
                return failure.removesuffix("; nothing was done")
            with Scope(trial / "upper") as after:
                paths = [step.path for step in self._captured(after, undo, top).steps]
        except InputError as error:
            return str(error)
        return f"after it {_listed(paths, 5)} would not be as before" if paths else ""

    def _outcome(self, operation: Command, command: SealedCommand) -> Outcome:
        limits = replace(self.limits, wall_s=operation.timeout_s)
        if not operation.secrets:
            command = replace(command, shares_network=operation.network)
            return run_command(command, limits, on_output=self.on_output, is_left=self.changed_since is not None)
        if operation.network:
            raise InputError(
                f"{operation.do}: has either secrets or the network, since the network would pass the proxy"
            )
        with self._bundle(operation.secrets, command.layers, command.port, operation.do) as bundle:
            environment = {**command.environment, **bundle.environment}
            shown = (*command.shown, *bundle.shown)
            command = replace(command, listens=True, environment=environment, shown=shown)
            outcome = run_command(command, limits, bundle.serve)
            if bundle.alarms:
                raise InputError(f"{operation.do}: {bundle.alarms[0]}; nothing was done")
        return outcome

    def _require_one_mount(self, within: str) -> None:
        """Raise InputError if something is mounted below: an overlay cannot cover it, and a copy would include it."""
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
        """The way in which commands get a tree of their own on this host."""
        device = self._stash.stat().st_dev
        if device not in _methods:
            _methods[device] = "copy" if overlay_problem(self._stash) else "overlay"
        return _methods[device]

    def _command(self, operation: Command, descriptor: int, layers: Path) -> SealedCommand:
        tree, about = self._scope.root / operation.within, os.fstat(descriptor)
        environment, shown = dict(self._identity()), list(self._shown)
        if isinstance(operation, Python):
            argv = (python_executable(), "-s", "-P", "-B", _PROGRAM)
            program = layers / "program.py"
            program.write_text(operation.source, encoding="utf-8", errors="surrogateescape")
            shown.append((str(program), _PROGRAM))
            if operation.packages:
                if self._install is None:
                    names = ", ".join(operation.packages)
                    raise InputError(f"packages {names}: there is no list of allowed packages (--packages FILE)")
                shown.append((str(self._install(operation.packages)), _PACKAGES))
                environment["PYTHONPATH"] = _PACKAGES
        else:
            argv = operation.command
        return SealedCommand(
            argv,
            tree,
            layers,
            shown=tuple(shown),
            environment=environment,
            stdin=operation.stdin.encode("utf-8", "surrogateescape"),
            method=self.method,
            tree_inode=(about.st_dev, about.st_ino),  # even if its path leads elsewhere meanwhile
        )


_methods: dict[int, Literal["overlay", "copy"]] = {}
"""By file system: trying takes as long as a command."""


def secrets_in(within: str, found: Scan) -> list[str]:
    """Return the files whose names say that they hold secrets, of a scan of the folder `within`."""
    return sorted(
        path for place, entries in found.folders.items() for path in _secrets_in(joined(within, place), entries)
    )


@lru_cache(maxsize=4096)  # for the next commands
def _secrets_in(folder: str, entries: bytes) -> tuple[str, ...]:
    """Return the paths of files in a folder whose names say that they hold secrets."""
    return tuple(path for name, facts in unpacked(entries) if facts.is_file and is_secret(path := joined(folder, name)))


def _git_identity(tree: Path) -> Callable[[], dict[str, str]]:
    """Ask Git for the identity of the user, for commits by commands; return what waits for it, as variables."""
    command = ["git", "config", "--null", "--get-regexp", r"^user\.(name|email)$"]
    git = None
    with contextlib.suppress(OSError):  # Git is not installed
        git = subprocess.Popen(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    @cache
    def variables() -> dict[str, str]:
        told = git.communicate()[0].decode(errors="replace") if git else ""
        found = dict(each.split("\n", 1) for each in told.split("\0") if "\n" in each)
        name, email = found.get("user.name", "autoclave"), found.get("user.email", "autoclave@localhost")
        both = {"AUTHOR", "COMMITTER"}
        return {f"GIT_{who}_NAME": name for who in both} | {f"GIT_{who}_EMAIL": email for who in both}

    return variables


def undoing_command(operation: Command) -> Command | None:
    if not operation.undo:
        return None
    if isinstance(operation, Python):
        return operation.model_copy(update={"source": operation.undo, "undo": "", "stdin": ""})
    return operation.model_copy(update={"command": operation.undo, "undo": (), "stdin": ""})


def _copy_inside(tree: int, to: Path) -> None:
    """Copy the content of a folder (a descriptor), with facts and holes."""
    command = ["cp", "-a", "--reflink=auto", "--", "./.", str(to)]
    done = subprocess.run(command, cwd=f"/proc/self/fd/{tree}", capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(f"{to}: the tree cannot be copied for a command ({done.stderr.strip()[-300:]})")


def _failure(operation: Command, outcome: Outcome, limits: CommandLimits) -> str:
    """Return why a command counts as failed; empty if it does not."""
    if outcome.ended == "exited" and outcome.exit_code in operation.accepted_codes:
        return ""
    how = {
        "exited": f"exited with {outcome.exit_code}",
        "signalled": f"was ended by signal {outcome.signal}",
        "wall_time": f"took more than {operation.timeout_s:g} s",
        "cpu_time": f"used more than {limits.cpu_s:g} s of CPU",
        "memory": f"used more than {limits.memory_mb} MiB of memory",
        "output": f"printed more than {limits.output_bytes} bytes",
        "disk": f"wrote more than {limits.disk_mb} MiB",
    }.get(outcome.ended, f"met the limit of {outcome.ended}")
    last = outcome.stderr.decode(errors="backslashreplace").strip()[-500:]
    return f"{operation.do}: {how}{f': {last}' if last else ''}; nothing was done"


def _listed(paths: Sequence[str], most: int) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return f"{', '.join(map(repr, paths[:most]))}{more}"


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
