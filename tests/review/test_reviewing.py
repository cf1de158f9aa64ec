"""The page shows what was done, also while it is done, and undoes exactly what it announced."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import autoclave.act as act
from autoclave.act import functions
from autoclave.act.observer import Observer, ToolUse
from autoclave.core import InputError
from autoclave.review.timeline import Timeline
from autoclave.runtime.actions import Actions
from autoclave.runtime.journal import Journal
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.states import ActionState

from .conftest import Reviewed, png

NOTES = {"do": "write", "path": "notes.txt", "content": "one\n2\nthree\n"}
MORE = {"do": "append", "path": "notes.txt", "content": "four\n"}
OTHER = {"do": "write", "path": "other.txt", "content": "x\n"}


# --- History --------------------------------------------------------------------------------------------------------


def test_the_history_has_every_action_with_session_state_guarantee_and_what_can_be_asked_for(reviewed: Reviewed):
    (first,) = reviewed.run(NOTES, name="one", by="gpt")
    with reviewed.session("two") as session:
        proposed = session.propose(OTHER).action
        session.savepoint("here")
    told = reviewed.get("timeline")
    assert [
        (line["action"], line["session"], line["state"], line["guarantee"], line["can"]) for line in told["actions"]
    ] == [
        (first, "one", "executed", "exact", ["undo", "commit"]),
        (proposed, "two", "proposed", "exact", ["discard"]),
    ]
    assert told["actions"][0]["summary"] == "write 'notes.txt'"
    assert told["actions"][0]["by"] == "gpt"
    assert [each["name"] for each in told["savepoints"]] == ["here"]
    assert told["root"] == str(reviewed.root)


def test_groups_are_those_of_act_list(reviewed: Reviewed):
    reviewed.run(NOTES, OTHER)
    with reviewed.session() as session:
        session.savepoint("between")
    reviewed.run(MORE, {**OTHER, "path": "third.txt"}, MORE)
    with reviewed.session() as session:
        expected = session.actions.groups()
    assert [len(group) for group in expected] == [2, 2, 1]
    assert reviewed.get("timeline")["groups"] == expected


def test_groups_stay_those_of_act_list_whatever_is_done_and_undone(tmp_path: Path):
    timeline, done = Timeline(), list[str]()
    with Journal(tmp_path / "journal", tmp_path / "checkpoints") as journal:
        actions = Actions(journal, [])
        for step in ("1", "2", "1", "3", "1", "undo 2", "savepoint", "4", "5", "undo 0", "4", "none 6", "7", "undo 7"):
            word, _, number = step.rpartition(" ")
            if step == "savepoint":
                journal.append("savepoint", "s", {})
            elif word == "undo":
                journal.advance(done[int(number)], ActionState.UNDOING)
                journal.advance(done[int(number)], ActionState.UNDONE)
            else:
                done.append(f"{len(done):08x}")
                operation = {"do": "delete", "path": number}
                journal.advance(done[-1], ActionState.PROPOSED, {"operation": operation, "guarantee": word or "exact"})
                journal.advance(done[-1], ActionState.APPROVED)
                journal.advance(done[-1], ActionState.EXECUTING)
                journal.advance(done[-1], ActionState.EXECUTED, {"reads": [], "writes": [f"files/{number}"]})
            assert timeline.since(0, journal)["groups"] == actions.groups()


def test_a_queued_action_says_for_how_long(tmp_path: Path):
    with Journal(tmp_path / "journal", tmp_path / "checkpoints") as journal:
        journal.advance("0", ActionState.PROPOSED, {"operation": {"do": "delete", "path": "x"}, "guarantee": "none"})
        journal.advance("0", ActionState.APPROVED, {"delay_s": 60.0})
        (line,) = Timeline().since(0, journal)["actions"]
    assert (line["reason"], line["can"]) == ("queued for 60 s; until then it can be discarded", ["discard"])


def test_changes_of_another_process_arrive_while_it_works(reviewed: Reviewed):
    reviewed.run(OTHER)
    number = reviewed.get("timeline")["number"]
    with reviewed.session() as session:
        assert "actions" not in reviewed.get(f"timeline?after={number}")
        proposal = session.propose(NOTES)
        told = reviewed.get(f"timeline?after={number}")
        assert [line["state"] for line in told["actions"]] == ["proposed"]
        session.run(proposal.action, proposal.plan.digest)
        told = reviewed.get(f"timeline?after={told['number']}")
        assert [line["state"] for line in told["actions"]] == ["executed"]
        assert not told["is_whole"]
    assert reviewed.get("timeline?after=999999")["is_whole"]


def test_what_the_policy_denied_is_told_with_what_would_permit_it(reviewed: Reviewed):
    with reviewed.session() as session:
        session.permissions.revoke(session.permissions.grants()[0].id)
        with pytest.raises(InputError):
            session.propose(NOTES)
    (note,) = (each for each in reviewed.get("timeline")["notes"] if each["kind"] == "denied")
    assert "'files/notes.txt' is not permitted" in note["text"]
    assert "autoclave act grant" in note["text"]


def test_the_verdict_on_the_journal_names_the_first_damaged_record(reviewed: Reviewed):
    reviewed.run(NOTES)
    assert reviewed.get("audit")["findings"] == []
    with contextlib.closing(sqlite3.connect(reviewed.state / "journal.sqlite")) as connection:
        connection.executescript(
            "DROP TRIGGER no_update; UPDATE records SET body = replace(body, 'notes', 'other') WHERE kind = 'proposed'"
        )
        connection.commit()
    damages = {each["damage"] for each in reviewed.get("audit")["findings"]}
    assert "broken" in damages


# --- Changes --------------------------------------------------------------------------------------------------------


def test_a_text_is_compared_line_by_line(reviewed: Reviewed):
    (action,) = reviewed.run(NOTES)
    (change,) = reviewed.changes(action)
    assert (change["kind"], change["verb"], change["path"]) == ("text", "changed", "notes.txt")
    assert change["lines"] == [
        [" ", 1, 1, "one"],
        ["-", 2, None, "two"],
        ["+", None, 2, "2"],
        [" ", 3, 3, "three"],
    ]


def test_a_change_is_what_that_action_did_whatever_came_later(reviewed: Reviewed):
    first, second = reviewed.run(NOTES, MORE)
    moved, _ = reviewed.run(
        {"do": "move", "path": "notes.txt", "to": "moved.txt"}, {**NOTES, "path": "moved.txt", "content": "new"}
    )
    expected = [["-", 2, None, "two"], ["+", None, 2, "2"]]
    assert [line for line in reviewed.changes(first)[0]["lines"] if line[0] != " "] == expected
    assert [line for line in reviewed.changes(second)[0]["lines"] if line[0] != " "] == [["+", None, 4, "four"]]
    assert [(each["verb"], each["path"], each["after"]) for each in reviewed.changes(moved)] == [
        ("renamed", "notes.txt", "moved.txt")
    ]


def test_of_a_new_folder_exactly_the_files_that_the_action_made_are_shown(reviewed: Reviewed):
    (first,) = reviewed.run({"do": "write", "path": "new/deep/a.txt", "content": "a\n"})
    later = [{"do": "write", "path": f"new/{name}", "content": "later\n"} for name in ("b.txt", "deep/a.txt")]
    moves = [
        {"do": "move", "path": "new/deep/a.txt", "to": "new/c.txt"},
        {"do": "delete", "path": "new", "recursive": True},
    ]
    for operation in (None, *later, *moves):
        if operation:
            reviewed.run(operation)
        (change,) = reviewed.changes(first)
        assert (change["verb"], change["path"], change["lines"]) == ("created", "new/deep/a.txt", [["+", None, 1, "a"]])


def test_an_undone_action_shows_the_change_that_a_redo_would_make(reviewed: Reviewed):
    (action,) = reviewed.run(NOTES)
    expected = reviewed.changes(action)
    reviewed.post("undo", actions=[action])
    assert reviewed.changes(action) == expected


def test_a_later_change_of_another_program_is_pointed_out(reviewed: Reviewed):
    (action,) = reviewed.run(NOTES)
    assert "note" not in reviewed.changes(action)[0]
    (reviewed.root / "notes.txt").write_text("edited\n")
    assert "Another program has changed it since" in reviewed.changes(action)[0]["note"]


def test_a_proposal_shows_what_it_would_change(reviewed: Reviewed):
    with reviewed.session() as session:
        edit = {"do": "edit", "path": "notes.txt", "old_string": "two", "new_string": "2\n2"}
        deletion = {"do": "delete", "path": "notes.txt"}
        actions = [session.propose(each).action for each in (NOTES, MORE, edit, deletion)]
    changes = [reviewed.changes(action)[0] for action in actions]
    assert [(each["verb"], each["added"], each["removed"]) for each in changes] == [
        ("changed", 1, 1),
        ("changed", 1, 0),
        ("changed", 2, 1),
        ("deleted", 0, 3),
    ]


def test_rows_are_told_by_their_columns_before_and_after(reviewed: Reviewed):
    statements = [
        "UPDATE item SET price = 3 WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "INSERT INTO item VALUES (9, NULL, 1, NULL)",
    ]
    (action,) = reviewed.run({"do": "sql", "database": "shop", "statements": statements})
    (change,) = reviewed.changes(action)
    assert (change["kind"], change["path"]) == ("rows", "shop/main/item")
    assert change["columns"] == ["id", "name", "price", "picture"]
    assert change["rows"] == [
        {"key": "1", "before": ["1", "tea", "2.5", "2 bytes: 00ff"], "after": ["1", "tea", "3.0", "2 bytes: 00ff"]},
        {"key": "2", "before": ["2", "milk", None, None], "after": None},
        {"key": "9", "before": None, "after": ["9", None, "1.0", None]},
    ]


def test_an_image_is_shown_before_and_after(shared: Reviewed):
    (action,) = (name for name, line in shared.lines().items() if "logo.png" in line["summary"])
    (change,) = shared.changes(action)
    assert (change["kind"], change["has"]) == ("image", [True, True])
    for side, color in (("before", (200, 0, 0)), ("after", (0, 0, 200))):
        answer = shared.client.get(f"/api/actions/{action}/images/{change['index']}/{side}")
        assert answer.headers["content-type"] == "image/png"
        assert answer.content == png(color)
    assert shared.client.get(f"/api/actions/{action}/images/7/after").status_code == 409


def test_what_browsers_would_run_is_no_image(reviewed: Reviewed):
    (action,) = reviewed.run({"do": "write", "path": "a.svg", "content": "<svg onload='alert(1)'></svg>"})
    assert reviewed.changes(action)[0]["kind"] == "text"
    assert reviewed.client.get(f"/api/actions/{action}/images/0/after").status_code == 409


def test_bytes_folders_links_and_modes_are_told_in_words(reviewed: Reviewed):
    (reviewed.root / "old/deep").mkdir(parents=True)
    (reviewed.root / "old/deep/file").write_text("x")
    binary, folder, link, mode = reviewed.run(
        {"do": "write", "path": "raw", "content_base64": "AAEC"},
        {"do": "delete", "path": "old", "recursive": True},
        {"do": "make_link", "path": "latest", "target": "raw"},
        {"do": "set_mode", "path": "raw", "mode": 0o600},
    )
    assert reviewed.changes(binary)[0]["after"] == "3 bytes"
    assert [(each["verb"], each["path"], each["removed"]) for each in reviewed.changes(folder)] == [
        ("deleted", "old/deep/file", 1)
    ]
    assert reviewed.changes(link)[0]["after"] == "a link to 'raw'"
    assert reviewed.changes(mode)[0]["facts"] == [["mode", "644", "600"]]


def test_a_command_shows_the_changes_that_it_made(reviewed: Reviewed, sealing_host: None):
    line = "sed -i s/two/2/ notes.txt; echo new > made.txt"
    (action,) = reviewed.run({"do": "run", "command": ["sh", "-c", line]})
    assert {(each["path"], each["verb"], each["added"]) for each in reviewed.changes(action)} == {
        ("made.txt", "created", 1),
        ("notes.txt", "changed", 1),
    }


def test_what_the_tool_of_an_observed_agent_changed_is_shown_and_undone(reviewed: Reviewed):
    with Observer(reviewed.root, reviewed.state) as observer:
        use = ToolUse("1", "Bash", "make", "s")
        observer.before(use)
        (reviewed.root / "notes.txt").write_text("one\nmade\nthree\n")
        action, _ = observer.after(use)
    assert reviewed.lines()[action]["summary"] == "Bash 'make'"
    (change,) = reviewed.changes(action)
    assert [line for line in change["lines"] if line[0] != " "] == [["-", 2, None, "two"], ["+", None, 2, "made"]]
    reviewed.post("undo", actions=[action])
    assert (reviewed.root / "notes.txt").read_text() == "one\ntwo\nthree\n"


def test_a_call_of_a_function_says_that_only_its_program_can_undo_it(
    reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(functions, "_KNOWN", {})

    @act.reversible(undo=lambda arguments, result: None)
    def create_customer(name: str) -> int:
        return 7

    @act.reversible()
    def send_mail(to: str) -> None: ...

    allowed: list[Any] = [{"resources": ["functions/**"], "minimum_guarantee": "none"}]
    offered = [create_customer, send_mail]
    with act.session(reviewed.root, reviewed.state, functions=offered, allow=allowed) as session:
        call = session.call("create_customer", {"name": "Ann"}).action
        mail = session.call("send_mail", {"to": "Ann"}).action
    monkeypatch.setattr(functions, "_KNOWN", {})
    only = f"only the program that defines 'create_customer' can undo and redo its calls, with session.undo('{call}')"
    no_undo = "the function has no undo"
    (change,) = reviewed.changes(call)
    told = [change[name] for name in ("verb", "path", "after", "note")]
    assert told == ["called", "create_customer", "returned 7", only]
    assert reviewed.changes(mail)[0]["note"] == no_undo
    previewed = reviewed.post("preview", actions=[call, mail])["obstacles"]
    assert previewed == [{"action": mail, "reason": no_undo}, {"action": call, "reason": only}]
    assert reviewed.post("commit", actions=[mail])["done"] == [mail]
    assert only in reviewed.post("undo", 409, actions=[call])["error"]


@pytest.mark.parametrize(
    ("path", "content"),
    [(".env", "TOKEN=s3cret\n"), ("plain", "-----BEGIN PRIVATE KEY-----\ns3cret\n"), ("a.key", "s3cret")],
)
def test_files_with_keys_are_named_but_not_shown(reviewed: Reviewed, path: str, content: str):
    (action,) = reviewed.run({"do": "write", "path": path, "content": content})
    told = json.dumps(reviewed.get(f"actions/{action}"))
    assert "s3cret" not in told
    assert "may hold keys or passwords" in told
    assert f"{len(content)} bytes" in told


def test_a_committed_action_says_that_its_changes_are_not_kept(reviewed: Reviewed):
    (action,) = reviewed.run(NOTES)
    reviewed.post("commit", actions=[action])
    told = reviewed.get(f"actions/{action}")
    assert (told["changes"], "no longer kept" in told["note"]) == ([], True)
    assert [each["kind"] for each in told["records"]] == ["proposed", "approved", "executing", "executed", "committed"]


def test_large_content_is_cut(reviewed: Reviewed):
    many = "".join(f"{number}\n" for number in range(20_000))
    large, wide = reviewed.run({**NOTES, "content": many}, {**OTHER, "content": "x" * 100_000})
    assert reviewed.changes(large)[0]["after"] == f"{len(many)} bytes"
    assert len(reviewed.client.get(f"/api/actions/{wide}").content) < 60_000


def test_of_many_long_changes_the_first_are_compared(reviewed: Reviewed):
    (reviewed.root / "old").mkdir()
    for number in range(9):
        (reviewed.root / f"old/{number}").write_text("line\n" * 700)
    (action,) = reviewed.run({"do": "delete", "path": "old", "recursive": True})
    changes = reviewed.changes(action)
    assert [each["kind"] for each in changes] == ["text"] * 5 + ["words"] * 4
    assert (changes[-1]["before"], "Not compared" in changes[-1]["note"]) == ("3500 bytes", True)


def test_names_and_content_cannot_reorder_or_hide_text(shared: Reviewed):
    action = list(shared.lines())[-1]
    answer = shared.client.get(f"/api/actions/{action}").json()
    (change,) = answer["changes"]
    assert change["lines"][1][3] == "\\u202e\\x1b[31m"
    for each in ("timeline", f"actions/{action}"):
        text = json.dumps(shared.get(each), ensure_ascii=False)
        assert not {character for character in text if not character.isprintable()}


def test_a_name_that_is_not_utf_8_is_shown_and_its_conflict_can_be_decided(reviewed: Reviewed):
    name = "odd \udcff\nname"
    (action,) = reviewed.run({**OTHER, "path": name})
    (change,) = reviewed.changes(action)
    assert change["path"] == "odd \\udcff\nname"
    (reviewed.root / name).write_text("edited")
    (conflict,) = reviewed.post("preview", actions=[action])["conflicts"]
    reviewed.post("undo", actions=[action], choices={conflict["key"]: "force"})
    assert not (reviewed.root / name).exists()


# --- Deciding -------------------------------------------------------------------------------------------------------


def test_a_preview_names_dependents_and_the_undo_takes_exactly_those(reviewed: Reviewed):
    first, second, other = reviewed.run(NOTES, MORE, OTHER)
    told = reviewed.post("preview", actions=[first])
    assert (told["actions"], told["dependents"], told["guarantee"]) == ([second, first], [second], "exact")
    assert (told["obstacles"], told["conflicts"], told["unchecked"]) == ([], [], "")
    (third,) = reviewed.run({**MORE, "content": "five\n"})
    assert third in reviewed.post("undo", 409, actions=told["actions"])["error"]  # it came after the preview
    told = reviewed.post("preview", actions=[first])
    assert reviewed.post("undo", actions=told["actions"])["done"] == [third, second, first]
    assert (reviewed.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert reviewed.lines()[other]["state"] == "executed"


def test_an_undo_to_a_savepoint_takes_what_its_preview_named(reviewed: Reviewed):
    reviewed.run(OTHER)
    reviewed.post("savepoints", name="before")
    done = reviewed.run(NOTES, MORE)
    told = reviewed.post("preview", savepoint="before")
    assert told["actions"] == done[::-1]
    (late,) = reviewed.run({**OTHER, "path": "late"})
    assert "preview again" in reviewed.post("undo", 409, actions=told["actions"], savepoint="before")["error"]
    assert reviewed.post("undo", actions=[late, *done], savepoint="before")["done"] == [late, *done[::-1]]
    assert (reviewed.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert reviewed.post("preview", 404, savepoint="nowhere")


@pytest.mark.parametrize(
    ("choice", "left"),
    [("skip", {"notes.txt": "edited\n"}), ("force", {"notes.txt": "one\ntwo\nthree\n"}), ("save_aside", None)],
)
def test_what_others_changed_is_decided_by_a_person(reviewed: Reviewed, choice: str, left: dict[str, str] | None):
    first, other = reviewed.run(NOTES, OTHER)
    (reviewed.root / "notes.txt").write_text("edited\n")
    told = reviewed.post("preview", actions=[first, other])
    (conflict,) = told["conflicts"]
    assert (conflict["action"], conflict["name"]) == (first, "notes.txt")
    assert "notes.txt" in reviewed.post("undo", 409, actions=told["actions"])["error"]
    assert (reviewed.root / "notes.txt").read_text() == "edited\n"
    reviewed.post("undo", actions=told["actions"], choices={conflict["key"]: choice})
    assert not (reviewed.root / "other.txt").exists()
    texts = {path.name: path.read_text() for path in reviewed.root.glob("notes*")}
    if left is None:
        assert sorted(texts.values()) == ["edited\n", "one\ntwo\nthree\n"]
    else:
        assert texts == left


def test_redo_commit_and_discard_go_as_far_as_they_can(reviewed: Reviewed):
    first, second = reviewed.run(NOTES, OTHER)
    assert reviewed.post("undo", actions=[first, second])["done"] == [second, first]
    assert reviewed.post("redo", actions=[first, second]) == {"done": [first, second], "error": ""}
    told = reviewed.post("commit", actions=[first, first])
    assert told["done"] == [first]
    assert "is committed, so it cannot become committed" in told["error"]
    with reviewed.session() as session:
        proposed = session.propose({**OTHER, "path": "third"}).action
    reviewed.post("discard", actions=[proposed])
    assert [line["state"] for line in reviewed.lines().values()] == ["committed", "redone", "failed"]


def test_an_action_in_doubt_is_resolved_with_a_reason(reviewed: Reviewed):
    (action,) = reviewed.run(NOTES)
    with reviewed.session() as session:
        session.journal.advance(action, ActionState.UNDOING)
        session.journal.advance(action, ActionState.UNDO_IN_DOUBT, {"reason": "a test says so"})
    line = reviewed.lines()[action]
    assert (line["can"], line["settles"], line["reason"]) == (["resolve"], ["undone", "undo_failed"], "a test says so")
    assert reviewed.post("resolve", action=action, state="undo_failed", reason="I looked")["state"] == "undo_failed"
    assert reviewed.lines()[action]["reason"] == "I looked"
    assert reviewed.get(f"actions/{action}")["records"][-1]["body"] == '{\n  "resolved": "I looked"\n}'
    assert (
        "only an action in doubt" in reviewed.post("resolve", 409, action=action, state="undone", reason="x")["error"]
    )


def test_grants_of_all_sessions_are_listed_and_revoked(reviewed: Reviewed):
    with reviewed.session("other") as session:
        grant = Grant(resources=("files/other/**",), verbs=("read",), session="other")
        session.permissions.grant(grant)
        told = reviewed.get("grants")
        assert [(each["id"], each["session"]) for each in told["grants"]][1:] == [(grant.id, "other")]
        assert told["notes"]
        reviewed.post("revoke", grant=grant.id)  # beside the session, which takes it over
        assert grant.id not in [each.id for each in session.permissions.grants()]
    assert reviewed.post("revoke", 404, grant=grant.id)


def test_a_running_session_is_stopped_from_the_page(reviewed: Reviewed):
    with reviewed.session() as session:
        (denial,) = reviewed.post("stop")["done"]
        with pytest.raises(InputError, match="not permitted"):
            session.propose(NOTES)
        reviewed.post("revoke", grant=denial)
        session.propose(NOTES)


def test_beside_a_running_session_a_preview_says_what_it_could_not_check_and_nothing_is_undone(reviewed: Reviewed):
    (action,) = reviewed.run(NOTES)
    with reviewed.session():
        told = reviewed.post("preview", actions=[action])
        assert told["actions"] == [action]
        assert "another session works on it" in told["unchecked"]
        assert "another session works on it" in reviewed.post("undo", 409, actions=[action])["error"]
    assert reviewed.lines()[action]["state"] == "executed"
    assert reviewed.post("undo", actions=[action])["done"] == [action]


def test_a_redo_that_is_no_longer_permitted_says_what_would_permit_it(reviewed: Reviewed):
    (action,) = reviewed.run(NOTES)
    reviewed.post("undo", actions=[action])
    for grant in reviewed.get("grants")["grants"]:
        reviewed.post("revoke", grant=grant["id"])
    assert "Permitted by: autoclave act grant" in reviewed.post("redo", 409, actions=[action])["error"]
