"""An action as the page shows it: its proposal, its records, and what it changed. Reads only, beside any session."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from autoclave.act.functions import FunctionManager
from autoclave.core import InputError
from autoclave.review.answers import pretty
from autoclave.review.file_changes import FileChanges, without_secrets
from autoclave.review.request_changes import request_changes
from autoclave.review.row_changes import row_changes
from autoclave.runtime.actions import Actions
from autoclave.runtime.files.difference import Found
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.interface import Json
from autoclave.runtime.journal import Standing
from autoclave.runtime.records import Record
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
