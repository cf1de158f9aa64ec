"""The file of secrets: JSON encrypted by age, written atomically.

The `age` tool opens it as well: with the passphrase, or by `age --decrypt --identity vault.key vault`. A changed byte
of the file makes opening it an error. A key is created for a new or rekeyed vault, never for opening one.
"""

import contextlib
import ctypes
import fcntl
import functools
import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyrage

from autoclave.core import HostError, InputError
from autoclave.core.files import write_atomically
from autoclave.core.json import validated
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.injection import is_passed_on
from autoclave.runtime.vault.secret import Secret

_WITH_PASSPHRASE = b"age-encryption.org/v1\n-> scrypt "
_PR_SET_DUMPABLE = 4
Record = Callable[[str, str, Mapping[str, Any]], object]


@dataclass(frozen=True)
class Passphrase:
    """A passphrase, by scrypt at age's cost (about a second)."""

    text: str = field(repr=False)

    def encrypt(self, content: bytes) -> bytes:
        return pyrage.passphrase.encrypt(content, self.text)

    def decrypt(self, sealed: bytes) -> bytes:
        return _decrypted_by_passphrase(sealed, self.text)


_decrypted_by_passphrase = functools.lru_cache(maxsize=1)(pyrage.passphrase.decrypt)


@dataclass(frozen=True)
class KeyFile:
    """A file with an identity as `age-keygen` writes it, that its owner alone can read.

    During a rekey the file has both identities, so that one of them opens the vault after a crash.
    """

    path: Path

    @staticmethod
    def beside(vault: Path) -> "KeyFile":
        return KeyFile(vault.with_name(f"{vault.name}.key"))

    def encrypt(self, content: bytes) -> bytes:
        if not self.path.exists():
            self.add_identity()
        return pyrage.encrypt(content, [self._identities()[-1].to_public()])

    def decrypt(self, sealed: bytes) -> bytes:
        if not self.path.exists():
            raise InputError(f"key file {self.path}: is missing, and nothing else opens the vault")
        return pyrage.decrypt(sealed, self._identities())

    def add_identity(self) -> None:
        """Add another identity, which encrypts from here on."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write([*(self._identities() if self.path.exists() else []), pyrage.x25519.Identity.generate()])

    def keep_newest(self) -> None:
        self._write(self._identities()[-1:])

    def _identities(self) -> list[pyrage.x25519.Identity]:
        if self.path.stat().st_mode & 0o077:
            raise InputError(f"key file {self.path}: others may read it; chmod 600")
        lines = self.path.read_bytes().decode("ascii", "replace").splitlines()
        try:
            found = [pyrage.x25519.Identity.from_str(line.strip()) for line in lines if line and line[0] != "#"]
        except pyrage.IdentityError:
            found = []
        if not found:
            raise InputError(f"key file {self.path}: must have an age identity (AGE-SECRET-KEY-1...)")
        return found

    def _write(self, identities: Sequence[pyrage.x25519.Identity]) -> None:
        _write_privately(self.path, "".join(f"{identity}\n" for identity in identities).encode())


KeySource = Passphrase | KeyFile


class Vault:
    """Secrets by their service. Each change reads and writes the file under a lock.

    `record` is called with every access; it never gets a value. Raises InputError where the key is wrong or the file
    damaged, which cannot be distinguished.
    """

    def __init__(self, path: Path, source: KeySource, record: Record | None = None) -> None:
        self._path, self._source = path, source
        self._record: Record = record or (lambda kind, subject, body: None)
        self._secrets()

    @property
    def files(self) -> list[Path]:
        """The files of the vault and its key, to be kept out of reach of actions."""
        own = [self._path, self._path.with_name(f"{self._path.name}.lock")]
        return [*own, self._source.path] if isinstance(self._source, KeyFile) else own

    def names(self) -> list[str]:
        return sorted(self._secrets())

    def about(self, service: str) -> dict[str, Any]:
        """Return all of a secret but its values. `authorization` is None for a key that was entered by hand."""
        hidden = {"value": True, "authorization": {"client_secret", "refresh_token"}}
        return _found(self._secrets(), service).model_dump(mode="json", exclude=hidden)

    def secret(self, service: str, purpose: str) -> Secret:
        """Return a secret, recording the purpose. Raises InputError where there is none."""
        found = _found(self._secrets(), service)
        self.told(service, "read", purpose=purpose)
        return found

    def add(self, secret: Secret) -> None:
        """Add a secret. Raises InputError where there is one of that service, or it could not be used."""
        with self._changing() as kept:
            if secret.service in kept:
                raise InputError(f"service {secret.service}: has a secret; rotate or remove it")
            _require_usable(secret, kept.values())
            kept[secret.service] = secret
        self.told(secret.service, "add", hosts=list(secret.hosts))

    def put(self, secret: Secret, access: str, **about: Any) -> None:
        with self._changing() as kept:
            kept[secret.service] = secret
        self.told(secret.service, access, **about)

    def change(self, service: str, access: str, change: Callable[[Secret], Secret], **about: Any) -> Secret:
        """Change the secret of a service, durably. Raises InputError where there is none."""
        with self._changing() as kept:
            kept[service] = changed = change(_found(kept, service))
        self.told(service, access, **about)
        return changed

    def rotate(self, service: str, value: str) -> None:
        """Give a service another value; raise InputError if it has no secret, cannot use it, or OAuth 2 renews it."""

        def another(before: Secret) -> Secret:
            if before.authorization:
                raise InputError(f"service {service}: its token is renewed by OAuth 2, and cannot be given")
            changed = validated(Secret, before.model_dump() | {"value": value}, f"service {service}")
            dummy_of(value, service, bytes(32))
            return changed

        self.change(service, "rotate", another)

    def told(self, service: str, access: str, **about: Any) -> None:
        self._record("secret", service, {"access": access, **about})

    def alone(self) -> AbstractContextManager[None]:
        """Be the only thread or process that renews or revokes tokens; others may read and change secrets."""
        return self._locked("renewal")

    def remove(self, service: str) -> None:
        with self._changing() as kept:
            _found(kept, service)
            del kept[service]
        self.told(service, "remove")

    def rekey(self, source: KeySource) -> None:
        """Encrypt the vault with another key: a key file gets a new identity, and loses the old one."""
        with self._locked():
            kept = self._secrets()
            with _named_faults(self._path):
                if isinstance(source, KeyFile):
                    source.add_identity()
                self._source = source
                self._write(kept)
                if isinstance(source, KeyFile):
                    source.keep_newest()
        self._record("vault", str(self._path), {"access": "rekey"})

    @contextlib.contextmanager
    def _changing(self) -> Generator[dict[str, Secret]]:
        with self._locked():
            kept = self._secrets()
            yield kept
            with _named_faults(self._path):
                self._write(kept)

    @contextlib.contextmanager
    def _locked(self, what: str = "lock") -> Generator[None]:
        with contextlib.ExitStack() as opened:
            with _named_faults(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock = opened.enter_context(self._path.with_name(f"{self._path.name}.{what}").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _secrets(self) -> dict[str, Secret]:
        sealed: bytes | None = None
        with _named_faults(self._path), contextlib.suppress(FileNotFoundError):
            if not self._path.is_file() and not self._path.is_dir() and self._path.exists():
                raise InputError(f"vault {self._path}: is not a plain file")  # a device may have no end
            sealed = self._path.read_bytes()
        if sealed is None:
            return {}
        try:
            with _named_faults(self._path):
                content = self._source.decrypt(sealed)
            given: Mapping[str, Any] = json.loads(content)["secrets"]
            return {name: _read(name, each) for name, each in given.items()}
        except InputError as error:
            raise InputError(f"vault {self._path}: {error}") from None
        except (pyrage.DecryptError, KeyError, ValueError, TypeError, AttributeError):
            kind = "a passphrase" if sealed.startswith(_WITH_PASSPHRASE) else "a key file"
            why = f"the key is wrong, or the file is damaged; it is locked with {kind}"
            raise InputError(f"vault {self._path}: {why}") from None

    def _write(self, kept: Mapping[str, Secret]) -> None:
        content = json.dumps({"secrets": {name: each.model_dump(mode="json") for name, each in kept.items()}})
        _write_privately(self._path, self._source.encrypt(content.encode()))


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


def _read(service: str, given: Mapping[str, Any]) -> Secret:
    """A secret as the file has it; what earlier versions wrote besides is left out."""
    known = {name: value for name, value in given.items() if name in Secret.model_fields}
    return validated(Secret, known, f"service {service}")


def _found(kept: Mapping[str, Secret], service: str) -> Secret:
    if service not in kept:
        raise InputError(f"service {service}: has no secret; the vault has {', '.join(sorted(kept)) or 'none'}")
    return kept[service]


def _require_usable(secret: Secret, others: Iterable[Secret]) -> None:
    """Raise InputError if no request could contain a secret, it has no dummy, or its variable is taken."""
    where = f"service {secret.service}"
    dummy_of(secret.value, secret.service, bytes(32))
    if secret.place != "query" and not is_passed_on(secret.name.encode()):
        raise InputError(f"{where}: header {secret.name}: is not passed on, so no key can be in it")
    for other in others:
        if other.variable == secret.variable:
            raise InputError(f"{where}: {other.service} has the variable {other.variable} already; give another name")


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process, and inspection of it by other processes of this user."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
