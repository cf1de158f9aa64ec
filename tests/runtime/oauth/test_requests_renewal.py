"""Requests of a session to a connected service use a token out of its vault, which is renewed when that is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.runtime.connections import Connections, VaultPlace, save_connections
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy import Grant
from autoclave.runtime.rest import ServiceConnection
from autoclave.runtime.session import Session
from autoclave.runtime.vault import Secret, Vault
from autoclave.runtime.vault.traces import found_in
from tests.runtime.oauth.conftest import Somebody
from tests.runtime.oauth.servers import Server


@pytest.fixture
def session(tmp_path: Path, server: Server, somebody: Somebody, wish, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "leases"))
    somebody.authorises(wish)
    (tmp_path / "tree").mkdir()
    (tmp_path / "state").mkdir(mode=0o700)
    service = ServiceConnection(base_url=f"https://{server.place}", secret="api", allows_private=True, queue_s=0.0)
    connections = Connections(
        vault=VaultPlace(path=str(tmp_path / "vault")),
        trust=str(server.certificates),
        services={"api": service},
    )
    save_connections(tmp_path / "state", connections)
    opening = open_session(tmp_path / "tree", tmp_path / "state")
    with opening as session:
        session.permissions.grant(Grant(resources=("services/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
        yield session


def asked(session: Session, server: Server, method: str, path: str) -> list[str]:
    """What the provider and the service were asked for a request."""
    before = server.control()
    proposal = session.propose({"do": "request", "service": "api", "method": method, "path": path})
    session.run(proposal.action, proposal.plan.digest, approved_by="a test")
    return server.control()[len(before) :]


def test_a_token_that_is_refused_is_renewed_and_the_request_done_once(session: Session, server: Server, vault: Vault):
    old: Secret = vault.secret("api", "a test")
    assert asked(session, server, "POST", "/api/a") == ["POST /api/a 200"]
    server.control(forget=old.value)
    assert asked(session, server, "POST", "/api/a") == ["POST /api/a 401", "refresh_token", "POST /api/a 200"]
    new = vault.secret("api", "a test").value
    assert new != old.value
    everything = json.dumps([record.body for record in session.journal.records()]).encode()
    assert found_in(everything, {"old": old.value, "new": new}) == []


def test_a_token_that_nothing_renews_is_a_refusal_that_says_so(session: Session, server: Server):
    with pytest.raises(InputError, match="401"):
        asked(session, server, "POST", "/api/never")


def test_what_may_have_been_done_is_not_sent_again_if_nobody_says_that_it_was_the_token(
    session: Session, server: Server, vault: Vault
):
    server.control(forget=vault.secret("api", "a test").value)
    before = server.control()
    with pytest.raises(InputError, match="401"):
        asked(session, server, "POST", "/api/unexplained")
    assert server.control()[len(before) :] == ["POST /api/unexplained 401"]
