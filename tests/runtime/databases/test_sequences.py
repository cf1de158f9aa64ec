"""Random sequences of actions, undos and redos under kill -9 and foreign writes: at the end all is as it was before.

A foreign write is reverted by the one who made it when the actions after it are undone. In between, undoing an action
leaves what was there before it, or is refused and leaves everything as it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.connections import Connections, save_connections
from autoclave.runtime.databases.mariadb.connection import Server as MariadbServer
from autoclave.runtime.databases.modes import KeptRows
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.redis.engine import RedisDatabase
from autoclave.runtime.databases.sqlite.engine import SqliteDatabase
from autoclave.runtime.files import manager, steps
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import STANDING, ActionState
from tests.runtime import trees
from tests.runtime.databases.shops import Shop, make_sqlite_shop
from tests.runtime.databases.test_images import drawn as drawn_statements
from tests.runtime.databases.test_images import without_rowids
from tests.runtime.deaths import dies_within

S = ActionState
Revert = Callable[[], object]
_RESOLVED = {"act": (S.FAILED, S.EXECUTED), "undo": (S.UNDO_FAILED, S.UNDONE), "redo": (S.UNDONE, S.REDONE)}
"""States of what is in doubt, by what was begun, if it was not done, and if it was."""
VERBS = tuple(_RESOLVED)
_MEMORY = Path("/dev/shm")
_DURABLE = [
    *((Journal, "_add"), (Journal, "seal"), (KeptRows, "_write"), (RedisDatabase, "_execute")),
    *((engine, "commit") for engine in (Server, MariadbServer, SqliteDatabase)),
    *((steps, "_set_facts"), (manager, "make"), (manager, "remove_tree")),
]
"""What writes, and may be killed before and after."""


@dataclass
class World:
    """What sessions act on. `draw`: an operation; `foreign`: a write by somebody else, None if there is nothing to."""

    session: Callable[[], Session]
    content: Callable[[], Any]
    draw: Callable[[random.Random, int], dict[str, Any]]
    foreign: Callable[[random.Random, int], Revert | None]
    alike: Callable[[Any], Any] = lambda content: content
    """What is equal after a redo, too: all but inodes and times."""


def dies_at(deadly: int, world: World, work: Callable[[Session], object]) -> bool:
    """Whether work in a process that is killed at an event came so far: see `dies_within`."""

    def acting(dying: Callable[..., Any]) -> None:
        for owner, name in _DURABLE:
            setattr(owner, name, dying(getattr(owner, name)))
        libc = steps._libc
        steps._libc = SimpleNamespace(renameat2=dying(libc.renameat2), syncfs=libc.syncfs)
        with world.session() as session, contextlib.suppress(InputError):
            work(session)

    return dies_within(deadly, acting)


class Sequence:
    """One random sequence. `kills`: how many at which event of which verb."""

    def __init__(self, world: World, draw: random.Random, kills: Counter[tuple[str, int]]) -> None:
        self._world, self._draw, self._kills = world, draw, kills
        self._session = world.session()
        self._made: list[tuple[str | Revert, Any]] = []
        """Actions and foreign writes, with what was there before each."""
        self._is_in_order = True
        """False once an action was undone and redone below others, so that it came after them."""
        self.counts = Counter[str]()

    def run(self) -> None:
        before = self._world.content()
        for number in range(self._draw.randint(2, 6)):
            self._choose()(number)
        while self._made:
            self._unwind()
        assert self._world.content() == before
        assert self._session.audit() == []
        assert self._session.journal.standings((S.IN_DOUBT, S.UNDO_IN_DOUBT)) == []
        self._session.close()

    def _choose(self) -> Callable[[int], None]:
        if not self._made or callable(self._made[-1][0]) or not self._is_in_order:
            return self._draw.choices([self._act, self._foreign, self._undo_below], [6, 2, 1])[0]
        return self._draw.choices([self._act, self._foreign, self._undo_below, self._undo_and_redo], [6, 2, 2, 3])[0]

    def _now(self) -> Any:
        return self._world.alike(self._world.content())

    def _state(self, action: str) -> ActionState:
        return self._session.journal.standing(action).state

    def _may_be_killed(self, verb: str, work: Callable[[Session], object]) -> None:
        """Do something, in one case of two in a process that is killed at some event of it."""
        if self._draw.random() < 1 / 2:
            work(self._session)
            return
        self._session.close()
        found, deadly = self._now(), self._draw.randint(1, 20 if verb == "act" else 10)
        if dies_at(deadly, self._world, work):
            self._kills[verb, deadly] += 1
        self._session = self._world.session()
        for each in self._session.journal.standings((S.IN_DOUBT, S.UNDO_IN_DOUBT)):
            is_done = self._now() != found  # a person looks: MariaDB cannot tell of rows without a key
            self._session.resolve(each.action, _RESOLVED[verb][is_done], "looked")
            self.counts["in doubt"] += 1

    def _act(self, number: int) -> None:
        before, operation = self._now(), self._world.draw(self._draw, number)
        known = {each.action for each in self._session.journal.standings()}
        with contextlib.suppress(InputError):  # not all can be done
            self._may_be_killed("act", lambda session: trees.done(session, **operation))
        done = [each for each in self._session.journal.standings() if each.action not in known]
        assert {each.state for each in done} <= {S.PROPOSED, S.APPROVED, S.FAILED, S.EXECUTED}
        if any(each.state is S.EXECUTED for each in done):
            self._made.append((done[0].action, before))
            self.counts["acts"] += 1
        else:
            assert self._now() == before

    def _foreign(self, number: int) -> None:
        before = self._now()
        if (revert := self._world.foreign(self._draw, number)) is not None:
            self._made.append((revert, before))
            self.counts["foreign writes"] += 1

    def _undo_and_redo(self, _: int) -> None:
        """The last one."""
        (action, before), after = self._made[-1], self._now()
        assert isinstance(action, str)
        for verb, ended, wanted, other in (("undo", {S.UNDONE}, before, after), ("redo", STANDING, after, before)):
            self._may_be_killed(verb, lambda session, verb=verb: getattr(session, verb)(action))
            is_over = self._state(action) in ended
            assert self._now() == (wanted if is_over else other), verb
            if not is_over:
                getattr(self._session, verb)(action)
            self.counts[verb] += 1
        assert self._now() == after

    def _undo_below(self, _: int) -> None:
        """Any one: it goes and comes back, or its undo is refused and nothing changes."""
        actions = [made for made, _ in self._made if isinstance(made, str)]
        if not actions:
            return
        before = self._now()
        try:
            undone = self._session.undo(self._draw.choice(actions), dependents=self._draw.random() < 0.5)
        except InputError:
            self.counts["refused"] += 1
            assert self._now() == before
            return
        try:
            for action in undone[::-1]:
                self._session.redo(action)
            assert self._now() == before
        except InputError:  # a row got another rowid, since SQLite gave its own to another one meanwhile
            self.counts["not redone"] += 1
        self._is_in_order = False
        self.counts["undo"] += len(undone)

    def _unwind(self) -> None:
        made, before = self._made.pop()
        if not isinstance(made, str):
            made()
        elif self._state(made) in STANDING:
            if self._is_in_order:
                self._may_be_killed("undo", lambda session: session.undo(made))
            if self._state(made) in STANDING:
                self._session.undo(made, dependents=True)
            self.counts["undo"] += 1
        assert not self._is_in_order or self._now() == before


# --- Worlds ----------------------------------------------------------------------------------------------------------


def rows_of(shop: Shop) -> dict[str, Any]:
    """All tables; where a counter stands, and at which rowid a row without a key is, is not promised."""
    engine = shop.settings.engine
    return {
        name: without_rowids(name, rows, engine) if engine == "sqlite" else rows
        for name, rows in shop.content().items()
        if name != "sqlite_sequence"
    }


def written_in(shop: Shop, draw: random.Random, number: int) -> Revert | None:
    """A statement of somebody else's that changes some row, if it is there."""
    one, kind, name = draw.randint(1, 4), draw.choice(["book", "toy", "empty"]), f"theirs{number}"
    table, key, column = draw.choice([
        ("kind", f"name = '{kind}'", "note"),
        ("review", f"id = {one}", "text"),
        ("place", f"shelf = 'A' AND row = {one}", "item"),
        ("item", f"id = {500 + number}", ""),
        ("review", f"id = {one}", ""),
    ])  # fmt: skip
    found = [tuple(row) for row in shop.others(f"SELECT * FROM {table} WHERE {key}")]
    if table == "item":
        shop.others(f"INSERT INTO item VALUES ({500 + number}, '{name}', 1, NULL, NULL)")
        return lambda: shop.others(f"DELETE FROM item WHERE {key}")
    if not found:
        return None
    if not column:
        shop.others(f"DELETE FROM {table} WHERE {key}")
        return lambda: shop.others(f"INSERT INTO {table} VALUES ({', '.join(map(literal, found[0]))})")
    ((old,),) = shop.others(f"SELECT {column} FROM {table} WHERE {key}")
    shop.others(f"UPDATE {table} SET {column} = '{name}' WHERE {key}")
    return lambda: shop.others(f"UPDATE {table} SET {column} = {literal(old)} WHERE {key}")


def literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'"


def of_shop(shop: Shop) -> World:
    def drawn(draw: random.Random, number: int) -> dict[str, Any]:
        return {"do": "sql", "database": "shop", "statements": drawn_statements(draw, number)}

    return World(shop.session, lambda: rows_of(shop), drawn, lambda draw, number: written_in(shop, draw, number))


def of_files_and_sqlite(folder: Path) -> World:
    """A tree and an SQLite file, which one session is on."""
    root, shop, state = trees.build_tree(folder / "tree"), make_sqlite_shop(folder / "shop"), folder / "state"
    state.mkdir(mode=0o700)
    save_connections(state, Connections(databases={"shop": shop.settings}))

    def session() -> Session:
        opened = open_session(root, state)
        if not opened.permissions.grants():
            every = Grant(resources=("files/**", "databases/**"), verbs=("*",), minimum_guarantee=Guarantee.NONE)
            opened.permissions.grant(every)
        return opened

    rows = of_shop(shop)

    def drawn(draw: random.Random, number: int) -> dict[str, Any]:
        return rows.draw(draw, number) if draw.random() < 0.5 else trees.drawn(draw, root, number)

    def foreign(draw: random.Random, number: int) -> Revert | None:
        return rows.foreign(draw, number) if draw.random() < 0.5 else written_to_a_file(draw, root, number)

    return World(
        session,
        lambda: (trees.manifest(root), rows.content()),
        drawn,
        foreign,
        lambda content: (trees.facts_without_times(content[0]), content[1]),
    )


def written_to_a_file(draw: random.Random, root: Path, number: int) -> Revert | None:
    """Somebody else overwrites a file."""
    there = sorted(path for path in root.rglob("*.txt") if path.is_file() and not path.is_symlink())
    if not there:
        return None
    path = draw.choice(there)
    about, content = path.stat(), path.read_bytes()
    path.write_text(f"theirs {number}")

    def revert() -> None:
        path.write_bytes(content)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))

    return revert


def of_redis(server: Any, state: Path) -> World:
    from tests.runtime.databases.test_redis import held, opened, operation

    def drawn(draw: random.Random, number: int) -> dict[str, Any]:
        some = [
            f"SET greeting bye{number}", f"SET fresh{number} 1", "DEL count", f"INCRBY count {number + 1}",
            f"HSET user:1 age {number} town paris", f"RPUSH queue c{number}", "LPOP queue", f"SADD tags z{number}",
            "SREM tags x", "ZINCRBY scores 2 ada", "ZREM scores bob", "RENAME user:1 user:2", "DEL stream",
            f"APPEND greeting {number}", f"PEXPIREAT other {33_000_000_000_000 + number}", "SMOVE tags more x",
        ]  # fmt: skip
        return operation(*draw.sample(some, draw.choice([1, 1, 2])))

    def foreign(draw: random.Random, number: int) -> Revert | None:
        key = draw.choice(["greeting", "count", "queue", "other", "theirs", "user:1"])
        words, old = [key.encode()], server.others("DUMP", key)
        time = server.others("PEXPIRETIME", key)
        server.others("SET", key, f"theirs{number}")
        if old is None:
            return lambda: server.others("DEL", *words)
        return lambda: server.others("RESTORE", *words, max(time, 0), old, "REPLACE", "ABSTTL")

    return World(lambda: opened(server, state), lambda: held(server), drawn, foreign)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory if there is one: thousands of sequences wait for no disk."""
    tmp_path = tmp_path_factory.mktemp("sequences")
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def redis_server(place: Path) -> Iterator[Any]:
    pytest.importorskip("redis")
    from tests.runtime.databases.test_redis import running

    (folder := place / "redis").mkdir()
    with running(folder) as server:
        yield server


@pytest.fixture
def make_world(request: pytest.FixtureRequest) -> Callable[[str, Path], World]:
    """make_world(engine, folder): as at first. A server keeps its rows: each sequence leaves them as it found them."""
    servers: dict[str, Any] = {}

    def make(engine: str, folder: Path) -> World:
        if engine == "sqlite":
            return of_files_and_sqlite(folder)
        if engine == "redis":
            return of_redis(request.getfixturevalue("redis_server"), folder / "state")
        if engine not in servers:
            servers[engine] = request.getfixturevalue("make_shop")(engine)
        return of_shop(replace(servers[engine], state=folder / "state"))

    return make


def some_and_many(engine: str, some: int, many: int) -> list[Any]:
    thousands = [range(first, first + 1000) for first in range(some, many + some, 1000)]
    marked = [pytest.param(engine, seeds, marks=pytest.mark.soak) for seeds in thousands]
    return [pytest.param(engine, range(some)), *marked]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("engine", "seeds"),
    [
        *some_and_many("sqlite", 12, 10_000),
        *some_and_many("postgresql", 3, 2000),
        *some_and_many("mariadb", 3, 2000),
        *some_and_many("redis", 6, 2000),
    ],
    ids=str,
)
def test_under_kills_and_foreign_writes_all_is_as_it_was(
    make_world: Callable[[str, Path], World], place: Path, engine: str, seeds: range
):
    kills, counts = Counter[tuple[str, int]](), Counter[str]()
    for seed in seeds:
        folder = place / f"{seed}"
        folder.mkdir()
        sequence = Sequence(make_world(engine, folder), random.Random(seed), kills)
        try:
            sequence.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        counts += sequence.counts
        shutil.rmtree(folder)
    counts["kills"] = kills.total()
    per_event = {verb: sorted((event, n) for (each, event), n in kills.items() if each == verb) for verb in VERBS}
    logging.getLogger(__name__).info("%s: %d sequences, %s; kills by event %s", engine, len(seeds), counts, per_event)
    assert engine == "mariadb" or not counts["in doubt"]
    assert counts["acts"] > len(seeds) // 2
    assert counts["undo"] > len(seeds) // 2
    if len(seeds) >= 1000:
        for verb in VERBS:
            events = {event for each, event in kills if each == verb}
            assert events >= set(range(1, 9)), verb  # those of all actions
