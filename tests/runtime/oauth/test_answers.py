"""What providers publish and answer is believed only as far as it can be: a real HTTPS server that lies, here."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import ValidationError

from autoclave.core import HostError, InputError
from autoclave.runtime.oauth import Provider, discovered
from autoclave.runtime.oauth.device import begun
from autoclave.runtime.oauth.endpoints import Endpoints, Refused, Unreachable, answer_of, scopes_in
from autoclave.runtime.vault import Secret
from autoclave.runtime.vault.authority import Authority
from autoclave.runtime.vault.secret import Authorization

TOKEN = "a-token-0123456789"
CLIENT = Authorization(provider=Provider(), client_id="client", scopes=("before",))


@dataclass(slots=True)
class Liar:
    """Answers each path with what was put there: status, headers and body."""

    issuer: str = ""
    verify: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    answers: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])
    encodings: set[str] = field(default_factory=set[str])

    def says(self, path: str, given: object, status: int = 200, **headers: str) -> None:
        content = given if isinstance(given, bytes) else json.dumps(given).encode()
        self.answers[path] = (status, headers, content)

    def publishes(self, **changes: object) -> None:
        told: dict[str, object] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        self.says(
            "/.well-known/oauth-authorization-server", {k: v for k, v in (told | changes).items() if v is not None}
        )


@pytest.fixture(scope="module")
def listening() -> Iterator[Liar]:
    liar, authority = Liar(), Authority()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            liar.asked.append(self.path)
            liar.encodings.add(self.headers.get("Accept-Encoding", ""))
            status, headers, content = liar.answers.get(self.path, (404, {}, b"nothing"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = authority.context_for("localhost").wrap_socket(server.socket, server_side=True)
    liar.issuer = f"https://localhost:{server.server_address[1]}"
    liar.verify = ssl.create_default_context(cadata=authority.certificate.decode())
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield liar
    server.shutdown()
    server.server_close()


@pytest.fixture
def liar(listening: Liar) -> Liar:
    listening.answers.clear()
    listening.asked.clear()
    listening.encodings.clear()
    return listening


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


def test_a_client_without_a_password_makes_nothing_void_where_only_those_with_one_may(liar: Liar):
    liar.publishes(
        revocation_endpoint=f"{liar.issuer}/revoke", revocation_endpoint_auth_methods_supported=["client_secret_post"]
    )
    assert discovered(liar.issuer, verify=liar.verify).revocation_url == ""
    with_password = discovered(liar.issuer, Provider(client_authentication="basic"), liar.verify)
    assert with_password.revocation_url == f"{liar.issuer}/revoke"


def test_openid_settings_are_taken_where_the_others_are_not_published(liar: Liar):
    liar.publishes()
    liar.answers["/.well-known/openid-configuration"] = liar.answers.pop("/.well-known/oauth-authorization-server")
    assert discovered(liar.issuer, verify=liar.verify).token_url == f"{liar.issuer}/token"
    assert liar.asked == ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"issuer": "https://evil.example"}, "is of another issuer, so nothing of it is believed"),
        ({"issuer": None}, "is of another issuer"),
        ({"code_challenge_methods_supported": None}, r"does not say that it knows PKCE \(S256\)"),
        ({"code_challenge_methods_supported": []}, r"does not say that it knows PKCE \(S256\)"),
        ({"code_challenge_methods_supported": ["plain"]}, r"does not say that it knows PKCE \(S256\)"),
        ({"token_endpoint": "http://localhost/token"}, "token_url: .*must begin with https://"),
        ({"device_authorization_endpoint": "http://localhost/d"}, "device_url: .*must begin with https://"),
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
        discovered(liar.issuer)  # its certificate is of nobody that the system knows


# --- What the token endpoint answers ---------------------------------------------------------------------------------


def test_a_redirect_of_the_token_endpoint_is_not_followed(liar: Liar, endpoints: Endpoints):
    liar.says("/token", b"", 307, Location=f"{liar.issuer}/elsewhere")
    with pytest.raises(Refused, match="status 307"):
        endpoints.tokens("refresh_token", refresh_token=TOKEN)
    assert liar.asked == ["/token"]


@pytest.mark.parametrize(
    "given",
    [
        {"error": TOKEN},
        {"error": TOKEN[:-2]},
        {"error": TOKEN[4:].upper()},
        {"error": TOKEN.replace("-", "_")},
        {"error": "a\nb"},
        {"error": ["x"]},
        {"ok": False, "error": {"of": TOKEN}},
    ],
)
def test_the_word_of_an_error_is_shown_only_if_nothing_secret_is_in_it(liar: Liar, endpoints: Endpoints, given: Any):
    liar.says("/token", {**given, "error_description": TOKEN}, 400)
    with pytest.raises(Refused, match="status 400") as error:
        endpoints.tokens("refresh_token", refresh_token=TOKEN)
    assert TOKEN not in str(error.value) + repr(error.value.__context__)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br"])
def test_few_bytes_of_the_token_endpoint_do_not_become_many(liar: Liar, endpoints: Endpoints, encoding: str):
    packed = gzip.compress(bytes(64 << 20)) if encoding == "gzip" else bytes(100)
    liar.says("/token", packed, **{"Content-Encoding": encoding})
    with pytest.raises(Unreachable, match=r"is larger than|was not asked for"):
        endpoints.tokens("refresh_token", refresh_token=TOKEN)
    assert liar.encodings == {"identity"}


def test_an_error_with_status_200_is_one(liar: Liar, endpoints: Endpoints):
    for given in ({"error": "bad_verification_code"}, {"ok": False, "error": "bad_verification_code"}):
        liar.says("/token", given)
        with pytest.raises(Refused, match=r"refused it \(bad_verification_code\)"):
            endpoints.tokens("authorization_code", code="c")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"<html>", 200),
        (b"[]", 200),
        (b"", 200),
        (b"[" * 100_000, 200),
        (b'{"expires_in": NaN}', 200),
        (b"{}", 503),
        (b"{}", 429),
        (b'{"error": "temporarily_unavailable"}', 400),
        (b'{"access_token": "a", "token_type": "bearer"}' + b" " * 300_000, 200),
    ],
)
def test_what_is_no_answer_is_not_taken(liar: Liar, endpoints: Endpoints, content: bytes, status: int):
    liar.says("/token", content, status)
    with pytest.raises(Unreachable, match="no answer that could be used"):
        endpoints.tokens("refresh_token", refresh_token=TOKEN)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"access_token": ""},
        {"access_token": "a b"},
        {"access_token": "a\r\nb"},
        {"access_token": 7},
        {"access_token": TOKEN, "token_type": "mac"},
        {"access_token": TOKEN, "token_type": None},
        {"access_token": TOKEN, "refresh_token": "a\nb"},
        {"access_token": "x" * 70_000},
    ],
)
def test_what_is_no_token_is_not_kept(given: dict[str, Any]):
    with pytest.raises(InputError) as error:
        answer_of({"token_type": "Bearer", **given}, CLIENT, 0.0)
    assert TOKEN not in str(error.value)


def test_lifetimes_and_scopes_are_read_as_they_are_written():
    told = {"access_token": TOKEN, "token_type": "bearer", "expires_in": "3600", "scope": "repo,gist read:user"}
    token, authorization = answer_of(told, CLIENT, 1000.0)
    assert (token, authorization.expires_at, authorization.scopes) == (TOKEN, 4600.0, ("repo", "gist", "read:user"))
    for lifetime in (None, -1, 0, "soon", True, 1e300, float("nan"), 10**400):
        assert answer_of(told | {"expires_in": lifetime}, CLIENT, 1000.0)[1].expires_at in (0.0, 1001.0)
    assert answer_of({"access_token": TOKEN}, CLIENT, 0.0)[1] == CLIENT
    assert scopes_in(" a  b,a ") == ("a", "b")


# --- What a person is shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"user_code": "\x1b[2J"}, "no user_code that could be shown"),
        ({"user_code": "A" * 100}, "no user_code that could be shown"),
        ({"verification_uri": "http://localhost/device"}, "verification_uri: .*must begin with https"),
        ({"verification_uri": "https://localhost/\x1b[2J"}, "verification_uri: "),
        ({"verification_uri": "javascript:alert(1)"}, "verification_uri: "),
        ({"device_code": None}, "no device_code"),
    ],
)
def test_what_a_terminal_or_a_browser_would_act_on_is_not_shown(
    liar: Liar, endpoints: Endpoints, changes: dict[str, Any], rule: str
):
    told = {"user_code": "ABCD-EFGH", "device_code": TOKEN, "verification_uri": "https://localhost/device"}
    liar.says("/device", told)
    assert begun(endpoints, "read").interval_s == 5.0
    liar.says("/device", told | {"expires_in": 10**400, "interval": 10**400})
    assert (begun(endpoints, "read").lifetime_s, begun(endpoints, "read").interval_s) == (3600.0, 60.0)
    liar.says("/device", told | changes)
    with pytest.raises(InputError, match=rule) as error:
        begun(endpoints, "read")
    assert TOKEN not in str(error.value)


# --- What the vault keeps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"token_url": "http://a.example/token"},
        {"token_url": "https://me@a.example/token"},
        {"token_url": "https://a.example/token#x"},
        {"redirect_port": 70_000},
        {"client_authentication": "tls"},
    ],
)
def test_settings_that_would_weaken_the_way_are_refused(given: dict[str, Any]):
    with pytest.raises(ValidationError):
        Provider.model_validate(given)


def test_what_is_shown_of_a_secret_has_no_token():
    authorization = Authorization(
        provider=Provider(), client_id="c", client_secret="the-client-secret", refresh_token="the-refresh-token"
    )
    secret = Secret(service="api", value=TOKEN, hosts=("h",), authorization=authorization)
    for value in (TOKEN, "the-client-secret", "the-refresh-token"):
        assert value not in repr(secret) + str(secret) + repr(authorization)
