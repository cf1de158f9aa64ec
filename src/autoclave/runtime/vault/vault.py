"""The file that secrets are kept in: JSON encrypted as a whole by age, written whole or not at all.

The `age` tool opens it as well: with the passphrase, or by `age --decrypt --identity vault.key vault`. A changed byte
of the file makes opening it an error. A key is made for a vault that is missing or locked again, never to open one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyrage

from autoclave.core import HostError, InputError
from autoclave.core.files import write_atomically
from autoclave.core.json import validated
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.injection import is_passed_on
from autoclave.runtime.vault.secret import Secret

_WITH_PASSPHRASE = b"age-encryption.org/v1\n-> scrypt "
_OLD_FORMAT = b"autoclave-vault/1\n"
_OLD_KEYS = {b'"argon2id"': "Passphrase(input())", b'"keyring"': "Keyring(str(p.resolve()))"}
_PR_SET_DUMPABLE = 4
_NEVER_IN_PATH = re.compile(r"[%\\#;\x00-\x1f\x7f]|//|/\.{1,2}(?:/|\Z)")
Record = Callable[[str, str, Mapping[str, Any]], object]


class KeySource(Protocol):
    """Encrypts and decrypts a vault with the key that it has."""

    def encrypt(self, content: bytes, *, is_first: bool) -> bytes:
        """Encrypt a content. `is_first`: the vault is missing or is locked again; a random key is made if needed."""
        ...

    def decrypt(self, sealed: bytes, *, is_locked: bool) -> bytes:
        """Decrypt a vault. `is_locked`: no other process writes meanwhile.

        Raises:
            InputError: the key is missing, or is not a key.
            pyrage.DecryptError: the key is another one, or the content is damaged.
        """
        ...


@dataclass(frozen=True)
class Passphrase:
    """A passphrase, by scrypt at age's cost (about a second): what was decrypted last is kept."""

    text: str = field(repr=False)
    _last: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes], repr=False, compare=False)

    def encrypt(self, content: bytes, *, is_first: bool) -> bytes:
        sealed = pyrage.passphrase.encrypt(content, self.text)
        self._keep(sealed, content)
        return sealed

    def decrypt(self, sealed: bytes, *, is_locked: bool) -> bytes:
        content = self._last.get(sealed)
        if content is None:
            content = pyrage.passphrase.decrypt(sealed, self.text)
            self._keep(sealed, content)
        return content

    def _keep(self, sealed: bytes, content: bytes) -> None:
        self._last.clear()
        self._last[sealed] = content


@dataclass(frozen=True)
class KeyFile:
    """A file with an identity as `age-keygen` writes it, that its owner alone can read.

    With `is_fresh` a vault gets another one, which is added to the file before the vault is written; the next process
    that holds the lock removes the other. So a process may die at any moment, and the vault is opened by one of both.
    """

    path: Path
    is_fresh: bool = False

    @staticmethod
    def beside(vault: Path, *, is_fresh: bool = False) -> KeyFile:
        """The one that belongs to the vault of a file."""
        return KeyFile(vault.with_name(f"{vault.name}.key"), is_fresh)

    def encrypt(self, content: bytes, *, is_first: bool) -> bytes:
        if is_first and (self.is_fresh or not self.path.exists()):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write([*(self._identities() if self.path.exists() else []), pyrage.x25519.Identity.generate()])
        return pyrage.encrypt(content, [self._identities()[-1].to_public()])

    def decrypt(self, sealed: bytes, *, is_locked: bool) -> bytes:
        if not self.path.exists():
            raise InputError(f"key file {self.path}: is missing, and nothing else opens the vault")
        identities = self._identities()
        for identity in identities:
            with contextlib.suppress(pyrage.DecryptError):
                content = pyrage.decrypt(sealed, [identity])
                if is_locked and len(identities) > 1:
                    self._write([identity])
                return content
        raise pyrage.DecryptError("another key")

    def _identities(self) -> list[pyrage.x25519.Identity]:
        if self.path.stat().st_mode & 0o077:
            raise InputError(f"key file {self.path}: others may read it; chmod 600")
        lines = self.path.read_bytes().decode("ascii", "replace").splitlines()
        try:
            found = [pyrage.x25519.Identity.from_str(line.strip()) for line in lines if line and line[0] != "#"]
        except pyrage.IdentityError:
            found = []
        if not found:
            raise InputError(f"key file {self.path}: must have an identity of age (AGE-SECRET-KEY-1...)")
        return found

    def _write(self, identities: Sequence[pyrage.x25519.Identity]) -> None:
        _write_privately(self.path, "".join(f"{identity}\n" for identity in identities).encode())


class Vault:
    """Secrets by their service. Each change reads, changes and writes the file alone.

    `record` is told of every access; it never gets a value.

    Raises:
        InputError: the key is wrong, or the file damaged; which of both cannot be told.
    """

    def __init__(self, path: Path, source: KeySource, record: Record | None = None) -> None:
        self._path, self._source = path, source
        self._record: Record = record or (lambda kind, subject, body: None)
        self._secrets()

    @property
    def files(self) -> list[Path]:
        """What it is kept in, with its key: of no use to anybody else, and to be out of reach of actions."""
        own = [self._path, self._path.with_name(f"{self._path.name}.lock")]
        return [*own, self._source.path] if isinstance(self._source, KeyFile) else own

    def names(self) -> list[str]:
        """The services that it has secrets of."""
        return sorted(self._secrets())

    def about(self, service: str) -> dict[str, Any]:
        """What is known of a secret but the value."""
        hidden = {"value": True, "authorization": {"client_secret", "refresh_token"}}
        return self._of(service).model_dump(mode="json", exclude=hidden)

    def is_renewable(self, service: str) -> bool:
        """Whether a service has a token by OAuth 2, and not a key that somebody typed in."""
        return self._of(service).authorization is not None

    def secret(self, service: str, purpose: str) -> Secret:
        """A secret; who asked for what is recorded.

        Raises:
            InputError: there is none.
        """
        found = self._of(service)
        self._record("secret", service, {"access": "read", "purpose": purpose})
        return found

    def add(self, secret: Secret) -> None:
        """Add a secret.

        Raises:
            InputError: there is one of that service, or it could not be used.
        """
        with self._changing() as kept:
            if secret.service in kept:
                raise InputError(f"service {secret.service}: has a secret; rotate or remove it")
            _require_usable(secret, kept.values())
            kept[secret.service] = secret.model_copy(update={"added_at": time.time()})
        self._record("secret", secret.service, {"access": "add", "hosts": list(secret.hosts)})

    def put(self, secret: Secret, access: str, **told: Any) -> None:
        """Add a secret or replace that of its service; what is `told` is recorded."""
        with self._changing() as kept:
            before = kept.get(secret.service)
            times = {"added_at": before.added_at, "rotated_at": time.time()} if before else {"added_at": time.time()}
            kept[secret.service] = secret.model_copy(update=times)
        self._record("secret", secret.service, {"access": access, **told})

    def change(self, service: str, access: str, change: Callable[[Secret], Secret], **told: Any) -> Secret:
        """Change the secret of a service to what `change` makes of it, durably; what is `told` is recorded.

        Raises:
            InputError: there is none.
        """
        with self._changing() as kept:
            kept[service] = changed = change(_found(kept, service))
        self._record("secret", service, {"access": access, **told})
        return changed

    def rotate(self, service: str, value: str) -> None:
        """Give a service another value.

        Raises:
            InputError: there is no secret, the new one could not be used, or the value is renewed by OAuth 2.
        """

        def another(before: Secret) -> Secret:
            if before.authorization:
                raise InputError(f"service {service}: its token is renewed by OAuth 2, and cannot be given")
            told = before.model_dump() | {"value": value, "rotated_at": time.time()}
            changed = secret_from(told, f"service {service}")
            _require_dummy(changed)
            return changed

        self.change(service, "rotate", another)

    def told(self, service: str, access: str, **about: Any) -> None:
        """Record an access that somebody else makes on behalf of a service."""
        self._record("secret", service, {"access": access, **about})

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Be the only one who renews or gives up tokens of this vault, among all threads and processes.

        Others may read and change it meanwhile.
        """
        with self._locked("renewal"):
            yield

    def remove(self, service: str) -> None:
        """Forget a secret."""
        with self._changing() as kept:
            _found(kept, service)
            del kept[service]
        self._record("secret", service, {"access": "remove"})

    def rekey(self, source: KeySource) -> None:
        """Encrypt all with another key."""
        with self._locked():
            kept = self._secrets(is_locked=True)
            self._source = source
            self._write(kept, is_first=True)
            self._secrets(is_locked=True)  # removes the key before
        self._record("vault", str(self._path), {"access": "rekey"})

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _of(self, service: str) -> Secret:
        return _found(self._secrets(), service)

    @contextlib.contextmanager
    def _changing(self) -> Generator[dict[str, Secret]]:
        with self._locked():
            kept = self._secrets(is_locked=True)
            yield kept
            self._write(kept, is_first=self._content() is None)

    @contextlib.contextmanager
    def _locked(self, what: str = "lock") -> Generator[None]:
        with contextlib.ExitStack() as opened:
            with _named_faults(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock = opened.enter_context(self._path.with_name(f"{self._path.name}.{what}").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _content(self) -> bytes | None:
        """The encrypted bytes; None if the vault is missing."""
        with _named_faults(self._path):
            try:
                if not self._path.is_file() and not self._path.is_dir() and self._path.exists():
                    raise InputError(f"vault {self._path}: is not a plain file")
                return self._path.read_bytes()
            except FileNotFoundError:
                return None

    def _secrets(self, *, is_locked: bool = False) -> dict[str, Secret]:
        sealed = self._content()
        if sealed is None:
            return {}
        if sealed.startswith(_OLD_FORMAT):
            raise InputError(f"vault {self._path}: {_old_format(self._path, sealed)}")
        try:
            with _named_faults(self._path):
                content = self._source.decrypt(sealed, is_locked=is_locked)
            given: Mapping[str, Any] = json.loads(content)["secrets"]
            return {name: secret_from(each, f"service {name}") for name, each in given.items()}
        except InputError as error:
            raise InputError(f"vault {self._path}: {error}") from None
        except (pyrage.DecryptError, KeyError, ValueError, TypeError, AttributeError):
            kind = "a passphrase" if sealed.startswith(_WITH_PASSPHRASE) else "a key file"
            why = f"the key is wrong, or the file is damaged; it is locked with {kind}"
            raise InputError(f"vault {self._path}: {why}") from None

    def _write(self, kept: Mapping[str, Secret], *, is_first: bool) -> None:
        content = json.dumps({"secrets": {name: each.model_dump(mode="json") for name, each in kept.items()}}).encode()
        with _named_faults(self._path):
            _write_privately(self._path, self._source.encrypt(content, is_first=is_first))


@contextlib.contextmanager
def _named_faults(path: Path) -> Generator[None]:
    try:
        yield
    except HostError:
        raise
    except OSError as error:
        at = error.filename or path
        raise InputError(f"vault {path}: {at} cannot be used ({error.strerror})") from None


def _write_privately(path: Path, content: bytes) -> None:
    umask = os.umask(0o077)
    try:
        write_atomically(path, content)
    finally:
        os.umask(umask)


def _found(kept: Mapping[str, Secret], service: str) -> Secret:
    if service not in kept:
        raise InputError(f"service {service}: has no secret; the vault has {', '.join(sorted(kept)) or 'none'}")
    return kept[service]


def secret_from(given: Mapping[str, Any], where: str) -> Secret:
    """A secret out of JSON data.

    Raises:
        InputError: it is none; the message has no value.
    """
    return validated(Secret, given, where)


def _require_usable(secret: Secret, others: Iterable[Secret]) -> None:
    """Check whether code could use a secret, beside the others of its vault.

    Raises:
        InputError: no request could ever have it, no dummy can be made of it, or another one has its variable.
    """
    where = f"service {secret.service}"
    _require_dummy(secret)
    for host in secret.hosts:
        port = host.partition(":")[2]
        if port and not 0 < int(port) < 1 << 16:
            raise InputError(f"{where}: host {host}: the port must be from 1 to 65535")
    for pattern in secret.paths:
        if not pattern.startswith(("/", "**")) or _NEVER_IN_PATH.search(pattern):
            raise InputError(
                f"{where}: path {pattern!r}: no request can match it. Fix: begin with /, and write characters as they "
                "are, without %; those that can be read in several ways are never let through"
            )
    if secret.place != "query" and not is_passed_on(secret.name.encode()):
        raise InputError(f"{where}: header {secret.name}: is not passed on, so no key can be in it")
    for other in others:
        if other.variable == secret.variable:
            raise InputError(f"{where}: {other.service} has the variable {other.variable} already; give another name")


def _require_dummy(secret: Secret) -> None:
    """Check whether a value can be told from its dummy, and stand in a line.

    Raises:
        InputError: it cannot.
    """
    if secret.value != secret.value.strip():
        raise InputError(f"service {secret.service}: the key begins or ends with a space")
    dummy_of(secret.value, secret.service, bytes(32))


def _old_format(path: Path, sealed: bytes) -> str:
    """Say how to get the secrets out of a vault that an earlier release made."""
    source = next((call for name, call in _OLD_KEYS.items() if name in sealed[:300]), "KeyFile.beside(p)")
    return (
        "is in the format of an earlier release. Fix: move it and its key aside and add its secrets again; with the "
        "release that made it, this prints them: python -c 'from pathlib import Path; "
        f'from autoclave.runtime.vault import *; p = Path("{path}"); v = Vault(p, {source}); '
        '[print(v.secret(n, "export").model_dump_json()) for n in v.names()]\''
    )


def forbid_core_dumps() -> None:
    """Have the kernel write no image of this process, and let nobody of this user look into it."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
