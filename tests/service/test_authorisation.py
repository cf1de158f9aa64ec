"""Scopes of all routes, and what responses reveal to other clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from pydantic import ValidationError

from autoclave.compose.service import open_parts
from autoclave.config import AdmissionConfig, AuditConfig, JudgeConfig, ServeConfig
from autoclave.core import ConfigError
from autoclave.service.tokens import Scope

from .conftest import RIGHT, LiveServer, problem, upload

DIGEST = problem().digest
JOB = {"problem": DIGEST, "source": RIGHT, "wait_s": 30}
ROUTES = [
    ("POST", "/v1/problems", "", "problems:write"),
    ("GET", "/v1/problems", None, "judge"),
    ("POST", "/v1/problems/lookup", {"problems": []}, "judge"),
    ("GET", f"/v1/problems/{DIGEST}", None, "judge"),
    ("GET", f"/v1/problems/{DIGEST}/answers", None, "answers:read"),
    ("DELETE", f"/v1/problems/{'0' * 64}", None, "problems:write"),
    ("POST", "/v1/jobs", JOB, "judge"),
    ("GET", "/v1/jobs/x", None, "judge"),
    ("DELETE", "/v1/jobs/x", None, "judge"),
    ("POST", "/v1/batches", {"jobs": [{"problem": DIGEST, "source": RIGHT}]}, "judge"),
    ("GET", "/v1/batches/x", None, "judge"),
    ("GET", "/v1/batches/x/stream", None, "judge"),
    ("DELETE", "/v1/batches/x", None, "judge"),
    ("POST", "/v1/runs", {"source": "print(1)"}, "judge"),
    ("POST", "/v1/traces", {"problem": DIGEST, "source": "x = 1"}, "traces:read"),
    ("GET", "/v1/server", None, "judge"),
    ("GET", "/v1/metrics", None, None),
]
OPEN = {"/v1/health", "/v1/ready"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server that asks for tokens."""
    from autoclave.compose.service import open_store
    from autoclave.service.tokens import create_token

    path = tmp_path_factory.mktemp("guarded") / "store.sqlite"
    store = open_store(path)
    store.add_token(create_token("", frozenset(Scope), 0.0, None)[1])
    store.close()
    opened = LiveServer(
        ServeConfig(port=0, store=str(path), require_token=True, judge=JudgeConfig(workers=1), drain_s=0.2)
    )
    with opened.client_with(*Scope) as client:
        upload(client, problem())
    yield opened
    opened.close()


def ask(client: httpx.Client, method: str, path: str, body: object, **options: object) -> httpx.Response:
    if isinstance(body, str):
        return client.request(method, path, content=body, **options)
    return (
        client.request(method, path, json=body, **options)
        if body is not None
        else client.request(method, path, **options)
    )


def test_every_route_is_in_the_matrix(guarded: LiveServer):
    described = guarded.client.get("/v1/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in described.items() for method in methods} - {
        ("GET", path) for path in OPEN
    }
    assert len(found) == len(ROUTES)


@pytest.mark.parametrize(("method", "path", "body", "scope"), ROUTES)
def test_a_route_needs_a_valid_token_with_its_scope(guarded: LiveServer, method, path, body, scope):
    refused = [ask(guarded.client, method, path, body)]
    for token in ("a", "nonsense", "autoclave_00000000_" + "A" * 43):
        refused.append(ask(guarded.client, method, path, body, headers={"Authorization": f"Bearer {token}"}))
    with guarded.client_with(*Scope, lifetime_s=-1.0) as expired:
        refused.append(ask(expired, method, path, body))
    assert {reply.status_code for reply in refused} == {401}
    assert {reply.text for reply in refused} == {refused[0].text}
    if scope is None:
        return
    with guarded.client_with(*(set(Scope) - {Scope(scope)})) as without:
        reply = ask(without, method, path, body)
        assert (reply.status_code, reply.json()["error"]["kind"]) == (403, "forbidden")
    needed = {Scope(scope)} | ({Scope.JUDGE} if scope == "traces:read" else set())
    with guarded.client_with(*needed) as allowed:
        assert ask(allowed, method, path, body).status_code in (200, 202, 204, 404)


def test_a_token_may_be_the_password_of_the_address(guarded: LiveServer):
    with guarded.client_with(Scope.JUDGE) as client:
        token = client.headers["Authorization"].removeprefix("Bearer ")
    for password, status in ((token, 200), (token[:-1], 401), ("", 401)):
        reply = httpx.get(f"{guarded.url}/v1/server", auth=("any", password), trust_env=False)
        assert reply.status_code == status
    reply = guarded.client.get("/v1/server", headers={"Authorization": "Basic ?"})
    assert reply.status_code == 401


def test_a_revoked_token_is_refused_at_once(guarded: LiveServer):
    with guarded.client_with(Scope.JUDGE) as client:
        assert client.get("/v1/server").status_code == 200
        name = client.headers["Authorization"].split("_")[1]
        assert guarded.parts.store.revoke_token(name)
        assert client.get("/v1/server").status_code == 401


def test_jobs_of_other_clients_and_unknown_jobs_get_the_same_response(guarded: LiveServer):
    with guarded.client_with(Scope.JUDGE) as mine, guarded.client_with(*Scope) as other:
        job = mine.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "mine"}).json()
        assert job["verdict"]["status"] == "accepted"
        for method in ("GET", "DELETE"):
            for path in ("/v1/jobs/{}", "/v1/batches/{}", "/v1/batches/{}/stream", "/v1/jobs/{}?wait_s=1"):
                if method == "DELETE" and ("stream" in path or "?" in path):
                    continue
                theirs = other.request(method, path.format(job["job" if "jobs" in path else "batch"]))
                nobodys = other.request(method, path.format("nobodys"))
                assert theirs.status_code == nobodys.status_code == 404
                assert theirs.content == nobodys.content
                names = ("content-type", "content-length")
                assert [theirs.headers[name] for name in names] == [nobodys.headers[name] for name in names]
        again = other.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "mine"}).json()
        assert again["job"] != job["job"]  # keys of different clients have nothing to do with each other
        assert mine.get(f"/v1/jobs/{job['job']}").json()["verdict"]["status"] == "accepted"


def test_health_needs_no_token_and_returns_only_a_status(guarded: LiveServer):
    for path in OPEN:
        assert guarded.client.get(path).json() == {"status": "ok"}


def test_expected_answers_appear_only_in_the_answers_route(guarded: LiveServer):
    secret = "4815162342"
    given = problem(("1\n", secret))
    with guarded.client_with(*Scope) as client:
        upload(client, given)
        assert client.get(f"/v1/problems/{given.digest}/answers").json()["tests"]["cases"][0]["output"] == secret
    with guarded.client_with(Scope.JUDGE, Scope.PROBLEMS_WRITE) as client:
        job = {"problem": given.digest, "source": "print(1)", "wait_s": 30}
        replies = [
            client.get("/v1/problems"),
            client.get(f"/v1/problems/{given.digest}"),
            client.get(f"/v1/problems/{given.digest}/answers"),
            client.post("/v1/jobs", json=job),
            client.post("/v1/jobs", json=job | {"profile": "magic"}),
            client.post("/v1/problems", content='{"format": "autoclave-problem/1", "statement": "s", "tests": '
                        '{"kind": "stdin", "cases": [{"input": "", "output": ["' + secret + '"]}]}}'),
        ]  # fmt: skip
    assert [reply.status_code for reply in replies] == [200, 200, 403, 200, 422, 422]
    assert not any(secret in reply.text for reply in replies)


def test_without_tokens_web_pages_and_foreign_host_names_are_refused(server: LiveServer):
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Host": "127.0.0.1.evil.example"}):
        reply = server.client.get("/v1/server", headers=headers)
        assert reply.status_code == 403
    assert "access-control-allow-origin" not in server.client.options("/v1/server").headers
    assert server.client.get("/v1/server", headers={"Host": f"localhost:{server.port}"}).status_code == 200


def test_without_tokens_the_server_listens_only_on_this_machine():
    with pytest.raises(ValidationError, match="require_token=true"):
        ServeConfig(host="0.0.0.0")
    ServeConfig(host="0.0.0.0", require_token=True)
    ServeConfig(host="::1")


def test_a_server_that_requires_tokens_does_not_start_without_one(tmp_path):
    config = ServeConfig(store=str(tmp_path / "s"), require_token=True)
    with pytest.raises(ConfigError, match="token create"), open_parts(config):
        pass


def test_too_many_requests_get_retry_after(start_server):
    limited = start_server(admission=AdmissionConfig(requests_per_s=0.01, request_burst=3))
    replies = [limited.client.get("/v1/server") for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
    assert 50 <= int(replies[-1].headers["Retry-After"]) <= 101
    assert limited.client.get("/v1/health").status_code == 200


@pytest.mark.parametrize("sources", [False, True])
def test_the_audit_log_has_clients_and_hashes_and_programs_only_if_set(start_server, tmp_path, sources: bool):
    import hashlib
    import json

    path = tmp_path / "record.jsonl"
    recorded = start_server(audit=AuditConfig(file=str(path), sources=sources))
    digest = upload(recorded.client, problem())[0]
    recorded.client.post("/v1/jobs", json={"problem": digest, "source": RIGHT, "wait_s": 30})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["client"], line["action"], line["problem"]) for line in lines] == [
        ("local", action, digest) for action in ("upload", "judge", "verdict")
    ]
    assert lines[2]["status"] == "accepted"
    assert {line["program"] for line in lines[1:]} == {hashlib.sha256(RIGHT.encode()).hexdigest()}
    assert (RIGHT in path.read_text()) is sources
    assert path.stat().st_mode & 0o077 == 0


FOREIGN_ROUTES = [
    ("POST", "/run_code", {"code": "print(1)", "language": "python"}),
    ("POST", "/run_jupyter", {"cells": ["1"]}),
    ("GET", "/list_datasets", None),
    ("POST", "/list_ids", {"dataset": "autoclave", "config": {}}),
    ("POST", "/get_prompts", {"dataset": "autoclave", "config": {}}),
    ("POST", "/get_prompt_by_id", {"dataset": "autoclave", "id": DIGEST, "config": {}}),
    ("POST", "/submit", {"dataset": "autoclave", "id": DIGEST, "completion": "```\n1\n```", "config": {}}),
    ("GET", "/api/v2/runtimes", None),
    ("POST", "/api/v2/execute", {"language": "python", "version": "*", "files": [{"content": "1"}]}),
]


@pytest.fixture(scope="module")
def guarded_compatible(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    from autoclave.compose.service import open_store
    from autoclave.config import CompatibleConfig
    from autoclave.service.tokens import create_token

    path = tmp_path_factory.mktemp("guarded") / "store.sqlite"
    store = open_store(path)
    store.add_token(create_token("", frozenset(Scope), 0.0, None)[1])
    store.close()
    protocols = CompatibleConfig(protocols=("sandbox_fusion", "piston"))
    judge = JudgeConfig(workers=1)
    opened = LiveServer(
        ServeConfig(port=0, store=str(path), require_token=True, compatible=protocols, judge=judge, drain_s=0.2)
    )
    with opened.client_with(*Scope) as client:
        upload(client, problem())
    yield opened
    opened.close()


def test_every_route_of_other_protocols_is_in_the_matrix(guarded: LiveServer, guarded_compatible: LiveServer):
    paths = [server.client.get("/v1/openapi.json").json()["paths"] for server in (guarded, guarded_compatible)]
    assert set(paths[1]) - set(paths[0]) == {path for _, path, _ in FOREIGN_ROUTES} | {"/v1/ping"}
    assert guarded_compatible.client.get("/v1/ping").json() == "pong"


@pytest.mark.parametrize(("method", "path", "body"), FOREIGN_ROUTES)
def test_a_route_of_another_protocol_takes_a_token_in_its_url(guarded_compatible: LiveServer, method, path, body):
    server = guarded_compatible
    assert ask(server.client, method, path, body).status_code == 401
    for wrong in ("x:nonsense", "x:", "not base64"):
        import base64

        header = base64.b64encode(wrong.encode()).decode() if ":" in wrong else "%"
        reply = ask(server.client, method, path, body, headers={"Authorization": f"Basic {header}"})
        assert reply.status_code == 401
    with server.client_with(*(set(Scope) - {Scope.JUDGE})) as without:
        assert ask(without, method, path, body).status_code == 403
    with server.client_with(Scope.JUDGE) as allowed:
        token = allowed.headers["Authorization"].removeprefix("Bearer ")
        assert ask(allowed, method, path, body).status_code == 200
    with httpx.Client(base_url=server.url.replace("//", f"//any:{token}@"), timeout=60.0, trust_env=False) as by_url:
        assert ask(by_url, method, path, body).status_code == 200


@pytest.mark.parametrize("shown", ["", "Authorization: Bearer nonsense\r\n"])
@pytest.mark.parametrize("path", ["/v1/problems", "/v1/batches", "/run_code", "/api/v2/execute"])
def test_without_a_valid_token_no_body_is_read(guarded_compatible: LiveServer, path: str, shown: str):
    with socket.create_connection(("127.0.0.1", guarded_compatible.port), timeout=30) as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\n{shown}Content-Type: application/json\r\n"
            "Content-Length: 1000000\r\n\r\n".encode()
        )  # and never a byte of it
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_problems_in_requests_need_the_scope_of_uploads(guarded_compatible: LiveServer):
    row = {"test": [{"input": {"stdin": ""}, "output": {"stdout": "1"}}]}
    config = {"dataset_type": "CommonOJDataset", "provided_data": row}
    submission = {"dataset": "d", "id": 1, "completion": "```\nprint(1)\n```", "config": config}
    names = {"main.py": "print(1)", "input.txt": "", "correct_output.txt": "1",
             "grader_config": "TIME_LIMIT=1\nMEMORY_LIMIT=64"}  # fmt: skip
    files = [{"name": name, "content": content} for name, content in names.items()]
    execution = {"language": "python", "version": "*", "files": files}
    for path, body in (("/submit", submission), ("/api/v2/execute", execution)):
        with guarded_compatible.client_with(Scope.JUDGE) as client:
            assert client.post(path, json=body).status_code == 403
        with guarded_compatible.client_with(Scope.JUDGE, Scope.PROBLEMS_WRITE) as client:
            assert client.post(path, json=body).status_code == 200
