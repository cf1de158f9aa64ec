"""Reverse statements are tested before their action, used only where they bring back what was, and nothing is kept."""

from __future__ import annotations

import contextlib
import itertools
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import open_engine
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.reversal import trial
from autoclave.runtime.databases.reversal.drawing import Draw, Recipe
from autoclave.runtime.databases.reversal.ground import Ground, Shape
from autoclave.runtime.databases.reversal.hints import Hints, hints_of
from autoclave.runtime.databases.reversal.postgresql import open_ground as open_postgres_ground
from autoclave.runtime.databases.reversal.sqlite import open_ground as open_sqlite_ground
from autoclave.runtime.databases.reversal.statements import ReverseStatements
from autoclave.runtime.databases.reversal.trial import NotTestable, WrongUndo, try_out
from autoclave.runtime.databases.schema import Column, Reference, Schema, Table
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.throwaway.postgresql import postgres_throwaway
from autoclave.runtime.databases.throwaway.server import end_throwaways
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, NotUndone
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.postgresql import Postgres
from tests.runtime.databases.shops import CANARY, Shop, done, in_mariadb_too, in_mariadb_too_if_long
from tests.runtime.databases.test_crashes import dies_at
from tests.runtime.databases.wrong_undos import EQUIVALENT, POSTGRESQL, RIGHT, SQLITE, Pair, in_mariadb, mutants

S = ActionState
MOST_FALSE_PASSES = 0.01


def sql(*statements: str) -> Sql:
    return Sql(database="shop", statements=statements)


@pytest.fixture(scope="module", autouse=True)
def server_of_trials(server: Postgres) -> Iterator[None]:
    """Starts before a test does: it is not one of those that a test leaves behind."""
    with psycopg.connect(**server.place("shop"), user="owner") as connection:
        version = connection.info.server_version // 10_000
    postgres_throwaway(version)
    postgres_throwaway(1)
    yield
    end_throwaways()


@pytest.fixture(scope="module")
def sqlite_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    path = tmp_path_factory.mktemp("ground") / "shop.db"
    with contextlib.closing(apsw.Connection(f"{path}")) as made:
        made.execute(SQLITE)
    with contextlib.closing(open_sqlite_ground("shop", DatabaseConnection(engine="sqlite", path=f"{path}"), "")) as it:
        yield it


@pytest.fixture(scope="module")
def postgres_ground(server: Postgres, server_of_trials: None) -> Iterator[Ground]:
    place = {**server.place(server.make_database("mutants")), "user": "owner"}
    server.execute("ALTER DATABASE mutants OWNER TO owner")
    with psycopg.connect(**place, autocommit=True) as made:
        made.execute(POSTGRESQL)
    settings = DatabaseConnection(
        engine="postgresql",
        host=place["host"],
        port=int(place.get("port") or 0),
        dbname="mutants",
        user="owner",
        role="agent",
    )
    with contextlib.closing(open_postgres_ground("shop", settings, "")) as ground:
        yield ground


# --- How often a test is wrong ----------------------------------------------------------------------------------------


def passes(ground: Ground, pair: Pair, seed: int = 0) -> bool:
    try:
        try_out(ground, sql(*pair.act), sql(*pair.undo), seed=seed)
    except (WrongUndo, NotTestable):
        return False
    return True


def require_rates(ground: Ground, right: list[Pair], wrong: list[Pair], seeds: range = range(1)) -> None:
    """Look that few wrong undos pass and all right ones do; the rates are printed."""
    passed = [pair.id for seed in seeds for pair in wrong if passes(ground, pair, seed)]
    refused = [pair.id for seed in seeds for pair in right if not passes(ground, pair, seed)]
    num_wrong, num_right = len(wrong) * len(seeds), len(right) * len(seeds)
    print(f"\nfalse passes {len(passed)} of {num_wrong}, false refusals {len(refused)} of {num_right}")  # noqa: T201
    assert len(passed) <= MOST_FALSE_PASSES * num_wrong, passed
    assert refused == []


def wrong_ones(dialect: str) -> list[Pair]:
    return [pair for pair in mutants(dialect) if pair.id not in EQUIVALENT]


def test_wrong_undos_are_found_out_and_right_ones_pass(sqlite_ground: Ground):
    wrong = wrong_ones("sqlite")
    assert len(wrong) >= 600
    assert len(RIGHT) >= 30
    assert {pair.id for pair in mutants("sqlite")} >= EQUIVALENT.keys()
    require_rates(sqlite_ground, RIGHT, wrong)


def test_so_they_are_by_postgresql(postgres_ground: Ground):
    require_rates(postgres_ground, RIGHT[::6], wrong_ones("postgres")[::23])


@pytest.mark.soak
def test_so_they_all_are_by_postgresql(postgres_ground: Ground):
    require_rates(postgres_ground, RIGHT, wrong_ones("postgres"))


@pytest.mark.soak
def test_so_they_are_with_other_rows(sqlite_ground: Ground):
    require_rates(sqlite_ground, RIGHT, wrong_ones("sqlite"), range(1, 11))


@pytest.mark.soak
def test_equivalent_ones_differ_in_no_world(sqlite_ground: Ground):
    for pair in mutants("sqlite"):
        if pair.id in EQUIVALENT:
            try_out(sqlite_ground, sql(*pair.act), sql(*pair.undo), num_worlds=40)


def test_a_test_takes_less_than_50_ms_of_a_processor(sqlite_ground: Ground):
    times: list[float] = []
    for pair in RIGHT:
        started = time.process_time()
        assert passes(sqlite_ground, pair)
        times.append(time.process_time() - started)
    assert sorted(times)[len(times) // 2] < 0.05


# --- What a test needs ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def ground(request: pytest.FixtureRequest) -> Ground:
    return request.getfixturevalue("sqlite_ground" if request.param == "sqlite" else "postgres_ground")


def test_an_action_that_does_nothing_on_any_rows_is_not_testable(ground: Ground):
    for act in ("UPDATE kind SET rank = rank", "DELETE FROM kind WHERE name = 'x' AND name = 'y'"):
        with pytest.raises(NotTestable, match="does nothing to be undone"):
            try_out(ground, sql(act), sql("UPDATE kind SET rank = rank"))


@pytest.mark.parametrize(
    ("engine", "endless"),
    [
        ("postgres_ground", "SELECT count(*) FROM generate_series(1, 10000000000)"),
        ("sqlite_ground", "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"),
    ],
)
def test_statements_that_never_end_are_given_up_once_and_not_in_each_world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str, endless: str
):
    monkeypatch.setattr(trial, "_STATEMENTS_S", 0.5)
    act, undo = (sql(f"UPDATE kind SET rank = rank {sign} 1 WHERE ({endless}) > 0") for sign in "+-")
    with pytest.raises(NotTestable, match=r"take longer than 0\.5 s"):
        try_out(request.getfixturevalue(engine), act, undo)


def test_what_has_no_inverse_without_images_is_refused_on_several_old_values(ground: Ground):
    act = sql("UPDATE item SET price = 0 WHERE kind = 'book'")
    for price in (0, 5, 10):
        with pytest.raises(WrongUndo, match=r"table (main|public)/item \(\d+ rows missing"):
            try_out(ground, act, sql(f"UPDATE item SET price = {price} WHERE kind = 'book'"))


def test_what_a_statement_returns_decides_nothing(ground: Ground):
    with pytest.raises(WrongUndo):
        try_out(ground, sql("DELETE FROM pair"), sql("INSERT INTO pair VALUES (1, 1, 1, 'x') RETURNING 'all is well'"))


def test_an_undo_that_fails_is_wrong(ground: Ground):
    with pytest.raises(WrongUndo, match="fails after the action"):
        try_out(ground, sql("UPDATE kind SET rank = rank + 1"), sql("UPDATE kind SET rank = NULL"))


def test_a_table_that_no_row_fits_is_not_testable(tmp_path: Path):
    path = f"{tmp_path / 'odd.db'}"
    with contextlib.closing(apsw.Connection(path)) as made:
        made.execute("CREATE TABLE odd (a INTEGER PRIMARY KEY, b TEXT NOT NULL CHECK (b = 'k' || (a * 7919 % 10007)))")
    ground = open_sqlite_ground("x", DatabaseConnection(engine="sqlite", path=path), "")
    with contextlib.closing(ground), pytest.raises(NotTestable, match="no rows were found that main/odd takes"):
        try_out(ground, sql("INSERT INTO odd VALUES (7, 'k5398')"), sql("DELETE FROM odd"))


def test_the_copy_has_the_schema_and_no_row(shop: Shop):
    kind = open_sqlite_ground if shop.schema == "main" else open_postgres_ground
    with contextlib.closing(kind("shop", shop.settings, "")) as ground, ground.world() as world:
        content = world.content()
        assert {f"{shop.schema}/item", f"{shop.schema}/review", f"{shop.schema}/part"} <= content.keys()
        assert not any(rows for name, rows in content.items() if "/" in name and "words" not in name)


def test_statements_are_run_by_who_may_reach_nothing(postgres_ground: Ground):
    assert postgres_ground.shape.schema.tables
    server, _ = postgres_throwaway(1)
    with contextlib.closing(server.connect("postgres")) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


# --- Rows -------------------------------------------------------------------------------------------------------------

_UP = (Reference(("up",), "s/tree", ("id",)),)
_TREE = Table("tree", (Column("id", "INTEGER", False), Column("up", "INTEGER")), ("id",), (), _UP)
_LEAF = Table(
    "leaf",
    (Column("a", "INTEGER", False), Column("b", "TEXT", False), Column("tree", "INTEGER", False)),
    ("a", "b"),
    (("b", "tree"),),
    (Reference(("tree",), "s/tree", ("id",)),),
)
SHAPE = Shape(Schema({"s/tree": _TREE, "s/leaf": _LEAF}))


@pytest.mark.parametrize("seed", range(20))
def test_rows_meet_keys_references_and_nulls(seed: int):
    draw, rows = Draw(SHAPE, Hints(), Recipe(seed)), dict[str, list[dict[str, Any]]]()
    for place in ("s/tree", "s/leaf"):
        for _ in range(12):
            if row := draw.row(place):
                draw.accept(place, row)
                rows.setdefault(place, []).append(row)
    trees, leaves = rows["s/tree"], rows["s/leaf"]
    ids = [row["id"] for row in trees]
    assert len(set(ids)) == len(ids) >= 8
    assert {row["up"] for row in trees} <= {None, *ids}
    assert {row["tree"] for row in leaves} <= set(ids)
    assert None not in {value for row in leaves for value in row.values()}
    for key in (("a", "b"), ("b", "tree")):
        assert len({tuple(row[name] for name in key) for row in leaves}) == len(leaves)


def test_the_same_seed_draws_the_same_rows():
    drawn = [[Draw(SHAPE, Hints(), Recipe(seed)).row("s/leaf" if seed < 0 else "s/tree")] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_values_of_statements_are_drawn_and_those_that_an_action_brings_are_not_where_it_would_fail():
    act, undo = sql("INSERT INTO tree VALUES (70, 5)"), sql("DELETE FROM tree WHERE id = 70")
    hints = hints_of(act, undo, SHAPE)
    drawn: dict[int, set[Any]] = {}
    for avoids, seed in itertools.product((0, 1, 2), range(10)):
        draw = Draw(SHAPE, hints, Recipe(seed, avoids=avoids))
        for _ in range(10):
            if row := draw.row("s/tree"):
                draw.accept("s/tree", row)
                drawn.setdefault(avoids, set()).add(row["id"])
    assert {5, 70} <= drawn[0]
    assert 5 in drawn[1] & drawn[2]
    assert 70 not in drawn[1] | drawn[2]


# --- Actions ----------------------------------------------------------------------------------------------------------


def by_statements(*statements: str, undo: tuple[str, ...], **more: Any) -> dict[str, Any]:
    return {"do": "sql", "database": "shop", "statements": statements, "undo": undo, **more}


GOOD: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("INSERT INTO kind (name) VALUES ('new')",), ("DELETE FROM kind WHERE name = 'new'",)),
    (
        ("INSERT INTO item (id, name, kind) VALUES (70, 'n', 'toy')", "INSERT INTO review (id, item) VALUES (90, 70)"),
        ("DELETE FROM review WHERE id = 90", "DELETE FROM item WHERE id = 70"),
    ),
    (("UPDATE place SET row = row + 100",), ("UPDATE place SET row = row - 100",)),
    (("INSERT INTO part VALUES (70, 3)",), ("DELETE FROM part WHERE id = 70",)),
    (("UPDATE sum_of SET b = b + 1",), ("UPDATE sum_of SET b = b - 1",)),
    (("UPDATE review SET text = text || '!'",), ("UPDATE review SET text = substr(text, 1, length(text) - 1)",)),
]


def content_of(shop: Shop) -> dict[str, Any]:
    """All but where AUTOINCREMENT stands, which statements cannot put back."""
    return {name: rows for name, rows in shop.content().items() if name != "sqlite_sequence"}


@in_mariadb_too
@pytest.mark.parametrize(("act", "undo"), GOOD, ids=range(len(GOOD)))
def test_an_undo_that_takes_back_is_used_and_no_rows_are_kept(shop: Shop, opened: Session, act: Any, undo: Any):
    if shop.settings.engine == "mariadb" and (pair := in_mariadb(Pair("", act, undo))):
        act, undo = pair.act, pair.undo
    before = content_of(shop)
    proposal = opened.propose(by_statements(*act, undo=undo))
    assert proposal.plan.guarantee is Guarantee.EQUIVALENT
    assert any("no proof for other rows" in line for line in proposal.plan.changes)
    assert content_of(shop) == before
    opened.run(proposal.action, proposal.plan.digest)
    after = content_of(shop)
    assert after != before
    for _ in range(2):
        kept = b"".join(path.read_bytes() for path in (shop.state / "rows" / proposal.action).glob("*.json"))
        assert b"sha256:" in kept
        assert CANARY.encode() not in kept
        opened.undo(proposal.action)
        assert content_of(shop) == before
        opened.redo(proposal.action)
        assert content_of(shop) == after
    assert opened.audit() == []


BAD: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    (
        ("UPDATE item SET price = 1 WHERE id = 3",),
        ("UPDATE item SET price = 3 WHERE id = 3",),
        "would not be as before",
    ),
    (("DELETE FROM kind WHERE name = 'book'",), ("INSERT INTO kind (name) VALUES ('book')",), "would not be as before"),
    (("INSERT INTO kind (name) VALUES ('k')",), ("DELETE FROM kind WHERE note IS NULL OR name = 'k'",), "is wrong"),
    (("INSERT INTO kind (name) VALUES ('k')",), ("SELECT 1",), "undo: statement 1"),
    (("INSERT INTO kind (name) VALUES ('k')",), ("DROP TABLE log",), "undo"),
    (("CREATE TABLE made (a INTEGER)",), ("DELETE FROM log",), "reverse statements are for rows|CREATE is refused"),
]


@in_mariadb_too
@pytest.mark.parametrize(("act", "undo", "rule"), BAD, ids=range(len(BAD)))
def test_an_undo_that_does_not_take_back_is_refused_and_nothing_is_done(
    shop: Shop, opened: Session, act: Any, undo: Any, rule: str
):
    before = shop.content()
    with pytest.raises(InputError, match=rule) as caught:
        opened.propose(by_statements(*act, undo=undo))
    assert CANARY not in f"{caught.value}"
    assert shop.content() == before
    assert opened.journal.standings() == []


PASSING = {
    "sqlite": ["id = last_insert_rowid()", "text = 'new' AND date('now') = date('now')"],
    "postgresql": ["id = currval('review_id_seq')", "id = lastval()", "text = 'new' AND current_date > 'yesterday'"],
    "mariadb": ["id = last_insert_id()", "text = 'new' AND curdate() = curdate()"],
}
"""Conditions of which a test says that they are right, since it runs on the connection and the day of the action."""


@in_mariadb_too
def test_an_undo_that_would_do_something_else_on_another_day_or_connection_is_refused(shop: Shop, opened: Session):
    for condition in PASSING[shop.settings.engine]:
        undo = (f"DELETE FROM review WHERE {condition}",)
        with pytest.raises(InputError, match="undo: asks a clock, draws by lot, or asks what its connection did last"):
            opened.propose(by_statements("INSERT INTO review (item, text) VALUES (NULL, 'new')", undo=undo))


def test_so_is_one_of_postgresql_with_a_text_that_means_a_day(postgres_shop: Shop):
    with postgres_shop.session() as session, pytest.raises(InputError, match="undo: asks a clock"):
        session.propose(
            by_statements(
                "INSERT INTO day VALUES (current_date, 'x')", undo=("DELETE FROM day WHERE on_day = 'Today'",)
            )
        )


def test_the_mode_and_the_undo_go_together(opened: Session):
    with pytest.raises(InputError, match="with an undo"):
        opened.propose(by_statements("DELETE FROM log", undo=("DELETE FROM log",), mode="images"))
    with pytest.raises(InputError, match="with an undo"):
        opened.propose(by_statements("DELETE FROM log", undo=(), mode="reversal"))


UP, DOWN = "UPDATE place SET row = row + 100 WHERE shelf = 'A'", "UPDATE place SET row = row - 100 WHERE shelf = 'A'"


@in_mariadb_too
def test_rows_that_others_changed_since_are_named_and_left_alone(shop: Shop, opened: Session):
    action = done(opened, UP, undo=[DOWN])
    shop.others("UPDATE place SET item = 'theirs' WHERE row = 101")
    theirs = shop.content()
    with pytest.raises(InputError, match="somebody else has changed"):
        opened.undo(action)
    with pytest.raises(InputError, match="the undo is statements: force it"):
        opened.undo(action, on_conflict=Choice.SKIP)
    with pytest.raises(NotUndone, match="would not be as before"):
        opened.undo(action, on_conflict=Choice.FORCE)
    assert shop.content() == theirs
    assert opened.journal.standing(action).state is S.UNDO_FAILED
    shop.others("UPDATE place SET item = 'a' WHERE row = 101")
    opened.undo(action)
    assert opened.journal.standing(action).state is S.UNDONE


@in_mariadb_too
def test_an_undo_changes_no_rows_of_others(shop: Shop, opened: Session):
    action = done(opened, UP, undo=[DOWN])
    shop.others("INSERT INTO place (shelf, row) VALUES ('A', 500)")
    theirs = shop.content()
    with pytest.raises(NotUndone, match="which the action did not touch"):
        opened.undo(action)
    assert shop.content() == theirs


@in_mariadb_too
def test_an_undo_that_fails_leaves_the_action_as_it_was_done(shop: Shop, opened: Session):
    action = done(opened, "INSERT INTO part VALUES (70, 3)", undo=["DELETE FROM part WHERE id = 70"])
    shop.others("INSERT INTO part VALUES (71, 70)")
    theirs = shop.content()
    with pytest.raises(InputError):
        opened.undo(action)
    assert shop.content() == theirs


def test_killed_at_every_event_of_the_action_it_is_done_or_not(sqlite_shop: Shop):
    before = sqlite_shop.content()
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, sqlite_shop, lambda session: done(session, UP, undo=[DOWN]))
        with sqlite_shop.session() as session:
            if not session.journal.standings():
                continue
            last = session.journal.standings()[-1]
            assert (sqlite_shop.content() == before) == (last.state is not S.EXECUTED), deadly
            if last.state is S.EXECUTED:
                session.undo(last.action)
            assert sqlite_shop.content() == before
            assert session.audit() == []
        if not was_killed:
            assert deadly > 8
            break


@in_mariadb_too_if_long
@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_killed_at_every_event_of_undo_and_redo_they_come_to_their_end(shop: Shop, verb: str):
    before = shop.content()
    with shop.session() as session:
        action = done(session, UP, undo=[DOWN])
        after = shop.content()
        if verb == "redo":
            session.undo(action)
    other = "redo" if verb == "undo" else "undo"
    committed_unrecorded = 0
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, shop, lambda session: getattr(session, verb)(action))
        left = shop.content()
        with shop.session() as session:
            state = session.journal.standing(action).state
            assert state in (S.EXECUTED, S.REDONE, S.UNDONE), deadly
            assert shop.content() == (before if state is S.UNDONE else after), deadly
            is_ended = (state is S.UNDONE) == (verb == "undo")
            committed_unrecorded += was_killed and is_ended and left == shop.content()
            if is_ended:
                getattr(session, other)(action)
            assert session.audit() == []
        if not was_killed:
            assert committed_unrecorded > 1  # it died after the commit, too
            break


@in_mariadb_too
def test_what_others_change_between_the_look_and_the_undo_is_not_lost(shop: Shop):
    """Taking back an INSERT would delete what somebody else has put into the row meanwhile."""
    engine = open_engine("shop", shop.settings, "")
    with contextlib.closing(engine):
        reverse = ReverseStatements("shop", shop.settings, "", engine)
        act = Sql(
            database="shop",
            statements=("INSERT INTO kind (name) VALUES ('new')",),
            undo=("DELETE FROM kind WHERE name = 'new'",),
        )
        kept: list[Effect] = []
        engine.perform(act, lambda effect, _: kept.append(effect))
        shop.others("UPDATE kind SET note = 'theirs' WHERE name = 'new'")
        theirs = shop.content()
        with pytest.raises(NotUndone, match=r"somebody else has changed shop/.*/kind/new"):
            reverse.use(act, kept[0], lambda *_: None, is_forced=False)
        assert shop.content() == theirs
        reverse.use(act, kept[0], lambda *_: None, is_forced=True)
        assert shop.others("SELECT * FROM kind WHERE name = 'new'") == []


@pytest.mark.alone
def test_the_server_of_a_process_that_dies_ends_and_leaves_nothing(tmp_path: Path):
    program = (
        "import os, signal; from autoclave.runtime.databases.throwaway.postgresql import postgres_throwaway\n"
        "print(postgres_throwaway(1)[0].folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    folder = Path(told.stdout.strip())
    assert folder.name.startswith("autoclave-trial-")
    until = time.monotonic() + 30
    while folder.exists():
        assert time.monotonic() < until, "its folder is still there"
        select.select([], [], [], 0.02)
