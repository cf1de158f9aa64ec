"""`autoclave serve queue`, `cancel`, `prune` and `drain` beside servers that run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from autoclave.cli.serve import serve
from autoclave.service.store.records import JobSpec
from autoclave.service.store.sql import Store
from autoclave.service.tokens import Scope

from .conftest import RIGHT, LiveServer, ServerProcess, batch, jobs, problem, unfinished, until, upload

ENDLESS = "while True: pass"


def call(*words: str) -> str:
    result = CliRunner().invoke(serve, [*words])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def queue_of(place: str) -> dict[str, Any]:
    return json.loads(call("queue", "--json", f"store={place}"))


def test_the_queue_is_shown_by_client_and_cancelled_by_client_batch_and_job(store: Store, place: str):
    store.add_batch(batch("b1", "1", client="c1"), jobs("1", "2", "3"))
    store.add_batch(batch("b2", "2", client="c2"), jobs("4", "5"))
    store.claim(1, 0.0)
    store.charge(("c1", 61.0), ("gone", 2.0))
    store.beat(8, 2.5, "host:7")
    shown = queue_of(place)
    assert [(one["client"], one["waiting"], one["running"]) for one in shown["clients"]] == [
        ("c1", 2, 1),
        ("c2", 2, 0),
        ("gone", 0, 0),
    ]
    assert [one["cpu_s"].get("day") for one in shown["clients"]] == [61.0, None, 2.0]
    assert [(one["name"], one["slots"], one["per_s"]) for one in shown["servers"]] == [("host:7", 8, 2.5)]
    lines = call("queue", f"store={place}").splitlines()
    assert lines[1].split()[:3] == ["c1", "2", "1"]
    assert lines[-1].startswith("server host:7: 8 slots, 2.5 verdicts per s, seen ")
    assert call("cancel", "--job", "2", f"store={place}") == "1 programs are cancelled\n"
    assert call("cancel", "--batch", "b2", f"store={place}") == "2 programs are cancelled\n"
    assert call("cancel", "--client", "c1", f"store={place}") == "2 programs are cancelled\n"
    assert call("cancel", "--client", "c1", f"store={place}") == "0 programs are cancelled\n"
    assert unfinished(store) == []
    for words in ((), ("--job", "1", "--client", "c1")):
        assert "give one of" in str(CliRunner().invoke(serve, ["cancel", *words, f"store={place}"]).exception)


def test_ended_requests_and_expired_problems_are_pruned(store: Store, place: str):
    store.put_problems([problem()], "c", keep_s=0.0)
    store.add_batch(batch("b1", "1"), jobs("1"))
    store.add_batch(batch("b2", "2"), [("2", JobSpec("0" * 64, b""))])
    store.finish([("1", "{}")])
    assert call("prune", "--older", "1h", f"store={place}") == (
        "deleted 0 requests with their verdicts, and 1 problems\n"
    )
    assert call("prune", f"store={place}") == "deleted 1 requests with their verdicts, and 0 problems\n"
    assert (store.batch("b1"), unfinished(store)) == (None, ["2"])


def test_a_running_server_stops_what_was_cancelled_beside_it(start_server: Callable[..., LiveServer]):
    server = start_server(node_lease_s=15.0)
    digest = upload(server.client, problem())[0]
    place = server.parts.config.store
    with server.client_with(Scope.JUDGE) as flooding, server.client_with(Scope.JUDGE) as other:
        batches = [{"jobs": [{"problem": digest, "source": f"{ENDLESS}  # {i}"} for i in range(9)]}]
        flood = flooding.post("/v1/batches", json=batches[0]).json()["batch"]
        (row,) = [one for one in queue_of(place)["clients"] if one["waiting"]]
        call("cancel", "--client", row["client"], f"store={place}")
        counts = until(lambda: flooding.get(f"/v1/batches/{flood}").json()["counts"])
        assert counts["cancelled"] >= 8
        done = other.post("/v1/jobs", json={"problem": digest, "source": RIGHT, "wait_s": 60})
        assert done.json()["verdict"]["status"] == "accepted"


def test_one_of_two_servers_is_drained(
    postgres_url: str, start_process: Callable[..., ServerProcess], start_server: Callable[..., LiveServer]
):
    ends = start_process(f"store={postgres_url}", "node_lease_s=1.5", "drain_s=5")
    stays = start_server(store=postgres_url, node_lease_s=1.5)
    names = {one["name"] for one in queue_of(postgres_url)["servers"]}
    (name,) = {one for one in names if one.endswith(f":{ends.process.pid}")}
    digest = upload(stays.client, problem())[0]
    body = {"jobs": [{"problem": digest, "source": f"{RIGHT}  # {i}"} for i in range(40)]}
    accepted = stays.client.post("/v1/batches", json=body).json()["batch"]
    assert call("drain", name, f"store={postgres_url}") == f"{name} has ended\n"
    assert ends.wait() == 0
    until(lambda: stays.client.get(f"/v1/batches/{accepted}").json()["counts"] == {"done": 40})
    assert len(queue_of(postgres_url)["servers"]) == 1
    with pytest.raises(Exception, match="no such server"):
        CliRunner().invoke(serve, ["drain", name, f"store={postgres_url}"], catch_exceptions=False)
