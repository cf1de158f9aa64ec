"""`autoclave act`, as it is used: operations in a file, done, listed, taken back; and mistakes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.opening import open_session


@pytest.fixture
def act(forked, tmp_path: Path):
    """act(words...): the command on the folder `project`."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/notes.txt").write_text("one\n")

    def run(*words: str, **options: Any):
        return forked("act", *words, "--root", "project", **options)

    assert run("grant", "files/**", "programs/**").returncode == 0
    return run


def operations(folder: Path, *given: dict[str, Any]) -> str:
    (folder / "changes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in given))
    return "changes.jsonl"


WRITE = {"do": "write", "path": "notes.txt", "content": "two\n"}
MAKE = {"do": "make_folder", "path": "made/here"}
MOVE = {"do": "move", "path": "notes.txt", "to": "made/notes.txt"}


def test_what_a_file_says_is_done_and_taken_back(act, tmp_path: Path):
    done = act("run", operations(tmp_path, WRITE, MAKE, MOVE))
    assert done.returncode == 0, done.stderr
    first, second, third = (line.split()[0] for line in done.stdout.splitlines())
    assert (tmp_path / "project/made/notes.txt").read_text() == "two\n"
    listed = act("list").stdout
    assert [line.split()[:2] for line in listed.splitlines()] == [[name, "executed"] for name in (first, second, third)]
    assert "move 'notes.txt' -> 'made/notes.txt'" in listed
    refused = act("undo", first)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert third in refused.stderr
    undone = act("undo", first, "--dependents")
    assert [line.split()[1] for line in undone.stdout.splitlines()] == [third, first]
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"
    assert act("redo", first).returncode == 0
    assert (tmp_path / "project/notes.txt").read_text() == "two\n"
    assert act("commit", first, second).returncode == 0
    told = [json.loads(line) for line in act("list", "--json").stdout.splitlines()]
    assert [each["state"] for each in told] == ["committed", "committed", "undone"]
    kinds = [json.loads(line)["kind"] for line in act("show", first).stdout.splitlines()]
    steps = "proposed approved executing executed undoing undone redoing redone committed"
    assert kinds == steps.split(" ")
    assert "as they were written" in act("audit", "verify").stdout


def test_a_plan_changes_and_records_nothing(act, tmp_path: Path):
    planned = act("plan", operations(tmp_path, WRITE, MAKE))
    assert "modify 'notes.txt'" in planned.stdout
    assert "create 'made'" in planned.stdout
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"
    assert act("list").stdout == ""


def test_what_was_proposed_is_run_by_its_name(act, tmp_path: Path):
    name = act("propose", operations(tmp_path, WRITE)).stdout.split()[0]
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"
    assert act("run", name).returncode == 0
    assert (tmp_path / "project/notes.txt").read_text() == "two\n"
    again = act("run", name)
    assert (again.returncode, "is executed, so it cannot become executing" in again.stderr) == (1, True)


def test_a_discarded_proposal_stays_discarded(act, tmp_path: Path):
    name = act("propose", operations(tmp_path, WRITE)).stdout.split()[0]
    assert act("discard", name).stdout == f"{name}  failed\n"
    again = act("run", name)
    assert (again.returncode, "is failed, so it cannot become executing" in again.stderr) == (1, True)
    assert act("flush").stdout == ""


def test_the_history_is_written_as_a_repository(act, tmp_path: Path):
    name = act("run", operations(tmp_path, WRITE)).stdout.split()[0]
    told = act("export", "--git", "history.git")
    assert told.stdout.startswith("1 actions in history.git")
    log = subprocess.run(
        ["git", "--git-dir", "history.git", "log", "--patch"], cwd=tmp_path, capture_output=True, text=True
    )
    assert f"write: action {name}, by command line" in log.stdout
    assert "-one\n+two\n" in log.stdout


def test_a_command_may_bring_its_undo_which_is_tested(act, tmp_path: Path):
    turn = {"do": "run", "command": ["mv", "notes.txt", "n"], "undo": ["mv", "n", "notes.txt"]}
    planned = act("plan", operations(tmp_path, {**turn, "undo": ["cp", "n", "notes.txt"]}))
    assert "warning: its own undo is ignored: after it 'n'" in planned.stdout
    name = act("run", operations(tmp_path, turn)).stdout.split()[0]
    assert act("undo", name).returncode == 0
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"


def test_the_guarantee_is_on_every_line(act, tmp_path: Path):
    file = operations(tmp_path, WRITE, MAKE)
    assert [line.split()[1] for line in act("plan", file).stdout.splitlines() if not line.startswith(" ")] == [
        "exact"
    ] * 2
    done = act("run", file).stdout.splitlines()
    assert [line.split()[1] for line in done] == ["exact", "exact"]
    assert all("exact" in line for line in act("list").stdout.splitlines())
    name = done[0].split()[0]
    assert {json.loads(line)["guarantee"] for line in act("show", name).stdout.splitlines()} == {"exact"}
    assert act("diff", name).stdout.splitlines()[0] == f"{name}  exact  write 'notes.txt'"


def test_a_command_tells_how_it_ended_and_what_it_printed_also_when_it_fails(act, tmp_path: Path):
    line = "echo out; echo err >&2; echo x > made; exit "
    done = act("run", operations(tmp_path, {"do": "run", "command": ["sh", "-c", f"{line}0"]}))
    assert [each.strip() for each in done.stdout.splitlines()[1:]] == ["create 'made'", "exited 0", "| out", "! err"]
    act("undo", done.stdout.split()[0])
    failed = act("run", operations(tmp_path, {"do": "run", "command": ["sh", "-c", f"{line}3"]}))
    assert failed.returncode == 1
    assert [each.strip() for each in failed.stdout.splitlines()] == [
        "not done: create 'made'",
        "exited 3",
        "| out",
        "! err",
    ]
    assert "exited with 3: err; nothing was done" in failed.stderr


def test_files_are_read_listed_and_searched_and_that_is_recorded(act, tmp_path: Path):
    reads = [
        {"do": "read", "path": "notes.txt"},
        {"do": "list"},
        {"do": "search", "text": "on"},
    ]
    done = act("run", operations(tmp_path, *reads))
    assert [line.strip() for line in done.stdout.splitlines() if line.startswith(" ")] == [
        "one",
        "notes.txt (4 bytes)",
        "notes.txt:1: one",
    ]
    assert [line.split()[1] for line in act("list").stdout.splitlines()] == ["read"] * 3
    assert act("undo", "--all").stdout == ""
    assert act("undo", done.stdout.split()[0]).returncode == 1


def test_several_are_undone_at_once(act, tmp_path: Path):
    make = [{"do": "make_folder", "path": name} for name in "abcd"]
    names = [line.split()[0] for line in act("run", operations(tmp_path, *make)).stdout.splitlines()]
    undone = act("undo", names[0], names[2])
    assert [line.split()[1] for line in undone.stdout.splitlines()] == [names[2], names[0]]
    assert [line.split()[1] for line in act("undo", "--last", "1").stdout.splitlines()] == [names[3]]
    assert act("redo", names[0]).stdout == f"redone: {names[0]}  make_folder 'a'\n"
    assert len(act("undo", "--all").stdout.splitlines()) == 2
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["notes.txt"]
    assert act("undo", names[0], "--all").returncode == 2


def test_the_actions_undone_last_are_redone(act, tmp_path: Path):
    make = [{"do": "make_folder", "path": path} for path in ("a", "a/b", "a/b/c")]
    names = [line.split()[0] for line in act("run", operations(tmp_path, *make)).stdout.splitlines()]
    other = act("run", operations(tmp_path, {"do": "make_folder", "path": "x"}), "--session", "bob").stdout[:8]
    act("undo", *names)
    act("undo", other)
    assert not list((tmp_path / "project").glob("[ax]"))
    redone = act("redo", "--last", "1", "--session", "bob")
    assert redone.stdout == f"redone: {other}  make_folder 'x'\n"
    redone = act("redo", "--last", "5")
    assert [line.split()[1] for line in redone.stdout.splitlines()] == names  # each before what is in it
    assert (tmp_path / "project/a/b/c").is_dir()
    assert act("redo", "--last", "1").stdout == ""
    assert act("redo").returncode == act("redo", names[0], "--last", "1").returncode == 2


def test_a_file_may_be_done_whole_or_not_at_all(act, tmp_path: Path):
    wrong = {"do": "delete", "path": "nothing-there"}
    failed = act("run", operations(tmp_path, WRITE, MAKE, wrong), "--atomic")
    assert (failed.returncode, failed.stdout.splitlines()[-1].startswith("undone: ")) == (1, True)
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"
    assert not (tmp_path / "project/made").exists()


def test_a_denial_names_what_a_user_would_grant(act, tmp_path: Path):
    granted = act("grant").stdout.split()[0]
    act("revoke", granted)
    for operation, grant in (
        ({"do": "write", "path": "new/deep/a.txt"}, "'files/**' --verbs create"),
        ({"do": "write", "path": ".env"}, "files/.env --verbs create"),
        ({"do": "move", "path": "notes.txt", "to": "n.txt"}, "'files/**' --verbs read,rename"),
        ({"do": "run", "command": ["ls"]}, "programs/ls --verbs run"),
    ):
        denied = act("run", operations(tmp_path, operation))
        assert denied.returncode == 1
        assert f"What would permit it: autoclave act grant {grant}" in denied.stderr


def test_everything_since_a_mark_is_taken_back(act, tmp_path: Path):
    act("savepoint", "clean")
    act("run", "-", input=f"{json.dumps(WRITE)}\n\n{json.dumps(MAKE)}\n")
    undone = act("undo", "--to", "clean")
    assert [line.split()[2] for line in undone.stdout.splitlines()] == ["make_folder", "write"]
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"
    assert not (tmp_path / "project/made").exists()


def test_what_was_done_before_a_mistake_stands_and_the_mistake_is_named(act, tmp_path: Path):
    failed = act("run", operations(tmp_path, WRITE, {"do": "write", "path": "../out", "content": ""}, MAKE))
    assert failed.returncode == 1
    assert "changes.jsonl:2: path '../out': must be relative to the folder" in failed.stderr
    assert [line.split()[1] for line in act("list").stdout.splitlines()] == ["executed"]
    assert not (tmp_path / "out").exists()


def test_a_journal_that_somebody_changed_is_told(act, tmp_path: Path):
    act("run", operations(tmp_path, WRITE))
    with sqlite3.connect(tmp_path / ".autoclave-project/journal.sqlite") as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("UPDATE records SET body = '{}' WHERE number = 2")
    connection.close()
    told = act("audit", "verify")
    assert told.returncode == 1
    assert "broken at record 2" in told.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["undo"], "give ids of actions, or one of --last N"),
        (["undo", "3f2a9c01"], "action 3f2a9c01: is not in the journal"),
        (["undo", "--to", "never"], "savepoint 'never': there is none"),
        (["show", "3f2a9c01"], "action 3f2a9c01: is not in the journal"),
        (["run", "nothing-there"], "action nothing-there: is not in the journal"),
        (["run", "nothing.jsonl"], "nothing.jsonl: there is no such file"),
        (["savepoint", "\udcff"], "must be text"),
        (["audit", "verify", "--known", "5"], "must be what `audit checkpoint` printed"),
        (["plan", "nothing-there"], "nothing-there"),
        (["resolve", "3f2a9c01", "--as", "failed"], "--as and --reason go together"),
        (["discard", "3f2a9c01"], "action 3f2a9c01: is not in the journal"),
        (["list", "--state", "project/inside"], "must be outside of"),
    ],
)
def test_mistakes_are_named(act, words: list[str], complaint: str):
    told = act(*words)
    assert told.returncode == 2
    assert complaint in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[" * 100_000, "standard input:1: nested deeper"),
        (json.dumps({**WRITE, "content": "\ud800"}), "standard input:1: has half a character"),
        (json.dumps({**WRITE, "path": "\ud800"}), "standard input:1: has half a character"),
    ],
    ids=["deep", "content", "path"],
)
def test_lines_that_are_no_operations_are_named(act, line: str, complaint: str):
    told = act("run", "-", input=line)
    assert (told.returncode, complaint in told.stderr) == (2, True), told.stderr
    assert "Traceback" not in told.stderr


def test_an_end_that_was_cut_off_with_its_checkpoints_is_told_by_one_that_is_known(act, tmp_path: Path):
    state = tmp_path / ".autoclave-project"
    early = (state / "checkpoints/signed").read_bytes()
    act("run", operations(tmp_path, WRITE))
    known = act("audit", "checkpoint").stdout.strip()
    assert act("audit", "verify", "--known", known).returncode == 0
    with sqlite3.connect(state / "journal.sqlite") as connection:
        connection.execute("DROP TRIGGER no_delete")
        connection.execute("DELETE FROM records WHERE number > 1")
    connection.close()
    (state / "checkpoints/signed").write_bytes(early)
    told = act("audit", "verify", "--known", known)
    assert (told.returncode, "truncated" in told.stdout) == (1, True)


def test_what_is_shown_does_nothing_to_a_terminal(act, tmp_path: Path):
    escape, shown = "\x1b]0;x\x07", "\\x1b]0;x\\x07"
    name = act("run", operations(tmp_path, {**WRITE, "content": f"{escape}\n"})).stdout.split()[0]
    assert f"+{shown}" in act("diff", name).stdout
    printed = {"do": "run", "command": ["sh", "-c", f"echo '{escape}' >&2; exit 1"]}
    told = act("run", operations(tmp_path, printed))
    assert f"! {shown}" in told.stdout
    assert shown in told.stderr
    assert (
        "\x1b"
        not in told.stdout + told.stderr + act("run", operations(tmp_path, {**WRITE, "path": f"a/{escape}"})).stdout
    )


def test_text_of_models_has_no_control_characters_where_it_is_shown(act, tmp_path: Path):
    odd = "a\x1b[2J\x7f\x9b"
    name = act("run", operations(tmp_path, {**WRITE, "path": odd})).stdout.split()[0]
    act("grant", f"files/{odd}")
    shown = [act("list"), act("list", "--json"), act("show", name), act("grant"), act("audit", "verify")]
    assert not [each for each in "".join(told.stdout for told in shown) if not each.isprintable() and each != "\n"]
    assert json.loads(shown[1].stdout.splitlines()[0])["operation"]["path"] == odd


def test_a_root_that_is_no_folder_is_named(forked):
    told = forked("act", "list", "--root", "nowhere")
    assert (told.returncode, "nowhere: must be a folder" in told.stderr) == (2, True)


def test_the_doctor_tells_what_actions_need_and_lack(forked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "project").mkdir()
    told = forked("act", "doctor", "--root", "project")
    assert told.returncode == 0
    for each in ("state on the file system of the folder", "git", "libraries for services", "libraries for databases"):
        assert each in told.stdout
    monkeypatch.setenv("PATH", str(tmp_path))
    told = forked("act", "doctor", "--root", "project")
    assert "without  git: `act export --git` writes the history" in told.stdout
    assert "fix: install git" in told.stdout


@pytest.mark.parametrize("way", ["a file", "standard input"])
def test_a_number_that_would_be_rounded_is_refused_before_anything_is_planned(act, tmp_path: Path, way: str):
    line = (
        '{"do": "sql", "database": "a", "statements": ["UPDATE t SET a = ?"], "parameters": [[0.12345678901234567891]]}'
    )
    (tmp_path / "changes.jsonl").write_text(line)
    done = act("run", "changes.jsonl") if way == "a file" else act("run", "-", input=line)
    assert done.returncode == 2
    assert "the number 0.12345678901234567891 would be rounded to 0.12345678901234568: give it as a text" in done.stderr


def test_a_running_session_can_be_watched_and_stopped(act, tmp_path: Path):
    with open_session(tmp_path / "project") as session:  # of a program that runs
        (granted,) = session.permissions.grants()
        done = session.propose(WRITE)
        session.run(done.action, done.plan.digest)
        assert [line.split()[:2] for line in act("list").stdout.splitlines()] == [[done.action, "executed"]]
        assert act("show", done.action).returncode == 0
        waiting = session.propose({**WRITE, "path": "late"})
        stopped = act("stop").stdout.split()[0]
        for attempt in (lambda: session.run(waiting.action, waiting.plan.digest), lambda: session.propose(WRITE)):
            with pytest.raises(NotPermitted):
                attempt()
        session.undo(done.action)
        act("revoke", stopped)
        session.run(waiting.action, waiting.plan.digest)
        act("revoke", granted.id)
        with pytest.raises(NotPermitted):
            session.propose(WRITE)
        assert session.audit() == []
