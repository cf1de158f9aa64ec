"""The same ways with a second provider, which others wrote, and which wants its one redirect to the letter."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator

import httpx
import pytest

from autoclave.core import InputError
from autoclave.runtime.oauth import Provider, TokenSource, Wish, discovered
from autoclave.runtime.oauth.attempt import Attempt, authorization_url, code_of
from autoclave.runtime.oauth.endpoints import Endpoints, Refused
from autoclave.runtime.vault import Vault
from tests.runtime.oauth.conftest import Somebody
from tests.runtime.oauth.servers import (
    HERE,
    REPOSITORY,
    Browser,
    Certificates,
    Server,
    ended,
    started,
    with_parameters,
)

PYTHON = REPOSITORY / ".oauth-server" / "canaille" / "bin" / "python"
SECRET = "a-secret-of-the-client"


@pytest.fixture(scope="module")
def redirect_port() -> int:
    """A port that is free now. Taken by nobody else but by chance, as it would be on a user's machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.fixture(scope="module")
def canaille(identity: Certificates, redirect_port: int) -> Iterator[Server]:
    if not PYTHON.exists():
        pytest.skip("canaille is not installed; make setup-services")
    command = [str(PYTHON), str(HERE / "canaille_server.py"), str(identity.certificate), str(identity.key)]
    process, port = started([*command, str(redirect_port)], identity)
    yield Server(f"https://localhost:{port}", identity.verify, identity.authority)
    ended(process)


@pytest.fixture
def server(canaille: Server) -> Server:
    return canaille


@pytest.fixture
def browser(server: Server) -> Iterator[Browser]:
    browser = Browser(server.verify, {"login": "somebody", "password": "correct horse"})
    yield browser
    browser.close()


@pytest.fixture
def provider(server: Server, redirect_port: int) -> Provider:
    return discovered(server.issuer, Provider(redirect_port=redirect_port), server.verify)


@pytest.fixture
def wish(server: Server, provider: Provider) -> Wish:
    return Wish("api", provider, "public", scopes=("openid", "profile"), about={"hosts": (server.place,)})


@pytest.fixture
def confidential(server: Server, redirect_port: int, wish: Wish) -> Wish:
    """The wish of a client that has a password."""
    given = Provider(redirect_port=redirect_port, client_authentication="basic")
    provider = discovered(server.issuer, given, server.verify)
    return dataclasses.replace(wish, provider=provider, client_id="confidential", client_secret=SECRET)


def status_of(server: Server, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{server.issuer}/oauth/userinfo", headers=headers, verify=server.verify).status_code


def test_a_person_agrees_and_the_token_is_renewed_and_given_up(
    server: Server, vault: Vault, somebody: Somebody, confidential: Wish
):
    granted = somebody.authorises(confidential)
    assert set(granted.scopes) == {"openid", "profile"}
    source = TokenSource(vault, server.verify)
    first = source.secret("api", "a test")
    assert status_of(server, first.value) == 200
    second = source.renew("api")
    assert second.value != first.value
    assert first.authorization
    assert second.authorization
    assert second.authorization.refresh_token not in ("", first.authorization.refresh_token)
    assert status_of(server, second.value) == 200
    assert source.give_up("api") is True
    assert status_of(server, second.value) == 401
    assert vault.names() == []


def test_a_client_without_a_password_is_told_that_this_provider_makes_nothing_void_for_it(
    server: Server, vault: Vault, somebody: Somebody, wish: Wish
):
    somebody.authorises(wish)
    source = TokenSource(vault, server.verify)
    assert status_of(server, source.renew("api").value) == 200
    assert wish.provider.revocation_url == ""  # by its published settings, only clients with a password may
    assert source.give_up("api") is False


def test_who_is_denied_gets_nothing(vault: Vault, somebody: Somebody, wish: Wish):
    asking = wish.provider.model_copy(update={"parameters": {"prompt": "consent"}})
    with pytest.raises(InputError, match=r"it was denied \(access_denied\)"):
        somebody.authorises(dataclasses.replace(wish, provider=asking), denies=True)
    assert vault.names() == []


def test_a_redirect_to_another_port_is_refused_by_the_provider(browser: Browser, wish: Wish):
    with pytest.raises(AssertionError):
        browser.sent_back(
            authorization_url(wish.provider, "public", wish.scopes, Attempt("http://127.0.0.1:9/callback"))
        )


def test_a_code_can_be_used_once_and_is_worth_nothing_without_the_verifier(
    server: Server, browser: Browser, wish: Wish, redirect_port: int
):
    """For a client of its own: the memory of this server takes codes that were not used up for later ones."""
    endpoints = Endpoints(wish.provider, "robbed", verify=server.verify)

    def fields() -> dict[str, str]:
        attempt = Attempt(f"http://127.0.0.1:{redirect_port}/callback")
        back = browser.sent_back(authorization_url(wish.provider, "robbed", wish.scopes, attempt))
        code = code_of(back.partition("?")[2], wish.provider, attempt)
        return {"code": code, "redirect_uri": attempt.redirect_uri, "code_verifier": attempt.verifier}

    given = fields()
    assert endpoints.tokens("authorization_code", **given)["access_token"]
    with pytest.raises(Refused, match="invalid_grant"):
        endpoints.tokens("authorization_code", **given)
    given = fields()
    for stolen in ({**given, "code_verifier": ""}, {**given, "code_verifier": "a" * 64}):
        with pytest.raises(Refused, match=r"invalid_(request|grant)"):
            endpoints.tokens("authorization_code", **stolen)


def test_a_question_that_is_stripped_of_pkce_on_the_way_gives_no_token(
    vault: Vault, somebody: Somebody, confidential: Wish
):
    with pytest.raises(InputError):
        somebody.authorises(
            confidential, change=lambda url: with_parameters(url, code_challenge=None, code_challenge_method=None)
        )
    assert vault.names() == []


def test_a_refresh_token_that_was_used_is_void(server: Server, vault: Vault, somebody: Somebody, wish: Wish):
    somebody.authorises(wish)
    before = vault.secret("api", "a test")
    source = TokenSource(vault, server.verify)
    source.renew("api")
    vault.put(before, "a test")
    with pytest.raises(InputError, match=r"its authorisation has ended \(invalid_grant\)"):
        source.renew("api")
