"""Messages to a real chat are sent once and redacted; its limits are kept to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.session import Session
from autoclave.runtime.vault import Secret
from tests.runtime.rest.acting import METHODS, ask, asked, connection, done, opened
from tests.runtime.rest.faulty_proxy import Fault, FaultyProxy
from tests.runtime.rest.servers import synapse_running


@dataclass(frozen=True)
class Chat:
    """Another client of Synapse, which shares nothing with what is tested: an account, and a room of ours."""

    port: int
    token: str = ""
    room: str = ""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + 30
        while (found := self._asked(method, path, body)).get("errcode") == "M_LIMIT_EXCEEDED":
            assert time.monotonic() < deadline
            time.sleep(0.05)  # until its limit has passed
        return found

    def _asked(self, method: str, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        given = None if body is None else json.dumps(body)
        return json.loads(ask(self.port, method, f"/_matrix/client/v3{path}", given, **headers)[2])

    def new_room(self, name: str) -> Chat:
        """The same client in a room of its own."""
        return replace(self, room=self.ask("POST", "/createRoom", {"name": name})["room_id"])

    def messages(self) -> list[str]:
        """The texts of the room, the first first; empty for one that was redacted."""
        found = self.ask("GET", f"/rooms/{quote(self.room)}/messages?dir=b&limit=200")["chunk"]
        return [each["content"].get("body", "") for each in found[::-1] if each["type"] == "m.room.message"]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    with synapse_running(tmp_path_factory.mktemp("synapse")) as port:
        given = {"username": "us", "password": "long enough 1", "auth": {"type": "m.login.dummy"}}
        yield Chat(port, Chat(port).ask("POST", "/register", given)["access_token"])


@pytest.fixture
def chat(account: Chat) -> Chat:
    return account.new_room("lunch")


def opened_on(chat: Chat, port: int, folder: Path) -> Session:
    key = Secret(
        service="synapse", value=chat.token, hosts=(f"localhost:{port}",), methods=METHODS, allows_private=True
    )
    services = {"synapse": connection(port, catalogue="synapse", secret="synapse", most_wait_s=30.0)}
    return opened(folder, services, key)


@pytest.fixture
def session(chat: Chat, tmp_path: Path) -> Iterator[Session]:
    with opened_on(chat, chat.port, tmp_path) as session:
        yield session


def send(session: Session, chat: Chat, text: str) -> str:
    return done(session, "send_message", "synapse", room=chat.room, body={"msgtype": "m.text", "body": text})


def test_a_message_is_redacted_which_is_told_before(session: Session, chat: Chat):
    given = asked("send_message", "synapse", room=chat.room, body={"msgtype": "m.text", "body": "x"})
    plan = session.plan(given)
    assert plan.guarantee is Guarantee.COMPENSATING
    assert plan.changes[0].endswith("undo: redact_event, compensating (pinned)")
    first, second = send(session, chat, "lunch?"), send(session, chat, "at noon")
    assert session.actions.groups() == [[first, second]]
    session.undo(first)
    assert chat.messages() == ["", "at noon"]
    session.redo(first)  # another message: the one that was redacted stays empty
    assert chat.messages() == ["", "at noon", "lunch?"]
    session.undo(first)
    assert chat.messages() == ["", "at noon", ""]


@pytest.mark.parametrize("fault", ["cut_before", "cut_after", "half", "gateway_after", "twice"])
def test_faults_neither_lose_nor_double_a_message(chat: Chat, tmp_path: Path, fault: Fault):
    with FaultyProxy(chat.port) as proxy, opened_on(chat, proxy.port, tmp_path) as session:
        proxy.faults(fault)
        action = send(session, chat, "lunch?")
        assert chat.messages() == ["lunch?"]
        proxy.faults(fault)
        session.undo(action)
        assert chat.messages() == [""]


def test_a_limit_of_the_server_is_waited_for_and_each_message_sent_once(session: Session, chat: Chat):
    texts = [f"message {number}" for number in range(7)]  # four at once, and three in a second
    actions = [send(session, chat, text) for text in texts]
    assert chat.messages() == texts
    session.undo(actions[-1])
    assert chat.messages() == [*texts[:-1], ""]


def test_a_topic_is_set_back_and_one_of_somebody_else_is_not_overwritten(session: Session, chat: Chat):
    place = f"/rooms/{quote(chat.room)}/state/m.room.topic/"
    first = done(session, "set_topic", "synapse", room=chat.room, body={"topic": "lunch"})
    second = done(session, "set_topic", "synapse", room=chat.room, body={"topic": "dinner"})
    session.undo(second)
    assert chat.ask("GET", place) == {"topic": "lunch"}
    chat.ask("PUT", place, {"topic": "theirs"})
    with pytest.raises(InputError, match="somebody else has changed"):
        session.undo(first)
    chat.ask("PUT", place, {"topic": "lunch"})
    session.undo(first)
    assert chat.ask("GET", place) == {"topic": ""}
