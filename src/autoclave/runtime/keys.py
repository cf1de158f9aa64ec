"""The keys of a session, from the connected vault, which is opened when the first key is needed."""

from __future__ import annotations

import functools
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from autoclave.core import InputError
from autoclave.core.install import needing
from autoclave.runtime.connections import Connections, VaultPlace
from autoclave.runtime.rest.connection import is_file_name

if TYPE_CHECKING:
    from autoclave.runtime.oauth import TokenSource
    from autoclave.runtime.vault import Vault
    from autoclave.runtime.vault.secret import Secret
    from autoclave.runtime.vault.vault import Record

    OpenVault = Callable[[VaultPlace, Record], Vault]


class Keys:
    """Gives keys by the names of their secrets. May be used by several threads.

    Tokens are renewed before they expire, or when a service refuses one. `record` is called with each access.
    """

    def __init__(self, connections: Connections, record: Record, open_vault: OpenVault) -> None:
        self._place, self._trust = connections.vault, connections.trust
        self._record, self._open, self._given = record, open_vault, dict[str, str]()
        self._source: TokenSource | None = None
        self._lock = threading.Lock()

    @functools.cached_property
    def verify(self) -> ssl.SSLContext | None:
        """Certificates that verify services and token providers; None: those of the system."""
        return trusting(Path(self._trust)) if self._trust else None

    def secret(self, service: str, purpose: str = "a request") -> Secret:
        """Return the secret of a service, with a key that is valid now.

        Raises InputError where no usable vault is connected, it lacks the secret, or a person must authorise again, and
        HostError where a library is missing, or a token provider cannot be reached.
        """
        found = self._opened().secret(service, purpose)
        self._given[service] = found.value
        return found

    def refreshed(self, service: str, rejected: str) -> Secret:
        """Return a secret with another key than `rejected`, which the service refused.

        Raises as `secret`, and InputError where the key was entered by hand, so that it cannot be renewed.
        """
        return self._opened().refreshed(service, rejected)

    def renew(self, service: str) -> Secret:
        """Return a secret with another key than the latest given. Raises as `refreshed`."""
        return self.refreshed(service, self._given.get(service, ""))

    def _opened(self) -> TokenSource:
        with self._lock:
            if self._source is None:
                if self._place is None:
                    raise InputError("no vault is connected. Fix: autoclave act connect vault")
                with needing("keys of services", "runtime"):
                    from autoclave.runtime.oauth import TokenSource
                self._source = TokenSource(self._open(self._place, self._record), self.verify)
            return self._source


def files_of(connections: Connections) -> list[Path]:
    """Return the files to keep out of reach of actions: vault, its key, certificates and catalogues."""
    found = [Path(connections.trust)] if connections.trust else []
    found += [Path(each.catalogue) for each in connections.services.values() if is_file_name(each.catalogue)]
    if connections.vault is not None:
        vault = Path(connections.vault.path)
        found += [vault.with_name(f"{vault.name}{ending}") for ending in ("", ".lock", ".key")]
    return found


def trusting(path: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts only the certificates in a file. Raises InputError where it has none."""
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        raise InputError(f"trust {path}: must contain PEM certificates") from None
    except OSError as error:
        raise InputError(f"trust {path}: cannot be read ({error.strerror})") from None


def open_vault(place: VaultPlace, record: Record) -> Vault:
    """Open a vault with its key file. Raises InputError where it is locked with a passphrase, or is damaged."""
    from autoclave.runtime.vault import KeyFile, Vault

    path = Path(place.path)
    if place.key == "passphrase":
        raise InputError(f"vault {path}: is locked with a passphrase; pass an `open_vault` that asks for it")
    return Vault(path, KeyFile.beside(path), record)
