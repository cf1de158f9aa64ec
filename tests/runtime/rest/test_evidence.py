"""What somebody else does while a request is lost is never taken for ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import Reader, asked, connection, opened, secret
from tests.runtime.rest.faulty_proxy import Fault, FaultyProxy
from tests.runtime.rest.test_in_doubt import done_or_said

S = ActionState


def lost_while(proxy: FaultyProxy, method: str, act: Any) -> None:
    """The next request with a method does not reach the service; somebody else acts in its place."""
    left = [act]

    def choose(given: str, path: str) -> Fault:
        if given == method and left:
            left.pop()()
            return "cut_before"
        return "none"

    proxy.choose = choose


@pytest.mark.parametrize(
    ("operation", "method", "given", "first", "theirs"),
    [
        ("put_record", "PUT", {"title": "ours"}, None, {"title": "ours", "body": "theirs"}),
        ("put_record", "PUT", {}, None, {"wholly": "different"}),
        ("put_record", "PUT", {"title": "ours"}, {"title": "first"}, {"title": "ours", "tags": ["theirs"]}),
        ("patch_record", "PATCH", {"a": 2}, {"a": 1, "b": 1}, {"a": 2, "b": "theirs", "c": "theirs"}),
        ("patch_record", "PATCH", {"a": 2}, {"a": 1, "b": 1}, {"a": 2}),
        ("delete_record", "DELETE", None, {"a": 1}, None),
        ("delete_record", "DELETE", None, {"a": 1}, {"a": 1}),
    ],
    ids=[
        "more than ours",
        "all else",
        "more in place",
        "more of a change",
        "less of a change",
        "deleted",
        "the same again",
    ],
)
def test_what_somebody_else_did_meanwhile_is_in_doubt_and_stays(
    shaky: Session, reader: Reader, proxy: FaultyProxy, operation: str, method: str, given: Any, first: Any, theirs: Any
):
    if first is not None:
        reader.put("one", **first)
    lost_while(proxy, method, lambda: reader.delete("one") if theirs is None else reader.put("one", **theirs))
    place = {**reader.where, "id": "one"}
    proposal = shaky.propose(asked(operation, **place, **({} if given is None else {"body": {"data": given}})))
    with pytest.raises(InputError, match="nothing proves by whom"):
        shaky.run(proposal.action, proposal.plan.digest)
    assert shaky.journal.standing(proposal.action).state is S.IN_DOUBT
    with pytest.raises(InputError, match="undone"):
        shaky.undo(proposal.action)
    assert reader.records() == ({} if theirs is None else {"one": theirs})


@pytest.mark.parametrize("is_race", [True, False])
def test_a_record_that_was_there_is_not_taken_over_by_one_of_the_same_id(
    proxy: FaultyProxy, reader: Reader, tmp_path: Path, is_race: bool
):
    def somebody_else(method: str) -> None:
        if method == "POST":
            reader.put("shared", title="theirs")

    if is_race:
        proxy.before_forwarding = somebody_else
    else:
        somebody_else("POST")
    body = {"data": {"id": "shared", "title": "ours"}}
    given = asked("create_record", **reader.where, body=body)
    with opened(tmp_path, {"kinto": connection(proxy.port, queue_s=0.0)}, secret(proxy.port)) as session:
        assert done_or_said(session, given)[1] is S.FAILED
    assert reader.records() == {"shared": {"title": "theirs"}}
