"""Real servers, in this process and in other processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from autoclave.compose.service import open_parts, open_store
from autoclave.config import (
    AdmissionConfig,
    AuditConfig,
    CompatibleConfig,
    JudgeConfig,
    RemoteJudgeConfig,
    SandboxConfig,
    ServeConfig,
)
from autoclave.core import Fault, IsolationError, Problem, StdinCase, StdinTests, Verdict
from autoclave.judge import JudgeJob
from autoclave.service.client import RemoteJudge
from autoclave.service.parts import Parts
from autoclave.service.server import create_app
from autoclave.service.serving import DrainingServer, listen
from autoclave.service.store.records import Batch, JobSpec
from autoclave.service.store.sql import Store
from autoclave.service.tokens import Limits, Scope, create_token
from tests.ports import reserved_port
from tests.postgresql import Postgres, postgres

__all__ = ["Postgres", "postgres"]

DEADLINE_S = 180.0


class LiveServer:
    """A server in a thread of this process."""

    def __init__(self, config: ServeConfig) -> None:
        self._stack = contextlib.ExitStack()
        listening = listen("127.0.0.1", config.port)
        self.port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        try:
            self.parts: Parts = self._stack.enter_context(open_parts(config))
        except BaseException:
            listening.close()
            raise
        self.app = create_app(self.parts)
        self._server = DrainingServer(self.app, self.parts)
        self._stack.callback(listening.close)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([listening])))
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def client_with(self, *scopes: Scope, lifetime_s: float | None = None, **limits: Any) -> httpx.Client:
        """Return a client with a new token of these scopes and limits."""
        text, record = create_token("", frozenset(scopes), time.time(), lifetime_s, Limits(**limits))
        self.parts.store.add_token(record)
        return httpx.Client(
            base_url=self.url, timeout=60.0, trust_env=False, headers={"Authorization": f"Bearer {text}"}
        )

    def break_cells(self, failures: int | None = None) -> None:
        """Give the next programs a fault in place of a verdict, by default all."""
        judge, left = self.parts.judge, itertools.repeat(0) if failures is None else iter(range(failures))
        whole = judge.submit

        def submit(job: JudgeJob) -> Future[Verdict]:
            if next(left, None) is None:
                return whole(job)
            future: Future[Verdict] = Future()
            future.set_result(Verdict.none(Fault("sandbox", "no cell")))
            return future

        judge.submit = submit
        if failures is None:
            self.parts.runner._sandbox.close()

    def end(self) -> None:
        """Shut down as after SIGTERM."""
        self.client.close()
        self._server.drain()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self._stack.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self.end()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., LiveServer]]:
    """start_server(...settings): a server with its own store, unless `store` is given."""
    servers: list[LiveServer] = []

    def start(**settings: Any) -> LiveServer:
        defaults: dict[str, Any] = {
            "port": 0,
            "store": str(tmp_path / f"{len(servers)}" / "store.sqlite"),
            "audit": AuditConfig(file=str(tmp_path / f"{len(servers)}" / "audit.jsonl")),
            "judge": JudgeConfig(workers=1, time_limit_range=(0.5, 12.0), default_time_limit_s=2.0),
            "drain_s": 0.2,
        }
        try:
            servers.append(LiveServer(ServeConfig(**defaults | settings)))
        except IsolationError as error:
            pytest.skip(f"this host cannot make sealed cells: {error}")
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server for all tests of a file that do not change it."""
    store = tmp_path_factory.mktemp("server") / "store.sqlite"
    config = ServeConfig(
        port=0,
        store=str(store),
        judge=JudgeConfig(workers=2, time_limit_range=(0.5, 12.0), default_time_limit_s=2.0),
        admission=AdmissionConfig(request_limit_mb=4.0, upload_limit_mb=8.0, line_limit_mb=2.0),
        drain_s=0.2,
    )
    try:
        opened = LiveServer(config)
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def compatible(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with the protocols of other sandboxes."""
    config = ServeConfig(
        port=0,
        store=str(tmp_path_factory.mktemp("compatible") / "store.sqlite"),
        compatible=CompatibleConfig(protocols=("sandbox_fusion", "piston")),
        judge=JudgeConfig(workers=2, time_limit_range=(0.5, 12.0), default_time_limit_s=2.0),
        sandbox=SandboxConfig(output_limit_mb=1),
        drain_s=0.2,
    )
    try:
        opened = LiveServer(config)
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    yield opened
    opened.close()


class ServerProcess:
    """`autoclave serve` in its own process, which can be killed and restarted on the same port."""

    def __init__(self, folder: Path, *settings: str, descriptors: int | None = None) -> None:
        self.folder = folder
        self._settings = settings
        self._prefix = ["bash", "-c", f'ulimit -n {descriptors}; exec "$@"', "bash"] if descriptors else []
        self._seat = reserved_port()
        self.port = self._seat.getsockname()[1]
        self.start()

    def start(self) -> None:
        words = [*self._prefix, sys.executable, "-m", "autoclave", "serve", f"port={self.port}", "store=store.sqlite"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*words, "judge.workers=1", *self._settings],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True)
        reader.start()
        line = lines.get(timeout=DEADLINE_S)
        assert line.startswith("Serving at "), (self.folder / "log").read_text()
        self.url = line.removeprefix("Serving at ").strip()
        assert self.url.endswith(f":{self.port}")

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        self.process.stdout.close()
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.terminate()
            self.wait()
        self._seat.close()


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """start_process(...settings): a server in its own process."""
    processes: list[ServerProcess] = []

    def start(*settings: str, **limits: int) -> ServerProcess:
        folder = tmp_path / f"process{len(processes)}"
        folder.mkdir()
        processes.append(ServerProcess(folder, *settings, **limits))
        return processes[-1]

    yield start
    for found in processes:
        found.close()


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """Address of an empty database."""
    return postgres.new_database()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Setting `store` of an empty store."""
    return str(tmp_path / "store.sqlite") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def open_node(place: str) -> Iterator[Callable[[], Store]]:
    """open_node(): another node on the same store."""
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(contextlib.closing(open_store(place)))


@pytest.fixture
def store(open_node: Callable[[], Store]) -> Store:
    return open_node()


def batch(id: str = "b", key: str = "k", client: str = "c", **fields: Any) -> Batch:
    return Batch(
        **{"id": id, "client": client, "key": key, "fingerprint": "print", "priority": 4, "created": time.time()}
        | fields
    )


def jobs(*ids: str) -> list[tuple[str, JobSpec]]:
    return [(id, JobSpec("0" * 64, f"print({id!r})".encode(), label=id)) for id in ids]


@pytest.fixture
def remote_judge() -> Iterator[Callable[..., RemoteJudge]]:
    """remote_judge(url, ..., retries=...): a judge on these servers."""
    with contextlib.ExitStack() as opened:
        yield lambda *urls, **settings: opened.enter_context(RemoteJudge(RemoteJudgeConfig(urls=urls, **settings)))


def unfinished(store: Store) -> list[str]:
    """Return the ids of all jobs without a verdict, in the order of acceptance."""
    rows = store._rows("SELECT id FROM jobs WHERE state IN ('accepted', 'running') ORDER BY number")
    return [row[0] for row in rows]


def problem(*cases: tuple[str, str], **fields: Any) -> Problem:
    tests = StdinTests("stdin", [StdinCase(*case) for case in cases or (("3 4\n", "7\n"),)])
    return Problem("Add.", tests, **{"id": "add", "profile": "plain"} | fields)


RIGHT = "print(sum(map(int, input().split())))"


def upload(client: httpx.Client, *problems: Problem) -> list[str]:
    """Upload problems and return their digests."""
    body = "\n".join(json.dumps(one.to_json()) for one in problems)
    reply = client.post("/v1/problems", content=body)
    assert reply.status_code == 200, reply.text
    return [one["digest"] for one in reply.json()["problems"]]


def until(condition: Callable[[], Any]) -> Any:
    """Wait for a condition and return its value."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)
    return found


def run_together(*works: Callable[[], object]) -> None:
    """Run functions at once and raise the first error."""
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result(DEADLINE_S)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A free port of this machine."""
    with contextlib.closing(reserved_port()) as seat:
        yield seat.getsockname()[1]
