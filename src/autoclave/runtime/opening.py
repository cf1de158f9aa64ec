"""Sessions on what there is on this machine: opens folders, journal and managers, and hands them to a `Session`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autoclave.core import HostError, InputError
from autoclave.core.files import alone_with
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.git_store import GitStore
from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.files.scope import Scope, mount_of
from autoclave.runtime.journal import Journal
from autoclave.runtime.leases import lease_of_folder
from autoclave.runtime.packages import AllowedPackages
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.retention import Retention
from autoclave.runtime.session import Session

Versioning = Literal["snapshot", "git"]

if TYPE_CHECKING:
    from autoclave.runtime.vault.cells import CellSecrets
    from autoclave.runtime.vault.vault import Record


def default_state(root: Path) -> Path:
    """The folder of the state when none is given: `.autoclave-NAME` beside the folder."""
    root = root.resolve()
    return root.with_name(f".autoclave-{root.name}")


def open_session(
    root: Path,
    state: Path | None = None,
    *,
    name: str = "main",
    retention: Retention | None = None,
    packages: AllowedPackages | None = None,
    vault: Callable[[Record, Callable[[str], bool]], CellSecrets] | None = None,
    kept_outside: Iterable[Path] = (),
    budget: float = 1000.0,
    versioning: Versioning = "snapshot",
    lfs_above: int = 200 << 20,
) -> Session:
    """A session on the folder `root`. Its journal and what actions took out of the tree are in the folder `state`.

    `packages`: what generated code may import. `vault` is given what records accesses to secrets and what tells whether
    a service is granted; it gives cells the use of secrets. Neither their files nor those of `kept_outside` may be in
    the folder, where commands could read and change them. `budget` is the most risk that may stand uncommitted; see
    `policy.Request.weight`. `versioning`: what an action replaced is kept as it is (`snapshot`), or in a Git
    repository, by content (`git`; see `files.git_store`), in which the files of a tree with more content than
    `lfs_above` bytes are objects of Git LFS. What the other kept before is found by both.

    Raises:
        InputError: a folder cannot be used, another process works on it, or a file is in it that may not be.
        HostError: they are not on one file system.
    """
    with contextlib.ExitStack() as opening:
        scope = opening.enter_context(Scope(root))
        for path in (*kept_outside, *([packages.path] if packages else ())):
            _require_outside(path, scope)
        place = _folder_outside(state or default_state(root), scope)
        opening.enter_context(lease_of_folder(scope.root))
        complaint = f"state {place}: another process works with it; wait for it, or end it"
        opening.enter_context(alone_with(place / "session", complaint))
        journal = opening.enter_context(Journal(place / "journal.sqlite", place / "checkpoints" / "signed"))
        permissions, stash = Permissions(journal, name, budget), place / "stash"
        cells = vault(journal.append, permissions.may_use) if vault else None
        for path in cells.files if cells else ():
            _require_outside(path, scope)
        runner = CommandRunner(
            scope,
            stash,
            install=packages.install if packages else None,
            outfit=cells.outfit if cells else None,
        )
        place_of_git, keeps_in_git = place / "history.git", versioning == "git"
        history = GitStore(place_of_git, lfs_above) if keeps_in_git or place_of_git.exists() else None
        files = FileManager(scope, stash, runner, history, keeps_in_git=keeps_in_git)
        return Session(journal, [files], permissions, opening.pop_all(), name=name, retention=retention)


def _require_outside(path: Path, scope: Scope) -> None:
    """Look that no action reaches a file, nor its name.

    Raises:
        InputError: it is inside of the scope.
    """
    for place in (path.resolve(), path.parent.resolve() / path.name):
        if place.is_relative_to(scope.root):
            raise InputError(f"{path}: must be outside of {scope.root}, or commands could read and change it")


def _folder_outside(state: Path, scope: Scope) -> Path:
    """The folder for the state, which no action can reach.

    Raises:
        InputError: it cannot be made, or is inside of the scope.
        HostError: it is on another file system.
    """
    state = state.resolve()
    if state.is_relative_to(scope.root):
        raise InputError(f"state {state}: must be outside of {scope.root}, or actions could change it")
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"state {state}: cannot be made ({error.strerror})") from None
    descriptor = os.open(state, os.O_PATH | os.O_CLOEXEC)
    try:
        about, is_apart = os.fstat(descriptor), mount_of(descriptor) != scope.mount
    finally:
        os.close(descriptor)
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise InputError(
            f"state {state}: must be this user's own, and nobody else may write there, or others could grant. Mend: "
            "chown and chmod go-w it, or give another (--state)"
        )
    if is_apart:
        raise HostError(
            f"state {state}: is on another file system than {scope.root}, or on another mount of it, so nothing could "
            "be moved there at once. Mend: give a folder on the same one (--state); where the root itself is mounted, "
            "a folder below it as root"
        )
    return state
