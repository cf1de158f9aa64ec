"""The index of a journal: what follows from its records, so that a question about one action reads those of no other.

Its tables are `actions`, `touched` (the keys of the actions that stand) and `marks` (by which receipts are found). It
is rebuilt from the records where they differ.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.records import Record
from autoclave.runtime.states import STANDING, ActionState

INDEX_SCHEMA = """
CREATE TABLE actions (
    action TEXT PRIMARY KEY, state TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, kept_bytes INTEGER,
    weight REAL NOT NULL, is_irreversible INTEGER NOT NULL, is_left_open INTEGER NOT NULL
);
CREATE INDEX actions_by_state ON actions (state, first);
CREATE INDEX actions_by_weight ON actions (state, weight, is_irreversible, action);
CREATE INDEX actions_kept ON actions (state, last, kept_bytes) WHERE kept_bytes IS NOT NULL;
CREATE INDEX actions_left_open ON actions (last) WHERE is_left_open;
CREATE TABLE touched (key TEXT, action TEXT, PRIMARY KEY (key, action)) WITHOUT ROWID;
CREATE INDEX touched_by_action ON touched (action);
CREATE TABLE marks (mark TEXT, number INTEGER, PRIMARY KEY (mark, number)) WITHOUT ROWID;
"""
NAMED_STATES = ", ".join(f"'{state}'" for state in sorted(state.value for state in ActionState))
STANDING_STATES = ", ".join(f"'{state.value}'" for state in sorted(STANDING))
_FOLLOW = """
INSERT INTO actions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (action) DO UPDATE SET state = excluded.state,
last = excluded.last, kept_bytes = COALESCE(?, kept_bytes)
"""
_WITH_RECEIPT = f"'{ActionState.EXECUTED.value}', '{ActionState.REDONE.value}'"
_OVER = frozenset({ActionState.FAILED, ActionState.UNDONE, ActionState.COMMITTED})


class JournalIndex:
    """Of the journal on `connection`, which `rows` reads. The caller has the transaction."""

    def __init__(self, connection: sqlite3.Connection, rows: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._connection, self._rows = connection, rows

    def follow(self, record: Record, body: Mapping[str, Any], state: ActionState, kept_bytes: int | None) -> None:
        """Enter that an action has come to a state by a record."""
        values = (record.subject, record.kind, record.number, record.number, kept_bytes or 0, *_facts(body), kept_bytes)
        self._connection.execute(_FOLLOW, values)
        if state in (ActionState.EXECUTED, ActionState.REDONE):
            self._add_receipt(record.subject, record.number, body)
        elif state in _OVER:
            self._connection.execute("DELETE FROM touched WHERE action = ?", (record.subject,))

    def rebuild(self) -> int | None:
        """Rebuild it if it is not that of the records, as when somebody changed it; return the number of actions.

        None: it is that of the records.
        """
        found = self._states_of_records()
        named = "state, first, last, weight, is_irreversible, is_left_open"
        indexed = {action: tuple(rest) for action, *rest in self._rows(f"SELECT action, {named} FROM actions", ())}
        without = f"state IN ({STANDING_STATES}) AND action NOT IN (SELECT action FROM touched)"
        if found == indexed and not self._rows(f"SELECT action FROM actions WHERE {without}", ()):
            return None
        kept = dict(self._rows("SELECT action, kept_bytes FROM actions", ()))
        for table in ("actions", "touched", "marks"):
            self._connection.execute(f"DELETE FROM {table}")
        values = [(name, *each[:3], kept.get(name, 0), *each[3:]) for name, each in found.items()]
        self._connection.executemany("INSERT INTO actions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        receipts = f"SELECT subject, number, body FROM records WHERE kind IN ({_WITH_RECEIPT}) ORDER BY number"
        for action, number, body in self._rows(receipts, ()):
            self._add_receipt(action, number, _plain(body), stands=found[action][0] in STANDING)
        return len(found)

    def _states_of_records(self) -> dict[str, tuple[Any, ...]]:
        """Return the rows of `actions` without `kept_bytes`, by action, as they follow from the records."""
        states = f"""
            SELECT subject, kind, number, IIF(kind = 'proposed', body, '{{}}') FROM records
            WHERE kind IN ({NAMED_STATES}) ORDER BY number
        """
        found: dict[str, tuple[Any, ...]] = {}
        for subject, kind, number, body in self._rows(states, ()):
            before = found.get(subject)
            first, facts = (before[1], before[3:]) if before else (number, _facts(_plain(body)))
            found[subject] = (kind, first, number, *facts)
        return found

    def _add_receipt(self, action: str, number: int, receipt: Mapping[str, Any], *, stands: bool = True) -> None:
        marks = [(mark, number) for mark in _strings(receipt, "marks")]
        self._connection.executemany("INSERT INTO marks VALUES (?, ?)", marks)
        self._connection.execute("DELETE FROM touched WHERE action = ?", (action,))
        if stands:  # the empty key stands for the action itself
            keys = {"", *_strings(receipt, "reads", "writes", "adds")}
            self._connection.executemany("INSERT INTO touched VALUES (?, ?)", [(key, action) for key in keys])


def _facts(proposed: Mapping[str, Any]) -> tuple[float, bool, bool]:
    """What the index holds of a proposal: its weight, and whether it is irreversible, and left open."""
    weight = proposed.get("weight", 0.0)
    is_number = isinstance(weight, (int, float))
    return (
        float(weight) if is_number else 0.0,
        proposed.get("guarantee") == Guarantee.NONE,
        bool(proposed.get("left_open")),
    )


def _strings(body: Mapping[str, Any], *names: str) -> set[str]:
    """The strings in lists of a body that may have been altered."""
    lists = [body.get(name) for name in names]
    found = [each for given in lists if isinstance(given, (list, tuple)) for each in given if isinstance(each, str)]
    return set(map(as_utf8, found))


def as_utf8(key: str) -> str:
    """A key as the index holds it: names of files need not be UTF-8. Two that become one are told apart by receipts."""
    return key.encode(errors="backslashreplace").decode()


def _plain(body: str) -> Mapping[str, Any]:
    """A body that may have been altered."""
    try:
        plain = json.loads(body)
    except ValueError:
        return {}
    return plain if isinstance(plain, Mapping) else {}
