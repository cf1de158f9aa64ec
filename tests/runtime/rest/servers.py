"""Real services on this machine, started for tests and stopped after them, in an environment of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest

from examples.acting import local_servers

PYTHON = Path(__file__).parents[3] / ".venv-services" / "bin" / "python"
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
threads = 1
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


def installed(program: str) -> list[str]:
    """The words that start a program of the services for tests. Skips where it is not installed."""
    if not PYTHON.with_name(program).exists():
        pytest.skip(f"{program} is not installed: make setup-services")
    return [str(PYTHON.with_name(program))]


@contextlib.contextmanager
def kinto_running(folder: Path) -> Generator[int]:
    """Kinto with its memory back end and its history; any user and password will do.

    It answers one request at a time: in memory, a precondition and its write are not one step. With 8 threads, 9 of
    1,200 writes with If-Match were lost.
    """
    with local_servers.held_port() as port:
        (folder / "kinto.ini").write_text(_KINTO.replace("PORT", f"{port}"))
        words = [*installed("kinto"), "start", "--ini", "kinto.ini"]
        with local_servers.running(words, port, folder, "/v1/"):
            yield port


@contextlib.contextmanager
def radicale_running(folder: Path) -> Generator[int]:
    with local_servers.radicale_running(installed("radicale"), folder) as port:
        yield port


@contextlib.contextmanager
def synapse_running(folder: Path) -> Generator[int]:
    with local_servers.synapse_running(installed("synapse_homeserver"), folder) as port:
        yield port
