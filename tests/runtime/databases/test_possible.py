"""What is said to be taken back exactly can be, whatever rows a database holds; what cannot is refused before."""

from __future__ import annotations

import pytest

from autoclave.core import InputError
from tests.runtime.databases.shops import Shop, done

NOT_VALID = "ALTER TABLE note ADD CONSTRAINT c CHECK (text <> 'y') NOT VALID"
EXCHANGED = """
CREATE TABLE coded (id int PRIMARY KEY, code text UNIQUE, more text);
CREATE TABLE using_it (coded int REFERENCES coded ON DELETE {does} ON UPDATE {does});
INSERT INTO coded VALUES (1, 'a'), (2, 'b'), (3, 'c'); INSERT INTO using_it VALUES (1), (2);
GRANT ALL ON coded, using_it TO agent
"""
EXCHANGE = [f"UPDATE coded SET code = '{code}' WHERE id = {number}" for code, number in (("t", 1), ("a", 2), ("b", 1))]


def check_refused(shop: Shop, *statements: str) -> None:
    """Refused when it is planned, with nothing changed; and the mode that is named takes it back."""
    before = shop.content()
    with shop.session() as session:
        with pytest.raises(InputError, match='mode "transaction" takes it back'):
            session.propose({"do": "sql", "database": "shop", "statements": list(statements)})
        assert shop.content() == before
        action = done(session, *statements, mode="transaction")
        session.undo(action)
    assert shop.content() == before


def check_undone(shop: Shop, *statements: str) -> None:
    before = shop.content()
    with shop.session() as session:
        action = done(session, *statements)
        assert shop.content() != before
        session.undo(action)
    assert shop.content() == before


def test_a_row_that_meets_a_constraint_no_more_is_not_taken_away(postgres_shop: Shop):
    postgres_shop.others(NOT_VALID)
    check_refused(postgres_shop, "DELETE FROM note WHERE text = 'y'")
    check_refused(postgres_shop, "UPDATE note SET text = 'x' WHERE text = 'y'")
    check_undone(postgres_shop, "DELETE FROM note WHERE text = 'x'")


def test_nor_is_one_that_refers_to_what_is_not_there(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE TABLE lost (id int PRIMARY KEY, item int); INSERT INTO lost VALUES (1, 77), (2, 1);"
        "ALTER TABLE lost ADD FOREIGN KEY (item) REFERENCES item NOT VALID; GRANT ALL ON lost TO agent"
    )
    check_refused(postgres_shop, "DELETE FROM lost WHERE id = 1")
    check_undone(postgres_shop, "DELETE FROM lost WHERE id = 2")


def test_unique_values_are_not_exchanged_where_rows_must_not_go_for_a_while(postgres_shop: Shop):
    postgres_shop.others(EXCHANGED.format(does="RESTRICT"))
    check_refused(postgres_shop, *EXCHANGE)
    check_undone(postgres_shop, "UPDATE coded SET more = 'x'", "UPDATE coded SET code = code || 'x'")


def test_where_they_may_they_are(postgres_shop: Shop):
    postgres_shop.others(EXCHANGED.format(does="NO ACTION"))
    check_undone(postgres_shop, *EXCHANGE)


def test_rows_that_the_user_may_not_see_are_not_changed(postgres_shop: Shop):
    postgres_shop.others("ALTER TABLE note ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON note USING (true)")
    check_undone(postgres_shop, "DELETE FROM note WHERE text = 'x'")
    postgres_shop.others("ALTER TABLE note FORCE ROW LEVEL SECURITY")
    with (
        postgres_shop.session() as session,
        pytest.raises(InputError, match="its row security is forced upon the user"),
    ):
        done(session, "DELETE FROM note WHERE text = 'x'")


@pytest.mark.parametrize("engine", ["sqlite", "mariadb"])
def test_a_row_that_meets_a_check_no_more_comes_back(request: pytest.FixtureRequest, engine: str):
    shop: Shop = request.getfixturevalue(f"{engine}_shop")
    off = "PRAGMA ignore_check_constraints = 1" if engine == "sqlite" else "SET check_constraint_checks = 0"
    shop.others(f"{off}; CREATE TABLE odd (id int PRIMARY KEY, v int CHECK (v > 0)); INSERT INTO odd VALUES (1, -1)")
    with shop.session() as session:
        for statement in ("DELETE FROM odd WHERE id = 1", "UPDATE odd SET v = 1 WHERE id = 1"):
            action = done(session, statement)
            session.undo(action)
            assert [int(v) for (v,) in shop.others("SELECT v FROM odd")] == [-1]
        with pytest.raises(InputError, match=r"CHECK constraint failed|a condition is not met"):
            done(session, "INSERT INTO odd VALUES (2, -2)")
