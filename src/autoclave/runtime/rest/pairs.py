"""What was learnt of pairs of an operation and its inverse: proven so often, or once broken and never used again.

All of it are records in the journal. An inverse is proven each time when after an undo the service shows what it
showed before, and broken when it once does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.journal import Journal
from autoclave.runtime.rest.catalogue import OperationSpec, Undo
from autoclave.runtime.rest.expressions import is_general, normal
from autoclave.runtime.rest.forms import fingerprint

_KIND = "pair"


class PairStatus(StrEnum):
    """What is known of a pair."""

    UNPROVEN = "unproven"
    """Somebody says so, and nobody has seen it."""
    PROVEN = "proven"
    """It was seen to take an action back."""
    QUARANTINED = "quarantined"
    """It was seen not to, and is not used any more."""
    PINNED = "pinned"
    """A developer answers for it."""


class Match(StrEnum):
    """What makes two actions the same for what is learnt (GoEX's match policies)."""

    NAME = "name"
    """The operation."""
    NAME_AND_SCHEMA = "name_and_schema"
    """The operation, and what the catalogue says of its arguments."""
    EXACT = "exact"
    """The operation with all its arguments."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """Of one pair: its status, how often it was proven, and why it is quarantined."""

    status: PairStatus
    num_proofs: int = 0
    reason: str = ""


class Pairs:
    """The pairs in a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def name(self, match: Match, service: str, operation: str, spec: OperationSpec, arguments: Any, undo: Undo) -> str:
        """The name of a pair; another inverse, other arguments for it, or another match: another name."""
        inverse = [undo.operation, normal(undo.arguments), undo.when]
        same: list[Any] = [spec.model_dump(mode="json", include={"method", "path", "parameters", "body"})]
        same = [] if match is Match.NAME else same if match is Match.NAME_AND_SCHEMA else [arguments]
        return f"{service}/{operation}/{fingerprint([match, inverse, same])[:16]}"

    def learnt(self, pair: str, declared: str = PairStatus.UNPROVEN) -> Learnt:
        """What is known of a pair of which the catalogue says `declared`."""
        learnt = Learnt(PairStatus(declared))
        for record in self._journal.records(pair):
            if record.kind == _KIND:
                learnt = _after(learnt, record.body)
        return learnt

    def prove(self, pair: str, undo: Undo | None = None) -> None:
        """It was seen to take an action back. `undo`: the inverse, if the catalogue does not have it."""
        self._add(pair, PairStatus.PROVEN, "", undo)

    def quarantine(self, pair: str, reason: str, undo: Undo | None = None) -> None:
        """It was seen not to."""
        self._add(pair, PairStatus.QUARANTINED, reason, undo)

    def pin(self, pair: str, reason: str) -> None:
        """A developer answers for it, whatever was seen. For a person, never for what a model says."""
        self._add(pair, PairStatus.PINNED, reason, None)

    def judge(self, pair: str, reason: str, *, is_good: bool) -> None:
        """What a user says of an undo after having looked. For a person, never for what a model says."""
        self._add(pair, PairStatus.PROVEN if is_good else PairStatus.QUARANTINED, reason or "said by a user", None)

    def all(self) -> dict[str, Learnt]:
        """All pairs of which anything was learnt."""
        names = dict.fromkeys(record.subject for record in self._journal.records_of_kinds(_KIND))
        return {name: self.learnt(name) for name in names}

    def reusable(self, service: str, operation: str) -> list[Undo]:
        """Inverses of an operation that a model proposed and that were proven since, and not broken.

        Only those whose every value comes from the action itself: one with a value of its own, at whatever depth,
        would bring that into other actions.
        """
        found: dict[str, Undo] = {}
        for record in self._journal.records_of_kinds(_KIND):
            if record.subject.startswith(f"{service}/{operation}/") and record.body.get("inverse"):
                undo = Undo.model_validate(record.body["inverse"])
                if is_general(normal(undo.arguments)):
                    found[record.subject] = undo
        return [undo for name, undo in found.items() if self.learnt(name).status is PairStatus.PROVEN]

    def _add(self, pair: str, status: PairStatus, reason: str, undo: Undo | None) -> None:
        inverse = undo.model_dump(mode="json") if undo else None
        self._journal.append(_KIND, pair, {"status": status, "reason": reason, "inverse": inverse})


def _after(learnt: Learnt, body: Mapping[str, Any]) -> Learnt:
    """What is known after one more record: broken stays broken, until a developer pins it."""
    status, reason = PairStatus(body["status"]), str(body["reason"])
    match status:
        case PairStatus.QUARANTINED:
            return Learnt(status, learnt.num_proofs, reason)
        case PairStatus.PINNED:
            return Learnt(status, learnt.num_proofs)
        case PairStatus.PROVEN if learnt.status is PairStatus.UNPROVEN:
            return Learnt(status, learnt.num_proofs + 1)
        case PairStatus.PROVEN:
            return Learnt(learnt.status, learnt.num_proofs + 1, learnt.reason)
        case _:
            raise InputError(f"pair: {status} is nothing that is learnt")
