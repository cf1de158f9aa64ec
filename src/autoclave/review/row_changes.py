"""Changes of an action to rows of a database, before and after, from what is kept of it. Reads only.

Each engine keeps rows in its own form: values (SQLite after the rowid), the text of a row (PostgreSQL), or the content
of a key (Redis).
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from autoclave.review.answers import shortened
from autoclave.runtime.databases.effects import TableEffect
from autoclave.runtime.databases.modes import KeptRows
from autoclave.runtime.interface import Json

_MOST_ROWS, _LONGEST_VALUE = 200, 500
_ROW_VALUE = re.compile(r'(?:"((?:[^"\\]|""|\\.)*)"|([^,"]*))(?:,|$)', re.DOTALL)
Cells = list[str | None]


def row_changes(action: str, receipt: Json, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the changes of each table. Raises InputError where its rows are not kept any more."""
    for table in KeptRows(folder).effect(action, receipt).tables:
        verb, columns, rows = _keys(table) if table.is_of_keys else _rows(table)
        yield {
            "kind": "rows",
            "verb": verb,
            "path": f"{receipt['database']}/{table.table}",
            "columns": columns,
            "rows": rows[:_MOST_ROWS],
            "left_out": max(0, len(rows) - _MOST_ROWS),
        }


def _rows(table: TableEffect) -> tuple[str, Sequence[str], list[dict[str, Any]]]:
    columns, rows = table.columns, list[dict[str, Any]]()
    came = {key: data for key, data in table.added if key}
    for key, data in table.removed:
        after = _cells(columns, came.pop(key)) if key in came else None
        rows.append({"key": key, "before": _cells(columns, data), "after": after})
    rest = [*came.items(), *((key, data) for key, data in table.added if not key)]
    rows += [{"key": key, "before": None, "after": _cells(columns, data)} for key, data in rest]
    return ", ".join(f"{number} {_PAST[verb]}" for verb, number in table.counts.items()), columns, rows


_PAST = {"create": "created", "modify": "changed", "delete": "deleted"}


def _keys(table: TableEffect) -> tuple[str, Sequence[str], list[dict[str, Any]]]:
    went, came = dict(table.removed), dict(table.added)
    rows = [
        {"key": key, "before": _content(went.get(key)), "after": _content(came.get(key))} for key in {**went, **came}
    ]
    return f"{len(rows)} keys", ["digest", "bytes", "expires at (ms since 1970)"], rows


def _content(image: Any) -> Cells | None:
    if image is None:
        return None
    digest, dump, end = image
    return [str(digest)[:12], f"{len(dump) * 4 // 5}", "never" if end < 0 else f"{end}"]


def _cells(columns: Sequence[str], data: Any) -> Cells:
    """Return the values in the image of a row as text, one for each column; None for NULL."""
    if isinstance(data, str):
        values: list[Any] = _values_of(data)
    elif len(data) == 2 and isinstance(data[1], list) and len(data[1]) == len(columns):
        values = cast("list[Any]", data[1])
    else:
        values = [*data]
    if len(values) != len(columns):
        values = [json.dumps(data), *[None] * (len(columns) - 1)]
    return [None if each is None else shortened(_text(each), _LONGEST_VALUE) for each in values]


def _text(value: Any) -> str:
    if isinstance(value, dict) and "b" in value:
        return f"{len(value['b']) // 2} bytes: {value['b'][:64]}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _values_of(row: str) -> list[str | None]:
    """Return the values in the text of a row as PostgreSQL writes it, such as `(1,"a b",)`."""
    found: list[str | None] = []
    text, place = row[1:-1], 0
    while place <= len(text):
        match = _ROW_VALUE.match(text, place)
        if match is None:
            return [row]
        quoted, plain = match[1], match[2]
        found.append(re.sub(r'""|\\(.)', lambda each: each[1] or '"', quoted) if quoted is not None else plain or None)
        if not match[0].endswith(","):
            break
        place = match.end()
    return found
