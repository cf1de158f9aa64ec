"""Several servers on one database: every program is judged and reported once by any of them."""

from __future__ import annotations

import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from autoclave.compose.service import open_store
from autoclave.config import AdmissionConfig, AuditConfig
from autoclave.core import HostError, InputError
from autoclave.service.store.schema import VERSION
from autoclave.service.store.sql import Store
from autoclave.service.tokens import Scope, create_token

from .conftest import DEADLINE_S, RIGHT, LiveServer, Postgres, jobs, problem, run_together, unfinished, until, upload
from .conftest import batch as batch_of

SLOW = "while True: pass"
NDJSON = {"Accept": "application/x-ndjson"}


@pytest.fixture
def start_nodes(start_server, postgres_url: str, tmp_path: Path) -> Callable[..., list[LiveServer]]:
    """start_nodes(count, ...settings): servers on one store."""

    def start(count: int, **settings: object) -> list[LiveServer]:
        audit = AuditConfig(file=str(tmp_path / "audit.jsonl"))
        defaults = {"store": postgres_url, "node_lease_s": 3.0, "audit": audit}
        return [start_server(**defaults | settings) for _ in range(count)]

    return start


def connected(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=DEADLINE_S, trust_env=False)


def slow_jobs(digest: str, count: int, label: str = "") -> list[dict[str, object]]:
    return [{"problem": digest, "source": f"{SLOW}  # {label}{i}"} for i in range(count)]


def followed(client: httpx.Client, batch: str, after: int = 0) -> Iterator[dict[str, object]]:
    """What wait_or_disconnect to a batch, until the stream ends."""
    with client.stream("GET", f"/v1/batches/{batch}/stream?after={after}", headers=NDJSON) as reply:
        for line in reply.iter_lines():
            if line:
                yield json.loads(line)


# --- Nothing is lost, nothing comes twice --------------------------------------------------------------------------


@pytest.mark.slow
def test_every_program_is_judged_once_though_one_of_two_servers_is_killed_again_and_again(start_process, postgres_url):
    settings = (f"store={postgres_url}", "node_lease_s=3.0")
    nodes = [start_process(*settings), start_process(*settings)]
    with connected(nodes[0].url) as client:
        digest = upload(client, problem())[0]
    submitted: dict[str, str] = {}

    def submit(which: int, number: int) -> str:
        sources = [
            f"{RIGHT if i % 3 else 'print(0)'}\nimport time; time.sleep(0.05)  # {number} {i}" for i in range(12)
        ]
        body = {"jobs": [{"problem": digest, "source": source, "id": str(i)} for i, source in enumerate(sources)]}
        with connected(nodes[which].url) as client:
            reply = client.post("/v1/batches", json=body, headers={"Idempotency-Key": str(number)})
        assert reply.status_code == 202, reply.text
        submitted.update((job, "accepted" if i % 3 else "wrong_answer") for i, job in enumerate(reply.json()["jobs"]))
        return reply.json()["batch"]

    batches = [submit(number % 2, number) for number in range(4)]
    reported: Counter[str] = Counter()
    verdicts: dict[str, str] = {}
    with connected(nodes[0].url) as survivor:

        def follow(batch: str, most: int) -> int:
            """Up to so many verdicts, from a server that is not killed."""
            after = 0
            for event in followed(survivor, batch, places[batch]):
                if event["event"] == "job":
                    reported[event["job"]] += 1
                    verdicts[event["job"]] = event["verdict"]["status"]
                    after = places[batch] = event["sequence"]
                    most -= 1
                if not most:
                    break
            return after

        places = dict.fromkeys(batches, 0)
        for round in range(2):
            follow(batches[round], 4)
            nodes[1].kill()
            follow(batches[round], 3)  # the other goes on
            nodes[1].start()
            batches.append(submit(1, 4 + round))
            places[batches[-1]] = 0
        for batch in batches:
            follow(batch, -1)
        counts = [survivor.get(f"/v1/batches/{batch}").json()["counts"] for batch in batches]
    assert counts == [{"done": 12}] * 6
    assert set(reported) == set(submitted)  # none is lost
    assert max(reported.values()) == 1  # none is reported twice
    assert verdicts == submitted  # none is wrong


def test_servers_share_the_work_and_each_reports_all_of_it(start_nodes):
    nodes = start_nodes(2)
    digest = upload(nodes[0].client, problem(time_limit_s=0.5))[0]
    body = {"jobs": slow_jobs(digest, 8)}
    with nodes[0].client.stream("POST", "/v1/batches", json=body, headers=NDJSON) as reply:
        events = [json.loads(line) for line in reply.iter_lines() if line]
    assert [event["verdict"]["status"] for event in events if event["event"] == "job"] == ["time_limit"] * 8
    judged = [node.parts.metrics.text({}).count('status="time_limit"') for node in nodes]
    assert judged == [1, 1]  # both had some
    one = nodes[1].client.get(f"/v1/jobs/{events[0]['jobs'][0]}").json()
    assert one["verdict"]["status"] == "time_limit"


def test_a_server_that_shuts_down_leaves_queued_jobs_to_the_other(start_nodes):
    nodes = start_nodes(2, node_lease_s=600.0)
    digest = upload(nodes[0].client, problem(time_limit_s=0.5))[0]
    batch = nodes[0].client.post("/v1/batches", json={"jobs": slow_jobs(digest, 10)}).json()["batch"]
    until(lambda: nodes[0].parts.dispatcher.num_running)
    nodes[0].end()
    statuses = [event["verdict"]["status"] for event in followed(nodes[1].client, batch) if event["event"] == "job"]
    assert statuses == ["time_limit"] * 10


# --- What one server knows, all know -------------------------------------------------------------------------------


def test_a_job_running_at_another_server_can_be_cancelled(start_nodes):
    first, second = start_nodes(2)
    digest = upload(first.client, problem(time_limit_s=12.0))[0]
    batch = first.client.post("/v1/batches", json={"jobs": slow_jobs(digest, 4)}).json()["batch"]
    until(lambda: first.parts.dispatcher.num_running == second.parts.dispatcher.num_running == 2)
    assert second.client.delete(f"/v1/batches/{batch}").json() == {"cancelled": 4}
    until(lambda: not first.parts.dispatcher.num_running and not second.parts.dispatcher.num_running)
    assert first.client.get(f"/v1/batches/{batch}").json()["counts"] == {"cancelled": 4}


def test_the_bounds_of_the_queue_hold_over_all_servers(start_nodes):
    admission = AdmissionConfig(queue_limit=6, client_queue_limit=6, batch_limit=12)
    first, second = start_nodes(2, admission=admission)
    digest = upload(first.client, problem(time_limit_s=2.0))[0]
    first.client.post("/v1/batches", json={"jobs": slow_jobs(digest, 4)})
    until(lambda: first.parts.dispatcher.num_running == second.parts.dispatcher.num_running == 2)
    assert first.client.post("/v1/batches", json={"jobs": slow_jobs(digest, 6, "b")}).status_code == 202
    refused = second.client.post("/v1/batches", json={"jobs": slow_jobs(digest, 6, "c")})
    assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "busy")
    assert int(refused.headers["Retry-After"]) >= 1

    def shares() -> list[int]:
        return [node.client.get("/v1/server").json()["waiting"] for node in (first, second)]

    assert max(until(lambda: (found := shares())[0] == found[1] and found)) <= 3  # each says what waits for it
    until(lambda: second.client.post("/v1/batches", json={"jobs": slow_jobs(digest, 1, "d")}).status_code == 202)


def test_servers_share_tokens_and_problems(start_nodes, postgres_url: str):
    with contextlib.closing(open_store(postgres_url)) as store:
        text, record = create_token("", frozenset({Scope.JUDGE, Scope.PROBLEMS_WRITE}), 0.0, None)
        store.add_token(record)
    first, second = start_nodes(2, require_token=True)
    for node in (first, second):
        node.client.headers["Authorization"] = f"Bearer {text}"
    digest = upload(first.client, problem())[0]
    job = {"problem": digest, "source": RIGHT, "wait_s": 60}
    assert second.client.post("/v1/jobs", json=job).json()["verdict"]["status"] == "accepted"
    first.parts.store.revoke_token(record.id)
    assert second.client.get("/v1/problems").status_code == 401


def test_a_client_may_continue_at_another_server(start_nodes):
    first, second = start_nodes(2)
    digest = upload(first.client, problem(time_limit_s=1.0))[0]
    body = {"jobs": slow_jobs(digest, 12), "keep_s": 5.0}  # they take 7 seconds and more
    with first.client.stream("POST", "/v1/batches", json=body, headers=NDJSON) as reply:
        batch = json.loads(next(reply.iter_lines()))["batch"]
    events = followed(second.client, batch)
    statuses = [event["verdict"]["status"] for event in events if event["event"] == "job"]
    assert statuses == ["time_limit"] * 12
    with first.client.stream("POST", "/v1/batches", json={**body, "keep_s": 0.0}, headers=NDJSON) as reply:
        batch = json.loads(next(reply.iter_lines()))["batch"]
    until(lambda: second.parts.store.is_finished(batch))
    assert "cancelled" in second.client.get(f"/v1/batches/{batch}").json()["counts"]


@pytest.mark.slow
def test_jobs_of_a_client_lost_with_a_killed_server_are_cancelled(start_nodes, start_process, postgres_url: str):
    killed = start_process(f"store={postgres_url}", "node_lease_s=3.0", "judge.workers=1")
    (other,) = start_nodes(1)
    digest = upload(other.client, problem(time_limit_s=6.0))[0]
    body = {"jobs": slow_jobs(digest, 12), "keep_s": 0.5}
    with (
        connected(killed.url) as client,
        client.stream("POST", "/v1/batches", json=body, headers=NDJSON) as reply,
    ):
        batch = json.loads(next(reply.iter_lines()))["batch"]
        killed.kill()
    until(lambda: other.parts.store.is_finished(batch))
    assert other.client.get(f"/v1/batches/{batch}").json()["counts"].get("cancelled", 0) >= 6


# --- The database --------------------------------------------------------------------------------------------------


def test_accepted_jobs_are_judged_after_the_database_was_unavailable(
    start_nodes, postgres: Postgres, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    nodes = start_nodes(2)
    digest = upload(nodes[0].client, problem(time_limit_s=0.5))[0]
    batch = nodes[0].client.post("/v1/batches", json={"jobs": slow_jobs(digest, 10)}).json()["batch"]
    until(lambda: nodes[0].parts.dispatcher.num_running)
    following = followed(nodes[1].client, batch)
    assert next(following)["event"] == "batch"
    postgres.stop()
    try:
        for node in nodes:
            for method, path, body in (
                ("POST", "/v1/jobs", {"problem": digest, "source": RIGHT}),
                ("POST", "/v1/jobs", {"problem": digest, "source": RIGHT, "wait_s": 0.1}),
                ("GET", f"/v1/batches/{batch}", None),
                ("GET", f"/v1/batches/{batch}/stream", None),
                ("GET", "/v1/problems", None),
                ("GET", "/v1/server", None),
                ("DELETE", f"/v1/batches/{batch}", None),
            ):
                reply = node.client.request(method, path, json=body)
                assert (reply.status_code, reply.json()["error"]["kind"]) == (503, "store"), (method, path)
                assert int(reply.headers["Retry-After"]) >= 1
                assert set(reply.json()["error"]) == {"kind", "message"}
                assert not {"/tmp", "postgres:", "psycopg", "socket"} & set(reply.text.split('"'))
            assert node.client.get("/v1/health").status_code == 200
            until(lambda node=node: node.client.get("/v1/ready").json() == {"status": "store"})
    finally:
        postgres.start()
    statuses = [event["verdict"]["status"] for event in following if event["event"] == "job"]
    assert statuses == ["time_limit"] * 10
    done = nodes[1].client.post("/v1/jobs", json={"problem": digest, "source": RIGHT, "wait_s": 60})
    assert done.json()["verdict"]["status"] == "accepted"
    until(lambda: nodes[0].client.get("/v1/ready").status_code == 200)
    logged = [
        record.getMessage() + str(record.exc_text or "")
        for record in caplog.records
        if record.name.startswith(("autoclave", "psycopg"))
    ]
    assert any("does not respond" in text for text in logged)
    assert not [text for text in logged if "/tmp" in text or "postgres" in text.lower() or "Traceback" in text]


def test_after_a_lost_connection_no_event_is_missed(start_nodes, postgres: Postgres):
    nodes = start_nodes(2)
    digest = upload(nodes[0].client, problem())[0]
    for number in range(3):
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'autoclave serve'"
        )
        for node in nodes:
            job = {"problem": digest, "source": f"{RIGHT}  # {number} {node.port}", "wait_s": 60}
            answers = iter(lambda node=node, job=job: node.client.post("/v1/jobs", json=job), None)
            answer = next(reply for reply in answers if reply.status_code != 503)
            assert answer.json()["verdict"]["status"] == "accepted"


def test_servers_that_start_at_once_create_one_schema(postgres_url: str):
    opened: list[Store] = []
    run_together(*[lambda: opened.append(open_store(postgres_url))] * 6)
    opened[0].add_batch(batch_of(), jobs("1"))
    assert [len(unfinished(store)) for store in opened] == [1] * 6
    assert opened[0]._rows("SELECT version FROM autoclave_schema") == [(VERSION,)]
    for store in opened:
        store.close()


def test_a_database_of_a_later_version_or_of_something_else_is_refused(postgres: Postgres):
    import psycopg

    for statement, words in (
        ("CREATE TABLE autoclave_schema AS SELECT 999::bigint AS version", "newer program"),
        ("CREATE TABLE jobs (mine integer)", "an empty one"),
    ):
        url = postgres.new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement)
        with pytest.raises(InputError, match=words):
            open_store(url)


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("postgresql://me:hidden@127.0.0.1:{port}/secret", HostError, "the connection was refused"),
        ("postgresql:///secret?host=/hidden/folder", HostError, "the connection was refused"),
        ("postgresql://me:hidden@no.such.host.invalid/secret", HostError, "its host name is unknown"),
        ("postgresql://me:hidden@host:many/secret", (HostError, InputError), "postgresql://USER|connection failed"),
        ("postgresql://me:hidden@host/secret?hidden=1", InputError, "postgresql://USER"),
    ],
)
def test_an_unusable_address_is_refused_and_not_repeated(unused_port: int, address, error, words):
    with pytest.raises(error, match=words) as refused:
        open_store(address.format(port=unused_port))
    assert not [word for word in ("hidden", "secret", "127.0.0.1", "no.such") if word in str(refused.value)]
    assert refused.value.__cause__ is None
