"""What is accepted is judged, once for its client, whatever wait_or_disconnect to the server."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest

from .conftest import DEADLINE_S, RIGHT, problem, unfinished, until, upload


def connected(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=DEADLINE_S, trust_env=False)


def programs(digest: str, count: int) -> list[dict[str, str]]:
    """Every third is wrong, and each takes a moment."""
    sources = [f"{RIGHT if i % 3 else 'print(0)'}\nimport time; time.sleep(0.05)  # {i}" for i in range(count)]
    return [{"problem": digest, "source": source, "id": str(i)} for i, source in enumerate(sources)]


@pytest.mark.slow
def test_jobs_survive_kill_9_again_and_again_and_are_judged_once(start_process):
    server = start_process()
    with connected(server.url) as client:
        digest = upload(client, problem())[0]
        body = {"jobs": programs(digest, 30)}
        headers = {"Idempotency-Key": "once"}
        batch = client.post("/v1/batches", json=body, headers=headers).json()
        after, verdicts = 0, {}
        for goal in (5, 15, 30):
            stream = f"/v1/batches/{batch['batch']}/stream?after={after}"
            with client.stream("GET", stream, headers={"Accept": "application/x-ndjson"}) as reply:
                for line in reply.iter_lines():
                    event = json.loads(line or "{}")
                    if event.get("event") == "job":
                        assert event["place"] not in verdicts  # streamed once
                        verdicts[event["place"]] = event["verdict"]["status"]
                        after = event["sequence"]
                    if len(verdicts) >= goal:
                        break
            if goal < 30:
                server.kill()
                server.start()
                again = client.post("/v1/batches", json=body, headers=headers).json()
                assert again["jobs"] == batch["jobs"]
        counts = client.get(f"/v1/batches/{batch['batch']}").json()["counts"]
    assert counts == {"done": 30}
    assert verdicts == {i: "accepted" if i % 3 else "wrong_answer" for i in range(30)}


@pytest.mark.slow
def test_sigterm_finishes_running_jobs_and_keeps_queued_ones(start_process):
    server = start_process("drain_s=30")
    with connected(server.url) as client:
        digest = upload(client, problem(time_limit_s=6.0))[0]
        slow = f"import time; time.sleep(8)\n{RIGHT}"  # for longer than it takes to ask what follows
        jobs = [{"problem": digest, "source": slow if i == 0 else f"{RIGHT}  # {i}"} for i in range(6)]
        batch = client.post("/v1/batches", json={"jobs": jobs}).json()
        until(lambda: client.get(f"/v1/batches/{batch['batch']}").json()["counts"].get("running"))
        server.terminate()
        until(lambda: client.get("/v1/ready").status_code == 503)
        refused = client.post("/v1/jobs", json={"problem": digest, "source": "print(1)"})
        assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "draining")
        assert int(refused.headers["Retry-After"]) >= 1
        assert client.get("/v1/health").status_code == 200
        assert server.wait() == 0
        server.start()
        counts = client.get(f"/v1/batches/{batch['batch']}").json()["counts"]
        assert counts.get("done", 0) >= 1  # what ran has ended
        assert sum(counts.values()) == 6
        done = client.get(f"/v1/batches/{batch['batch']}/stream").text
    statuses = [json.loads(line)["verdict"]["status"] for line in done.splitlines() if '"event":"job"' in line]
    assert statuses == ["accepted"] * 6


def test_sigterm_while_the_server_starts_ends_it_without_an_error(tmp_path, unused_port: int):
    words = ["serve", f"port={unused_port}", "store=store.sqlite", "judge.workers=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "autoclave", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    until(lambda: (tmp_path / "store.sqlite").exists())
    process.terminate()
    _, log = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, "Traceback" in log) == (0, False), log


def test_a_job_that_killed_the_server_several_times_is_not_started_again(start_server, tmp_path):
    import contextlib
    import time

    from autoclave.service.dispatcher import MOST_STARTS
    from autoclave.service.store.records import Batch, JobSpec
    from autoclave.service.store.sqlite import SqliteStore

    path = tmp_path / "store.sqlite"
    given = problem()
    with contextlib.closing(SqliteStore(path)) as store:
        store.put_problems([given])
        store.add_batch(
            Batch("b", "local", "k", "f", 4, time.time()), [("poison", JobSpec(given.digest, RIGHT.encode()))]
        )
        for _ in range(MOST_STARTS):
            assert store.claim(1, 0.0)
            store.join()
            store.adopt(0.0)
    server = start_server(store=str(path))
    verdict = server.client.get("/v1/jobs/poison", params={"wait_s": 60}).json()["verdict"]
    assert (verdict["status"], verdict["fault"]["kind"]) == (None, "server")


def test_after_a_crash_jobs_of_missing_clients_are_cancelled_after_keep_s(start_server, tmp_path):
    import contextlib
    import time

    from autoclave.service.store.records import Batch, JobSpec
    from autoclave.service.store.sqlite import SqliteStore

    path = tmp_path / "store.sqlite"
    given = problem(time_limit_s=2.0)
    with contextlib.closing(SqliteStore(path)) as store:
        store.put_problems([given])
        jobs = [(str(i), JobSpec(given.digest, f"while True: pass  # {i}".encode())) for i in range(6)]
        store.add_batch(Batch("b", "local", "k", "f", 4, time.time(), None, 0.1), jobs)
    server = start_server(store=str(path))
    until(lambda: not unfinished(server.parts.store))
    assert server.client.get("/v1/batches/b").json()["counts"].get("cancelled", 0) >= 4


def test_a_job_claimed_while_the_store_failed_is_claimed_again(start_server, monkeypatch):
    from autoclave.service.store.records import StoreUnavailable

    server = start_server()
    digest = upload(server.client, problem())[0]
    store, failed = server.parts.store, []
    whole = {"problem": store.problem, "claim": store.claim, "finish": store.finish}

    def failing(name: str, *args: object) -> object:
        """The second time works; what was asked for is done all the same, as when a connection breaks in a commit."""
        found = whole[name](*args)
        if name not in failed and found:
            failed.append(name)
            raise StoreUnavailable
        return found

    for name in whole:
        monkeypatch.setattr(store, name, lambda *args, name=name: failing(name, *args))
    done = server.client.post("/v1/jobs", json={"problem": digest, "source": RIGHT, "wait_s": 60}).json()
    assert (done["state"], done["verdict"]["status"], done["verdict"]["fault"]) == ("done", "accepted", None)
    assert failed == ["claim", "problem", "finish"]
