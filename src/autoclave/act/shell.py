"""One command on an overlay of a folder, for hosts that wrap their shell: shown as it runs, journalled, undoable."""

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path

from autoclave.act.watch import Watch
from autoclave.core import InputError
from autoclave.core.scan import Facts, Scan, facts_of, packed, unpacked
from autoclave.runtime.files.commands import secrets_in
from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.files.tree_digest import scan_of
from autoclave.runtime.footprints import with_those_above
from autoclave.runtime.session import Session
from autoclave.workspaces import CommandLimits, SealedCommand, warm_cell

_LIMITS = CommandLimits(
    cpu_s=3600.0, memory_mb=4096, processes=1024, disk_mb=8192, scratch_mb=1024, open_files=4096, output_bytes=64 << 20
)
_libc = ctypes.CDLL(None)
_unpacked = lru_cache(maxsize=64)(lambda entries: dict(unpacked(entries)))  # each command asks twice
_NO_FOLLOW, _BIRTH = 0x100, 0x800  # statx(2)
_ahead: dict[tuple[int, int], Callable[[], Scan | None]] = {}
"""`CommandRunner.known` for the next command, by device and inode of the folder."""


def run_shell(
    session: Session, command: Sequence[str], *, network: bool = False, stdin: str = "", timeout_s: float = 3600.0
) -> tuple[int, list[str]]:
    """Run a command over the folder of a session, and apply what it changed; return its exit code, and warnings.

    What it prints goes to this process's standard output and error as it comes. Raises as `Session.propose` and `run`,
    also where a signal or a limit ended it: nothing was changed in the folder then.
    """
    files = session.actions.managers["run"]
    assert isinstance(files, FileManager)
    files.commands.limits, files.commands.on_output = _LIMITS, _show
    files.commands.changed_since = partial(changed_since, scope=files.scope)
    files.commands.known = _ahead.pop(_identity(files.scope), files.commands.known)
    given = {"do": "run", "command": tuple(command), "stdin": stdin, "network": network, "timeout_s": timeout_s}
    proposal = session.propose({**given, "accepted_codes": tuple(range(256))}, by="shell")
    session.run(proposal.action, proposal.plan.digest, approved_by="shell")
    warnings = [each for each in proposal.plan.changes if each.startswith(("warning: ", "not done: "))]
    return int(proposal.plan.output["exit_code"]), warnings


def warm_up(root: Path, stash: Path) -> None:
    """Prepare the next `run_shell` over a folder in this thread.

    Its cell is made, and the folder is scanned and watched, so that only folders in which files have changed are looked
    at again. A change that inotify does not report, as by a program that writes to a mapping, counts as one made while
    the command runs.
    """
    scope = Scope(root)
    warm_cell(SealedCommand((), scope.root, stash), _LIMITS)
    watch, first = Watch(scope.descriptor), scan_of("", scope)
    watch.cover(dict(enumerate(first.folders)))
    watch.begin_look()
    secrets_in("", found := scan_of("", scope))

    def known() -> Scan | None:
        happened, folders = watch.begin_look(), dict(found.folders)
        if happened is None or happened.trees:
            return None
        try:
            for folder in happened.folders:
                with scope.folder(folder) as descriptor:
                    folders[folder] = packed(descriptor)
        except InputError:  # it has disappeared since
            return None
        return found._replace(folders=folders)

    if found.folders.keys() == first.folders.keys():  # all are watched
        _ahead[_identity(scope)] = known


def _identity(scope: Scope) -> tuple[int, int]:
    about = os.fstat(scope.descriptor)
    return about.st_dev, about.st_ino


def _show(name: str, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(1 if name == "stdout" else 2, left) :]


def changed_since(before: Scan, steps: Sequence[Step], scope: Scope) -> str:
    """Return a path that steps change, or one above, where the tree is not as in a scan of it; "" if there is none.

    A folder that they replace counts with all that is below it, other folders without what is in them, but with that
    where they set its extended attributes: those that others set are not in a scan.
    """
    exact = {step.path for step in steps if "attributes" in step.facts}
    for path in sorted({above for step in steps for above in with_those_above(step.path)}):
        folder, _, name = path.rpartition("/")
        was, now, born_ns = _unpacked(before.folders.get(folder, b"")).get(name), None, 0
        with contextlib.suppress(FileNotFoundError, InputError), scope.parent_of(path) as (parent, _):
            now = facts_of(os.stat(name, dir_fd=parent, follow_symlinks=False))
            born_ns = _birth_ns(parent, name)
        if was and now and now.is_folder and path not in exact and born_ns <= was.ctime_ns:  # else a new one
            was, now = _without_content(was), _without_content(now)
        if was != now:
            return path
    for path in (step.path for step in steps if step.do != "set_facts" and step.path in before.folders):
        for place, entries in scan_of(path, scope).folders.items():
            if before.folders.get(f"{path}/{place}".rstrip("/")) != entries:
                return path
    return ""


def _birth_ns(parent: int, name: str) -> int:
    """Return when an entry was created, 0 where that is not recorded: a new one may have the inode of a deleted one."""
    about = ctypes.create_string_buffer(256)
    _libc.statx(parent, os.fsencode(name), _NO_FOLLOW, _BIRTH, about)
    seconds, nanoseconds = struct.unpack_from("=qI", about, 80)
    return seconds * 10**9 + nanoseconds


def _without_content(facts: Facts) -> Facts:
    """Return the facts of a folder without what changes with what is in it."""
    return facts._replace(size=0, mtime_ns=0, ctime_ns=0, num_links=0)
