"""A model changes prices in a shop's database; a person looks at the rows, and takes back what was wrong.

    python examples/acting/change_rows.py                                   # proposals that were recorded
    python examples/acting/change_rows.py --endpoint URL --model NAME       # those of a model, at any OpenAI server

Works on an SQLite file that it makes, and removes it at the end. Needs the extra `databases`.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from proposing import have_proposed, in_a_line, options_of

from autoclave.runtime.connections import Connections, save_connections
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy import Grant

TASK = "Take a tenth off the price of all books in the database `shop`, and delete what is sold out."
RECORDED: list[dict[str, Any]] = [
    {"do": "sql", "database": "shop", "statements": ["UPDATE item SET price = price * 0.9 WHERE kind = 'book'"]},
    {"do": "sql", "database": "shop", "statements": ["DELETE FROM item WHERE left_over <= 3"]},
    {"do": "sql", "database": "shop", "statements": ["DELETE FROM customer"]},
]
"""What a model proposed for this task once. The second goes too far, and nothing permits the third."""


def main() -> None:
    options = options_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as place:
        root, state, file = Path(place) / "work", Path(place) / "state", Path(place) / "shop.db"
        root.mkdir()
        state.mkdir(mode=0o700)
        fill(file)
        before = rows(file)
        save_connections(state, Connections(databases={"shop": DatabaseConnection(engine="sqlite", path=str(file))}))
        with open_session(root, state) as session:
            session.permissions.grant(
                Grant(resources=("databases/shop/main/item/**",), verbs=("read", "modify", "delete"), max_rows=100)
            )
            session.savepoint("before the sale")
            have_proposed(session, options, TASK, RECORDED)
            review(session)
            print("\nas it stands:", *rows(file), sep="\n    ")
            undone = session.undo_to("before the sale")
            print(f"\ntaken back: all that stood ({len(undone)} actions)")
            print(f"the rows are as they were: {rows(file) == before}")
            print(f"the journal is as it was written: {not session.audit()}")


def fill(file: Path) -> None:
    """A shop as people have them."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name, kind, price, left_over)")
        connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name)")
        items = [(1, "Emma", "book", 10.0, 4), (2, "Ulysses", "book", 20.0, 0), (3, "a kite", "toy", 8.0, 2)]
        connection.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", items)
        connection.execute("INSERT INTO customer VALUES (1, 'Ada')")


def review(session: Any) -> None:
    """Undo the last action that removed a toy, which was not requested; the rest stays."""
    for standing in reversed(session.journal.standings()):
        changes = session.difference(standing.action)
        if any("kite" in line for line in changes):
            print(f"\n{standing.action} went too far:", *changes, sep="\n    ")
            session.undo(standing.action, dependents=True)
            print("taken back; the others stand")
            return


def rows(file: Path) -> list[tuple[Any, ...]]:
    """All items, as another program sees them."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT * FROM item ORDER BY id").fetchall()


if __name__ == "__main__":
    in_a_line(main)
