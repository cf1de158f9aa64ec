"""What a cell gets of the vault: dummies in its environment or in files, the certificate to trust, and the way out."""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.vault.authority import Authority
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.egress import Egress
from autoclave.runtime.vault.live import Tokens
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.vault import Record

_CERTIFICATE, _FILES = "/etc/autoclave-cell.pem", "/secrets"
_TRUST: tuple[str, ...] = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
)
_PROXY: tuple[str, ...] = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


@dataclass(frozen=True, slots=True)
class CredentialBundle:
    """What is added to a command: see `workspaces.SealedCommand`. `alarms` grows while it runs."""

    environment: Mapping[str, str]
    shown: Sequence[tuple[str, str]]
    serve: Callable[[socket.socket], AbstractContextManager[Any]]
    alarms: Sequence[str]


class CellSecrets:
    """Gives cells the use of keys. Dummies are the same for the life of this object, and then others.

    `keys` gives secrets, and renews tokens. `may_use` tells of a service whether it is granted. `verify`: see `Egress`.
    """

    def __init__(
        self,
        keys: Tokens,
        record: Record,
        may_use: Callable[[str], bool],
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._keys, self._record, self._may_use, self._verify = keys, record, may_use, verify
        self._dummies = dict[str, str]()
        self._session_key = secrets.token_bytes(32)
        self._authority = Authority()

    @contextlib.contextmanager
    def bundle(self, services: Sequence[str], folder: Path, port: int, purpose: str) -> Generator[CredentialBundle]:
        """What a command gets for these services. Files for it are put into `folder`.

        Raises:
            InputError: there is no secret of a service, or it is not granted.
        """
        for service in services:
            if not self._may_use(service):
                raise InputError(f"services/{service}: is not granted, so nothing goes out to it")
        found = [self._keys.secret(service, purpose) for service in dict.fromkeys(services)]
        dummies = {each.service: self._dummy(each) for each in found}
        certificate = folder / "certificate.pem"
        certificate.write_bytes(self._authority.certificate)
        shown = [(str(certificate), _CERTIFICATE)]
        environment: dict[str, str] = dict.fromkeys(_TRUST, _CERTIFICATE) | dict.fromkeys(
            _PROXY, f"http://127.0.0.1:{port}"
        )
        for secret in found:
            dummy = dummies[secret.service]
            if secret.is_file:
                (folder / f"dummy-{secret.service}").write_text(dummy)
                shown.append((str(folder / f"dummy-{secret.service}"), f"{_FILES}/{secret.service}"))
                environment[secret.variable] = f"{_FILES}/{secret.service}"
            else:
                environment[secret.variable] = dummy
        with Egress(found, dummies, self._authority, self._record, self._verify, self._keys) as egress:
            yield CredentialBundle(environment, shown, egress.serve, egress.alarms)

    def _dummy(self, secret: Secret) -> str:
        """The same for the life of this object, also when the token is renewed meanwhile."""
        if secret.service not in self._dummies:
            self._dummies[secret.service] = dummy_of(secret.value, secret.service, self._session_key)
        return self._dummies[secret.service]
