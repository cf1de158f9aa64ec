"""A judge on servers: what every judge must do, and what wait_or_disconnect when servers fail."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from autoclave.compose.host import build_judge
from autoclave.config import JudgeConfig, RemoteJudgeConfig, SandboxConfig, ServeConfig
from autoclave.core import ConfigError, Fault, HostError, InputError, IsolationError, JudgeFault, Program, Verdict
from autoclave.core.problem import StoredTests
from autoclave.judge import JudgeJob
from autoclave.service import balancer, server_link
from autoclave.service.client import RemoteJudge
from autoclave.service.server_link import ServerLink, Unavailable
from autoclave.service.tokens import Scope
from tests.judge.judge_conformance import JudgeConformance, check_closing

from .conftest import DEADLINE_S, RIGHT, LiveServer, problem, unfinished, until


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_link, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(server_link, "LONGEST_WAIT_S", 0.2)


class TestRemoteJudge(JudgeConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def judge(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteJudge]:
        store = tmp_path_factory.mktemp("remote") / "store.sqlite"
        with contextlib.ExitStack() as opened:
            try:
                server = LiveServer(ServeConfig(port=0, store=str(store), judge=JudgeConfig(workers=2), drain_s=0.2))
            except IsolationError as error:
                pytest.skip(f"this host cannot make sealed cells: {error}")
            opened.callback(server.close)
            yield opened.enter_context(RemoteJudge(RemoteJudgeConfig(urls=(server.url,))))


def jobs(count: int, label: str = "", **fields: object) -> list[JudgeJob]:
    return [JudgeJob(problem(**fields), Program(f"{RIGHT}  # {label}{i}"), str(i)) for i in range(count)]


def all_accepted(futures: list) -> bool:
    return all(future.result(DEADLINE_S).is_accepted for future in futures)


def test_the_window_fills_all_slots_of_the_store_less_programs_of_other_clients():
    about = {"waiting": 40, "running": 4, "slots": 2, "all_slots": 8, "per_s": 1.0, "is_draining": False}
    about |= {"version": "1", "level": "sealed", "batch_limit": 9, "memory_limit_mb": 9}
    about |= {"least_time_limit_s": 1.0, "greatest_time_limit_s": 9.0}

    async def windows() -> list[int]:
        link = ServerLink("http://server", RemoteJudgeConfig(urls=("http://server",)), "", context=True)
        await link._http.aclose()  # pyright: ignore[reportPrivateUsage]
        answer = httpx.MockTransport(lambda _: httpx.Response(200, json=about))
        link._http = httpx.AsyncClient(transport=answer, base_url="http://server")  # pyright: ignore[reportPrivateUsage]
        found = [link.window]
        link.num_in_flight = 14
        await link.refresh()
        found.append(link.window)
        link.num_in_flight = 0  # ours have ended since; that is no reason to give it less
        found.append(link.window)
        for _ in range(3):
            link.note_fault(0.0)
        found.append(link.window)
        await link.close()
        return found

    assert asyncio.run(windows()) == [32, 8 * 16 - 30, 8 * 16 - 30, 1]


LONG = JudgeConfig(workers=2, time_limit_range=(0.5, 300.0), default_time_limit_s=300.0)
SLOW = JudgeJob(problem(), Program("import time; time.sleep(600)"))
"""For longer than any test."""


def test_a_slow_program_does_not_delay_others(start_server, remote_judge):
    server = start_server(judge=LONG)
    judge = remote_judge(server.url)
    many = jobs(100)
    first, slow, later = [judge.submit(one) for one in many[:10]], judge.submit(SLOW), map(judge.submit, many[10:])
    assert all_accepted([*first, *later])
    until(lambda: server.parts.dispatcher.num_running == 1)
    assert slow.cancel()


def test_a_verdict_is_streamed_while_another_program_runs(start_server, remote_judge):
    server = start_server(judge=LONG)
    judge = remote_judge(server.url)
    slow = judge.submit(SLOW)
    until(lambda: server.parts.dispatcher.num_running == 1)
    assert judge.submit(jobs(1)[0]).result(DEADLINE_S).is_accepted
    until(lambda: server.parts.dispatcher.num_running == 1)
    assert slow.cancel()


def test_a_server_whose_cells_failed_for_a_while_is_used_again(start_server, remote_judge):
    server = start_server()
    server.break_cells(failures=12)
    judge = remote_judge(server.url, retries=8)
    assert all_accepted([judge.submit(one) for one in jobs(20)])


def test_closing_cancels_here_and_at_the_server(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(balancer, "KEPT_S", 1.0)  # of a batch whose answer was still to come
    check_closing(RemoteJudge(RemoteJudgeConfig(urls=(server.url,))))
    until(lambda: not unfinished(server.parts.store))  # what was being judged ends with its test


def test_closing_cancels_what_the_server_is_about_to_accept(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    store, begun, accepted = server.parts.store, threading.Event(), threading.Event()
    accept = store.add_batch

    def slowly(*given: Any) -> Any:
        begun.set()
        time.sleep(0.3)
        batch = accept(*given)
        accepted.set()
        return batch

    monkeypatch.setattr(store, "add_batch", slowly)
    judge = RemoteJudge(RemoteJudgeConfig(urls=(server.url,)))
    future = judge.submit(JudgeJob(problem(time_limit_s=5.0), Program("while True: pass  # sent")))
    assert begun.wait(DEADLINE_S)
    judge.close()
    assert accepted.wait(DEADLINE_S)
    assert not unfinished(store)
    assert future.cancelled()


def test_a_problem_is_uploaded_once_and_without_its_solutions(server: LiveServer, remote_judge):
    judge = remote_judge(server.url)
    given = problem(("1 1\n", "2\n"), solutions=["secret"])
    assert all_accepted([judge.submit(JudgeJob(given, Program(f"{RIGHT}  # {i}"))) for i in range(5)])
    judge.check(replace(given, id="another"))
    uploads = [line for line in server.parts.store.list_problems("", 100) if line.digest == given.digest]
    assert len(uploads) == 1
    assert server.parts.store.problem(given.digest).solutions == []


def test_a_cancelled_future_cancels_the_job_at_the_server(server: LiveServer, remote_judge):
    judge = remote_judge(server.url)
    slow = [judge.submit(JudgeJob(problem(time_limit_s=0.5), Program(f"while 1: pass  # {i}"))) for i in range(30)]
    until(lambda: len(unfinished(server.parts.store)) > 20)
    for future in slow[10:]:
        assert future.cancel()
    until(lambda: not unfinished(server.parts.store))


def test_a_problem_that_the_server_lost_is_uploaded_again(server: LiveServer, remote_judge):
    judge = remote_judge(server.url)
    given = problem(("1 2\n", "3\n"))
    assert judge.submit(JudgeJob(given, Program(RIGHT))).result(DEADLINE_S).is_accepted
    assert server.client.delete(f"/v1/problems/{given.digest}").status_code == 204
    assert judge.submit(JudgeJob(given, Program(f"{RIGHT}  # again"))).result(DEADLINE_S).is_accepted


def test_tests_that_are_stored_at_the_server_are_addressed_by_digest(server: LiveServer, remote_judge):
    judge = remote_judge(server.url)
    given = problem(("5 2\n", "7\n"))
    judge.check(given)
    stored = replace(given, tests=StoredTests("stored", given.digest))
    assert judge.submit(JudgeJob(stored, Program(RIGHT))).result(DEADLINE_S).is_accepted
    with pytest.raises(InputError, match="not stored"):
        judge.check(replace(given, tests=StoredTests("stored", "0" * 64)))


def test_the_programs_of_a_dead_server_are_judged_by_another_one(start_server, start_process, remote_judge):
    first, second = start_process(), start_server()
    judge = remote_judge(first.url, second.url, retries=4)
    futures = [judge.submit(job) for job in jobs(40, "both")]
    until(lambda: any(future.done() for future in futures))
    first.kill()
    assert all_accepted(futures)
    assert all_accepted([judge.submit(job) for job in jobs(3, "later")])


def test_a_server_that_comes_back_is_used_again(start_process, remote_judge, caplog: pytest.LogCaptureFixture):
    server = start_process()
    judge = remote_judge(server.url, retries=0)
    assert all_accepted([judge.submit(jobs(1)[0])])
    before = [judge.submit(job) for job in jobs(40, "accepted before")]
    until(lambda: any(future.done() for future in before))
    server.kill()
    away = [judge.submit(job) for job in jobs(5, "while it is away")]
    new = judge.submit(JudgeJob(problem(("9 9\n", "18\n")), Program(RIGHT)))
    time.sleep(3.0)  # failed tries cost no retries
    assert not any(future.done() for future in (*away, new))
    server.start()
    assert all_accepted([*before, *away, new])
    said = [one.getMessage() for one in caplog.records if one.name == "autoclave.service.balancer"]
    assert [line.split(":")[0] for line in said[:1]] == ["waiting up to 900 s for a judge server"]
    assert len(said) == 2
    assert "works again after" in said[1]


def test_without_a_server_the_fault_names_it_and_there_is_no_reward(start_process, remote_judge):
    server = start_process()
    judge = remote_judge(server.url, patience_s=2.0)
    assert all_accepted([judge.submit(jobs(1)[0])])
    server.kill()
    for verdict in [future.result(DEADLINE_S) for future in [judge.submit(job) for job in jobs(3, "never")]]:
        assert (verdict.status, verdict.reward, verdict.problem_id) == (None, None, "add")
        assert verdict.fault.kind == "server"
        assert server.url in verdict.fault.detail
    new = judge.submit(JudgeJob(problem(("9 9\n", "18\n")), Program(RIGHT))).result(DEADLINE_S)
    assert server.url in new.fault.detail


def test_a_server_with_only_faults_is_named(start_server, remote_judge):
    server = start_server()
    server.break_cells()
    judge = remote_judge(server.url, retries=2)
    verdict = judge.submit(jobs(1, "fault")[0]).result(DEADLINE_S)
    assert (verdict.status, verdict.reward) == (None, None)
    assert verdict.fault.kind == "sandbox"
    assert server.url in verdict.fault.detail


def test_a_server_with_only_faults_does_not_block_other_servers(start_server, remote_judge):
    broken, sound = start_server(), start_server()
    broken.break_cells()
    judge = remote_judge(broken.url, sound.url, retries=20)
    assert all_accepted([judge.submit(job) for job in jobs(30, "broken")])


def test_a_call_among_servers_that_hang_ends(start_server, remote_judge, monkeypatch: pytest.MonkeyPatch):
    async def hang(link: ServerLink, needs: object) -> None:
        await asyncio.sleep(0.3)  # longer than a pause, so that the other one is available again
        raise Unavailable("no response in time")

    judge = remote_judge(*(start_server().url for _ in range(2)), patience_s=0.5)
    monkeypatch.setattr(ServerLink, "ensure", hang)
    checking = judge._thread.start(judge._call_any(lambda link: link.ensure([]), 0.5))
    with pytest.raises(JudgeFault, match="no response in time"):
        checking.result(15)


def test_the_client_waits_for_a_full_server(start_server, remote_judge):
    from autoclave.config import AdmissionConfig

    server = start_server(admission=AdmissionConfig(queue_limit=8, client_queue_limit=8))
    judge = remote_judge(server.url, retries=0, programs_per_request=4)
    assert all_accepted([judge.submit(job) for job in jobs(30, "full")])


def test_a_deadline_is_kept_here_and_at_the_server(server: LiveServer, remote_judge):
    judge = remote_judge(server.url, deadline_s=0.6)
    futures = [
        judge.submit(JudgeJob(problem(time_limit_s=0.5), Program(f"while True: pass  # d{i}"))) for i in range(16)
    ]
    verdicts = [future.result(DEADLINE_S) for future in futures]
    late = [verdict for verdict in verdicts if verdict.fault]
    assert len(late) > 8
    assert {verdict.fault.kind for verdict in late} == {"deadline"}
    assert all(server.url in verdict.fault.detail for verdict in late)
    until(lambda: not unfinished(server.parts.store))


def test_requests_carry_the_token_and_a_wrong_one_is_a_config_error(
    start_server, remote_judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from autoclave.compose.service import open_store
    from autoclave.service.tokens import create_token

    text, record = create_token("", frozenset({Scope.JUDGE, Scope.PROBLEMS_WRITE}), 0.0, None)
    with contextlib.closing(open_store(tmp_path / "t.sqlite")) as store:
        store.add_token(record)
    server = start_server(require_token=True, store=str(tmp_path / "t.sqlite"))
    (tmp_path / "token").write_text(f"{text}\n")
    assert all_accepted([remote_judge(server.url, token_file=str(tmp_path / "token")).submit(jobs(1)[0])])
    monkeypatch.setenv("JUDGE_TOKEN", text[:-1] + ("A" if text[-1] != "A" else "B"))
    for settings in ({"token_variable": "JUDGE_TOKEN"}, {"token_variable": "NOT_SET"}, {}):
        with pytest.raises(ConfigError, match="token"):
            remote_judge(server.url, **settings)


def test_a_missing_server_is_named_with_the_fix(unused_port: int):
    with pytest.raises(HostError, match=rf"127\.0\.0\.1:{unused_port}.*autoclave serve"):
        RemoteJudge(RemoteJudgeConfig(urls=(f"http://127.0.0.1:{unused_port}",), patience_s=0.5))


def test_a_server_below_the_minimum_level_is_refused(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server.parts.judge._process, "level", "open")
    with pytest.raises(IsolationError, match="minimum_level"):
        RemoteJudge(RemoteJudgeConfig(urls=(server.url,)))


def test_settings_choose_the_servers(server: LiveServer):
    judge_config = JudgeConfig(backend="remote", remote=RemoteJudgeConfig(urls=(server.url,)))
    with build_judge(judge_config, SandboxConfig()) as judge:
        assert isinstance(judge, RemoteJudge)
        assert all_accepted([judge.submit(job) for job in jobs(4, "settings")])


def test_a_fault_names_the_server_once(server: LiveServer):
    from autoclave.service.balancer import _named

    class Link:
        url = "http://host:1"

    verdict = Verdict.none(Fault("problem", "it is not stored any more"))
    assert _named(verdict, Link()).fault.detail == "http://host:1: it is not stored any more"


def test_a_request_to_a_proxy_without_its_server_is_retried(
    server: LiveServer, remote_judge, monkeypatch: pytest.MonkeyPatch
):
    judge = remote_judge(server.url, retries=20)
    is_away = [True] * 3
    send = httpx.AsyncClient.request

    async def request(client: httpx.AsyncClient, method: str, *words: Any, **content: Any) -> httpx.Response:
        if is_away:
            is_away.pop()
            return httpx.Response(404, text="no such application")
        return await send(client, method, *words, **content)

    monkeypatch.setattr(httpx.AsyncClient, "request", request)
    assert all_accepted([judge.submit(job) for job in jobs(3, "away", time_limit_s=3.0)])
    assert not is_away
