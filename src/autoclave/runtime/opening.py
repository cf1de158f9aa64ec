"""Opening of sessions: folders, locks, journal and managers, passed to a `Session`."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from autoclave.core import HostError, InputError, Outcome
from autoclave.core.files import alone_with, lock_file
from autoclave.core.plugins import find_plugin
from autoclave.runtime.actions import Actions
from autoclave.runtime.connections import FILE, Connections, load_connections
from autoclave.runtime.files.commands import CommandRunner, CredentialBundles
from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.files.scope import Scope, mount_of, open_file
from autoclave.runtime.interface import Manager
from autoclave.runtime.journal import Journal
from autoclave.runtime.keys import Keys, files_of, open_vault
from autoclave.runtime.packages import AllowedPackages
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.session import Session

if TYPE_CHECKING:
    from autoclave.runtime.connections import ModelPlace, VaultPlace
    from autoclave.runtime.keys import OpenVault
    from autoclave.runtime.proposals import Chat
    from autoclave.runtime.rest.undoing import ProposeCompensation
    from autoclave.runtime.vault.egress import CellSecrets
    from autoclave.runtime.vault.vault import Record, Vault


def default_state(root: Path) -> Path:
    """Return the default state folder: `.autoclave-NAME` beside the folder."""
    root = root.resolve()
    return root.with_name(f".autoclave-{root.name}")


@contextlib.contextmanager
def alone_on(root: Path, state: Path | None = None, *, wait_s: float = 0.0) -> Generator[Path]:
    """Yield the state folder, locked against sessions for the duration of the block. Raises as `open_session`."""
    with Scope(root) as scope:
        place = _folder_outside(state or default_state(root), scope)
        with _lock_on(place, wait_s):
            yield place


@contextlib.contextmanager
def _lease_of_folder(root: Path, wait_s: float) -> Generator[None]:
    """Lock a folder, given by its real path; raise InputError if another session has one above or below it.

    The lock is exclusive on the folder itself and shared on each folder above it. It ends with the process.
    """
    with contextlib.ExitStack() as locked:
        for folder in (root, *root.parents):
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except PermissionError:  # a parent that may only be traversed: no session can be on it
                continue
            locked.callback(os.close, descriptor)
            kind = fcntl.LOCK_EX if folder == root else fcntl.LOCK_SH
            where = "it, or on a folder in it" if folder == root else f"{folder}, which it is in"
            complaint = f"root {root}: another session works on {where}; wait for it, or end it"
            lock_file(descriptor, kind, complaint, wait_s)
        yield


def _lock_on(state: Path, wait_s: float) -> AbstractContextManager[None]:
    complaint = f"state {state}: another process works with it; wait for it, or end it"
    return alone_with(state / "session", complaint, wait_s)


def open_session(
    root: Path,
    state: Path | None = None,
    *,
    name: str = "main",
    packages: AllowedPackages | None = None,
    kept_outside: Iterable[Path] = (),
    open_vault: OpenVault = open_vault,
    budget: float = 1000.0,
    lives_on: bool = True,
    wait_s: float = 0.0,
    shown: Sequence[tuple[str, str]] = (),
    on_outcome: Callable[[Outcome], object] | None = None,
) -> Session:
    """Open a session on the folder `root`. The folder `state` has its journal and what actions removed from the tree.

    `packages`: what generated code may import. `open_vault` opens the connected vault when the first key is needed.
    Files with keys, certificates and catalogues, and those of `kept_outside`, may not be in the folder, where commands
    could read and change them. `budget` limits the risk that may stand uncommitted; see `policy.Request.weight`.
    `lives_on`: whether this process continues after an action; if not, databases refuse to leave a transaction open.
    `wait_s`: seconds to wait for each lock that another session has. `shown`, `on_outcome`: see `CommandRunner`.

    Raises InputError: a folder cannot be used, is in use by another process, or contains a file that it may not.
    HostError: the folders are not on the same file system.
    """
    with contextlib.ExitStack() as opening:
        scope = opening.enter_context(Scope(root))
        place = _folder_outside(state or default_state(root), scope)
        opening.enter_context(_lease_of_folder(scope.root, wait_s))
        opening.enter_context(_lock_on(place, wait_s))
        connections = load_connections(place)
        for path in (*kept_outside, *files_of(connections), *([packages.path] if packages else ())):
            _require_outside(path, scope)
        journal = opening.enter_context(Journal(place / "journal.sqlite", place / "checkpoints" / "signed"))
        permissions, stash = Permissions(journal, name, budget), place / "stash"
        keys = Keys(connections, journal.append, _only_outside(scope, open_vault))
        bundle, install = _credential_bundles(keys, journal.append, permissions.may_use), packages and packages.install
        runner = CommandRunner(scope, stash, install, bundle, permissions.not_readable, shown, on_outcome)
        files = FileManager(scope, stash, runner)
        files.sweep(journal.kept_actions())
        managers: list[Manager] = [files]
        if (place / FILE).exists():
            for manager in _connected(place, connections, keys, journal, opening, lives_on=lives_on, wait_s=wait_s):
                opening.callback(manager.close)
                managers.append(manager)
        return Session(journal, managers, permissions, opening.pop_all(), name=name)


@contextlib.contextmanager
def open_records(
    root: Path, state: Path | None = None, *, name: str = "main"
) -> Generator[tuple[Actions, Permissions]]:
    """Yield the records of the folder `root`, even while a session works on it. Recovers nothing.

    Grants added or revoked here take effect in that session with its next decision. Raises as `open_session`.
    """
    with contextlib.ExitStack() as opening:
        scope = opening.enter_context(Scope(root))
        place = _folder_outside(state or default_state(root), scope)
        journal = opening.enter_context(Journal(place / "journal.sqlite", place / "checkpoints" / "signed"))
        yield Actions(journal, []), Permissions(journal, name, budget=0.0)


def _connected(
    place: Path,
    connections: Connections,
    keys: Keys,
    journal: Journal,
    opening: contextlib.ExitStack,
    *,
    lives_on: bool,
    wait_s: float,
) -> Iterator[Manager]:
    from autoclave.runtime.databases.manager import DatabaseManager
    from autoclave.runtime.rest.connection import lease_of_services
    from autoclave.runtime.rest.manager import RestManager

    urls = [each.base_url for each in connections.services.values()]
    opening.enter_context(lease_of_services(urls, wait_s))

    def password(name: str) -> str:
        return keys.secret(name, "connection").value

    yield DatabaseManager(connections.databases, place / "databases", password, lives_on=lives_on)
    yield RestManager(
        connections.services,
        place / "services",
        journal,
        keys.secret,
        refresh=keys.renew,
        propose_compensation=_proposer(connections.model, keys) if connections.model else None,
        verify=keys.verify if connections.services else None,
    )
    for name, settings in connections.managers.items():
        yield find_plugin("autoclave.managers", name, "managers")(settings, place / "managers" / name)


def _proposer(model: ModelPlace, keys: Keys) -> ProposeCompensation:
    """Return a function that asks a model for unknown compensating requests."""
    from autoclave.runtime.proposals import chat_at
    from autoclave.runtime.rest.proposing import compensation_by

    def chat() -> Chat:
        return chat_at(model.endpoint, model.name, keys.secret(model.secret).value if model.secret else "")

    return compensation_by(chat)


def _credential_bundles(keys: Keys, record: Record, may_use: Callable[[str], bool]) -> CredentialBundles:
    """Return what gives cells the use of keys. Its libraries are loaded on first use."""

    @functools.cache
    def cells() -> CellSecrets:
        from autoclave.runtime.vault.egress import CellSecrets

        return CellSecrets(keys, record, may_use)

    return lambda *given: cells().bundle(*given)


def require_files_outside(root: Path, connections: Connections, vault: Vault | None = None) -> None:
    """Raise InputError if actions on `root` could reach files of the connections or of the open `vault`."""
    with Scope(root) as scope:
        for path in (*files_of(connections), *(vault.files if vault else ())):
            _require_outside(path, scope)


def _only_outside(scope: Scope, open_vault: OpenVault) -> OpenVault:
    """Return an `open_vault` that refuses a vault with a file in the scope."""

    def opened(place: VaultPlace, record: Record) -> Vault:
        vault = open_vault(place, record)
        for path in vault.files:
            _require_outside(path, scope)
        return vault

    return opened


def _require_outside(path: Path, scope: Scope) -> None:
    """Raise InputError if an action could reach a file, or its name."""
    for place in (path.resolve(), path.parent.resolve() / path.name):
        if place.is_relative_to(scope.root):
            raise InputError(f"{path}: must be outside of {scope.root}, or commands could read and change it")


def _folder_outside(state: Path, scope: Scope) -> Path:
    """Return the state folder, which no action can reach. Raises as `open_session`."""
    state = state.resolve()
    if state.is_relative_to(scope.root):
        raise InputError(f"state {state}: must be outside of {scope.root}, or actions could change it")
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"state {state}: cannot be created ({error.strerror})") from None
    with open_file(None, state, os.O_PATH | os.O_CLOEXEC) as descriptor:
        about, is_apart = os.fstat(descriptor), mount_of(descriptor) != scope.mount
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise InputError(
            f"state {state}: must be owned by this user and writable by no one else, or others could grant. Fix: "
            "chown and chmod go-w it, or give another (--state)"
        )
    if is_apart:
        raise HostError(
            f"state {state}: is on another file system than {scope.root}, or on another mount of it, so nothing could "
            "be moved there atomically. Fix: give a folder on the same one (--state); if the root is itself a mount, "
            "a folder below it as root"
        )
    return state
