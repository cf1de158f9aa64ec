"""A shop in a database, what can be known of it, and sessions on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.tables import place_of
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.journal import Journal
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from tests.mariadb import Mariadb
from tests.postgresql import Postgres

in_mariadb_too = pytest.mark.parametrize("shop", ["sqlite", "postgresql", "mariadb"], indirect=True)
"""For tests that need no triggers, and define nothing."""
of_servers = pytest.mark.parametrize("shop", ["postgresql", "mariadb"], indirect=True)
in_mariadb_too_if_long = pytest.mark.parametrize(
    "shop", ["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.soak)], indirect=True
)
"""For those of them that take long; MariaDB is among the long runs then."""
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


POSTGRES_SHOP = f"""
CREATE TYPE mood AS ENUM ('glad', '{CANARY}-label');
CREATE TABLE kind (name text PRIMARY KEY, note text DEFAULT '{CANARY}-default');
CREATE TABLE item (
    id int PRIMARY KEY, name text UNIQUE NOT NULL, price numeric CHECK (price >= 0 OR name = '{CANARY}-check'),
    kind text REFERENCES kind (name) ON DELETE CASCADE ON UPDATE CASCADE, photo bytea
);
COMMENT ON TABLE item IS '{CANARY}-comment';
CREATE TABLE review (
    id serial PRIMARY KEY, item int REFERENCES item (id) ON DELETE SET NULL, text text
);
CREATE TABLE part (id int PRIMARY KEY, whole int REFERENCES part (id) ON DELETE CASCADE);
CREATE TABLE note (text text, number numeric);
CREATE TABLE place (shelf text, row int, item text, PRIMARY KEY (shelf, row), UNIQUE (item));
CREATE TABLE log (what text, id int);
CREATE TABLE sum_of (a int PRIMARY KEY, b int, total int GENERATED ALWAYS AS (a + b) STORED);
CREATE TABLE always (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text);
CREATE TABLE hen (id int PRIMARY KEY, egg int);
CREATE TABLE egg (id int PRIMARY KEY, hen int REFERENCES hen (id));
ALTER TABLE hen ADD CONSTRAINT hen_egg FOREIGN KEY (egg) REFERENCES egg (id);
CREATE TABLE day (on_day date, text text, PRIMARY KEY (on_day)) PARTITION BY RANGE (on_day);
CREATE TABLE day_old PARTITION OF day FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
CREATE TABLE day_new PARTITION OF day FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.log VALUES (TG_OP, NEW.id); RETURN NEW; END $$;
CREATE TRIGGER item_log AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION log_it();
CREATE VIEW dear AS SELECT id, name, price FROM item WHERE price > 100 AND name <> '{CANARY}-view';
CREATE FUNCTION bump() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE public.item SET price = NEW.price WHERE id = OLD.id; RETURN NEW; END $$;
CREATE VIEW odd AS SELECT id, price FROM item UNION SELECT 0, 0;
CREATE TRIGGER odd_update INSTEAD OF UPDATE ON odd FOR EACH ROW EXECUTE FUNCTION bump();
INSERT INTO kind (name) VALUES ('book'), ('toy'), ('empty');
INSERT INTO item VALUES (1, 'a', 10.5, 'book', '\\x00ff'), (2, 'b', 200.0, 'book', NULL), (3, 'c', 3, 'toy', NULL),
    (4, '{CANARY}', 4, 'toy', NULL);
INSERT INTO review (item, text) VALUES (1, 'good'), (1, 'bad'), (3, '{CANARY}');
INSERT INTO part VALUES (1, NULL), (2, 1), (3, 2), (4, NULL);
INSERT INTO note VALUES ('x', 1), ('x', 1), ('x', 1.0), (NULL, NULL), ('y', 1);
INSERT INTO place VALUES ('A', 1, 'a'), ('A', 2, 'b'), ('B', 1, NULL);
INSERT INTO sum_of (a, b) VALUES (1, 2), (3, 4);
INSERT INTO always (text) VALUES ('one'), ('two');
INSERT INTO hen VALUES (1, NULL); INSERT INTO egg VALUES (1, 1); UPDATE hen SET egg = 1;
INSERT INTO day VALUES ('2019-05-05', 'old'), ('2021-05-05', 'new');
"""


MARIADB_SHOP = f"""
CREATE TABLE kind (name varchar(40) PRIMARY KEY, note text DEFAULT '{CANARY}-default');
CREATE TABLE item (
    id int PRIMARY KEY, name varchar(40) UNIQUE NOT NULL, price decimal(20, 2), kind varchar(40), photo blob,
    CHECK (price >= 0 OR name = '{CANARY}-check'),
    FOREIGN KEY (kind) REFERENCES kind (name) ON DELETE CASCADE ON UPDATE CASCADE
) COMMENT '{CANARY}-comment';
CREATE TABLE review (
    id int PRIMARY KEY AUTO_INCREMENT, item int, text text,
    FOREIGN KEY (item) REFERENCES item (id) ON DELETE SET NULL
);
CREATE TABLE part (id int PRIMARY KEY, whole int, FOREIGN KEY (whole) REFERENCES part (id) ON DELETE CASCADE);
CREATE TABLE note (text text, number double);
CREATE TABLE place (shelf varchar(9), row int, item varchar(40), PRIMARY KEY (shelf, row));
CREATE TABLE log (what varchar(40), id int);
CREATE TABLE sum_of (a int PRIMARY KEY, b int, total int AS (a + b) STORED, twice int AS (b * 2) VIRTUAL);
CREATE TABLE mood (id int PRIMARY KEY, mood enum ('glad', '{CANARY}-label'));
CREATE VIEW dear AS SELECT id, name, price FROM item WHERE price > 100 AND name <> '{CANARY}-view';
INSERT INTO kind (name) VALUES ('book'), ('toy'), ('empty');
INSERT INTO item VALUES (1, 'a', 10.5, 'book', x'00ff'), (2, 'b', 200.0, 'book', NULL), (3, 'c', 3, 'toy', NULL),
    (4, '{CANARY}', 4, 'toy', NULL);
INSERT INTO review (item, text) VALUES (1, 'good'), (1, 'bad'), (3, '{CANARY}');
INSERT INTO part VALUES (1, NULL), (2, 1), (3, 2), (4, NULL);
INSERT INTO note VALUES ('x', 1), ('x', 1), ('X', 1.0), (NULL, NULL), ('y', 1);
INSERT INTO place VALUES ('A', 1, 'a'), ('A', 2, 'b'), ('B', 1, NULL);
INSERT INTO sum_of (a, b) VALUES (1, 2), (3, 4);
INSERT INTO mood VALUES (1, 'glad');
"""


@dataclass(frozen=True)
class Shop:
    """A database with a shop in it. `others`: does a statement as somebody else; `content`: all that can be known;
    `server`: can be stopped and started.
    """

    settings: DatabaseConnection
    others: Callable[[str], Any]
    content: Callable[[], Any]
    state: Path
    schema: str = "main"
    server: Any = None

    def session(self, **changed: Any) -> Session:
        """A session that may do everything, with changed settings."""
        settings = self.settings.model_copy(update=changed)
        return session_on({"shop": settings}, self.state)


def session_on(
    connections: Mapping[str, DatabaseConnection], state: Path, *, granted: bool = True, lives_on: bool = True
) -> Session:
    with contextlib.ExitStack() as opening:
        journal = opening.enter_context(Journal(state / "journal.sqlite", state / "checkpoints" / "signed"))
        manager = DatabaseManager(connections, state / "rows", lambda _: "", lives_on=lives_on)
        opening.callback(manager.close)
        session = Session(journal, [manager], Permissions(journal, "main", 1e9), opening.pop_all())
    if granted and not session.permissions.grants():
        session.permissions.grant(Grant(resources=("databases/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
    return session


def permitted(shop: Shop, *names: str, verbs: tuple[str, ...]) -> Session:
    """A session that may do these things to tables of these names alone."""
    session = session_on({"shop": shop.settings}, shop.state, granted=False)
    places = tuple(f"databases/shop/{place_of(shop.schema, name)}" for name in names)
    session.permissions.grant(Grant(resources=places, verbs=verbs, minimum_guarantee=Guarantee.NONE))
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


def prepare(server: Postgres) -> None:
    """The database of all shops, who owns it, and who acts in it."""
    server.execute("CREATE ROLE owner LOGIN")
    server.execute("CREATE ROLE agent NOLOGIN")
    server.execute("GRANT agent TO owner")
    server.make_database("shop")
    server.execute("ALTER DATABASE shop OWNER TO owner")


def make_postgres_shop(server: Postgres, folder: Path) -> Shop:
    """The shop as it is at first, in the one database for all of them."""
    place = {**server.place("shop"), "user": "owner"}
    with psycopg.connect(**place, autocommit=True) as made:
        made.execute("DROP SCHEMA IF EXISTS public, hidden CASCADE; CREATE SCHEMA public")
        made.execute("CREATE SCHEMA hidden; CREATE TABLE hidden.secret (text text)")
        made.execute(POSTGRES_SHOP)
        made.execute("GRANT USAGE, CREATE ON SCHEMA public TO agent")
        made.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO agent")
        made.execute("ALTER TABLE review OWNER TO agent")  # only who owns a sequence may restart it
        made.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO agent")
    settings = DatabaseConnection(
        engine="postgresql",
        host=place["host"],
        port=int(place.get("port") or 0),
        dbname="shop",
        user="owner",
        role="agent",
        lock_timeout_s=0.3,
    )

    def others(statement: str) -> Any:
        with psycopg.connect(**place, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    folder.mkdir(parents=True, exist_ok=True)
    return Shop(settings, others, lambda: postgres_content(place), folder / "state", "public", server)


def postgres_content(place: Mapping[str, Any]) -> dict[str, Any]:
    """All tables as text, what they are made of, and who may do what."""
    with psycopg.connect(**place, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.relkind IN ('r', 'm') AND n.nspname {_USERS} ORDER BY 1"
        ).fetchall()
        found: dict[str, Any] = {
            name: sorted(row for (row,) in connection.execute(f'SELECT "whole row"::text FROM {name} "whole row"'))
            for (name,) in tables
        }
        for kind, query in _MADE_OF.items():
            found[kind] = connection.execute(query).fetchall()
        return found


def prepare_mariadb(server: Mariadb) -> None:
    """Who acts in the database of all shops, with the least rights that do."""
    server.execute(
        "CREATE OR REPLACE USER agent",
        "GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.* TO agent",
        "GRANT PROCESS ON *.* TO agent",
    )


def make_mariadb_shop(server: Mariadb, folder: Path) -> Shop:
    """The shop as it is at first, in the one database for all of them."""
    server.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop CHARACTER SET utf8mb4")
    server.execute(*filter(str.strip, MARIADB_SHOP.split(";\n")), database="shop")
    settings = DatabaseConnection(
        engine="mariadb", host=f"{server.folder}", dbname="shop", user="agent", lock_timeout_s=1
    )
    folder.mkdir(parents=True, exist_ok=True)
    return Shop(
        settings,
        lambda statement: server.execute(*filter(str.strip, statement.split(";")), database="shop"),
        lambda: mariadb_content(server),
        folder / "state",
        "shop",
        server,
    )


def mariadb_content(server: Mariadb) -> dict[str, Any]:
    """All tables with their rows. What they are made of is changed by no statement that is let through."""
    tables = [name for name, kind in server.execute("SHOW FULL TABLES", database="shop") if kind == "BASE TABLE"]
    answers = server.all(*(f"SELECT * FROM `{name}`" for name in tables), database="shop")
    return {name: sorted(map(repr, rows)) for name, rows in zip(tables, answers, strict=True)}


_USERS = "NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
_MADE_OF = {
    "columns": "SELECT table_schema, table_name, column_name, data_type, column_default, is_nullable "
    f"FROM information_schema.columns WHERE table_schema {_USERS} ORDER BY 1, 2, ordinal_position",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
    f"WHERE connamespace::regnamespace::text {_USERS} ORDER BY 1, 2",
    "indexes": f"SELECT indexname, indexdef FROM pg_indexes WHERE schemaname {_USERS} ORDER BY 1",
    "views": f"SELECT viewname, definition FROM pg_views WHERE schemaname {_USERS} ORDER BY 1",
    "triggers": "SELECT tgrelid::regclass::text, tgname, tgenabled FROM pg_trigger "
    "WHERE NOT tgisinternal ORDER BY 1, 2",
    "functions": f"SELECT proname FROM pg_proc WHERE pronamespace::regnamespace::text {_USERS} ORDER BY 1",
    "types": "SELECT t.typname, e.enumlabel FROM pg_type t LEFT JOIN pg_enum e ON e.enumtypid = t.oid "
    f"WHERE t.typnamespace::regnamespace::text {_USERS} ORDER BY 1, e.enumsortorder",
    "policies": "SELECT tablename, policyname FROM pg_policies ORDER BY 1, 2",
    "grants": f"SELECT oid::regclass::text, relacl::text FROM pg_class WHERE relnamespace::regnamespace::text {_USERS} "
    "ORDER BY 1",
}


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


@contextlib.contextmanager
def changed(execute: Callable[[str], object], change: str, back: str) -> Iterator[None]:
    """Have something otherwise in a server while the block runs."""
    execute(change)
    try:
        yield
    finally:
        execute(back)
