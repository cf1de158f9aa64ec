"""Files of every kind, name and owner, repositories among them: all is as it was once it is taken back.

"As it was" is the whole manifest.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import subprocess
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import HostError, InputError, SandboxFault
from autoclave.runtime.files import commands as commands_module
from autoclave.runtime.files import steps as steps_module
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import PROTECTED, Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from autoclave.workspaces import python_executable
from tests.runtime.test_commands import sh
from tests.runtime.trees import done, facts_without_times, granted, manifest, open_on

S = ActionState
_METHODS: dict[int, str] = {}
"""How commands get a tree of their own, by file system: tried once for all tests."""


def open_with(root: Path, **others: Any) -> Session:
    """A session that may do everything to all files, also to folders with protected names in them."""
    session = open_on(root, **others)
    commands, device = session.actions.managers["run"].commands, root.stat().st_dev  # pyright: ignore
    if device not in _METHODS:
        _METHODS[device] = commands.method
    commands.__dict__["method"] = _METHODS[device]
    session.permissions.grant(
        Grant(resources=("files/**", *(f"files/**/{name}/**" for name in PROTECTED)), verbs=("*",))
    )
    return session


def there_and_back(root: Path, *operations: dict[str, Any]) -> dict[str, Any]:
    """Act, undo, redo, undo; each time the tree is as it was then. What it is like after the acts."""
    before = manifest(root)
    with open_with(root, budget=1e9) as session:
        actions = [done(session, **operation) for operation in operations]
        after = manifest(root)
        for _ in range(2):
            for action in reversed(actions):
                session.undo(action)
            assert manifest(root) == before
            for action in actions:
                session.redo(action)
            assert facts_without_times(manifest(root)) == facts_without_times(after)
        for action in reversed(actions):
            session.undo(action)
        assert manifest(root) == before
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
@pytest.mark.parametrize("incoming", [kind for kind in KINDS if kind != "device"])  # a cell cannot make devices
def test_each_kind_can_take_the_place_of_each(root: Path, incoming: str):
    places = {kind: kind.replace(" ", "-") for kind in KINDS}
    shell("; ".join(line.format(path=places[kind]) for kind, line in KINDS.items()), root)
    line = "; ".join(f"rm -rf {path}; {KINDS[incoming].format(path=path)}" for path in places.values())
    after = there_and_back(root, sh(line))
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
            if kind != "file":  # and nothing waits for a fifo without a writer
                with pytest.raises(InputError, match="not a file"):
                    session.propose(operation)


# --- Links -----------------------------------------------------------------------------------------------------------


SECRET = "not to be read here"


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
        below = ("folder/x", "absolute/x", "loop/x", "docs/link/x")
        for path in (*below, *(LINKS if do in ("append", "set_mode") else ())):
            with pytest.raises(InputError):
                session.propose({"do": do, "path": path, **given.get(do, {})})
    assert (manifest(root), manifest(outside)) == (before, there)


@pytest.mark.parametrize("method", ["overlay", "copy"])
def test_what_a_command_writes_through_links_stays_in_its_cell(root: Path, outside: Path, method: str):
    before, there = manifest(root), manifest(outside)
    line = f"mkdir -p {outside}; for f in absolute relative folder/x loop/x dangling; do echo bad > $f || true; done"
    with open_with(root) as session:
        session.actions.managers["run"].commands.__dict__["method"] = method  # pyright: ignore
        proposal = session.propose(sh(f"{line}; cat absolute relative >&2 || true"))
        assert SECRET not in str(proposal.plan.output)
        session.run(proposal.action, proposal.plan.digest)
        session.undo(proposal.action)
    assert (manifest(root), manifest(outside)) == (before, there)


def test_other_names_of_a_file_keep_its_content_inside_and_outside(root: Path, outside: Path):
    there = (outside / "secret").stat()
    there_and_back(
        root,
        {"do": "write", "path": "same", "content": "other"},
        {"do": "move", "path": "docs/same as a", "to": "third"},
        {"do": "write", "path": "a.txt", "content": "other"},
        {"do": "delete", "path": "third"},
    )
    there_and_back(root, sh("echo more >> same; ln same fourth; echo x >> a.txt; rm b.txt"))
    assert (outside / "secret").read_text() == SECRET
    assert (root / "same").samefile(outside / "secret")
    assert (root / "a.txt").samefile(root / "docs/same as a")
    assert (outside / "secret").stat().st_mtime_ns == there.st_mtime_ns


# --- Modes, owners, attributes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0, 0o777])
def test_modes_are_what_they_were_whatever_the_mask(root: Path, mask: int):
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
        )
    finally:
        os.umask(old)
    wanted = {"new": 0o644, "run.sh": 0o4750, "x": 0o755, "x/y": 0o755, "empty": 0o3777, "docs": 0o2000}
    assert {path: stat.S_IMODE(after[path][0]) for path in wanted} == wanted  # as chmod does it


@pytest.mark.root
def test_owners_are_what_they_were(root: Path):
    os.chown(root / "docs", 1000, 1001)
    os.chown(root / "docs/c.txt", 1000, 0)
    os.chown(root / "dangling", 1002, 1002, follow_symlinks=False)
    after = there_and_back(
        root,
        {"do": "write", "path": "docs/c.txt", "content": "x"},
        {"do": "delete", "path": "dangling"},
        sh("chown 1003:1004 run.sh docs b.txt; chown -h 1003 docs/link; chmod 4755 run.sh; rm -r docs/deep"),
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


@pytest.mark.root
def test_what_this_user_may_not_write_or_read_is_taken_out_and_put_back_or_named(of_nobody: Path):
    shell("mkdir -m 555 fixed; echo x > fixed/file; mkdir -m 000 shut; echo y > none; chmod 000 none", of_nobody)
    shell(f"chown -R {_NOBODY}:{_NOBODY} .; echo x > roots; mkdir -p kept/in", of_nobody)
    before = manifest(of_nobody)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"do": "delete", "path": "fixed/file"}, "Permission denied"),
        ({"do": "write", "path": "fixed/new", "content": ""}, "Permission denied"),
        ({"do": "append", "path": "none", "content": "z"}, "Permission denied"),
        ({"do": "delete", "path": "none"}, ""),
        ({"do": "set_mode", "path": "none", "mode": 0o644}, ""),
        ({"do": "delete", "path": "roots"}, ""),
        ({"do": "write", "path": "roots", "content": "y"}, "belongs to user 0"),
        ({"do": "delete", "path": "kept", "recursive": True}, "Permission denied"),
        ({"do": "write", "path": "kept/in/x", "content": "y"}, "Permission denied"),
        ({"do": "set_mode", "path": "roots", "mode": 0o600}, "Operation not permitted"),
    ]
    with as_user(_NOBODY), open_on(of_nobody) as session:
        for operation, complaint in cases:
            with pytest.raises((InputError, HostError), match=complaint) if complaint else contextlib.nullcontext():
                session.undo(done(session, **operation))
    assert manifest(of_nobody) == before


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


def test_attributes_access_lists_and_capabilities_stay(root: Path):
    for path in ("run.sh", "b.txt", "docs/deep/d.txt", "docs/deep", "empty"):
        with_attributes(root / path)
    before = manifest(root)
    after = there_and_back(
        root,
        {"do": "write", "path": "run.sh", "content": "x"},
        {"do": "set_mode", "path": "b.txt", "mode": 0o600},
        {"do": "delete", "path": "docs/deep", "recursive": True},
        {"do": "write", "path": "empty/new", "content": ""},
    )
    assert dict(after["run.sh"][8]) == dict(before["run.sh"][8])
    there_and_back(
        root,
        sh("echo more >> run.sh; chmod 700 b.txt; touch -d 2001-02-03 docs/deep/d.txt; chmod 711 empty"),
        sh(f'{python_executable()} -c \'import os; os.removexattr("empty", "user.note")\'; mv docs/deep deep'),
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


def test_holes_stay_holes(root: Path):
    blocks = (root / "holes").stat().st_blocks
    line = "printf x | dd of=holes bs=1 seek=500000 conv=notrunc; truncate -s 3M new; truncate -s 10 docs/c.txt"
    after = there_and_back(root, {"do": "move", "path": "holes", "to": "docs/holes"})
    assert after["docs/holes"][7] == bytes(1 << 20)
    there_and_back(root, {"do": "delete", "path": "holes"})
    with open_with(root) as session:
        before = manifest(root)
        session.undo(done(session, **sh(line)))
        assert manifest(root) == before
    assert (root / "holes").stat().st_blocks == blocks == 0


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


def test_any_name_is_a_name(root: Path):
    with_files = [(root / "names" / name, name) for name in NAMES]
    (root / "names").mkdir()
    for path, name in with_files:
        path.write_text(name, errors="surrogateescape")
    after = there_and_back(
        root,
        *({"do": "append", "path": f"names/{name}", "content": "x"} for name in NAMES[::3]),
        *({"do": "make_folder", "path": f"empty/{name}"} for name in NAMES[::3]),
        {"do": "delete", "path": "names", "recursive": True},
    )
    assert {f"empty/{name}" for name in NAMES[::3]} <= after.keys()
    there_and_back(root, sh('for f in names/*; do echo >> "$f"; done; mv names empty'))


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
    files, folders = ("docs/tmpfs/x", "docs/bound/secret", "docs/file"), ("docs/tmpfs", "docs/bound")
    operations: list[dict[str, Any]] = [
        *({"do": do, "path": path, "content": "bad"} for do in ("write", "append") for path in files),
        *({"do": "set_mode", "path": path, "mode": 0o700} for path in (*files, *folders)),
        *({"do": "delete", "path": path, "recursive": True} for path in ("docs", "docs/file", *folders)),
        *({"do": "move", "path": path, "to": "moved"} for path in ("docs", "docs/tmpfs", *files[1:])),
        *({"do": "make_folder", "path": f"{path}/new"} for path in folders),
        *(sh("true", within=path) for path in ("docs", *folders)),
        sh("cat docs/bound/* docs/file docs/tmpfs/*"),
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


# --- What fails ------------------------------------------------------------------------------------------------------


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
    owner, name = (CommandRunner, "_command") if method == "overlay" else (commands_module, "_copy_inside")
    call = getattr(owner, name)

    def swapped(*args: Any) -> Any:
        (root / "swap").rename(root / "swapped")
        (root / "swap").symlink_to(outside)
        return call(*args)

    monkeypatch.setattr(owner, name, swapped)
    there = manifest(outside)
    with open_with(root) as session:
        session.actions.managers["run"].commands.__dict__["method"] = method  # pyright: ignore
        with pytest.raises((SandboxFault, InputError), match=r"another folder by now|No such file|Not a directory"):
            session.propose(sh("cat secret", within="swap"))
    assert manifest(outside) == there


# --- Order, room and death -------------------------------------------------------------------------------------------


def test_an_act_that_changes_nothing_is_one_that_can_be_taken_back(root: Path):
    there_and_back(
        root,
        {"do": "write", "path": "a.txt", "content": "first\n"},
        {"do": "append", "path": "b.txt", "content": ""},
        sh("true"),
        sh("cat a.txt; ls; mkdir new; rmdir new; mv docs x; mv x docs; chmod 600 run.sh; chmod 4750 run.sh"),
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
