"""Programs that are being judged when the database or the server fails get their verdicts, once and right."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from autoclave.core import Program
from autoclave.judge import JudgeJob

from .conftest import DEADLINE_S, RIGHT, Postgres, problem, until

AWAY_S = 6.0


@pytest.mark.slow
@pytest.mark.parametrize("programs", [60, pytest.param(2000, marks=pytest.mark.soak)])
def test_no_verdict_is_lost_while_the_database_and_the_server_fail(
    start_process, postgres: Postgres, postgres_url: str, remote_judge, programs: int
):
    server = start_process(f"store={postgres_url}", "node_lease_s=3.0")
    judge = remote_judge(server.url)
    sources = [f"{RIGHT if i % 3 else 'print(0)'}\nimport time; time.sleep(0.05)  # {i}" for i in range(programs)]
    futures = [judge.submit(JudgeJob(problem(), Program(source), str(i))) for i, source in enumerate(sources)]

    def share_is_done(share: float) -> bool:
        return sum(future.done() for future in futures) >= share * programs

    until(lambda: share_is_done(0.1))
    postgres.stop()
    time.sleep(AWAY_S)
    postgres.start()
    until(lambda: share_is_done(0.3))
    with postgres.stalled():
        time.sleep(AWAY_S)
    until(lambda: share_is_done(0.5))
    server.kill()
    server.start()
    assert not share_is_done(1.0)
    statuses = [future.result(DEADLINE_S).status for future in futures]
    assert [status and status.value for status in statuses] == [
        "accepted" if i % 3 else "wrong_answer" for i in range(programs)
    ], Counter(statuses)
