"""What providers publish and answer is believed only as far as it can be: a real HTTPS server that lies, here."""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.oauth import Provider, discovered
from autoclave.runtime.oauth.authorizing import begun
from autoclave.runtime.oauth.endpoints import Endpoints, Refused, Unreachable, answer_of
from autoclave.runtime.vault import Secret
from autoclave.runtime.vault.authority import Authority
from autoclave.runtime.vault.secret import Authorization
from tests.runtime.rest.scripted_service import ScriptedService, answer, told

TOKEN = "a-token-0123456789"
CLIENT = Authorization(provider=Provider(), client_id="client", scopes=("before",))


class Liar(ScriptedService):
    """Answers each path with what was put there."""

    def __init__(self) -> None:
        authority = Authority()
        super().__init__(lambda method, path, body: self.answers[path], authority.context_for("localhost"))
        self.issuer = f"https://localhost:{self.port}"
        self.verify = ssl.create_default_context(cadata=authority.certificate.decode())
        self.answers = defaultdict[str, bytes](lambda: told({}, status=404))

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.asked]

    def publishes(self, **changes: object) -> None:
        found: dict[str, object] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        published = {name: value for name, value in (found | changes).items() if value is not None}
        self.answers["/.well-known/oauth-authorization-server"] = told(published)


@pytest.fixture
def liar() -> Iterator[Liar]:
    with Liar() as liar:
        yield liar


@pytest.fixture
def endpoints(liar: Liar) -> Endpoints:
    provider = Provider(token_url=f"{liar.issuer}/token", device_url=f"{liar.issuer}/device")
    client = CLIENT.model_copy(update={"provider": provider, "client_secret": "a-secret-of-the-client"})
    return Endpoints(client, liar.verify)


# --- What an issuer publishes ----------------------------------------------------------------------------------------


def test_what_an_issuer_publishes_is_taken_and_what_is_given_stays(liar: Liar):
    liar.publishes(device_authorization_endpoint=f"{liar.issuer}/device")
    found = discovered(liar.issuer, Provider(token_url="https://other.example/token"), liar.verify)
    assert found.authorization_url == f"{liar.issuer}/authorize"
    assert found.token_url == "https://other.example/token"
    assert found.device_url == f"{liar.issuer}/device"
    assert found.names_itself is False


def test_openid_settings_are_taken_where_the_others_are_not_published(liar: Liar):
    liar.publishes()
    liar.answers["/.well-known/openid-configuration"] = liar.answers.pop("/.well-known/oauth-authorization-server")
    assert discovered(liar.issuer, verify=liar.verify).token_url == f"{liar.issuer}/token"
    assert liar.paths() == ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"issuer": "https://evil.example"}, "is of another issuer, so nothing of it is believed"),
        ({"code_challenge_methods_supported": None}, r"does not say that it knows PKCE \(S256\)"),
        ({"code_challenge_methods_supported": ["plain"]}, r"does not say that it knows PKCE \(S256\)"),
        ({"token_endpoint": "http://localhost/token"}, "token_url: .*must begin with https://"),
        ({"authorization_endpoint": "https://me:x@localhost/a"}, "must have no user"),
        ({"token_endpoint": None}, "breaks RFC 8414"),
    ],
)
def test_an_issuer_that_lies_or_knows_too_little_is_not_believed(liar: Liar, changes: dict[str, Any], rule: str):
    liar.publishes(**changes)
    with pytest.raises(InputError, match=rule):
        discovered(liar.issuer, verify=liar.verify)


def test_an_issuer_that_publishes_nothing_or_is_not_there_says_so(liar: Liar):
    with pytest.raises(InputError, match=r"publishes no settings .*give --token-url"):
        discovered(liar.issuer, verify=liar.verify)
    with pytest.raises(InputError, match=r"issuer: 'http://localhost' must begin with https"):
        discovered("http://localhost")
    with pytest.raises(HostError, match="no answer that could be used"):
        discovered("https://localhost:1")
    with pytest.raises(HostError, match="no answer that could be used"):
        discovered(liar.issuer)  # the system does not know who signed its certificate


# --- What the token endpoint answers ---------------------------------------------------------------------------------


def test_a_redirect_of_the_token_endpoint_is_not_followed(liar: Liar, endpoints: Endpoints):
    liar.answers["/token"] = told({}, f"Location: {liar.issuer}/elsewhere", status=307)
    with pytest.raises(Refused, match="status 307"):
        endpoints.tokens("refresh_token", refresh_token=TOKEN)
    assert liar.paths() == ["/token"]


@pytest.mark.parametrize(
    "given",
    [
        {"error": TOKEN},
        {"error": TOKEN.replace("-", "_")},
        {"error": "a\nb"},
        {"ok": False, "error": {"of": TOKEN}},
    ],
)
def test_the_word_of_an_error_is_shown_only_if_nothing_secret_is_in_it(liar: Liar, endpoints: Endpoints, given: Any):
    liar.answers["/token"] = told({**given, "error_description": TOKEN}, status=400)
    with pytest.raises(Refused, match="status 400") as error:
        endpoints.tokens("refresh_token", refresh_token=TOKEN)
    assert TOKEN not in str(error.value) + repr(error.value.__context__)


def test_an_error_with_status_200_is_one(liar: Liar, endpoints: Endpoints):
    for given in ({"error": "bad_verification_code"}, {"ok": False, "error": "bad_verification_code"}):
        liar.answers["/token"] = told(given)
        with pytest.raises(Refused, match=r"refused it \(bad_verification_code\)"):
            endpoints.tokens("authorization_code", code="c")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"[]", 200),
        (b"", 200),
        (b"[" * 100_000, 200),
        (b'{"expires_in": NaN}', 200),
        (b"{}", 503),
        (b'{"error": "temporarily_unavailable"}', 400),
        (b'{"access_token": "a", "token_type": "bearer"}' + b" " * 300_000, 200),
    ],
)
def test_what_is_no_answer_is_not_taken(liar: Liar, endpoints: Endpoints, content: bytes, status: int):
    liar.answers["/token"] = answer(content, status=status)
    with pytest.raises(Unreachable, match="no answer that could be used"):
        endpoints.tokens("refresh_token", refresh_token=TOKEN)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"access_token": "a\r\nb"},
        {"access_token": 7},
        {"access_token": TOKEN, "token_type": "mac"},
        {"access_token": TOKEN, "refresh_token": "a\nb"},
        {"access_token": "x" * 70_000},
    ],
)
def test_what_is_no_token_is_not_kept(given: dict[str, Any]):
    with pytest.raises(InputError) as error:
        answer_of({"token_type": "Bearer", **given}, CLIENT, 0.0)
    assert TOKEN not in str(error.value)


def test_lifetimes_and_scopes_are_read_as_they_are_written():
    given = {"access_token": TOKEN, "token_type": "bearer", "expires_in": "3600", "scope": "repo,gist read:user"}
    token, authorization = answer_of(given, CLIENT, 1000.0)
    assert (token, authorization.expires_at, authorization.scopes) == (TOKEN, 4600.0, ("repo", "gist", "read:user"))
    for lifetime in (None, -1, 0, "soon", float("nan")):
        assert answer_of(given | {"expires_in": lifetime}, CLIENT, 1000.0)[1].expires_at == 0.0
    for lifetime in (1e300, 10**400):
        assert answer_of(given | {"expires_in": lifetime}, CLIENT, 0.0)[1].expires_at < 11 * 366 * 86_400
    assert answer_of({"access_token": TOKEN}, CLIENT, 0.0)[1] == CLIENT
    assert answer_of(given | {"scope": " a  b,a "}, CLIENT, 0.0)[1].scopes == ("a", "b")


# --- What a person is shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"user_code": "\x1b[2J"}, "no user_code that could be shown"),
        ({"verification_uri": "https://localhost/\x1b[2J"}, "verification_uri: "),
        ({"verification_uri": "javascript:alert(1)"}, "verification_uri: "),
        ({"device_code": None}, "no device_code"),
    ],
)
def test_what_a_terminal_or_a_browser_would_act_on_is_not_shown(
    liar: Liar, endpoints: Endpoints, changes: dict[str, Any], rule: str
):
    given = {"user_code": "ABCD-EFGH", "device_code": TOKEN, "verification_uri": "https://localhost/device"}
    liar.answers["/device"] = told(given)
    assert begun(endpoints, "read").interval_s == 5.0
    liar.answers["/device"] = told(given | {"expires_in": 10**400, "interval": 10**400})
    assert (begun(endpoints, "read").lifetime_s, begun(endpoints, "read").interval_s) == (3600.0, 60.0)
    liar.answers["/device"] = told(given | changes)
    with pytest.raises(InputError, match=rule) as error:
        begun(endpoints, "read")
    assert TOKEN not in str(error.value)


# --- What the vault keeps --------------------------------------------------------------------------------------------


def test_what_is_shown_of_a_secret_has_no_token():
    authorization = Authorization(
        provider=Provider(), client_id="c", client_secret="the-client-secret", refresh_token="the-refresh-token"
    )
    secret = Secret(service="api", value=TOKEN, hosts=("h",), authorization=authorization)
    for value in (TOKEN, "the-client-secret", "the-refresh-token"):
        assert value not in repr(secret) + str(secret) + repr(authorization)
