"""Commands and generated code run over the tree, which changes only when they are applied, and exactly as planned."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.files.capture import remove_tree
from autoclave.runtime.interface import CommandFailed
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from autoclave.workspaces import python_executable
from tests.descriptors import free_descriptors
from tests.runtime.deaths import SOME_OR_EACH, dies_at
from tests.runtime.trees import done, facts_without_times, manifest, open_on

S = ActionState


pytestmark = pytest.mark.usefixtures("sealing_host")


def sh(line: str, **others: Any) -> dict[str, Any]:
    return {"do": "run", "command": ["sh", "-ec", line], **others}


LINES = [
    "echo other > a.txt",  # one of two names
    "echo more >> docs/c.txt",  # extended attributes
    ": > b.txt; echo x > b.txt",
    "rm a.txt 'docs/same as a'",
    "rm -r docs",
    "rm -r docs; mkdir docs; echo new > docs/c.txt",  # an opaque folder
    "rm -r docs; echo now a file > docs",
    "rm a.txt; mkdir -p a.txt/deep; echo x > a.txt/deep/y",
    "rm b.txt; ln -s docs b.txt",
    "rm docs/link; mkdir docs/link",
    "rm docs/fifo; echo x > docs/fifo",
    "mkfifo pipe; ln a.txt third; ln -s nowhere dangling2",
    "mv docs moved; mv moved/deep moved/deeper",
    "mv a.txt t; mv b.txt a.txt; mv t b.txt",  # names swapped
    "chmod 600 run.sh docs/c.txt; chmod 700 docs",
    "chmod 4711 run.sh; chmod 1777 empty",
    "touch -d 2001-02-03 a.txt docs/deep/d.txt empty",
    "touch -h -d 2001-02-03 docs/link",
    "dd if=run.sh of=holes bs=1k count=3 seek=700 conv=notrunc",
    "truncate -s 5M sparse; truncate -s 3 docs/c.txt",
    "printf x > 'new\nline'; printf y > ' -rf'; printf z > \"$(printf 'b\\377')\"",
    "mkdir -p $(seq -s / 40); echo deep > $(seq -s / 40)/file",
    "cp -a docs copy",
    "chmod 000 b.txt; chmod 555 empty",
    "mkdir -p w && echo x > w/x && chmod 555 w",
    "rm -rf ./* 2>/dev/null || true",
]


@pytest.mark.parametrize("line", LINES)
def test_what_a_command_did_is_applied_undone_and_done_again(root: Path, session: Session, line: str):
    plain = root.parent / "plain"
    subprocess.run(["cp", "-a", root, plain], check=True)
    subprocess.run(["sh", "-ec", line], cwd=plain, check=True, capture_output=True)
    before = manifest(root)
    proposal = session.propose(sh(line))
    assert manifest(root) == before
    session.run(proposal.action, proposal.plan.digest)
    is_overlay = proposal.plan.output["method"] == "overlay"  # which gives each name of a file its own copy
    left_out = ("a.txt", "docs/same as a") if line.startswith("echo other") and is_overlay else ()
    assert comparable(root, left_out, is_overlay) == comparable(plain, left_out, is_overlay)
    after = manifest(root)
    session.undo(proposal.action)
    assert manifest(root) == before
    session.redo(proposal.action)
    assert {path: facts[:5] for path, facts in manifest(root).items() if path not in changed_folders(after)} == {
        path: facts[:5] for path, facts in after.items() if path not in changed_folders(after)
    }
    session.undo(proposal.action)
    assert manifest(root) == before
    assert session.audit() == []
    assert [path.name for path in (root.parent / "state/stash").iterdir()] == [proposal.action]


def comparable(root: Path, left_out: tuple[str, ...], is_overlay: bool) -> dict[str, Any]:
    """Kinds, modes, owners, links and contents; a file of several names has them in a group.

    Not, for an overlay, the file that has two names in the tree.
    """
    found = manifest(root)
    groups: dict[int, list[str]] = {}
    for path, facts in found.items():
        groups.setdefault(facts[4], []).append(path)
    return {
        path: (*facts[:3], facts[7], facts[8], None if is_overlay and facts[7] == b"first\n" else groups[facts[4]])
        for path, facts in found.items()
        if path not in left_out
    }


def changed_folders(found: dict[str, Any]) -> set[str]:
    """Folders, whose time of change is that of the last renaming in them."""
    return {path for path, facts in found.items() if facts[7] is None}


def test_only_what_it_may_see_is_there(root: Path, session: Session):
    done(session, **sh("pwd > where; ls -a > seen", within="docs/deep"))
    assert (root / "docs/deep/where").read_text() == f"{root}/docs/deep\n"
    assert (root / "docs/deep/seen").read_text().split() == [".", "..", "d.txt", "seen", "where"]
    with pytest.raises(InputError, match="'docs/link': cannot be read as a folder"):
        session.propose(sh("true", within="docs/link"))


def test_files_with_secret_names_are_hidden_until_a_grant_has_their_name(root: Path, session: Session):
    for path in ("docs/.env.local", "docs/deep/odd \udcff.key", "id_rsa", "keys"):
        (root / path).write_text("hush")
    before = manifest(root)
    look = "grep -rs hush . || true; wc -c < docs/.env.local || true"
    proposal = session.propose(sh(f"{look}; echo x > new; mv docs/deep docs/deeper || true"))
    assert proposal.plan.output["stdout"] == "./keys:hush\n"
    names = "'docs/.env.local', 'docs/deep/odd \\udcff.key', 'id_rsa'"
    warning = f"warning: hidden from it, since their names say that they hold secrets: {names}"
    assert proposal.plan.changes[0] == warning
    session.run(proposal.action, proposal.plan.digest)
    session.undo(proposal.action)
    assert manifest(root) == before
    for line in ("echo > docs/.env.local", "rm docs/.env.local", "rm -r docs", "mv keys docs/.env.local"):
        with pytest.raises(CommandFailed) as failed:
            session.propose(sh(line))
        assert failed.value.output["changes"][0] == warning
    session.permissions.grant(Grant(resources=("files/docs/.env.local",), verbs=("read",)))
    proposal = session.propose(sh("cat .env.local; cat deep/*.key || true", within="docs"))
    assert proposal.plan.output["stdout"] == "hush"
    assert proposal.plan.changes == (warning.replace(names, "'docs/deep/odd \\udcff.key'"),)
    assert manifest(root) == before


def test_a_commit_is_made_listed_and_undone_exactly(root: Path, session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(root.parent / "gitconfig"))
    done(session, **sh("git init -q .; git add docs/c.txt; git commit -qm first; git log --format='%an %ae' > who"))
    assert (root / "who").read_text() == "autoclave autoclave@localhost\n"
    (root.parent / "gitconfig").write_text("[user]\n\tname = A User\n\temail = a@example.com\n")
    before = manifest(root)
    proposal = session.propose(sh("echo more >> docs/c.txt; git commit -qam second; git log -1 --format='%an %ae %cn'"))
    assert proposal.plan.output["stdout"] == "A User a@example.com A User\n"
    assert any(".git/refs/heads/" in change for change in proposal.plan.changes)
    session.run(proposal.action, proposal.plan.digest)
    assert manifest(root) != before
    session.undo(proposal.action)
    assert manifest(root) == before


def test_generated_code_is_run_like_a_command(root: Path, session: Session):
    source = "import sys, pathlib\npathlib.Path('out').write_text(sys.stdin.read().upper())\nprint('said')"
    proposal = session.propose({"do": "python", "source": source, "stdin": "loud"})
    assert proposal.plan.output["stdout"] == "said\n"
    session.run(proposal.action, proposal.plan.digest)
    assert (root / "out").read_text() == "LOUD"
    with pytest.raises(InputError, match="no list of allowed packages"):
        session.propose({"do": "python", "source": "import requests", "packages": ["requests"]})


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        (sh("echo so far > a.txt; echo no >&2; exit 3"), r"run: exited with 3: no; nothing was done"),
        (sh("kill -9 $$"), "was ended by signal 9"),
        (sh("sleep 20", timeout_s=0.3), r"took more than 0\.3 s"),
        ({"do": "run", "command": ["no-such"]}, "exited with 127: no-such: No such file"),
        ({"do": "python", "source": "import nothing_like_it"}, "python: exited with 1: .*No module named"),
    ],
)
def test_a_command_that_fails_changes_nothing(root: Path, session: Session, operation: dict[str, Any], rule: str):
    before = manifest(root)
    with pytest.raises(InputError, match=f"(?s){rule}"):
        session.propose(operation)
    assert manifest(root) == before
    assert list((root.parent / "state/stash").iterdir()) == []
    accepted = session.propose(sh("echo x > new; exit 3", accepted_codes=[3]))
    assert accepted.plan.output["exit_code"] == 3


def test_what_was_planned_is_applied_if_the_command_would_see_the_same_now(root: Path, session: Session):
    proposal = session.propose(sh("date +%N > now; cat d.txt > copied", within="docs/deep"))
    now = proposal.plan.output
    (root / "b.txt").write_text("it does not see this")
    session.run(proposal.action, proposal.plan.digest)
    assert (root / "docs/deep/copied").read_text() == "d"
    assert now["exit_code"] == 0
    for meddle in (
        lambda: (root / "docs/deep/d.txt").write_text("later"),
        lambda: (root / "docs/deep/more").touch(),
        lambda: (root / "docs/deep/d.txt").chmod(0o600),
        lambda: (root / "docs/deep").chmod(0o700),
    ):
        proposal = session.propose(sh("cat deep/d.txt > copied; ls -l > listing", within="docs"))
        meddle()
        with pytest.raises(InputError, match="has changed since it was planned"):
            session.run(proposal.action, proposal.plan.digest)
    other = session.propose(sh("echo ours > a.txt"))
    (root / "a.txt").write_text("theirs")
    with pytest.raises(InputError, match="has changed since it was planned"):
        session.run(other.action, other.plan.digest)
    third = session.propose(sh("echo ours > new2"))
    (root.parent / "state/stash" / third.action / "0").write_text("forged")
    with pytest.raises(InputError, match="has changed since it was planned"):
        session.run(third.action, third.plan.digest)


@pytest.mark.parametrize("path", ["b.txt", "docs/c.txt"])  # one that it writes, and one that it may have read
def test_what_others_changed_while_a_command_ran_is_not_overwritten(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch, path: str
):
    commands = session.actions.managers["run"].commands  # pyright: ignore
    outcome = commands._outcome

    def meanwhile(*given: Any) -> Any:
        (root / path).write_text("theirs")
        return outcome(*given)

    monkeypatch.setattr(commands, "_outcome", meanwhile)
    proposal = session.propose(sh('echo "$(cat b.txt docs/c.txt) mine" > b.txt'))
    with pytest.raises(InputError, match="its resource has changed since it was planned"):
        session.run(proposal.action, proposal.plan.digest)
    assert (root / path).read_text() == "theirs"


def test_a_command_makes_no_link_to_where_none_led(root: Path, session: Session):
    before = manifest(root)
    for line, path in (
        ("ln -s /etc/passwd out", "out"),
        ("ln -s ../secret empty/in; mv empty/in out", "out"),
        ("mkdir -p n/m; ln -s ../../../secret n/m/out", "n/m/out"),
        ("ln -s docs/../../secret out", "out"),
    ):
        with pytest.raises(InputError, match=f"path '{path}': is made a link to .*, which leads out of the folder"):
            session.propose(sh(line))
    assert manifest(root) == before
    assert list((root.parent / "state/stash").iterdir()) == []
    for line in ("mv dangling docs", "cp -a docs copy", "ln -s ../b.txt docs/in", f"ln -s {root}/b.txt absolute"):
        done(session, **sh(line))


def test_facts_that_a_command_sets_of_one_name_stay_away_from_the_others(root: Path, session: Session):
    os.link(root / "holes", root.parent / "outside")
    outside = (root.parent / "outside").stat()
    before = manifest(root)
    lines = (
        "chmod 600 holes; touch -d 2001-01-01 holes",
        "rm 'docs/same as a'; chmod 600 a.txt",
        "rm -r docs; touch a.txt",
    )
    for line in lines:
        action = done(session, **sh(line))
        now = (root.parent / "outside").stat()
        assert (now.st_mode, now.st_mtime_ns) == (outside.st_mode, outside.st_mtime_ns)
        session.undo(action)
        assert manifest(root) == before


def test_the_folder_that_a_command_sees_is_changed_and_that_of_the_session_is_told_of(root: Path, session: Session):
    before = manifest(root)
    (root / "docs").chmod(0o2750)
    with_mode = manifest(root)
    action = done(session, **sh("test $(stat -c %a .) = 2750; chmod 701 .; echo x > new", within="docs"))
    assert (root / "docs").stat().st_mode & 0o7777 == 0o2701
    session.undo(action)
    assert manifest(root) == with_mode
    proposal = session.propose(sh("chmod 700 .; rm b.txt"))
    assert proposal.plan.changes == ("delete 'b.txt'", "not done: mode of the folder itself, which is not its content")
    session.run(proposal.action, proposal.plan.digest)
    assert manifest(root)["."][:3] == before["."][:3]
    proposal = session.propose(sh("chmod 700 .", within="docs", undo=["true"]))
    assert proposal.plan.changes[-1].endswith("is ignored: after it 'docs' would not be as before")


DEEP = "import os\nfor _ in range(1100):\n os.mkdir('dddd'); os.chdir('dddd')\nopen('bottom', 'w').write('deep')"


def test_a_tree_deeper_than_descriptors_paths_and_calls_may_go_is_changed_and_comes_back(root: Path, session: Session):
    """It has more levels than calls can be nested and files be open, and a path longer than the kernel takes."""

    def below() -> bytes:
        return subprocess.check_output(["find", ".", "-printf", "%f %m %T@ %i\\0"], cwd=root)

    subprocess.run([python_executable(), "-c", DEEP], cwd=root / "docs", check=True)
    bottom = "/".join(["docs", *["dddd"] * 1100, "bottom"])
    before = below()
    try:
        with free_descriptors(60):
            actions = [
                done(session, do="write", path=bottom, content="deeper"),
                done(session, do="move", path=bottom, to=f"{bottom}2"),
                done(session, do="set_mode", path=f"{bottom}2", mode=0o600),
                done(session, do="delete", path="docs", recursive=True),
            ]
            for action in reversed(actions):
                session.undo(action)
            assert below() == before
            made = done(session, do="python", source=DEEP, within="empty")
            session.undo(made)
            session.redo(made)
            session.undo(made)
            assert below() == before
            session.commit(done(session, do="delete", path="docs", recursive=True))
            assert session.audit() == []
    finally:
        for place in (root, root.parent / "state/stash"):  # who clears the folders of tests away may not go that deep
            remove_tree(place)


def test_a_later_command_may_have_read_what_an_earlier_one_wrote(root: Path, session: Session):
    first = done(session, do="write", path="docs/in", content="1")
    elsewhere = done(session, **sh("echo 1 > x", within="empty"))
    reader = done(session, **sh("cat in > out", within="docs"))
    assert session.dependents_of(first) == [reader]
    assert session.dependents_of(elsewhere) == []
    assert session.actions.groups() == [[first, elsewhere], [reader]]
    with pytest.raises(InputError, match=f"{reader} came later and depend on it"):
        session.undo(first)
    assert session.undo_group(2) == [reader]
    assert session.undo_group(1) == [elsewhere, first]


@SOME_OR_EACH
def test_killed_at_every_event_of_a_command_the_tree_is_as_before_or_as_after(root: Path, every: int):
    operation = sh("echo x >> a.txt; rm -r docs/deep; mkdir -p n/m; chmod 700 empty")
    before = manifest(root)
    with open_on(root) as session:
        action = done(session, **operation)
        after = facts_without_times(manifest(root))
        session.undo(action)
    for deadly in itertools.count(1, every):
        was_killed = dies_at(deadly, root, operation)
        with open_on(root) as session:
            last = session.journal.standings()[-1]
            assert last.state not in (S.EXECUTING, S.IN_DOUBT)
            if last.state is S.EXECUTED:
                assert facts_without_times(manifest(root)) == after
                session.undo(last.action)
            assert manifest(root) == before, (deadly, last)
        if not was_killed:
            break
    assert deadly > 12


def test_what_a_command_left_in_the_stash_when_its_planning_was_killed_is_swept(root: Path):
    """The process dies while the command runs, and once it has run: nothing of either is there when it is opened."""
    with open_on(root) as session:
        kept = done(session, do="delete", path="b.txt")
    stash = root.parent / "state/stash"
    child = os.fork()
    if child == 0:
        try:
            with open_on(root) as session:
                runner = session.actions.managers["run"].commands  # pyright: ignore
                runner._flaw_of = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
                session.propose(sh("head -c 1000000 /dev/zero > large; mkdir locked; chmod 0 locked", undo=["true"]))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(list(stash.iterdir())) > 1
    (stash / "3f2a9c01").mkdir()
    (stash / "3f2a9c01/0").write_text("claimed, but never recorded")
    with open_on(root) as session:
        assert [path.name for path in stash.iterdir()] == [kept]
        session.undo(kept)
    assert (root / "b.txt").exists()
