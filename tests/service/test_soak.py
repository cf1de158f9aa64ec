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
@pytest.mark.timeout(4000)
@pytest.mark.parametrize(
    ("programs", "stride", "limit_s"),
    [(400, 30, 3 * DEADLINE_S), pytest.param(20_000, 100, 3600.0, marks=pytest.mark.soak)],
)
def test_nothing_is_lost_or_judged_twice_under_random_kills(
    start_process, tmp_path: Path, record_property, programs: int, stride: int, limit_s: float
):
    """Strikes come `stride` verdicts apart, on average: what is slow is not struck so often that it gets nowhere."""
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
            goal = _num_told(commands) + draw.randint(1, 2 * stride)
            while _num_told(commands) < goal and any(each.poll() is None for each in at_work):
                assert time.monotonic() < deadline, "it does not end"
                time.sleep(0.05)
            time.sleep(draw.uniform(0, 0.2))  # not always just after a verdict
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

    reported: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    for command in commands:
        for row in map(json.loads, Path(command[-1]).read_text().splitlines()):
            reported[row["number"]].add((row["job"], row["status"]))
    assert set(reported) == set(range(programs))  # none lost
    assert [number for number, verdicts in reported.items() if len(verdicts) != 1] == []  # none twice
    statuses = {number: status for number, verdicts in reported.items() for _, status in verdicts}
    assert statuses == {number: soak_client.status_of(number) for number in range(programs)}
    record_property("kills", kills)


def _num_told(commands: list[list[str | Path]]) -> int:
    """Programs that clients have a verdict of."""
    return sum(len(soak_client.known(Path(command[-1]))) for command in commands)
