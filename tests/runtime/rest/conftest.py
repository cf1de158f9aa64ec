"""Servers for all tests of a file, and a bucket of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.runtime.session import Session
from tests.runtime.rest.acting import Reader, connection, opened, secret, without_keys
from tests.runtime.rest.faulty_proxy import FaultyProxy
from tests.runtime.rest.servers import kinto_running, radicale_running

_numbers = itertools.count()


@pytest.fixture(scope="module")
def kinto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with kinto_running(tmp_path_factory.mktemp("kinto")) as port:
        yield port


@pytest.fixture(scope="module")
def radicale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with radicale_running(tmp_path_factory.mktemp("radicale")) as port:
        yield port


@pytest.fixture
def reader(kinto: int) -> Reader:
    reader = Reader(kinto, f"b{next(_numbers)}")
    reader.make()
    return reader


@pytest.fixture
def session(kinto: int, tmp_path: Path) -> Iterator[Session]:
    with opened(tmp_path, {"kinto": connection(kinto)}) as session:
        yield session


@pytest.fixture
def proxy(kinto: int) -> Iterator[FaultyProxy]:
    with FaultyProxy(kinto) as proxy:
        yield proxy


@pytest.fixture
def shaky(proxy: FaultyProxy, tmp_path: Path) -> Iterator[Session]:
    """A session that reaches Kinto through the proxy."""
    with opened(tmp_path, {"kinto": connection(proxy.port)}, secret(proxy.port)) as session:
        yield session


@pytest.fixture
def unkeyed(proxy: FaultyProxy, tmp_path: Path) -> Iterator[Session]:
    """The same, with identifiers that Kinto alone chooses."""
    services = {"kinto": connection(proxy.port, catalogue=without_keys(tmp_path))}
    with opened(tmp_path, services, secret(proxy.port)) as session:
        yield session
