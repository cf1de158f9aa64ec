"""Values of all types come back as they were, to the last bit."""

from __future__ import annotations

import pytest

from autoclave.core import InputError
from tests.runtime.databases.shops import Shop, done

VALUES = {
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
    columns = [f"c{number} {kind}" for number, kind in enumerate(VALUES)]
    shop = postgres_shop
    shop.others("CREATE DOMAIN few AS int CHECK (VALUE < 10); CREATE TYPE pair AS (a int, b text)")
    shop.others(f"CREATE TABLE kinds (id serial PRIMARY KEY, {', '.join(columns)}); GRANT ALL ON kinds TO agent")
    for number, values in enumerate(VALUES.values()):
        for value in [*values, "NULL"]:
            shop.others(f"INSERT INTO kinds (c{number}) VALUES ({value})")
    before = shop.content()
    nulls = ", ".join(f"c{number} = NULL" for number in range(len(VALUES)))
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


def test_all_types_of_sqlite(sqlite_shop: Shop):
    shop = sqlite_shop
    values = ["1", "1.0", "'1'", "x'31'", "NULL", "9e999", "-9e999", "-0.0", "9223372036854775807", "''", "x''"]
    values += ["'a' || char(0) || 'b'", "char(128512)", "5e-324", "0.1 + 0.2"]
    shop.others("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    shop.others(f"INSERT INTO t (v) VALUES {', '.join(f'({value})' for value in values)}")
    shop.others("CREATE TABLE keyed (v PRIMARY KEY) WITHOUT ROWID")
    shop.others("INSERT OR IGNORE INTO keyed SELECT v FROM t WHERE v IS NOT NULL")
    exact = "SELECT id, typeof(v), quote(v) FROM t ORDER BY id"
    before, whole = shop.others(exact), shop.content()
    with shop.session() as session:
        for statement in ("UPDATE t SET v = 0", "DELETE FROM t", "DELETE FROM keyed"):
            action = done(session, statement)
            session.undo(action)
            assert shop.others(exact) == before
            assert shop.content() == whole
