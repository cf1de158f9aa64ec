"""Values of all types come back as they were, to the last bit, also when they were kept."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, RowConflict, open_engine
from autoclave.runtime.databases.modes import effect_of
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from tests.runtime.databases.shops import Shop, done

TABLES = {
    "rowid": "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b TEXT, c NUMERIC, d REAL, e BLOB, f INTEGER)",
    "no key": "CREATE TABLE t (id INT, a, b TEXT, c NUMERIC, d REAL, e BLOB, f INTEGER)",
    "any key": "CREATE TABLE t (id, a PRIMARY KEY, b TEXT, c NUMERIC, d REAL, e BLOB, f INTEGER)",
    "without rowid": "CREATE TABLE t (id, a, b TEXT, c NUMERIC, d REAL, e, f INTEGER, PRIMARY KEY (b, a)) "
    "WITHOUT ROWID",
    "strict": "CREATE TABLE t (id INTEGER PRIMARY KEY, a ANY, b ANY, c ANY, d ANY, e ANY, f ANY) STRICT",
    "computed": "CREATE TABLE t (id INTEGER PRIMARY KEY, g AS (hex(a)) VIRTUAL, a, b TEXT, h AS (typeof(b)) STORED, "
    "c NUMERIC, d REAL, e BLOB, f INTEGER)",
}
NEVER_UTF8 = st.sampled_from([b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\x00\x80b"])
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1]),
    st.floats(allow_nan=False),
    st.sampled_from([-0.0, 5e-324, -2.2250738585072e-308, 1.7976931348623157e308, float("inf"), float("-inf"), 1e16]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    st.sampled_from(["a\0b", '{"b":"00"}', "[1]", "null", "1.0", "\u2028\n,\n\r", '\\"\\u0000', "rowid 7", "\ud7ff"]),
    st.binary(max_size=9),
    NEVER_UTF8.map(lambda odd: ("text", odd)),
)
ROWS = st.lists(st.tuples(*[VALUES] * 6), max_size=6)
COUNT = settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])


def given_as(value: Any) -> tuple[str, Any]:
    """How a value is written in a statement, and what is bound."""
    return ("CAST(? AS TEXT)", value[1]) if isinstance(value, tuple) else ("?", value)


def content(connection: apsw.Connection) -> list[Any]:
    """All rows, told from each other by their bits."""
    without = connection.execute("SELECT wr FROM pragma_table_list('t')").fetchone()[0]
    columns = ", ".join(
        f"typeof({name}), CAST({name} AS BLOB), iif(typeof({name}) = 'real', {name}, 0)" for name in "abcdef"
    )
    rows = connection.execute(f"SELECT {'0' if without else 'rowid'}, id, {columns} FROM t")
    return sorted(repr([struct.pack(">d", each) if type(each) is float else each for each in row]) for row in rows)


@contextlib.contextmanager
def filled(folder: Path, made: str, rows: list[tuple[Any, ...]]) -> Any:
    path = folder / "t.db"
    for old in folder.glob("t.db*"):
        old.unlink()
    with contextlib.closing(apsw.Connection(f"{path}")) as connection:
        connection.execute(made)
        for number, row in enumerate(rows):
            if "WITHOUT ROWID" in made:  # where texts that are no UTF-8 are refused; see below
                row = [each[1] if isinstance(each, tuple) else each for each in row]
            marks, values = zip(*map(given_as, row), strict=True)
            statement = f"INSERT OR IGNORE INTO t (id, a, b, c, d, e, f) VALUES (?, {', '.join(marks)})"
            with contextlib.suppress(apsw.ConstraintError):
                connection.execute(statement, (number, *values))
        settings = DatabaseConnection(engine="sqlite", path=f"{path}")
        with contextlib.closing(open_engine("t", settings, "")) as engine:
            yield connection, engine


def performed(engine: Engine, *statements: str) -> Effect:
    found: list[Effect] = []
    engine.perform(Sql(database="t", statements=statements), lambda effect, _: found.append(effect))
    (effect,) = found
    return effect_of(effect.to_bytes())


@pytest.mark.parametrize("made", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("statement", ["DELETE FROM t", "UPDATE t SET c = 7, e = 0.1 + f WHERE id <> 1"])
@COUNT
@given(rows=ROWS)
def test_any_value_comes_back_and_goes_again(
    tmp_path_factory: pytest.TempPathFactory, made: str, statement: str, rows: list[tuple[Any, ...]]
):
    folder = tmp_path_factory.getbasetemp() / "values"
    folder.mkdir(exist_ok=True)
    with filled(folder, made, rows) as (connection, engine):
        before = content(connection)
        effect = performed(engine, statement)
        after = content(connection)
        for each, there in ((effect.inverse(), before), (effect, after), (effect.inverse(), before)):
            assert engine.conflicting(each) == {}
            engine.write(each, lambda *_: None)
            assert content(connection) == there


@pytest.mark.parametrize("made", TABLES.values(), ids=TABLES)
@COUNT
@given(one=VALUES, other=VALUES)
@example(one=0.0, other=-0.0)
@example(one=1, other=1.0)
@example(one=-(2**63), other=-(2.0**63))
def test_a_value_that_others_change_is_noticed_if_and_only_if_a_bit_is_another(
    tmp_path_factory: pytest.TempPathFactory, made: str, one: Any, other: Any
):
    folder = tmp_path_factory.getbasetemp() / "values"
    folder.mkdir(exist_ok=True)
    with filled(folder, made, [(1, "k", 1, 1, one, 1), (2, "l", 1, 1, 1, 1)]) as (connection, engine):
        effect = performed(engine, "UPDATE t SET f = 9")
        before = content(connection)
        mark, value = given_as(other)
        with contextlib.suppress(apsw.ConstraintError):
            connection.execute(f"UPDATE t SET e = {mark} WHERE a = 1", (value,))
        is_changed = content(connection) != before
        assert len(engine.conflicting(effect.inverse())) == int(is_changed)
        if is_changed:
            with pytest.raises(RowConflict, match="t/main/t/"):
                engine.write(effect.inverse(), lambda *_: None)


def test_keys_that_are_no_utf8_come_back(tmp_path: Path):
    rows = [(("text", odd), 1, 1, 1, 1, 1) for odd in (b"\xff", b"a\xc3")] + [
        ("a", 1, 1, 1, 1, 1),
        (b"a", 1, 1, 1, 1, 1),
    ]
    with filled(tmp_path, TABLES["any key"], rows) as (connection, engine):
        before = content(connection)
        effect = performed(engine, "DELETE FROM t")
        assert len({key for key, _ in effect.tables[0].removed}) == 4
        engine.write(effect.inverse(), lambda *_: None)
        assert content(connection) == before


def test_texts_that_are_no_utf16_come_back(tmp_path: Path):
    made = f"PRAGMA encoding = 'UTF-16le'; {TABLES['any key']}"
    rows = [(1, 1, ("text", odd), 1, 1, 1) for odd in (b"\x00\xd8", b"\x00\xd8\x41\x00")] + [
        (2, "\U00010041", 1, 1, 1, 1)
    ]
    with filled(tmp_path, made, [(number, *row[1:]) for number, row in enumerate(rows)]) as (connection, engine):
        before = [*connection.execute("SELECT rowid, a, hex(b) FROM t")]
        effect = performed(engine, "DELETE FROM t")
        engine.write(effect.inverse(), lambda *_: None)
        assert [*connection.execute("SELECT rowid, a, hex(b) FROM t")] == before


def test_rows_without_keys_tell_whether_they_were_committed(tmp_path: Path):
    with filled(tmp_path, TABLES["no key"], []) as (_, engine):
        effect = performed(engine, "INSERT INTO t (a) VALUES (1), (1)")
        for _ in range(2):
            assert engine.was_committed({}, effect)
            assert not engine.was_committed({}, effect.inverse())
            engine.write(effect.inverse(), lambda *_: None)
            assert not engine.was_committed({}, effect)
            assert engine.was_committed({}, effect.inverse())
            engine.write(effect, lambda *_: None)


def test_texts_that_are_no_utf8_are_refused_in_tables_without_rowids(tmp_path: Path):
    with filled(tmp_path, TABLES["without rowid"], []) as (connection, engine):
        connection.execute("INSERT INTO t (a, b) VALUES (CAST(x'ff' AS TEXT), 'x')")
        before = content(connection)
        with pytest.raises(InputError, match="cannot be read"):
            performed(engine, "DELETE FROM t")
        assert content(connection) == before


def test_rows_of_very_many_columns(tmp_path: Path):
    names = [f"c{number}" for number in range(1500)]
    with filled(tmp_path, f"CREATE TABLE t (id INTEGER PRIMARY KEY, {', '.join(names)})", []) as (connection, engine):
        values = [number if number % 3 else f"]{number}[" for number in range(1500)]
        connection.execute(f"INSERT INTO t ({', '.join(names)}) VALUES ({', '.join('?' * 1500)})", values)
        before = list(connection.execute("SELECT * FROM t"))
        effect = performed(engine, "DELETE FROM t")
        engine.write(effect.inverse(), lambda *_: None)
        assert list(connection.execute("SELECT * FROM t")) == before


@pytest.mark.parametrize(
    ("limit", "rule", "statement"),
    [
        ({"max_rows": 99}, "max_rows", "DELETE FROM t"),
        ({"max_rows": 99}, "max_rows", "CREATE TABLE copy AS SELECT * FROM t"),
        ({"max_bytes": 3000}, "max_bytes", "DELETE FROM t"),
    ],
)
def test_what_is_too_much_is_not_done(tmp_path: Path, limit: dict[str, int], rule: str, statement: str):
    with filled(tmp_path, TABLES["rowid"], [(1, 2, 3, 4, 5, 6)] * 100) as (connection, engine):
        engine.close()
        settings = DatabaseConnection(engine="sqlite", path=f"{tmp_path / 't.db'}", **limit)
        with contextlib.closing(open_engine("t", settings, "")) as limited:
            for act in (
                lambda: limited.rehearse(Sql(database="t", statements=(statement,)), Mode.TRANSACTION),
                lambda: limited.transactions.open("a", Sql(database="t", statements=(statement,)), lambda *_: None),
            ):
                with pytest.raises(InputError, match=rule):
                    act()
        assert len(content(connection)) == 100


def test_what_changes_far_too_much_is_stopped_on_the_way(tmp_path: Path):
    with filled(tmp_path, TABLES["rowid"], [(1, 2, 3, 4, 5, 6)]) as (connection, engine):
        engine.close()
        settings = DatabaseConnection(engine="sqlite", path=f"{tmp_path / 't.db'}", max_rows=10)
        endless = "INSERT INTO t (a) WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n) SELECT n FROM n"
        with contextlib.closing(open_engine("t", settings, "")) as limited, pytest.raises(InputError, match="max_rows"):
            performed(limited, endless)
        assert len(content(connection)) == 1


OF_POSTGRESQL = {
    "smallint": ["-32768", "32767"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "numeric": ["'NaN'", "'Infinity'", "123456789012345678901234567890.123456789000", "0.10"],
    "numeric(10,2)": ["1.10"],
    "real": ["'NaN'", "'-Infinity'", "0.1", "'-0'"],
    "double precision": ["'NaN'", "0.1::float8 + 0.2::float8", "5e-324", "1.7976931348623157e308", "'-0'"],
    "money": ["'-12.34'"],
    "text": ["''", "E'a\\n\\t\\\\\"''(),{}'", "'NULL'", "U&'\\+01F600'"],
    "varchar(5)": ["'a  '"],
    "char(5)": ["'a'"],
    '"char"': ["'x'"],
    "name": ["'a name'"],
    "bytea": ["'\\x00ff5c27'", "''"],
    "boolean": ["true", "false"],
    "date": ["'infinity'", "'0044-03-15 BC'", "'5874897-12-31'"],
    "time": ["'24:00:00'", "'00:00:00.000001'"],
    "timetz": ["'12:00:00.123456+05:45'"],
    "timestamp": ["'-infinity'", "'294276-12-31 23:59:59.999999'"],
    "timestamptz": ["'2024-03-31 02:30:00 Europe/Berlin'", "'0001-01-01 00:00:00+00 BC'"],
    "interval": ["'-1 year 2 mons -3 days 04:05:06.789'", "'P1Y'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "json": ['\'{"a": 1,   "a": [2.00, null]}\''],
    "jsonb": ['\'{"a": 1.10, "b": "\\u00e9"}\''],
    "inet": ["'192.168.0.1/24'", "'::1'"],
    "cidr": ["'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "bit(5)": ["B'10101'"],
    "bit varying": ["B''", "B'1'"],
    "point": ["'(1.5,-0)'"],
    "box": ["'(1,2),(3,4)'"],
    "path": ["'[(0,0),(1,1)]'"],
    "polygon": ["'((0,0),(1,1),(1,0))'"],
    "circle": ["'<(1,2),3>'"],
    "int4range": ["'empty'", "'[1,5)'", "'(,3)'"],
    "tstzrange": ["'[2024-01-01 00:00+00,)'"],
    "int4multirange": ["'{[1,3),[5,7)}'"],
    "tsvector": ["'a:1A b''c:2'"],
    "tsquery": ["'a & !b'"],
    "int[]": ["'{}'", "'{1,NULL,3}'", "'[0:1]={1,2}'", "'{{1,2},{3,4}}'"],
    "text[]": ["ARRAY['a,b', '\"', '', NULL, 'NULL', E'\\\\']"],
    "mood": ["'glad'"],
    "mood[]": ["'{glad}'"],
    "few": ["3"],
    "pair": ["ROW(1, 'a \"b\", (c)')", "ROW(NULL, '')"],
    "pair[]": ["ARRAY[ROW(1, 'x,y')::pair, NULL]"],
    "regclass": ["'item'"],
    "oid": ["4294967295"],
    "pg_lsn": ["'16/B374D848'"],
    'text COLLATE "C"': ["'ä'"],
}


def test_all_types_of_postgresql(postgres_shop: Shop):
    columns = [f"c{number} {kind}" for number, kind in enumerate(OF_POSTGRESQL)]
    shop = postgres_shop
    shop.others("CREATE DOMAIN few AS int CHECK (VALUE < 10); CREATE TYPE pair AS (a int, b text)")
    shop.others(f"CREATE TABLE kinds (id serial PRIMARY KEY, {', '.join(columns)}); GRANT ALL ON kinds TO agent")
    for number, values in enumerate(OF_POSTGRESQL.values()):
        for value in [*values, "NULL"]:
            shop.others(f"INSERT INTO kinds (c{number}) VALUES ({value})")
    before = shop.content()
    nulls = ", ".join(f"c{number} = NULL" for number in range(len(OF_POSTGRESQL)))
    with shop.session() as session:
        emptied = done(session, f"UPDATE kinds SET {nulls}")
        assert shop.content()["kinds"] != before["kinds"]
        session.undo(emptied)
        assert shop.content() == before
        deleted = done(session, "DELETE FROM kinds")
        session.undo(deleted)
        assert shop.content() == before


def test_rows_are_the_same_whatever_the_time_zone_and_style_of_the_database_is_meanwhile(postgres_shop: Shop):
    shop = postgres_shop
    shop.others("ALTER DATABASE shop SET timezone = 'Asia/Kathmandu'; ALTER DATABASE shop SET datestyle = 'German'")
    shop.others("ALTER DATABASE shop SET extra_float_digits = 0; ALTER DATABASE shop SET bytea_output = 'escape'")
    exact = "SELECT n, extract(epoch FROM a), b - date '2000-01-01', float8send(c), encode(d, 'hex') FROM t"
    try:
        shop.others("CREATE TABLE t (n int, a timestamptz, b date, c float8, d bytea); GRANT ALL ON t TO agent")
        shop.others("INSERT INTO t VALUES (1, '2024-03-31 02:30:00+01', '2024-03-04', 0.1 + 0.2::float8, '\\x00ff')")
        before = shop.others(exact)
        with shop.session() as session:
            action = done(session, "UPDATE t SET n = 2")
        shop.others("ALTER DATABASE shop RESET ALL")
        with shop.session() as session:
            session.undo(action)
        assert shop.others(exact) == before
    finally:
        shop.others("ALTER DATABASE shop RESET ALL")


@pytest.mark.parametrize(
    ("table", "row", "rule"),
    [
        ("a int, f regproc", "1, 'pg_catalog.lower(text)'::regprocedure::oid", "do not come back from their text"),
        ("a int, f regproc[]", "1, ARRAY['lower(text)'::regprocedure::oid]::regproc[]", "do not come back"),
        ("", "", "has no column that can be written"),
        ("a int GENERATED ALWAYS AS (1) STORED", "", "has no column that can be written"),
    ],
)
def test_what_could_not_be_put_back_is_not_taken_away(postgres_shop: Shop, table: str, row: str, rule: str):
    values = f"VALUES ({row})" if row else "DEFAULT VALUES"
    postgres_shop.others(f"CREATE TABLE strange ({table}); INSERT INTO strange {values}; GRANT ALL ON strange TO agent")
    before = postgres_shop.content()
    with postgres_shop.session() as session, pytest.raises(InputError, match=rule):
        done(session, "DELETE FROM strange")
    assert postgres_shop.content() == before


def test_keys_of_all_kinds(postgres_shop: Shop):
    shop = postgres_shop
    shop.others("CREATE TABLE k (a numeric, b text, c bytea, PRIMARY KEY (a, b, c)); GRANT ALL ON k TO agent")
    shop.others("INSERT INTO k VALUES (1.0, 'a/b%\"', '\\x00'), ('NaN', '', '\\x01'), (1.5, '..', '')")
    before = shop.content()
    with shop.session() as session:
        for statement in ("UPDATE k SET b = b || 'x'", "DELETE FROM k", "UPDATE k SET a = 7 WHERE b = ''"):
            action = done(session, statement)
            assert shop.content() != before
            session.undo(action)
            assert shop.content() == before
