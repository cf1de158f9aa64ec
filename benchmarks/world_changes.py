"""A world, random changes of it, and a manifest that shares no code with the world's own. For `worlds.py` and tests."""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from autoclave.runtime.policy.grants import Grant

ALL = Grant(resources=("files/**", "databases/**", "programs/**"), verbs=("*",))
_ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, client TEXT NOT NULL, cents INTEGER, state TEXT)"
_NOTES = "CREATE TABLE notes (text TEXT, weight REAL, data BLOB)"


def build(tree: Path, files: int, rows: int) -> None:
    """Fill a world: a hundred files in each folder, and two tables, one of them without a key."""
    for number in range(files):
        folder = tree / "files" / f"folder-{number // 100}"
        if number % 100 == 0:
            folder.mkdir()
        (folder / f"file-{number}.txt").write_text(f"line {number}\n" * 5)
    (tree / "files" / "link").symlink_to("folder-0")
    with closing(sqlite3.connect(tree / "shop.db")) as database, database:
        database.execute(_ORDERS)
        database.execute(_NOTES)
        database.execute("CREATE INDEX by_client ON orders (client)")
        orders = ((each, f"client {each % 97}", each * 7 % 1000, "open") for each in range(rows))
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
        notes = ((f"note {each % 5}", each / 3, bytes([each % 256])) for each in range(rows // 10))
        database.executemany("INSERT INTO notes VALUES (?, ?, ?)", notes)


def manifest_of(tree: Path) -> dict[str, Any]:
    """Return what is in a world: facts and content of each entry, and the rows of each table in order of their text."""
    found: dict[str, Any] = {}
    for above, folders, names in os.walk(tree / "files"):
        for path in (Path(above), *(Path(above, name) for name in (*folders, *names))):
            about = path.lstat()
            facts = about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns, about.st_nlink
            if path.is_symlink():
                found[str(path)] = facts, os.readlink(path)
            elif path.is_file():
                found[str(path)] = facts, hashlib.blake2b(path.read_bytes()).hexdigest()
            else:
                found[str(path)] = facts
    for path in tree.glob("*.db"):
        with closing(sqlite3.connect(path)) as database:
            for name, kind, sql in database.execute("SELECT name, type, sql FROM sqlite_schema"):
                rows = sorted(map(repr, database.execute(f"SELECT * FROM {name}"))) if kind == "table" else ()
                found[f"{path}: {name}"] = kind, sql, rows
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return found


def random_changes(tree: Path, drawn: random.Random) -> Iterator[dict[str, Any]]:
    """Yield operations for a world as `build` makes it; some of them are impossible."""
    for _ in range(drawn.randint(1, 6)):
        paths = [str(path.relative_to(tree / "files")) for path in sorted((tree / "files").rglob("*"))] or ["none"]
        path, other = drawn.choice(paths), f"{drawn.choice(['', 'new/', 'folder-0/'])}{drawn.choice('abcd')}"
        text, key = drawn.choice(["", "x", "line\n" * 50]), drawn.randrange(60)
        yield drawn.choice(
            [
                {"do": "write", "path": path, "content": text},
                {"do": "write", "path": other, "content": text},
                {"do": "append", "path": path, "content": text},
                {"do": "delete", "path": path, "recursive": True},
                {"do": "move", "path": path, "to": other},
                {"do": "move", "path": path, "to": drawn.choice(paths), "replace": True},
                {"do": "make_folder", "path": other},
                {"do": "set_mode", "path": path, "mode": drawn.choice([0o600, 0o644, 0o755])},
                {"do": "make_link", "path": other, "target": "folder-0"},
                *[
                    {"do": "sql", "database": "shop", "statements": [statement]}
                    for statement in (
                        f"UPDATE orders SET cents = cents + {key}, state = 'paid' WHERE id % 7 = {key % 7}",
                        f"UPDATE notes SET text = text || '!' WHERE weight < {key}",
                        f"DELETE FROM orders WHERE id > {key}",
                        f"DELETE FROM notes WHERE weight > {key / 9}",
                        f"INSERT OR REPLACE INTO orders VALUES ({key}, 'new', NULL, 'open')",
                        f"INSERT INTO notes VALUES ('note {key % 5}', {key / 3}, NULL)",
                    )
                ],
                *([{"do": "run", "command": _some_commands(path, other, drawn)}] if drawn.random() < 0.3 else []),
            ]
        )


def _some_commands(path: str, other: str, drawn: random.Random) -> list[str]:
    lines = [f"mkdir -p new && cp -r {path} new/copy", f"rm -rf {path}", f"ln -f {path} {other}-hard", "mv * .. ; true"]
    lines += [f"for each in folder-*/*1.txt; do mv $each $each.old; done; touch -d 2001-01-01 {path}", "rm -rf *"]
    return ["sh", "-c", drawn.choice(lines)]
