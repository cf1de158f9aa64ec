"""Actions on a real Kinto are taken back, as another client of it sees; others' changes are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import Reader, done

S = ActionState
CHANGES: list[dict[str, Any]] = [
    {"operation": "create_record", "body": {"data": {"title": "new"}}},
    {"operation": "put_record", "id": "own-id", "body": {"data": {"title": "new"}}},
    {"operation": "put_record", "id": "one", "body": {"data": {"title": "other"}}},
    {"operation": "patch_record", "id": "one", "body": {"data": {"more": [1, {"a": None}], "title": "other"}}},
    {"operation": "delete_record", "id": "one"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: f"{each['operation']}-{each.get('id', '')}")
def test_what_was_done_is_taken_back_done_again_and_taken_back(
    session: Session, reader: Reader, change: dict[str, Any]
):
    reader.put("one", title="first", tags=["a", "b"])
    reader.put("two", title="second")
    before = reader.records()
    action = done(session, bucket=reader.bucket, collection="notes", **change)
    after = reader.records()
    assert after != before
    assert session.undo(action) == [action]
    assert reader.records() == before
    assert session.journal.standing(action).state is S.UNDONE
    session.redo(action)
    assert reader.records() == after
    session.undo(action)
    assert reader.records() == before
    assert session.audit() == []
