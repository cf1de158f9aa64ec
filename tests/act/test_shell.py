"""A command of a host's shell: shown as it runs, its exit code passed on, undone; with the network on request."""

from __future__ import annotations

import contextlib
import http.server
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import autoclave.act.client
from autoclave.act.client import exchange
from autoclave.act.shell import changed_since, run_shell, warm_up
from autoclave.act.watch import Happened, Watch
from autoclave.cli.act import resident_shell
from autoclave.core import InputError
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.files.tree_digest import scan_of
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.opening import open_records, open_session
from autoclave.runtime.policy.grants import Grant
from tests.runtime.conftest import sealing_host
from tests.sandbox.test_traces import wait_until

__all__ = ["sealing_host"]
pytestmark = pytest.mark.usefixtures("sealing_host")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("first\n")
    (root / "folder").mkdir()
    (root / "folder/b.txt").write_text("second\n")
    permit(root, "files/**", "programs/*")
    return root


def permit(root: Path, *resources: str, guarantee: Guarantee = Guarantee.COMPENSATING) -> None:
    with open_records(root) as (_, permissions):
        permissions.grant(Grant(resources=resources, verbs=("*",), minimum_guarantee=guarantee))


def shell(root: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autoclave", "act", "shell", "--root", str(root), *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def test_streams_and_exit_code_are_passed_on_and_changes_are_undone(root: Path):
    ended = shell(root, "--", "sh", "-c", "cat; echo no >&2; echo more >> a.txt; exit 7", stdin="given\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "given\n", "no\n")
    with open_session(root) as session:
        (each,) = session.journal.standings()
        assert (each.proposed["by"], each.proposed["guarantee"]) == ("shell", "exact")
        assert (root / "a.txt").read_text() == "first\nmore\n"
        session.undo(each.action)
    assert (root / "a.txt").read_text() == "first\n"


def test_what_is_not_applied_is_told(root: Path):
    mode = root.stat().st_mode
    with open_session(root) as session:
        code, warnings = run_shell(session, ("chmod", "751", "."))
    assert (code, warnings) == (0, ["not done: mode of the folder itself, which is not its content"])
    assert root.stat().st_mode == mode


def test_no_process_is_kept_for_a_folder_that_cannot_be_used(tmp_path: Path):
    (tmp_path / "project").mkdir()
    for root, state in (("missing", None), ("project", tmp_path / "project/state")):
        with pytest.raises(InputError, match="must be"):
            resident_shell.prefix(tmp_path / root, state, [])
    assert list(tmp_path.rglob("*")) == [tmp_path / "project"]


def test_output_is_shown_while_the_command_runs(root: Path):
    command = [sys.executable, "-m", "autoclave", "act", "shell", "--root", str(root)]
    command += ["--", "sh", "-c", "echo begun; sleep 1; echo done"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        began = time.monotonic()
        assert process.stdout.read() == "done\n"
        assert time.monotonic() - began > 0.5


def test_what_is_not_granted_is_not_run(root: Path):
    permit(root, "files/**", "programs/*", guarantee=Guarantee.NONE)
    ended = shell(root, "--network", "--", "sh", "-c", "echo ran")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "use 'network/host' is not permitted. What would permit it: " in ended.stderr


@pytest.fixture
def address() -> Iterator[str]:
    """A server on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_the_network_is_given_on_request_and_has_no_guarantee(root: Path, address: str):
    permit(root, "files/**", "programs/*", "network/host", guarantee=Guarantee.NONE)
    source = f"import urllib.request as u; got = u.urlopen('{address}', timeout=5).read(); open('got', 'wb').write(got)"
    words = ["--", "python3", "-c", source]
    without = shell(root, *words)
    assert (without.returncode, (root / "got").exists()) == (1, False)
    ended = shell(root, "--network", *words)
    assert (ended.returncode, (root / "got").read_text()) == (0, "hello")
    warning = "autoclave: warning: what it did over the network is not undone; files are restored exactly\n"
    assert ended.stderr == warning
    with open_session(root) as session:
        last = session.journal.standings()[-1]
        assert last.proposed["guarantee"] == "none"
        session.undo(last.action)
    assert not (root / "got").exists()


def test_the_network_does_not_lead_to_sockets_of_the_host_in_files(root: Path):
    permit(root, "files/**", "programs/*", "network/host", guarantee=Guarantee.NONE)
    source = "import socket; socket.socket(socket.AF_UNIX)"
    ended = shell(root, "--network", "--", "python3", "-c", source)
    assert ended.returncode == 1
    assert "Operation not permitted" in ended.stderr


# --- A process that is kept ------------------------------------------------------------------------------------------

CLIENT = Path(autoclave.act.client.__file__).with_name("_hook")
needs_client = pytest.mark.skipif(not CLIENT.exists(), reason="without a compiler, there is no client")


@pytest.fixture
def prefix(root: Path) -> Iterator[list[str]]:
    """The words before a command, which a process does."""
    folder = root.with_name(".autoclave-project") / "shell"
    found = shlex.split(shell(root, "--resident").stdout)
    assert found[found.index("act") :][:5] == ["act", "shell", "--resident", "--root", str(root)]
    assert wait_until((folder / "socket").exists)
    yield [*found[:3], "/bin/false", *found[4:]]  # nothing else would do it
    with contextlib.suppress(ConnectionResetError):  # it ends without an answer
        exchange(str(folder), "stop", b"")
    assert wait_until(lambda: not (folder / "socket").exists())


@needs_client
def test_a_process_that_is_kept_does_the_same_and_sees_what_has_changed(root: Path, prefix: list[str]):
    for number in range(3):
        (root / "a.txt").write_text(f"of others {number}\n")
        line = "cat a.txt -; echo no >&2; echo $1 >> a.txt; exit 7"
        words = [*prefix, "sh", "-c", line, "", "", "more"] if number == 2 else [*prefix, "sh", "-c", line, "", "more"]
        ended = subprocess.run(words, input="given\n", capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (7, f"of others {number}\ngiven\n", "no\n")
        more = "" if number == 2 else "more"  # an argument may be empty
        assert (root / "a.txt").read_text() == f"of others {number}\n{more}\n"
    with open_session(root) as session:
        assert [each.proposed["by"] for each in session.journal.standings()] == ["shell"] * 3
        session.undo(session.journal.standings()[-1].action)
        assert session.audit() == []
    assert (root / "a.txt").read_text() == "of others 2\n"


@contextlib.contextmanager
def running(prefix: list[str], line: str) -> Iterator[list[str]]:
    """Run a block while a command does; yield a list that has its exit code and messages afterwards."""
    words, ended = [*prefix, "sh", "-c", f"{line}; echo begun; sleep 0.3"], list[str]()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield ended
        _, told = process.communicate()
    ended += [str(process.returncode), told]


def content(root: Path) -> dict[str, tuple[int, int, bytes]]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def attributes(root: Path) -> dict[str, list[str]]:
    return {path.name: os.listxattr(path) for path in root.rglob("*")}


def has_attributes(root: Path) -> bool:
    with contextlib.suppress(OSError):
        os.setxattr(root, "user.tried", b"")
        return True
    return False


@needs_client
def test_what_others_change_while_a_command_changes_it_is_not_overwritten(root: Path, prefix: list[str]):
    (root / "one").write_text("one\n")
    (root / "linked").hardlink_to(root / "one")
    cases: list[tuple[str, str, Callable[[Path], object]]] = [
        ("echo more >> a.txt", "a.txt", lambda path: path.write_text("theirs\n")),
        ("echo more >> folder/b.txt", "folder/b.txt", lambda path: path.unlink()),
        ("echo more >> folder/new", "folder/new", lambda path: path.write_text("theirs\n")),
        ("echo more >> folder/other", "folder", lambda path: path.rename(path.with_name("folder2"))),
        ("rm -rf folder2", "folder2/c.txt", lambda path: path.write_text("theirs\n")),
        ("rm -rf folder2", "folder2", lambda path: (path / "c.txt").write_text("again\n")),
    ]
    if has_attributes(root):
        cases += [
            ("echo more >> folder2/new", "folder2", lambda path: os.setxattr(path, "user.theirs", b"1")),
            ("echo more >> linked", "linked", lambda path: os.setxattr(path, "user.theirs", b"1")),
        ]
    for line, path, act in cases:
        with running(prefix, line) as ended:
            act(root / path)
            after = content(root), attributes(root)
        assert (ended[0], content(root), attributes(root)) == ("125", *after), line
        assert f"path {path.removesuffix('/c.txt')!r}: somebody else has changed it meanwhile" in ended[1]


def test_a_folder_that_disappears_when_it_is_to_be_looked_at_is_no_error(root: Path, monkeypatch: pytest.MonkeyPatch):
    warm_up(root, root.with_name(".autoclave-project") / "stash")
    begin_look, found = Watch.begin_look, list[Happened | None]()

    def begin_look_and_lose(watch: Watch) -> Happened | None:
        found.append(begin_look(watch))
        shutil.rmtree(root / "folder")
        return found[-1]

    (root / "folder/b.txt").write_text("theirs\n")
    monkeypatch.setattr(Watch, "begin_look", begin_look_and_lose)
    with open_session(root) as session:
        assert run_shell(session, ["sh", "-c", "test ! -e folder && echo new > new"]) == (0, [])
    assert found in ([Happened(frozenset({"folder"}))], [None])  # None: this file system is not watched
    assert (root / "new").read_text() == "new\n"


def test_a_folder_with_the_inode_of_the_one_that_it_replaces_has_changed(tmp_path: Path):
    folder, steps = tmp_path / "folder", [Step("put", "folder/new", "0")]
    folder.mkdir()
    inode = folder.stat().st_ino
    with Scope(tmp_path) as scope:
        before = scan_of("", scope)
        (folder / "theirs").mkdir()
        assert changed_since(before, steps, scope) == ""
        (folder / "theirs").rmdir()
        folder.rmdir()
        time.sleep(0.02)  # the clock of file systems ticks
        folder.mkdir()
        if folder.stat().st_ino != inode:
            pytest.skip("this file system does not use an inode again at once")
        assert changed_since(before, steps, scope) == "folder"


@needs_client
def test_what_others_change_elsewhere_while_a_command_runs_is_kept_by_it_and_by_its_undo(root: Path, prefix: list[str]):
    before = content(root)
    with running(prefix, "rm a.txt; echo more >> folder/b.txt; echo new > folder/new") as ended:
        (root / "theirs.txt").write_text("theirs\n")
        (root / "folder/theirs").write_text("theirs\n")
    assert ended == ["0", ""]
    assert sorted(content(root)) == ["b.txt", "new", "theirs", "theirs.txt"]
    assert (root / "folder/b.txt").read_text() == "second\nmore\n"
    with open_session(root) as session:
        session.undo(session.journal.standings()[-1].action)
    after = content(root)
    assert {name: after[name] for name in before} == before
    assert sorted(after.keys() - before.keys()) == ["theirs", "theirs.txt"]


@needs_client
def test_a_command_whose_client_is_killed_is_ended_and_changes_nothing(root: Path, prefix: list[str]):
    words = [*prefix, "sh", "-c", "echo new > new; echo begun; sleep 60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
    with open_session(root, wait_s=20) as session:
        assert session.journal.standings() == []
    assert not (root / "new").exists()


@needs_client
def test_without_that_process_the_command_line_does_it(tmp_path: Path):
    words = [str(CLIENT), str(tmp_path), "shell", "/bin/sh", "-c", "cat; exit 5"]
    ended = subprocess.run(words, input="given", capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (5, "given")
