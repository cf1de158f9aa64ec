"""What shows that something happened, besides rows that were heard of: counters of rows, files of tables, sequences.

These see the whole database, and whatever ran there: a table that is emptied gets a new file, as does a sequence that
is started again. What others do at the same time is told apart by the locks of this connection.
"""

from __future__ import annotations

from typing import Any

from autoclave.runtime.databases.tables import place_of

Counts = dict[str, tuple[int, ...]]
_COUNTED = """
SELECT schemaname, relname, ARRAY[n_tup_ins, n_tup_upd, n_tup_del] FROM pg_catalog.pg_stat_xact_all_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND schemaname NOT IN ('pg_catalog', 'pg_toast', 'information_schema')
    AND schemaname NOT LIKE 'pg\\_temp%' AND schemaname NOT LIKE 'pg\\_toast%'
"""
_SCANNED = """
SELECT schemaname, relname, COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0)
FROM pg_catalog.pg_stat_xact_user_tables WHERE COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0) > 0
"""
_FILES = """
SELECT c.oid, n.nspname, c.relname, pg_catalog.pg_relation_filenode(c.oid),
    c.oid IN (SELECT relation FROM pg_catalog.pg_locks WHERE relation IS NOT NULL AND granted
        AND pid = pg_catalog.pg_backend_pid() AND mode IN ('AccessExclusiveLock', 'ShareRowExclusiveLock'))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence <> 't'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_SEQUENCES = """
SELECT schemaname, sequencename, COALESCE(last_value, start_value - increment_by)
FROM pg_catalog.pg_sequences WHERE schemaname NOT LIKE 'pg\\_temp%'
"""


class Evidence:
    """What has happened since it was made, as far as a transaction sees it: told by `look`.

    Attributes:
        counts: rows created, modified and deleted by table.
        emptied: tables that have another file than before, by our doing.
        restarted: sequences that do.
        drawn: sequences that stand elsewhere.
        looked_at: tables that somebody looked through, or looked up in, be it a trigger.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._files, self._sequences, self._counts, self._scans = self._standing()

    def _standing(self) -> tuple[dict[int, Any], dict[str, int], Counts, dict[str, int]]:
        """Files of tables and sequences by oid, with whether they are locked by us; last numbers; and both counters."""
        do = self._connection.execute
        files = {oid: (place_of(*names), number, ours) for oid, *names, number, ours in do(_FILES)}
        sequences, scans = (
            {place_of(*names): number for *names, number in do(query)} for query in (_SEQUENCES, _SCANNED)
        )
        counts = {place_of(*names): tuple(counts) for *names, counts in do(_COUNTED)}  # also of earlier transactions
        return files, sequences, counts, scans

    def look(self) -> None:
        """Look what has happened."""
        files, sequences, counts, scans = self._standing()
        both = self._files.keys() & files.keys()
        new = {files[oid][0] for oid in both if self._files[oid][1] != files[oid][1] and files[oid][2]}
        moved = {name for name, last in sequences.items() if self._sequences.get(name, last) != last}
        before = {place: self._counts.get(place, (0, 0, 0)) for place in counts}
        self.counts = {
            place: tuple(new - old for new, old in zip(counts[place], before[place], strict=True))
            for place in counts
            if counts[place] != before[place]
        }
        self.emptied, self.restarted, self.drawn = new - sequences.keys(), new & sequences.keys(), moved - new
        self.looked_at = {place for place, number in scans.items() if number != self._scans.get(place, 0)}
