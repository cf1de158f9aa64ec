"""Records of a journal as a hash chain, and its audit. Pure: no file, no clock.

Each record holds the digest of the one before. That alone reveals a record that was altered, inserted or removed, but
not a truncated or rewritten chain: for these a checkpoint (the number of records, and the digest of the last) is signed
and kept elsewhere.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autoclave.core.json import canonical_json

SEALED = frozenset({"executed", "failed", "undone", "undo_failed", "undo_in_doubt", "in_doubt", "redone", "committed"})
"""Kinds of records that a checkpoint follows."""
NO_DIGEST = bytes(32)
"""The previous digest in the first record."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event, numbered from 1. `at` is in seconds since 1970; `body` is JSON data."""

    number: int
    at: float
    kind: str
    subject: str
    body: Mapping[str, Any]
    previous: bytes
    digest: bytes

    @staticmethod
    def after(previous: bytes, number: int, at: float, kind: str, subject: str, body: Mapping[str, Any]) -> "Record":
        """Create the record that follows the one with the digest `previous`."""
        digest = _digest(previous, at, kind, subject, body)
        return Record(number, at, kind, subject, body, previous, digest)

    @property
    def is_whole(self) -> bool:
        """Return whether its digest matches its content."""
        return self.digest == _digest(self.previous, self.at, self.kind, self.subject, self.body)


def _digest(previous: bytes, at: float, kind: str, subject: str, body: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(previous + canonical_json([at, kind, subject, body])).digest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """There were `count` records, and `head` was the digest of the last; signed with HMAC-SHA256."""

    count: int
    head: bytes
    signature: bytes

    @staticmethod
    def signed(count: int, head: bytes, key: bytes) -> "Checkpoint":
        told = b"autoclave-checkpoint/1" + count.to_bytes(8, "big") + head
        return Checkpoint(count, head, hmac.digest(key, told, "sha256"))

    def is_signed_with(self, key: bytes) -> bool:
        return hmac.compare_digest(self.signature, Checkpoint.signed(self.count, self.head, key).signature)


def signature_of(record: Record, key: bytes) -> str:
    """Return the HMAC-SHA256 of a record at its place in the chain, without its signature."""
    body = {name: value for name, value in record.body.items() if name != "signature"}
    told = canonical_json([record.number, record.kind, record.subject, body])
    return hmac.digest(key, b"autoclave-record/1" + record.previous + told, "sha256").hex()


class Damage(StrEnum):
    """Kinds of damage to a journal."""

    BROKEN = "broken"
    """A record does not follow from the one before: one of them was altered, or records were inserted or removed."""
    TRUNCATED = "truncated"
    """The last records are gone."""
    REWRITTEN = "rewritten"
    """The chain is consistent, but differs from the one that was signed."""
    FORGED = "forged"
    """A checkpoint was not signed with this key."""
    UNSIGNED = "unsigned"
    """Checkpoints are missing: the journal was opened without them, or has records that require a later one."""
    INDEX = "index"
    """The index differs from the records."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage, and the number of the first record that shows it."""

    damage: Damage
    number: int


def audit(
    records: Sequence[Record], checkpoints: Sequence[Checkpoint], key: bytes, known: tuple[int, bytes] | None = None
) -> list[Finding]:
    """Return the damage to a chain, in order; empty if it is as it was signed.

    Records after the last checkpoint are only as safe as the chain itself. `known`: a former number of records and the
    digest of the last, from a trusted source: it counts as signed.
    """
    forged = [Finding(Damage.FORGED, each.count) for each in checkpoints if not each.is_signed_with(key)]
    signed = {each.count: each.head for each in checkpoints if each.is_signed_with(key)}
    last_signed = max(signed, default=0)
    if known is not None:
        signed[known[0]] = known[1]
    findings = list(_broken_links(records))
    if not findings:
        counts = (count for count in sorted(signed) if 0 < count <= len(records))
        others = [count for count in counts if signed[count] != records[count - 1].digest]
        findings = [Finding(Damage.REWRITTEN, count) for count in others[:1]]
        if len(records) < max(signed, default=0):
            findings.append(Finding(Damage.TRUNCATED, len(records) + 1))
    due = [record.number for record in records[last_signed:] if record.kind in SEALED]
    if len(due) > 1 and not findings:  # a process may have died after the last one
        findings.append(Finding(Damage.UNSIGNED, due[0]))
    return [*forged, *findings]


def _broken_links(records: Sequence[Record]) -> Iterator[Finding]:
    before = NO_DIGEST
    for record in records:
        if not record.is_whole or record.previous != before:
            yield Finding(Damage.BROKEN, record.number)
        before = record.digest
