"""Request ids, the access log and metrics by client and cause."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from autoclave.config import AdmissionConfig, AuditConfig, CompatibleConfig, RemoteJudgeConfig
from autoclave.core import Program
from autoclave.judge import JudgeJob
from autoclave.service.client import RemoteJudge
from autoclave.service.metrics import Metrics
from autoclave.service.tokens import Scope

from .conftest import RIGHT, LiveServer, problem, until, upload


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def logged(start_server: Callable[..., LiveServer], tmp_path: Path) -> LiveServer:
    return start_server(
        access_log=str(tmp_path / "access.jsonl"),
        audit=AuditConfig(file=str(tmp_path / "audit.jsonl")),
        compatible=CompatibleConfig(protocols=("piston",)),
        admission=AdmissionConfig(client_queue_limit=2, queue_limit=3),
    )


def values_of(client: httpx.Client) -> dict[str, float]:
    """Return the values of all metrics by name and labels."""
    lines = client.get("/v1/metrics").text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def test_a_request_is_followed_from_the_trainer_to_the_verdict(logged: LiveServer, tmp_path: Path):
    with RemoteJudge(RemoteJudgeConfig(urls=(logged.url,))) as judge:
        assert judge.submit(JudgeJob(problem(), Program(RIGHT))).result(60).is_accepted
    audited = {line["action"]: line for line in lines_of(tmp_path / "audit.jsonl")}
    (asked,) = until(lambda: [line for line in lines_of(tmp_path / "access.jsonl") if line["path"] == "/v1/batches"])
    assert audited["judge"]["request"] == audited["verdict"]["request"] == asked["request"]
    assert audited["verdict"]["batch"] == audited["judge"]["batch"]


def test_the_id_of_a_request_is_the_clients_or_that_of_its_trace_or_a_new_one(logged: LiveServer):
    trace = "0af7651916cd43dd8448eb211c80319c"
    parent = f"00-{trace}-b7ad6b7169203331-01"
    for headers, expected in (
        ({"X-Request-Id": "step-7.a_b:c"}, "step-7.a_b:c"),
        ({"traceparent": parent}, trace),
        ({"X-Request-Id": "mine", "traceparent": parent}, "mine"),
        ({"X-Request-Id": 'a"b'}, "[0-9a-f]{16}"),
        ({"X-Request-Id": "x" * 129, "traceparent": "nonsense"}, "[0-9a-f]{16}"),
        ({}, "[0-9a-f]{16}"),
    ):
        assert re.fullmatch(expected, logged.client.get("/v1/health", headers=headers).headers["X-Request-Id"])


def test_the_access_log_has_a_line_per_request_without_bodies_and_tokens(logged: LiveServer, tmp_path: Path):
    with logged.client_with(Scope.JUDGE) as client:
        token = client.headers["Authorization"].removeprefix("Bearer ")
        client.post("/v1/jobs", json={"problem": problem().digest, "source": "print('secret text')"})
        client.post("/v1/jobs?token=in-the-query", content=b"secret text")
        client.post("/v1/jobs", content=b"x", headers={"Authorization": "Bearer wrong"})
    path = tmp_path / "access.jsonl"
    lines = until(lambda: len(found := lines_of(path)) == 3 and found)
    assert [(one["status"], one["client"], one.get("refusal")) for one in lines] == [
        (404, token[10:18], "unknown_problem"),
        (422, token[10:18], None),
        (401, "", "unauthorized"),
    ]
    assert {(one["method"], one["path"], one["address"]) for one in lines} == {("POST", "/v1/jobs", "127.0.0.1")}
    assert all(one["seconds"] > 0 and one["time"] > 0 for one in lines)
    assert not any(word in path.read_text() for word in ("secret", "wrong", "query", token[19:]))
    assert path.stat().st_mode & 0o077 == 0


def test_a_log_that_was_rotated_is_created_again(logged: LiveServer, tmp_path: Path):
    logged.client.get("/v1/health")
    path = tmp_path / "access.jsonl"
    until(path.read_text)
    path.rename(tmp_path / "access.jsonl.1")
    logged.client.get("/v1/ready")
    assert [one["path"] for one in until(lambda: path.exists() and lines_of(path))] == ["/v1/ready"]
    assert len(lines_of(tmp_path / "access.jsonl.1")) == 1


def test_metrics_count_verdicts_times_refusals_and_faults_by_client_and_cause(logged: LiveServer):
    digest = upload(logged.client, problem())[0]
    with logged.client_with(Scope.JUDGE, requests_per_s=0.001) as client, logged.client_with(Scope.JUDGE) as other:
        id, others = (one.headers["Authorization"][17:25] for one in (client, other))
        job = {"problem": digest, "source": RIGHT, "wait_s": 60}
        assert client.post("/v1/jobs", json=job).json()["verdict"]["status"] == "accepted"
        logged.client.get("/v1/nothing")
        while client.get("/v1/server").status_code == 200:
            pass
        many = [{"problem": digest, "source": f"while True: pass  # {i}"} for i in range(2)]
        until(lambda: other.post("/v1/batches", json={"jobs": many}).status_code == 429)
        logged.break_cells()
        execution = {"language": "python", "version": "*", "files": [{"content": "1"}]}
        assert other.post("/api/v2/execute", json=execution).status_code == 500
        fault = logged.client.post("/v1/jobs", json=job | {"source": f"{RIGHT}  # new"})
        assert fault.json()["verdict"]["fault"]["kind"] == "sandbox"
    values = until(lambda: (found := values_of(logged.client)).get(_FAULT) and found)
    for name in (
        f'autoclave_verdicts_total{{client="{id}",status="accepted"}}',
        f'autoclave_queue_seconds_count{{client="{id}"}}',
        f'autoclave_refusals_total{{cause="rate",client="{id}"}}',
        f'autoclave_refusals_total{{cause="own_queue",client="{others}"}}',
        f'autoclave_refusals_total{{cause="fault",client="{others}"}}',
        'autoclave_verdicts_total{client="local",status="none"}',
        'autoclave_request_seconds_count{route="/v1/jobs"}',
        'autoclave_request_seconds_count{route="/v1/batches"}',
        'autoclave_requests_total{method="GET",status="404"}',
    ):
        assert values[name] >= 1, name
    assert values[f'autoclave_cpu_seconds_total{{client="{id}"}}'] > 0
    assert not any(digest in name for name in values)
    names = {name.partition("{")[0] for name in values}
    panels = json.loads((Path(__file__).parents[2] / "deploy/grafana/judge.json").read_text())["panels"]
    shown = {word for panel in panels for word in re.findall(r"autoclave_\w+", panel["targets"][0]["expr"])}
    assert len(shown) >= 10
    assert shown - names == set()


_FAULT = 'autoclave_faults_total{client="local",kind="sandbox"}'


def test_metrics_have_a_bounded_number_of_clients():
    metrics = Metrics()
    for number in range(1000):
        metrics.note_refusal("rate", f"client{number}")
    lines = [line for line in metrics.text({}).splitlines() if line.startswith("autoclave_refusals_total{")]
    assert len(lines) == 101
    assert 'autoclave_refusals_total{cause="rate",client="other"} 900.0' in lines
