"""An action as the page shows it: its proposal, its records, and what it changed. Reads only, beside any session.

Changes of files are in `file_changes`. Requests are as the journal has them: a key is put in when one is sent, and
taken out of its answer. Each engine keeps rows in its own form: values (SQLite after the rowid), the text of a row
(PostgreSQL), or the content of a key (Redis).
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from autoclave.act.functions import FunctionManager
from autoclave.core import InputError
from autoclave.core.line_diff import Work
from autoclave.review.answers import pretty, shortened
from autoclave.review.file_changes import FileChanges, without_secrets
from autoclave.review.line_diff import compared, text_of
from autoclave.runtime.actions import Actions
from autoclave.runtime.databases.effects import TableEffect
from autoclave.runtime.databases.modes import KeptRows
from autoclave.runtime.files.difference import Found
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.interface import Json
from autoclave.runtime.journal import Standing
from autoclave.runtime.records import Record
from autoclave.runtime.rest.notes import Notes
from autoclave.runtime.rest.parts import Part, part_from
from autoclave.runtime.states import STANDING, ActionState

_S = ActionState
_LONGEST_RECORD = 4000
_NOTHING = {
    _S.COMMITTED: "It is permanent: what it replaced is no longer kept, so its changes cannot be shown.",
    _S.READ: "It only read.",
    _S.FAILED: "It was not done.",
}


def details_of(actions: Actions, root: Path, place: Path, action: str) -> dict[str, Any]:
    """Return an action with its changes. `place` is the state folder. Raises UsageError where there is none."""
    standing = actions.journal.standing(action)
    told = {
        "action": action,
        "operation": pretty(without_secrets(standing.proposed["operation"])),
        "note": "",
        "changes": [],
    }
    try:
        if standing.state in _NOTHING:
            told["note"] = _NOTHING[standing.state]
        else:
            told["changes"] = list(_changes(actions, root, place, standing))
    except (InputError, KeyError, ValueError) as error:  # not kept, of a manager of another package, or damaged
        told["note"] = f"Its changes cannot be shown: {error}" if isinstance(error, InputError) else _UNKNOWN
    return {**told, "records": list(map(_shown, actions.journal.records(action)))}


def _shown(record: Record) -> dict[str, Any]:
    body = dict(record.body)
    if isinstance(operation := body.get("operation"), dict):
        body["operation"] = without_secrets(cast("dict[str, Any]", operation))
    return {"number": record.number, "at": record.at, "kind": record.kind, "body": pretty(body, _LONGEST_RECORD)}


_UNKNOWN = "Its changes cannot be shown: it has no receipt of a kind that this page knows."


def image_of(actions: Actions, root: Path, place: Path, action: str, index: int, side: str) -> Found:
    """Return one side of a changed image. Raises InputError where there is none."""
    standing = actions.journal.standing(action)
    receipt, number, is_done = _receipt(actions, standing)
    if receipt is None or "steps" not in receipt:
        raise InputError(f"action {action}: changed no image")
    with Scope(root) as scope:
        files = FileChanges(actions, scope, place / "stash")
        return files.image(action, receipt, number, index, side, is_done=is_done)


def _receipt(actions: Actions, standing: Standing) -> tuple[Json | None, int, bool]:
    """Return the receipt of an action or its plan, the record that the tree was left by, and whether it stands."""
    if standing.state in (_S.PROPOSED, _S.APPROVED):
        return standing.proposed.get("kept"), standing.number, False
    record = actions.last_record(standing.action, (_S.EXECUTED, _S.REDONE, _S.EXECUTING))
    is_done = standing.state in STANDING
    return record.body, record.number if is_done else standing.number, is_done


def _changes(actions: Actions, root: Path, place: Path, standing: Standing) -> Iterator[dict[str, Any]]:
    action = standing.action
    receipt, number, is_done = _receipt(actions, standing)
    if receipt is None or "steps" in receipt:
        with Scope(root) as scope:
            files = FileChanges(actions, scope, place / "stash")
            if receipt is None:
                yield from files.of_proposal(standing.proposed["operation"])
            else:
                yield from files.of_receipt(action, receipt, number, is_done=is_done)
                for words in receipt.get("left_out", ()):
                    yield {"kind": "words", "verb": "not restored by an undo", "path": words}
    elif "images" in receipt:
        yield from row_changes(action, receipt, place / "databases")
    elif "part" in receipt:
        yield from request_changes(action, receipt, place / "services")
    elif (operation := receipt.get("operation", {})).get("do") == "call":
        note = FunctionManager().obstacle(action, receipt)
        result = f"returned {json.dumps(receipt['result'], ensure_ascii=False)[:300]}" if "result" in receipt else ""
        yield {"kind": "words", "verb": "called", "path": operation["function"], "after": result, "note": note}


def request_changes(action: str, receipt: Json, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the request and the difference it made. Raises InputError where they are not kept any more."""
    part = part_from(Notes(folder).recalled(action, receipt["part"]))
    yield {
        "kind": "request",
        "verb": part.operation or "request",
        "path": f"{receipt['service']}: {part.call.method} {part.call.target}",
        "headers": [[name, value] for name, value in part.call.headers.items()],
        "body": "" if part.call.body is None else pretty(part.call.body),
        "answer": _answer(part),
    }
    if part.before is not None or part.after is not None:
        before, after = (_text(each.body) if each and each.is_there else "" for each in (part.before, part.after))
        change = {"verb": "resource", "path": part.subject.target if part.subject else part.call.target}
        if None in [text_of(each.encode("utf-8", "backslashreplace")) for each in (before, after)]:
            yield {
                **change,
                "kind": "words",
                "before": f"{len(before)} characters",
                "after": f"{len(after)} characters",
            }
        else:
            yield {**change, "kind": "text", **compared(before, after, Work())}


def _answer(part: Part) -> dict[str, Any] | None:
    if part.answer is None:
        return None
    body = "" if part.answer.body is None else pretty(part.answer.body)
    return {"status": part.answer.status, "headers": [[*each] for each in part.answer.headers.items()], "body": body}


def _text(body: Any) -> str:
    text = body if isinstance(body, str) else json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False)
    return text if text.endswith("\n") else f"{text}\n"


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
    return [None if each is None else shortened(_cell_text(each), _LONGEST_VALUE) for each in values]


def _cell_text(value: Any) -> str:
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
