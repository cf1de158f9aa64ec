"""Images of rows written and read by SQL, so that no program of ours runs for each row.

SQLite's own functions write what a row holds as JSON: integers, texts and NULL as they are, blobs as `{"b": HEX}`.
Floats go through Python both ways, since the shortest text that gives the same 64 bits is Python's and not SQLite's; so
do keys that are no integers. A text that is no UTF-8 is `{"t": HEX}`; these are looked for where reading has failed.
"""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autoclave.runtime.databases.images import SEPARATOR
from autoclave.runtime.databases.sqlite.catalogue import TableMaker, key_in_words, quoted

if TYPE_CHECKING:
    import apsw

_ARGUMENTS = 100
"""How many a function is given at most."""
_ROWS_AT_ONCE = 10_000
Places: TypeAlias = "array[int] | list[str]"
"""Rows by their rowids; or by their keys, as JSON arrays."""


@contextlib.contextmanager
def equipped(connection: apsw.Connection) -> Generator[apsw.Connection]:
    """A connection that has the functions of the expressions below; statements of others never see them."""
    functions = {"real": _of_real, "float": float, "text": _of_text, "key": _key_of}
    for name, function in functions.items():
        connection.create_scalar_function(f"autoclave_{name}", function, 1, deterministic=True)
    try:
        yield connection
    finally:
        for name in functions:
            connection.create_scalar_function(f"autoclave_{name}", None, 1)


def _of_real(value: float) -> str:
    text = repr(value)
    return text.replace("inf", "9e999")  # which no float is, so that it is read as infinite


def _of_text(value: bytes) -> str:
    try:
        return json.dumps(value.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return json.dumps({"t": value.hex()})


def _key_of(values: str) -> str:
    return key_in_words(json.loads(values))


def coded(value: Any) -> Any:
    """A value as it stands in an image."""
    return {"b": value.hex()} if isinstance(value, bytes) else value


_T = TypeVar("_T")


def read_either_way(read: Callable[[bool], _T]) -> _T:
    """What is read where values are as they nearly always are; or else (`is_odd`) with a look at each of them."""
    import apsw

    try:
        return read(False)
    except (UnicodeDecodeError, apsw.SQLError):
        return read(True)


# --- Rows as images --------------------------------------------------------------------------------------------------


def image_of(table: TableMaker, *, is_odd: bool = False) -> str:
    """The image of the row `t`, as an expression; NULL where there is none.

    `is_odd`: whether columns may hold what their types do not foretell, and texts may be no UTF-8; it takes longer.
    """
    rowid = f"t.{table.rowid}" if table.has_rowid else "NULL"
    values = [
        rowid if number == table.alias else _coded(f"t.{quoted(name)}", "" if is_odd else table.affinity(number))
        for number, (name, *_) in enumerate(table.stored)
    ]
    image = _listed(
        [_key(table, [values[number] for number in table.key], is_odd=is_odd), _listed([rowid, _listed(values)])]
    )
    return f"iif({_is_missing(table)}, NULL, {image})"


def _is_missing(table: TableMaker) -> str:
    return f"t.{table.rowid if table.has_rowid else quoted(table.stored[table.key[0]][0])} IS NULL"


def _coded(value: str, affinity: str) -> str:
    """A value as JSON. `affinity`: what is foretold by the type of its column; empty: nothing, not even UTF-8.

    What is foretold wrongly fails, for JSON has no blobs, and is read otherwise then. No float is in a column of TEXT.
    """
    real = f"WHEN 'real' THEN json(autoclave_real({value}))"
    blob = f"WHEN 'blob' THEN json_object('b', lower(hex({value})))"
    match affinity:
        case "TEXT":
            return value
        case "NUMERIC":
            return f"CASE typeof({value}) {real} ELSE {value} END"
        case "BLOB":
            return f"CASE typeof({value}) {blob} {real} ELSE {value} END"
        case _:
            text = f"WHEN 'text' THEN json(autoclave_text(CAST({value} AS BLOB)))"
            return f"CASE typeof({value}) {blob} {real} {text} ELSE {value} END"


def _listed(values: Sequence[str]) -> str:
    """A JSON array of expressions."""
    parts = [values[start : start + _ARGUMENTS] for start in range(0, len(values), _ARGUMENTS)]
    arrays = [f"json_array({', '.join(part)})" for part in parts or [[]]]
    if len(arrays) == 1:
        return arrays[0]
    middle = " || ',' || ".join(f"rtrim(ltrim({each}, '['), ']')" for each in arrays)  # no value begins or ends so
    return f"json('[' || {middle} || ']')"


def _key(table: TableMaker, values: Sequence[str], *, is_odd: bool) -> str:
    """The key in words."""
    rowid, columns = f"t.{table.rowid}", [f"t.{quoted(table.stored[number][0])}" for number in table.key]
    if table.alias is not None:
        return f"CAST({rowid} AS TEXT)"
    if not columns:
        return f"'rowid ' || {rowid}"
    key = f"autoclave_key({_listed(values)})"
    if len(columns) == 1 and not is_odd:
        (one,) = columns
        key = (
            f"CASE WHEN typeof({one}) = 'integer' THEN CAST({one} AS TEXT) WHEN typeof({one}) = 'text' "
            f"AND {one} GLOB '[A-Za-z]*' AND {one} NOT GLOB 'rowid *' THEN {values[0]} ELSE {key} END"
        )
    if not table.has_rowid:
        return key
    return f"CASE WHEN {' OR '.join(f'{each} IS NULL' for each in columns)} THEN 'rowid ' || {rowid} ELSE {key} END"


def lines_at(connection: apsw.Connection, table: TableMaker, places: Places, *, is_odd: bool) -> Iterator[list[str]]:
    """The images of rows at some places, as many at a time as one can have; empty where there is no row."""
    import apsw

    if isinstance(places, array):
        source = f"carray(?) j LEFT JOIN main.{quoted(table.name)} t ON t.{table.rowid} = j.value"
    else:
        same = _same_key(table, [f"$[{number}]" for number in range(len(table.key))])
        source = f"jsonb_each(?) j LEFT JOIN main.{quoted(table.name)} t ON {same}"
    query = f"SELECT group_concat(coalesce({image_of(table, is_odd=is_odd)}, ''), ?) FROM {source}"
    for start in range(0, len(places), _ROWS_AT_ONCE):
        some = places[start : start + _ROWS_AT_ONCE]
        given = apsw.carray(some) if isinstance(some, array) else f"[{','.join(some)}]"
        ((text,),) = connection.execute(query, (SEPARATOR, given))
        yield text.split(SEPARATOR)


def all_lines(connection: apsw.Connection, table: TableMaker, *, is_odd: bool) -> list[str]:
    """The images of all rows."""
    query = f"SELECT group_concat({image_of(table, is_odd=is_odd)}, ?) FROM main.{quoted(table.name)} t"
    ((text,),) = connection.execute(query, (SEPARATOR,))
    return text.split(SEPARATOR) if text else []


# --- Images as rows --------------------------------------------------------------------------------------------------


def value_at(path: str) -> str:
    """A value out of the image `j.value`, as an expression."""
    return (
        f"CASE json_type(j.value, '{path}') WHEN 'real' THEN autoclave_float(j.value -> '{path}') "
        f"WHEN 'object' THEN coalesce(unhex(j.value ->> '{path}.b'), CAST(unhex(j.value ->> '{path}.t') AS TEXT)) "
        f"ELSE j.value ->> '{path}' END"
    )


ROWID = "j.value ->> '$[1][0]'"
"""The rowid out of the image `j.value`."""
_IS_BY_ROWID = "j.value ->> '$[0]' GLOB 'rowid *'"


def column_at(number: int) -> str:
    """A stored column out of the image `j.value`, as an expression."""
    return value_at(f"$[1][1][{number}]")


def matches(table: TableMaker) -> Iterator[tuple[str, str]]:
    """How the row `t` is found that has the key of the image `j.value`, and for which images so: two conditions."""
    if table.is_by_rowid:
        yield f"t.{table.rowid} = {ROWID}", "true"
        return
    if table.has_rowid:
        yield f"t.{table.rowid} = {ROWID}", _IS_BY_ROWID
    yield _same_key(table, [f"$[1][1][{number}]" for number in table.key]), f"NOT {_IS_BY_ROWID}"


def _same_key(table: TableMaker, paths: Sequence[str]) -> str:
    names = [quoted(table.stored[number][0]) for number in table.key]
    return " AND ".join(f"t.{name} = {value_at(path)}" for name, path in zip(names, paths, strict=True))
