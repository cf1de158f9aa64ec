"""Sessions on what there is on this machine: opens folders, journal and managers, and hands them to a `Session`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autoclave.core import HostError, InputError
from autoclave.core.files import alone_with
from autoclave.runtime.connections import FILE, load_connections
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.git_store import GitStore
from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.files.scope import Scope, mount_of
from autoclave.runtime.interface import Manager
from autoclave.runtime.journal import Journal
from autoclave.runtime.leases import lease_of_folder
from autoclave.runtime.packages import AllowedPackages
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.retention import Retention
from autoclave.runtime.session import Session

Versioning = Literal["snapshot", "git"]

if TYPE_CHECKING:
    from autoclave.runtime.connections import VaultPlace
    from autoclave.runtime.vault.cells import CellSecrets
    from autoclave.runtime.vault.secret import Secret
    from autoclave.runtime.vault.vault import Record, Vault


def default_state(root: Path) -> Path:
    """The folder of the state when none is given: `.autoclave-NAME` beside the folder."""
    root = root.resolve()
    return root.with_name(f".autoclave-{root.name}")


@contextlib.contextmanager
def alone_on(root: Path, state: Path | None = None) -> Generator[Path]:
    """The folder of the state, which no session has for the length of the block.

    Raises:
        InputError: one has, or a folder cannot be used.
        HostError: root and state are not on one file system.
    """
    with Scope(root) as scope:
        place = _folder_outside(state or default_state(root), scope)
        with _lock_on(place):
            yield place


def _lock_on(state: Path) -> AbstractContextManager[None]:
    return alone_with(state / "session", f"state {state}: another process works with it; wait for it, or end it")


def open_session(
    root: Path,
    state: Path | None = None,
    *,
    name: str = "main",
    retention: Retention | None = None,
    packages: AllowedPackages | None = None,
    vault: Callable[[Record, Callable[[str], bool]], CellSecrets] | None = None,
    kept_outside: Iterable[Path] = (),
    open_vault: Callable[[VaultPlace, Record], Vault] | None = None,
    budget: float = 1000.0,
    versioning: Versioning = "snapshot",
    lfs_above: int = 200 << 20,
) -> Session:
    """A session on the folder `root`. Its journal and what actions took out of the tree are in the folder `state`.

    `packages`: what generated code may import. `vault` is given what records accesses to secrets and what tells whether
    a service is granted; it gives cells the use of secrets. Neither their files nor those of `kept_outside` may be in
    the folder, where commands could read and change them. `open_vault` opens the vault of `connections.yaml`, when a
    key is needed first. `budget` is the most risk that may stand uncommitted; see
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
        opening.enter_context(_lock_on(place))
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
        managers: list[Manager] = [FileManager(scope, stash, runner, history, keeps_in_git=keeps_in_git)]
        if (place / FILE).exists():
            managers += _connected(place, journal, open_vault or _open_vault, opening)
        return Session(journal, managers, permissions, opening.pop_all(), name=name, retention=retention)


def _connected(
    place: Path,
    journal: Journal,
    open_vault: Callable[[VaultPlace, Record], Vault],
    opening: contextlib.ExitStack,
) -> Iterator[Manager]:
    """The managers of databases and services that are connected. The vault is opened when a key is needed first."""
    from autoclave.runtime.databases.manager import DatabaseManager
    from autoclave.runtime.databases.redis.manager import ENGINE as KEY_VALUE
    from autoclave.runtime.databases.redis.manager import KeyValueManager
    from autoclave.runtime.rest.leases import lease_of_services
    from autoclave.runtime.rest.manager import RestManager

    connections = load_connections(place)
    found: list[Vault] = []

    def secret(name: str) -> Secret:
        if connections.vault is None:
            raise InputError(f"secret {name}: no vault is connected (`autoclave act connect vault PATH`)")
        if not found:
            found.append(open_vault(connections.vault, journal.append))
        return found[0].secret(name, "connection")

    opening.enter_context(lease_of_services([each.base_url for each in connections.services.values()]))
    rows = {name: each for name, each in connections.databases.items() if each.engine != KEY_VALUE}
    databases = DatabaseManager(rows, place / "databases", lambda name: secret(name).value)
    opening.callback(databases.close)
    yield databases
    keys = {name: each for name, each in connections.databases.items() if each.engine == KEY_VALUE}
    if keys:
        key_values = KeyValueManager(keys, lambda name: secret(name).value)
        opening.callback(key_values.close)
        yield key_values
    services = RestManager(connections.services, place / "services", journal, secret)
    opening.callback(services.close)
    yield services


def _open_vault(place: VaultPlace, record: Record) -> Vault:
    from autoclave.runtime.vault import KeyFile, Keyring, Vault

    path = Path(place.path)
    if place.key == "passphrase":
        raise InputError(f"vault {path}: is locked with a passphrase; give `open_vault`, which asks for it")
    key = KeyFile(path.with_name(f"{path.name}.key")) if place.key == "file" else Keyring(str(path.resolve()))
    return Vault(path, key, record)


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
