"""What others changed since is not overwritten: it is named, and a person says what becomes of it."""

from __future__ import annotations

import contextlib

import apsw
import psycopg
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.interface import Choice, NotRedone, NotUndone
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.databases.shops import Shop, done, in_mariadb_too

S = ActionState


def prices(shop: Shop) -> dict[int, float]:
    return {number: float(price) for number, price in shop.others("SELECT id, price FROM item")}


@in_mariadb_too
def test_a_row_that_others_changed_is_named_and_nothing_is_taken_back(shop: Shop, opened: Session):
    action = done(opened, "UPDATE item SET price = price * 2")
    shop.others("UPDATE item SET price = 77 WHERE id = 2")
    theirs = shop.content()
    with pytest.raises(InputError, match=rf"changed shop/{shop.schema}/item/2 since"):
        opened.undo(action)
    assert shop.content() == theirs
    assert opened.conflicts_of(action) == [f"shop/{shop.schema}/item/2"]
    assert opened.journal.standing(action).state is S.EXECUTED


@in_mariadb_too
@pytest.mark.parametrize("choice", [Choice.FORCE, Choice.SKIP])
def test_it_can_be_overwritten_or_left_and_a_redo_brings_theirs_again(shop: Shop, opened: Session, choice: Choice):
    before = prices(shop)
    action = done(opened, "UPDATE item SET price = price * 2")
    shop.others("UPDATE item SET price = 77 WHERE id = 2")
    theirs = prices(shop)
    opened.undo(action, choices={f"shop/{shop.schema}/item/2": choice})
    assert prices(shop) == {**before, 2: before[2] if choice is Choice.FORCE else 77}
    opened.redo(action)
    assert prices(shop) == theirs


@in_mariadb_too
def test_a_row_has_no_other_place_to_be_saved_in(shop: Shop, opened: Session):
    action = done(opened, "UPDATE item SET price = 1 WHERE id = 2")
    shop.others("UPDATE item SET price = 77 WHERE id = 2")
    with pytest.raises(InputError, match="choose skip or force"):
        opened.undo(action, on_conflict=Choice.SAVE_ASIDE)
    assert opened.journal.standing(action).state is S.EXECUTED


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("DELETE FROM review WHERE id = 1", "INSERT INTO review (id, text) VALUES (1, 'theirs')"),
        ("INSERT INTO kind (name) VALUES ('new')", "DELETE FROM kind WHERE name = 'new'"),
        ("UPDATE place SET item = 'z' WHERE shelf = 'B'", "DELETE FROM place WHERE shelf = 'B'"),
        ("DELETE FROM note WHERE text = 'nothing' OR number IS NULL", "ALTER TABLE note ADD COLUMN more TEXT"),
        ("INSERT INTO note VALUES ('twice', 2)", "DELETE FROM note WHERE text = 'twice'"),
    ],
)
def test_what_stands_against_an_undo_is_seen_before(shop: Shop, opened: Session, ours: str, theirs: str):
    action = done(opened, ours)
    shop.others(theirs)
    there = shop.content()
    with pytest.raises(InputError, match="somebody else has changed shop/"):
        opened.undo(action)
    assert shop.content() == there


@in_mariadb_too
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("INSERT INTO item (id, name) VALUES (9, 'nine')", "INSERT INTO review (item, text) VALUES (9, 'theirs')"),
        ("INSERT INTO part VALUES (9, NULL)", "INSERT INTO part VALUES (10, 9)"),
        ("DELETE FROM item WHERE id = 4", "INSERT INTO item (id, name) VALUES (9, 'canary-7f3a')"),
        ("DELETE FROM review WHERE id = 3", "DELETE FROM item WHERE id = 3"),
    ],
    ids=["a reference set to null", "a cascade", "a unique value", "what it refers to"],
)
def test_rows_of_others_that_depend_on_it_are_not_touched_by_an_undo(
    shop: Shop, opened: Session, ours: str, theirs: str
):
    action = done(opened, ours)
    shop.others(theirs)
    there = shop.content()
    with pytest.raises(NotUndone, match=f"action {action}"):
        opened.undo(action)
    assert shop.content() == there
    assert opened.journal.standing(action).state is S.UNDO_FAILED


@in_mariadb_too
def test_what_changed_since_the_undo_is_not_overwritten_by_a_redo(shop: Shop, opened: Session):
    action = done(opened, "UPDATE item SET price = 1 WHERE id = 2")
    opened.undo(action)
    shop.others("UPDATE item SET price = 77 WHERE id = 2")
    with pytest.raises(InputError, match=rf"shop/{shop.schema}/item/2 changed since it was undone"):
        opened.redo(action)


@in_mariadb_too
def test_one_of_three_is_taken_back_and_the_others_stand(shop: Shop, opened: Session):
    before = prices(shop)
    names = [done(opened, f"UPDATE place SET item = 'n{row}' WHERE shelf = 'A' AND row = {row}") for row in (1, 2)]
    names.append(done(opened, "UPDATE sum_of SET b = 7 WHERE a = 1"))
    assert opened.undo(names[2]) == [names[2]]
    first = done(opened, "UPDATE part SET whole = 4 WHERE id = 1")
    done(opened, "UPDATE part SET whole = 4 WHERE id = 3")
    assert opened.undo(first) == [first]
    assert shop.others("SELECT id, whole FROM part ORDER BY id") == [(1, None), (2, 1), (3, 4), (4, None)]
    assert prices(shop) == before


@in_mariadb_too
def test_what_depends_on_it_is_taken_back_with_it_or_nothing(shop: Shop, opened: Session):
    before = shop.content()
    first = done(opened, "INSERT INTO kind (name) VALUES ('new')")
    second = done(opened, "INSERT INTO item (id, name, kind) VALUES (9, 'nine', 'new')")
    third = done(opened, "INSERT INTO log SELECT name, id FROM item")
    with pytest.raises(InputError, match=f"{third}, {second} came later"):
        opened.undo(first)
    assert opened.undo(first, dependents=True) == [third, second, first]
    assert shop.content() == before


def test_what_a_trigger_looks_at_is_depended_on(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.log "
        "SELECT 'total', sum(b) FROM public.sum_of; RETURN NEW; END $$; "
        "CREATE TRIGGER total AFTER INSERT ON kind FOR EACH ROW EXECUTE FUNCTION total()"
    )
    with postgres_shop.session() as session:
        first = done(session, "UPDATE sum_of SET b = 100 WHERE a = 1")
        second = done(session, "INSERT INTO kind (name) VALUES ('new')")
        assert session.dependents_of(first) == [second]


@in_mariadb_too
def test_no_two_sessions_work_on_one_table(shop: Shop, opened: Session):
    done(opened, "UPDATE item SET price = 1 WHERE id = 1")
    elsewhere = Shop(shop.settings, shop.others, shop.content, shop.state.with_name("other"), shop.schema)
    with elsewhere.session() as other, pytest.raises(InputError, match="another session works on"):
        done(other, "UPDATE item SET price = 2 WHERE id = 2")


def test_what_others_have_locked_is_waited_for_not_too_long(shop: Shop, opened: Session):
    settings = shop.settings
    with contextlib.ExitStack() as held:
        if settings.engine == "sqlite":
            theirs = held.enter_context(contextlib.closing(apsw.Connection(settings.path)))
            theirs.execute("BEGIN IMMEDIATE")
        else:
            place = {"host": settings.host, "dbname": settings.dbname, "user": "owner"}
            connection = held.enter_context(psycopg.connect(**place))
            connection.execute("UPDATE item SET price = 3 WHERE id = 3")
        with pytest.raises(HostError, match="Fix: wait"):
            done(opened, "UPDATE item SET price = 1 WHERE id = 1")
    done(opened, "UPDATE item SET price = 1 WHERE id = 1")


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("numeric", "1.0", "1.00"),
        ("float8", "-0", "0"),
        ("interval", "24:00", "1 day"),
        ("numeric[]", "{1.0}", "{1.00}"),
        ("jsonb", '{"a": 1}', '{"a": 1.0}'),
    ],
)
def test_a_key_that_is_the_same_and_written_otherwise_is_no_other_key(
    postgres_shop: Shop, kind: str, one: str, other: str
):
    postgres_shop.others(
        f"CREATE TABLE keyed (k {kind} PRIMARY KEY, v int); INSERT INTO keyed VALUES ('{one}', 1);"
        f"CREATE TABLE refers (id int PRIMARY KEY, k {kind} REFERENCES keyed ON DELETE CASCADE);"
        f"INSERT INTO refers VALUES (1, '{one}'); GRANT ALL ON keyed, refers TO agent"
    )
    before = postgres_shop.content()
    with postgres_shop.session() as session:
        action = done(session, f"UPDATE keyed SET k = '{other}'")
        session.undo(action)
        assert postgres_shop.content() == before
        session.redo(action)
        postgres_shop.others("UPDATE keyed SET v = 7")
        with pytest.raises(InputError, match="somebody else has changed"):
            session.undo(action)


@in_mariadb_too
def test_a_redo_that_the_database_refuses_leaves_the_action_undone(shop: Shop, opened: Session):
    action = done(opened, "INSERT INTO item VALUES (9, 'nine', 9, 'toy', NULL)")
    opened.undo(action)
    shop.others("INSERT INTO item VALUES (10, 'nine', 9, 'toy', NULL)")
    before = shop.content()
    with pytest.raises(NotRedone):
        opened.redo(action)
    assert opened.journal.standing(action).state is ActionState.UNDONE
    assert shop.content() == before
    shop.others("DELETE FROM item WHERE id = 10")
    opened.redo(action)
    assert opened.journal.standing(action).state is ActionState.REDONE
