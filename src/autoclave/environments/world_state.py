"""The state of a world as data: all that an undo restores, by names that grants know. Reads only."""

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoclave.runtime.databases.effects import as_name
from autoclave.runtime.files.operations import key_of
from autoclave.runtime.files.scope import Entry, Scope
from autoclave.runtime.files.tree_digest import without_marks

Resources = Mapping[str, Entry | list[Any]]
"""Entries of the folder by `files/PATH`, definitions by `databases/NAME/main/TABLE`, rows by that with `/KEY`."""


def databases_in(tree: Path) -> list[Path]:
    """Return the files of the databases of a world."""
    return sorted(tree.glob("*.db"))


def resources_of(tree: Path) -> Resources:
    """Return the state of the world in the folder `tree`. O(size of the world)."""
    return dict(_resources_of(tree))


def digest_of(tree: Path) -> str:
    """Return a digest of `resources_of`, in bounded memory."""
    digest = hashlib.sha256()
    for each in _resources_of(tree):
        digest.update(f"{each!r}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def changes_between(before: Resources, after: Resources) -> dict[str, list[Any]]:
    """Return the changed resources, each with a verb (`create`, `modify`, `delete`) and its value as JSON data.

    The value of a file is its kind, mode and content, without times: an edit that another takes back is no change.
    """
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            found[name] = ["delete", None]
        elif name not in before:
            found[name] = ["create", value_of(after[name])]
        elif repr(now := value_of(after[name])) != repr(value_of(before[name])):  # 5.0 is not 5
            found[name] = ["modify", now]
    return found


def value_of(resource: Entry | list[Any]) -> list[Any]:
    """Return the value of a resource in changes."""
    if isinstance(resource, Entry):
        return [resource.kind, resource.mode, resource.target or resource.digest]
    return [{"hex": each.hex()} if isinstance(each, bytes) else each for each in resource]


def _resources_of(tree: Path) -> Iterator[tuple[str, Any]]:
    with Scope(tree) as scope:  # which starts above, so that the folder itself is included
        yield from ((key_of(path[len("files/") :]), without_marks(entry)) for path, entry in scope.walk("files"))
    for path in databases_in(tree):
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = lambda given: given.decode("utf-8", "surrogateescape")
            yield from _tables_of(f"databases/{path.stem}/main", database)


def _tables_of(above: str, database: sqlite3.Connection) -> Iterator[tuple[str, Any]]:
    for name, kind, sql in database.execute("SELECT name, type, sql FROM sqlite_schema ORDER BY name").fetchall():
        yield f"{above}/{as_name(name)}", [kind, sql]
        if kind != "table":
            continue
        columns = database.execute("SELECT name, pk FROM pragma_table_xinfo(?)", (name,)).fetchall()
        keys = [place for place, (_, number) in sorted(enumerate(columns), key=lambda each: each[1][1]) if number]
        order = ", ".join(str(place + 1) for place in keys or range(len(columns)))
        quoted = name.replace('"', '""')
        for number, row in enumerate(database.execute(f'SELECT * FROM "{quoted}" ORDER BY {order}')):
            key = ",".join(str(row[place]) for place in keys) if keys else f"row {number}"
            yield f"{above}/{as_name(name)}/{as_name(key)}", list(row)
