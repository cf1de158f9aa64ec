"""`autoclave act`, as it is used: operations in a file, done, listed, taken back; and mistakes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def act(autoclave, tmp_path: Path):
    """act(words...): the command on the folder `project`."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/notes.txt").write_text("one\n")

    def run(*words: str, **options: Any):
        return autoclave("act", *words, "--root", "project", **options)

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
    assert (refused.returncode, refused.stdout) == (2, "")
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
    assert (again.returncode, "is executed, so it cannot become executing" in again.stderr) == (2, True)


def test_what_was_proposed_is_withdrawn_and_stays_so(act, tmp_path: Path):
    name = act("propose", operations(tmp_path, WRITE)).stdout.split()[0]
    assert act("withdraw", name).stdout == f"{name}  failed\n"
    again = act("run", name)
    assert (again.returncode, "is failed, so it cannot become executing" in again.stderr) == (2, True)
    assert act("release").stdout == ""


def test_a_repository_keeps_what_was_replaced(act, tmp_path: Path):
    name = act("run", operations(tmp_path, WRITE), "--versioning", "git", "--lfs-above", "0").stdout.split()[0]
    assert (tmp_path / ".autoclave-project/history.git/HEAD").exists()
    assert list((tmp_path / f".autoclave-project/stash/{name}").iterdir()) == []
    assert act("undo", name).returncode == 0
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"


def test_a_command_may_bring_its_undo_which_is_tested(act, tmp_path: Path):
    turn = {"do": "run", "command": ["mv", "notes.txt", "n"], "undo": ["mv", "n", "notes.txt"]}
    refused = act("run", operations(tmp_path, {**turn, "undo": ["cp", "n", "notes.txt"]}))
    assert (refused.returncode, "undo: after it 'n' would not be as before" in refused.stderr) == (2, True)
    name = act("run", operations(tmp_path, turn)).stdout.split()[0]
    assert act("undo", name).returncode == 0
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"


def test_everything_since_a_mark_is_taken_back(act, tmp_path: Path):
    act("mark", "clean")
    act("run", "-", input=f"{json.dumps(WRITE)}\n\n{json.dumps(MAKE)}\n")
    undone = act("undo", "--to", "clean")
    assert [line.split()[2] for line in undone.stdout.splitlines()] == ["make_folder", "write"]
    assert (tmp_path / "project/notes.txt").read_text() == "one\n"
    assert not (tmp_path / "project/made").exists()


def test_what_was_done_before_a_mistake_stands_and_the_mistake_is_named(act, tmp_path: Path):
    failed = act("run", operations(tmp_path, WRITE, {"do": "write", "path": "../out", "content": ""}, MAKE))
    assert failed.returncode == 2
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
    assert (told.returncode, told.stdout) == (1, "altered at record 2\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["undo"], "give the name of an action, or --to MARK"),
        (["undo", "3f2a9c01"], "action 3f2a9c01: is not in the journal"),
        (["undo", "--to", "never"], "mark 'never': there is none"),
        (["show", "3f2a9c01"], "action 3f2a9c01: is not in the journal"),
        (["run", "nothing-there"], "action nothing-there: is not in the journal"),
        (["run", "nothing.jsonl"], "nothing.jsonl: there is no such file"),
        (["mark", "\udcff"], "must be text"),
        (["audit", "verify", "--known", "5"], "must be what `audit checkpoint` printed"),
        (["plan", "nothing-there"], "nothing-there"),
        (["resolve", "3f2a9c01", "--as", "failed"], "--as and --reason go together"),
        (["withdraw", "3f2a9c01"], "action 3f2a9c01: is not in the journal"),
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
        (json.dumps({**WRITE, "content": "\ud800"}), "standard input:1: has a half of a character"),
        (json.dumps({**WRITE, "path": "\ud800"}), "standard input:1: has a half of a character"),
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
    name = act("run", operations(tmp_path, {**WRITE, "content": "\x1b]0;x\x07\n"})).stdout.split()[0]
    assert "+\\x1b]0;x\\x07" in act("diff", name).stdout


def test_a_root_that_is_no_folder_is_named(autoclave):
    told = autoclave("act", "list", "--root", "nowhere")
    assert (told.returncode, "nowhere: must be a folder" in told.stderr) == (2, True)


def test_the_doctor_tells_what_actions_need_and_lack(autoclave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "project").mkdir()
    told = autoclave("act", "doctor", "--root", "project")
    assert told.returncode == 0
    for each in ("state on the file system of the folder", "git", "libraries for services", "libraries for databases"):
        assert each in told.stdout
    monkeypatch.setenv("PATH", str(tmp_path))
    told = autoclave("act", "doctor", "--root", "project")
    assert "without  git: what is replaced is kept by content" in told.stdout
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
