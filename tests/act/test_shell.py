"""A command of a host's shell: shown as it runs, its exit code passed on, undone; with the network on request."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.opening import open_records, open_session
from autoclave.runtime.policy.grants import Grant
from tests.runtime.conftest import sealing_host

__all__ = ["sealing_host"]
pytestmark = pytest.mark.usefixtures("sealing_host")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("first\n")
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
