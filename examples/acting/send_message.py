"""A model writes into a chat room; a person discards one message before it leaves, and takes the other back.

    python examples/acting/send_message.py                                  # at a Synapse of its own, see below
    python examples/acting/send_message.py --synapse PYTHON                 # which this Python has
    MATRIX_TOKEN=... python examples/acting/send_message.py --url https://matrix.example.org --room '!id:example.org'
    python examples/acting/send_message.py --endpoint URL --model NAME      # proposals of a model, at any OpenAI server

Without --url it starts a Matrix server on this machine (`pip install matrix-synapse`), and stops it. At a server of
yours the messages are sent for good: what is taken back stays as an empty message. Needs
the extra `runtime`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from local_servers import command_of, synapse_running
from proposing import have_proposed, in_a_line, options_of
from services import answer_of, key_for, session_with

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.journal import Standing
from autoclave.runtime.policy import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState

QUESTION = "Where do we eat today?"
TASK = "Read the last messages of room {room} at the service `chat`. Answer there, and say in another message who pays."


def recorded(room: str) -> list[dict[str, Any]]:
    """What a model proposed for this task once. The last goes elsewhere, and nothing permits it."""
    reading = {"room": room, "dir": "b", "limit": 10}
    proposed = [("list_messages", reading)]
    for to, text in ((room, "At noon, in the Lotus?"), (room, "The company pays for all!"), ("!boss:localhost", "Hi")):
        proposed.append(("send_message", {"room": to, "body": {"msgtype": "m.text", "body": text}}))
    return [{"do": "request", "service": "chat", "operation": name, "arguments": each} for name, each in proposed]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--synapse", metavar="PYTHON", default="", help="a Python that has Synapse, to start one")
    parser.add_argument("--url", help="of a Matrix server that runs; the token is taken from MATRIX_TOKEN")
    parser.add_argument("--room", help="there, such as !id:example.org; without it a private one is made, and stays")
    parser.add_argument("--queue-s", type=float, default=3.0, metavar="SECONDS", help="before a message leaves")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, a_room(options, Path(place)) as (token, room):
        key = key_for("chat", room.url, token, methods=["GET", "PUT"])
        queued = {"queue_up_to": Guarantee.COMPENSATING, "queue_s": options.queue_s}  # all that others will have read
        with session_with(Path(place), room.url, key, catalogue="synapse", **queued) as session:
            write_and_take_back(session, room, options)


def write_and_take_back(session: Session, room: Room, options: argparse.Namespace) -> None:
    """The story."""
    place = f"_matrix/client/v3/rooms/{quote(room.id, safe='')}"  # of this room, and of no other
    session.permissions.grant(Grant(resources=(f"services/chat/GET/{place}/messages",), verbs=("read",)))
    session.permissions.grant(Grant(resources=(f"services/chat/PUT/{place}/send/**",), verbs=("create",)))
    session.savepoint("before")
    room.show("before")
    have_proposed(session, options, TASK.format(room=room.id), recorded(room.id))
    room.show("while all is queued")
    queued = session.journal.standings((ActionState.APPROVED,))
    if len(queued) > 1:
        last = queued.pop()
        session.discard(last.action, "nobody has decided that")
        print(f"\na person discards {last.action}, which has not left yet: {text_of(last)!r}")
    for standing in when_due(session, len(queued)):
        grade = standing.proposed["guarantee"]
        print(f"\n{standing.action} is sent, since its {options.queue_s:g} s are over: {text_of(standing)!r}")
        print(f"its undo is {grade}: it will be emptied for all, but who has read it has read it")
    room.show("after that")
    session.undo_to("before")
    room.show("after all was taken back")
    print(f"\nthe journal is as it was written: {not session.audit()}")


def text_of(standing: Standing) -> str:
    """The text of a message."""
    return standing.proposed["operation"]["arguments"]["body"]["body"]


def when_due(session: Session, num_held: int) -> Iterator[Standing]:
    """Actions that were held, each done as soon as its time is over."""
    while num_held > 0:
        for standing in session.run_queued():
            num_held -= 1
            yield standing
        time.sleep(0.05)  # until the next is due


# --- The server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Room:
    """A room as somebody else sees it: with a client that shares nothing with what is shown here."""

    url: str
    id: str
    token: str = field(repr=False)
    """The reader's."""

    def show(self, when: str) -> None:
        """Print the messages, the first first."""
        found = asked(self.url, self.token, "GET", f"rooms/{quote(self.id)}/messages?dir=b&limit=10")["chunk"]
        print(f"\nin the room, {when}:")
        for each in reversed(found):
            if each["type"] == "m.room.message":
                print(f"    {each['sender']}: {each['content'].get('body', '(taken back)')}")


@contextlib.contextmanager
def a_room(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Room]]:
    """The token that the model's messages are sent with, and a room that others read with another."""
    if options.url:
        token = os.environ.pop("MATRIX_TOKEN", "")
        if not token:
            raise InputError(f"--url {options.url}: put the token of your account there into MATRIX_TOKEN")
        url = options.url.rstrip("/")
        yield token, Room(url, options.room or made_room(url, token), token)
        return
    if options.room:
        raise InputError(f"--room {options.room}: of which server? Give --url as well")
    command, place = command_of("synapse", options.synapse), folder / "synapse"
    print("a Synapse begins on this machine, with accounts of ada and of the model; it takes some seconds", flush=True)
    place.mkdir()
    with synapse_running(command, place) as port:
        url = f"http://localhost:{port}"
        ada, model = (registered(url, name) for name in ("ada", "model"))
        room = made_room(url, ada)
        asked(url, ada, "POST", f"rooms/{quote(room)}/invite", {"user_id": "@model:localhost"})
        asked(url, model, "POST", f"rooms/{quote(room)}/join", {})
        yield model, Room(url, room, ada)


def registered(url: str, name: str) -> str:
    """A new account; its token."""
    given = {"username": name, "password": f"of {name}, for minutes", "auth": {"type": "m.login.dummy"}}
    return asked(url, "", "POST", "register", given)["access_token"]


def made_room(url: str, token: str) -> str:
    """A private room with a question in it."""
    room = asked(url, token, "POST", "createRoom", {"name": "lunch", "preset": "private_chat"})["room_id"]
    given = {"msgtype": "m.text", "body": QUESTION}
    asked(url, token, "PUT", f"rooms/{quote(room)}/send/m.room.message/question", given)
    return room


def asked(url: str, token: str, method: str, path: str, body: Any = None) -> Any:
    """What the server says."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    given = None if body is None else json.dumps(body)
    return json.loads(answer_of(method, f"{url}/_matrix/client/v3/{path}", given, **headers))


if __name__ == "__main__":
    in_a_line(main)
