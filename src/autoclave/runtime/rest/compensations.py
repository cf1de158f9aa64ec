"""Experience with compensating requests: proven so often, or once broken and never used again.

All of it are records in the journal. A compensating request is proven each time when after an undo the service shows
what it showed before, and broken when it once does not.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.journal import Journal
from autoclave.runtime.rest.catalogue import OperationSpec, Undo
from autoclave.runtime.rest.expressions import is_general
from autoclave.runtime.rest.forms import digest_of
from autoclave.runtime.rest.notes import age_s

_KIND = "compensation"


class ProofStatus(StrEnum):
    """State of knowledge about a compensating request."""

    UNPROVEN = "unproven"
    """Somebody says so, and nobody has seen it."""
    PROVEN = "proven"
    """It was seen to take an action back."""
    QUARANTINED = "quarantined"
    """It was seen not to, and is not used any more."""
    PINNED = "pinned"
    """A developer answers for it."""


@dataclass(slots=True)
class Learnt:
    """Status of a compensating request, number of proofs, time of the last (seconds since 1970), why it is broken."""

    status: ProofStatus
    num_proofs: int = 0
    proven_at: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Compensation:
    """A way to take a part back, its name, what is known of it, and how long, in seconds, a proof is valid."""

    undo: Undo
    name: str
    learnt: Learnt
    valid_s: float

    @property
    def status(self) -> ProofStatus:
        return self.learnt.status

    @property
    def is_expired(self) -> bool:
        """True if the last proof is older than proofs of this connection are valid."""
        return self.status is ProofStatus.PROVEN and age_s(self.learnt.proven_at) > self.valid_s

    @property
    def guarantee(self) -> Guarantee:
        """Return what grants may count on: the grade of what is pinned or proven, nothing of what is neither."""
        is_known = self.status in (ProofStatus.PINNED, ProofStatus.PROVEN) and not self.is_expired
        return self.undo.grade if is_known else Guarantee.NONE

    @property
    def told(self) -> str:
        known = self.status.value
        if self.status is ProofStatus.PROVEN:
            day = datetime.fromtimestamp(self.learnt.proven_at, UTC).date()
            known = f"proven {self.learnt.num_proofs} times, last on {day}" + (", expired" if self.is_expired else "")
        if self.guarantee is Guarantee.NONE and self.undo.grade is not Guarantee.NONE:
            known += "; counts as none until an undo proves it"
        return f"{self.undo.operation}, {self.undo.grade} ({known})"


class Compensations:
    """The compensating requests of which a journal has records, by their names."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def name(self, service: str, operation: str, spec: OperationSpec, undo: Undo) -> str:
        """Return the name of a compensating request: another if the operation is declared otherwise."""
        declared = spec.model_dump(mode="json", include={"method", "path", "parameters", "body"})
        given = [undo.operation, undo.arguments, undo.when]
        return f"{service}/{operation}/{digest_of(['name_and_schema', given, [declared]])[:16]}"

    def learnt(self, name: str, declared: str = ProofStatus.UNPROVEN) -> Learnt:
        """Return what is known of one that is `declared` so; broken stays broken, until a developer pins it."""
        learnt = Learnt(ProofStatus(declared))
        for record in [each for each in self._journal.records(name) if each.kind == _KIND]:
            status = ProofStatus(record.body["status"])
            if status is ProofStatus.PROVEN:
                learnt.status = status if learnt.status is ProofStatus.UNPROVEN else learnt.status
                learnt.num_proofs, learnt.proven_at = learnt.num_proofs + 1, record.at
            else:
                learnt.status = status
                learnt.reason = "" if status is ProofStatus.PINNED else str(record.body["reason"])
        return learnt

    def record(self, name: str, status: ProofStatus, reason: str = "", undo: Undo | None = None) -> None:
        """Record that it was seen to undo an action (PROVEN) or not to (QUARANTINED), or that a developer answers for
        it whatever was seen (PINNED), which is never for a model to say. `undo`: if the catalogue does not have it.
        """
        given = undo.model_dump(mode="json") if undo else None
        self._journal.append(_KIND, name, {"status": status, "reason": reason, "undo": given})

    def all(self) -> dict[str, Learnt]:
        names = dict.fromkeys(record.subject for record in self._journal.records_of_kinds(_KIND))
        return {name: self.learnt(name) for name in names}

    def reusable(self, service: str, operation: str) -> list[Undo]:
        """Compensating requests of an operation that a model proposed and that were proven since, and not broken.

        Only those whose every value comes from the action itself: one with a value of its own, at whatever depth,
        would bring that into other actions.
        """
        found: dict[str, Undo] = {}
        for record in self._journal.records_of_kinds(_KIND):
            if record.subject.startswith(f"{service}/{operation}/") and record.body.get("undo"):
                given = {key: each for key, each in record.body["undo"].items() if key in Undo.model_fields}
                undo = Undo.model_validate(given)
                if is_general(undo.arguments):
                    found[record.subject] = undo
        return [undo for name, undo in found.items() if self.learnt(name).status is ProofStatus.PROVEN]
