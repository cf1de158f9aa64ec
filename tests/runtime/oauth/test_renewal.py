"""Tokens are renewed when they have to be, once, and what is got is durable before anybody uses it."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.connections import Connections, VaultPlace, save_connections
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.oauth import Authorization, TokenSource, Wish
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy import Grant
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.session import Session
from autoclave.runtime.vault import Secret, Vault
from autoclave.runtime.vault.traces import found_in
from tests.runtime.oauth.conftest import Somebody, status_at
from tests.runtime.oauth.servers import Server

LATER_S = 3590.0  # a token lives an hour


@pytest.fixture
def secret(somebody: Somebody, wish: Wish, vault: Vault) -> Secret:
    """What the vault has after somebody agreed."""
    somebody.authorises(wish)
    return vault.secret("api", "a test")


def authorization(vault: Vault) -> Authorization:
    found = vault.secret("api", "a test").authorization
    assert found
    return found


def source(vault: Vault, server: Server, ahead_s: float = 0.0) -> TokenSource:
    return TokenSource(vault, server.verify, lambda: time.time() + ahead_s)


def num_renewals(server: Server) -> int:
    return server.control().count("refresh_token")


# --- When ------------------------------------------------------------------------------------------------------------


def test_a_token_that_is_valid_is_given_as_it_is(server: Server, vault: Vault, secret: Secret):
    before = num_renewals(server)
    assert source(vault, server).secret("api").value == secret.value
    assert source(vault, server, LATER_S - 60).secret("api").value == secret.value
    assert num_renewals(server) == before


def test_a_token_that_is_about_to_expire_is_renewed_and_the_new_refresh_token_kept(
    server: Server, vault: Vault, secret: Secret, told: list[Any]
):
    old = authorization(vault).refresh_token
    told.clear()
    given = source(vault, server, LATER_S).secret("api", "to list things")
    assert given.value != secret.value
    assert status_at(server, "/api/things", given.value) == 200
    assert authorization(vault).refresh_token not in ("", old)
    assert authorization(vault).expires_at == pytest.approx(time.time() + LATER_S + 3600, abs=60)
    assert [(body["access"], body.get("purpose")) for _, _, body in told[:3]] == [
        ("read", "to list things"),
        ("read", "renewal"),
        ("renew", None),
    ]


def test_keys_that_were_typed_in_are_given_as_they_are(server: Server, vault: Vault):
    vault.add(Secret(service="typed", value="a-key-9f31c7", hosts=("api.example",)))
    assert source(vault, server).secret("typed").value == "a-key-9f31c7"
    with pytest.raises(InputError, match="service typed: its key was typed in, so only a person can renew it"):
        source(vault, server).refreshed("typed", "a-key-9f31c7")


def test_without_a_refresh_token_a_person_is_asked_when_the_token_is_over(server: Server, vault: Vault, secret: Secret):
    assert secret.authorization
    bare = secret.authorization.model_copy(update={"refresh_token": ""})
    vault.put(secret.model_copy(update={"authorization": bare}), "a test")
    assert source(vault, server, LATER_S).secret("api").value == secret.value
    with pytest.raises(InputError, match=r"gave nothing to renew it by. Fix: autoclave act vault authorize api"):
        source(vault, server, LATER_S + 20).secret("api")


# --- Several at once -------------------------------------------------------------------------------------------------

_PROCESS = """
import ssl, sys, hashlib
from pathlib import Path
from autoclave.runtime.oauth import TokenSource
from autoclave.runtime.vault import KeyFile, Vault
vault = Vault(Path(sys.argv[1]), KeyFile(Path(sys.argv[1] + ".key")))
source = TokenSource(vault, ssl.create_default_context(cafile=sys.argv[2]))
rejected = vault.secret("api", "").value
print("ready", flush=True)
sys.stdin.readline()
"""


def process(vault_path: Path, server: Server, source: str) -> subprocess.Popen[str]:
    """A process that is ready to go on with `source`."""
    started = subprocess.Popen(
        [sys.executable, "-c", _PROCESS + source, str(vault_path), str(server.certificates)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout
    assert started.stdout.readline() == "ready\n"
    return started


def test_processes_that_renew_at_once_ask_the_provider_once(
    server: Server, vault: Vault, secret: Secret, tmp_path: Path
):
    before = num_renewals(server)
    digest = 'print(hashlib.sha256(source.refreshed("api", rejected).value.encode()).hexdigest())'
    processes = [process(tmp_path / "vault", server, digest) for _ in range(3)]
    told = [each.communicate("go\n", timeout=30)[0].strip() for each in processes]
    new = vault.secret("api", "").value
    assert told == [hashlib.sha256(new.encode()).hexdigest()] * 3
    assert num_renewals(server) == before + 1
    assert status_at(server, "/api/things", source(vault, server).renew("api").value) == 200


# --- What goes wrong in between --------------------------------------------------------------------------------------

_KILLED = """
import os, signal
class Killed(Vault):
    def change(self, service, access, change, **about):
        os.kill(os.getpid(), signal.SIGKILL)
source._vault.__class__ = Killed
source.renew("api")
"""


def test_killed_before_the_answer_is_stored_a_person_authorises_again(
    server: Server, vault: Vault, secret: Secret, somebody: Somebody, wish: Wish, tmp_path: Path
):
    killed = process(tmp_path / "vault", server, _KILLED)
    killed.communicate("go\n", timeout=30)
    assert killed.returncode == -signal.SIGKILL
    assert vault.secret("api", "").value == secret.value
    rule = r"its authorisation has ended \(invalid_grant\)\. Fix: autoclave act vault authorize api"
    with pytest.raises(InputError, match=rule):
        source(vault, server, LATER_S).secret("api")
    before = num_renewals(server)
    with pytest.raises(InputError, match=rule):
        source(vault, server, LATER_S).secret("api")
    assert num_renewals(server) == before  # it is known by now, and the provider is left alone
    somebody.authorises(wish)
    assert authorization(vault).ended == ""
    assert status_at(server, "/api/things", source(vault, server).secret("api").value) == 200


@pytest.mark.parametrize("is_done", [True, False], ids=["the answer", "the request"])
def test_what_is_lost_on_the_way_is_told_and_renewed_if_the_provider_lets(
    server: Server, vault: Vault, secret: Secret, is_done: bool
):
    server.control(**{"lose_answers" if is_done else "lose_requests": 1})
    with pytest.raises(HostError, match=r"service api: localhost:[0-9]+: no answer that could be used"):
        source(vault, server).renew("api")
    if is_done:
        with pytest.raises(InputError, match="its authorisation has ended"):
            source(vault, server).renew("api")
    else:
        assert status_at(server, "/api/things", source(vault, server).renew("api").value) == 200


def test_while_the_provider_is_down_a_token_that_is_still_valid_is_used(server: Server, vault: Vault, secret: Secret):
    server.control(is_down=True)
    assert source(vault, server, LATER_S).secret("api").value == secret.value
    with pytest.raises(HostError, match=r"service api: .*status 503.*Fix: try again later"):
        source(vault, server, LATER_S + 20).secret("api")
    server.control(is_down=False)
    assert source(vault, server, LATER_S + 20).secret("api").value != secret.value


def test_a_client_that_the_provider_does_not_know_any_more_keeps_what_it_has(
    server: Server, vault: Vault, secret: Secret
):
    given = authorization(vault)
    other = given.model_copy(update={"client_id": "nobody"})
    vault.put(secret.model_copy(update={"authorization": other}), "a test")
    with pytest.raises(InputError, match=r"service api: localhost:[0-9]+: refused it \(invalid_client\)"):
        source(vault, server).renew("api")
    kept = authorization(vault)
    assert (kept.refresh_token, kept.ended) == (given.refresh_token, "")


# --- Giving up -------------------------------------------------------------------------------------------------------


def test_what_is_given_up_is_void_and_forgotten(server: Server, vault: Vault, secret: Secret, told: list[Any]):
    refresh_token = authorization(vault).refresh_token
    num_before = server.control().count("/token/revocation")
    told.clear()
    assert source(vault, server).give_up("api") is True
    assert server.control().count("/token/revocation") == num_before + 2  # either alone does it for some providers only
    assert vault.names() == []
    assert status_at(server, "/api/things", secret.value) == 401
    fields = {"client_id": "native", "grant_type": "refresh_token", "refresh_token": refresh_token}
    again = httpx.post(f"{server.issuer}/token", data=fields, verify=server.verify)
    assert again.json()["error"] == "invalid_grant"
    assert [body["access"] for _, _, body in told] == ["read", "revoke", "remove"]


def test_without_a_way_to_make_it_void_it_is_forgotten_and_that_is_said(server: Server, vault: Vault, secret: Secret):
    bare = authorization(vault)
    bare = bare.model_copy(update={"provider": bare.provider.model_copy(update={"revocation_url": ""})})
    vault.put(secret.model_copy(update={"authorization": bare}), "a test")
    vault.add(Secret(service="typed", value="a-key-9f31c7", hosts=("api.example",)))
    assert source(vault, server).give_up("api") is False
    assert source(vault, server).give_up("typed") is False
    assert vault.names() == []


def test_no_renewal_comes_between_the_end_and_what_was_renewed(
    server: Server, vault: Vault, secret: Secret, monkeypatch: pytest.MonkeyPatch
):
    """A renewal that waited while the service was given up does not bring a token back."""
    waiting = threading.Event()
    failures: list[Exception] = []

    def renew() -> None:
        waiting.set()
        try:
            source(vault, server).renew("api")
        except InputError as error:
            failures.append(error)

    with vault.alone():
        thread = threading.Thread(target=renew)
        thread.start()
        assert waiting.wait(10)
        vault.remove("api")
    thread.join(20)
    assert "has no secret" in str(failures[0])
    assert vault.names() == []


# --- Requests of a session to a connected service --------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path, server: Server, secret: Secret, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "leases"))
    (tmp_path / "tree").mkdir()
    (tmp_path / "state").mkdir(mode=0o700)
    service = ServiceConnection(base_url=f"https://{server.place}", secret="api", allows_private=True, queue_s=0.0)
    connections = Connections(
        vault=VaultPlace(path=str(tmp_path / "vault")),
        trust=str(server.certificates),
        services={"api": service},
    )
    save_connections(tmp_path / "state", connections)
    with open_session(tmp_path / "tree", tmp_path / "state") as session:
        session.permissions.grant(Grant(resources=("services/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
        yield session


def asked(session: Session, server: Server, method: str, path: str) -> list[str]:
    """What the provider and the service were asked for a request."""
    before = server.control()
    proposal = session.propose({"do": "request", "service": "api", "method": method, "path": path})
    session.run(proposal.action, proposal.plan.digest, approved_by="a test")
    return server.control()[len(before) :]


def test_a_token_that_is_refused_is_renewed_and_the_request_done_once(
    session: Session, server: Server, vault: Vault, secret: Secret
):
    assert asked(session, server, "POST", "/api/a") == ["POST /api/a 200"]
    server.control(forget=secret.value)
    assert asked(session, server, "POST", "/api/a") == ["POST /api/a 401", "refresh_token", "POST /api/a 200"]
    new = vault.secret("api", "a test").value
    assert new != secret.value
    everything = json.dumps([record.body for record in session.journal.records()]).encode()
    assert found_in(everything, {"old": secret.value, "new": new}) == []


def test_a_token_that_nothing_renews_is_a_refusal_that_says_so(session: Session, server: Server):
    with pytest.raises(InputError, match="401"):
        asked(session, server, "POST", "/api/never")


def test_what_may_have_been_done_is_not_sent_again_unless_it_is_said_that_it_was_the_token(
    session: Session, server: Server, secret: Secret
):
    server.control(forget=secret.value)
    before = server.control()
    with pytest.raises(InputError, match="401"):
        asked(session, server, "POST", "/api/unexplained")
    assert server.control()[len(before) :] == ["POST /api/unexplained 401"]
