"""Under a flood, requests are refused early with what they would be refused with anyway; and nothing else is."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from fastapi import Request

from autoclave.config import AdmissionConfig
from autoclave.service import refusals
from autoclave.service.store.records import StoreUnavailable
from autoclave.service.tokens import Scope
from tests.service.conftest import LiveServer, problem, upload


@pytest.fixture
def full(start_server, monkeypatch: pytest.MonkeyPatch) -> tuple[LiveServer, str]:
    """A server with room for two more programs that has just refused more, and the digest of a problem on it."""
    monkeypatch.setattr(refusals, "_REFUSED_AGAIN_S", 3600.0)
    server = start_server(admission=AdmissionConfig(queue_limit=8, client_queue_limit=8))
    monkeypatch.setattr(server.parts.dispatcher, "_room", lambda: 0)  # no job is started
    digest = upload(server.client, problem())[0]
    assert batch(server, digest, 6).status_code == 202
    assert batch(server, digest, 4).status_code == 429
    return server, digest


def batch(server: LiveServer, digest: str, count: int, headers: dict[str, str] | None = None, **more: Any):
    jobs = [
        {"problem": digest, "source": f'print("source", {{"source": {number}}})  # "source":'}
        for number in range(count)
    ]
    return server.client.post("/v1/batches", json={"jobs": jobs, **more}, headers=headers)


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the requests that were parsed."""
    paths: list[str] = []
    parse = Request.json

    async def noted(request: Request) -> Any:
        paths.append(request.url.path)
        return await parse(request)

    monkeypatch.setattr(Request, "json", noted)
    return paths


def test_a_request_that_cannot_fit_is_refused_unparsed(full, reached: list[str]):
    server, digest = full
    refused = batch(server, digest, 5)
    assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "busy")
    assert int(refused.headers["Retry-After"]) >= 1
    assert reached == []


def test_a_request_that_may_fit_is_accepted(full, reached: list[str]):
    server, digest = full
    assert batch(server, digest, 2).status_code == 202
    assert reached == ["/v1/batches"]


def test_a_known_idempotency_key_finds_its_batch(full):
    server, digest = full
    assert batch(server, digest, 2, {"Idempotency-Key": "k1"}).status_code == 202
    assert batch(server, digest, 2, {"Idempotency-Key": "k1"}).status_code == 202
    jobs = 4
    assert batch(server, digest, jobs, {"Idempotency-Key": "k2"}).status_code == 429
    assert batch(server, digest, jobs, {"Idempotency-Key": "k1"}).status_code == 409


def test_without_a_database_the_client_may_retry(full, monkeypatch: pytest.MonkeyPatch):
    server, digest = full

    def away(*_: str) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(server.parts.store, "batch_of_key", away)
    reply = batch(server, digest, 5, {"Idempotency-Key": "k"})
    assert (reply.status_code, reply.json()["error"]["kind"]) == (503, "store")


def test_other_requests_get_the_response_of_the_application(full):
    server, digest = full
    with server.client_with(Scope.PROBLEMS_WRITE) as client:
        assert client.post("/v1/batches", json={"jobs": []}).status_code == 403
    wrong = server.client.post("/v1/batches", json={"jobs": []}, headers={"Authorization": "Bearer nobody"})
    assert wrong.status_code == 401
    assert server.client.post("/v1/batches", content=b"no json").status_code == 422
    large = b'{"jobs": [' + b" " * (5 << 20)
    assert server.client.post("/v1/batches", content=large * 13).status_code == 413
    with server.client_with(Scope.JUDGE) as other:  # another client has its own share
        body = {"jobs": [{"problem": digest, "source": "print(1)"}] * 2}
        assert other.post("/v1/batches", json=body).status_code == 202
    assert server.client.get("/v1/health").status_code == 200


def test_one_program_is_refused_only_after_one_was(full):
    server, digest = full
    body = {"problem": digest, "source": "print(1)"}
    assert [server.client.post("/v1/jobs", json=body).status_code for _ in range(3)] == [202, 202, 429]
    started = time.monotonic()
    assert server.client.post("/v1/jobs", json=body | {"wait_s": 30}).status_code == 429
    assert time.monotonic() - started < 20
    assert json.loads(server.client.get("/v1/server").text)["waiting"] == 8
