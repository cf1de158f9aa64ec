"""Access of a cell to services: dummies in its environment or in files, the certificate to trust, and the proxy."""

import contextlib
import secrets
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoclave.core import InputError
from autoclave.runtime.vault.authority import Authority
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.egress import Egress
from autoclave.runtime.vault.vault import Record

if TYPE_CHECKING:
    from autoclave.runtime.keys import Keys

_CERTIFICATE, _FILES = "/etc/autoclave-cell.pem", "/secrets"
_TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")
_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


@dataclass(frozen=True, slots=True)
class CredentialBundle:
    """Additions to a command: see `workspaces.SealedCommand`. `alarms` grows while it runs."""

    environment: Mapping[str, str]
    shown: Sequence[tuple[str, str]]
    serve: Callable[[socket.socket], AbstractContextManager[Any]]
    alarms: Sequence[str]


class CellSecrets:
    """Gives cells the use of keys. Dummies stay the same for the life of this object.

    `keys` gives secrets, and renews tokens. `may_use` returns whether a service is granted.
    """

    def __init__(self, keys: "Keys", record: Record, may_use: Callable[[str], bool]) -> None:
        self._keys, self._record, self._may_use = keys, record, may_use
        self._dummies = dict[str, str]()
        self._session_key = secrets.token_bytes(32)
        self._authority = Authority()

    @contextlib.contextmanager
    def bundle(self, services: Sequence[str], folder: Path, port: int, purpose: str) -> Generator[CredentialBundle]:
        """Yield what a command gets for these services. Its files are put into `folder`.

        Raises InputError where there is no secret of a service, or it is not granted.
        """
        for service in services:
            if not self._may_use(service):
                raise InputError(f"services/{service}: is not granted, so no request to it is allowed")
        found = [self._keys.secret(service, purpose) for service in dict.fromkeys(services)]
        (folder / "certificate.pem").write_bytes(self._authority.certificate)
        shown = [(str(folder / "certificate.pem"), _CERTIFICATE)]
        environment = {str(name): _CERTIFICATE for name in _TRUST}
        environment |= dict.fromkeys(_PROXY, f"http://127.0.0.1:{port}")
        dummies = dict[str, str]()
        for secret in found:
            dummy = dummies[secret.service] = self._dummies.setdefault(
                secret.service, dummy_of(secret.value, secret.service, self._session_key)
            )
            environment[secret.variable] = dummy
            if secret.is_file:
                (folder / f"dummy-{secret.service}").write_text(dummy)
                shown.append((str(folder / f"dummy-{secret.service}"), f"{_FILES}/{secret.service}"))
                environment[secret.variable] = f"{_FILES}/{secret.service}"
        egress = Egress(found, dummies, self._authority, self._record, self._keys)
        yield CredentialBundle(environment, shown, egress.serve, egress.alarms)
