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


def ran(*words: str, example: str = "tidy_folder.py") -> list[str]:
    command = [sys.executable, str(EXAMPLE / example), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_recorded_proposals_are_done_reviewed_and_taken_back():
    lines = ran()
    assert any("went too far" in line for line in lines)
    assert lines[-2:] == [
        "taken back is all that stood (3); the folder is as it was: True",
        "the journal is as it was written: True",
    ]


def test_a_model_at_an_endpoint_proposes_the_same(server: ChatServer):
    given = [json.loads(line) for line in (EXAMPLE / "proposals.jsonl").read_text().splitlines()]
    forbidden = {"do": "delete", "path": "taxes/2023.txt"}
    server.trouble = [calling((each.pop("do"), each)) for each in [*given, forbidden]]
    lines = ran("--endpoint", server.url, "--model", "m")
    assert "    refused: delete 'files/taxes/2023.txt' is not permitted" in lines
    assert "the model: All done." in lines
    assert lines[-2] == "taken back is all that stood (3); the folder is as it was: True"
    assert "moved 2" in json.dumps(server.bodies[-1])


def test_rows_that_were_changed_are_reviewed_and_taken_back(server: ChatServer):
    pytest.importorskip("apsw", reason="the extra `databases` is not installed")
    expected = [
        "taken back is all that stood (1); the rows are as they were: True",
        "the journal is as it was written: True",
    ]
    lines = ran(example="change_rows.py")
    assert any("went too far" in line for line in lines)
    assert "    refused: delete 'databases/shop/main/customer' is not permitted" in lines
    assert lines[-2:] == expected
    update = {"database": "shop", "statements": ["UPDATE item SET price = 1 WHERE kind = 'book'"]}
    server.trouble = [calling(("sql", update))]
    assert ran("--endpoint", server.url, "--model", "m", example="change_rows.py")[-2:] == expected
    told = json.dumps(server.bodies[0]["messages"])
    assert "price" in told
    assert "Ulysses" not in told
