"""The journal of actions: an SQLite file to which records are only added, and a file of signed checkpoints and its key.

A record is durable when `append` or `advance` returns, before what it announces is done. Several processes may write:
each addition is one transaction that holds the file. Checkpoints and key belong where nobody who can write to the
journal can write, such as another user's folder; else they show accidents only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import DataError, HostError, InputError
from autoclave.core.closing import Closing
from autoclave.core.files import sync_directory
from autoclave.core.sqlite_files import open_database
from autoclave.runtime.records import NO_DIGEST, Checkpoint, Damage, Finding, Record, audit, signature_of
from autoclave.runtime.states import ActionState, require_step

_VERSION = 1
_KEY_BYTES = 32
_SCHEMA = """
CREATE TABLE records (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL,
    previous BLOB NOT NULL, digest BLOB NOT NULL
);
CREATE INDEX records_of_subject ON records (subject, number);
CREATE INDEX records_of_kind ON records (kind, number);
CREATE TABLE actions (action TEXT PRIMARY KEY, state TEXT NOT NULL, first INTEGER NOT NULL, kept_bytes INTEGER);
CREATE INDEX actions_by_state ON actions (state, first);
CREATE TRIGGER no_update BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are never removed'); END;
"""
_FOLLOW = """
INSERT INTO actions VALUES (?, ?, ?, ?) ON CONFLICT (action) DO UPDATE SET state = excluded.state,
kept_bytes = COALESCE(?, kept_bytes)
"""
_STATES = {state.value for state in ActionState}
_NAMED_STATES = ", ".join(f"'{state}'" for state in sorted(_STATES))


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an action stands: its state, since when, what was recorded with it, and what was proposed.

    `number` is that of the record with which it came to that state. `kept_bytes` is what is kept for it outside of the
    journal; None if nothing is kept any more.
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
        path: the journal; made with its folder if it is not there.
        checkpoints: the file of checkpoints, and `<checkpoints>.key` beside it; likewise.

    Raises:
        InputError: a file is damaged, or nothing can be written there.
    """

    def __init__(self, path: Path, checkpoints: Path) -> None:
        self._lock = threading.Lock()
        self._checkpoints = checkpoints
        try:
            for each in (path, checkpoints):
                each.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._key = _key_in(checkpoints.with_name(f"{checkpoints.name}.key"))
            self._connection = open_database(path, "FULL")
            self._make_tables()
            path.chmod(0o600)
            self._fix_index()
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: the journal cannot be used ({error})") from None

    # --- Writing ----------------------------------------------------------------------------------------------------

    def append(self, kind: str, subject: str, body: Mapping[str, Any], *, is_signed: bool = False) -> Record:
        """Record something; durable when this returns. `is_signed`: so that `has_signature` can tell it from others'.

        Raises:
            InputError: `kind` is a state of an action, which `advance` records; or the subject is no text.
        """
        if kind in _STATES:
            raise InputError(f"record {kind}: a state of an action; it follows from the state before")
        return self._add(kind, subject, body, is_signed=is_signed)

    def has_signature(self, record: Record) -> bool:
        """Whether who wrote a record had the key, and wrote it at this place."""
        given = str(record.body.get("signature", ""))
        return hmac.compare_digest(given, signature_of(record, self._key))

    def advance(
        self,
        action: str,
        state: ActionState,
        body: Mapping[str, Any] | None = None,
        *,
        seal: bool = False,
        kept_bytes: int | None = None,
    ) -> Record:
        """Record that an action has come to a state; durable when this returns. `seal`: make a checkpoint, too.

        `kept_bytes`: what is kept for it outside of the journal from now on; None: as before.

        Raises:
            InputError: that state does not follow from the one in which the action is.
        """
        record = self._add(state.value, action, body or {}, wanted=state, kept_bytes=kept_bytes)
        if seal:
            self.seal()
        return record

    def forget(self, action: str, reason: str = "") -> None:
        """Nothing is kept any more for an action outside of the journal. With a reason that is recorded."""
        if reason:
            self.append("forgotten", action, {"reason": reason})
        with self._lock, self._transaction():
            self._connection.execute("UPDATE actions SET kept_bytes = NULL WHERE action = ?", (action,))

    def seal(self) -> Checkpoint:
        """Sign how many records there are, and the last. Durable when this returns."""
        with self._lock:
            count, head = self._end()
        checkpoint = Checkpoint.signed(count, head, self._key)
        line = {"count": count, "head": head.hex(), "signature": checkpoint.signature.hex()}
        with self._lock, self._checkpoints.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # of a line that was being written when a process died
            file.write(f"{json.dumps(line)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        return checkpoint

    # --- Reading ----------------------------------------------------------------------------------------------------

    def records(self, subject: str | None = None) -> list[Record]:
        """All records, or those of a subject, in order."""
        where, values = ("", ()) if subject is None else ("WHERE subject = ?", (subject,))
        return [_record(row) for row in self._rows(f"SELECT * FROM records {where} ORDER BY number", values)]

    def records_of_kinds(self, *kinds: str) -> list[Record]:
        """All records of these kinds, in order."""
        wanted = ", ".join("?" for _ in kinds)
        rows = self._rows(f"SELECT * FROM records WHERE kind IN ({wanted}) ORDER BY number", kinds)
        return [_record(row) for row in rows]

    def records_with(self, text: str, *kinds: str) -> Iterator[Record]:
        """Those of these kinds in whose body a text stands, the last first."""
        wanted = ", ".join("?" for _ in kinds)
        condition = f"kind IN ({wanted}) AND instr(body, ?) ORDER BY number DESC"
        for row in self._rows(f"SELECT * FROM records WHERE {condition}", (*kinds, text)):
            yield _record(row)

    def standing(self, action: str) -> Standing:
        """Where an action stands.

        Raises:
            InputError: there is none of that name.
        """
        wanted = f"subject = ? AND kind IN ({_NAMED_STATES}) ORDER BY number"
        rows = self._rows(f"SELECT number, at, kind, body FROM records WHERE {wanted}", (action,))
        if not rows:
            raise InputError(f"action {action}: is not in the journal; `autoclave act list` shows those that are")
        (number, at, kind, body), proposed = rows[-1], rows[0][3]
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
        """Where actions stand that are in one of these states, in the order in which they were proposed.

        `kept_only`: those for which something is kept outside of the journal.
        """
        named = ", ".join(f"'{state.value}'" for state in states)
        kept = "AND kept_bytes IS NOT NULL" if kept_only else ""
        rows = self._rows(f"SELECT action FROM actions WHERE state IN ({named}) {kept} ORDER BY first", ())
        found = [self.standing(action) for (action,) in rows]
        return [each for each in found if each.state in states]  # by the records, which nobody can change unseen

    def kept_bytes(self) -> int:
        """What all actions together keep outside of the journal, as `advance` was told."""
        return int(self._rows("SELECT COALESCE(SUM(kept_bytes), 0) FROM actions", ())[0][0])

    def audit(self, known: tuple[int, bytes] | None = None) -> list[Finding]:
        """What was done to the journal by other means than this class; empty when nothing was. `known`: see `records`.

        Raises:
            DataError: a line of the checkpoints, or the file itself, cannot be read.
        """
        rebuilt = [Finding(Damage.INDEX, record.number) for record in self.records_of_kinds("index_rebuilt")]
        return [*rebuilt, *audit(self.records(), list(self._read_checkpoints()), self._key, known)]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _make_tables(self) -> None:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _SCHEMA.strip().split(";\n"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
            self._connection.execute("COMMIT")
        if version > _VERSION:
            raise sqlite3.DatabaseError(f"version {version}, made by a newer program")

    def _fix_index(self) -> None:
        """Make the list of where actions stand anew if it is not that of the records, as when somebody changed it."""
        states = f"SELECT subject, kind, number FROM records WHERE kind IN ({_NAMED_STATES}) ORDER BY number"
        rows = self._rows(states, ())
        last: dict[str, tuple[str, int]] = {}
        for subject, kind, number in rows:
            last[subject] = (kind, last[subject][1] if subject in last else number)
        indexed = self._rows("SELECT action, state, first FROM actions", ())
        if last == {action: (state, first) for action, state, first in indexed}:
            return
        kept = dict(self._rows("SELECT action, kept_bytes FROM actions", ()))
        anew = [(action, state, first, kept.get(action, 0)) for action, (state, first) in last.items()]
        with self._lock, self._transaction():
            self._connection.execute("DELETE FROM actions")
            self._connection.executemany("INSERT INTO actions VALUES (?, ?, ?, ?)", anew)
        self.append("index_rebuilt", "journal", {"actions": len(anew)})

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
        if not _is_text(subject):
            raise InputError(f"{kind} {subject!r}: must be text")
        with self._lock, self._transaction():
            if wanted is not None:
                require_step(subject, self._state_of(subject), wanted)
            count, head = self._end()
            record = Record.after(head, count + 1, time.time(), kind, subject, body)
            if is_signed:
                body = {**body, "signature": signature_of(record, self._key)}
                record = Record.after(head, count + 1, record.at, kind, subject, body)
            values = (record.number, record.at, kind, subject, json.dumps(body), record.previous, record.digest)
            self._connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            if wanted is not None:
                self._connection.execute(_FOLLOW, (subject, kind, record.number, kept_bytes or 0, kept_bytes))
        return record

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, durable at the end.

        Raises:
            HostError: the disk is full or fails; nothing was written.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise HostError(
                f"the journal cannot be written ({error}); what it was about to announce was not done. Fix: make "
                "room on its disk"
            ) from None

    def _state_of(self, action: str) -> ActionState | None:
        row = self._connection.execute(
            f"SELECT kind FROM records WHERE subject = ? AND kind IN ({_NAMED_STATES}) ORDER BY number DESC LIMIT 1",
            (action,),
        ).fetchone()
        return ActionState(row[0]) if row else None

    def _end(self) -> tuple[int, bytes]:
        row = self._connection.execute("SELECT number, digest FROM records ORDER BY number DESC LIMIT 1").fetchone()
        return (row[0], row[1]) if row else (0, NO_DIGEST)

    def _rows(self, statement: str, values: Sequence[Any]) -> list[Any]:
        if not all(map(_is_text, values)):
            return []
        try:
            with self._lock:
                return self._connection.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise DataError(f"the journal is damaged ({error}); `autoclave act audit verify` tells more") from None

    def _read_checkpoints(self) -> Iterator[Checkpoint]:
        if not self._checkpoints.exists():
            return
        content = self._checkpoints.read_bytes()
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
            try:  # what comes after the last line break was being written when a process died
                given = json.loads(line)
                yield Checkpoint(int(given["count"]), bytes.fromhex(given["head"]), bytes.fromhex(given["signature"]))
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{self._checkpoints}:{number}: no checkpoint") from None


def _is_text(value: Any) -> bool:
    """Whether it can be written as UTF-8, if it is a text."""
    try:
        return not isinstance(value, str) or bool(value.encode()) or not value
    except UnicodeEncodeError:
        return False


def _record(row: Sequence[Any]) -> Record:
    number, at, kind, subject, body, previous, digest = row
    try:
        plain = json.loads(body)
    except ValueError:
        plain = {"not JSON": body}  # it was altered: the digest shows it
    return Record(number, at, kind, subject, plain, previous, digest)


def _key_in(path: Path) -> bytes:
    """The key in a file that its owner alone can read; a new one if there is none."""
    if not path.exists():
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first: its key counts
            os.link(new, path)
        new.unlink()
        sync_directory(path.parent)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OSError(f"{path} is no key")
    return key
