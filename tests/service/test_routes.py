"""Uploads, judging, streams, runs and errors, over real connections."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
import zlib
from types import SimpleNamespace

import httpx
import pytest
import zstandard

from autoclave.compose.service import open_parts
from autoclave.config import AdmissionConfig
from autoclave.core import InputError
from autoclave.service import serving
from autoclave.service.answers import FollowedBatch

from .conftest import DEADLINE_S, RIGHT, LiveServer, problem, unfinished, until, upload

SLOW = "while True: pass"
CODINGS = ("", "gzip", "zstd")


def line(**fields: object) -> bytes:
    return json.dumps(problem(**fields).to_json()).encode()


def job(digest: str, source: str = RIGHT, **fields: object) -> dict[str, object]:
    return {"problem": digest, "source": source, **fields}


def events(reply: httpx.Response) -> list[dict[str, object]]:
    return [json.loads(text) for text in reply.text.splitlines() if text]


# --- Uploads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", CODINGS)
def test_an_upload_may_be_compressed_and_is_stored_once(server: LiveServer, coding: str):
    body = b"\n".join(
        [
            line(source=coding, time_limit_s=1.0 + CODINGS.index(coding)),
            b"",
            line(time_limit_s=1.5 + CODINGS.index(coding)),
        ]
    )
    packed = {"": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[coding](body)
    headers = {"Content-Encoding": coding} if coding else {}
    first = server.client.post("/v1/problems", content=packed, headers=headers).json()
    again = server.client.post("/v1/problems", content=packed, headers=headers).json()
    assert (first["new"], again["new"]) == (2, 0)
    digests = [one["digest"] for one in first["problems"]]
    assert digests == [one["digest"] for one in again["problems"]]
    about = server.client.get(f"/v1/problems/{digests[0]}").json()
    assert (about["id"], about["kind"], about["num_tests"], about["statement"]) == ("add", "stdin", 1, "Add.")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_that_expands_beyond_the_limit_is_stopped(server: LiveServer, coding: str):
    zeros = bytes(1 << 20)
    if coding == "gzip":
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(packer.compress(zeros) for _ in range(100)) + packer.flush()
    else:
        bomb = zstandard.ZstdCompressor(level=3).compress(zeros * 64) * 40
    assert len(bomb) < 1 << 22
    for path in ("/v1/problems", "/v1/jobs"):
        reply = server.client.post(path, content=bomb, headers={"Content-Encoding": coding})
        assert (reply.status_code, reply.json()["error"]["kind"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [(b"no gzip", "gzip", 422), (b"no zstd", "zstd", 422), (gzip.compress(b"x" * 99, mtime=0)[:20], "gzip", 422),
     (b"x", "br", 415)],
)  # fmt: skip
def test_a_body_with_another_content_encoding_is_refused(server: LiveServer, body: bytes, coding: str, status: int):
    reply = server.client.post("/v1/problems", content=body, headers={"Content-Encoding": coding})
    assert reply.status_code == status


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"{", "line 2: not valid JSON"),
        (b"[1]", "line 2: expected a JSON object"),
        (b"\xff", "line 2: not UTF-8"),
        (b'{"format": "autoclave-problem/1"}', "required field is missing"),
        (line(profile="magic"), "line 2: problem 'add': profile"),
        (line(tags=["t"]).replace(b'"t"', b"7"), "line 2: tags.0"),
        (json.dumps({"format": "autoclave-problem/1", "id": "s", "statement": "s",
                     "tests": {"kind": "stored", "digest": "0" * 64}}).encode(), "stored"),
        (b"[" * 100_000, "line 2: "),
    ],
)  # fmt: skip
def test_an_invalid_line_is_named(server: LiveServer, bad: bytes, words: str):
    reply = server.client.post("/v1/problems", content=line() + b"\n" + bad)
    assert (reply.status_code, reply.json()["error"]["kind"]) == (422, "input")
    assert words in reply.json()["error"]["message"]


def test_a_line_or_a_request_that_is_too_long_is_refused(server: LiveServer):
    assert server.client.post("/v1/problems", content=b"x" * (3 << 20)).status_code == 413
    assert server.client.post("/v1/runs", json={"source": "x" * (5 << 20)}).status_code == 413


def test_problems_are_listed_in_pages_and_can_be_deleted(server: LiveServer):
    digest = upload(server.client, problem(time_limit_s=3.25))[0]
    found, after = [], ""
    while after is not None:
        page = server.client.get("/v1/problems", params={"limit": 1, "after": after}).json()
        found += [one["digest"] for one in page["problems"]]
        after = page["next"]
    assert digest in found
    assert found == sorted(set(found))
    assert server.client.delete(f"/v1/problems/{digest}").status_code == 204
    for reply in (server.client.get(f"/v1/problems/{digest}"), server.client.delete(f"/v1/problems/{digest}")):
        assert reply.status_code == 404
    refused = server.client.post("/v1/jobs", json=job(digest))
    assert (refused.status_code, refused.json()["error"]["kind"]) == (404, "unknown_problem")


# --- Judging -------------------------------------------------------------------------------------------------------


def test_one_program_is_judged_while_the_client_waits(server: LiveServer):
    digest = upload(server.client, problem())[0]
    reply = server.client.post("/v1/jobs", json=job(digest, id="mine", wait_s=60))
    answer = reply.json()
    assert (reply.status_code, answer["state"], answer["id"]) == (200, "done", "mine")
    assert (answer["verdict"]["status"], answer["verdict"]["id"]) == ("accepted", "mine")


def test_a_verdict_can_be_polled_and_waited_for(server: LiveServer):
    digest = upload(server.client, problem(time_limit_s=0.5))[0]
    accepted = server.client.post("/v1/jobs", json=job(digest, f"{SLOW}  # poll"))
    assert (accepted.status_code, accepted.json()["verdict"]) == (202, None)
    path = f"/v1/jobs/{accepted.json()['job']}"
    assert server.client.get(path).json()["state"] in ("accepted", "running", "done")
    done = server.client.get(path, params={"wait_s": 60})
    assert (done.status_code, done.json()["verdict"]["status"]) == (200, "time_limit")


def test_the_verdicts_of_a_batch_come_as_a_stream(server: LiveServer):
    form = "application/x-ndjson"
    digest = upload(server.client, problem())[0]
    sources = [RIGHT, "print(8)", "print("]
    body = {"jobs": [job(digest, f"{source}  # {form}", id=str(i)) for i, source in enumerate(sources)]}
    reply = server.client.post("/v1/batches", json=body, headers={"Accept": form})
    assert reply.headers["content-type"].startswith(form)
    found = events(reply)
    names = [event.pop("event") for event in found]
    assert names == ["batch", "job", "job", "job", "end"]
    verdicts = {event["place"]: event["verdict"]["status"] for event in found[1:-1]}
    assert verdicts == {0: "accepted", 1: "wrong_answer", 2: "compile_error"}
    # later, from behind the first that ended
    batch, first = found[0]["batch"], found[1]["sequence"]
    rest = events(server.client.get(f"/v1/batches/{batch}/stream", params={"after": first}))
    assert [event["event"] for event in rest] == ["batch", "job", "job", "end"]
    about = server.client.get(f"/v1/batches/{batch}").json()
    assert (about["counts"], len(about["jobs"])) == ({"done": 3}, 3)


def test_options_of_a_job_replace_those_of_the_problem_up_to_the_limits_of_the_server(server: LiveServer):
    digest = upload(server.client, problem(("1", "1"), ("22", "22"), ("3", "4")))[0]
    echo = job(digest, "print(input())", wait_s=60)
    longest = server.client.post("/v1/jobs", json=echo | {"tests": "longest:1"}).json()["verdict"]
    every = server.client.post("/v1/jobs", json=echo | {"stop_at_failure": False}).json()["verdict"]
    fast = server.client.post("/v1/jobs", json=echo | {"source": SLOW, "time_limit_s": 0.5}).json()["verdict"]
    assert [one["index"] for one in longest["tests"]] == [1]
    assert len(every["tests"]) == 3
    assert (fast["status"], fast["tests"][0]["cpu_s"] < 1.5) == ("time_limit", True)
    for wrong in ({"time_limit_s": 13.0}, {"memory_limit_mb": 99999}, {"profile": "magic"}, {"tests": "longest:0"},
                  {"language": "cobol"}, {"unknown": 1}, {"wait_s": -1}, {"priority": 10}):  # fmt: skip
        reply = server.client.post("/v1/jobs", json=echo | wrong)
        assert (reply.status_code, reply.json()["error"]["kind"]) == (422, "input"), wrong


def test_the_same_key_is_the_same_request(server: LiveServer):
    digest = upload(server.client, problem())[0]
    headers = {"Idempotency-Key": "one"}
    body = {"jobs": [job(digest, f"{RIGHT}  # key")]}
    first = server.client.post("/v1/batches", json=body, headers=headers).json()
    again = server.client.post("/v1/batches", json=body, headers=headers).json()
    assert again["jobs"] == first["jobs"]
    other = server.client.post("/v1/batches", json={"jobs": [job(digest, "print(1)")]}, headers=headers)
    assert (other.status_code, other.json()["error"]["kind"]) == (409, "conflict")


def test_a_job_can_be_cancelled_unless_it_has_ended(start_server):
    server = start_server()
    digest = upload(server.client, problem(time_limit_s=12.0))[0]
    body = {"jobs": [job(digest, f"{SLOW}  # {i}") for i in range(6)]}
    batch = server.client.post("/v1/batches", json=body).json()
    path = f"/v1/jobs/{batch['jobs'][5]}"
    assert server.client.delete(path).json() == {"cancelled": 1}
    assert server.client.delete(path).json() == {"cancelled": 0}
    assert server.client.get(path).json()["state"] == "cancelled"
    assert server.client.delete(f"/v1/batches/{batch['batch']}").json() == {"cancelled": 5}
    stream = events(server.client.get(f"/v1/batches/{batch['batch']}/stream"))
    assert [event.get("state") for event in stream[1:-1]] == ["cancelled"] * 6


@pytest.mark.parametrize("keep", [False, True])
def test_a_disconnected_client_cancels_its_jobs_unless_keep_s_is_set(start_server, keep: bool):
    server = start_server()
    digest = upload(server.client, problem(time_limit_s=0.5))[0]
    body = {"jobs": [job(digest, f"{SLOW}  # {i}") for i in range(6)]} | ({"keep_s": None} if keep else {})
    with server.client.stream("POST", "/v1/batches", json=body, headers={"Accept": "application/x-ndjson"}) as reply:
        batch = json.loads(next(reply.iter_lines()))
    until(lambda: not unfinished(server.parts.store))
    counts = server.client.get(f"/v1/batches/{batch['batch']}").json()["counts"]
    assert (counts == {"done": 6}) if keep else ("cancelled" in counts)


def test_a_request_that_can_never_be_accepted_is_refused_at_once(start_server):
    server = start_server(admission=AdmissionConfig(queue_limit=6, client_queue_limit=6))
    digest = upload(server.client, problem())[0]
    refused = server.client.post("/v1/batches", json={"jobs": [job(digest, RIGHT)] * 7})
    assert refused.status_code == 422
    assert "send at most 6" in refused.json()["error"]["message"]
    assert server.client.get("/v1/server").json()["batch_limit"] == 6


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/traces"])
def test_a_label_with_lone_surrogates_is_refused(server: LiveServer, path: str):
    digest = upload(server.client, problem())[0]
    content = json.dumps({"problem": digest, "source": RIGHT, "id": "\ud800"})
    reply = server.client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == 422
    assert "well-formed Unicode" in reply.json()["error"]["message"]


def test_a_second_server_on_the_same_file_does_not_start(start_server):
    first = start_server()
    with pytest.raises(InputError, match="another server has it"), open_parts(first.parts.config):
        pass


def test_a_client_that_disconnects_before_its_stream_begins_counts_as_disconnected():
    expected: list[str] = []
    leases = SimpleNamespace(expect=lambda batch: expected.append(batch.id))

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        await asyncio.sleep(0)

    async def follow() -> None:
        response = FollowedBatch(SimpleNamespace(leases=leases), None, SimpleNamespace(id="b"), 0)  # pyright: ignore
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, gone, send)

    asyncio.run(follow())
    assert expected == ["b"]


def test_a_full_queue_refuses_with_an_accurate_retry_after(start_server):
    server = start_server(admission=AdmissionConfig(queue_limit=6, client_queue_limit=6, batch_limit=8))
    digest = upload(server.client, problem(time_limit_s=2.0))[0]

    def batch(count: int, label: str) -> httpx.Response:
        jobs = [job(digest, f"{SLOW}  # {label}{i}") for i in range(count)]
        return server.client.post("/v1/batches", json={"jobs": jobs})

    assert batch(9, "too many at once").status_code == 422
    assert batch(6, "a").status_code == 202
    until(lambda: server.parts.dispatcher.load().waiting == 4)
    refused = batch(4, "b")
    assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "busy")
    assert int(refused.headers["Retry-After"]) >= 1
    until(lambda: batch(4, "b").status_code == 202)  # and there is room later
    assert server.client.get("/v1/server").json()["waiting"] <= 6


def test_an_accepted_request_is_recognized_while_the_queue_is_full(start_server):
    server = start_server(admission=AdmissionConfig(queue_limit=6, client_queue_limit=6))
    digest = upload(server.client, problem(time_limit_s=2.0))[0]
    body = {"jobs": [job(digest, f"{SLOW}  # {i}") for i in range(6)]}

    def ask(key: str) -> httpx.Response:
        return server.client.post("/v1/batches", json=body, headers={"Idempotency-Key": key})

    first = ask("first")
    assert first.status_code == 202
    assert ask("second").status_code == 429
    again = ask("first")  # at once: what was refused a moment ago must not decide
    assert (again.status_code, again.json()["batch"]) == (202, first.json()["batch"])


def test_clients_share_the_judge(start_server, tmp_path):
    from autoclave.service.tokens import Scope

    server = start_server()
    digest = upload(server.client, problem(time_limit_s=0.5))[0]
    with server.client_with(Scope.JUDGE) as many, server.client_with(Scope.JUDGE) as one:
        crowd = many.post("/v1/batches", json={"jobs": [job(digest, f"{SLOW}  # {i}") for i in range(12)]}).json()
        single = one.post("/v1/jobs", json=job(digest, wait_s=DEADLINE_S)).json()
        assert single["state"] == "done"
        assert many.get(f"/v1/batches/{crowd['batch']}").json()["counts"].get("done", 0) < 12
        many.delete(f"/v1/batches/{crowd['batch']}")


def test_a_job_after_its_deadline_has_no_verdict_and_no_reward(start_server):
    server = start_server()
    digest = upload(server.client, problem(time_limit_s=2.0))[0]
    server.client.post("/v1/batches", json={"jobs": [job(digest, f"{SLOW}  # {i}") for i in range(3)]})
    late = server.client.post("/v1/jobs", json=job(digest, deadline_s=0.01, wait_s=60)).json()["verdict"]
    assert (late["status"], late["reward"], late["fault"]["kind"]) == (None, None, "deadline")


# --- Runs, traces, the server --------------------------------------------------------------------------------------


def test_a_program_without_tests_is_run(server: LiveServer):
    answer = server.client.post("/v1/runs", json={"source": RIGHT, "stdin": "3 4"}).json()
    assert (answer["ended"], answer["exit_code"], answer["stdout"], answer["level"]) == ("exited", 0, "7\n", "sealed")
    limited = server.client.post("/v1/runs", json={"source": SLOW, "time_limit_s": 0.3}).json()
    assert limited["ended"] == "cpu_time"
    for wrong in ({"language": "cobol"}, {"profile": "magic"}, {"time_limit_s": 13}):
        assert server.client.post("/v1/runs", json={"source": RIGHT} | wrong).status_code == 422


def test_a_long_request_on_a_used_connection_is_answered(start_server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "IDLE_S", 1)
    client = start_server().client
    for seconds in (0, 2):
        reply = client.post("/v1/runs", json={"source": f"import time\ntime.sleep({seconds})"})
        assert reply.status_code == 200


def test_a_run_takes_files_and_returns_files_and_its_value(server: LiveServer):
    body = {
        "source": "text = open('in.txt').read()\nopen('out.txt', 'w').write(text * 2)\ntext + '\\ud800'",
        "files": {"in.txt": "YWI="},
        "fetch_files": ["out.txt", "missing"],
        "wants_value": True,
    }
    answer = server.client.post("/v1/runs", json=body).json()
    assert (answer["value"], answer["value_cut"], answer["files"]) == ("'ab\\ud800'", 0, {"out.txt": "YWJhYg=="})
    assert server.client.post("/v1/runs", json={"source": "7"}).json()["value"] is None
    for wrong in (
        {"files": {"../x": ""}},
        {"files": {"x": "no base64!"}},
        {"fetch_files": ["/etc/passwd"]},
        {"language": "cpp", "wants_value": True},
        {"memory_limit_mb": 1 << 20},
    ):
        reply = server.client.post("/v1/runs", json={"source": "7"} | wrong)
        assert (reply.status_code, reply.json()["error"]["kind"]) == (422, "input")


def test_a_trace_has_the_values_of_variables(server: LiveServer):
    digest = upload(server.client, problem())[0]
    body = {"problem": digest, "source": "a, b = map(int, input().split())", "id": "t"}
    trace = server.client.post("/v1/traces", json=body).json()["trace"]
    assert (trace["variables"], trace["id"], trace["status"]) == ({"a": "3", "b": "4"}, "t", "finished")
    assert server.client.post("/v1/traces", json=body | {"test": 9}).status_code == 422


def test_a_check_whether_a_program_can_be_traced_runs_nothing(start_server):
    server = start_server()  # with one worker, which an endless program would hold for 12 s
    digest = upload(server.client, problem())[0]
    check = {"problem": digest, "source": SLOW, "check_only": True}
    for place in range(3):
        reply = server.client.post("/v1/traces", json=check | {"source": f"{SLOW}  # {place}"})
        assert reply.json() == {"trace": None}
    assert server.client.post("/v1/traces", json=check | {"test": 9}).status_code == 422
    began = time.monotonic()
    assert server.client.post("/v1/jobs", json=job(digest, RIGHT) | {"wait_s": 30}).json()["state"] == "done"
    assert time.monotonic() - began < 10


def test_metrics_are_in_the_format_of_prometheus(server: LiveServer):
    digest = upload(server.client, problem())[0]
    server.client.post("/v1/jobs", json=job(digest, f"{RIGHT}  # counted", wait_s=60))
    text = server.client.get("/v1/metrics").text
    values = dict(row.rsplit(" ", 1) for row in text.splitlines() if not row.startswith("#"))
    assert float(values['autoclave_verdicts_total{client="local",status="accepted"}']) >= 1
    assert values["autoclave_slots"] == "2.0"
    assert values['autoclave_judging_seconds_bucket{le="+Inf"}'] == values["autoclave_judging_seconds_count"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", b"{"),
        ("POST", "/v1/jobs", b"[" * 100_000),
        ("POST", "/v1/jobs", b'{"problem": ' + b"9" * 5000 + b"}"),
        ("POST", "/v1/jobs", b'"\xff"'),
        ("POST", "/v1/batches", b'{"jobs": []}'),
        ("GET", "/v1/problems?limit=0", b""),
        ("GET", "/v1/problems?after=%00%ff", b""),
        ("GET", "/v1/jobs/..%2f..%2fetc", b""),
        ("GET", "/v1/nothing", b""),
        ("PUT", "/v1/jobs", b""),
        ("GET", "/v1/problems/xyz", b""),
    ],
)
def test_every_error_has_the_same_form_and_no_details(server: LiveServer, method: str, path: str, body: bytes):
    reply = server.client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    if path.startswith("/v1/problems?after"):
        assert reply.status_code == 200
        return
    assert 400 <= reply.status_code < 500
    assert set(reply.json()) == {"error"}
    assert set(reply.json()["error"]) == {"kind", "message"}
    assert "/tmp" not in reply.text
    assert "Traceback" not in reply.text


def test_an_internal_error_has_no_details(start_server, monkeypatch: pytest.MonkeyPatch):
    server = start_server()

    def fail(*_: object) -> None:
        raise OSError("/secret/path")

    monkeypatch.setattr(server.parts.store, "list_problems", fail)
    reply = server.client.get("/v1/problems")
    assert (reply.status_code, reply.json()["error"]["kind"]) == (500, "internal")
    assert "secret" not in reply.text


def test_the_description_is_complete(server: LiveServer):
    described = server.client.get("/v1/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            assert about.get("description"), (method, path)
            assert "422" in about["responses"]
            if method == "post":
                content = about["requestBody"]["content"]
                assert content
    schemas = described["components"]["schemas"]
    assert {"JobRequest", "BatchRequest", "Verdict", "Trace", "ErrorAnswer"} <= set(schemas)


def test_many_clients_at_once_get_their_own_verdicts(server: LiveServer):
    digest = upload(server.client, problem())[0]
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        source = f"{RIGHT if number % 2 else 'print(0)'}  # many {number}"
        with httpx.Client(base_url=server.url, timeout=DEADLINE_S, trust_env=False) as client:
            found[number] = client.post("/v1/jobs", json=job(digest, source, wait_s=60)).json()["verdict"]["status"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: "accepted" if number % 2 else "wrong_answer" for number in range(24)}
