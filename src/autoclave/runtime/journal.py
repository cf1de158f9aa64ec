"""The journal of actions: an append-only SQLite file, and a file of signed checkpoints with its key.

A record is durable when `append` or `advance` returns, before what it announces is done. Several processes may write:
each addition is one transaction that locks the file. Checkpoints and key belong where writers of the journal cannot
write, such as another user's folder; else they reveal accidents only.

An index beside the records lets a query about one action read no records of others. It is derived from them, by a
trigger with each record: `actions`, `touched` (keys of the actions that stand; the empty one is the action itself) and
`marks` (to find receipts). Keys are compared as SQLite reads them from JSON, since names of files need not be UTF-8.
"""

import contextlib
import hmac
import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import DataError, HostError, InputError, UsageError
from autoclave.core.closing import Closing
from autoclave.core.sqlite_files import open_database, transaction
from autoclave.runtime.checkpoints import CheckpointFile
from autoclave.runtime.footprints import with_those_above
from autoclave.runtime.records import NO_DIGEST, SEALED, Checkpoint, Damage, Finding, Record, audit, signature_of
from autoclave.runtime.states import STANDING, UNDO_TRIED, ActionState, require_step


def _listed(*states: ActionState) -> str:
    """Return states as a list in SQL."""
    return ", ".join(f"'{state.value}'" for state in sorted(states))


_VERSION = 5
_STATES = {state.value for state in ActionState}
_NAMED, _STANDING = _listed(*ActionState), _listed(*STANDING)
_SCHEMA = (
    Path(__file__)
    .with_name("journal.sql")
    .read_text("utf-8")
    .format(
        named=_NAMED,
        tried=_listed(*UNDO_TRIED),
        with_receipt=_listed(ActionState.EXECUTED, ActionState.REDONE),
        over=_listed(ActionState.FAILED, ActionState.UNDONE, ActionState.COMMITTED),
    )
    .split("\n\n")
)
_INDEXED = "SELECT action, state, first, last, weight, is_irreversible, is_left_open FROM actions"
_IS_STALE = f"""
SELECT EXISTS (SELECT * FROM expected EXCEPT {_INDEXED}) OR EXISTS ({_INDEXED} EXCEPT SELECT * FROM expected)
OR EXISTS (SELECT 1 FROM actions WHERE state IN ({_STANDING}) AND action NOT IN (SELECT action FROM touched))
"""
"""SQL that tells whether the index was tampered with: whether it differs from one derived from all records."""
_FORGETTABLE = _listed(ActionState.PROPOSED, ActionState.UNDONE, ActionState.FAILED)
_WHERE_RISKY = f"action != ? AND (state IN ({_STANDING}) OR (is_irreversible AND state IN ('proposed', 'approved')))"
_LATER = f"""
SELECT DISTINCT last, action FROM touched CROSS JOIN actions USING (action)
WHERE last > ? AND state IN ({_STANDING}) AND touched.key IN (SELECT value FROM json_each(?))
UNION SELECT DISTINCT last, action FROM json_each(?) AS given
CROSS JOIN touched ON touched.key >= given.value || '/' AND touched.key < given.value || '0'
CROSS JOIN actions USING (action) WHERE last > ? AND state IN ({_STANDING})
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of an action, its time, the record of it, and the proposal.

    `number` and `at` are of the record that set the state; a failed undo changes neither, so that the order of what
    stands stays. `kept_bytes` is the size of what is kept for it outside the journal; None if nothing is kept any more.
    """

    action: str
    state: ActionState
    number: int
    at: float
    body: Mapping[str, Any]
    proposed: Mapping[str, Any]
    kept_bytes: int | None


class Journal(Closing):
    """Safe to use from several threads and processes.

    Args:
        path: the journal; created with its folder if missing.
        checkpoints: the file of checkpoints, and `<checkpoints>.key` beside it; likewise.

    Raises InputError where a file is damaged, or cannot be written.
    """

    def __init__(self, path: Path, checkpoints: Path) -> None:
        self._lock = threading.RLock()
        try:
            _require_current(path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._checkpoints = CheckpointFile(checkpoints)
            self._connection = open_database(path, "FULL")
            self._make_tables()
            path.chmod(0o600)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: the journal cannot be used ({error})") from None

    def append(self, kind: str, subject: str, body: Mapping[str, Any], *, is_signed: bool = False) -> Record:
        """Add a record; durable on return. `is_signed`: with a signature that `has_signature` verifies.

        Raises InputError where `kind` is a state of an action, which `advance` records, or the subject is not text.
        """
        if kind in _STATES:
            raise InputError(f"record {kind}: a state of an action; it follows from the state before")
        return self._add(kind, subject, body, is_signed=is_signed)

    def has_signature(self, record: Record) -> bool:
        """Return whether a record was signed with the key, at this place in the chain."""
        given = str(record.body.get("signature", ""))
        return hmac.compare_digest(given, signature_of(record, self._checkpoints.key))

    def advance(
        self,
        action: str,
        state: ActionState,
        body: Mapping[str, Any] | None = None,
        *,
        seal: bool = False,
        kept_bytes: int | None = None,
    ) -> Record:
        """Record a new state of an action; durable on return. `seal`: also make a checkpoint.

        `kept_bytes`: size of what is kept for it outside the journal from now on; None: as before. Raises InputError
        where that state cannot follow the present one.
        """
        record = self._add(state.value, action, body or {}, wanted=state, kept_bytes=kept_bytes)
        if seal:
            self.seal()
        return record

    def forget(self, action: str, reason: str = "") -> None:
        """Note that nothing is kept for an action outside the journal any more; recorded if there is a reason."""
        if reason:
            self.append("forgotten", action, {"reason": reason})
        with self._lock, self._transaction():
            self._connection.execute("UPDATE actions SET kept_bytes = NULL WHERE action = ?", (action,))

    def seal(self) -> Checkpoint:
        """Add a signed checkpoint. Durable on return."""
        with self._lock:
            return self._checkpoints.sign(*self._end())

    def seal_after_death(self) -> None:
        """Add the checkpoint that a process did not come to which died right before it."""
        count = self._checkpoints.last_count()
        if count is not None and len(self.records_of_kinds(*SEALED, after=count)) == 1:
            self.seal()

    def records(self, subject: str | None = None) -> list[Record]:
        """Return all records, or those of a subject, in order."""
        where, values = ("", ()) if subject is None else ("WHERE subject = ?", (subject,))
        return [_record(row) for row in self._rows(f"SELECT * FROM records {where} ORDER BY number", values)]

    def records_of_kinds(self, *kinds: str, after: int = 0) -> list[Record]:
        """Return the records of these kinds after that number, in order."""
        condition = f"kind IN ({', '.join('?' for _ in kinds)}) AND number > ? ORDER BY number"
        return [_record(row) for row in self._rows(f"SELECT * FROM records WHERE {condition}", (*kinds, after))]

    def records_with(self, mark: str) -> Iterator[Record]:
        """Yield the records whose receipts have a string among their `marks`, the latest first."""
        joined = "marks JOIN records USING (number) WHERE mark = ? ORDER BY number DESC"
        yield from map(_record, self._rows(f"SELECT records.* FROM {joined}", (mark,)))

    def standing(self, action: str) -> Standing:
        """Return the standing of an action. Raises UsageError where there is none with that id."""
        wanted = f"subject = ? AND kind IN ({_NAMED}) ORDER BY number"
        rows = self._rows(f"SELECT number, at, kind, body FROM records WHERE {wanted}", (action,))
        if not rows:
            raise UsageError(f"action {action}: is not in the journal; `autoclave act list` shows those that are")
        (_, _, kind, body), proposed = rows[-1], rows[0][3]
        number, at = next((row[:2] for row in reversed(rows) if row[2] not in UNDO_TRIED), rows[-1][:2])
        kept = self._rows("SELECT kept_bytes FROM actions WHERE action = ?", (action,))
        try:
            told = json.loads(body), json.loads(proposed)
        except ValueError:
            raise DataError(
                f"action {action}: its record is damaged; `autoclave act audit verify` tells more"
            ) from None
        return Standing(action, ActionState(kind), number, at, *told, kept[0][0] if kept else None)

    def standings(
        self, states: Collection[ActionState] = tuple(ActionState), *, kept_only: bool = False
    ) -> list[Standing]:
        """Return the standings of the actions in one of these states, in the order of their proposals.

        `kept_only`: only those for which something is kept outside the journal.
        """
        kept = "AND kept_bytes IS NOT NULL" if kept_only else ""
        rows = self._rows(f"SELECT action FROM actions WHERE state IN ({_listed(*states)}) {kept} ORDER BY first", ())
        found = [self.standing(action) for (action,) in rows]
        return [each for each in found if each.state in states]  # checked by the records, which are tamper-evident

    def kept_actions(self) -> set[str]:
        return {action for (action,) in self._rows("SELECT action FROM actions WHERE kept_bytes IS NOT NULL", ())}

    def kept_bytes(self) -> int:
        """Return the size of what all actions together keep outside the journal, as given to `advance`."""
        total = "SELECT COALESCE(SUM(kept_bytes), 0) FROM actions INDEXED BY actions_kept WHERE kept_bytes IS NOT NULL"
        return int(self._rows(total, ())[0][0])

    def forgettable(self, other_than: str, number: int) -> list[tuple[str, float, int]]:
        """Return up to `number` actions, the oldest first, that keep something only to be run or redone.

        Each with the time of its latest state, in seconds since 1970, and the bytes that are kept.
        """
        query = f"""
            SELECT action, at, kept_bytes FROM actions INDEXED BY actions_kept JOIN records ON records.number = last
            WHERE state IN ({_FORGETTABLE}) AND kept_bytes IS NOT NULL AND action != ? ORDER BY last LIMIT ?
        """
        return self._rows(query, (other_than, number))

    def audit(self, known: tuple[int, bytes] | None = None) -> list[Finding]:
        """Return the traces of tampering; empty if there are none. `known`: see `records.audit`.

        Raises DataError where a line of the checkpoints, or the file itself, cannot be read.
        """
        noticed = [Finding(Damage.UNSIGNED, record.number) for record in self.records_of_kinds("checkpoints_missing")]
        if self._rows(_IS_STALE, ())[0][0]:
            noticed.append(Finding(Damage.INDEX, self._end()[0]))
        return [*noticed, *audit(self.records(), list(self._checkpoints.read()), self._checkpoints.key, known)]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def risk(self, other_than: str = "") -> float:
        """Return the total weight of the uncommitted actions but one.

        Those are the actions that stand, and the proposals that cannot be undone and have done something already.
        """
        return self._rows(f"SELECT TOTAL(weight) FROM actions WHERE {_WHERE_RISKY}", (other_than,))[0][0]

    def riskiest(self, other_than: str = "") -> tuple[int, str]:
        """Return the number of the actions that `risk` counts, and the heaviest of them."""
        rows = self._rows(f"SELECT action FROM actions WHERE {_WHERE_RISKY} ORDER BY weight DESC", (other_than,))
        return len(rows), rows[0][0] if rows else ""

    def left_open(self) -> list[str]:
        """Return the actions that stand and were left open, the latest first."""
        is_open = f"is_left_open AND state IN ({_STANDING})"
        query = f"SELECT action FROM actions INDEXED BY actions_left_open WHERE {is_open} ORDER BY last DESC"
        return [action for (action,) in self._rows(query, ())]

    def touching(self, keys: Collection[str], after: int) -> list[tuple[int, str]]:
        """Return the standing actions executed after a record that touched one of these keys, or one above or below.

        Each with the number of the record that set its state.
        """
        above = sorted({each for key in keys for each in with_those_above(key)})
        return self._rows(_LATER, (after, json.dumps(above), json.dumps(sorted(keys)), after))

    def _make_tables(self) -> None:
        with self._lock, transaction(self._connection):
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _SCHEMA:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
                self._checkpoints.sign(0, NO_DIGEST)  # from here on, a missing file means that it was removed
        if not self._checkpoints.has_any():
            self.append("checkpoints_missing", "journal", {})
            self.seal()

    def _add(
        self,
        kind: str,
        subject: str,
        body: Mapping[str, Any],
        wanted: ActionState | None = None,
        kept_bytes: int | None = None,
        *,
        is_signed: bool = False,
    ) -> Record:
        try:
            subject.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{kind} {subject!r}: must be text") from None
        with self._lock, self._transaction():
            if wanted is not None:
                require_step(subject, self._state_of(subject), wanted)
            count, head = self._end()
            record = Record.after(head, count + 1, time.time(), kind, subject, body)
            if is_signed:
                body = {**body, "signature": signature_of(record, self._checkpoints.key)}
                record = Record.after(head, count + 1, record.at, kind, subject, body)
            values = (record.number, record.at, kind, subject, json.dumps(body), record.previous, record.digest)
            self._connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            if kept_bytes is not None:
                self._connection.execute("UPDATE actions SET kept_bytes = ? WHERE action = ?", (kept_bytes, subject))
        return record

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a durable transaction. Raises HostError where the disk is full or fails: nothing was written."""
        try:
            with transaction(self._connection):
                yield
        except sqlite3.Error as error:
            raise HostError(
                f"the journal cannot be written ({error}); the change to be recorded was not made. Fix: free "
                "space on its disk"
            ) from None

    def _state_of(self, action: str) -> ActionState | None:
        row = self._connection.execute(
            f"SELECT kind FROM records WHERE subject = ? AND kind IN ({_NAMED}) ORDER BY number DESC LIMIT 1",
            (action,),
        ).fetchone()
        return ActionState(row[0]) if row else None

    def _end(self) -> tuple[int, bytes]:
        row = self._connection.execute("SELECT number, digest FROM records ORDER BY number DESC LIMIT 1").fetchone()
        return (row[0], row[1]) if row else (0, NO_DIGEST)

    def _rows(self, statement: str, values: Sequence[Any]) -> list[Any]:
        try:
            with self._lock:
                return self._connection.execute(statement, values).fetchall()
        except UnicodeEncodeError:  # not text, so in no record
            return []
        except sqlite3.DatabaseError as error:
            raise DataError(f"the journal is damaged ({error}); `autoclave act audit verify` tells more") from None


def read_records(path: Path) -> list[Record]:
    """Return all records of a journal of any version, even while a session writes to it. Writes nothing."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return [_record(row) for row in connection.execute("SELECT * FROM records ORDER BY number")]
    except sqlite3.Error as error:
        raise InputError(f"{path}: the journal cannot be read ({error})") from None


def _require_current(path: Path) -> None:
    """Raise InputError where another release made the journal, before anything is written."""
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise InputError(
            f"{path}: is a journal of version {version}, but this release reads version {_VERSION}. Fix: undo or "
            "commit its actions with the release that made it, then use a new state folder; "
            f"`autoclave act audit export` writes its records to a file, and {path.parent} holds what they replaced"
        )


def _record(row: Sequence[Any]) -> Record:
    number, at, kind, subject, body, previous, digest = row
    try:
        plain = json.loads(body)
    except ValueError:
        plain = {"not JSON": body}  # it was altered: the digest shows it
    return Record(number, at, kind, subject, plain, previous, digest)
