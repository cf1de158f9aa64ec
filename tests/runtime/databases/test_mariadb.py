"""What only MariaDB does, and what it would do unseen."""

from __future__ import annotations

import contextlib
from typing import Any

import pymysql
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.engine import open_engine
from autoclave.runtime.databases.mariadb import rows as rows_module
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotUndone
from autoclave.runtime.states import ActionState
from tests.mariadb import Mariadb
from tests.runtime.databases.shops import Shop, done
from tests.runtime.databases.test_images import check_both_ways

S = ActionState

WRITTEN = {
    "upsert": ["INSERT INTO kind VALUES ('toy', 'u'), ('new', 'v') ON DUPLICATE KEY UPDATE note = VALUES(note)"],
    "upsert by a unique value": ["INSERT INTO item (id, name) VALUES (77, 'b') ON DUPLICATE KEY UPDATE price = 1"],
    "replace, which deletes another row too": ["REPLACE INTO item VALUES (1, 'b', 1, 'toy', NULL)"],
    "replace, which cascades": ["REPLACE INTO kind (name) VALUES ('book')"],
    "insert that leaves out what is there": ["INSERT IGNORE INTO kind (name) VALUES ('toy'), ('new')"],
    "insert set": ["INSERT INTO kind SET name = 'new', note = 'x'"],
    "limit": ["UPDATE item SET price = 0 ORDER BY price DESC LIMIT 2"],
    "random rows": ["DELETE FROM place WHERE RAND() < 0.5 OR row > 0"],
    "a subquery": ["DELETE FROM item WHERE id IN (SELECT item FROM review WHERE text = 'good')"],
    "a name for the table": ["UPDATE item AS i SET i.price = 2 WHERE i.id = 3"],
    "keys that differ in case alone": ["UPDATE kind SET name = 'BOOK' WHERE name = 'book'"],
    "and are given again": ["DELETE FROM kind WHERE name = 'empty'", "INSERT INTO kind (name) VALUES ('EMPTY')"],
    "equal to the server, but not the same": ["UPDATE note SET text = 'X' WHERE text = 'x'"],
    "zero as a number that counts up": [
        "INSERT INTO review (id, text) VALUES (-1, 'x')",
        "DELETE FROM item WHERE id = 1",
    ],
    "labels": ["UPDATE mood SET mood = NULL"],
    "a table that refers to itself, in the middle": ["DELETE FROM part WHERE id = 2", "INSERT INTO part VALUES (9, 4)"],
}


@pytest.mark.parametrize("statements", WRITTEN.values(), ids=WRITTEN)
def test_what_was_done_is_taken_back_exactly_and_done_again(mariadb_shop: Shop, statements: list[str]):
    if statements == WRITTEN["and are given again"]:
        mariadb_shop.others("INSERT INTO kind (name) VALUES ('full')")
    check_both_ways(mariadb_shop, statements)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE item SET price = price + 1 WHERE kind = 'book'",
        "DELETE FROM kind WHERE name = 'book'",
        "INSERT INTO log SELECT name, id FROM item",
        "INSERT INTO kind (name) VALUES ('new')",
    ],
)
def test_of_plain_statements_only_their_own_rows_are_read(
    mariadb_shop: Shop, monkeypatch: pytest.MonkeyPatch, statement: str
):
    """However large the tables are."""
    mariadb_shop.others("ALTER TABLE log ADD PRIMARY KEY (what)")
    monkeypatch.setattr(rows_module, "WHOLE_ROWS", 0)
    check_both_ways(mariadb_shop, [statement])


def test_of_others_tables_are_compared_if_they_are_not_too_large(mariadb_shop: Shop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows_module, "WHOLE_ROWS", 2)
    with mariadb_shop.session() as session, pytest.raises(InputError, match="has more than 2 rows to compare"):
        done(session, "REPLACE INTO kind (name) VALUES ('book')")


def test_rows_that_were_not_foreseen_are_seen_by_their_number(mariadb_shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """Were the condition understood in another way than the server does, nothing would be done."""
    before = mariadb_shop.content()
    whole = rows_module.Rows.where

    def other(self: Any, table: Any, condition: str, *more: Any, **named: Any) -> Any:
        return whole(self, table, condition.replace("price > 3", "price > 100"), *more, **named)

    monkeypatch.setattr(rows_module.Rows, "where", other)
    with mariadb_shop.session() as session:
        for statement in ("UPDATE item SET price = 1 WHERE price > 3", "DELETE FROM item WHERE price > 3"):
            with pytest.raises(InputError, match="changed other rows than its condition finds"):
                done(session, statement)
    assert mariadb_shop.content() == before


def test_a_row_of_others_under_a_key_that_is_the_same_to_the_server_is_named(mariadb_shop: Shop):
    shop = mariadb_shop
    with shop.session() as session:
        action = done(session, "DELETE FROM kind WHERE name = 'empty'")
        shop.others("INSERT INTO kind (name) VALUES ('EMPTY')")
        with pytest.raises(InputError, match="somebody else has changed shop/shop/kind/empty"):
            session.undo(action)
        assert [name for (name,) in shop.others("SELECT name FROM kind WHERE name = 'empty'")] == ["EMPTY"]


SMUGGLED = [
    "DELETE FROM log; DELETE FROM item",
    "DELETE FROM log WHERE id = 1 /*! OR 1 = 1 */",
    "DELETE FROM log # WHERE id = 1",
    "DELETE FROM log WHERE id = 1 --\x01 AND 1 = 2",
    "UPDATE log SET id = SLEEP(1)",
    "UPDATE log SET id = GET_LOCK('x', 1)",
    "UPDATE log SET what = LOAD_FILE('/etc/passwd')",
    "UPDATE log SET id = bump(1)",
    "UPDATE log SET id = `bump`(1)",
    "UPDATE log SET id = shop.bump(1)",
    "UPDATE log SET id = explode(1)",
    "UPDATE log SET id = @a := 5",
    "UPDATE log SET what = @@datadir",
    "INSERT INTO log SELECT NEXT VALUE FOR s, 1",
    "INSERT INTO log SELECT NEXTVAL(s), 1",
    "INSERT INTO log SELECT 1, 2 INTO OUTFILE '/tmp/out'",
    "SELECT * FROM item INTO OUTFILE '/tmp/out'",
    "SELECT * FROM item",
    "INSERT DELAYED INTO log VALUES ('x', 1)",
    "CALL wipe()",
    "EXECUTE IMMEDIATE 'DELETE FROM item'",
    "BEGIN NOT ATOMIC DELETE FROM item; END",
    "SET STATEMENT foreign_key_checks = 0 FOR DELETE FROM item",
    "INSERT INTO mysql.user (user) VALUES ('me')",
    "INSERT INTO elsewhere.secret VALUES (1)",
    "INSERT INTO log SELECT user, 1 FROM mysql.user",
    "INSERT INTO log SELECT table_name, 1 FROM information_schema.tables",
    "DELETE FROM dear",
    "UPDATE item JOIN kind ON kind.name = item.kind SET item.price = 5, kind.note = 'j'",
    "UPDATE item i, review r SET i.price = 9 WHERE r.item = i.id",
    "DELETE r FROM review AS r JOIN item ON r.item = item.id",
    "DELETE item, review FROM item JOIN review ON review.item = item.id",
    "DELETE FROM review USING review JOIN item ON review.item = item.id WHERE item.id = 3",
    "INSERT INTO log SELECT name, id FROM dear",
    "WITH gone AS (SELECT 1) SELECT * FROM gone",
    "ANALYZE FORMAT=JSON DELETE FROM log",
    "\ufeffDELETE FROM log",
    "DELETE FROM log WHERE id = ?",
    "",
    ";",
]
ENDS = [
    "TRUNCATE log",
    "CREATE TABLE made (a INT PRIMARY KEY)",
    "ALTER TABLE log ADD more TEXT",
    "COMMIT",
    "XA END 'x'",
]


def test_what_could_do_more_than_it_says_is_refused(mariadb_shop: Shop):
    shop = mariadb_shop
    shop.others("CREATE FUNCTION bump(n INT) RETURNS INT DETERMINISTIC RETURN n")
    shop.others("CREATE FUNCTION explode(n INT) RETURNS INT DETERMINISTIC RETURN n; CREATE SEQUENCE s")
    shop.others("INSERT INTO log VALUES ('x', 1)")
    before = shop.content()
    with shop.session() as session:
        for mode in ("images", "transaction"):
            for statement in SMUGGLED:
                with pytest.raises(InputError):
                    pytest.fail(f"was done: {done(session, statement, mode=mode)} {statement}")
            for statement in ENDS:
                with pytest.raises(InputError, match="is refused in all modes"):
                    done(session, statement, mode=mode)
    assert shop.content() == before


def test_what_a_trigger_or_another_engine_would_change_is_refused(mariadb_shop: Shop):
    shop = mariadb_shop
    shop.others("CREATE TRIGGER t AFTER DELETE ON review FOR EACH ROW DELETE FROM log")
    shop.others("ALTER TABLE note ENGINE = MyISAM; ALTER TABLE place ENGINE = Aria")
    before = shop.content()
    with shop.session() as session:
        with pytest.raises(InputError, match=r"triggers \(t\) change is not seen"):
            done(session, "DELETE FROM item WHERE id = 1")  # which sets a reference of review to null
        for name in ("note", "place"):
            with pytest.raises(InputError, match="knows no transactions"):
                done(session, f"DELETE FROM {name}")
    assert shop.content() == before


def test_a_history_of_its_own_or_rows_elsewhere_are_refused(mariadb_shop: Shop, maria: Mariadb):
    shop = mariadb_shop
    shop.others("CREATE TABLE past (a INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    maria.execute("CREATE OR REPLACE DATABASE elsewhere")
    try:
        maria.execute(
            "CREATE TABLE elsewhere.child (id INT PRIMARY KEY, item INT, "
            "FOREIGN KEY (item) REFERENCES shop.item (id) ON DELETE CASCADE)"
        )
        with shop.session() as session:
            with pytest.raises(InputError, match="is a system versioned"):
                done(session, "INSERT INTO past VALUES (1)")
            with pytest.raises(InputError, match="in another schema"):
                done(session, "DELETE FROM item WHERE id = 1")
            action = done(session, "INSERT INTO mood VALUES (9, 'glad')")
            maria.execute(
                "CREATE TABLE elsewhere.face (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES shop.mood (id))",
                "INSERT INTO elsewhere.face VALUES (9)",
            )
            with pytest.raises(NotUndone, match="elsewhere/face: is in another schema"):
                session.undo(action)
    finally:
        maria.execute("DROP DATABASE elsewhere")


def test_values_that_do_not_fit_are_not_cut_silently(mariadb_shop: Shop):
    shop, before = mariadb_shop, mariadb_shop.content()
    statements = (
        "INSERT INTO item (id, name) VALUES (9, REPEAT('x', 50))",
        "INSERT IGNORE INTO item (id, name) VALUES (9, REPEAT('x', 50))",
        "INSERT IGNORE INTO item (id, name, kind) VALUES (9, 'x', 'no such kind')",
        "INSERT INTO sum_of (a, b) VALUES (9, 'many')",
        "INSERT INTO mood VALUES (9, 'unknown')",
        "UPDATE sum_of SET b = 1 / 0",
        "UPDATE sum_of SET total = 3",
    )
    with shop.session() as session:
        for statement in statements:
            with pytest.raises(InputError):
                done(session, statement)
    assert shop.content() == before


@pytest.mark.parametrize("given", ["NULL", "0", "DEFAULT", "-7", "77"])
def test_a_gap_in_auto_increment_is_told_whatever_stands_in_its_place(mariadb_shop: Shop, given: str):
    before = mariadb_shop.content()
    with mariadb_shop.session() as session:
        statement = f"INSERT INTO review (id, text) VALUES ({given}, 'x')"
        plan = session.plan({"do": "sql", "database": "shop", "statements": [statement]})
        assert plan.guarantee is Guarantee.EQUIVALENT
        assert any("AUTO_INCREMENT of shop/review" in line and "gap" in line for line in plan.changes)
        action = done(session, statement)
        for verb in (session.undo, session.redo, session.undo):
            verb(action)
    assert mariadb_shop.content() == before


def test_a_table_is_read_whatever_the_name_of_a_with_elsewhere_in_the_statement(mariadb_shop: Shop):
    with mariadb_shop.session() as session:
        for name in ("item", "ITEM"):
            inner = f"EXISTS (WITH {name} AS (SELECT 1 AS x) SELECT x FROM {name})"
            with pytest.raises(InputError, match="a name of its WITH is that of a table"):
                done(session, f"INSERT INTO note SELECT name, 1 FROM item WHERE {inner}")


def test_the_clock_stands_still_in_an_action(mariadb_shop: Shop):
    shop = mariadb_shop
    shop.others(
        "CREATE TABLE seen (id INT PRIMARY KEY, at DATETIME(6), since TIMESTAMP(6) DEFAULT NOW(6) ON UPDATE NOW(6))"
    )
    with shop.session() as session:
        done(session, "INSERT INTO seen (id, at) VALUES (1, NOW(6))", "INSERT INTO seen (id, at) VALUES (2, NOW(6))")
        assert len(shop.others("SELECT DISTINCT at FROM seen")) == 1
    check_both_ways(shop, ["UPDATE seen SET at = NULL WHERE id = 1"])


def test_values_are_given_beside_the_statement(mariadb_shop: Shop):
    shop = mariadb_shop
    texts = ["a'; DROP TABLE item -- ", "?\\", "\x00\u00e4\U0001f600", ""]
    with shop.session() as session:
        for number, text in enumerate(texts):
            done(
                session,
                "INSERT INTO item (id, name, price, photo) VALUES (?, CONCAT('?', ?), ?, ?)",
                parameters=[[100 + number, text, 1.5, None]],
            )
        done(session, "UPDATE sum_of SET b = b -? WHERE a = 1", parameters=[[-5]])
        done(session, "UPDATE note SET number = ? WHERE text = 'y'", parameters=[[0.1 + 0.2]])
        with pytest.raises(InputError, match="1 question marks and 2 values"):
            done(session, "DELETE FROM item WHERE id = ?", parameters=[[1, 2]])
    found = shop.others("SELECT name FROM item WHERE id >= 100 ORDER BY id")
    assert [name for (name,) in found] == [f"?{text}" for text in texts]
    assert shop.others("SELECT b FROM sum_of WHERE a = 1")[0][0] == 7
    assert shop.others("SELECT number FROM note WHERE text = 'y'")[0][0] == 0.1 + 0.2


VALUES = {
    "tinyint": ["-128"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "bigint unsigned": ["18446744073709551615"],
    "int(5) zerofill": ["7"],
    "decimal(65,30)": ["12345678901234567890123456789012345.123456789012345678901234567890", "-0.1"],
    "float": ["0.1", "16777217", "1e-40", "-0e0"],
    "float(7,3)": ["1234.567"],
    "double": ["0.1e0 + 0.2e0", "5e-324", "1.7976931348623157e308", "-0e0"],
    "double(12,2)": ["1234567890.12"],
    "bit(1)": ["b'1'"],
    "bit(64)": ["b'1111111111111111111111111111111111111111111111111111111111111111'", "0"],
    "char(9)": ["'a  '", "''"],
    "varchar(9)": ["'a  '", "_utf8mb4 x'f09f9880'", "'\\\\''\"%?'", "_utf8mb4 x'00'"],
    "varchar(9) charset latin1": ["_latin1 x'e4800081'"],
    "varchar(9) charset utf16": ["_utf8mb4 x'f09f9880'"],
    "varchar(9) charset gbk": ["_gbk x'bf5c27'"],
    "varchar(9) collate utf8mb4_bin": ["'A'"],
    "longtext": ["REPEAT('x', 100000)"],
    "json": ['\'{"a": 1,   "a": [2.00, null]}\''],
    "binary(4)": ["x'ff00'"],
    "varbinary(9)": ["x'00ff5c27'", "''"],
    "longblob": ["x'00ff5c27'", "REPEAT(x'00', 100000)"],
    "enum('', 'a', 'b')": ["''", "'b'"],
    "set('a', 'b', 'c')": ["''", "'a,c'"],
    "date": ["'0000-00-00'", "'2024-00-15'", "'9999-12-31'", "'2023-02-31'"],
    "time(6)": ["'-838:59:59.000001'", "'00:00:00.1'"],
    "datetime(6)": ["'0000-00-00 00:00:00'", "'2024-03-31 02:30:00.123456'"],
    "timestamp(6) null": ["'1970-01-01 00:00:01.5'", "'2024-03-31 02:30:00.123456'", "'0000-00-00 00:00:00'"],
    "year": ["0000", "2155"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "inet6": ["'::ffff:1.2.3.4'", "'fe80::1'"],
    "inet4": ["'1.2.3.4'"],
    "point": ["ST_PointFromText('POINT(1.5 -0)', 4326)"],
    "geometry": ["ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')"],
}


def test_all_types(mariadb_shop: Shop):
    shop = mariadb_shop
    columns = [f"c{number} {kind}" for number, kind in enumerate(VALUES)]
    shop.others(f"CREATE TABLE kinds (id INT PRIMARY KEY AUTO_INCREMENT, {', '.join(columns)}) ROW_FORMAT = DYNAMIC")
    shop.others(f"CREATE TABLE loose AS SELECT {', '.join(f'c{number}' for number in range(len(VALUES)))} FROM kinds")
    for number, values in enumerate(VALUES.values()):
        for value in [*values, "NULL"]:
            shop.others(f"SET sql_mode = 'ALLOW_INVALID_DATES'; INSERT INTO kinds (c{number}) VALUES ({value})")
            shop.others(f"SET sql_mode = 'ALLOW_INVALID_DATES'; INSERT INTO loose (c{number}) VALUES ({value})")
    exact = ", ".join(f"HEX(c{number}), c{number}" for number in range(len(VALUES)))

    def found() -> Any:
        return [sorted(map(repr, shop.others(f"SELECT {exact} FROM {name}"))) for name in ("kinds", "loose")]

    before, whole = found(), shop.content()
    nulls = ", ".join(f"c{number} = NULL" for number in range(len(VALUES)))
    with shop.session() as session:
        for name in ("kinds", "loose"):
            for statement in (f"UPDATE {name} SET {nulls}", f"DELETE FROM {name}", f"DELETE FROM {name} LIMIT 30"):
                action = done(session, statement)
                after = found()
                assert after != before
                session.undo(action)
                assert found() == before, statement
                session.redo(action)
                assert found() == after
                session.undo(action)
                assert found() == before, statement
    assert shop.content() == whole


def test_keys_of_all_kinds(mariadb_shop: Shop):
    shop = mariadb_shop
    shop.others(
        "CREATE TABLE k (a DECIMAL(9,3), b VARCHAR(9) CHARSET latin1, c VARBINARY(9), d DOUBLE, e ENUM('x', 'y'), "
        "f TIMESTAMP(3) DEFAULT '2001-01-01', PRIMARY KEY (a, b, c, d, e, f))"
    )
    shop.others(
        "INSERT INTO k VALUES (1.0, 'a/b%', x'00', 0.1, 'x', '2024-03-31 02:30:00.5'), (1.5, '', x'', -0e0, 'y', "
        "'2001-01-01'), (2, _latin1 x'e4', x'ff', 1e300, 'y', '2001-01-01')"
    )
    for statement in ("UPDATE k SET b = CONCAT(b, 'x')", "DELETE FROM k", "DELETE FROM k WHERE d > 1"):
        check_both_ways(shop, [statement])


def test_rows_are_the_same_whatever_the_time_zone_of_the_server_is_meanwhile(mariadb_shop: Shop, maria: Mariadb):
    shop = mariadb_shop
    shop.others(
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP(6) NULL); INSERT INTO t VALUES (1, '2024-03-31 01:30:00')"
    )
    before = shop.others("SELECT UNIX_TIMESTAMP(at) FROM t")
    try:
        maria.execute("SET GLOBAL time_zone = '+05:45', GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
        with shop.session() as session:
            action = done(session, "UPDATE t SET at = NULL WHERE id = 1 AND 'a\\'' = \"a'\"")
        maria.execute("SET GLOBAL time_zone = '-08:00', GLOBAL sql_mode = ''")
        with shop.session() as session:
            session.undo(action)
    finally:
        maria.execute("SET GLOBAL time_zone = 'SYSTEM', GLOBAL sql_mode = DEFAULT")
    assert shop.others("SELECT UNIX_TIMESTAMP(at) FROM t") == before


def test_a_user_who_may_do_too_much_or_sees_too_little_is_refused(mariadb_shop: Shop, maria: Mariadb):
    settings = mariadb_shop.settings
    maria.execute(
        "CREATE OR REPLACE USER mighty",
        "GRANT ALL ON *.* TO mighty",
        "CREATE OR REPLACE USER blind",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO blind",
    )
    for changed, message in (
        ({"user": "mighty"}, "has rights on all schemas"),
        ({"user": "blind"}, "cannot see triggers"),
        ({"user": "nobody"}, "does not let the user in"),
        ({"role": "agent"}, "only adds to the rights"),
    ):
        with pytest.raises(InputError, match=message):
            open_engine("shop", settings.model_copy(update=changed), "")
    with pytest.raises(HostError, match="does not answer"):
        open_engine("shop", settings.model_copy(update={"host": "/nowhere"}), "")
    with pytest.raises(HostError, match="does not answer"):
        open_engine("shop", settings.model_copy(update={"host": "127.0.0.1", "port": 1}), "")


def test_a_table_that_was_altered_since_is_not_written(mariadb_shop: Shop):
    shop = mariadb_shop
    with shop.session() as session:
        action = done(session, "DELETE FROM place WHERE shelf = 'A'")
        shop.others("ALTER TABLE place MODIFY item VARCHAR(50)")
        with pytest.raises(InputError, match="somebody else has changed shop/shop/place"):
            session.undo(action)
        shop.others("ALTER TABLE place MODIFY item VARCHAR(40)")
        shop.others("CREATE TRIGGER t AFTER INSERT ON place FOR EACH ROW DELETE FROM log")
        with pytest.raises(NotUndone, match="has triggers"):
            session.undo(action)


def test_new_rows_that_meet_a_condition_cannot_slip_in(mariadb_shop: Shop):
    """From the look at rows to the commit, others wait."""
    shop = mariadb_shop
    with contextlib.closing(open_engine("shop", shop.settings, "")) as engine:

        def keep(*_: object) -> None:
            with pytest.raises(pymysql.err.OperationalError, match="Lock wait timeout"):
                shop.others("INSERT INTO item (id, name, price, kind) VALUES (50, 'new', 1, 'toy')")

        engine.perform(Sql(database="shop", statements=("UPDATE item SET price = 7 WHERE kind = 'toy'",)), keep)
    assert shop.others("SELECT COUNT(*) FROM item WHERE price = 7")[0][0] == 2
