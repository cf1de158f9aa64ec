"""The index of a journal, derived from its records, so that a query about one action reads no records of others.

Its tables are `actions`, `touched` (keys of the actions that stand) and `marks` (for finding receipts). A trigger
updates it with each record. Keys are compared as SQLite reads them from JSON, since names of files need not be UTF-8.
"""

from autoclave.runtime.states import STANDING, UNDO_TRIED, ActionState

NAMED_STATES = ", ".join(f"'{state}'" for state in sorted(state.value for state in ActionState))
STANDING_STATES = ", ".join(f"'{state.value}'" for state in sorted(STANDING))
_WITH_RECEIPT = f"'{ActionState.EXECUTED.value}', '{ActionState.REDONE.value}'"
_OVER = f"'{ActionState.FAILED.value}', '{ActionState.UNDONE.value}', '{ActionState.COMMITTED.value}'"
_TRIED = ", ".join(f"'{state.value}'" for state in sorted(UNDO_TRIED))
_JSON = "IIF(json_valid(body), body, '{}')"  # it may have been altered


def _facts(body: str) -> str:
    """Return SQL for the weight of a proposal, whether it is irreversible, and whether it is left open."""
    weight = f"CAST(COALESCE(json_extract({body}, '$.weight'), 0) AS REAL)"
    return f"{weight}, json_extract({body}, '$.guarantee') IS 'none', json_extract({body}, '$.left_open') IS 1"


def _keys(body: str) -> str:
    """Return SQL for the keys that an action touched, by its receipt; the empty key is the action itself."""
    lists = (f"UNION SELECT value FROM json_each({body}, '$.{name}')" for name in ("reads", "writes"))
    return f"(SELECT '' AS value {' '.join(lists)})"


INDEX_SCHEMA = (
    """CREATE TABLE actions (
        action TEXT PRIMARY KEY, state TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        weight REAL NOT NULL, is_irreversible INTEGER NOT NULL, is_left_open INTEGER NOT NULL, kept_bytes INTEGER
    )""",
    "CREATE INDEX actions_by_state ON actions (state, first)",
    "CREATE INDEX actions_by_weight ON actions (state, weight, is_irreversible, action)",
    "CREATE INDEX actions_kept ON actions (state, last, kept_bytes) WHERE kept_bytes IS NOT NULL",
    "CREATE INDEX actions_left_open ON actions (last) WHERE is_left_open",
    "CREATE TABLE touched (key TEXT, action TEXT, PRIMARY KEY (key, action)) WITHOUT ROWID",
    "CREATE INDEX touched_by_action ON touched (action)",
    "CREATE TABLE marks (mark TEXT, number INTEGER, PRIMARY KEY (mark, number)) WITHOUT ROWID",
    f"""CREATE TRIGGER follow AFTER INSERT ON records WHEN NEW.kind IN ({NAMED_STATES}) BEGIN
        INSERT INTO actions VALUES (NEW.subject, NEW.kind, NEW.number, NEW.number, {_facts("NEW.body")}, 0)
        ON CONFLICT (action) DO UPDATE
        SET state = excluded.state, last = IIF(excluded.state IN ({_TRIED}), last, excluded.last);
        DELETE FROM touched WHERE action = NEW.subject AND NEW.kind IN ({_WITH_RECEIPT}, {_OVER});
        INSERT INTO touched SELECT value, NEW.subject FROM {_keys("NEW.body")} WHERE NEW.kind IN ({_WITH_RECEIPT});
        INSERT OR IGNORE INTO marks SELECT value, NEW.number FROM json_each(NEW.body, '$.marks')
        WHERE NEW.kind IN ({_WITH_RECEIPT});
    END""",
    f"""CREATE VIEW expected AS SELECT oldest.subject, newest.kind, first, last, {_facts("json")} FROM (
        SELECT MIN(number) AS first, MAX(number) AS latest, MAX(IIF(kind IN ({_TRIED}), 0, number)) AS last
        FROM records WHERE kind IN ({NAMED_STATES}) GROUP BY subject
    ) JOIN (SELECT number, subject, {_JSON} AS json FROM records) AS oldest ON oldest.number = first
    JOIN records AS newest ON newest.number = latest""",
)
_INDEXED = "SELECT action, state, first, last, weight, is_irreversible, is_left_open FROM actions"
IS_STALE = f"""
SELECT EXISTS (SELECT * FROM expected EXCEPT {_INDEXED}) OR EXISTS ({_INDEXED} EXCEPT SELECT * FROM expected)
OR EXISTS (SELECT 1 FROM actions WHERE state IN ({STANDING_STATES}) AND action NOT IN (SELECT action FROM touched))
"""
"""SQL that tells whether the index was tampered with: whether it differs from one derived from all records."""
