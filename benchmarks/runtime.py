"""What actions that can be taken back cost: an undo in a large tree, a decision of the policy, an entry of the journal.

    python benchmarks/runtime.py [--quick] [--json FILE] [--files N] [--rows N] [--in FOLDER] [--only PART]

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
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Comparison, argument_parser, compare, finish, print_environment, seconds, sized

from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import Choice
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.decision import decide
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.session import Session

_PER_FOLDER = 100
_BODY = {"session": "main", "by": "caller", "operation": {"do": "write", "path": "a" * 40, "content": "x" * 400}}


def main() -> None:
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--files", type=int, help="of the large tree; 10,000 by default")
    parser.add_argument("--rows", type=int, help="of the table that is updated; 100,000 by default")
    parser.add_argument("--in", dest="place", type=Path, help="a folder on the file system to measure")
    parser.add_argument(
        "--only", choices=("trees", "history", "policy", "journal", "databases", "rows", "folders"), help="one part"
    )
    args = parser.parse_args()
    print_environment()
    rounds = sized(args, 50, 10, 1)
    files, rows = args.files or sized(args, 10_000, 10_000, 20), args.rows or sized(args, 100_000, 100_000, 10)
    with tempfile.TemporaryDirectory(dir=args.place) as place:
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "trees": lambda: trees(Path(place), min(1000, files // 2), files, rounds),
            "history": lambda: history(Path(place), sized(args, 10_000, 1000, 20), sized(args, 30, 20, 1)),
            "policy": lambda: policy(rounds),
            "journal": lambda: journal(Path(place), rounds),
            "databases": lambda: databases(Path(place), sized(args, 9, 3, 1), rows),
            "rows": lambda: row_changes(Path(place), sized(args, 9, 5, 1), rows),
            "folders": lambda: folder_delete(Path(place), files, sized(args, 5, 3, 1)),
        }
        figures: dict[str, float] = {}
        for name in [args.only] if args.only else parts:
            figures |= parts[name]()
    finish("runtime", figures, args.json)


# --- Trees -----------------------------------------------------------------------------------------------------------


def trees(place: Path, few_files: int, num_files: int, rounds: int) -> dict[str, float]:
    """Milliseconds of acts and undos, and how they grow from few files to `num_files`."""
    ways: dict[str, Callable[[int], dict[str, Any]]] = {
        "": lambda number: {"do": "write", "path": "folder0/file0", "content": f"{number}\n"},
        "command_": lambda number: {"do": "run", "command": ["sh", "-c", f"echo {number} > folder0/file0"]},
    }
    times: dict[str, list[float]] = {}
    with session_on(place, few_files) as small, session_on(place, num_files) as large:
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
    action = perform(session, operation)
    done = time.perf_counter()
    session.undo(action)
    return done - begun, time.perf_counter() - done


# --- History ---------------------------------------------------------------------------------------------------------


def history(place: Path, num_actions: int, rounds: int) -> dict[str, float]:
    """CPU milliseconds of a one-file write from proposal to execution, and the growth of an act and its undo.

    Growth compares a session in which `num_actions` writes stand with one in which ten stand.
    """
    times: dict[str, list[float]] = {}
    with session_on(place / "few", 100) as few, session_on(place / "many", 100) as many:
        for session, standing in ((few, 10), (many, num_actions)):
            perform(session, {"do": "make_folder", "path": "standing"})
            for number in range(standing):
                perform(session, {"do": "write", "path": f"standing/{number}", "content": "x"})
        for number in range(rounds):
            sides = [("few", few), ("many", many)]
            for side, session in sides if number % 2 else reversed(sides):
                begun = time.process_time()
                action = perform(session, {"do": "write", "path": f"new{number}", "content": f"{number}\n"})
                done = time.process_time()
                session.undo(action)
                times.setdefault(f"act {side}", []).append(done - begun)
                times.setdefault(f"undo {side}", []).append(time.process_time() - done)
    act_few, act_many, undo_few, undo_many = (
        statistics.median(times[name]) for name in ("act few", "act many", "undo few", "undo many")
    )
    print(
        f"act {act_few * 1000:.1f} and {act_many * 1000:.1f} ms, undo {undo_few * 1000:.1f} and {undo_many * 1000:.1f}"
    )
    return {
        "action_ms": act_few * 1000,
        "history_growth": max(act_many / act_few, undo_many / undo_few),
    }


def perform(session: Session, operation: dict[str, Any]) -> str:
    """Propose and execute an operation; return its action."""
    proposal = session.propose(operation)
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


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
    usage = {grant.id: {"uses": 1, "files": 3} for grant in grants}
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

_ROWS = 100_000
_TABLES = ("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, note TEXT, price NUMERIC)",)
_UPDATE = "UPDATE item SET price = price + 1 WHERE kind = 'book'"
_PHASES = ("row_image_overhead", "row_image_plan", "row_image_run", "row_image_undo")


@dataclass(frozen=True)
class Item:
    """A database with a table to update. `others` does a statement as somebody without us would, durably."""

    settings: DatabaseConnection
    others: Callable[[str], object]


def databases(place: Path, rounds: int, num_rows: int) -> dict[str, float]:
    """What an action costs that updates all rows of a table, over the same statement and its commit without us.

    `row_image_overhead`: to do what was planned, rows before and after included. Besides, with the engine's name, the
    other phases over the same statement: `row_image_plan` (which runs the statement as well and reads all rows),
    `row_image_run` (what a session does to run what was planned: plan again, execute, observe) and `row_image_undo`.
    """
    path = f"{place / 'item.db'}"
    with closing(sqlite3.connect(path, isolation_level=None)) as bare:
        found = {"sqlite": row_images(place / "images", sqlite_item(bare, path, num_rows), rounds)}
    with warnings.catch_warnings(action="ignore"):
        try:
            import pgserver
            import psycopg
        except ImportError:
            print("row images of PostgreSQL: not measured, since pgserver is not installed")
        else:
            with (
                tempfile.TemporaryDirectory() as folder,
                pgserver.get_server(folder, cleanup_mode="stop") as server,
                psycopg.connect(server.get_uri(), autocommit=True) as bare,
            ):
                item = postgresql_item(bare, num_rows)
                found["postgresql"] = row_images(place / "images of postgresql", item, rounds)
    figures = {f"{name}_{engine}": phases[name] for engine, phases in found.items() for name in phases}
    return {"row_image_overhead": max(phases["row_image_overhead"] for phases in found.values()), **figures}


def sqlite_item(bare: sqlite3.Connection, path: str, num_rows: int) -> Item:
    """A file."""
    bare.execute("PRAGMA synchronous = FULL")
    for statement in _TABLES:
        bare.execute(statement)
    rows = ((number, f"name {number}", "book", "some words " * 3, number) for number in range(num_rows))
    bare.execute("BEGIN")
    bare.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", rows)
    bare.execute("COMMIT")

    def others(statement: str) -> None:
        for each in ("BEGIN IMMEDIATE", statement, "COMMIT"):
            bare.execute(each)

    return Item(DatabaseConnection(engine="sqlite", path=path, max_rows=num_rows), others)


def postgresql_item(bare: Any, num_rows: int) -> Item:
    """A database."""
    for statement in _TABLES:
        bare.execute(statement)
    bare.execute(
        "INSERT INTO item SELECT n, 'name ' || n, 'book', repeat('some words ', 3), n FROM generate_series(1, %s) n",
        (num_rows,),
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
        max_rows=num_rows,
    )
    return Item(settings, lambda statement: bare.execute(statement.encode()))


def row_images(state: Path, item: Item, rounds: int) -> dict[str, float]:
    """Medians of ratios; ours and theirs alternate."""
    manager = DatabaseManager({"item": item.settings}, state, lambda _: "")
    operation = Sql(database="item", statements=(_UPDATE,))
    number = itertools.count()

    def tidy() -> None:
        """Start with a table without gaps: what one update leaves behind is no help to the next, and no burden."""
        if item.settings.engine == "postgresql":
            item.others("VACUUM FULL item")

    def act(phase: str) -> float:
        tidy()
        action = f"{next(number)}"
        planning = time.perf_counter()
        plan = manager.plan(action, operation)
        planned = time.perf_counter()
        started = manager.prepare(action, operation, plan)
        begun = time.perf_counter()
        if phase == "row_image_run":
            manager.plan_again(action, operation, plan.kept)
        receipt = manager.execute(action, started)
        manager.observed(action, receipt)
        done = time.perf_counter()
        if phase == "row_image_undo":
            undoing = manager.plan_undo(action, receipt, {}, Choice.REFUSE, lambda _: iter(()))
            manager.undo(action, undoing, is_late=False)
        undone = time.perf_counter()
        manager.discard(action)
        return {"row_image_plan": planned - planning, "row_image_undo": undone - done}.get(phase, done - begun)

    def update() -> float:
        tidy()
        return seconds(lambda: item.others(_UPDATE))

    found: dict[str, float] = {}
    for phase in _PHASES:
        if phase == "row_image_overhead":
            ratio = compare(lambda: act("row_image_overhead"), update, rounds=rounds)
        else:
            ratio = Comparison(tuple(act(phase) / update() for _ in range(max(1, rounds // 3))))
        print(f"{phase} of {item.settings.engine}, over a bare update of {item.settings.max_rows} rows: {ratio}")
        found[phase] = ratio.median
    manager.close()
    return found


# --- A part of a table, and a large folder ---------------------------------------------------------------------------


def row_changes(place: Path, rounds: int, num_rows: int) -> dict[str, float]:
    """CPU time to run and undo an action on 1,000 rows of a table, over the bare statement and its inverse (SQLite)."""
    path, most = place / "part.db", num_rows // 2 + 1000
    where = f"id >= {num_rows // 2} AND id < {most}"
    update, inverse = (f"UPDATE item SET price = price {sign} 1 WHERE {where}" for sign in "+-")
    with closing(sqlite3.connect(path, isolation_level=None)) as bare:
        item = sqlite_item(bare, f"{path}", num_rows)
        manager = DatabaseManager({"item": item.settings}, place / "part", lambda _: "")
        operation, number = Sql(database="item", statements=(update,)), itertools.count()

        def act() -> float:
            action = f"{next(number)}"
            started = manager.prepare(action, operation, manager.plan(action, operation))
            begun = time.process_time()
            receipt = manager.execute(action, started)
            manager.observed(action, receipt)
            undoing = manager.plan_undo(action, receipt, {}, Choice.REFUSE, lambda _: iter(()))
            manager.undo(action, undoing, is_late=False)
            ended = time.process_time()
            manager.discard(action)
            return ended - begun

        def change() -> float:
            begun = time.process_time()
            item.others(update)
            item.others(inverse)
            return time.process_time() - begun

        found = compare(act, change, rounds=rounds)
        manager.close()
    print(f"1,000 rows of {num_rows} changed and undone, over the bare statements: {found}")
    return {"row_change_overhead": found.median}


def folder_delete(place: Path, num_files: int, rounds: int) -> dict[str, float]:
    """CPU milliseconds of an act that deletes a folder of `num_files` files, from proposal to execution."""
    spent: list[float] = []
    with session_on(place / "deletes", num_files) as session:
        root = place / "deletes" / f"tree{num_files}"
        (root / "all").mkdir()
        for folder in root.glob("folder*"):
            folder.rename(root / "all" / folder.name)
        for _ in range(rounds):
            begun = time.process_time()
            action = perform(session, {"do": "delete", "path": "all", "recursive": True})
            spent.append((time.process_time() - begun) * 1000)
            session.undo(action)
    print(f"a folder of {num_files} files deleted: {min(spent):.0f} to {max(spent):.0f} ms")
    return {"folder_delete_ms_10k": statistics.median(spent)}


def times(count: int, work: Callable[[], object]) -> None:
    """Do it so many times."""
    for _ in range(count):
        work()


if __name__ == "__main__":
    os.umask(0o077)
    main()
