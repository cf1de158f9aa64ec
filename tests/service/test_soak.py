"""Clients and server are killed again and again, and no program is lost, judged wrong, or judged twice."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import httpx
import pytest

from . import soak_client
from .conftest import DEADLINE_S, ServerProcess, problem, upload

CLIENTS = 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("programs", "pause_s", "limit_s"),
    [(400, 0.8, DEADLINE_S), pytest.param(20_000, 4.0, 3600.0, marks=pytest.mark.soak)],
)
def test_nothing_is_lost_or_judged_twice_under_random_kills(
    start_process, tmp_path: Path, record_property, programs: int, pause_s: float, limit_s: float
):
    server: ServerProcess = start_process("judge.workers=2")
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        digest = upload(client, problem(("3 4\n", "7\n"), ("1 1\n", "2\n")))[0]
    share = programs // CLIENTS
    commands = [
        [
            sys.executable,
            soak_client.__file__,
            server.url,
            digest,
            str(first),
            str(first + share),
            tmp_path / f"{first}",
        ]
        for first in range(0, programs, share)
    ]
    draw = random.Random(programs)
    turns = itertools.cycle(("client", "server", "client"))
    clients = [subprocess.Popen(command) for command in commands]
    kills = {"server": 0, "client": 0}
    deadline = time.monotonic() + limit_s
    try:
        while at_work := [each for each in clients if each.poll() is None]:
            assert time.monotonic() < deadline, "it does not end"
            _wait(at_work[0], draw.uniform(0.5, 1.5) * pause_s)
            place = draw.randrange(CLIENTS)
            if (killed := next(turns)) == "server":
                server.kill()
                server.start()
            elif clients[place].poll() is None:
                clients[place].kill()
                clients[place].wait()
                clients[place] = subprocess.Popen(commands[place])
            kills[killed] += 1
    finally:
        for each in clients:
            each.kill()
            each.wait()
    assert [each.returncode for each in clients] == [0] * CLIENTS
    assert min(kills.values()) > 0, kills

    told: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    for command in commands:
        for row in map(json.loads, Path(command[-1]).read_text().splitlines()):
            told[row["number"]].add((row["job"], row["status"]))
    assert set(told) == set(range(programs))  # none lost
    assert [number for number, verdicts in told.items() if len(verdicts) != 1] == []  # none twice
    statuses = {number: status for number, verdicts in told.items() for _, status in verdicts}
    assert statuses == {number: soak_client.status_of(number) for number in range(programs)}
    record_property("kills", kills)


def _wait(process: subprocess.Popen[bytes], time_s: float) -> None:
    try:
        process.wait(time_s)
    except subprocess.TimeoutExpired:
        return
