"""Attacks on a server: it answers for its health within a second throughout, and its memory is bounded."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import trustme
import zstandard

from autoclave.compose.service import open_store
from autoclave.config import AdmissionConfig
from autoclave.service.connections import Edge
from autoclave.service.tokens import Scope, create_token

from .conftest import RIGHT, Postgres, ServerProcess, problem, until, upload
from .test_tls import authority, written

__all__ = ["authority"]

HEALTHY_S = 1.0
BUSY_S = 4.0
"""What a busy machine may add: servers that an attack freezes take longer."""
UNAVAILABLE_S = 8.0


@contextlib.contextmanager
def healthy(server: ServerProcess, record_property: Callable[[str, object], None], grown_mb: float) -> Iterator[None]:
    """Ask for the health all the time, each time by a new connection; memory grows by at most `grown_mb`."""
    is_over = threading.Event()

    def ask() -> float:
        began = time.monotonic()
        with reached(server) as connection:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert answer(connection).startswith(b"HTTP/1.1 200 ")
        return time.monotonic() - began

    def worst_s() -> float:
        worst = 0.0
        while not is_over.wait(0.05):
            worst = max(worst, ask())
        return worst

    ask()  # it listens before it has started
    before = peak_mb(server)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(worst_s)
        try:
            yield
        finally:
            is_over.set()
        worst, grown = asking.result(), peak_mb(server) - before
    record_property("worst_health_s", round(worst, 3))
    record_property("memory_mb", (round(before), round(before + grown)))
    assert worst < HEALTHY_S + BUSY_S
    assert grown < grown_mb


def peak_mb(server: ServerProcess) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def reached(server: ServerProcess) -> socket.socket:
    """A new connection, encrypted where the server wants it."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30.0)
    if server.url.startswith("https"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(connection)
    return connection


def answer(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    parts: list[bytes] = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture(params=["plain", "tls"])
def served(
    request: pytest.FixtureRequest, start_process: Callable[..., ServerProcess], authority: trustme.CA, tmp_path: Path
) -> ServerProcess:
    """A server with short limits."""
    settings = ["admission.header_s=3", "admission.body_s=3"]
    if request.param == "tls":
        tls = written(authority, tmp_path, "127.0.0.1")
        settings += [f"tls.certificate_file={tls.certificate_file}", f"tls.key_file={tls.key_file}"]
    return start_process(*settings)


# --- Requests ------------------------------------------------------------------------------------------------------


def test_headers_are_bounded_and_must_arrive_in_time(served: ServerProcess, record_property):
    endless = b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    chunked = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with healthy(served, record_property, 64):
        for begin, part in (
            (endless + b"A: ", b"a" * 65536),  # one header
            (endless, b"A: b\r\n" * 8192),  # many headers
            (b"GET /", b"a" * 65536),
            (b"", b"\r\n" * 32768),
            (chunked + b"0\r\n", b"A: b\r\n" * 8192),  # trailers
        ):
            closed = contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError)
            with reached(served) as connection, closed:
                connection.sendall(begin)
                until(lambda connection=connection, part=part: connection.sendall(part))  # it is closed
        with reached(served) as connection:
            connection.sendall(endless + b"A: " + b"a" * 16384 + b"\r\n\r\n")
            assert answer(connection).startswith(b"HTTP/1.1 431 ")
        silent, began = [reached(served) for _ in range(3)], time.monotonic()
        silent[1].sendall(endless)
        silent[2].sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
        for connection in silent:
            answer(connection)
            connection.close()
        assert time.monotonic() - began < 20  # a connection of the test gives up after 30


@pytest.mark.parametrize("count", [1500, pytest.param(5000, marks=pytest.mark.soak)])
def test_idle_connections_make_way_for_others(start_process, record_property, count: int):
    server = start_process("admission.header_s=60", descriptors=1024)  # not by time: a busy machine opens them slowly
    with healthy(server, record_property, 128), contextlib.ExitStack() as opened:
        for _ in range(count):
            opened.enter_context(reached(server))
    until(lambda: "too many connections" in (server.folder / "log").read_text())


class _Open:
    is_surplus = False

    def __init__(self, edge: Edge, address: str, *, is_busy: bool) -> None:
        self.edge, self.address, self.is_busy, self.is_closed = edge, address, is_busy, False

    def abort(self) -> None:
        self.edge.forget(cast("Any", self))
        self.is_closed = True


def test_where_the_most_connections_of_one_address_are_busy_another_address_makes_way():
    edge = Edge(AdmissionConfig(connections=3), None)
    opened = [_Open(edge, address, is_busy=address == "10.0.0.1") for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2")]
    new = _Open(edge, "10.0.0.3", is_busy=False)
    for connection in (*opened, new):
        edge.admit(cast("Any", connection))
    assert [one.is_closed for one in (*opened, new)] == [False, False, True, False]
    assert not new.is_surplus


def test_beyond_the_limit_of_busy_connections_requests_are_refused(start_process):
    server = start_process("admission.connections_per_address=4")
    with contextlib.ExitStack() as opened, httpx.Client(base_url=server.url, trust_env=False) as client:
        for _ in range(4):
            connection = opened.enter_context(reached(server))
            connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
        time.sleep(0.5)
        refused = client.get("/v1/server")
        assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "busy")
        assert int(refused.headers["Retry-After"]) >= 1
        assert client.get("/v1/health").is_success
    until(lambda: httpx.get(f"{server.url}/v1/server", trust_env=False).is_success)


def test_bombs_of_lines_and_values_are_refused_while_others_are_answered(start_process, record_property):
    server = start_process()
    packed = zstandard.ZstdCompressor().compressobj()
    newlines = b"".join(packed.compress(b"\n" * (8 << 20)) for _ in range(384)) + packed.flush()
    values = zstandard.compress(b'{"jobs":[' + b"1," * (24 << 20) + b"1]}")
    kinds = {"Content-Type": "application/json", "Content-Encoding": "zstd"}
    assert len(newlines) < 1 << 18
    with (
        healthy(server, record_property, 256),
        httpx.Client(base_url=server.url, timeout=60.0, trust_env=False) as client,
    ):
        for path, bomb in (("/v1/problems", newlines), ("/v1/batches", values), ("/v1/jobs", newlines)):
            reply = client.post(path, content=bomb, headers=kinds)
            assert (reply.status_code, reply.json()["error"]["kind"]) in ((413, "too_large"), (422, "input")), path
        blank = client.post("/v1/problems", content=b" \n\n" * 1000)
        assert blank.json() == {"problems": [], "new": 0}
        for status, path, body in (
            (422, "/v1/batches", {"jobs": [1] * 90_000}),
            (413, "/v1/batches", {"jobs": [1] * 10**5}),
        ):
            assert client.post(path, json=body).status_code == status
        text = '",\\"' * 10**5  # commas in strings are no values
        reply = client.post("/v1/jobs", json={"problem": "0" * 64, "source": text})
        assert reply.json()["error"]["kind"] == "unknown_problem"


def test_bodies_at_the_limit_of_size_do_not_delay_others(start_process, record_property):
    server = start_process("compatible.protocols=[sandbox_fusion,piston]")
    digest, text = "0" * 64, "one line\\n\\u00e9" * (48 << 16)  # of 16 bytes
    cases = ",".join(['{"input":{"stdin":"1 2"},"output":{"stdout":"3"}}'] * 400_000)

    def submission(test: str) -> str:
        row = f'{{"content":"","test":{test}}}'
        given = f'{{"dataset_type":"CommonOJDataset","language":"python","provided_data":{row}}}'
        return f'{{"dataset":"d","id":"1","completion":"","config":{given}}}'

    def job(text: str) -> str:
        return f'{{"problem":"{digest}","source":"{text}"}}'

    contents = {
        "a.py": "",
        "input.txt": text,
        "correct_output.txt": "",
        "grader_config": "TIME_LIMIT=1\\nMEMORY_LIMIT=99",
    }
    files = ",".join(f'{{"name":"{name}","content":"{content}"}}' for name, content in contents.items())
    bodies = [
        ("/v1/jobs", job(text), 404),
        ("/v1/batches", f'{{"jobs":[{",".join([job(text[: 12 << 10])] * 4000)}]}}', 404),
        ("/v1/runs", f'{{"source":"","files":{{"a":"{"YWJj" * (12 << 20)}"}}}}', 422),
        ("/submit", submission(f"[{cases}]"), 413),
        ("/submit", submission(json.dumps(f"[{cases}]")), 413),
        ("/api/v2/execute", f'{{"language":"cf_python3","version":"*","files":[{files}]}}', 200),
    ]
    kinds = {"Content-Type": "application/json", "Content-Encoding": "zstd"}
    packed = [(path, zstandard.compress(body.encode()), status) for path, body, status in bodies]
    with (
        healthy(server, record_property, 1024),
        httpx.Client(base_url=server.url, timeout=60.0, trust_env=False) as client,
    ):
        for path, body, status in packed:
            reply = client.post(path, content=body, headers=kinds)
            assert reply.status_code == status, (path, reply.text[:300])


# --- The database --------------------------------------------------------------------------------------------------


def test_a_stalled_database_is_unavailable_within_seconds(
    start_process, postgres: Postgres, postgres_url: str, record_property
):
    text, record = create_token("", frozenset(Scope), time.time(), None)
    with contextlib.closing(open_store(postgres_url)) as store:
        store.add_token(record)
    server = start_process(f"store={postgres_url}", "require_token=true", "node_lease_s=3.0")
    headers = {"Authorization": f"Bearer {text}"}
    with httpx.Client(base_url=server.url, timeout=60.0, trust_env=False, headers=headers) as client:
        job = {"problem": upload(client, problem())[0], "source": RIGHT, "wait_s": 60}
        requests = [("GET", "/v1/server", None), ("POST", "/v1/jobs", job), ("POST", "/v1/batches", {"jobs": [job]})]

        def refused(number: int) -> float:
            method, path, body = requests[number % len(requests)]
            began = time.monotonic()
            reply = client.request(method, path, json=body)
            assert (reply.status_code, reply.json()["error"]["kind"]) == (503, "store"), (path, reply.text)
            assert int(reply.headers["Retry-After"]) >= 1
            return time.monotonic() - began

        with healthy(server, record_property, 64), postgres.stalled(), ThreadPoolExecutor(64) as pool:
            worst = max(pool.map(refused, range(192)))
        record_property("worst_refusal_s", round(worst, 1))
        assert worst < UNAVAILABLE_S
        until(lambda: client.get("/v1/ready").status_code == 200)
        until(lambda: client.get("/v1/server").status_code == 200)
        assert client.post("/v1/jobs", json=job).json()["verdict"]["status"] == "accepted"
