"""The same ways with a second provider, which others wrote, and which wants its one redirect to the letter."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator

import httpx
import pytest

from autoclave.runtime.oauth import Provider, TokenSource, Wish, discovered
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
