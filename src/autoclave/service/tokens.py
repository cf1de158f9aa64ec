"""Bearer tokens: created here, printed once, stored as a hash.

A token is `autoclave_<id of 8 hex digits>_<secret of 256 random bits>`; the id finds the record, and the hash of the
whole token is compared. No process, no file, no clock.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum

from autoclave.core import InputError

_FORM = re.compile(r"autoclave_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_UNKNOWN = hashlib.sha256(b"unknown").hexdigest()


class Scope(StrEnum):
    """Permission of a token."""

    JUDGE = "judge"
    """Judge programs on stored problems, run programs, read one's own jobs."""
    PROBLEMS_WRITE = "problems:write"
    """Upload and delete problems."""
    ANSWERS_READ = "answers:read"
    """Read problems with their expected answers."""
    TRACES_READ = "traces:read"
    """Trace programs; a trace can show the input of a test."""
    ADMIN = "admin"
    """Delete problems of other clients."""


HIGHEST_PRIORITY = 9
_ORDINARY_PRIORITY = 7


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a token beside those of the server; None is the server's own limit, or none."""

    priority: int | None = None
    """Highest priority of its jobs."""
    queue: int | None = None
    """Most programs that wait."""
    requests_per_s: float | None = None
    cpu_s_per_hour: float | None = None
    cpu_s_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """Stored part of a token. Times are seconds since 1970; `expires` of None is never."""

    id: str
    label: str
    hash: str = field(repr=False)
    scopes: frozenset[Scope]
    created: float
    expires: float | None = None
    is_revoked: bool = False
    limits: Limits = Limits()

    def is_valid(self, now: float) -> bool:
        return not self.is_revoked and (self.expires is None or now < self.expires)


@dataclass(frozen=True, slots=True)
class Client:
    """A client: the id in jobs, limits and the audit log, its scopes and its limits."""

    id: str
    scopes: frozenset[Scope]
    limits: Limits = Limits()

    @property
    def greatest_priority(self) -> int:
        """Return the highest priority of its jobs, by default the highest of all for an admin only."""
        ordinary = HIGHEST_PRIORITY if Scope.ADMIN in self.scopes else _ORDINARY_PRIORITY
        return ordinary if self.limits.priority is None else self.limits.priority


LOCAL_CLIENT = Client("local", frozenset(Scope))
"""Every client of a server without tokens."""


def create_token(
    label: str, scopes: frozenset[Scope], now: float, lifetime_s: float | None, limits: Limits = Limits()
) -> tuple[str, TokenRecord]:
    """Return a new token, which cannot be read again, and its record."""
    identity = secrets.token_hex(4)
    text = f"autoclave_{identity}_{secrets.token_urlsafe(32)}"
    expires = None if lifetime_s is None else now + lifetime_s
    return text, TokenRecord(identity, label, hash_of(text), scopes, now, expires, limits=limits)


def hash_of(text: str) -> str:
    """Return the sha256 (hex) of a token. Its 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def identity_of(text: str) -> str | None:
    """Return the id in a token; None if the string does not have the form of a token."""
    match = _FORM.fullmatch(text)
    return match[1] if match else None


def is_authentic(text: str, record: TokenRecord | None, now: float) -> bool:
    """Return whether `text` is the token of a valid record, in constant time, also for an unknown id."""
    is_equal = hmac.compare_digest(hash_of(text), record.hash if record else _UNKNOWN)
    return is_equal and record is not None and record.is_valid(now)


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration such as 30d, 12h, 90m or 45s; None for `never`. Raises `InputError`."""
    if text == "never":
        return None
    match = _DURATION.fullmatch(text)
    if not match:
        raise InputError(f"{text!r}: must be a number with s, m, h or d, such as 30d, or never")
    return float(int(match[1]) * _SECONDS[match[2]])
