"""Files of every kind, name and owner, repositories and databases among them: all is as it was once it is taken back.

"As it was" is the whole manifest; with `versioning="git"` all of it but inode numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from autoclave.core import HostError, InputError, SandboxFault
from autoclave.runtime.files import commands as commands_module
from autoclave.runtime.files import keeping
from autoclave.runtime.files import steps as steps_module
from autoclave.runtime.files.capture import Capture, claim
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.interface import Choice
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import PROTECTED, Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from autoclave.workspaces import python_executable
from tests.runtime.test_commands import sh
from tests.runtime.trees import (
    VERSIONINGS,
    Versioning,
    done,
    facts_without_times,
    granted,
    manifest,
    open_on,
    seen,
)

S = ActionState
ELSEWHERE = 10**18
"""A time that nothing here has of its own accord."""


_METHODS: dict[int, str] = {}
"""How commands get a tree of their own, by file system: tried once for all tests."""


def open_with(root: Path, versioning: Versioning = "snapshot", **others: Any) -> Session:
    """A session that may do everything to all files, also to folders with protected names in them."""
    session = open_on(root, versioning, **others)
    commands, device = session.actions.managers["run"]._commands, root.stat().st_dev  # pyright: ignore
    if device not in _METHODS:
        _METHODS[device] = commands.method
    commands.__dict__["method"] = _METHODS[device]
    session.permissions.grant(
        Grant(resources=("files/**", *(f"files/**/{name}/**" for name in PROTECTED)), verbs=("*",))
    )
    return session


def there_and_back(root: Path, *operations: dict[str, Any], versioning: Versioning = "snapshot") -> dict[str, Any]:
    """Act, undo, redo, undo; each time the tree is as it was then. What it is like after the acts."""
    before = seen(root, versioning)
    with open_with(root, versioning, budget=1e9) as session:
        actions = [done(session, **operation) for operation in operations]
        after = manifest(root)
        for _ in range(2):
            for action in reversed(actions):
                session.undo(action)
            assert seen(root, versioning) == before
            for action in actions:
                session.redo(action)
            assert facts_without_times(manifest(root)) == facts_without_times(after)
        for action in reversed(actions):
            session.undo(action)
        assert seen(root, versioning) == before
        assert session.audit() == []
    return after


def shell(line: str, folder: Path) -> str:
    environment = {**os.environ, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    given = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    return subprocess.run(["sh", "-ec", line], check=True, **given).stdout  # pyright: ignore


@pytest.fixture
def mounts() -> Iterator[Callable[..., None]]:
    """Mounts something, for the length of a test."""
    places: list[Path] = []

    def mount(place: Path, *words: str | Path) -> None:
        done = subprocess.run(["mount", *words, place], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this host does not let us mount: {done.stderr.strip()}")
        places.append(place)

    yield mount
    for place in reversed(places):
        subprocess.run(["umount", "-l", place], check=True)  # whatever a test that failed left open


# --- Every kind in the place of every other --------------------------------------------------------------------------

KINDS = {
    "missing": "true",
    "file": "echo {path} > {path}",
    "folder": "mkdir {path}",
    "full folder": "mkdir {path}; echo x > {path}/inside; mkdir {path}/deeper; ln -s ../.. {path}/deeper/link",
    "link": "ln -s a.txt {path}",
    "dangling link": "ln -s nowhere/at/all {path}",
    "fifo": "mkfifo {path}",
    "socket": f"{python_executable()} -c 'import os; os.mknod(\"{{path}}\", 0o140644)'",
    "device": "mknod {path} c 1 7",
}


@pytest.mark.root
@pytest.mark.parametrize(
    ("incoming", "versioning"),
    [
        *((kind, "snapshot") for kind in KINDS if kind != "device"),  # a cell cannot make devices
        *((kind, "git") for kind in ("missing", "full folder", "link")),
    ],
)
def test_each_kind_can_take_the_place_of_each(root: Path, incoming: str, versioning: Versioning):
    places = {kind: kind.replace(" ", "-") for kind in KINDS}
    shell("; ".join(line.format(path=places[kind]) for kind, line in KINDS.items()), root)
    line = "; ".join(f"rm -rf {path}; {KINDS[incoming].format(path=path)}" for path in places.values())
    after = there_and_back(root, sh(line), versioning=versioning)
    plain = root.parent / "plain"
    plain.mkdir()
    shell(KINDS[incoming].format(path="made"), plain)
    wanted = {facts[0] for path, facts in manifest(plain).items() if path == "made"}
    for path in places.values():
        assert ({after[path][0]} if path in after else set()) == wanted, path


@pytest.mark.root
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "missing"])
def test_what_an_operation_deletes_or_renames_comes_back_whatever_it_is(root: Path, kind: str):
    shell(KINDS[kind].format(path="it"), root)
    there_and_back(root, {"do": "move", "path": "it", "to": "docs/that"})
    there_and_back(root, {"do": "delete", "path": "it", "recursive": True})
    with open_with(root) as session:
        session.difference(session.propose({"do": "delete", "path": "it", "recursive": True}).action)
        for operation in ({"do": "write", "path": "it", "content": ""}, {"do": "append", "path": "it", "content": ""}):
            if kind != "file":  # and nothing waits for a fifo that nobody writes to
                with pytest.raises(InputError, match="not a file"):
                    session.propose(operation)


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_files_are_made_changed_extended_cut_and_deleted(root: Path, versioning: Versioning):
    there_and_back(
        root,
        {"do": "write", "path": "new", "content": "one"},
        {"do": "write", "path": "new", "content": "two"},
        {"do": "append", "path": "new", "content": " and more"},
        {"do": "write", "path": "docs/c.txt", "content": ""},
        {"do": "write", "path": "docs/deep/d.txt", "content": "d"},  # what it was
        {"do": "delete", "path": "b.txt"},
        {"do": "delete", "path": "empty"},
        {"do": "delete", "path": "docs", "recursive": True},
        {"do": "make_folder", "path": "docs/again"},
        versioning=versioning,
    )


def test_names_are_swapped_and_taken_over(root: Path):
    swapped = [("a.txt", "t"), ("b.txt", "a.txt"), ("t", "b.txt"), ("docs", "t"), ("empty", "docs"), ("t", "empty")]
    there_and_back(
        root,
        *({"do": "move", "path": path, "to": to} for path, to in swapped),
        {"do": "move", "path": "run.sh", "to": "empty/c.txt", "replace": True},
        {"do": "move", "path": "dangling", "to": "empty/link", "replace": True},
    )


# --- Links -----------------------------------------------------------------------------------------------------------


SECRET = "for nobody here to read"


@pytest.fixture
def outside(root: Path) -> Path:
    """A folder beside the tree, with links from the tree to it and to nowhere."""
    place = root.parent / "outside"
    (place / "folder").mkdir(parents=True)
    (place / "secret").write_text(SECRET)
    (root / "absolute").symlink_to(place / "secret")
    (root / "relative").symlink_to("../outside/secret")
    (root / "folder").symlink_to(place / "folder")
    (root / "loop").symlink_to("loop2")
    (root / "loop2").symlink_to("loop")
    os.link(place / "secret", root / "same")
    return place


LINKS = ("absolute", "relative", "folder", "loop", "dangling")


def test_links_that_lead_anywhere_are_moved_and_deleted_as_such(root: Path, outside: Path):
    before = manifest(outside)
    there_and_back(root, *({"do": "move", "path": link, "to": f"docs/{link}2"} for link in LINKS))
    there_and_back(root, *({"do": "delete", "path": link} for link in LINKS))
    there_and_back(root, {"do": "delete", "path": "folder", "recursive": True})
    there_and_back(root, sh(f"rm {' '.join(LINKS)}; ln -s ../outside/secret loop; ln -s docs folder; mkdir dangling"))
    assert manifest(outside) == before


@pytest.mark.parametrize("do", ["write", "append", "delete", "set_mode", "make_folder", "move"])
def test_nothing_is_written_through_a_link(root: Path, outside: Path, do: str):
    before, there = manifest(root), manifest(outside)
    given = {"write": {"content": "x"}, "append": {"content": "x"}, "set_mode": {"mode": 0o600}, "move": {"to": "x"}}
    with open_with(root) as session:
        for path in (
            "folder/x",
            "absolute/x",
            "loop/x",
            "docs/link/x",
            *(LINKS if do in ("append", "set_mode") else ()),
        ):
            with pytest.raises(InputError):
                session.propose({"do": do, "path": path, **given.get(do, {})})
    assert (manifest(root), manifest(outside)) == (before, there)


@pytest.mark.parametrize("method", ["overlay", "copy"])
def test_what_a_command_writes_through_links_stays_in_its_cell(root: Path, outside: Path, method: str):
    before, there = manifest(root), manifest(outside)
    line = f"mkdir -p {outside}; for f in absolute relative folder/x loop/x dangling; do echo bad > $f || true; done"
    with open_with(root) as session:
        session.actions.managers["run"]._commands.__dict__["method"] = method  # pyright: ignore
        proposal = session.propose(sh(f"{line}; cat absolute relative >&2 || true"))
        assert SECRET not in str(proposal.plan.output)
        session.run(proposal.action, proposal.plan.digest)
        session.undo(proposal.action)
    assert (manifest(root), manifest(outside)) == (before, there)


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_other_names_of_a_file_keep_its_content_inside_and_outside(root: Path, outside: Path, versioning: Versioning):
    there = (outside / "secret").stat()
    there_and_back(
        root,
        {"do": "write", "path": "same", "content": "other"},
        {"do": "move", "path": "docs/same as a", "to": "third"},
        {"do": "write", "path": "a.txt", "content": "other"},
        {"do": "delete", "path": "third"},
        versioning=versioning,
    )
    there_and_back(root, sh("echo more >> same; ln same fourth; echo x >> a.txt; rm b.txt"), versioning=versioning)
    assert (outside / "secret").read_text() == SECRET
    assert (root / "same").samefile(outside / "secret")
    assert (root / "a.txt").samefile(root / "docs/same as a")
    assert (outside / "secret").stat().st_mtime_ns == there.st_mtime_ns


def test_a_group_of_hard_links_that_goes_and_comes_back_is_one_file(root: Path):
    (root / "group").mkdir()
    for name in ("one", "two", "three"):
        os.link(root / "a.txt", root / "group" / name)
    there_and_back(root, {"do": "delete", "path": "group", "recursive": True})
    there_and_back(root, sh("mkdir new; mv group/one new; rm group/two; echo x > group/three"))
    assert (root / "group/three").samefile(root / "docs/same as a")


# --- Modes, owners, attributes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mask", "versioning"), [(0, "snapshot"), (0o077, "snapshot"), (0o777, "git")])
def test_modes_are_what_they_were_whatever_the_mask(root: Path, mask: int, versioning: Versioning):
    (root / "docs").chmod(0o2775)
    (root / "empty").chmod(0o1777)
    (root / "shut").mkdir(mode=0)
    (root / "none").write_text("x")
    (root / "none").chmod(0)
    old = os.umask(mask)
    try:
        after = there_and_back(
            root,
            {"do": "write", "path": "new", "content": "x"},
            {"do": "write", "path": "run.sh", "content": "x"},
            {"do": "make_folder", "path": "x/y"},
            {"do": "set_mode", "path": "none", "mode": 0o6711},
            {"do": "delete", "path": "shut"},
            {"do": "delete", "path": "docs/deep", "recursive": True},
            sh("chmod 3777 empty; chmod 0 docs; rm none; echo x > shut"),
            versioning=versioning,
        )
    finally:
        os.umask(old)
    modes = {path: stat.S_IMODE(after[path][0]) for path in ("new", "run.sh", "x", "x/y", "empty", "docs")}
    assert modes == {
        "new": 0o644,
        "run.sh": 0o4750,
        "x": 0o755,
        "x/y": 0o755,
        "empty": 0o3777,
        "docs": 0o2000,
    }  # as chmod does it


@pytest.mark.root
@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_owners_are_what_they_were(root: Path, versioning: Versioning):
    os.chown(root / "docs", 1000, 1001)
    os.chown(root / "docs/c.txt", 1000, 0)
    os.chown(root / "dangling", 1002, 1002, follow_symlinks=False)
    after = there_and_back(
        root,
        {"do": "write", "path": "docs/c.txt", "content": "x"},
        {"do": "delete", "path": "dangling"},
        sh("chown 1003:1004 run.sh docs b.txt; chown -h 1003 docs/link; chmod 4755 run.sh; rm -r docs/deep"),
        versioning=versioning,
    )
    assert after["docs/c.txt"][1:3] == (1000, 0)
    assert after["run.sh"][:3] == (stat.S_IFREG | 0o4755, 1003, 1004)
    assert after["docs/link"][1:3] == (1003, 0)


_NOBODY = 65534


@pytest.fixture
def of_nobody() -> Iterator[Path]:
    """A folder of a user who is not root."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        (Path(place) / "own/tree/docs").mkdir(parents=True)
        (Path(place) / "own/tree/docs/a").write_text("a")
        shell(f"chown -R {_NOBODY}:{_NOBODY} own", Path(place))
        yield Path(place) / "own/tree"


@contextlib.contextmanager
def as_user(number: int) -> Iterator[None]:
    """Have the rights of a user for the length of a block."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(number)
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def as_nobody(root: Path, *operations: dict[str, Any]) -> list[str]:
    """What becomes of operations of a user who is not root; each that is done is taken back."""
    told: list[str] = []
    with as_user(_NOBODY), open_on(root) as session:
        for operation in operations:
            try:
                session.undo(done(session, **operation))
                told.append("done")
            except (InputError, HostError) as error:
                told.append(str(error))
    return told


@pytest.mark.root
def test_what_a_container_left_to_root_is_taken_out_and_put_back_or_named(of_nobody: Path):
    shell("echo x > roots; mkdir -p kept/in empty; chown -R 0:0 roots kept empty", of_nobody)
    before = manifest(of_nobody)
    told = as_nobody(
        of_nobody,
        {"do": "delete", "path": "roots"},
        {"do": "write", "path": "roots", "content": "y"},
        {"do": "delete", "path": "kept", "recursive": True},
        {"do": "write", "path": "kept/in/x", "content": "y"},
        {"do": "set_mode", "path": "roots", "mode": 0o600},
    )
    assert manifest(of_nobody) == before
    assert told[0] == "done"
    assert "belongs to user 0" in told[1]
    assert all("Permission denied" in each for each in told[2:4])
    assert "Operation not permitted" in told[4]


@pytest.mark.root
def test_what_may_not_be_written_or_read_is_named_and_left(of_nobody: Path):
    shell("mkdir -m 555 fixed; echo x > fixed/file; mkdir -m 000 shut; echo y > none; chmod 000 none", of_nobody)
    shell(f"chown -R {_NOBODY}:{_NOBODY} .", of_nobody)
    before = manifest(of_nobody)
    told = as_nobody(
        of_nobody,
        {"do": "delete", "path": "fixed/file"},
        {"do": "write", "path": "fixed/new", "content": ""},
        {"do": "append", "path": "none", "content": "z"},
        {"do": "delete", "path": "none"},
        {"do": "delete", "path": "shut"},
        {"do": "set_mode", "path": "none", "mode": 0o644},
        {"do": "move", "path": "shut", "to": "docs/shut"},
    )
    assert manifest(of_nobody) == before
    assert all("Permission denied" in each for each in told[:3])
    assert told[3] == "done"
    assert told[5] == "done"


@pytest.mark.root
def test_a_folder_that_a_command_made_read_only_is_named_where_it_cannot_be_moved(of_nobody: Path):
    written, stash = of_nobody, of_nobody.parent
    (written / "fixed").mkdir(mode=0o555)
    shell(f"chown -R {_NOBODY}:{_NOBODY} .", of_nobody)
    complaint = "'fixed': was made so that it cannot be moved"
    with Scope(written) as scope, as_user(_NOBODY), pytest.raises(InputError, match=complaint):
        claim(scope, Capture(brought={"0": "fixed"}), stash)
    assert (written / "fixed").is_dir()


def with_attributes(path: Path) -> None:
    """Give a file or folder an extended attribute, an access control list, and a file capabilities as well."""
    entries = [(0x01, 6, -1), (0x02, 7, 1000), (0x04, 4, -1), (0x10, 7, -1), (0x20, 0, -1)]  # acl(5), linux/posix_acl.h
    rules = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    given = {"user.note": b"kept\0\xff", "system.posix_acl_access": rules}
    if path.is_dir():
        given["system.posix_acl_default"] = rules
    elif os.geteuid() == 0:
        given["security.capability"] = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # cap_net_bind_service
    try:
        for name, value in given.items():
            os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"this file system has no {error.filename or 'attributes'}: {error.strerror}")


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_attributes_access_lists_and_capabilities_stay(root: Path, versioning: Versioning):
    for path in ("run.sh", "b.txt", "docs/deep/d.txt", "docs/deep", "empty"):
        with_attributes(root / path)
    before = manifest(root)
    after = there_and_back(
        root,
        {"do": "write", "path": "run.sh", "content": "x"},
        {"do": "set_mode", "path": "b.txt", "mode": 0o600},
        {"do": "delete", "path": "docs/deep", "recursive": True},
        {"do": "write", "path": "empty/new", "content": ""},
        versioning=versioning,
    )
    assert dict(after["run.sh"][8]) == dict(before["run.sh"][8])
    there_and_back(
        root,
        sh("echo more >> run.sh; chmod 700 b.txt; touch -d 2001-02-03 docs/deep/d.txt; chmod 711 empty"),
        sh(f'{python_executable()} -c \'import os; os.removexattr("empty", "user.note")\'; mv docs/deep deep'),
        versioning=versioning,
    )


def test_times_of_what_is_around_are_what_they_were(root: Path):
    times = {path: facts[3] for path, facts in manifest(root).items()}
    with open_with(root) as session:
        actions = [
            done(session, do="write", path="docs/deep/new", content="x"),
            done(session, do="append", path="docs/c.txt", content="x"),
            done(session, **sh("rm deep/d.txt; mkdir -p x/y; ls -R", within="docs")),
        ]
        apart = {path: facts[3] for path, facts in manifest(root).items()}
        assert {path for path, time in times.items() if apart.get(path) != time} == {
            *("docs", "docs/c.txt", "docs/deep", "docs/deep/d.txt")
        }
        session.undo(actions[2])
        session.undo(actions[0])
        session.undo(actions[1])
    assert {path: facts[3] for path, facts in manifest(root).items()} == times


# --- Sizes and names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_holes_stay_holes(root: Path, versioning: Versioning):
    blocks = (root / "holes").stat().st_blocks
    line = "printf x | dd of=holes bs=1 seek=500000 conv=notrunc; truncate -s 3M new; truncate -s 10 docs/c.txt"
    after = there_and_back(root, {"do": "move", "path": "holes", "to": "docs/holes"}, versioning=versioning)
    assert after["docs/holes"][7] == bytes(1 << 20)
    there_and_back(root, {"do": "delete", "path": "holes"}, versioning=versioning)
    with open_with(root, versioning) as session:
        before = seen(root, versioning)
        session.undo(done(session, **sh(line)))
        assert seen(root, versioning) == before
    assert (root / "holes").stat().st_blocks == blocks == 0


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_a_file_of_more_than_4_gib_goes_and_comes_back(root: Path, versioning: Versioning):
    with (root / "huge").open("wb") as file:
        file.truncate((4 << 30) + 3)
        os.pwrite(file.fileno(), b"end", 4 << 30)
    before = (root / "huge").stat()
    with open_with(root, versioning) as session:
        action = done(session, do="delete", path="huge")
        assert not (root / "huge").exists()
        session.undo(action)
    after = (root / "huge").stat()
    assert (after.st_ino, after.st_size, after.st_blocks, after.st_mtime_ns) == (
        *(before.st_ino, before.st_size, before.st_blocks, before.st_mtime_ns),
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", [150, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_many_small_files_go_and_come_back(root: Path, number: int, versioning: Versioning):
    for each in range(number):
        place = root / f"many/{each % 100}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{each}").write_text(f"{each}")
    there_and_back(root, {"do": "delete", "path": "many", "recursive": True}, versioning=versioning)


def test_a_folder_of_any_size_goes_and_comes_back_with_one_renaming(root: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []
    rename = steps_module._rename

    def counted(*args: Any) -> None:
        calls.append(args[1])
        rename(*args)

    monkeypatch.setattr(steps_module, "_rename", counted)
    with open_with(root) as session:
        action = done(session, do="delete", path="docs", recursive=True)
        session.undo(action)
        session.redo(action)
        session.undo(action)
    assert len(calls) == 4


NAMES = [
    "new\nline",
    "-rf",
    "--help",
    "'single' \"double\" `back` $(id) \\",
    " spaces ",
    "tab\tand\x01control\x7f",
    "not utf-8 \udcff\udcc3",
    "n" * 255,
    "ü" * 127,
    unicodedata.normalize("NFC", "äpfel"),
    unicodedata.normalize("NFD", "äpfel"),
    "Case",
    "CASE",
    "%s %n",
    "a:b",
    "...",
    "*",
    "#",
]


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_any_name_is_a_name(root: Path, versioning: Versioning):
    with_files = [(root / "names" / name, name) for name in NAMES]
    several = 3 if versioning == "snapshot" else 6
    (root / "names").mkdir()
    for path, name in with_files:
        path.write_text(name, errors="surrogateescape")
    after = there_and_back(
        root,
        *({"do": "append", "path": f"names/{name}", "content": "x"} for name in NAMES[::several]),
        *({"do": "make_folder", "path": f"empty/{name}"} for name in NAMES[::several]),
        {"do": "delete", "path": "names", "recursive": True},
        versioning=versioning,
    )
    assert {f"empty/{name}" for name in NAMES[::several]} <= after.keys()
    there_and_back(root, sh('for f in names/*; do echo >> "$f"; done; mv names empty'), versioning=versioning)


def test_a_name_changes_its_case_or_its_composition(root: Path):
    nfc, nfd = (unicodedata.normalize(form, "äpfel") for form in ("NFC", "NFD"))
    (root / nfc).write_text("apples")
    after = there_and_back(
        root,
        {"do": "move", "path": "a.txt", "to": "A.TXT"},
        {"do": "move", "path": "docs", "to": "Docs"},
        {"do": "move", "path": nfc, "to": nfd},
    )
    assert {"A.TXT", "Docs", nfd} <= after.keys()
    assert not {"a.txt", "docs", nfc} & after.keys()
    there_and_back(root, sh(f"mv a.txt A.TXT; mv docs Docs; mv {nfc} {nfd}"))


@pytest.mark.parametrize("choice", [Choice.FORCE, Choice.SAVE_ASIDE])
def test_what_others_put_under_a_long_name_is_saved_under_one_that_fits(root: Path, choice: Choice):
    name = "ü" * 127
    with open_with(root) as session:
        action = done(session, do="write", path=f"docs/{name}", content="ours")
        (root / "docs" / name).write_text("theirs")
        session.undo(action, on_conflict=choice)
        assert not (root / "docs" / name).exists()
        saved = [path for path in (root / "docs").iterdir() if path.is_file() and path.read_bytes() == b"theirs"]
        assert len(saved) == (choice is Choice.SAVE_ASIDE)
        assert all(action in path.name for path in saved)
        session.redo(action)
        assert (root / "docs" / name).read_text() == "theirs"


def deep_names(folder: Path) -> list[tuple[str, int, int, int]]:
    """Names, modes, times and inodes of what is below a folder, however long its path is."""
    found: list[tuple[str, int, int, int]] = []
    start = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _, folders, names, descriptor in os.fwalk(".", dir_fd=start):
        for name in sorted((*folders, *names)):
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            found.append((name, about.st_mode, about.st_mtime_ns, about.st_ino))
    os.close(start)
    return found


DEEP = """
import os
for _ in range(30):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("bottom", "w").write("deep")
"""


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_a_path_longer_than_a_path_may_be_goes_and_comes_back(root: Path, versioning: Versioning):
    code = [sys.executable, "-c", DEEP]
    subprocess.run(code, cwd=root / "docs", check=True)
    before = deep_names(root)
    bottom = "/".join(["docs", *["d" * 200] * 30, "bottom"])
    with open_with(root, versioning) as session:
        actions = [
            done(session, do="write", path=bottom, content="deeper"),
            done(session, do="move", path=bottom, to=f"{bottom}2"),
            done(session, do="set_mode", path=f"{bottom}2", mode=0o600),
            done(session, do="delete", path="docs", recursive=True),
        ]
        for action in reversed(actions):
            session.undo(action)
        assert [each[:3] for each in deep_names(root)] == [each[:3] for each in before]
        made = done(session, **sh(f"cd empty; {python_executable()} -c '{DEEP}'"))
        assert len(deep_names(root)) == len(before) + 31
        session.undo(made)
        session.redo(made)
        session.undo(made)
        assert [each[:3] for each in deep_names(root)] == [each[:3] for each in before]
        session.commit(done(session, do="delete", path="docs", recursive=True))
        assert not (root / "docs").exists()
        assert session.audit() == []


def test_folders_may_be_deeper_than_there_are_descriptors(root: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    deep = "/".join(["d"] * 90)
    before = manifest(root)
    resource.setrlimit(resource.RLIMIT_NOFILE, (70, hard))
    try:
        with open_with(root) as session:
            made = done(session, **sh(f"mkdir -p {deep}; echo x > {deep}/x"))
            there = shell("find d -printf '%p %i %m %T@ '", root)
            actions = [
                done(session, do="write", path=f"{deep}/x", content="y"),
                done(session, do="delete", path="d", recursive=True),
            ]
            for action in reversed(actions):
                session.undo(action)
            assert shell("find d -printf '%p %i %m %T@ '", root) == there
            session.undo(made)
            assert manifest(root) == before
            session.commit(done(session, do="delete", path="docs", recursive=True))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- Repositories ----------------------------------------------------------------------------------------------------

GIT = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always -c init.defaultBranch=main"
REPOSITORY = f"""
{GIT} init -q --template= . && mkdir .git/hooks
printf '[core]\\n\\tautocrlf = true\\n\\thooksPath = .git/hooks\\n' >> .git/config
printf '[core]\\n\\texcludesFile = {{home}}/excludes\\n' > .gitconfig && echo '*.secret' > excludes
printf '*.dat filter=lfs diff=lfs merge=lfs -text\\n* text=auto\\n' > .gitattributes
printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:{"0" * 64}\\nsize 5\\n' > big.dat
printf 'one\\r\\ntwo\\n' > mixed.txt && {GIT} add -A 2>/dev/null && {GIT} commit -qm one
echo stashed >> mixed.txt && {GIT} stash -q && {GIT} branch other && {GIT} tag v1
{GIT} init -q --template= ../upstream
cd ../upstream && echo u > u && {GIT} add u && {GIT} commit -qm u && cd "$OLDPWD"
{GIT} submodule --quiet add ../upstream sub 2>/dev/null && {GIT} commit -qm sub
{GIT} worktree add -q ../worktree other && {GIT} worktree add -q inner -b third
{GIT} clone -q --template= --depth 1 "file://$PWD/../upstream" shallow
{GIT} init -q --template= nested && echo n > nested/n
printf '.env\\nnode_modules/\\nbuild/\\n' > .gitignore && echo KEY=1 > .env && echo s > a.secret
mkdir -p node_modules/left-pad build && echo m > node_modules/left-pad/index.js && echo b > build/out.o
echo staged > staged.txt && {GIT} add staged.txt && echo unstaged >> a.txt && echo new > untracked
printf '#!/bin/sh\\ntouch RAN\\n' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit
cp .git/hooks/post-commit .git/hooks/pre-commit
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one of everything that Git knows, which is copied for each test."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    place = tmp_path_factory.mktemp("template")
    (place / "tree").mkdir()
    (place / "tree/a.txt").write_text("first\n")
    shell(REPOSITORY.format(home=place / "tree"), place / "tree")
    return place


@pytest.fixture
def repository(template: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", *template.iterdir(), tmp_path], check=True)
    return tmp_path / "tree"


def of_git(root: Path) -> dict[str, Any]:
    return {path: facts for path, facts in manifest(root).items() if ".git" in Path(path).parts}


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_acts_on_a_working_tree_leave_all_that_git_knows(repository: Path, versioning: Versioning):
    before, beside = of_git(repository), manifest(repository.parent / "worktree")
    with open_with(repository, versioning) as session:
        for operation in (
            {"do": "write", "path": "mixed.txt", "content": "other\n"},
            {"do": "delete", "path": ".gitignore"},
            {"do": "delete", "path": "big.dat"},
            {"do": "delete", "path": ".env"},
            {"do": "delete", "path": "node_modules", "recursive": True},
            {"do": "move", "path": "staged.txt", "to": "build/staged.txt"},
            sh("rm -r build; rm -f a.secret untracked .gitattributes; echo x >> a.txt; echo y > sub/u; rm nested/n"),
        ):
            done(session, **operation)
            assert of_git(repository) == before
    assert of_git(repository) == before
    assert manifest(repository.parent / "worktree") == beside
    assert not (repository / "RAN").exists()


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_what_git_ignores_and_what_it_has_not_yet_comes_back(repository: Path, versioning: Versioning):
    there_and_back(
        repository,
        {"do": "write", "path": ".gitignore", "content": "*\n"},
        {"do": "delete", "path": ".env"},
        {"do": "append", "path": "a.secret", "content": "x"},
        {"do": "delete", "path": "node_modules", "recursive": True},
        {"do": "delete", "path": ".gitconfig"},
        sh("rm -rf build node_modules .gitignore untracked *.secret excludes; echo KEY=2 > .env"),
        versioning=versioning,
    )


COMMANDS = {
    "commit": f"{GIT} commit -qam two",
    "commit of all": f"{GIT} add -u; {GIT} add .gitignore .gitconfig excludes; {GIT} commit -qm two",
    "amend": f"{GIT} commit -q --amend --no-verify -m other",
    "reset": f"{GIT} reset -q --hard HEAD~1",
    "clean": f"{GIT} clean -qfdx -e .gitconfig",
    "gc": f"{GIT} reflog expire --expire=now --all; {GIT} gc -q --prune=now",
    "branches": f"{GIT} branch new; {GIT} checkout -qf -b work; {GIT} branch -qD main; {GIT} tag -d v1",
    "stash": f"{GIT} stash drop -q; {GIT} stash -q -u",
    "config": f"{GIT} config core.autocrlf false; {GIT} config core.hooksPath /tmp; rm .git/hooks/*",
    "submodule": f"{GIT} submodule --quiet deinit -f sub; {GIT} rm -qf sub",
    "status": f"touch a.txt; {GIT} status >/dev/null; {GIT} update-index -q --refresh || true",
    "removal": "rm -rf .git",
    "removal of all": "rm -rf .git nested/.git shallow; rm -rf ./*",
    "anew": f"rm -rf .git; {GIT} init -q .; {GIT} add a.txt; {GIT} commit -qm anew",
}


@pytest.mark.parametrize(
    ("name", "versioning"),
    [*((name, "snapshot") for name in COMMANDS), *((name, "git") for name in ("commit", "gc", "removal of all"))],
)
def test_what_a_command_did_with_git_is_taken_back(repository: Path, name: str, versioning: Versioning):
    before = seen(repository, versioning)
    with open_with(repository, versioning) as session:
        action = done(session, **sh(COMMANDS[name]))
        after = facts_without_times(manifest(repository))
        session.undo(action)
        assert seen(repository, versioning) == before
        session.redo(action)
        assert facts_without_times(manifest(repository)) == after
        session.undo(action)
        assert seen(repository, versioning) == before
    assert shell(f"{GIT} fsck --no-dangling --no-progress", repository) == ""
    assert "staged.txt" in shell(f"{GIT} diff --cached --name-only", repository)
    assert "WIP" in shell(f"{GIT} stash list", repository)


def test_a_folder_within_a_larger_repository_is_acted_on_alone(repository: Path):
    inner = repository / "build"
    before = {path: facts for path, facts in manifest(repository).items() if not path.startswith("build")}
    (inner / "in").mkdir()
    here = manifest(inner)
    with granted(open_session(inner, repository.parent / "state")) as session:
        with pytest.raises(InputError, match=r"not a git repository"):
            session.propose(sh("git status"))  # it does not see what is above
        actions = [
            done(session, do="delete", path="out.o"),
            done(session, **sh("echo x > in/y; rm -rf ../.git || true")),
        ]
        for action in reversed(actions):
            session.undo(action)
    assert manifest(inner) == here
    after = {path: facts for path, facts in manifest(repository).items() if not path.startswith("build")}
    assert after == before


def test_names_of_git_are_no_names_in_our_repository(repository: Path):
    names = (".git", ".GIT", "git~1", ".gitmodules", "%.git", "%", ".gitattributes")
    for name in names:
        (repository / "build" / name).mkdir()
        (repository / "build" / name / "file").write_text(f"content of {name}\n" * 100)
    before = seen(repository, "git")
    with open_with(repository, "git", lfs_above=0) as session:
        actions = [
            done(session, **sh("rm .gitattributes .gitmodules mixed.txt; rm -r build")),
            done(session, do="delete", path="nested", recursive=True),
        ]
        ours = repository.parent / "state/history.git"
        shell(f"git --git-dir {ours} fsck --strict --no-dangling", repository.parent)
        shell(f"git --git-dir {ours} gc -q --prune=now", repository.parent)
        listed = shell(f"git --git-dir {ours} ls-tree -r --name-only refs/actions/{actions[1]}^", repository.parent)
        assert "tree/nested/%.git/HEAD" in listed
        for action in reversed(actions):
            session.undo(action)
    assert seen(repository, "git") == before


# --- Mounts ----------------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_what_is_mounted_below_is_neither_read_nor_written_nor_moved(root: Path, outside: Path, mounts):
    (root / "docs/tmpfs").mkdir()
    (root / "docs/bound").mkdir()
    (root / "docs/file").touch()
    mounts(root / "docs/tmpfs", "-t", "tmpfs", "none")
    (root / "docs/tmpfs/x").write_text("x")
    mounts(root / "docs/bound", "--bind", outside)
    mounts(root / "docs/file", "--bind", outside / "secret")
    before, there = manifest(root), manifest(outside)
    operations = [
        *(
            {"do": "write", "path": path, "content": "bad"}
            for path in ("docs/tmpfs/x", "docs/bound/secret", "docs/file")
        ),
        *(
            {"do": "append", "path": path, "content": "bad"}
            for path in ("docs/tmpfs/x", "docs/bound/secret", "docs/file")
        ),
        *(
            {"do": "set_mode", "path": path, "mode": 0o700}
            for path in ("docs/tmpfs/x", "docs/bound/secret", "docs/file")
        ),
        *({"do": "set_mode", "path": path, "mode": 0o700} for path in ("docs/tmpfs", "docs/bound")),
        *(
            {"do": "delete", "path": path, "recursive": True}
            for path in ("docs", "docs/tmpfs", "docs/bound", "docs/file")
        ),
        *(
            {"do": "move", "path": path, "to": "moved"}
            for path in ("docs", "docs/tmpfs", "docs/bound/secret", "docs/file")
        ),
        {"do": "make_folder", "path": "docs/bound/new"},
        {"do": "make_folder", "path": "docs/tmpfs/new"},
        sh("cat docs/bound/* docs/file docs/tmpfs/*"),
        sh("true", within="docs"),
        sh("true", within="docs/bound"),
        sh("true", within="docs/tmpfs"),
    ]
    with open_with(root) as session:
        for operation in operations:
            with pytest.raises(InputError, match="another file system"):
                session.propose(operation)
        assert (manifest(root), manifest(outside)) == (before, there)
        session.undo(done(session, do="write", path="a.txt", content="beside them, all is as ever"))
        session.undo(done(session, **sh("echo x > d.txt; mkdir new", within="docs/deep")))
    assert (manifest(root), manifest(outside)) == (before, there)


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_folder_that_is_mounted_itself_is_refused_and_one_below_it_is_not(
    root: Path, tmp_path: Path, mounts, kind: str
):
    place = tmp_path / "mounted"
    place.mkdir()
    mounts(place, *(("-t", "tmpfs", "none") if kind == "tmpfs" else ("--bind", root)))
    (place / "inner").mkdir()
    (place / "inner/file").write_text("x")
    with pytest.raises(HostError, match="a folder below it as root"):
        open_session(place, tmp_path / "state")
    before = manifest(place / "inner")
    with granted(open_session(place / "inner", place / "state")) as session:
        actions = [done(session, do="delete", path="file"), done(session, **sh("mkdir x; echo y > x/y"))]
        for action in reversed(actions):
            session.undo(action)
    assert manifest(place / "inner") == before


# --- Others at work --------------------------------------------------------------------------------------------------

WRITER = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("PRAGMA journal_mode=WAL")
base.execute("PRAGMA wal_autocheckpoint=0")
base.execute("CREATE TABLE IF NOT EXISTS t (n)")
for line in sys.stdin:
    try:
        base.execute("INSERT INTO t VALUES (?)", (line.strip(),))
        print("ok", flush=True)
    except sqlite3.Error as error:
        print(error, flush=True)
"""


@pytest.fixture
def writer(root: Path) -> Iterator[Callable[[str], str]]:
    """Another process that has a database open, with a write-ahead log, and adds a row when it is told to."""
    (root / "data").mkdir()
    command = [sys.executable, "-c", WRITER, root / "data/base.db"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asks, answers = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)

        def write(row: str) -> str:
            asks.write(f"{row}\n")
            asks.flush()
            return answers.readline().strip()

        assert write("one") == "ok"
        yield write
        asks.close()


def rows(folder: Path) -> list[str]:
    """The rows of a whole database, read from a copy."""
    with tempfile.TemporaryDirectory() as place:
        for path in folder.glob("base.db*"):
            shutil.copy(path, place)
        with contextlib.closing(sqlite3.connect(Path(place) / "base.db")) as base:
            assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return [row for (row,) in base.execute("SELECT n FROM t ORDER BY rowid")]


@pytest.mark.parametrize(
    "operation",
    [
        {"do": "delete", "path": "data", "recursive": True},
        {"do": "move", "path": "data", "to": "elsewhere"},
        sh("rm -r data; mkdir data; echo empty > data/base.db"),
        sh("rm data/base.db*"),
        sh("sqlite3 data/base.db 'DELETE FROM t; PRAGMA wal_checkpoint(TRUNCATE)'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_a_database_that_others_have_open_comes_back_whole(root: Path, writer, operation, versioning: Versioning):
    if "sqlite3" in str(operation) and not shutil.which("sqlite3"):
        pytest.skip("sqlite3 is not installed")
    before = seen(root, versioning)
    with open_with(root, versioning) as session:
        action = done(session, **operation)
        session.undo(action)
        assert seen(root, versioning) == before
        assert rows(root / "data") == ["one"]
    if versioning == "snapshot":  # the same files, so the writer still has them
        assert writer("two") == "ok"
        assert rows(root / "data") == ["one", "two"]


def test_what_others_wrote_to_a_database_meanwhile_is_a_conflict_and_not_lost(root: Path, writer):
    with open_with(root) as session:
        action = done(session, do="delete", path="data", recursive=True)
        assert writer("two") == "ok"  # to what was moved aside
        with pytest.raises(InputError, match="somebody else has changed data since"):
            session.undo(action)
        session.undo(action, on_conflict=Choice.FORCE)
        assert rows(root / "data") == ["one", "two"]
        proposal = session.propose(sh("sqlite3 data/base.db 'DELETE FROM t' || rm data/base.db*"))
        assert writer("three") == "ok"
        with pytest.raises(InputError, match="has changed since it was planned"):
            session.run(proposal.action, proposal.plan.digest)
        assert rows(root / "data") == ["one", "two", "three"]


def test_what_others_do_elsewhere_stays_and_on_the_same_path_is_a_conflict(root: Path):
    with open_with(root) as session:
        action = done(session, **sh("echo ours > docs/c.txt; rm b.txt; mkdir made"))
        (root / "docs/theirs").write_text("theirs")
        (root / "run.sh").write_text("theirs")
        os.rename(root / "holes", root / "docs/holes")
        theirs = manifest(root)
        session.undo(action)
        session.redo(action)
        session.undo(action)
        after = manifest(root)
        ours = {".", "docs", "docs/c.txt", "b.txt", "made"}
        assert {path: facts for path, facts in after.items() if path not in ours} == {
            path: facts for path, facts in theirs.items() if path not in ours
        }
        session.redo(action)
        (root / "made/theirs").write_text("theirs")
        with pytest.raises(InputError, match="somebody else has changed made since; nothing was taken back"):
            session.undo(action)
        assert (root / "docs/c.txt").read_text() == "ours\n"
        assert (root / "made/theirs").read_text() == "theirs"


def test_what_a_command_leaves_running_ends_with_it(root: Path):
    mark = f"left-by-{os.getpid()}"
    write = f"while true; do echo {mark} >> late; done"
    line = f"(trap '' HUP TERM; setsid sh -c '{write}') & nohup sh -c '{write}' & (({write}) &) & echo now > now"
    with open_with(root) as session:
        before = manifest(root)
        proposal = session.propose(sh(line))
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                assert mark.encode() not in (folder / "cmdline").read_bytes()
        session.run(proposal.action, proposal.plan.digest)
        after = manifest(root)
        session.undo(proposal.action)
        assert manifest(root) == before
        session.redo(proposal.action)
        assert facts_without_times(manifest(root)) == facts_without_times(after)


# --- What fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS])
def test_what_the_file_system_refuses_in_the_middle_is_put_back(root: Path, monkeypatch, number: int):
    before = manifest(root)
    real, calls, failing = steps_module._libc, [0], [1]

    def rename(*args: Any) -> int:
        calls[0] += 1
        if calls[0] == failing[0]:
            ctypes.set_errno(number)
            return -1
        return real.renameat2(*args)

    monkeypatch.setattr(
        steps_module, "_libc", type("Libc", (), {"renameat2": staticmethod(rename), "syncfs": real.syncfs})
    )
    with open_with(root) as session:
        for failing[0] in (1, 2, 3):
            calls[0] = 0
            proposal = session.propose(sh("rm b.txt; echo x > new; echo y > a.txt"))
            with pytest.raises((InputError, HostError), match=os.strerror(number)):
                session.run(proposal.action, proposal.plan.digest)
            assert manifest(root) == before
            assert session.journal.standing(proposal.action).state is S.FAILED
        failing[0] = 0
        session.undo(done(session, do="make_folder", path="x/y/z"))
        assert manifest(root) == before
        assert session.audit() == []


@pytest.mark.root
def test_a_disk_that_is_really_full_leaves_before_or_after(tmp_path: Path, mounts):
    place = tmp_path / "small"
    place.mkdir()
    mounts(place, "-t", "tmpfs", "-o", "size=2m,nr_inodes=400", "none")
    root = place / "tree"
    (root / "docs").mkdir(parents=True)
    (root / "docs/a").write_text("a" * 100_000)
    before = manifest(root)
    operations = [
        {"do": "write", "path": "large", "content": "x" * 3_000_000},
        {"do": "append", "path": "docs/a", "content": "x" * 3_000_000},
        sh("head -c 5M /dev/zero > large"),
        sh("mkdir many; for i in $(seq 500); do echo > many/$i; done"),
    ]
    with open_with(root) as session:
        for operation in operations:
            with pytest.raises((InputError, OSError)):
                done(session, **operation)
            assert manifest(root) == before, operation
        session.undo(done(session, do="delete", path="docs", recursive=True))
        assert manifest(root) == before
        assert session.audit() == []


@pytest.mark.root
def test_what_cannot_be_moved_even_by_root_is_named_and_all_is_put_back(root: Path):
    if subprocess.run(["chattr", "+i", root / "docs/c.txt"], capture_output=True, check=False).returncode:
        pytest.skip("this file system has no immutable files")
    try:
        before = manifest(root)
        with open_with(root) as session:
            session.actions.managers["run"]._commands.__dict__["method"] = "copy"  # pyright: ignore  an overlay refuses it
            for operation in (
                {"do": "write", "path": "docs/c.txt", "content": "x"},
                {"do": "delete", "path": "docs/c.txt"},
                {"do": "set_mode", "path": "docs/c.txt", "mode": 0o600},
                sh("echo x > a.txt; rm -f docs/deep/d.txt; rm docs/c.txt; chmod 700 docs"),
            ):
                proposal = session.propose(operation)
                with pytest.raises(InputError, match="Operation not permitted"):
                    session.run(proposal.action, proposal.plan.digest)
                assert manifest(root) == before
                assert session.journal.standing(proposal.action).state is S.FAILED
    finally:
        subprocess.run(["chattr", "-i", root / "docs/c.txt"], check=True)


# --- Attacks with links ----------------------------------------------------------------------------------------------


def test_a_folder_that_is_swapped_with_a_link_all_the_time_leads_nowhere(root: Path, outside: Path):
    (root / "swap").mkdir()
    (root / "swap/secret").write_text("own")
    (root / "other").symlink_to(outside)
    there, names = manifest(outside), (os.fsencode(root / "swap"), os.fsencode(root / "other"))
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            steps_module._libc.renameat2(-100, names[0], -100, names[1], 2)

    thread = threading.Thread(target=swap)
    operations = [
        {"do": "write", "path": "swap/secret", "content": "bad"},
        {"do": "append", "path": "swap/secret", "content": "bad"},
        {"do": "write", "path": "swap/new", "content": "bad"},
        {"do": "set_mode", "path": "swap/secret", "mode": 0o777},
        {"do": "move", "path": "swap/secret", "to": "swap/moved"},
        {"do": "delete", "path": "swap/secret"},
        {"do": "delete", "path": "swap", "recursive": True},
        sh("cat secret; echo bad > secret", within="swap"),
        sh("cat swap/secret other/secret; echo bad > swap/secret; echo bad > other/secret"),
    ]
    told: list[str] = []
    with open_with(root) as session:
        thread.start()
        try:
            for _ in range(6):
                for operation in operations:
                    try:
                        proposal = session.propose(operation)
                        told += [str(proposal.plan.output), *session.difference(proposal.action)]
                        session.run(proposal.action, proposal.plan.digest)
                        session.undo(proposal.action)
                    except (OSError, ValueError, SandboxFault) as error:
                        told.append(str(error))
        finally:
            stop.set()
            thread.join()
    assert manifest(outside) == there
    assert not [each for each in told if SECRET in each]


@pytest.mark.parametrize("method", ["overlay", "copy"])
def test_a_folder_that_was_swapped_with_a_link_before_a_command_is_not_followed(
    root: Path, outside: Path, monkeypatch, method
):
    (root / "swap").mkdir()
    owner, name = (CommandRunner, "_command") if method == "overlay" else (commands_module, "_copy")
    call = getattr(owner, name)

    def swapped(*args: Any) -> Any:
        (root / "swap").rename(root / "swapped")
        (root / "swap").symlink_to(outside)
        return call(*args)

    monkeypatch.setattr(owner, name, swapped)
    there = manifest(outside)
    with open_with(root) as session:
        session.actions.managers["run"]._commands.__dict__["method"] = method  # pyright: ignore
        with pytest.raises((SandboxFault, InputError), match=r"another folder by now|No such file"):
            session.propose(sh("cat secret", within="swap"))
    assert manifest(outside) == there


@pytest.mark.parametrize(
    "path", ["/proc/self/fd/3/x", "proc/self/fd/3", "../tree/a.txt", "./a.txt", "docs/..", "docs/", ""]
)
def test_a_path_that_is_not_plain_is_none(root: Path, path: str):
    (root / "proc").symlink_to("/proc")
    before = manifest(root)
    with open_with(root) as session:
        for operation in (
            {"do": "write", "path": path, "content": "x"},
            {"do": "delete", "path": path},
            {"do": "move", "path": "a.txt", "to": path},
            {"do": "run", "command": ["true"], "within": path or ".."},
        ):
            with pytest.raises(InputError):
                session.propose(operation)
    assert manifest(root) == before


# --- Order, room and death -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_of_two_acts_the_first_alone_is_taken_back_if_they_are_apart(root: Path, versioning: Versioning):
    before = seen(root, versioning)
    with open_with(root, versioning) as session:
        first = done(session, do="delete", path="docs/c.txt")
        apart = done(session, do="write", path="run.sh", content="x")
        on_it = done(session, do="make_folder", path="docs/c.txt/in")
        with pytest.raises(InputError, match=f"{on_it} came later and depend on it"):
            session.undo(first)
        assert session.undo(first, dependents=True) == [on_it, first]
        after = seen(root, versioning)
        assert {path for path, facts in after.items() if facts != before[path]} == {".", "run.sh"}
        assert (root / "run.sh").read_text() == "x"
        session.undo(apart)
        assert seen(root, versioning) == before


@pytest.mark.parametrize("versioning", VERSIONINGS)
def test_an_act_that_changes_nothing_is_one_that_can_be_taken_back(root: Path, versioning: Versioning):
    there_and_back(
        root,
        {"do": "write", "path": "a.txt", "content": "first\n"},
        {"do": "append", "path": "b.txt", "content": ""},
        sh("true"),
        sh("cat a.txt; ls; mkdir new; rmdir new; mv docs x; mv x docs; chmod 600 run.sh; chmod 4750 run.sh"),
        versioning=versioning,
    )


def test_what_was_deleted_and_made_again_equal_is_another_file(root: Path):
    line = "cp -p docs/c.txt t; rm docs/c.txt; mv t docs/c.txt; touch -r run.sh docs"
    with open_with(root) as session:
        before = manifest(root)
        proposal = session.propose(sh(line))
        assert proposal.plan.changes == ("modify 'docs/c.txt'",)
        session.run(proposal.action, proposal.plan.digest)
        assert (root / "docs/c.txt").stat().st_ino != before["docs/c.txt"][4]
        session.undo(proposal.action)
        assert manifest(root) == before
        actions = [done(session, do="delete", path="b.txt"), done(session, do="write", path="b.txt", content="")]
        assert (root / "b.txt").stat().st_ino != before["b.txt"][4]
        for action in reversed(actions):
            session.undo(action)
        assert manifest(root) == before


def test_what_git_was_given_and_is_half_removed_here_comes_back_whole(root: Path, monkeypatch: pytest.MonkeyPatch):
    before = seen(root, "git")

    def dying(place: Path) -> None:
        if (place / "deep").is_dir():
            (place / "c.txt").unlink()
        raise KeyboardInterrupt

    (root / "docs/fifo").unlink()
    (root / "docs/same as a").unlink()
    os.utime(root / "docs", ns=(ELSEWHERE, before["docs"][3]))
    before = seen(root, "git")
    with open_with(root, "git") as session:
        proposal = session.propose({"do": "delete", "path": "docs", "recursive": True})
        monkeypatch.setattr(keeping, "remove_tree_or_file", dying)
        with pytest.raises(KeyboardInterrupt):
            session.run(proposal.action, proposal.plan.digest)
        monkeypatch.undo()
    with open_with(root, "git") as session:
        session.undo(proposal.action)
        assert seen(root, "git") == before
