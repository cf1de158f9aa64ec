"""Code in a cell uses a token that is renewed in the middle, and has the same dummy all the time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import IsolationError
from autoclave.runtime.connections import VaultPlace
from autoclave.runtime.oauth import Wish
from autoclave.runtime.opening import open_session
from autoclave.runtime.session import Session
from autoclave.runtime.vault import KeyFile, Secret, Vault
from autoclave.runtime.vault.injection import may_send_again
from autoclave.runtime.vault.traces import found_in
from autoclave.workspaces import SealedCommand, run_command
from tests.runtime.oauth.conftest import Somebody
from tests.runtime.oauth.servers import Server
from tests.runtime.trees import connect_vault, granted

_CALL = """
import json, os, urllib.request, urllib.error
token = os.environ["API_TOKEN"]
def call(path, method="GET", body=None, sends=True):
    headers = {"Authorization": "Bearer " + token} if sends else {}
    request = urllib.request.Request("https://PLACE" + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
"""


@pytest.fixture(scope="module", autouse=True)
def _host(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("trial")
    for name in ("tree", "upper", "work"):
        (place / name).mkdir()
    try:
        run_command(SealedCommand(("true",), place / "tree", place))
    except IsolationError as error:
        pytest.skip(f"this host cannot seal commands: {error}")


def opened_vault(place: VaultPlace, record: Any) -> Vault:
    return Vault(Path(place.path), KeyFile.beside(Path(place.path)), record)


@pytest.fixture
def secret(somebody: Somebody, wish: Wish, vault: Vault) -> Secret:
    somebody.authorises(wish)
    return vault.secret("api", "a test")


@pytest.fixture
def session(tmp_path: Path, server: Server, secret: Secret) -> Iterator[Session]:
    (tmp_path / "tree").mkdir()

    connect_vault(tmp_path, server.certificates)
    with granted(open_session(tmp_path / "tree", tmp_path / "state", open_vault=opened_vault)) as session:
        yield session


def told(session: Session, server: Server, source: str) -> Any:
    """What the code printed, as JSON."""
    given = _CALL.replace("PLACE", server.place) + f"print(json.dumps({source}))"
    proposal = session.propose({"do": "python", "source": given, "secrets": ["api"]})
    return json.loads(str(proposal.plan.output["stdout"]))


def recorded(session: Session) -> list[dict[str, Any]]:
    return [dict(record.body) for record in session.journal.records() if record.kind == "secret"]


def asked_since(server: Server, before: list[str]) -> list[str]:
    return server.control()[len(before) :]


def test_a_token_that_is_refused_in_the_middle_is_renewed_and_the_request_sent_again(
    session: Session, server: Server, vault: Vault, secret: Secret
):
    first = told(session, server, "[call('/api/a'), token]")
    before = server.control(forget=secret.value)
    (status, answer), dummy = told(session, server, "[call('/api/a'), token]")
    assert status == 200
    assert asked_since(server, before) == ["GET /api/a 401", "refresh_token", "GET /api/a 200"]
    assert first == [[200, {"token": dummy, "body": ""}], dummy]
    assert answer["token"] == dummy  # the new one, as the service echoed it, is the same dummy to the code
    new = vault.secret("api", "a test").value
    assert new != secret.value
    assert told(session, server, "token") == dummy  # of the next command as well
    assert [each["access"] for each in recorded(session)][-2:] == ["renew", "read"]
    everything = json.dumps([record.body for record in session.journal.records()]).encode()
    assert found_in(everything, {"old": secret.value, "new": new}) == []


@pytest.mark.parametrize(
    ("path", "method", "asked", "statuses"),
    [
        ("/api/a", "POST", ["POST /api/a 401", "refresh_token", "POST /api/a 200", "POST /api/a 200"], [200, 200]),
        (
            "/api/unexplained",
            "POST",
            ["POST /api/unexplained 401", "refresh_token", "POST /api/unexplained 200"],
            [401, 200],
        ),
    ],
)
def test_a_request_is_sent_again_only_if_that_is_safe(
    session: Session, server: Server, secret: Secret, path: str, method: str, asked: list[str], statuses: list[int]
):
    before = server.control(forget=secret.value)
    answers = told(session, server, f"[call({path!r}, {method!r}, b'content') for _ in range(2)]")
    assert [status for status, _ in answers] == statuses
    assert asked_since(server, before) == asked
    assert answers[1][1]["body"] == "content"


def test_a_service_that_always_refuses_does_not_have_the_token_renewed_each_time(
    session: Session, server: Server, secret: Secret
):
    before = server.control()
    answers = told(session, server, "[call('/api/never') for _ in range(4)]")
    assert [status for status, _ in answers] == [401] * 4
    assert asked_since(server, before).count("refresh_token") == 1


def test_a_request_without_the_token_does_not_have_it_renewed(session: Session, server: Server, secret: Secret):
    before = server.control()
    assert told(session, server, "call('/api/a', sends=False)")[0] == 401
    assert asked_since(server, before) == ["GET /api/a 401"]


def test_when_it_cannot_be_renewed_the_code_gets_the_refusal_and_the_journal_says_why(
    session: Session, server: Server, vault: Vault, secret: Secret
):
    assert secret.authorization
    void = secret.authorization.model_copy(update={"refresh_token": "void"})
    vault.put(secret.model_copy(update={"authorization": void}), "a test")
    server.control(forget=secret.value)
    assert told(session, server, "call('/api/a')")[0] == 401
    denied = [record.body for record in session.journal.records() if record.kind == "denied"]
    assert "Fix: autoclave act vault authorize api" in str(denied[-1]["reason"])


@pytest.mark.parametrize(
    ("method", "challenge", "is_safe"),
    [
        ("GET", "", True),
        ("DELETE", 'Basic realm="x"', True),
        ("POST", "", False),
        ("PATCH", 'Bearer error="insufficient_scope"', False),
        ("PATCH", 'Bearer realm="api", error="invalid_token"', True),
        ("POST", "bearer error=invalid_token", True),
        ("POST", 'Basic realm="error=invalid_token"', False),
        ("POST", 'Bearer realm="no-error=invalid_tokens"', False),
    ],
)
def test_what_is_done_twice_is_as_good_as_once_or_was_not_done(method: str, challenge: str, is_safe: bool):
    assert may_send_again(method, challenge) is is_safe
