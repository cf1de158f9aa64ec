"""What actions that can be taken back cost: an undo in a large tree, a decision of the policy, an entry of the journal.

    python benchmarks/runtime.py [--quick] [--json FILE] [--files N] [--in FOLDER]

A small change is one line of one file. In trees of a thousand and of `--files` (10,000) files that differ in nothing
else it is done and taken back in turn, by a write and by a command, so that what depends on the size of the tree shows
as growth. An entry of the journal is compared with the same bytes in a bare SQLite table, committed alike
(`synchronous=FULL`, WAL). Only what a caller waits for is timed; opening a session is not.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import argument_parser, compare, finish, print_environment, seconds

from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy import Access, Grant, Request, Usage, decide
from autoclave.runtime.session import Session

_PER_FOLDER = 100
_BODY = {"session": "main", "by": "caller", "operation": {"do": "write", "path": "a" * 40, "content": "x" * 400}}


def main() -> None:
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--files", type=int, default=10_000, help="of the large tree")
    parser.add_argument("--in", dest="place", type=Path, help="a folder on the file system to measure")
    args = parser.parse_args()
    print_environment()
    rounds = 10 if args.quick else 50
    with tempfile.TemporaryDirectory(dir=args.place) as place:
        figures = {**trees(Path(place), args.files, rounds), **policy(rounds), **journal(Path(place), rounds)}
        figures |= databases(Path(place), 3 if args.quick else 15)
    finish("runtime", figures, args.json)


# --- Trees -----------------------------------------------------------------------------------------------------------


def trees(place: Path, num_files: int, rounds: int) -> dict[str, float]:
    """Milliseconds of acts and undos, and how they grow from a thousand files to `num_files`."""
    ways: dict[str, Callable[[int], dict[str, Any]]] = {
        "": lambda number: {"do": "write", "path": "folder0/file0", "content": f"{number}\n"},
        "command_": lambda number: {"do": "run", "command": ["sh", "-c", f"echo {number} > folder0/file0"]},
    }
    times: dict[str, list[float]] = {}
    with session_on(place, 1000) as small, session_on(place, num_files) as large:
        for number in range(rounds):
            for way, operation in ways.items():
                sides = [("small", small), ("large", large)]
                for side, session in sides if number % 2 else reversed(sides):
                    act, undo = once(session, operation(number))
                    times.setdefault(f"{way}act {side}", []).append(act)
                    times.setdefault(f"{way}undo {side}", []).append(undo)
    name = f"{num_files // 1000}k"
    figures: dict[str, float] = {}
    for way in ways:
        for kind in ("act", "undo"):
            large_s, small_s = (statistics.median(times[f"{way}{kind} {side}"]) for side in ("large", "small"))
            figures[f"{way}{kind}_ms_{name}_files"] = large_s * 1000
            figures[f"{way}{kind}_growth_{name}_over_1k"] = large_s / small_s
            spread = sorted(times[f"{way}{kind} large"])
            print(f"{way}{kind}: {spread[0] * 1000:.1f} to {spread[-1] * 1000:.1f} ms in {len(spread)} rounds")
    return figures


@contextmanager
def session_on(place: Path, num_files: int) -> Iterator[Session]:
    """A session on a tree with so many small files, which may do everything in it."""
    root = place / f"tree{num_files}"
    for number in range(num_files):
        folder = root / f"folder{number // _PER_FOLDER}"
        if number % _PER_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"file{number % _PER_FOLDER}").write_text(f"line\n{number}\n" * 20)
    with open_session(root, budget=1e9) as session:
        session.permissions.grant(Grant(resources=("files/**", "programs/**"), verbs=("*",)))
        yield session


def once(session: Session, operation: dict[str, Any]) -> tuple[float, float]:
    """Seconds to propose and do an operation, and to take it back."""
    begun = time.perf_counter()
    proposal = session.propose(operation)
    session.run(proposal.action, proposal.plan.digest)
    done = time.perf_counter()
    session.undo(proposal.action)
    return done - begun, time.perf_counter() - done


# --- Policy ----------------------------------------------------------------------------------------------------------


def policy(rounds: int) -> dict[str, float]:
    """Milliseconds of a decision among a hundred grants, half of them limited, on twenty paths."""
    grants = [
        Grant(
            resources=(f"files/part{number}/**",), verbs=("create", "modify"), max_files=10**9 if number % 2 else None
        )
        for number in range(99)
    ]
    grants.append(Grant(effect="forbid", resources=("files/**/secret*",), verbs=("*",)))
    request = Request(tuple(Access("create", f"files/part{number}/a/b{number}.txt", files=1) for number in range(20)))
    usage = {grant.id: Usage([0.0], {"files": 3}) for grant in grants}
    assert decide(grants, request, usage, 1.0).is_allowed
    times = [seconds(lambda: decide(grants, request, usage, 1.0)) for _ in range(rounds * 20)]
    return {"policy_ms": statistics.median(times) * 1000}


# --- Journal ---------------------------------------------------------------------------------------------------------


def journal(place: Path, rounds: int) -> dict[str, float]:
    """The time of an entry, over that of a bare commit of the same bytes."""
    folders = [place / name for name in ("journal", "bare")]
    for folder in folders:
        folder.mkdir()
    bare = sqlite3.connect(folders[1] / "bare.sqlite", isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    text = repr(_BODY)
    with Journal(folders[0] / "journal.sqlite", folders[0] / "signed") as ours:

        def append() -> float:
            return seconds(lambda: times(20, lambda: ours.append("measured", "benchmark", _BODY)))

        def commit() -> float:
            return seconds(lambda: times(20, lambda: bare.execute("INSERT INTO records (body) VALUES (?)", (text,))))

        found = compare(append, commit, rounds=rounds)
    bare.close()
    print(f"journal over bare SQLite: {found}")
    return {"journal_ratio_vs_sqlite": found.median}


# --- Databases -------------------------------------------------------------------------------------------------------

_ROWS = 20_000
_TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, note TEXT, price NUMERIC)"
_UPDATE = "UPDATE item SET price = price + 1 WHERE kind = 'book'"


def databases(place: Path, rounds: int) -> dict[str, float]:
    """The time of an update of 20,000 rows as the execution of an action, over that of the same and its commit."""
    figures = {"row_image_overhead_sqlite": row_images(place / "images", sqlite_item(place), rounds)}
    with warnings.catch_warnings(action="ignore"):
        try:
            import pgserver
        except ImportError:
            print("row images of PostgreSQL: not measured, since pgserver is not installed")
            return figures
    with tempfile.TemporaryDirectory() as folder, pgserver.get_server(folder, cleanup_mode="stop") as server:
        found = row_images(place / "images of postgresql", postgresql_item(server.get_uri()), rounds)
    return {**figures, "row_image_overhead_postgresql": found}


def sqlite_item(place: Path) -> tuple[DatabaseConnection, Callable[[], object]]:
    """The settings of a file with a table, and the bare update."""
    path = f"{place / 'item.db'}"
    bare = sqlite3.connect(path, isolation_level=None)
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute(_TABLE)
    rows = ((number, f"name {number}", "book", "some words " * 3, number) for number in range(_ROWS))
    bare.execute("BEGIN")
    bare.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", rows)
    bare.execute("COMMIT")

    def update() -> None:
        for statement in ("BEGIN IMMEDIATE", _UPDATE, "COMMIT"):
            bare.execute(statement)

    return DatabaseConnection(engine="sqlite", path=path, max_rows=_ROWS), update


def postgresql_item(uri: str) -> tuple[DatabaseConnection, Callable[[], object]]:
    """Likewise of a database."""
    import psycopg

    bare = psycopg.connect(uri, autocommit=True)
    bare.execute(_TABLE)
    bare.execute(
        "INSERT INTO item SELECT n, 'name ' || n, 'book', repeat('some words ', 3), n FROM generate_series(1, %s) n",
        (_ROWS,),
    )
    bare.execute("CREATE ROLE agent; GRANT ALL ON item TO agent")
    about = bare.info
    settings = DatabaseConnection(
        engine="postgresql",
        host=about.host,
        port=about.port,
        dbname=about.dbname,
        user=about.user,
        role="agent",
        max_rows=_ROWS,
    )
    return settings, lambda: bare.execute(_UPDATE)


def row_images(state: Path, given: tuple[DatabaseConnection, Callable[[], object]], rounds: int) -> float:
    """Median of the ratio; the two alternate."""
    settings, update = given
    manager = DatabaseManager({"item": settings}, state, lambda _: "")
    operation = Sql(database="item", statements=(_UPDATE,))
    number = itertools.count()

    def act() -> float:
        action = f"{next(number)}"
        started = manager.prepare(action, operation, manager.plan(action, operation))
        spent = seconds(lambda: manager.execute(action, started))
        manager.discard(action)
        return spent

    found = compare(act, lambda: seconds(update), rounds=rounds)
    manager.close()
    print(f"an update of {_ROWS} rows of {settings.engine} with row images over the bare one: {found}")
    return found.median


def times(count: int, work: Callable[[], object]) -> None:
    """Do it so many times."""
    for _ in range(count):
        work()


if __name__ == "__main__":
    os.umask(0o077)
    main()
