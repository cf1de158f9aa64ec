"""The examples do what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evaluation.chat_server import ChatServer
from tests.runtime.test_proposals import calling

EXAMPLE = Path(__file__).parents[2] / "examples/acting"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: "All done.")
    yield server
    server.close()


def ran(*words: str) -> list[str]:
    command = [sys.executable, str(EXAMPLE / "tidy_folder.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_recorded_proposals_are_done_reviewed_and_taken_back():
    lines = ran()
    assert any("went too far" in line for line in lines)
    assert lines[-2:] == [
        "all 3 that stood are taken back; the folder is as it was: True",
        "the journal is as it was written: True",
    ]


def test_a_model_at_an_endpoint_proposes_the_same(server: ChatServer):
    given = [json.loads(line) for line in (EXAMPLE / "proposals.jsonl").read_text().splitlines()]
    forbidden = {"do": "delete", "path": "taxes/2023.txt"}
    server.trouble = [calling((each.pop("do"), each)) for each in [*given, forbidden]]
    lines = ran("--endpoint", server.url, "--model", "m")
    assert "refused: delete 'files/taxes/2023.txt' is not permitted" in lines
    assert "model: All done." in lines
    assert lines[-2] == "all 3 that stood are taken back; the folder is as it was: True"
    assert "moved 2" in json.dumps(server.bodies[-1])
