"""The file that secrets are kept in: encrypted as a whole, written whole or not at all.

    autoclave-vault/1 | length of the header | header (JSON) | nonce | ChaCha20-Poly1305 of the content (JSON)

The header says how the key is made: from a passphrase by Argon2id (RFC 9106), or that a random one is kept elsewhere.
It is authenticated together with the content, so whoever changes a byte of the file gets an error and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from pydantic import ValidationError

from autoclave.core import HostError, InputError
from autoclave.core.files import write_atomically
from autoclave.core.json import first_error, rule_of
from autoclave.runtime.vault.secret import Secret

_MAGIC = b"autoclave-vault/1\n"
_KEY_BYTES, _NONCE_BYTES = 32, 12
_MOST_HEADER = 4096
_BOUNDS = {"memory_kib": (8, 1 << 20), "iterations": (1, 64), "lanes": (1, 16)}
"""A file that somebody else wrote must not make us use any amount of memory or time."""
_PR_SET_DUMPABLE = 4
_SERVICE = "autoclave"
Record = Callable[[str, str, Mapping[str, Any]], object]


class KeySource(Protocol):
    """Where the key of a vault comes from."""

    def new_header(self) -> dict[str, Any]:
        """The header of a file that this source opens."""
        ...

    def key(self, header: Mapping[str, Any]) -> bytes:
        """The key of the file with a header.

        Raises:
            InputError: the file was made with another kind of key.
        """
        ...


@dataclass(frozen=True)
class Passphrase:
    """A passphrase. The cost is for new files; 64 MiB and three passes as RFC 9106 recommends where memory is short."""

    text: str
    memory_kib: int = 64 << 10
    iterations: int = 3
    lanes: int = 4

    def __repr__(self) -> str:
        return "Passphrase(...)"

    def new_header(self) -> dict[str, Any]:
        cost = {"memory_kib": self.memory_kib, "iterations": self.iterations, "lanes": self.lanes}
        return {"key": "argon2id", **cost, "salt": secrets.token_hex(16)}

    def key(self, header: Mapping[str, Any]) -> bytes:
        if header.get("key") != "argon2id":
            raise InputError("the vault was not made with a passphrase")
        cost = {name: int(header[name]) for name in _BOUNDS}
        if any(not low <= cost[name] <= high for name, (low, high) in _BOUNDS.items()):
            raise InputError("the vault asks for a cost out of bounds")
        if cost["memory_kib"] < 8 * cost["lanes"]:
            raise InputError("the vault asks for a cost out of bounds")
        derive = Argon2id(salt=bytes.fromhex(str(header["salt"])), length=_KEY_BYTES, memory_cost=cost["memory_kib"],
                          iterations=cost["iterations"], lanes=cost["lanes"])  # fmt: skip
        return derive.derive(self.text.encode())


@dataclass(frozen=True)
class KeyFile:
    """A file with a random key, that its owner alone can read; made when it is not there."""

    path: Path

    def new_header(self) -> dict[str, Any]:
        return {"key": "file"}

    def key(self, header: Mapping[str, Any]) -> bytes:
        if header.get("key") != "file":
            raise InputError("the vault was not made with a key file")
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(_KEY_BYTES))
                    os.fsync(file.fileno())
        about = self.path.stat()
        if about.st_mode & 0o077:
            raise InputError(f"key file {self.path}: others may read it; chmod 600")
        key = self.path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise InputError(f"key file {self.path}: must have {_KEY_BYTES} bytes")
        return key


@dataclass(frozen=True)
class Keyring:
    """A random key in the keyring of the desktop, under the path of the vault."""

    account: str

    def new_header(self) -> dict[str, Any]:
        return {"key": "keyring"}

    def key(self, header: Mapping[str, Any]) -> bytes:
        if header.get("key") != "keyring":
            raise InputError("the vault was not made with a key in the keyring")
        try:
            import keyring  # pyright: ignore[reportMissingImports]
            import keyring.errors  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise HostError("the keyring needs a library. Mend: pip install keyring, or use a passphrase") from None
        try:
            kept = keyring.get_password(_SERVICE, self.account)
            if kept is None:
                kept = secrets.token_hex(_KEY_BYTES)
                keyring.set_password(_SERVICE, self.account, kept)
        except keyring.errors.KeyringError as error:
            raise HostError(f"no keyring can be used here ({error}). Mend: use a passphrase or a key file") from None
        return bytes.fromhex(kept)


class Vault:
    """Secrets by their service. Each change reads, changes and writes the file alone.

    `record` is told of every access; it never gets a value.

    Raises:
        InputError: the key is wrong, or the file damaged; which of both cannot be told.
    """

    def __init__(self, path: Path, source: KeySource, record: Record | None = None) -> None:
        self._path, self._source = path, source
        self._record: Record = record or (lambda kind, subject, body: None)
        self._keys: dict[str, bytes] = {}
        self._secrets()

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
            InputError: there is one of that service.
        """
        with self._changing() as kept:
            if secret.service in kept:
                raise InputError(f"service {secret.service}: has a secret; rotate or remove it")
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
            InputError: there is no secret, or the value is renewed by OAuth 2.
        """

        def another(before: Secret) -> Secret:
            if before.authorization:
                raise InputError(f"service {service}: its token is renewed by OAuth 2, and cannot be given")
            told = before.model_dump() | {"value": value, "rotated_at": time.time()}
            return secret_from(told, f"service {service}")

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
            kept = self._secrets()
            self._source, self._keys = source, {}
            self._write(kept, source.new_header())
        self._record("vault", str(self._path), {"access": "rekey"})

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _of(self, service: str) -> Secret:
        return _found(self._secrets(), service)

    @contextlib.contextmanager
    def _changing(self) -> Generator[dict[str, Secret]]:
        with self._locked():
            kept = self._secrets()
            yield kept
            self._write(kept, self._header() or self._source.new_header())

    @contextlib.contextmanager
    def _locked(self, what: str = "lock") -> Generator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._path.with_name(f"{self._path.name}.{what}").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _header(self) -> dict[str, Any] | None:
        return _parsed(self._path)[0] if self._path.exists() else None

    def _secrets(self) -> dict[str, Secret]:
        if not self._path.exists():
            return {}
        header, told, nonce, sealed = _parsed(self._path)
        key = self._key(header)
        try:
            content = ChaCha20Poly1305(key).decrypt(nonce, sealed, told)
            given: Mapping[str, Any] = json.loads(content)["secrets"]
            return {name: secret_from(each, f"service {name}") for name, each in given.items()}
        except (InvalidTag, KeyError, ValueError, TypeError):
            raise InputError(f"vault {self._path}: the key is wrong, or the file is damaged") from None

    def _write(self, kept: Mapping[str, Secret], header: Mapping[str, Any]) -> None:
        encoded = json.dumps(header).encode()
        told = _MAGIC + len(encoded).to_bytes(4, "big") + encoded
        content = json.dumps({"secrets": {name: each.model_dump(mode="json") for name, each in kept.items()}}).encode()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = ChaCha20Poly1305(self._key(header)).encrypt(nonce, content, told)
        umask = os.umask(0o077)
        try:
            write_atomically(self._path, told + nonce + sealed)
        finally:
            os.umask(umask)

    def _key(self, header: Mapping[str, Any]) -> bytes:
        name = json.dumps(header, sort_keys=True)
        if name not in self._keys:
            try:
                self._keys[name] = self._source.key(header)
            except (KeyError, ValueError, TypeError, OverflowError, MemoryError) as error:
                if isinstance(error, InputError):
                    raise InputError(f"vault {self._path}: {error}") from None
                raise InputError(f"vault {self._path}: the key is wrong, or the file is damaged") from None
        return self._keys[name]


def _found(kept: Mapping[str, Secret], service: str) -> Secret:
    if service not in kept:
        raise InputError(f"service {service}: has no secret; the vault has {', '.join(sorted(kept)) or 'none'}")
    return kept[service]


def secret_from(given: Mapping[str, Any], where: str) -> Secret:
    """A secret out of JSON data.

    Raises:
        InputError: it is none; the message has no value.
    """
    try:
        return Secret.model_validate(given)
    except ValidationError as error:
        first = first_error(error)
        raise InputError(f"{where}: {'.'.join(map(str, first['loc']))}: {rule_of(first['msg'])}") from None


def _parsed(path: Path) -> tuple[dict[str, Any], bytes, bytes, bytes]:
    """The header of a vault, the bytes up to its end, the nonce, and what is encrypted."""
    content = path.read_bytes()
    start = len(_MAGIC) + 4
    length = int.from_bytes(content[len(_MAGIC) : start], "big")
    told = content[: start + length]
    try:
        if not content.startswith(_MAGIC) or length > _MOST_HEADER or len(content) < start + length + _NONCE_BYTES:
            raise ValueError("no vault")
        header = json.loads(told[start:])
        if not isinstance(header, dict):
            raise TypeError("no header")
    except (ValueError, TypeError):
        raise InputError(f"vault {path}: the key is wrong, or the file is damaged") from None
    return (
        header,
        told,
        content[start + length : start + length + _NONCE_BYTES],
        content[start + length + _NONCE_BYTES :],
    )


def forbid_core_dumps() -> None:
    """Have the kernel write no image of this process, and let nobody of this user look into it."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
