"""Records of a journal as a chain of hashes, and what an audit says of a chain. Pure: no file, no clock.

Each record holds the digest of the one before. That alone shows a record that was altered, put in or taken out, but not
that the end was cut off, or that everything was written anew: for these a checkpoint (how many records there were, and
the digest of the last) is signed and kept elsewhere.
"""

from __future__ import annotations

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
"""What the first record holds as the digest of the one before."""


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened, numbered from 1. `at` is in seconds since 1970; `body` is JSON data."""

    number: int
    at: float
    kind: str
    subject: str
    body: Mapping[str, Any]
    previous: bytes
    digest: bytes

    @staticmethod
    def after(previous: bytes, number: int, at: float, kind: str, subject: str, body: Mapping[str, Any]) -> Record:
        """The record that follows the one with the digest `previous`."""
        digest = _digest(previous, at, kind, subject, body)
        return Record(number, at, kind, subject, body, previous, digest)

    @property
    def is_whole(self) -> bool:
        """Whether its digest is that of what it says."""
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
    def signed(count: int, head: bytes, key: bytes) -> Checkpoint:
        told = b"autoclave-checkpoint/1" + count.to_bytes(8, "big") + head
        return Checkpoint(count, head, hmac.digest(key, told, "sha256"))

    def is_signed_with(self, key: bytes) -> bool:
        """Whether who made it had the key."""
        return hmac.compare_digest(self.signature, Checkpoint.signed(self.count, self.head, key).signature)


def signature_of(record: Record, key: bytes) -> str:
    """What shows that who wrote a record, at this place of the chain, had the key: HMAC-SHA256 over all but itself."""
    body = {name: value for name, value in record.body.items() if name != "signature"}
    told = canonical_json([record.number, record.kind, record.subject, body])
    return hmac.digest(key, b"autoclave-record/1" + record.previous + told, "sha256").hex()


class Damage(StrEnum):
    """What somebody did to a journal."""

    BROKEN = "broken"
    """A record does not follow from the one before: one of them was altered, or records were inserted or removed."""
    TRUNCATED = "truncated"
    """The last records are gone."""
    REWRITTEN = "rewritten"
    """The chain is whole, but it is another one than was signed."""
    FORGED = "forged"
    """A checkpoint was not signed with this key."""
    UNSIGNED = "unsigned"
    """Checkpoints are gone: the journal was opened without them, or has records that one must have followed."""
    INDEX = "index"
    """The index of where actions stand is not that of the records."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage, and the number of the first record that shows it."""

    damage: Damage
    number: int


def audit(
    records: Sequence[Record], checkpoints: Sequence[Checkpoint], key: bytes, known: tuple[int, bytes] | None = None
) -> list[Finding]:
    """What was done to a chain, in order; empty when it is as it was signed.

    What was written after the last checkpoint is only as safe as the chain itself. `known`: how many records there once
    were, and the digest of the last, from where nobody could change it: it counts as signed.
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
    if len(due) > 1 and not findings:  # after the last one a process may have died
        findings.append(Finding(Damage.UNSIGNED, due[0]))
    return [*forged, *findings]


def _broken_links(records: Sequence[Record]) -> Iterator[Finding]:
    """Yield where the chain does not hold."""
    before = NO_DIGEST
    for record in records:
        if not record.is_whole or record.previous != before:
            yield Finding(Damage.BROKEN, record.number)
        before = record.digest
