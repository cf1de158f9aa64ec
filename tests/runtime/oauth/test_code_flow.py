"""Authorisation by a browser: the token gets into the vault, and nothing else can be made to take its place."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.oauth import Provider, TokenSource, Wish
from autoclave.runtime.oauth.authorizing import code_of
from autoclave.runtime.oauth.loopback import Loopback
from autoclave.runtime.vault import Secret, Vault
from tests.runtime.oauth.conftest import Somebody, status_at
from tests.runtime.oauth.servers import Browser, Server, parameters, with_parameters

SECRET = "a:b+c%20d/e&f"  # each sign of it is another one when it is encoded wrongly


def test_a_person_agrees_in_the_browser_and_the_vault_has_a_token(
    server: Server, vault: Vault, somebody: Somebody, wish: Wish, told: list[Any]
):
    granted = somebody.authorises(wish)
    assert granted == ("openid", "read")
    secret = vault.secret("api", "a test")
    assert secret.hosts == (server.place,)
    assert secret.authorization
    assert secret.authorization.refresh_token
    assert secret.authorization.refresh_token not in str(vault.about("api"))
    assert secret.authorization.expires_at == pytest.approx(time.time() + 3600, abs=60)
    assert status_at(server, "/api/things", secret.value) == 200
    assert [(kind, name, body["access"]) for kind, name, body in told] == [
        ("secret", "api", "authorise"),
        ("secret", "api", "read"),
    ]
    assert told[0][2]["scopes"] == ["openid", "read"]


def test_the_address_binds_the_answer_by_state_and_by_the_digest_of_a_verifier(
    server: Server, somebody: Somebody, wish: Wish
):
    seen: list[str] = []
    somebody.authorises(wish, change=lambda url: seen.append(url) or url)
    given = parameters(seen[0])
    assert given["code_challenge_method"] == "S256"
    assert len(given["code_challenge"]) == 43  # 32 bytes in base64 without padding
    assert len(given["state"]) >= 43
    assert given["redirect_uri"].startswith("http://127.0.0.1:")
    assert given["response_type"] == "code"
    somebody.authorises(dataclasses.replace(wish, service="other"), change=lambda url: seen.append(url) or url)
    for name in ("state", "code_challenge"):
        assert parameters(seen[1])[name] != given[name]


@pytest.mark.parametrize(("client", "way"), [("with secret", "basic"), ("posting", "post")])
def test_a_client_with_a_password_says_it_as_the_provider_wants_it(
    server: Server, vault: Vault, somebody: Somebody, wish: Wish, client: str, way: str
):
    provider = wish.provider.model_copy(update={"client_authentication": way})
    somebody.authorises(dataclasses.replace(wish, provider=provider, client_id=client, client_secret=SECRET))
    assert status_at(server, "/api/things", vault.secret("api", "").value) == 200
    TokenSource(vault, server.verify).renew("api")
    assert SECRET not in str(vault.about("api"))


def test_who_is_denied_gets_nothing(vault: Vault, somebody: Somebody, wish: Wish):
    with pytest.raises(InputError, match=r"service api: it was denied \(access_denied\); nothing was granted"):
        somebody.authorises(wish, denies=True)
    assert vault.names() == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda url: with_parameters(url, iss="https://evil.example"), "names another issuer"),
        (lambda url: with_parameters(url, iss=None), "names no issuer"),
        (lambda url: with_parameters(url, code=None), "without a code"),
        (lambda url: f"{url}&code=another", "given twice"),
    ],
    ids=["another issuer", "no issuer", "no code", "two codes"],
)
def test_an_answer_to_another_question_is_not_taken(
    server: Server, vault: Vault, somebody: Somebody, wish: Wish, change: Callable[[str], str], rule: str
):
    before = server.control()
    with pytest.raises(InputError, match=rule):
        somebody.authorises(wish, come_back=change)
    assert server.control() == before  # the code was not sent anywhere
    assert vault.names() == []


def test_an_issuer_that_is_known_is_compared_even_if_it_does_not_promise_its_name():
    provider = Provider(issuer="https://a.example", token_url="https://a.example/token")
    with pytest.raises(InputError, match="names another issuer"):
        code_of("code=c&iss=https://b.example", provider)
    assert code_of("code=c", provider) == "c"


def test_the_word_of_a_refusal_that_echoes_a_secret_is_not_shown():
    for word in ("Q7-state_0123456789abcdefghijklmnopqrstuvwxyz", "a\x1b[2Jb", "x" * 100):
        with pytest.raises(InputError, match="without a reason that could be shown") as error:
            code_of(urlencode({"error": word}), Provider())
        assert word not in str(error.value)


# --- Attacks on the code ---------------------------------------------------------------------------------------------


def test_a_code_is_worth_nothing_without_the_verifier(server: Server, vault: Vault, somebody: Somebody, wish: Wish):
    stolen: list[httpx.Response] = []

    def steal(url: str) -> str:
        uri = url.partition("?")[0]
        fields = {"grant_type": "authorization_code", "client_id": "native", "redirect_uri": uri}
        for others in ({}, {"code_verifier": "a" * 64}):
            given = {**fields, "code": parameters(url)["code"], **others}
            stolen.append(httpx.post(wish.provider.token_url, data=given, verify=server.verify))
        return url

    somebody.authorises(wish, come_back=steal)
    assert [response.json()["error"] for response in stolen] == ["invalid_grant", "invalid_grant"]
    assert status_at(server, "/api/things", vault.secret("api", "").value) == 200


def test_a_question_that_is_stripped_of_pkce_on_the_way_gives_no_token(vault: Vault, somebody: Somebody, wish: Wish):
    """The provider would let this client, which has a password, do without."""
    provider = wish.provider.model_copy(update={"client_authentication": "basic"})
    stripped = dataclasses.replace(wish, provider=provider, client_id="with secret", client_secret=SECRET)
    with pytest.raises(InputError, match=r"refused it \(invalid_grant\)"):
        somebody.authorises(
            stripped, change=lambda url: with_parameters(url, code_challenge=None, code_challenge_method=None)
        )
    assert vault.names() == []


# --- Scopes ----------------------------------------------------------------------------------------------------------


def test_more_scopes_are_added_to_those_that_were_granted(
    server: Server, vault: Vault, somebody: Somebody, browser: Browser, wish: Wish
):
    somebody.authorises(wish)
    before = vault.secret("api", "").value
    pages = len(browser.pages)
    granted = somebody.authorises(dataclasses.replace(wish, scopes=("write",), about={}))
    assert granted == ("openid", "read", "write")
    after = vault.secret("api", "")
    assert after.value != before
    assert after.hosts == (server.place,)
    assert after.authorization
    assert after.authorization.scopes == ("openid", "read", "write")
    [consent] = browser.pages[pages:]  # the provider asked the person for the new one only
    assert "<li>write</li>" in consent
    assert "<li>read</li>" not in consent


def test_what_was_not_granted_is_told(somebody: Somebody, wish: Wish):
    wide = dataclasses.replace(wish, scopes=("openid", "read", "write"))
    granted = somebody.authorises(wide, change=lambda url: with_parameters(url, scope="openid read"))
    assert granted == ("openid", "read")


# --- What is in the way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"client_id": "another"}, {"provider": Provider(token_url="https://evil.example/token")}]
)
def test_the_token_of_another_client_is_not_replaced(
    vault: Vault, somebody: Somebody, wish: Wish, change: dict[str, Any]
):
    somebody.authorises(wish)
    with pytest.raises(InputError, match="another client or provider; remove it first"):
        somebody.authorizing.by_browser(dataclasses.replace(wish, **change), lambda _: None)


def test_a_key_that_was_typed_in_is_not_replaced(vault: Vault, somebody: Somebody, wish: Wish):
    vault.add(Secret(service="api", value="typed-in", hosts=("api.example",)))
    with pytest.raises(InputError, match="has a key that was typed in; remove it first"):
        somebody.authorizing.by_browser(wish, lambda _: None)
    assert vault.secret("api", "").value == "typed-in"


def test_a_token_is_not_replaced_by_a_key(vault: Vault, somebody: Somebody, wish: Wish):
    somebody.authorises(wish)
    with pytest.raises(InputError, match="its token is renewed by OAuth 2"):
        vault.rotate("api", "typed-in")


def test_settings_that_are_wrong_are_told_before_anybody_is_asked(somebody: Somebody, wish: Wish):
    shown: list[str] = []
    with pytest.raises(InputError, match="service api: hosts"):
        somebody.authorizing.by_browser(dataclasses.replace(wish, about={"hosts": ("https://x",)}), shown.append)
    with pytest.raises(InputError, match="no address for the browser is known"):
        somebody.authorizing.by_browser(
            dataclasses.replace(wish, provider=Provider(token_url="https://a.example")), shown.append
        )
    assert shown == []


# --- The listener that the browser comes back to: one request, one path, one name, one state --------------------------


def test_it_takes_the_first_request_to_its_path_and_is_gone(capfd: pytest.CaptureFixture[str]):
    with Loopback("s") as loopback:
        base = f"http://127.0.0.1:{loopback.port}"
        assert [httpx.get(f"{base}{path}").status_code for path in ("/", "/favicon.ico", "/callback/x?code=1")] == [
            404
        ] * 3
        assert httpx.post(f"{base}/callback?code=1").status_code == 501
        assert httpx.get(f"{base}/callback?code=1", headers={"Host": "evil.example"}).status_code == 404
        assert httpx.get(f"{base}/callback?code=1", headers={"Host": f"localhost:{loopback.port}"}).status_code == 404
        answer = httpx.get(f"{loopback.redirect_uri}?code=first&state=s")
        assert httpx.get(f"{loopback.redirect_uri}?code=second&state=s").status_code == 410
        assert loopback.query(5) == "code=first&state=s"
        with pytest.raises(httpx.ConnectError):
            httpx.get(loopback.redirect_uri)
    assert answer.status_code == 200
    assert "Close this page" in answer.text
    assert "first" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_this_machine_alone():
    with Loopback("s") as loopback, socket.socket() as other:
        assert loopback.redirect_uri == f"http://127.0.0.1:{loopback.port}/callback"
        with pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", loopback.port))


def test_a_connection_that_says_nothing_keeps_no_other_waiting():
    with Loopback("s") as loopback, socket.create_connection(("127.0.0.1", loopback.port)):
        browser = threading.Thread(target=httpx.get, args=(f"{loopback.redirect_uri}?code=1&state=s",))
        browser.start()
        assert loopback.query(3) == "code=1&state=s"
        browser.join()


def test_it_does_not_wait_for_ever_and_each_has_a_port_of_its_own():
    with Loopback("s") as one, Loopback("s") as other:
        assert one.port != other.port
        with pytest.raises(InputError, match="no browser came back"):
            one.query(0.05)
        with pytest.raises(HostError, match=f"port {other.port} of 127.0.0.1: cannot be listened on .*Fix: "):
            Loopback("s", other.port)


@pytest.mark.parametrize("query", ["?code=x", "?error=access_denied&state=other", "?state=s&code=x&state=other"])
def test_who_comes_with_another_state_is_refused_and_the_right_one_waited_for(query: str):
    with Loopback("s") as loopback:
        assert httpx.get(f"{loopback.redirect_uri}{query}").status_code == 400
        assert httpx.get(f"{loopback.redirect_uri}?code=good&state=s").status_code == 200
        assert loopback.query(3) == "code=good&state=s"
    with Loopback("s") as loopback:
        assert httpx.get(f"{loopback.redirect_uri}{query}").status_code == 400
        with pytest.raises(InputError, match="with the state that was sent"):
            loopback.query(0.05)
