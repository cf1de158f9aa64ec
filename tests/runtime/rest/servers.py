"""Real services on this machine, started for tests and stopped after them, in an environment of their own."""

from __future__ import annotations

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


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@contextlib.contextmanager
def running(words: list[str], port: int, folder: Path, path: str = "/") -> Generator[int]:
    """A server that answers at a port, for the length of the block."""
    if not (BIN / words[0]).exists():
        pytest.skip(f"{words[0]} is not installed: make setup")
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
