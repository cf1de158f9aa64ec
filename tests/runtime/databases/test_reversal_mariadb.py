"""Reverse statements of MariaDB are tested on a server of their own before their action."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.reversal.ground import Ground
from autoclave.runtime.databases.reversal.mariadb import open_ground
from autoclave.runtime.databases.reversal.trial import WrongUndo, try_out
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.throwaway.mariadb import mariadb_throwaway
from autoclave.runtime.databases.throwaway.server import end_throwaways
from tests.mariadb import Mariadb
from tests.runtime.databases.test_reversal import require_rates, sql
from tests.runtime.databases.wrong_undos import EQUIVALENT, MARIADB, RIGHT, Pair, in_mariadb, mutants


@pytest.fixture(scope="module", autouse=True)
def server_of_trials(mariadb: Mariadb) -> Iterator[None]:
    """Starts before a test does: it is not one of those that a test leaves behind."""
    mariadb_throwaway("10.5", 0)
    yield
    end_throwaways()


@pytest.fixture(scope="module")
def ground(mariadb: Mariadb, server_of_trials: None) -> Iterator[Ground]:
    mariadb.execute("CREATE DATABASE IF NOT EXISTS mutants", "CREATE USER IF NOT EXISTS mutant@localhost")
    mariadb.execute(
        "GRANT SELECT, TRIGGER ON mutants.* TO mutant@localhost", "GRANT PROCESS ON *.* TO mutant@localhost"
    )
    mariadb.execute(*MARIADB, database="mutants")
    settings = DatabaseConnection(engine="mariadb", host=f"{mariadb.folder}", dbname="mutants", user="mutant")
    with contextlib.closing(open_ground("shop", settings, "")) as ground:
        yield ground
    mariadb.execute("DROP DATABASE mutants")


def in_its_words(pairs: list[Pair]) -> list[Pair]:
    return [pair for each in pairs if (pair := in_mariadb(each)) is not None]


WRONG = [pair for pair in mutants("sqlite") if pair.id not in EQUIVALENT]
NEEDS_TRIGGERS = {"a review that is counted", "a place that is noted"}


def test_wrong_undos_are_found_out_and_right_ones_pass(ground: Ground):
    right = [pair for pair in RIGHT if pair.name not in NEEDS_TRIGGERS]
    require_rates(ground, in_its_words(right[::5]), in_its_words(WRONG[::29]))


@pytest.mark.soak
def test_so_they_all_are(ground: Ground):
    right = [pair for pair in RIGHT if pair.name not in NEEDS_TRIGGERS]
    require_rates(ground, in_its_words(right), in_its_words(WRONG))


def test_what_is_set_one_after_the_other_is_no_swap(ground: Ground):
    swap = sql("UPDATE pair SET a = b, b = a WHERE a IS NOT NULL")
    with pytest.raises(WrongUndo):
        try_out(ground, swap, swap)


def test_rows_are_found_that_texts_take_which_are_the_same_in_any_case(mariadb: Mariadb):
    """`New`, `NEW` and `new ` are one key there; and labels, numbers that count up and bytes are given."""
    mariadb.execute("CREATE DATABASE IF NOT EXISTS `odd_%s`", "CREATE USER IF NOT EXISTS mutant@localhost")
    mariadb.execute(
        r"GRANT SELECT, TRIGGER ON `odd\_\%s`.* TO mutant@localhost", "GRANT PROCESS ON *.* TO mutant@localhost"
    )
    mariadb.execute(
        "CREATE SEQUENCE one",
        "CREATE TABLE kind (name varchar(20) PRIMARY KEY, mood enum('glad', 'it''s sad') NOT NULL)",
        "CREATE TABLE item (id tinyint PRIMARY KEY AUTO_INCREMENT, kind varchar(20), hash binary(4) NOT NULL, "
        "number int DEFAULT nextval(one), is_open tinyint(1) NOT NULL, FOREIGN KEY (kind) REFERENCES kind (name))",
        "CREATE TABLE other (a int) ENGINE = MEMORY",
        "CREATE VIEW seen AS SELECT name FROM kind",
        database="odd_%s",
    )
    settings = DatabaseConnection(engine="mariadb", host=f"{mariadb.folder}", dbname="odd_%s", user="mutant")
    with contextlib.closing(open_ground("shop", settings, "")) as ground:
        assert ground.shape.schema.tables.keys() == {"odd_%25s/item", "odd_%25s/kind", "odd_%25s/other"}
        trial = try_out(
            ground,
            sql("INSERT INTO kind VALUES ('new', 'glad')", "UPDATE item SET is_open = NOT is_open"),
            sql("UPDATE item SET is_open = NOT is_open", "DELETE FROM kind WHERE name = 'new'"),
        )
        assert trial.num_worlds == 6
        insert = sql("INSERT INTO item (kind, hash, is_open) VALUES (NULL, 'abcd', 1)")
        with pytest.raises(WrongUndo):
            try_out(ground, insert, sql("DELETE FROM item ORDER BY id LIMIT 1"))
    mariadb.execute("DROP DATABASE `odd_%s`")
    assert mariadb.execute("SHOW DATABASES LIKE 'odd%'") == []


def test_two_grounds_of_one_schema_are_not_made_at_once(ground: Ground, mariadb: Mariadb):
    settings = DatabaseConnection(engine="mariadb", host=f"{mariadb.folder}", dbname="mutants", user="mutant")
    with pytest.raises(InputError, match="schema mutants is in use where it would be made"):
        open_ground("shop", settings, "")
    kept = sql("UPDATE note SET number = number + 1"), sql("UPDATE note SET number = number - 1")
    assert try_out(ground, *kept).num_worlds == 6  # the first is as it was
