"""Limits of tokens, owners of problems, and tests that expire."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from autoclave.config import AdmissionConfig, CompatibleConfig
from autoclave.core import CustomChecker, SandboxFault
from autoclave.service.store.records import JobSpec
from autoclave.service.store.sql import Store
from autoclave.service.tokens import Limits, Scope, create_token, identity_of

from .conftest import RIGHT, LiveServer, batch, problem, until, upload

ORDINARY = (Scope.JUDGE, Scope.PROBLEMS_WRITE)
BUSY = "for _ in range(6_000_000): pass"


@pytest.fixture(scope="module")
def digest(server: LiveServer) -> str:
    return upload(server.client, problem())[0]


def test_limits_and_the_admin_scope_are_stored(store: Store):
    limits = Limits(priority=3, queue=10, requests_per_s=0.5, cpu_s_per_hour=1.5, cpu_s_per_day=9.0)
    for scopes, given in ((frozenset(Scope), limits), (frozenset({Scope.ADMIN}), Limits())):
        _, record = create_token("", scopes, 0.0, None, given)
        store.add_token(record)
        assert store.token(record.id) == record


@pytest.mark.parametrize(
    ("scopes", "limits", "highest"),
    [(ORDINARY, {}, 7), (ORDINARY, {"priority": 2}, 2), (ORDINARY, {"priority": 9}, 9), (tuple(Scope), {}, 9)],
)
def test_a_token_has_a_highest_priority(server: LiveServer, digest: str, scopes, limits, highest):
    with server.client_with(*scopes, **limits) as client:
        job = {"problem": digest, "source": RIGHT}
        assert client.post("/v1/jobs", json=job | {"priority": highest}).is_success
        if highest < 9:
            reply = client.post("/v1/jobs", json=job | {"priority": highest + 1})
            assert reply.status_code == 403
            assert reply.json()["error"]["message"] == f"priority = {highest + 1}: this token allows at most {highest}"
        assert client.post("/v1/jobs", json=job).is_success  # the default is lowered


def test_a_token_has_a_share_of_the_queue(server: LiveServer, digest: str):
    jobs = [{"problem": digest, "source": RIGHT}] * 3
    with server.client_with(*ORDINARY, queue=2) as client, server.client_with(*ORDINARY) as other:
        refused = client.post("/v1/batches", json={"jobs": jobs})
        assert refused.status_code == 422  # it would never have room
        assert client.get("/v1/server").json()["batch_limit"] == 2
        assert other.post("/v1/batches", json={"jobs": jobs}).status_code == 202
        assert client.post("/v1/batches", json={"jobs": jobs[:2]}).status_code == 202


def test_a_token_has_a_rate(start_server: Callable[..., LiveServer]):
    server = start_server(admission=AdmissionConfig(requests_per_s=1000.0, request_burst=3))
    with server.client_with(*ORDINARY, requests_per_s=0.01) as client, server.client_with(*ORDINARY) as other:
        assert [client.get("/v1/problems").status_code for _ in range(4)] == [200, 200, 200, 429]
        assert other.get("/v1/problems").status_code == 200


@pytest.mark.parametrize("period", ["hour", "day"])
def test_a_token_has_cpu_seconds(server: LiveServer, digest: str, period: str):
    job = {"problem": digest, "source": "for _ in range(3_000_000): pass\n" + RIGHT, "wait_s": 30}
    with server.client_with(*ORDINARY, **{f"cpu_s_per_{period}": 0.01}) as client:
        done = client.post("/v1/jobs", json=job)
        assert done.json()["verdict"]["status"] == "accepted"
        refused = client.post("/v1/jobs", json=job)
        assert refused.status_code == 429
        assert f"CPU seconds of this {period} are used up" in refused.json()["error"]["message"]
        assert 0 < int(refused.headers["Retry-After"]) <= {"hour": 3600, "day": 86400}[period]
        assert client.get(f"/v1/jobs/{done.json()['job']}").status_code == 200  # what is done can be read
    assert server.client.post("/v1/jobs", json=job).status_code == 200


def test_runs_use_cpu_seconds_too(server: LiveServer):
    run = {"source": "for _ in range(3_000_000): pass"}
    with server.client_with(Scope.JUDGE, cpu_s_per_day=0.01) as client:
        assert [client.post("/v1/runs", json=run).status_code for _ in range(2)] == [200, 429]


def test_runs_that_end_in_a_fault_use_cpu_seconds(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    whole = server.parts.runner.run

    def broken(*given: Any) -> None:
        whole(*given)
        raise SandboxFault("no cell")

    monkeypatch.setattr(server.parts.runner, "run", broken)
    run = {"source": "for _ in range(3_000_000): pass"}
    with server.client_with(Scope.JUDGE, cpu_s_per_day=0.01) as client:
        assert [client.post("/v1/runs", json=run).status_code for _ in range(2)] == [500, 429]


def test_traces_use_cpu_seconds_too(server: LiveServer, digest: str):
    trace = {"problem": digest, "source": "for _ in range(3_000_000): pass"}
    with server.client_with(Scope.JUDGE, Scope.TRACES_READ, cpu_s_per_day=0.01) as client:
        assert [client.post("/v1/traces", json=trace).status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    "work", [{"checker": CustomChecker("custom", f"{BUSY}\ndef check(*of): return True")}, {"language": "cpp"}], ids=str
)
def test_checkers_and_compilers_use_cpu_seconds_too(server: LiveServer, work: dict[str, Any]):
    given = problem(("", "7"), **work)
    source = '#include <bits/stdc++.h>\nint main() { puts("7"); }' if "language" in work else "print(7)"
    job = {"problem": upload(server.client, given)[0], "source": source, "language": given.language, "wait_s": 60}
    run = {"source": source, "language": given.language}
    with server.client_with(Scope.JUDGE, cpu_s_per_day=1e6) as client:
        requests = [("/v1/jobs", job), *([("/v1/runs", run)] if "language" in work else [])]
        for count, (path, body) in enumerate(requests, 1):
            reply = client.post(path, json=body)
            assert reply.status_code == 200, reply.text
            (id,) = [token.id for token in server.parts.store.tokens() if token.limits.cpu_s_per_day == 1e6][-1:]
            assert server.parts.store.usage(time.time())[id].day_s > 0.1 * count
    shown = f'autoclave_cpu_seconds_total{{client="{id}"}} '
    text = until(lambda: shown in (found := server.parts.metrics.text({})) and found)
    assert float(text.partition(shown)[2].split()[0]) > 0.1


def test_a_cancelled_program_uses_cpu_seconds(server: LiveServer):
    digest = upload(server.client, problem(time_limit_s=12.0))[0]
    with server.client_with(Scope.JUDGE) as client:
        job = client.post("/v1/jobs", json={"problem": digest, "source": "while True: pass"}).json()["job"]
        until(lambda: client.get(f"/v1/jobs/{job}").json()["state"] == "running")
        time.sleep(0.1)
        assert client.delete(f"/v1/jobs/{job}").json() == {"cancelled": 1}
        id = identity_of(client.headers["Authorization"].removeprefix("Bearer "))
        until(lambda: id in server.parts.store.usage(time.time()))


def test_a_repeated_request_is_answered_after_the_cpu_seconds_are_used_up(server: LiveServer, digest: str):
    job = {"problem": digest, "source": "for _ in range(3_000_000): pass\n" + RIGHT, "wait_s": 30}
    with server.client_with(Scope.JUDGE, cpu_s_per_day=0.01) as client:
        first, again, other = [client.post("/v1/jobs", json=job, headers={"Idempotency-Key": key}) for key in "aab"]
        assert (first.status_code, again.json(), other.status_code) == (200, first.json(), 429)
        run = client.post("/v1/runs", json={"source": ""}, headers={"Idempotency-Key": "a"})
        assert run.status_code == 429


def test_used_cpu_time_counts_for_its_hour_and_its_day(store: Store):
    now = time.time()
    store.add_batch(batch(client="c"), [("1", JobSpec("0" * 64, b"")), ("2", JobSpec("0" * 64, b""))])
    for id, seconds in (("1", 1.0), ("2", 2.0), ("2", 2.0)):  # the answer to the second was lost, and it is repeated
        store.finish([(id, "{}")], {id: ("c", seconds)})
    store.charge(("d", 5.0))
    assert {name: used.day_s for name, used in store.usage(now).items()} == {"c": 3.0, "d": 5.0}
    assert store.usage(now)["c"].hour_s == 3.0
    assert store.usage(now + 2 * 86400) == {}


def test_a_program_that_is_cancelled_as_it_ends_uses_cpu_seconds(store: Store):
    store.add_batch(batch(client="c"), [("1", JobSpec("0" * 64, b"")), ("2", JobSpec("0" * 64, b""))])
    store.cancel(["1"])
    assert store.finish([("1", "{}"), ("2", "{}")], {"1": ("c", 2.0), "2": ("c", 1.0)}) == ["2"]
    assert store.usage(time.time())["c"].day_s == 3.0


def test_a_problem_is_deleted_by_its_owner_or_an_admin(server: LiveServer):
    mine, admins = problem(("1 1\n", "2\n")), problem(("2 2\n", "4\n"))
    with (
        server.client_with(*ORDINARY) as owner,
        server.client_with(*ORDINARY) as other,
        server.client_with(Scope.PROBLEMS_WRITE, Scope.ADMIN) as admin,
    ):
        upload(owner, mine, admins)
        upload(other, mine)  # is stored already, and stays the first one's
        refused = other.delete(f"/v1/problems/{mine.digest}")
        assert (refused.status_code, refused.json()["error"]["kind"]) == (403, "forbidden")
        assert owner.delete(f"/v1/problems/{mine.digest}").status_code == 204
        assert admin.delete(f"/v1/problems/{admins.digest}").status_code == 204
        assert other.delete(f"/v1/problems/{mine.digest}").status_code == 404
        upload(other, mine)
        assert owner.delete(f"/v1/problems/{mine.digest}").status_code == 403


def test_a_problem_of_a_request_expires_after_its_last_use(store: Store):
    brought, kept = problem(("1 1\n", "2\n")), problem(("2 2\n", "4\n"))
    store.put_problems([brought, kept], "c", keep_s=0.0)
    store.put_problems([kept], "d")  # uploaded for good
    store.purge(0.0)
    assert [record.digest for record in store.list_problems("", 9)] == [kept.digest]
    assert not store.delete_problem(kept.digest, "c")
    assert store.put_problems([brought], "c", keep_s=0.0) == [True]
    store.put_problems([brought, kept], "c", keep_s=600.0)  # used again
    store.purge(0.0)
    assert len(store.list_problems("", 9)) == 2


def test_tests_that_come_with_a_submission_expire(start_server: Callable[..., LiveServer]):
    started = start_server(compatible=CompatibleConfig(protocols=("sandbox_fusion",), keep_problems_s=0.01))
    upload(started.client, problem())
    row = {"content": "Add.", "test": [{"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}}]}
    config = {"dataset_type": "CommonOJDataset", "provided_data": row, "language": "python"}
    body = {"dataset": "d", "id": 1, "completion": f"```python\n{RIGHT}\n```", "config": config}
    assert started.client.post("/submit", json=body).json()["accepted"]
    assert len(started.parts.store.list_problems("", 9)) == 2
    started.parts.store.purge(0.0)
    assert [record.digest for record in started.parts.store.list_problems("", 9)] == [problem().digest]
    assert started.client.post("/submit", json=body).json()["accepted"]
