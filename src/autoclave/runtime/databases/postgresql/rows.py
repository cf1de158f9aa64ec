"""Rows of a PostgreSQL database: recorded while statements run, compared with their images, and written back.

What happens to rows is recorded by triggers that exist in the transaction of the caller alone: for each statement on a
table, whether ours, a cascade's or a trigger's, the rows that went and the rows that came are put as text into a
temporary table that the role of the statements cannot touch. At the end, equal texts of both kinds cancel out: what is
left is the effect, whatever happened in between and in whichever order. Tables that changed without being listened to
are told by the server's own counters (`Evidence`).

To be compared and written, images are loaded into a temporary table and read by the type of the row that they are of,
so all types come back as they were, and all is done by few statements, however many rows there are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from psycopg import sql

from autoclave.core import InputError
from autoclave.runtime.databases.effects import NUM_KEYS, Effect, Image, TableEffect, as_name
from autoclave.runtime.databases.engine import FoundRows, Rejected
from autoclave.runtime.databases.postgresql.catalogue import SETTINGS, Catalogue, TableFacts
from autoclave.runtime.databases.postgresql.connection import SQL, TOO_MANY
from autoclave.runtime.databases.tables import place_of, quoted

_WRITING = "pg_temp.autoclave_writing"
ORDERS = ("delete update insert", "insert update delete", "update delete insert", "delete replace insert")
"""Which changes come first. References and unique values ask for one or the other; what each did is looked at."""
_VERBS = {"delete": "delete", "update": "modify", "insert": "create", "replace": "modify"}
_ALL = ("create", "modify", "delete")


class Rows:
    """An effect, loaded into the transaction."""

    def __init__(self, connection: Any, catalogue: Catalogue, effect: Effect) -> None:
        self._connection, self._catalogue, self._effect = connection, catalogue, effect
        connection.execute(
            f"DROP TABLE IF EXISTS {_WRITING}; CREATE TEMPORARY TABLE {_WRITING.removeprefix('pg_temp.')} "
            "(place int, sign int, key text, image text) ON COMMIT DROP"
        )
        with connection.cursor() as cursor, cursor.copy(f"COPY {_WRITING} FROM STDIN") as copy:
            for number, table in enumerate(effect.tables):
                for sign, images in ((-1, table.removed), (1, table.added)):
                    for image in images:
                        copy.write_row((number, sign, *image))
        connection.execute(f"ANALYZE {_WRITING} (place, sign, key)")

    def conflicting(self) -> FoundRows:
        found: FoundRows = {}
        for number, effect in enumerate(self._effect.tables):
            table = self._catalogue.tables.get(effect.table)
            if table is None or table.layout != effect.layout:
                found[effect.table, ""] = None
            elif table.key:
                found.update(self._contested_by_key(number, table))
            elif self._is_short(number, table):
                found[effect.table, ""] = None
        return found

    def _contested_by_key(self, number: int, table: TableFacts) -> Iterator[tuple[tuple[str, str], Image | None]]:
        same, own = table.is_same_key("t", "(w.r)"), table.is_same_key("t", "(o.r)")
        rows = self._connection.execute(
            f"WITH w AS MATERIALIZED (SELECT sign, key, image, image::{table.quoted} AS r FROM {_WRITING} "
            f"WHERE place = {number}) SELECT w.key, t.*::text FROM w LEFT JOIN {table.quoted} t ON {same} "
            "WHERE (w.sign = -1 AND t.*::text IS DISTINCT FROM w.image) OR (w.sign = 1 AND t.* IS DISTINCT FROM NULL "
            f"AND NOT EXISTS (SELECT FROM w o WHERE o.sign = -1 AND {own}))"  # equal, maybe written otherwise
        )
        for key, now in rows.fetchall():
            yield (table.place, key), None if now is None else (key, now)

    def _is_short(self, number: int, table: TableFacts) -> bool:
        """Return whether a table without a key has fewer of some rows than are to be taken away."""
        query = (
            f"SELECT w.image FROM (SELECT image, count(*) AS wanted FROM {_WRITING} WHERE place = {number} AND "
            f"sign = -1 GROUP BY image) w LEFT JOIN (SELECT t.*::text AS image, count(*) AS there FROM {table.quoted} "
            "t GROUP BY 1) t ON t.image = w.image WHERE COALESCE(t.there, 0) < w.wanted LIMIT 1"
        )
        return self._connection.execute(query).fetchone() is not None

    def write(self, order: str) -> None:
        """Bring rows and take rows, in one of `ORDERS`. What follows by triggers and keys is not looked at."""
        places = {effect.table: number for number, effect in enumerate(self._effect.tables)}
        parents_first = self._catalogue.parents_first(places)
        verbs = {verb for effect in self._effect.tables for verb in (effect.counts if effect.has_keys else _ALL)}
        for change in order.split():
            if _VERBS[change] not in verbs:
                continue
            for place in parents_first if change in ("insert", "update") else parents_first[::-1]:
                for statement in self._statements(change, places[place], self._catalogue.tables[place]):
                    self._connection.execute(statement)

    def _statements(self, change: str, number: int, table: TableFacts) -> Iterator[str]:
        columns = ", ".join(quoted(name) for name in table.written)
        values = ", ".join(f"(w.r).{quoted(name)}" for name in table.written)

        def images(sign: int, only: str) -> str:
            other = f"SELECT FROM {_WRITING} o WHERE o.place = w.place AND o.sign = {-sign} AND o.key = w.key"
            paired = {"alone": f"AND NOT EXISTS ({other})", "paired": f"AND EXISTS ({other})", "all": ""}
            where = paired[only if table.key else "all"]
            return (
                f"(SELECT w.key, w.image, w.image::{table.quoted} AS r FROM {_WRITING} w WHERE w.place = {number} "
                f"AND w.sign = {sign} {where} OFFSET 0)"
            )

        same = table.is_same_key("t", "(w.r)")

        def delete(source: str) -> str:
            return f"DELETE FROM {table.quoted} t USING {source} w WHERE {same}"

        def insert(source: str) -> str:
            return f"INSERT INTO {table.quoted} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {source} w"

        match change:
            case "delete" if table.key:
                yield delete(images(-1, "alone"))
            case "delete":
                yield self._delete_without_key(number, table)
            case "insert":
                yield insert(images(1, "alone"))
            case "update" if table.key and table.updated:
                setting = ", ".join(f"{quoted(name)} = (w.r).{quoted(name)}" for name in table.updated)
                yield f"UPDATE {table.quoted} t SET {setting} FROM {images(1, 'paired')} w WHERE {same}"
            case "replace" if table.key:
                yield delete(images(-1, "paired"))
                yield insert(images(1, "paired"))

    def _delete_without_key(self, number: int, table: TableFacts) -> str:
        """As many of equal rows as there are images, whichever."""
        return (
            f"DELETE FROM {table.quoted} d USING (SELECT t.tableoid AS o, t.ctid AS c, t.*::text AS image, "
            f"row_number() OVER (PARTITION BY t.*::text) AS n FROM {table.quoted} t) t, "
            f"(SELECT image, count(*) AS wanted FROM {_WRITING} WHERE place = {number} AND sign = -1 GROUP BY image) w "
            "WHERE w.image = t.image AND t.n <= w.wanted AND d.tableoid = t.o AND d.ctid = t.c"
        )


def difference(found: Iterable[TableEffect], wanted: Iterable[TableEffect]) -> tuple[TableEffect, ...]:
    """Return what is still to be done to tables to which `found` was done, for `wanted` to be what was done to them."""
    counts: dict[tuple[str, str], Counter[Image]] = {}
    for effects, came, went in ((wanted, Counter.update, Counter.subtract), (found, Counter.subtract, Counter.update)):
        for each in effects:
            count = counts.setdefault((each.table, each.layout), Counter())
            came(count, each.added)
            went(count, each.removed)
    return tuple(
        TableEffect(table, layout, tuple((-count).elements()), tuple((+count).elements()))
        for (table, layout), count in counts.items()
        if any(count.values())
    )


Counts = dict[str, tuple[int, ...]]


class Evidence:
    """The changes since it was made, as far as a transaction sees them: read by `look`.

    Counters of rows, files of tables and sequences see the whole database, and whatever ran there: a table that is
    emptied gets a new file, as does a sequence that is started again. What others do at the same time is told apart by
    the locks of this connection.

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
        files = {oid: (place_of(*names), number, ours) for oid, *names, number, ours in do(SQL["files"])}
        sequences, scans = (
            {place_of(*names): number for *names, number in do(SQL[query])} for query in ("sequences", "scans")
        )
        counts = {place_of(*names): tuple(some) for *names, some in do(SQL["counts"])}  # also of earlier transactions
        return files, sequences, counts, scans

    def look(self) -> None:
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


_FIRST = "!autoclave"
"""Triggers fire in the order of their names."""
_IMAGES, _ROW = "pg_temp.autoclave_images", '"autoclave row"'
_SETTINGS = " ".join(f"SET {name} = '{value}'" for name, value in SETTINGS)
_GONE, _COME = "OLD TABLE AS autoclave_gone", "NEW TABLE AS autoclave_come"
_EVENTS = {"insert": _COME, "update": f"{_GONE} {_COME}", "delete": _GONE}


class Recorder:
    """Of one transaction on some tables. `most`: rows that one statement may change."""

    def __init__(self, connection: Any, catalogue: Catalogue, tables: Iterable[TableFacts], most: int) -> None:
        self._connection, self._catalogue = connection, catalogue
        self._tables = [table for table in tables if not table.is_view]
        self.heard = {table.place for table in self._tables}
        connection.execute(SQL["recorder"].format(settings=_SETTINGS, too_many=TOO_MANY))
        for number, table in enumerate(self._tables):
            refusal = table.refusal or ("" if table.written else "has no column that can be written")
            if refusal:
                raise Rejected(f"table {table.place}: {refusal}")
            self._listen(table, number, most)
        # where triggers are written down: elsewhere when somebody has altered one, if only for a while
        self._listeners = connection.execute(SQL["triggers"]).fetchall()

    def _listen(self, table: TableFacts, number: int, most: int) -> None:
        words = [
            f"INSERT INTO {_IMAGES} SELECT {number}, {sign}, {table.key_of(_ROW)}, {_ROW}::text FROM {source} {_ROW}"
            for sign, source in ((-1, "autoclave_gone"), (1, "autoclave_come"))
        ]
        given = sql.SQL(", ").join(map(sql.Literal, [f"{most}", *words])).as_string(self._connection)
        for event, references in _EVENTS.items():
            self._connection.execute(
                f"CREATE TRIGGER {quoted(f'{_FIRST} {event}')} AFTER {event} ON {table.quoted} REFERENCING "
                f"{references} FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.autoclave_hear({given})".encode()
            )

    def require_untouched(self) -> None:
        """Raise InputError if what listens was switched off, as the owner of a table could."""
        if self._connection.execute(SQL["triggers"]).fetchall() != self._listeners:
            raise InputError("the statements changed the triggers that tell what they change")

    def require_keepable(self, most_bytes: int) -> None:
        """Raise InputError if what was heard is too much to keep, or is not read as it was written."""
        query = f"SELECT COALESCE(sum(octet_length(image)), 0)::bigint FROM {_IMAGES}"
        (num_bytes,) = self._connection.execute(query).fetchone()
        if num_bytes > most_bytes:
            raise InputError(f"changes rows of {num_bytes} bytes, more than {most_bytes} (max_bytes)")
        for number, table in enumerate(self._tables):
            if table.is_plain:
                continue
            query = f"SELECT count(*) FROM {_IMAGES} WHERE place = {number} AND image::{table.quoted}::text <> image"
            try:
                (wrong,) = self._connection.execute(query).fetchone()
            except (psycopg.DataError, psycopg.ProgrammingError):
                wrong = 1
            if wrong:
                raise InputError(f"table {table.place}: has values that do not come back from their text")

    def table_effects(self) -> Iterator[TableEffect]:
        counts = [Counter[Image]() for _ in self._tables]
        for place, sign, *image in self._connection.execute(f"SELECT place, sign, key, image FROM {_IMAGES}"):
            counts[place][tuple(image)] += sign  # equal rows cancel out
        for table, found in zip(self._tables, counts, strict=True):
            went, came = sorted((-found).elements()), sorted((+found).elements())
            if went or came:
                yield TableEffect(table.place, table.layout, tuple(went), tuple(came))

    def parents(self) -> Iterator[str]:
        """Rows that those that came refer to, as far as the reference is to a key and they are few; else tables."""
        for number, table in enumerate(self._tables):
            for each in table.foreign_keys:
                parent = self._catalogue.tables.get(each.parent)
                if parent is None:
                    continue
                values = f"SELECT (image::{table.quoted}).{quoted(each.columns[0])}::text AS value FROM {_IMAGES}"
                rows = f"({values} WHERE place = {number} AND sign = 1 OFFSET 0) i"
                query = f"SELECT value FROM {rows} WHERE value IS NOT NULL LIMIT {NUM_KEYS + 1}"
                found = self._connection.execute(query).fetchall()
                if found and (parent.key != each.target or len(each.target) != 1 or len(found) > NUM_KEYS):
                    yield each.parent
                else:
                    yield from (f"{each.parent}/{as_name(value)}" for (value,) in found)

    def close(self) -> None:
        """Take the triggers away again, before the transaction ends well."""
        for table in self._tables:
            for event in _EVENTS:
                self._connection.execute(f"DROP TRIGGER {quoted(f'{_FIRST} {event}')} ON {table.quoted}")
        self._connection.execute(f"DROP FUNCTION pg_temp.autoclave_hear(); DROP TABLE {_IMAGES}")
