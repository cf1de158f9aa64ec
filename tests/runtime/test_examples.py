"""The examples do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evaluation.chat_server import ChatServer
from tests.runtime.rest.servers import PYTHON, installed
from tests.runtime.test_proposals import calling

EXAMPLE = Path(__file__).parents[2] / "examples/acting"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: "All done.")
    yield server
    server.close()


def ended(example: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / example), *words]
    told = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=told, timeout=120, check=False)


def ran(*words: str, example: str = "tidy_folder.py", **environment: str) -> list[str]:
    result = ended(example, *words, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


def told_after(lines: list[str], heading: str) -> list[str]:
    """The indented lines below a heading."""
    below = lines[lines.index(heading) + 1 :]
    return [line.strip() for line in below[: next(n for n, line in enumerate(below) if line[:4].strip() or not line)]]


def test_recorded_proposals_are_done_reviewed_and_taken_back():
    lines = ran()
    assert any("went too far" in line for line in lines)
    assert lines[-3:] == [
        "taken back: all that stood (3 actions)",
        "the folder is as it was: True",
        "the journal is as it was written: True",
    ]


def test_a_model_at_an_endpoint_proposes_the_same(server: ChatServer):
    given = [json.loads(line) for line in (EXAMPLE / "proposals.jsonl").read_text().splitlines()]
    forbidden = {"do": "delete", "path": "taxes/2023.txt"}
    server.trouble = [calling((each.pop("do"), each)) for each in [*given, forbidden]]
    lines = ran("--endpoint", server.url, "--model", "m")
    assert "    refused: delete 'files/taxes/2023.txt' is not permitted" in lines
    assert "the model: All done." in lines
    assert lines[-3:-1] == ["taken back: all that stood (3 actions)", "the folder is as it was: True"]
    assert "moved 2" in json.dumps(server.bodies[-1])


def test_rows_that_were_changed_are_reviewed_and_taken_back(server: ChatServer):
    pytest.importorskip("apsw", reason="the extra `databases` is not installed")
    expected = [
        "taken back: all that stood (1 actions)",
        "the rows are as they were: True",
        "the journal is as it was written: True",
    ]
    lines = ran(example="change_rows.py")
    assert any("went too far" in line for line in lines)
    assert "    refused: delete 'databases/shop/main/customer' is not permitted" in lines
    assert lines[-3:] == expected
    update = {"database": "shop", "statements": ["UPDATE item SET price = 1 WHERE kind = 'book'"]}
    server.trouble = [calling(("sql", update))]
    assert ran("--endpoint", server.url, "--model", "m", example="change_rows.py")[-3:] == expected
    told = json.dumps(server.bodies[0]["messages"])
    assert "price" in told
    assert "Ulysses" not in told


# --- A chat ----------------------------------------------------------------------------------------------------------


def test_a_message_is_discarded_before_it_leaves_and_another_taken_back_after_it():
    installed("synapse_homeserver")
    lines = ran("--synapse", str(PYTHON), "--queue-s", "0.5", example="send_message.py")
    question, answer = "@ada:localhost: Where do we eat today?", "@model:localhost: At noon, in the Lotus?"
    assert told_after(lines, "in the room, before:") == [question]
    assert told_after(lines, "in the room, while all is queued:") == [question]
    assert told_after(lines, "in the room, after that:") == [question, answer]
    assert told_after(lines, "in the room, after all was taken back:") == [question, "@model:localhost: (taken back)"]
    assert any(re.fullmatch("a person discards .* not left yet: 'The company pays for all!'", line) for line in lines)
    assert any(re.match("    refused: create 'services/chat/PUT/.*boss.*' is not permitted", line) for line in lines)
    grade = next(n for n, line in enumerate(lines) if line.strip() == "undo: redact_event, compensating (pinned)")
    assert grade < lines.index("in the room, while all is queued:")  # told before anything is sent
    assert lines[-1] == "the journal is as it was written: True"


# --- A calendar ------------------------------------------------------------------------------------------------------


DAY = ["09:00 to 09:15  Stand-up", "11:30 to 12:30  Review"]
GUESTS = "ada@example.com, bob@example.com"


def test_an_invitation_is_moved_which_is_taken_back_and_then_all():
    installed("radicale")
    lines = ran("--radicale", str(PYTHON), example="invite_to_lunch.py")
    assert told_after(lines, "in the calendar, before:") == DAY
    assert told_after(lines, "in the calendar, after that:") == [*DAY, f"13:00 to 14:00  Lunch, {GUESTS}"]
    assert told_after(lines, "in the calendar, without the move:") == [*DAY, f"12:30 to 13:30  Lunch, {GUESTS}"]
    assert told_after(lines, "in the calendar, after all was taken back:") == DAY
    assert "    refused: delete 'services/calendar/DELETE/model/autoclave-example/review.ics' is not permitted" in lines
    assert lines[-2:] == ["the calendar is as it was: True", "the journal is as it was written: True"]
