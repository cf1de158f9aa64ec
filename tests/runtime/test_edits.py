"""Edits: the exact replacement of one text in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.policy import Grant
from autoclave.runtime.session import Session
from tests.runtime.trees import done


def edit(session: Session, old: str, new: str, **more: object) -> str:
    return done(session, do="edit", path="edited", old_string=old, new_string=new, **more)


@pytest.fixture
def edited(root: Path) -> Path:
    (root / "edited").write_bytes(b"one\r\ntw\xff two \xc3\xa4\n")
    return root / "edited"


def test_an_edit_replaces_one_text_and_keeps_every_other_byte(opened: Session, edited: Path):
    before = edited.stat()
    action = edit(opened, "two ä", "three")
    assert edited.read_bytes() == b"one\r\ntw\xff three\n"
    opened.undo(action)
    assert (edited.read_bytes(), edited.stat().st_ino) == (b"one\r\ntw\xff two \xc3\xa4\n", before.st_ino)


def test_a_text_must_occur_once(opened: Session, edited: Path):
    with pytest.raises(InputError, match="does not occur"):
        edit(opened, "four", "five")
    edited.write_text("aaa")
    with pytest.raises(InputError, match="several times"):
        edit(opened, "aa", "b")
    edit(opened, "a", "b", replace_all=True)
    assert edited.read_text() == "bbb"


def test_an_edit_needs_to_read_the_file_and_reveals_no_key(opened: Session, edited: Path):
    edited.write_text("-----BEGIN PRIVATE KEY-----\nabc")
    with pytest.raises(InputError, match="has a private key"):
        edit(opened, "abc", "abd")
    opened.permissions.grant(Grant(effect="forbid", resources=("files/edited",), verbs=("read",)))
    with pytest.raises(NotPermitted, match="read 'files/edited' is not permitted"):
        edit(opened, "abc", "abd")
