"""The file that secrets are kept in: encrypted as a whole, written whole or not at all.

    autoclave-vault/1 | length of the header | header (JSON) | nonce | ChaCha20-Poly1305 of the content (JSON)

The header says how the key is made: from a passphrase by Argon2id (RFC 9106), or that a random one is kept elsewhere.
A key is made for a vault that is not there yet, or that is locked anew, and never to open one.
It is authenticated together with the content, so whoever changes a byte of the file gets an error and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
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
from autoclave.runtime.vault.admission import require_dummy, require_usable
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
        """The header of a file that this source opens. A random key is made if there is none."""
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
    """A file with a random key, that its owner alone can read.

    A vault names its key by a digest. With `is_fresh` another key is made for it, which lies beside the file, with
    `.new` after its name, until the vault is written; whoever opens that then puts it in place. So a process may die at
    any moment, and the vault is opened by one of both.
    """

    path: Path
    is_fresh: bool = False

    @staticmethod
    def beside(vault: Path, *, is_fresh: bool = False) -> KeyFile:
        """The one that belongs to the vault of a file."""
        return KeyFile(vault.with_name(f"{vault.name}.key"), is_fresh)

    @property
    def files(self) -> tuple[Path, Path]:
        """Where keys may be."""
        return self.path, self.path.with_name(f"{self.path.name}.new")

    def new_header(self) -> dict[str, Any]:
        current, new = self.files
        place = new if self.is_fresh else current
        if self.is_fresh or not current.exists():
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_privately(place, secrets.token_bytes(_KEY_BYTES))
        return {"key": "file", "digest": _digest(_key_in(place))}

    def key(self, header: Mapping[str, Any]) -> bytes:
        if header.get("key") != "file":
            raise InputError("the vault was not made with a key file")
        current, new = self.files
        for place in (current, new, current):  # again, since another process may put the new one in place meanwhile
            with contextlib.suppress(FileNotFoundError):
                key = _key_in(place)
                if header.get("digest", _digest(key)) == _digest(key):
                    return key
        if not current.exists():
            raise InputError(f"key file {current}: is not there, and nothing else opens the vault")
        raise InputError(f"key file {current}: has another key than that of the vault")

    def put_in_place(self, header: Mapping[str, Any]) -> None:
        """Make the key that a vault was opened with the current one."""
        current, new = self.files
        with contextlib.suppress(FileNotFoundError):  # there is none, or another process was first
            if header.get("digest") == _digest(new.read_bytes()):
                new.replace(current)


def _key_in(path: Path) -> bytes:
    if path.stat().st_mode & 0o077:
        raise InputError(f"key file {path}: others may read it; chmod 600")
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise InputError(f"key file {path}: must have {_KEY_BYTES} bytes")
    return key


def _digest(key: bytes) -> str:
    return hashlib.sha256(b"key of a vault\n" + key).hexdigest()[:32]


@dataclass(frozen=True)
class Keyring:
    """A random key in the keyring of the desktop, under the path of the vault."""

    account: str

    def new_header(self) -> dict[str, Any]:
        self._kept(secrets.token_hex(_KEY_BYTES))
        return {"key": "keyring"}

    def key(self, header: Mapping[str, Any]) -> bytes:
        if header.get("key") != "keyring":
            raise InputError("the vault was not made with a key in the keyring")
        kept = self._kept()
        if kept is None:
            raise InputError(f"keyring: has no key for {self.account}, and nothing else opens the vault")
        return bytes.fromhex(kept)

    def _kept(self, otherwise: str | None = None) -> str | None:
        """The key in the keyring; `otherwise` is put there if it has none."""
        try:
            import keyring  # pyright: ignore[reportMissingImports]
            import keyring.errors  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise HostError("the keyring needs a library. Fix: pip install keyring, or use a passphrase") from None
        try:
            kept = keyring.get_password(_SERVICE, self.account)
            if kept is None and otherwise is not None:
                keyring.set_password(_SERVICE, self.account, otherwise)
                return otherwise
        except keyring.errors.KeyringError as error:
            raise HostError(f"no keyring can be used here ({error}). Fix: use a passphrase or a key file") from None
        return kept


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

    @property
    def files(self) -> list[Path]:
        """What it is kept in, with its key: of no use to anybody else, and to be out of reach of actions."""
        own = [self._path, self._path.with_name(f"{self._path.name}.lock")]
        return [*own, *self._source.files] if isinstance(self._source, KeyFile) else own

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
            require_usable(secret, kept.values())
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
            require_dummy(changed)
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
            kept = self._secrets()
            self._source, self._keys = source, {}
            self._write(kept, source.new_header())
            self._secrets()  # puts a new key in place
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
        with contextlib.ExitStack() as opened:
            with _named_faults(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock = opened.enter_context(self._path.with_name(f"{self._path.name}.{what}").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _is_there(self) -> bool:
        with _named_faults(self._path):
            try:
                self._path.stat()
            except FileNotFoundError:
                return False
        return True

    def _header(self) -> dict[str, Any] | None:
        return _parsed(self._path)[0] if self._is_there() else None

    def _secrets(self) -> dict[str, Secret]:
        if not self._is_there():
            return {}
        header, told, nonce, sealed = _parsed(self._path)
        key = self._key(header)
        try:
            content = ChaCha20Poly1305(key).decrypt(nonce, sealed, told)
            given: Mapping[str, Any] = json.loads(content)["secrets"]
            if isinstance(self._source, KeyFile):
                self._source.put_in_place(header)
            return {name: secret_from(each, f"service {name}") for name, each in given.items()}
        except (InvalidTag, KeyError, ValueError, TypeError):
            raise InputError(f"vault {self._path}: the key is wrong, or the file is damaged") from None

    def _write(self, kept: Mapping[str, Secret], header: Mapping[str, Any]) -> None:
        encoded = json.dumps(header).encode()
        told = _MAGIC + len(encoded).to_bytes(4, "big") + encoded
        content = json.dumps({"secrets": {name: each.model_dump(mode="json") for name, each in kept.items()}}).encode()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = ChaCha20Poly1305(self._key(header)).encrypt(nonce, content, told)
        _write_privately(self._path, told + nonce + sealed)

    def _key(self, header: Mapping[str, Any]) -> bytes:
        name = json.dumps(header, sort_keys=True)
        if name not in self._keys:
            try:
                with _named_faults(self._path):
                    self._keys[name] = self._source.key(header)
            except (KeyError, ValueError, TypeError, OverflowError, MemoryError) as error:
                if isinstance(error, InputError):
                    raise InputError(f"vault {self._path}: {error}") from None
                raise InputError(f"vault {self._path}: the key is wrong, or the file is damaged") from None
        return self._keys[name]


@contextlib.contextmanager
def _named_faults(path: Path) -> Generator[None]:
    try:
        yield
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
    try:
        return Secret.model_validate(given)
    except ValidationError as error:
        first = first_error(error)
        raise InputError(f"{where}: {'.'.join(map(str, first['loc']))}: {rule_of(first['msg'])}") from None


def _parsed(path: Path) -> tuple[dict[str, Any], bytes, bytes, bytes]:
    """The header of a vault, the bytes up to its end, the nonce, and what is encrypted."""
    with _named_faults(path):
        if not (path.is_file() or path.is_dir()):
            raise InputError(f"vault {path}: is no plain file")
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
