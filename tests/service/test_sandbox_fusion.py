"""SandboxFusion's protocol, asked by its own client."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sandbox_fusion as fusion

from autoclave.config import AdmissionConfig, CompatibleConfig, ServeConfig
from autoclave.core import SandboxFault
from autoclave.service.compatible import sandbox_fusion as ours
from autoclave.service.store.records import StoreUnavailable

from .conftest import RIGHT, LiveServer, problem, until, upload

ONCE = {"max_attempts": 1}


@pytest.fixture
def url(compatible: LiveServer) -> str:
    fusion.set_endpoint(compatible.url)
    return compatible.url


def run(code: str, **fields: object) -> fusion.RunCodeResponse:
    request = fusion.RunCodeRequest(**{"code": code, "language": "python"} | fields)
    return fusion.run_code(request, **ONCE)


def text(content: str | None) -> str:
    return base64.b64decode(content or "").decode()


# --- Runs ----------------------------------------------------------------------------------------------------------

WORDS = fusion.SummaryMapping(
    Success="success", Failed="failed", CompileFailed="not compiled", RunFailed="crashed", RunTimeout="late"
)
FLOOD = "import os\nwhile True: os.write(1, bytes(1 << 16))"


@pytest.mark.parametrize(
    ("code", "summary", "return_code"),
    [
        ("print(input())", "success", 0),
        ("import sys; sys.exit(3)", "crashed", 3),
        ("1 / 0", "crashed", 1),
        ("print(", "crashed", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed", -11),
        ("while True: pass", "late", None),
        ("import time; time.sleep(60)", "late", None),
        (FLOOD, "crashed", -9),
        ("import os\nwhile True: os.dup(0)", "crashed", -9),
    ],
)
@pytest.mark.usefixtures("url")
def test_the_client_reads_how_a_program_ended(code: str, summary: str, return_code: int | None):
    result = run(code, stdin="7", run_timeout=0.5)
    assert fusion.summary_run_code_result(result, WORDS) == summary
    assert result.run_result.return_code == return_code
    assert (result.status == "Success") is (summary == "success")
    assert (result.compile_result, result.message) == (None, "")
    if summary == "success":
        assert (result.run_result.stdout, result.run_result.stderr) == ("7\n", "")


@pytest.mark.parametrize(
    ("code", "summary"),
    [
        ("#include <iostream>\nint main() { int a; std::cin >> a; std::cout << a + 1; }", "success"),
        ("int main() { return 2; }", "crashed"),
        ("int main() { return }", "not compiled"),
    ],
)
@pytest.mark.usefixtures("url")
def test_a_compiled_program_has_two_results(code: str, summary: str):
    result = run(code, language="cpp", stdin="1", compile_timeout=30)
    assert fusion.summary_run_code_result(result, WORDS) == summary
    if summary == "not compiled":
        assert result.run_result is None
        assert "error" in result.compile_result.stderr or "expected" in result.compile_result.stderr
    else:
        assert result.compile_result.return_code == 0


@pytest.mark.usefixtures("url")
def test_a_compiler_that_takes_too_long_is_late():
    slow = "template<int N> struct F { static const long v = F<N-1>::v + F<N-2>::v; };" + "".join(
        f"\nconst int a{i}[] = {{ {','.join('1' * 400)} }};" for i in range(300)
    )
    result = run(f"#include <bits/stdc++.h>\n{slow}\nint main() {{}}", language="cpp", compile_timeout=0.05)
    assert result.compile_result.status == "TimeLimitExceeded"
    assert result.run_result is None


@pytest.mark.usefixtures("url")
def test_files_go_in_and_come_out():
    files = {"in.txt": base64.b64encode(b"abc").decode(), "empty": None}
    code = "open('out.txt', 'w').write(open('in.txt').read() + open('empty').read())"
    result = run(code, files=files, fetch_files=["out.txt", "missing"])
    assert {path: text(content) for path, content in result.files.items()} == {"out.txt": "abc"}


@pytest.mark.usefixtures("url")
def test_the_asynchronous_client_works_too():
    async def both() -> list[fusion.RunCodeResponse]:
        requests = [fusion.RunCodeRequest(code=f"print({i})", language="python") for i in range(20)]
        return await asyncio.gather(*(fusion.run_code_async(request, **ONCE) for request in requests))

    assert [result.run_result.stdout for result in asyncio.run(both())] == [f"{i}\n" for i in range(20)]


@pytest.mark.usefixtures("url")
def test_cells_of_a_notebook_share_names():
    cells = ["a = 123", "a", "print(a)", "import sys; sys.stderr.write('e')", "raise RuntimeError('why')"]
    result = fusion.run_jupyter(fusion.RunJupyterRequest(cells=cells), **ONCE)
    assert (result.status, result.driver.return_code) == ("Success", 0)
    assert [cell.display for cell in result.cells] == [[], [{"text/plain": "123"}], [], [{"text/plain": "1"}], []]
    assert (result.cells[2].stdout, result.cells[3].stderr) == ("123\n", "e")
    assert (result.cells[4].error[0]["ename"], result.cells[4].error[0]["evalue"]) == ("RuntimeError", "why")


@pytest.mark.parametrize("last", ["while True: pass", "import os; os._exit(0)"])
@pytest.mark.usefixtures("url")
def test_a_notebook_that_does_not_end_has_failed(last: str):
    request = fusion.RunJupyterRequest(cells=["1", last], total_timeout=0.5)
    result = fusion.run_jupyter(request, **ONCE)
    assert (result.status, result.cells) == ("Failed", [])


# --- What is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"language": "rust"}, "language"),
        ({"args": ["-v"]}, "args"),
        ({"unknown": 1}, "unknown"),
        ({"files": {"../x": ""}}, "files"),
        ({"language": "cpp", "fetch_files": ["a"]}, "files"),
    ],
)
def test_unsupported_options_that_would_change_the_outcome_are_refused(compatible: LiveServer, fields, place):
    reply = compatible.client.post("/run_code", json={"code": "secret()", "language": "python"} | fields)
    assert reply.status_code == 422
    assert place in str(reply.json()["detail"][0])
    assert "secret" not in reply.text


def test_the_client_names_an_unsupported_language(url: str):
    with pytest.raises(Exception, match="422"):
        run("fn main() {}", language="rust")


def test_limits_beyond_those_of_the_server_are_clipped_and_named(compatible: LiveServer):
    fusion.set_endpoint(compatible.url)
    body = {"code": "print(7)", "language": "python", "run_timeout": 99, "memory_limit_MB": 1 << 20}
    result = compatible.client.post("/run_code", json=body).json()
    assert (result["status"], result["run_result"]["stdout"]) == ("Success", "7\n")
    assert "run_timeout = 99 was clipped to the server's limit of 12" in result["message"]
    assert "; memory_limit_MB = 1.04858e+06 was clipped" in result["message"]
    given = problem(source="clipped")
    upload(compatible.client, given)
    verdict = submit("clipped", given.digest, fenced(RIGHT), run_timeout=99)
    assert verdict.accepted
    assert "config.run_timeout = 99 was clipped" in verdict.extra["clipped"]


BODY = {"code": "print(7)", "language": "python", "run_timeout": 2}


@pytest.fixture
def impatient(start_server, monkeypatch: pytest.MonkeyPatch) -> LiveServer:
    """A server with one place, where runs wait for a third of a second before they are refused or kept alive."""
    monkeypatch.setattr(ours, "_MOST_PATIENCE_S", 0.3)
    return start_server(
        compatible=CompatibleConfig(protocols=("sandbox_fusion",)), admission=AdmissionConfig(concurrent_runs=1)
    )


def test_a_run_that_waits_is_refused_once_and_its_retry_is_kept_alive(impatient: LiveServer):
    run, may_end, runner = impatient.parts.runner.run, threading.Event(), impatient.parts.runner
    runner.run = lambda program, order: may_end.wait() and run(program, order)
    with ThreadPoolExecutor(2) as pool:
        ahead = pool.submit(impatient.client.post, "/run_code", json=BODY | {"code": "print(8)"})
        until(lambda: impatient.parts.run_queue.num_admitted)
        reply = impatient.client.post("/run_code", json=BODY)
        assert (reply.status_code, "Retry-After" in reply.headers) == (504, True)
        with impatient.client.stream("POST", "/run_code", json=BODY) as retry:
            assert retry.status_code == 200  # it waits still
            may_end.set()
            text = retry.read()
        assert text.startswith(b" ")
        assert json.loads(text)["run_result"]["stdout"] == "7\n"
        assert ahead.result().json()["run_result"]["stdout"] == "8\n"


def test_a_fault_after_the_response_has_begun_is_one_that_clients_retry(impatient: LiveServer):
    def fail(*_: object) -> object:
        time.sleep(2)
        raise SandboxFault("no cell")

    impatient.parts.runner.run = fail
    reply = impatient.client.post("/run_code", json=BODY)
    assert (reply.status_code, reply.json()["status"]) == (200, "SandboxError")


def test_a_fault_is_not_a_result_of_the_program(start_server):
    server = start_server(compatible=CompatibleConfig(protocols=("sandbox_fusion",)))
    server.break_cells()
    digest = upload(server.client, problem())[0]
    replies = [
        server.client.post("/run_code", json={"code": "1", "language": "python"}),
        server.client.post("/submit", json={"dataset": "autoclave", "id": digest, "completion": "```\n1\n```"}),
    ]
    assert [reply.status_code for reply in replies] == [504, 504]
    assert not any("run_result" in reply.text or "accepted" in reply.text for reply in replies)


def test_an_unavailable_store_is_not_a_result_of_the_program(start_server, monkeypatch: pytest.MonkeyPatch):
    server = start_server(compatible=CompatibleConfig(protocols=("sandbox_fusion",)))

    def away(*_: object) -> object:
        raise StoreUnavailable

    monkeypatch.setattr(server.parts.store, "list_problems", away)
    reply = server.client.post("/list_ids", json={"dataset": "autoclave"})
    assert (reply.status_code, list(reply.json())) == (504, ["detail"])


def test_an_unreadable_body_is_an_error_in_the_form_of_the_protocol(compatible: LiveServer):
    for path, field in (("/run_code", "detail"), ("/api/v2/execute", "message")):
        reply = compatible.client.post(path, content=b"\xff", headers={"Content-Type": "application/json"})
        assert (reply.status_code, list(reply.json())) == (400, [field])


def test_the_protocol_is_off_by_default(start_server):
    server = start_server()
    assert server.client.post("/run_code", json={"code": "1", "language": "python"}).status_code == 404
    with pytest.raises(ValueError, match="profile is ignored"):
        CompatibleConfig(profile="lcb")
    with pytest.raises(ValueError, match="must be one of lcb"):
        ServeConfig(compatible=CompatibleConfig(protocols=("piston",), profile="magic"))


# --- Data sets -----------------------------------------------------------------------------------------------------


def fenced(source: str) -> str:
    return f"Here it is:\n```python\n{source}\n```\n"


def submit(dataset: str, id: str | int, completion: str, **config: object) -> fusion.EvalResult:
    request = fusion.SubmitRequest(dataset=dataset, id=id, completion=completion, config=fusion.TestConfig(**config))
    return fusion.submit(request, **ONCE)


def test_problems_are_data_sets_by_source(compatible: LiveServer, url: str):
    first, second = (problem((f"{i} 1\n", f"{i + 1}\n"), source="contest", id=f"p{i}") for i in range(2))
    upload(compatible.client, first, second, problem(("1 9\n", "10\n"), source="other"))
    assert {"contest", "other"} <= set(compatible.client.get("/list_datasets").json())
    ids = compatible.client.post("/list_ids", json={"dataset": "contest", "config": {}}).json()
    assert ids == sorted([first.digest, second.digest])
    config = fusion.TestConfig()
    prompts = fusion.get_prompts(fusion.GetPromptsRequest(dataset="contest", config=config))
    assert [(one.id, one.prompt) for one in prompts] == [(id, "Add.") for id in ids]
    page = fusion.GetPromptsRequest(dataset="contest", config=config, offset=1, limit=5)
    assert [one.id for one in fusion.get_prompts(page)] == ids[1:]
    one = fusion.get_prompt_by_id(fusion.GetPromptByIdRequest(dataset="contest", id=ids[0], config=config))
    assert one.labels["num_tests"] == 1
    for body in ({"dataset": "nothing"}, {"dataset": "contest", "id": "0" * 64}, {"dataset": "contest", "id": 3}):
        path = "/get_prompt_by_id" if "id" in body else "/list_ids"
        reply = compatible.client.post(path, json={"config": {}} | body)
        assert (reply.status_code, reply.json()["detail"][:7]) == (400, "no such")


def test_a_submission_is_judged_as_a_job(compatible: LiveServer, url: str):
    given = problem(("1 2\n", "3\n"), ("4 5\n", "secret 9\n"), ("5 5\n", "10\n"), source="submit")
    upload(compatible.client, given)
    wrong = submit("submit", given.digest, fenced(RIGHT))
    assert (wrong.accepted, wrong.extracted_code, wrong.extracted_type) == (False, RIGHT, "fenced")
    assert [test.passed for test in wrong.tests] == [True, False]
    assert wrong.extra["status"] == "wrong_answer"
    assert "secret" not in wrong.json()
    everything = submit("submit", given.digest, fenced(RIGHT), extra={"run_all_cases": True})
    assert [test.passed for test in everything.tests] == [True, False, True]
    assert submit("submit", given.digest, "no program").extracted_type == "empty"
    late = submit("submit", given.digest, fenced("while True: pass"), run_timeout=0.5)
    assert late.tests[0].exec_info.run_result.status == "TimeLimitExceeded"
    crashed = submit("submit", given.digest, fenced("1 / 0"))
    assert crashed.tests[0].exec_info.run_result.return_code == 1


def test_a_request_may_contain_the_problem(url: str):
    row = {"id": 7, "content": "Double it.", "test": [{"input": {"stdin": "2\n"}, "output": {"stdout": "4\n"}}]}
    config = {"dataset_type": "CommonOJDataset", "provided_data": row, "language": "python"}
    assert submit("mine", 7, fenced("print(2 * int(input()))"), **config).accepted
    refused = submit("mine", 7, fenced("print(int(input()))"), **config)
    assert (refused.accepted, refused.id) == (False, 7)


@pytest.mark.parametrize(("count", "status"), [(50_000, 422), (50_001, 413)])
def test_cases_in_a_text_are_counted_however_they_are_written(compatible: LiveServer, count: int, status: int):
    row = {"content": "", "test": "[" + ",".join([r'{"inpu\u0074":{},"output":{}}'] * count) + "]"}
    config = {"dataset_type": "CommonOJDataset", "provided_data": row, "language": "python"}
    body = {"dataset": "mine", "id": 7, "completion": "", "config": config}
    assert compatible.client.post("/submit", json=body).status_code == status


@pytest.mark.parametrize("field", ["content", "id"])
def test_a_row_with_lone_surrogates_is_refused(compatible: LiveServer, field: str):
    case = {"input": {"stdin": "2\n"}, "output": {"stdout": "4\n"}}
    row = {"id": "7", "content": "Double it.", "test": [case]} | {field: "\ud800"}
    config = {"dataset_type": "CommonOJDataset", "provided_data": row, "language": "python"}
    body = json.dumps({"dataset": "mine", "id": 7, "completion": fenced(RIGHT), "config": config})
    headers = {"Content-Type": "application/json"}
    assert compatible.client.post("/submit", content=body, headers=headers).status_code == 422
    assert compatible.client.get("/v1/problems").status_code == 200


@pytest.mark.parametrize(
    "config",
    [
        {"custom_extract_logic": "1"},
        {"is_fewshot": True},
        {"locale": "zh"},
        {"extra": {"append_flag": True}},
        {"dataset_type": "AutoEvalDataset"},
        {"dataset_type": "CommonOJDataset"},
        {"provided_data": {"test": []}},
        {"dataset_type": "CommonOJDataset", "provided_data": {"test": [{"input": {"stdin": ""}, "output": {"f": ""}}]}},
        {"language": "cpp", "compile_timeout": 5},
        {"language": "go"},
    ],
)
def test_unsupported_settings_are_refused(compatible: LiveServer, config: dict[str, object]):
    given = problem(source="settings")
    upload(compatible.client, given)
    body = {"dataset": "settings", "id": given.digest, "completion": fenced(RIGHT), "config": config}
    reply = compatible.client.post("/submit", json=body)
    assert reply.status_code == 422, reply.text
    assert reply.json()["detail"][0]["msg"]
