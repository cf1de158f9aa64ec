"""The tables of a journal: its records, and an index, so that a query about one action reads no records of others.

The index is derived from the records: `actions`, `touched` (keys of the actions that stand; the empty one is the action
itself) and `marks` (for finding receipts). A trigger updates it with each record. Keys are compared as SQLite reads
them from JSON, since names of files need not be UTF-8.
"""

from collections.abc import Iterable
from pathlib import Path

from autoclave.runtime.states import STANDING, UNDO_TRIED, ActionState

_S = ActionState


def listed(states: Iterable[ActionState]) -> str:
    """Return states as a list in SQL."""
    return ", ".join(f"'{state.value}'" for state in sorted(states))


NAMED_STATES, STANDING_STATES = listed(ActionState), listed(STANDING)
SCHEMA = (
    Path(__file__)
    .with_name("journal.sql")
    .read_text("utf-8")
    .format(
        named=NAMED_STATES,
        tried=listed(UNDO_TRIED),
        with_receipt=listed((_S.EXECUTED, _S.REDONE)),
        over=listed((_S.FAILED, _S.UNDONE, _S.COMMITTED)),
    )
    .split("\n\n")
)
_INDEXED = "SELECT action, state, first, last, weight, is_irreversible, is_left_open FROM actions"
IS_STALE = f"""
SELECT EXISTS (SELECT * FROM expected EXCEPT {_INDEXED}) OR EXISTS ({_INDEXED} EXCEPT SELECT * FROM expected)
OR EXISTS (SELECT 1 FROM actions WHERE state IN ({STANDING_STATES}) AND action NOT IN (SELECT action FROM touched))
"""
"""SQL that tells whether the index was tampered with: whether it differs from one derived from all records."""
