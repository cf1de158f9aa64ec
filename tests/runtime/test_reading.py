"""Files are read, listed and searched on request: recorded, permitted like the rest, and nothing to undo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.trees import done, manifest


def output(session: Session, **operation: Any) -> dict[str, Any]:
    proposal = session.propose(operation)
    assert proposal.plan.is_read
    assert session.run(proposal.action, proposal.plan.digest).state is ActionState.READ
    return dict(proposal.plan.output)


def test_a_file_is_read_whole_or_in_part(root: Path, opened: Session):
    (root / "lines").write_text("one\ntwo\nthree")
    assert output(opened, do="read", path="lines") == {
        "content": "one\ntwo\nthree",
        "lines_in_file": 3,
        "is_whole": True,
    }
    part = output(opened, do="read", path="lines", first_line=2, max_lines=1)
    assert part == {"content": "two\n", "lines_in_file": 3, "is_whole": False}
    (root / "bytes").write_bytes(b"\xff\0x")
    assert output(opened, do="read", path="bytes")["content"] == "\\xff\0x"
    big = output(opened, do="read", path="holes")
    assert (len(big["content"]), big["is_whole"]) == (1 << 16, False)


@pytest.mark.parametrize("path", ["docs", "docs/link", "docs/fifo", "nothing", "../x", "docs/link/x", "a.txt/x"])
def test_only_a_file_within_the_folder_is_read(root: Path, opened: Session, path: str):
    with pytest.raises(InputError):
        opened.propose({"do": "read", "path": path})


def test_names_are_listed_so_deep_as_is_wanted(root: Path, opened: Session):
    assert output(opened, do="list", path="docs")["entries"].splitlines() == [
        "c.txt (10000 bytes)",
        "deep/",
        "  ...",
        "fifo (0 bytes)",
        "link -> ../a.txt",
        "same as a (6 bytes)",
    ]
    assert "  d.txt (1 bytes)" in output(opened, do="list", path="docs", depth=2)["entries"]
    assert "docs/" in output(opened, do="list")["entries"]
    with pytest.raises(InputError, match="no such folder"):
        opened.propose({"do": "list", "path": "nothing"})


def test_lines_are_found_with_path_and_number(root: Path, opened: Session):
    (root / "docs/deep/x.py").write_text("import a\nfirst\n" + "x" * 500 + "first\n")
    (root / ".env").write_text("first=secret")
    (root / "binary").write_bytes(b"\0first")
    os.symlink("a.txt", root / "also")
    found = output(opened, do="search", text="first")
    assert [line[:20] for line in found["matches"] if line.startswith("docs/deep")] == [
        "docs/deep/x.py:2: fi",
        "docs/deep/x.py:3: xx",
    ]
    assert {line.partition(":")[0] for line in found["matches"]} == {"a.txt", "docs/same as a", "docs/deep/x.py"}
    assert all(len(line) < 350 for line in found["matches"])
    assert output(opened, do="search", text="first", names="*.py", path="docs")["matches"][0].startswith("docs/deep/x")
    (root / "many").write_text("first\n" * 1000)
    many = output(opened, do="search", text="first", path="many")
    assert (len(many["matches"]), many["is_whole"]) == (200, False)


def test_a_read_is_recorded_without_what_was_read_and_cannot_be_undone(root: Path, opened: Session):
    before = manifest(root)
    proposal = opened.propose({"do": "read", "path": "run.sh"}, by="model m")
    assert proposal.plan.output["content"] == "#!/bin/sh\n"
    opened.run(proposal.action, proposal.plan.digest)
    assert [record.kind for record in opened.journal.records(proposal.action)] == ["proposed", "read"]
    assert "/bin/sh" not in str([record.body for record in opened.journal.records(proposal.action)])
    with pytest.raises(InputError, match="is read; only an action that stands can be undone"):
        opened.undo(proposal.action)
    assert opened.actions.groups() == []
    assert opened.difference(proposal.action) == []
    assert manifest(root) == before
    assert opened.audit() == []


def test_what_is_not_granted_is_not_read(root: Path):
    (root / ".env").write_text("KEY=1")
    (root / "docs/.git").mkdir()
    (root / "docs/.git/config").write_text("x")
    with open_session(root, root.parent / "state") as session:
        for operation in ({"do": "read", "path": "a.txt"}, {"do": "list"}, {"do": "search", "text": "x"}):
            with pytest.raises(NotPermitted):
                session.propose(operation)
        session.permissions.grant(Grant(resources=("files/docs/**", "files/*"), verbs=("read",)))
        assert output(session, do="read", path="docs/c.txt")["is_whole"]
        for path in (".env", "docs/.git/config"):  # paths that hold secrets need a grant of their own
            with pytest.raises(NotPermitted):
                session.propose({"do": "read", "path": path})
        with pytest.raises(NotPermitted):
            session.propose({"do": "list"})
        session.permissions.grant(Grant(resources=("files/.env",), verbs=("read",), max_uses=1))
        assert output(session, do="read", path=".env")["content"] == "KEY=1"
        with pytest.raises(NotPermitted):
            session.propose({"do": "read", "path": ".env"})


@pytest.mark.parametrize("path", ["new/a.txt", "new/deep/er/a.txt", "docs/new/a.txt"])
def test_a_file_is_written_with_the_folders_that_are_missing(root: Path, opened: Session, path: str):
    before = manifest(root)
    proposal = opened.propose({"do": "write", "path": path, "content": "x", "mode": 0o640})
    (create,) = proposal.plan.request.accesses
    above = path.partition("new")[0] + "new"
    assert create.resource == f"files/{above}"
    assert create.inside[-1] == f"files/{path}"
    assert (create.files, create.bytes_written) == (path.count("/") + 1 - above.count("/"), 1)
    opened.run(proposal.action, proposal.plan.digest)
    assert (root / path).read_text() == "x"
    assert (root / path).stat().st_mode & 0o777 == 0o640
    opened.undo(proposal.action)
    assert manifest(root) == before
    opened.redo(proposal.action)
    inner = done(opened, do="write", path=f"{above}/b", content="y")
    with pytest.raises(InputError, match=f"{inner} came later"):
        opened.undo(proposal.action)
    for wrong in ("a.txt/b/c", "docs/link/b/c", "docs/fifo/x"):
        with pytest.raises(InputError):
            opened.propose({"do": "write", "path": wrong, "content": "x"})


def test_private_keys_are_read_by_their_names_alone_and_never_found(root: Path):
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nneedle\n"
    for name in ("notes.txt", "server.key"):
        (root / name).write_text(key)
    (root / "plain.txt").write_text("needle\n")
    with open_session(root) as session:
        session.permissions.grant(Grant(resources=("files/**",), verbs=("read",)))
        assert output(session, do="search", text="needle")["matches"] == ["plain.txt:1: needle"]
        for name in ("notes.txt", "server.key"):
            with pytest.raises(NotPermitted) as denied:
                session.propose({"do": "read", "path": name})
            assert "needle" not in f"{denied.value} {denied.value.hint}"
            session.permissions.grant(Grant(resources=(f"files/{name}",), verbs=("read",)))
            assert output(session, do="read", path=name)["content"] == key
