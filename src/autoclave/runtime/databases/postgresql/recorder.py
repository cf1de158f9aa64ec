"""What happens to rows while statements run in a transaction, by triggers that exist in this transaction alone.

For each statement on a table, whether ours, a cascade's or a trigger's, the rows that went and the rows that came are
put as text into a temporary table that the role of the statements cannot touch. At the end, equal texts of both kinds
cancel out: what is left is the effect, whatever happened in between and in whichever order. Tables that changed without
being listened to are told by the server's own counters.

Besides, hashes of rows that came, less those of rows that went, are summed up on the server. Equal rows cancel out
there as well, so that the sum tells the effect, and not how it came about. Where an effect is known, and only whether
it came about again is to be told, no row is put down. A hash goes on from column to column, over their texts, each
being the seed of the next. The first seeds are drawn by lot in each process and told to nobody, as is what stands for
NULL, so no rows can be chosen of which the sums are alike.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import TableEffect
from autoclave.runtime.databases.images import SEPARATOR, Image, Images
from autoclave.runtime.databases.places import place_of
from autoclave.runtime.databases.postgresql.catalogue import SETTINGS, TABLES, Catalogue, TableFacts, is_plain, quoted
from autoclave.runtime.databases.postgresql.failures import TOO_MANY

_FIRST = "!autoclave"
"""Triggers fire in the order of their names."""
_IMAGES = "pg_temp.autoclave_images"
_SUMS = "pg_temp.autoclave_sums"
_COLUMNS = {
    _IMAGES: '(place int, sign int, key text COLLATE "C", image text COLLATE "C")',
    _SUMS: "(place int, rows bigint, one numeric, other numeric)",
}
_FUNCTION = """
CREATE FUNCTION pg_temp.autoclave_{number}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET row_security = off {settings} AS {tag}
DECLARE went bigint := 0; came bigint := 0;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        {truncated}
    END IF;
    IF TG_OP IN ('DELETE', 'UPDATE') THEN
        {went}
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        {came}
    END IF;
    IF greatest(went, came) > {most} THEN
        RAISE EXCEPTION USING ERRCODE = '{too_many}', MESSAGE = 'too many rows';
    END IF;
    RETURN NULL;
END {tag};
REVOKE ALL ON FUNCTION pg_temp.autoclave_{number}() FROM PUBLIC
"""
_PUT = """INSERT INTO {images} SELECT {number}, {sign}, {key}, {row}::text FROM {source} {row};
        GET DIAGNOSTICS {count} = ROW_COUNT;"""
_ADD = """INSERT INTO {sums} SELECT {number}, count(*), {sign} * COALESCE(sum({one}), 0),
            {sign} * COALESCE(sum({other}), 0) FROM {source} {row} RETURNING rows INTO {count};"""
_LINES = """
SELECT place, sign, string_agg('[' || to_json(key) || ',' || to_json(image) || ']', E',\\n') FROM {images}
GROUP BY place, sign, abs(hashtext(image)::bigint) % {parts}
"""
"""Lines of `Images`."""
_BYTES_AT_ONCE = 100_000_000
_LISTENERS = """
SELECT t.oid, t.ctid::text FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
WHERE p.pronamespace = pg_catalog.pg_my_temp_schema() ORDER BY 1
"""
"""Our triggers, and where they are written down: elsewhere when somebody has altered one, if only for a while."""
_ROW = '"autoclave row"'
_EVENTS = (
    ("AFTER INSERT", "REFERENCING NEW TABLE AS autoclave_come"),
    ("AFTER UPDATE", "REFERENCING OLD TABLE AS autoclave_gone NEW TABLE AS autoclave_come"),
    ("AFTER DELETE", "REFERENCING OLD TABLE AS autoclave_gone"),
    ("BEFORE TRUNCATE", ""),
)
_COUNTED = """
SELECT schemaname, relname, ARRAY[n_tup_ins, n_tup_upd, n_tup_del] FROM pg_catalog.pg_stat_xact_all_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND schemaname NOT IN ('pg_catalog', 'pg_toast', 'information_schema')
    AND schemaname NOT LIKE 'pg\\_temp%' AND schemaname NOT LIKE 'pg\\_toast%'
"""

_SCANNED = """
SELECT schemaname, relname, COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0)
FROM pg_catalog.pg_stat_xact_user_tables WHERE COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0) > 0
"""

_PARTITIONED = "p"

Counts = dict[str, tuple[int, ...]]


def counted(connection: Any) -> Counts:
    """Rows created, modified and deleted by table. Earlier transactions that were not reported yet are in it."""
    return {place_of(*names): tuple(counts) for *names, counts in connection.execute(_COUNTED)}


def _scanned(connection: Any) -> dict[str, int]:
    """How often tables were looked through, or looked up in, in this transaction."""
    return {place_of(*names): number for *names, number in connection.execute(_SCANNED)}


def counted_since(before: Counts, connection: Any) -> Counts:
    """The same since then."""
    nothing = (0, 0, 0)
    now = counted(connection)
    return {
        place: tuple(new - old for new, old in zip(counts, before.get(place, nothing), strict=True))
        for place, counts in now.items()
        if counts != before.get(place, nothing)
    }


Sums = dict[str, tuple[str, Decimal, Decimal]]
"""Layout and sums by table."""


_NULL = secrets.token_hex(16)
_CHAINED = 100
"""So many columns have hashes of their own; of more, a row is hashed as a whole."""


def drawn_seeds() -> tuple[int, int]:
    """Seeds for `Recorder`."""
    return secrets.randbits(63), secrets.randbits(63)


def _hash(table: TableFacts, seed: int) -> str:
    """The hash of a row, as SQL."""
    texts = [f"{_ROW}::text"] if len(table.columns) > _CHAINED else [_text(*column[:2]) for column in table.columns]
    found = f"{seed}"
    for text in texts:
        found = f"hashtextextended(COALESCE({text}, '{_NULL}') COLLATE \"C\", {found})"
    return found


def _text(name: str, kind: str) -> str:
    """The text of a column, by no cast that somebody may have made."""
    value = f"{_ROW}.{quoted(name)}"
    return f"{value}::text" if is_plain(kind) and not kind.startswith("character(") else f"ROW({value})::text"


def summed(connection: Any, table: str, seeds: tuple[int, int]) -> dict[int, tuple[Decimal, Decimal]]:
    """The sums of a table of images (`place`, `sign`, `image`), by place, where they are not nothing."""
    one, other = (
        f"COALESCE(sum(pg_catalog.hashtextextended(image, {seed})) FILTER (WHERE sign = 1), 0) "
        f"- COALESCE(sum(pg_catalog.hashtextextended(image, {seed})) FILTER (WHERE sign = -1), 0)"
        for seed in seeds
    )
    rows = connection.execute(f"SELECT place, {one}, {other} FROM {table} GROUP BY place").fetchall()
    return {place: (one, other) for place, one, other in rows if one or other}


def _events_of(table: TableFacts) -> list[tuple[str, str]]:
    """What is listened to. What empties a table that is made of partitions empties these, each of which is heard."""
    return [each for each in _EVENTS if table.kind != _PARTITIONED or "TRUNCATE" not in each[0]]


class Recorder:
    """Of one transaction on some tables. `most`: rows that one statement may change.

    `seeds`: those of the sums; none, no sums. `reads_rows`: whether more is wanted than the sums.
    """

    def __init__(
        self,
        connection: Any,
        catalogue: Catalogue,
        tables: Iterable[TableFacts],
        most: int,
        seeds: tuple[int, int] | None,
        *,
        reads_rows: bool = True,
    ) -> None:
        self._connection, self._most, self._seeds, self._reads_rows = connection, most, seeds, reads_rows
        self._before, self._scanned = counted(connection), _scanned(connection)
        self._tables = [table for table in tables if table.kind in TABLES]
        whole = dict.fromkeys(catalogue.whole(table.place) for table in self._tables)
        self._told = [catalogue.tables[place] for place in whole]
        self._numbers = {table.place: [*whole].index(catalogue.whole(table.place)) for table in self._tables}
        self._made = [_IMAGES] * reads_rows + [_SUMS] * bool(seeds)
        for name in self._made:
            connection.execute(
                f"CREATE TEMPORARY TABLE {name.removeprefix('pg_temp.')} {_COLUMNS[name]} ON COMMIT DROP"
            )
        for number, table in enumerate(self._tables):
            if table.inherits:
                raise InputError(f"table {table.place}: inherits, or is inherited from, which images do not hold")
            if not table.written:
                raise InputError(f"table {table.place}: has no column that can be written, so it cannot be put back")
            self._listen(number, table, self._told[self._numbers[table.place]])
        self._listeners = connection.execute(_LISTENERS).fetchall()

    @property
    def heard(self) -> set[str]:
        """The tables that are listened to."""
        return {table.place for table in self._tables}

    def _listen(self, number: int, table: TableFacts, told: TableFacts) -> None:
        """Listen to a table, and tell its rows as those of the table that it is part of, if it is."""
        settings = " ".join(f"SET {name} = '{value}'" for name, value in SETTINGS)
        about = {"number": self._numbers[table.place], "images": _IMAGES, "sums": _SUMS, "row": _ROW}
        about |= {"key": told.key_of(_ROW)}
        if self._seeds:
            about |= {"one": _hash(told, self._seeds[0]), "other": _hash(told, self._seeds[1])}
        template = _PUT * self._reads_rows + _ADD * bool(self._seeds)
        columns = ", ".join(quoted(column[0]) for column in told.columns)

        def put(source: str, sign: int, count: str) -> str:
            source = source if table is told else f"(SELECT {columns} FROM {source})"
            return template.format(**about, source=source, sign=sign, count=count)

        body = _FUNCTION.format(
            tag=f"$autoclave_{secrets.token_hex(16)}$",  # which no name of a table has in it
            number=number,
            settings=settings,
            truncated=put(table.quoted, -1, "went"),
            went=put("autoclave_gone", -1, "went"),
            came=put("autoclave_come", 1, "came"),
            most=self._most,
            too_many=TOO_MANY,
        )
        self._connection.execute(body)
        for event, references in _events_of(table):
            name = quoted(f"{_FIRST} {event.split()[1].lower()}")
            self._connection.execute(
                f"CREATE TRIGGER {name} {event} ON {table.quoted} {references} "
                f"FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.autoclave_{number}()"
            )

    def unheard(self) -> set[str]:
        """Tables whose rows changed although nobody listened."""
        return self.counts().keys() - self.heard

    def counts(self) -> Counts:
        """How many rows were created, modified and deleted, by table."""
        return counted_since(self._before, self._connection)

    def looked_at(self) -> set[str]:
        """Tables that somebody looked at, be it a trigger."""
        now = _scanned(self._connection)
        return {place for place, number in now.items() if number != self._scanned.get(place, 0)}

    def sums(self) -> Sums:
        """Of the rows that came, less those that went, of each table to which something happened."""
        rows = self._connection.execute(f"SELECT place, sum(one), sum(other) FROM {_SUMS} GROUP BY place").fetchall()
        return self._by_table({place: (one, other) for place, one, other in rows if one or other})

    def sums_of_images(self, seeds: tuple[int, int]) -> Sums:
        """The same of the images, by `summed`."""
        return self._by_table(summed(self._connection, _IMAGES, seeds))

    def _by_table(self, found: dict[int, tuple[Decimal, Decimal]]) -> Sums:
        tables = self._told
        return {tables[place].place: (tables[place].layout, one, other) for place, (one, other) in found.items()}

    def require_untouched(self) -> None:
        """Look that nobody has switched off what listens, as the owner of a table could.

        Raises:
            InputError: somebody has.
        """
        if self._connection.execute(_LISTENERS).fetchall() != self._listeners:
            raise InputError("the statements changed the triggers that tell what they change")

    def require_keepable(self, most_bytes: int) -> None:
        """Look that what was heard is not too much to be kept, and that the server reads it as it wrote it.

        Raises:
            InputError: it is, or it does not.
        """
        import psycopg

        if (num_bytes := self._num_bytes()) > most_bytes:
            raise InputError(f"changes rows of {num_bytes} bytes, more than {most_bytes} (max_bytes)")
        for number, table in enumerate(self._told):
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
        """What became of each table."""
        lines: dict[tuple[int, int], list[str]] = {}
        query = _LINES.format(images=_IMAGES, parts=self._num_bytes() // _BYTES_AT_ONCE + 1)
        for place, sign, text in self._connection.execute(query).fetchall():
            lines.setdefault((place, sign), []).extend(text.split(SEPARATOR))
        for number, table in enumerate(self._told):
            went, came = lines.get((number, -1), []), lines.get((number, 1), [])
            if not set(went).isdisjoint(came):  # equal rows cancel out
                counted = Counter(came)
                counted.subtract(went)
                went, came = [*(-counted).elements()], [*(+counted).elements()]
            if went or came:
                yield TableEffect(table.place, table.layout, Images(sorted(went)), Images(sorted(came)))

    def _num_bytes(self) -> int:
        """How long the images are."""
        query = f"SELECT COALESCE(sum(octet_length(image)), 0)::bigint FROM {_IMAGES}"
        return self._connection.execute(query).fetchone()[0]

    def close(self) -> None:
        """Take the triggers away again, before the transaction ends well."""
        for number, table in enumerate(self._tables):
            for event, _ in _events_of(table):
                name = quoted(f"{_FIRST} {event.split()[1].lower()}")
                self._connection.execute(f"DROP TRIGGER {name} ON {table.quoted}")
            self._connection.execute(f"DROP FUNCTION pg_temp.autoclave_{number}()")
        self._connection.execute(f"DROP TABLE {', '.join(self._made)}")


def rows_as_text(connection: Any, table: TableFacts) -> tuple[Image, ...]:
    """All rows of a table."""
    row = quoted("autoclave row")
    return tuple(connection.execute(f"SELECT {table.key_of(row)}, {row}::text FROM {table.quoted} {row}").fetchall())
