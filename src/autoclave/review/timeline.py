"""The history of a folder for the page: actions, savepoints, denials and alarms, kept up to date by new records.

Each update reads only the records that were added since the one before, from whichever process.
"""

import itertools
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from autoclave.act.results import words
from autoclave.runtime.footprints import Done, Footprint, groups
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.journal import Journal
from autoclave.runtime.records import Record
from autoclave.runtime.states import FOLLOWING, IN_DOUBT, STANDING, UNDO_TRIED, ActionState

_S = ActionState
_STATES = frozenset(_S)
_OTHERS = ("savepoint", "forgotten", "denied", "alarm", "checkpoints_missing")
_SETTLED = (_S.EXECUTED, _S.FAILED, _S.UNDONE, _S.UNDO_FAILED)
_MOST_ACTIONS, _MOST_NOTES = 5000, 200


@dataclass(slots=True)
class Line:
    """An action. `first` and `number` are its first and its last record; `can`: what a person may ask for it."""

    action: str
    session: str
    by: str
    do: str
    summary: str
    guarantee: str
    first: int
    proposed_at: float
    state: ActionState = _S.PROPOSED
    number: int = 0
    at: float = 0.0
    done: tuple[int, float] = (0, 0.0)
    """Number and time of the record that it stands by: a failed undo changes neither."""
    reason: str = ""
    can: list[str] = field(default_factory=list[str])
    settles: list[str] = field(default_factory=list[str])
    """The states that a person can give an action in doubt."""

    def follow(self, record: Record) -> None:
        """Take over a new state."""
        self.state, self.number, self.at = _S(record.kind), record.number, record.at
        if self.state not in UNDO_TRIED:
            self.done = record.number, record.at
        self.reason = str(record.body.get("reason") or record.body.get("resolved") or "")
        if self.state is _S.APPROVED and (delay_s := record.body.get("delay_s")):
            self.reason = f"queued for {delay_s:g} s; until then it can be discarded"
        following = FOLLOWING[self.state]
        steps = {"undo": _S.UNDOING, "redo": _S.REDOING, "commit": _S.COMMITTED}
        self.can = [verb for verb, state in steps.items() if state in following]
        self.can += ["resolve"] if self.state in IN_DOUBT else []
        self.can += ["discard"] if self.state in (_S.PROPOSED, _S.APPROVED) else []
        self.settles = [state for state in _SETTLED if state in following] if self.state in IN_DOUBT else []


class Timeline:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._lines: dict[str, Line] = {}
        self._footprints: dict[str, Footprint] = {}
        self._savepoints: list[dict[str, Any]] = []
        self._notes: list[dict[str, Any]] = []
        self._groups: list[list[str]] = []

    def since(self, number: int, journal: Journal) -> dict[str, Any]:
        """Return what has changed since a record, and the number of the last one; `number` 0 for everything."""
        with self._lock:
            self._update(journal)
            if number > self._number:  # the page is of another journal
                number = 0
            told: dict[str, Any] = {"number": self._number, "is_whole": number == 0}
            if number == self._number and number:
                return told
            newest = list(self._lines.values())[-_MOST_ACTIONS:]
            return told | {
                "actions": [asdict(each) for each in newest if each.number > number],
                "left_out": len(self._lines) - len(newest),
                "groups": self._groups,
                "savepoints": self._savepoints,
                "notes": self._notes[-_MOST_NOTES:],
            }

    def _update(self, journal: Journal) -> None:
        new = journal.records_of_kinds(*_STATES, *_OTHERS, after=self._number)
        for record in new:
            self._number = record.number
            if record.kind in _STATES:
                self._follow(record)
            elif record.kind == "forgotten" and record.subject in self._lines:
                self._lines[record.subject].can.clear()
            elif record.kind == "savepoint":
                told = {"name": record.subject, "session": str(record.body.get("session", ""))}
                self._savepoints.append({**told, "number": record.number, "at": record.at})
            else:
                self._notes.append(_note(record))
        if new:
            self._regroup()

    def _regroup(self) -> None:
        """Group the actions that stand. Groups up to the first that is not as before, and followed as before, stay."""
        done, place, num_kept = self._standing(), 0, 0
        names = [each.action for each in done]
        for group, following in itertools.pairwise(self._groups):
            if names[place : place + len(group) + 1] != [*group, following[0]]:
                break
            place, num_kept = place + len(group), num_kept + 1
        savepoints = [each["at"] for each in self._savepoints]
        self._groups = self._groups[:num_kept] + groups(done[place:], savepoints)

    def _standing(self) -> list[Done]:
        """Return the actions that stand, in the order of `Actions.groups`, which numbers groups alike."""
        order = sorted((each for each in self._lines.values() if each.state in STANDING), key=lambda line: line.done)
        return [
            Done(each.action, self._footprints[each.action], each.done[1], each.guarantee == Guarantee.NONE)
            for each in order
            if each.action in self._footprints
        ]

    def _follow(self, record: Record) -> None:
        body = record.body
        if record.subject not in self._lines:
            given = body.get("operation", {"do": "?"})
            self._lines[record.subject] = Line(
                record.subject,
                session=str(body.get("session", "")),
                by=str(body.get("by", "")),
                do=str(given["do"]),
                summary=_described(given),
                guarantee=str(body.get("guarantee", Guarantee.NONE)),
                first=record.number,
                proposed_at=record.at,
            )
        line = self._lines[record.subject]
        line.follow(record)
        if line.state in (_S.EXECUTED, _S.REDONE):
            reads, writes = (frozenset(body.get(name, ())) for name in ("reads", "writes"))
            self._footprints[line.action] = Footprint(reads, writes)


def _described(operation: Mapping[str, Any]) -> str:
    try:
        return words(operation)[:300]
    except (KeyError, TypeError, AttributeError):  # of a manager of another package
        return str(operation["do"])


def _note(record: Record) -> dict[str, Any]:
    """Return a record that is not of an action, as a line."""
    body = record.body
    told = {"number": record.number, "at": record.at, "kind": record.kind, "subject": record.subject}
    text = {
        "denied": f"{body.get('reason', '')}" + (f"; permitted by: {body['hint']}" if body.get("hint") else ""),
        "alarm": f"did {body.get('outside', '')}, which was not permitted",
        "checkpoints_missing": "the checkpoints of the journal were removed",
    }.get(record.kind, "")
    return {**told, "session": str(body.get("session", "")), "text": text}
