"""A shop in a database, what can be known of it, and sessions on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import Guarantee
from autoclave.runtime.journal import Journal
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session

CANARY = "canary-7f3a"
"""In rows, defaults and messages of the shop; must not be told to a model."""
SQLITE_SHOP = f"""
CREATE TABLE kind (name TEXT PRIMARY KEY NOT NULL, note TEXT DEFAULT '{CANARY}-default');
CREATE TABLE item (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, price REAL CHECK (price >= 0 OR name = '{CANARY}-check'),
    kind TEXT REFERENCES kind (name) ON DELETE CASCADE ON UPDATE CASCADE, photo BLOB
);
CREATE TABLE review (
    id INTEGER PRIMARY KEY AUTOINCREMENT, item INTEGER REFERENCES item (id) ON DELETE SET NULL, text TEXT
);
CREATE TABLE part (
    id INTEGER PRIMARY KEY, whole INTEGER REFERENCES part (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
);
CREATE TABLE note (text TEXT, number);
CREATE TABLE place (shelf TEXT, row INTEGER, item TEXT, PRIMARY KEY (shelf, row)) WITHOUT ROWID;
CREATE TABLE log (what TEXT, id INTEGER);
CREATE TABLE sum_of (a INTEGER PRIMARY KEY, b INTEGER, total GENERATED ALWAYS AS (a + b) VIRTUAL);
CREATE TRIGGER item_log AFTER UPDATE ON item BEGIN INSERT INTO log VALUES ('update', NEW.id); END;
CREATE VIEW dear AS SELECT id, name, price FROM item WHERE price > 100 AND name <> '{CANARY}-view';
CREATE TRIGGER dear_update INSTEAD OF UPDATE ON dear BEGIN
    UPDATE item SET price = NEW.price WHERE id = OLD.id;
END;
CREATE VIRTUAL TABLE words USING fts5 (text);
INSERT INTO kind (name) VALUES ('book'), ('toy'), ('empty');
INSERT INTO item VALUES (1, 'a', 10.5, 'book', x'00ff'), (2, 'b', 200.0, 'book', NULL), (3, 'c', 3, 'toy', NULL),
    (4, '{CANARY}', 4, 'toy', NULL);
INSERT INTO review (item, text) VALUES (1, 'good'), (1, 'bad'), (3, '{CANARY}');
INSERT INTO part VALUES (1, NULL), (2, 1), (3, 2), (4, NULL);
INSERT INTO note VALUES ('x', 1), ('x', 1), ('x', 1.0), (NULL, NULL), ('y', '1');
INSERT INTO place VALUES ('A', 1, 'a'), ('A', 2, 'b'), ('B', 1, NULL);
INSERT INTO sum_of (a, b) VALUES (1, 2), (3, 4);
INSERT INTO words VALUES ('the quick fox'), ('the lazy dog');
"""


@dataclass(frozen=True)
class Shop:
    """A database with a shop in it. `others`: does a statement as somebody else; `content`: all that can be known."""

    settings: DatabaseConnection
    others: Callable[[str], Any]
    content: Callable[[], Any]
    state: Path
    schema: str = "main"

    def session(self, **changed: Any) -> Session:
        """A session that may do everything, with changed settings."""
        settings = self.settings.model_copy(update=changed)
        return session_on({"shop": settings}, self.state)


def session_on(connections: Mapping[str, DatabaseConnection], state: Path, *, granted: bool = True) -> Session:
    with contextlib.ExitStack() as opening:
        journal = opening.enter_context(Journal(state / "journal.sqlite", state / "checkpoints" / "signed"))
        manager = opening.enter_context(contextlib.closing(DatabaseManager(connections, state / "rows", lambda _: "")))
        session = Session(journal, [manager], Permissions(journal, "main", 1e9), opening.pop_all())
    if granted and not session.permissions.grants():
        session.permissions.grant(Grant(resources=("databases/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
    return session


def make_sqlite_shop(folder: Path, *, wal: bool = False) -> Shop:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shop.db"
    with contextlib.closing(apsw.Connection(f"{path}")) as made:
        made.execute("PRAGMA journal_mode = WAL" if wal else "PRAGMA journal_mode = DELETE")
        made.execute(SQLITE_SHOP)
    settings = DatabaseConnection(engine="sqlite", path=f"{path}", lock_timeout_s=0.3)

    def others(statement: str) -> Any:
        with contextlib.closing(apsw.Connection(f"{path}")) as connection:
            connection.set_busy_timeout(300)
            return list(connection.execute(statement))

    return Shop(settings, others, lambda: sqlite_content(path), folder / "state")


def sqlite_content(path: Path) -> dict[str, Any]:
    """All tables with rowids and types, definitions, and where AUTOINCREMENT stands."""
    with contextlib.closing(apsw.Connection(f"{path}", flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
        names = [
            (name, without)
            for name, kind, without in connection.execute(
                "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND type <> 'view'"
            )
            if kind != "virtual"
        ]
        found: dict[str, Any] = {}
        for name, without in sorted(names):
            rowid = "" if without else "rowid, "
            rows = connection.execute(f'SELECT {rowid}* FROM "{name}"')
            found[name] = sorted(repr(row) for row in rows)
        return found


def done(session: Session, *statements: str, **more: Any) -> str:
    """Do statements as an action; its name."""
    proposal = session.propose({"do": "sql", "database": "shop", "statements": list(statements), **more})
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


def rows_of(shop: Shop, query: str) -> Iterator[Any]:
    return iter(shop.others(query))
