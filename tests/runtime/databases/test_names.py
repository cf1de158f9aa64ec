"""A name of a table means that table in grants and footprints, whatever signs are in it, and is put back by it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import InputError
from autoclave.runtime.databases.tables import name_of, names_of, place_of, table_of
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.policy.globs import matcher
from autoclave.runtime.policy.request import MALFORMED
from tests.mariadb import Mariadb
from tests.runtime.databases.shops import Shop, done, in_mariadb_too, permitted

ODD = ["note/x", "note*", "note?", "note%2Fx", "%", "no te", 'a"b', "a`b", "a'b", "Note", "nóte", "nóte", "..", "a\nb"]
_NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


def quoted(shop: Shop, name: str) -> str:
    return f"`{name.replace('`', '``')}`" if shop.settings.engine == "mariadb" else '"' + name.replace('"', '""') + '"'


@given(_NAMES, _NAMES)
def test_a_place_means_one_name_and_matches_itself_alone(schema: str, name: str):
    place = place_of(schema, name)
    assert names_of(place) == (schema, name)
    assert name_of(place) == name
    assert table_of(f"{place}/7") == place
    assert not MALFORMED.search(place)
    assert matcher((place,)).fullmatch(place)
    assert not matcher((place,)).fullmatch(place_of(schema, f"{name}x"))


def test_usual_names_stand_as_they_are():
    assert place_of("public", "Größe in cm, {netto}") == "public/Größe in cm, {netto}"


@in_mariadb_too
@pytest.mark.parametrize("name", ODD)
def test_rows_of_a_table_of_any_name_come_back_and_go_again(shop: Shop, name: str):
    if name == "Note" and shop.settings.engine != "postgresql":
        name = "Node"  # these take Note for note, which is there
    own = quoted(shop, name)
    others_do(shop, f"CREATE TABLE {own} (a int PRIMARY KEY)", f"INSERT INTO {own} VALUES (1), (2)")
    with permitted(shop, name, verbs=("*",)) as session:
        action = done(session, f"UPDATE {own} SET a = 3 WHERE a = 1")
        assert rows(shop, own) == [2, 3]
        session.undo(action)
        assert rows(shop, own) == [1, 2]
        session.redo(action)
        assert rows(shop, own) == [2, 3]


@in_mariadb_too
@pytest.mark.parametrize(("granted", "other"), [("note", "note/x"), ("note", "note*"), ("a*", "ab"), ("a?", "ab")])
def test_a_grant_is_for_the_table_of_that_name_alone(shop: Shop, granted: str, other: str):
    own = quoted(shop, other)
    others_do(shop, f"CREATE TABLE {own} (a int PRIMARY KEY)", f"INSERT INTO {own} VALUES (1)")
    with contextlib.suppress(Exception):
        others_do(shop, f"CREATE TABLE {quoted(shop, granted)} (text text, number int)")
    with permitted(shop, granted, verbs=("*",)) as session:
        for statement in (
            f"UPDATE {own} SET a = 2 WHERE a = 1",
            f"INSERT INTO {quoted(shop, granted)} (text) SELECT a FROM {own}",
        ):
            with pytest.raises(NotPermitted):
                done(session, statement)


def test_of_postgresql_a_definition_and_a_reference_of_odd_names_come_back(postgres_shop: Shop):
    postgres_shop.others(
        'CREATE SCHEMA "s/1"; GRANT ALL ON SCHEMA "s/1" TO agent; CREATE TABLE "s/1"."p/*" (a int PRIMARY KEY);'
        'CREATE TABLE "s/1"."c/*" (b int PRIMARY KEY, a int REFERENCES "s/1"."p/*" ON DELETE CASCADE);'
        'INSERT INTO "s/1"."p/*" VALUES (1); INSERT INTO "s/1"."c/*" VALUES (2, 1);'
        'GRANT ALL ON ALL TABLES IN SCHEMA "s/1" TO agent'
    )
    before = postgres_shop.content()
    with postgres_shop.session(schemas=("public", "s/1")) as session:
        action = done(
            session,
            'DELETE FROM "s/1"."p/*"',
            'CREATE TABLE "s/1"."m/%" (a int)',
            'INSERT INTO "s/1"."m/%" VALUES (1)',
            'TRUNCATE "s/1"."c/*"',
            mode="transaction",
        )
        session.undo(action)
    assert postgres_shop.content() == before
    postgres_shop.others('DROP SCHEMA "s/1" CASCADE')


@pytest.mark.parametrize("name", ["par-ent", "eltern/ä", "日本", "e\u0301"])
def test_of_mariadb_a_reference_from_another_schema_is_seen_whatever_the_name(
    mariadb_shop: Shop, maria: Mariadb, name: str
):
    maria.execute(
        f"CREATE TABLE shop.`{name}` (id int PRIMARY KEY)",
        f"INSERT INTO shop.`{name}` VALUES (1)",
        "CREATE OR REPLACE DATABASE `else-where`",
        f"CREATE TABLE `else-where`.`chi-ld` (p int, FOREIGN KEY (p) REFERENCES shop.`{name}` (id) ON DELETE CASCADE)",
        "INSERT INTO `else-where`.`chi-ld` VALUES (1)",
    )
    try:
        with (
            mariadb_shop.session() as session,
            pytest.raises(InputError, match="table else-where/chi-ld: would change too"),
        ):
            done(session, f"DELETE FROM `{name}` WHERE id = 1")
        assert maria.execute("SELECT p FROM `else-where`.`chi-ld`")
    finally:
        maria.execute("DROP DATABASE `else-where`")


def test_of_sqlite_case_counts_beyond_ascii_and_not_within(sqlite_shop: Shop):
    sqlite_shop.others("CREATE TABLE É (a); CREATE TABLE é (a); INSERT INTO É VALUES ('other')")
    with permitted(sqlite_shop, "é", "log", verbs=("*",)) as session:
        with pytest.raises(NotPermitted, match="'databases/shop/main/É'"):
            done(session, "INSERT INTO log (what) SELECT a FROM É")
        done(session, "INSERT INTO LOG (what) VALUES ('x')")


def others_do(shop: Shop, *statements: str) -> None:
    for each in statements:
        shop.others(each)
    if shop.settings.engine == "postgresql":
        shop.others("GRANT ALL ON ALL TABLES IN SCHEMA public TO agent")


def rows(shop: Shop, own: str) -> list[int]:
    return sorted(int(a) for (a,) in shop.others(f"SELECT a FROM {own}"))
