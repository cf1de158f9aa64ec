"""Asks the endpoints of a provider over HTTPS, and keeps what goes there out of every error.

What an issuer publishes of itself (RFC 8414 or OpenID Connect Discovery) is taken only if it is of itself indeed.

The bodies are written by Authlib. Its HTTP client is not used: it sends a code without PKCE unless two arguments are
right, takes a redirect's state on trust unless it is handed in, turns the answers that a device flow waits for into
HTTP errors, puts the token in place before a caller could store it, and writes a client's password unlike the standard.

What an answer may be, and how long it may take, is in `exchange`.
"""

import base64
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oauth2.rfc7009 import prepare_revoke_token_request
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.json import foreign_json, validated
from autoclave.runtime.exchange import NoAnswer, exchange
from autoclave.runtime.vault.secret import Authorization, Provider, https_url

Headers = Sequence[tuple[bytes, bytes]]
_MOST_BYTES = 256 << 10
_LONGEST_LIFE_S = 10 * 366 * 86_400
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_IN_ALL_S = 40.0
_CODE = re.compile(r"(?!.{41})[a-z]+(_[a-z]+)*")
_ENDPOINTS = {
    "authorization_url": "authorization_endpoint",
    "token_url": "token_endpoint",
    "device_url": "device_authorization_endpoint",
    "revocation_url": "revocation_endpoint",
}
_BUSY = ("temporarily_unavailable", "server_error")


class Refused(InputError):
    """The provider said no. `code` is its word for why, as far as it can be shown."""

    code: str = ""


class Unreachable(HostError):
    """The provider could not be asked, or did not answer as one; it may have acted all the same."""


class Endpoints:
    """The endpoints of a provider, asked as `client`. `verify`: the certificates that it is verified by.

    Asking raises Refused with the code of the error, or Unreachable.
    """

    def __init__(self, client: Authorization, verify: ssl.SSLContext | None = None) -> None:
        self._client, self._verify = client, verify
        self.provider = client.provider

    def tokens(self, grant_type: str, **fields: str) -> Mapping[str, Any]:
        return self._posted(self.provider.token_url, prepare_token_request(grant_type, **fields))

    def device(self, scopes: str) -> Mapping[str, Any]:
        return self._posted(self.provider.device_url, urlencode({"scope": scopes} if scopes else {}))

    def revoke(self, token: str, kind: str) -> None:
        """Have a token made void (RFC 7009). One that is void already is no error."""
        body, _ = prepare_revoke_token_request(token, kind)
        try:
            self._posted(self.provider.revocation_url, body, may_be_empty=True)
        except Refused as error:
            if error.code not in ("unsupported_token_type", "invalid_token"):  # the latter as Google has it
                raise

    def _posted(self, url: str, body: str, *, may_be_empty: bool = False) -> Mapping[str, Any]:
        headers, client = [(b"content-type", b"application/x-www-form-urlencoded")], self._client
        named = {"client_id": client.client_id}
        if self.provider.client_authentication == "basic":
            pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
            headers.append((b"authorization", b"Basic " + base64.b64encode(pair.encode())))
            named = {}
        elif self.provider.client_authentication == "post":
            named["client_secret"] = client.client_secret
        content = "&".join(part for part in (body, urlencode(named)) if part)
        return _asked(url, self._verify, headers, content, may_be_empty=may_be_empty)


def shown_code(given: object) -> str:
    """The code of an error if it is words in small letters, as no token is; else nothing."""
    return given if isinstance(given, str) and _CODE.fullmatch(given) else ""


def _asked(
    url: str, verify: ssl.SSLContext | None, headers: Headers = (), content: str = "", *, may_be_empty: bool = False
) -> Mapping[str, Any]:
    """The JSON object that is answered to a GET, or to a POST of `content`."""
    place = urlsplit(url).netloc
    try:
        received = exchange(
            "POST" if content else "GET",
            url,
            [(b"accept", b"application/json"), *headers],
            content.encode(),
            verify=verify or ssl.create_default_context(),
            within_s=_IN_ALL_S,
            most_bytes=_MOST_BYTES,
        )
    except NoAnswer as error:
        raise _unreachable(place, str(error)) from None
    try:
        given = foreign_json(received.body)
    except ValueError:
        given = None
    told: Mapping[str, Any] = given if isinstance(given, dict) else {}
    code = shown_code(told.get("error"))
    if received.status >= 500 or received.status == 429 or code in _BUSY:
        raise _unreachable(place, f"status {received.status}")
    if "error" in told or told.get("ok") is False or received.status >= 300:
        refused = Refused(f"{place}: refused it ({code or f'status {received.status}'})")
        refused.code = code
        raise refused
    if not isinstance(given, dict) and not may_be_empty:
        raise _unreachable(place, "it is no JSON object")
    return told


def _unreachable(place: str, why: str) -> Unreachable:
    return Unreachable(f"{place}: no answer that could be used ({why}). Fix: try again later")


def described(error: AutoclaveError, service: str) -> InputError | HostError:
    """The error with the service that it is about, of the same kind."""
    kind = HostError if isinstance(error, HostError) else InputError
    return kind(f"service {service}: {error}")


def answer_of(given: Mapping[str, Any], before: Authorization, now: float) -> tuple[str, Authorization]:
    """The access token in an answer of the token endpoint, and the authorization with what else it has.

    Raises InputError where there is none that could be used. The message has no values.
    """
    kind = given.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise InputError("the answer has a token that is no bearer token; no other kind is known here")
    scopes, lifetime_s = given.get("scope"), number_in(given.get("expires_in"), 0.0, _LONGEST_LIFE_S)
    about = {
        "refresh_token": _token(given, "refresh_token") if given.get("refresh_token") else before.refresh_token,
        # by blanks as in the standard, or by commas as some write them
        "scopes": tuple(dict.fromkeys(re.findall(r"[^\s,]+", scopes))) if isinstance(scopes, str) else before.scopes,
        "expires_at": now + lifetime_s if lifetime_s else 0.0,
    }
    return _token(given, "access_token"), before.model_copy(update=about)


def _token(given: Mapping[str, Any], name: str) -> str:
    token = given.get(name)
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise InputError(f"the answer has no {name} that could be used")
    return token


def number_in(given: object, default: float, most: float) -> float:
    """A number of seconds in an answer, at most `most`; `default` for what is none."""
    try:
        number = min(float(given), most) if isinstance(given, (int, float, str)) else 0.0
    except ValueError:
        return default
    except OverflowError:
        return most
    return number if number > 0 else default


def discovered(issuer: str, given: Provider | None = None, verify: ssl.SSLContext | None = None) -> Provider:
    """A provider with the endpoints that its issuer publishes; those that are `given` are kept.

    Raises InputError where the issuer publishes nothing, or not of itself, or says that it knows no PKCE, and HostError
    where it cannot be reached.
    """
    try:
        https_url(issuer)
    except ValueError as error:
        raise InputError(f"issuer: {error}") from None
    of_openid = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        try:
            told = _asked(get_well_known_url(issuer, external=True), verify)
        except (Refused, Unreachable):
            told = _asked(of_openid, verify)
    except Refused as error:
        raise InputError(f"issuer {issuer}: publishes no settings ({error}); give --token-url and the others") from None
    return _provider(issuer, told, given or Provider())


def _provider(issuer: str, told: Mapping[str, Any], given: Provider) -> Provider:
    if told.get("issuer") != issuer:
        raise InputError(f"issuer {issuer}: what is published there is of another issuer, so nothing of it is believed")
    try:
        AuthorizationServerMetadata(told).validate()
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"issuer {issuer}: what it publishes breaks RFC 8414 ({str(error)[:200]})") from None
    if "S256" not in (told.get("code_challenge_methods_supported") or ()):
        raise InputError(
            f"issuer {issuer}: does not say that it knows PKCE (S256), and without that a code that is stolen is worth "
            "a token. If it knows it all the same, give --authorization-url and --token-url instead of --issuer"
        )
    found = {name: str(told.get(their) or "") for name, their in _ENDPOINTS.items()}
    kept = {name: value for name, value in given.model_dump().items() if value}
    ways = told.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    if given.client_authentication == "basic" and "client_secret_basic" not in ways and "client_secret_post" in ways:
        kept["client_authentication"] = "post"
    names_itself = told.get("authorization_response_iss_parameter_supported") is True
    plain = {**found, **kept, "issuer": issuer, "names_itself": names_itself}
    return validated(Provider, plain, f"issuer {issuer}")
