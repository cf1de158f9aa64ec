"""Servers for the examples and for tests of real services: started on this machine, for this machine, and stopped.

Each listens on a free port of 127.0.0.1, keeps what it is told in a folder that is given, and ends with the block.
Nothing is installed here, and nothing of a server that somebody else runs is touched.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from autoclave.core import HostError

_SYNAPSE = """
server_name: localhost
report_stats: false
listeners: [{port: PORT, type: http, bind_addresses: [127.0.0.1], resources: [{names: [client]}]}]
database: {name: sqlite3, args: {database: ":memory:"}}
media_store_path: FOLDER/media
signing_key_path: FOLDER/signing.key
macaroon_secret_key: of a server that lives for minutes
form_secret: of a server that lives for minutes
enable_registration: true
enable_registration_without_verification: true
trusted_key_servers: []
bcrypt_rounds: 4
log_config: FOLDER/log.yaml
rc_message: {per_second: 3, burst_count: 4}
"""


class _Program(NamedTuple):
    """How a server is found: its module, the program that it installs, and its package."""

    module: str
    program: str
    package: str


_PROGRAMS = {
    "radicale": _Program("radicale", "radicale", "radicale"),
    "synapse": _Program("synapse.app.homeserver", "synapse_homeserver", "matrix-synapse"),
}


def command_of(server: Literal["radicale", "synapse"], python: str = "") -> list[str]:
    """The words that start a server: by `python`, or else by this Python, or by what stands in PATH.

    Raises:
        HostError: it is not installed there.
    """
    module, program, package = _PROGRAMS[server]
    if python or _has(sys.executable, module):
        if python and not _has(python, module):
            raise HostError(f"--{server} {python}: is no Python with {server}. Fix: {python} -m pip install {package}")
        return [os.path.abspath(shutil.which(python) or python) if python else sys.executable, "-m", module]
    if found := shutil.which(program):
        return [os.path.abspath(found)]
    raise HostError(
        f"{server} is not installed. Fix: pip install {package}; or name a Python that has it (--{server} PYTHON), or "
        "a server that runs (--url URL)"
    )


def _has(python: str, module: str) -> bool:
    look = f"import importlib.util; print(importlib.util.find_spec({module!r}) is not None)"
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", look], capture_output=True, check=False).stdout.strip() == b"True"
    return False


@contextlib.contextmanager
def radicale_running(command: Sequence[str], folder: Path) -> Generator[int]:
    """Radicale, in which any user has calendars, with any password; the port."""
    with held_port() as port:
        words = [*command, "--config", "", "--server-hosts", f"127.0.0.1:{port}", "--auth-type", "none"]
        words += ["--storage-filesystem-folder", f"{folder}/collections", "--logging-level", "error"]
        with running(words, port, folder, "/.web/"):
            yield port


@contextlib.contextmanager
def synapse_running(command: Sequence[str], folder: Path) -> Generator[int]:
    """Synapse, where anybody may register, with a low limit of messages; the port."""
    (folder / "log.yaml").write_text("{version: 1, root: {level: ERROR}}")
    (folder / "signing.key").write_text(f"ed25519 a_key {base64.b64encode(os.urandom(32)).decode().rstrip('=')}\n")
    with held_port() as port:
        settings = _SYNAPSE.replace("PORT", f"{port}").replace("FOLDER", f"{folder}")
        (folder / "homeserver.yaml").write_text(settings)
        with running([*command, "--config-path", "homeserver.yaml"], port, folder, "/_matrix/client/versions"):
            yield port


@contextlib.contextmanager
def running(command: Sequence[str], port: int, folder: Path, path: str = "/") -> Generator[None]:
    """A server that answers at a port when the block begins, and has ended after it; what it prints is in `output`.

    Raises:
        HostError: it does not begin.
    """
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while not _answers(port, path):
                if process.poll() is not None or time.monotonic() > deadline:
                    told = (folder / "output").read_text(errors="replace").strip()[-2000:]
                    raise HostError(f"{' '.join(command)}: does not begin to answer: {told}")
                time.sleep(0.02)  # until it answers
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


@contextlib.contextmanager
def held_port() -> Generator[int]:
    """A port of 127.0.0.1 that nobody else is given in the block. Servers that reuse addresses can listen on it."""
    with socket.socket() as seat:
        seat.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        seat.bind(("127.0.0.1", 0))
        yield int(seat.getsockname()[1])


def _answers(port: int, path: str) -> bool:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(link):
        link.request("GET", path)
        return link.getresponse().status < 500
    return False
