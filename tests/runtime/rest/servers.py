"""Real services on this machine, started for tests and stopped after them, in an environment of their own."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

BIN = Path(__file__).parents[3] / ".venv-services" / "bin"
_KINTO = """
[app:main]
use = egg:kinto
kinto.storage_backend = kinto.core.storage.memory
kinto.cache_backend = kinto.core.cache.memory
kinto.permission_backend = kinto.core.permission.memory
kinto.includes = kinto.plugins.history
kinto.userid_hmac_secret = for tests
kinto.paginate_by = 10
multiauth.policies = basicauth
[server:main]
use = egg:waitress
host = 127.0.0.1
port = PORT
threads = 8
[loggers]
keys = root
[handlers]
keys =
[formatters]
keys =
[logger_root]
level = ERROR
handlers =
"""

_SYNAPSE = """
server_name: localhost
report_stats: false
listeners: [{port: PORT, type: http, bind_addresses: [127.0.0.1], resources: [{names: [client]}]}]
database: {name: sqlite3, args: {database: ":memory:"}}
media_store_path: FOLDER/media
signing_key_path: FOLDER/signing.key
macaroon_secret_key: for tests
form_secret: for tests
enable_registration: true
enable_registration_without_verification: true
trusted_key_servers: []
bcrypt_rounds: 4
log_config: FOLDER/log.yaml
rc_message: {per_second: 3, burst_count: 4}
"""


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@contextlib.contextmanager
def running(words: list[str], port: int, folder: Path, path: str = "/", needs: str = "") -> Generator[int]:
    """A server that answers at a port, for the length of the block. `needs`: a program that shows that it is there."""
    if not (BIN / (needs or words[0])).exists():
        pytest.skip(f"{needs or words[0]} is not installed: make setup")
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [BIN / words[0], *words[1:]], cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 60
            while not answers(port, path):
                told = (folder / "output").read_text(errors="replace")[-2000:]
                assert process.poll() is None, told
                assert time.monotonic() < deadline, told
                time.sleep(0.02)  # until it answers
            yield port
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


def answers(port: int, path: str) -> bool:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(link):
        link.request("GET", path)
        return link.getresponse().status < 500
    return False


@contextlib.contextmanager
def kinto_running(folder: Path) -> Generator[int]:
    """Kinto with its memory back end and its history; any user and password will do."""
    port = free_port()
    (folder / "kinto.ini").write_text(_KINTO.replace("PORT", f"{port}"))
    with running(["kinto", "start", "--ini", "kinto.ini"], port, folder, "/v1/"):
        yield port


@contextlib.contextmanager
def radicale_running(folder: Path) -> Generator[int]:
    """Radicale, in which any user has calendars."""
    port = free_port()
    words = ["radicale", "--config", "", "--server-hosts", f"127.0.0.1:{port}", "--auth-type", "none"]
    words += ["--storage-filesystem-folder", f"{folder}/collections", "--logging-level", "error"]
    with running(words, port, folder, "/.web/"):
        yield port


@contextlib.contextmanager
def synapse_running(folder: Path) -> Generator[int]:
    """Synapse, where anybody may register, with a low limit of messages."""
    port = free_port()
    settings = _SYNAPSE.replace("PORT", f"{port}").replace("FOLDER", f"{folder}")
    (folder / "homeserver.yaml").write_text(settings)
    (folder / "log.yaml").write_text("{version: 1, root: {level: ERROR}}")
    words = ["python", "-m", "synapse.app.homeserver", "--config-path", "homeserver.yaml"]
    seed = base64.b64encode(bytes(range(32))).decode().rstrip("=")
    (folder / "signing.key").write_text(f"ed25519 a_test {seed}\n")
    with running(words, port, folder, "/_matrix/client/versions", needs="synctl"):
        yield port
