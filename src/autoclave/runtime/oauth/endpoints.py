"""Asks the endpoints of a provider over HTTPS, and keeps what goes there out of every error.

The bodies are written by Authlib. Its HTTP client is not used: it sends a code without PKCE unless two arguments are
right, takes a redirect's state on trust unless it is handed in, turns the answers that a device flow waits for into
HTTP errors, puts the token in place before a caller could store it, and writes a client's password unlike the standard.

What an answer may be, and how long it may take, is in `exchange`.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oauth2.rfc7009 import prepare_revoke_token_request

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.json import foreign_json
from autoclave.runtime.exchange import NoAnswer, exchange
from autoclave.runtime.vault.authorization import Provider

_MOST_BYTES = 256 << 10
_LONGEST_LIFE_S = 10 * 366 * 86_400
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_IN_ALL_S = 40.0
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_PART = 6
"""So many letters and digits of a secret in a row, in whatever case, are a part of it."""
_STANDARD = frozenset({
    "invalid_request", "invalid_client", "invalid_grant", "invalid_scope", "invalid_target", "invalid_token",
    "unauthorized_client", "unsupported_grant_type", "unsupported_response_type", "unsupported_token_type",
    "access_denied", "server_error", "temporarily_unavailable", "authorization_pending", "slow_down", "expired_token",
})  # fmt: skip
"""Words that say nothing of any secret, whatever that is."""
_OPEN = ("redirect_uri", "resource", "scope")
"""Fields that are no secret."""
_BUSY = frozenset({"temporarily_unavailable", "server_error"})
_PAST = "urn:ietf:params:oauth:grant-type:"


class Refused(InputError):
    """The provider said no. `code` is its word for why, as far as it can be shown."""

    code: str = ""

    @staticmethod
    def by(provider: str, code: str) -> Refused:
        error = Refused(f"{provider}: refused it ({code or 'without a reason that could be shown'})")
        error.code = code
        return error


class Unreachable(HostError):
    """The provider could not be asked, or did not answer as one. `may_have_arrived`: whether it may have acted."""

    may_have_arrived: bool = True

    @staticmethod
    def at(provider: str, why: str, *, may_have_arrived: bool) -> Unreachable:
        error = Unreachable(f"{provider}: no answer that could be used ({why}). Fix: try again later")
        error.may_have_arrived = may_have_arrived
        return error


class Endpoints:
    """The endpoints of a provider, asked as one client. `verify`: the certificates that it is verified by."""

    def __init__(
        self, provider: Provider, client_id: str, client_secret: str = "", verify: ssl.SSLContext | None = None
    ) -> None:
        self.provider = provider
        self._client_id, self._client_secret, self._verify = client_id, client_secret, verify

    def __repr__(self) -> str:
        return f"Endpoints({self.provider.token_url})"

    def tokens(self, grant_type: str, **fields: str) -> Mapping[str, Any]:
        """What the token endpoint answers.

        Raises:
            Refused: with the code of its error.
            Unreachable: it did not answer, or not as such an endpoint does.
        """
        if self.provider.resource:
            fields["resource"] = self.provider.resource
        named = _PAST + grant_type if grant_type == "device_code" else grant_type
        body = prepare_token_request(named, **fields)
        return self._posted(self.provider.token_url, body, [fields[name] for name in fields if name not in _OPEN])

    def device(self, scopes: str) -> Mapping[str, Any]:
        """What the endpoint for devices answers (RFC 8628)."""
        fields = {"scope": scopes} if scopes else {}
        if self.provider.resource:
            fields["resource"] = self.provider.resource
        # A client without a secret says its name in the form; one with a secret as it does elsewhere.
        return self._posted(self.provider.device_url, urlencode(fields), ())

    def revoke(self, token: str, kind: str) -> None:
        """Have a token made void (RFC 7009). One that is void already is no error."""
        body, _ = prepare_revoke_token_request(token, kind)
        try:
            self._posted(self.provider.revocation_url, body, (token,), may_be_empty=True)
        except Refused as error:
            if error.code not in ("unsupported_token_type", "invalid_token"):  # the latter as Google has it
                raise

    def _posted(self, url: str, body: str, secrets: Iterable[str], *, may_be_empty: bool = False) -> Mapping[str, Any]:
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        named = {"client_id": self._client_id}
        if self.provider.client_authentication == "basic":
            pair = f"{quote_plus(self._client_id)}:{quote_plus(self._client_secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            named = {}
        elif self.provider.client_authentication == "post":
            named["client_secret"] = self._client_secret
        content = "&".join(part for part in (body, urlencode(named)) if part)
        status, given = _asked("POST", url, headers, content, self._verify)
        hidden = [secret for secret in (*secrets, self._client_secret) if len(secret) > 7]
        return _judged(urlsplit(url).netloc, status, given, hidden, may_be_empty=may_be_empty)


def published(url: str, verify: ssl.SSLContext | None = None) -> Mapping[str, Any]:
    """The JSON object at an address.

    Raises:
        Refused: there is none.
        Unreachable: nobody answers there.
    """
    status, given = _asked("GET", url, {"accept": "application/json"}, "", verify)
    return _judged(urlsplit(url).netloc, status, given, ())


def shown_code(given: object, secrets: Iterable[str] = ()) -> str:
    """The code of an error if it can be shown: one word without any part of a secret in it; else nothing."""
    if not isinstance(given, str) or not _CODE.fullmatch(given):
        return ""
    if given in _STANDARD:
        return given
    plain, *others = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (given, *secrets))
    parts = {plain[at : at + _PART] for at in range(len(plain) - _PART + 1)}
    return "" if any(part in other for part in parts for other in others) else given


def _asked(
    method: str, url: str, headers: Mapping[str, str], content: str, verify: ssl.SSLContext | None
) -> tuple[int, bytes]:
    """Status and body of an answer."""
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    try:
        received = exchange(
            method,
            url,
            given,
            content.encode(),
            verify=verify or ssl.create_default_context(),
            within_s=_IN_ALL_S,
            most_bytes=_MOST_BYTES,
        )
    except NoAnswer as error:
        raise Unreachable.at(urlsplit(url).netloc, str(error), may_have_arrived=error.is_sent) from None
    return received.status, received.body


def _judged(
    place: str, status: int, body: bytes, secrets: Iterable[str], *, may_be_empty: bool = False
) -> Mapping[str, Any]:
    try:
        given = foreign_json(body)
    except ValueError:
        given = None
    is_error = isinstance(given, dict) and ("error" in given or given.get("ok") is False)
    code = shown_code(given.get("error"), secrets) if is_error and isinstance(given, dict) else ""
    if status >= 500 or status == 429 or code in _BUSY:
        raise Unreachable.at(place, f"status {status}", may_have_arrived=True)
    if is_error or status >= 300:
        raise Refused.by(place, code or f"status {status}")
    if may_be_empty:
        return {}
    if not isinstance(given, dict):
        raise Unreachable.at(place, "it is no JSON object", may_have_arrived=True)
    return given


def described(error: AutoclaveError, service: str) -> InputError | HostError:
    """The error with the service that it is about, of the same kind."""
    kind = HostError if isinstance(error, HostError) else InputError
    return kind(f"service {service}: {error}")


# --- Tokens ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens. `lifetime_s` is 0 and `scopes` is None where nothing is said of them."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    lifetime_s: float
    scopes: tuple[str, ...] | None


def answer_of(given: Mapping[str, Any], provider: Provider) -> Answer:
    """The tokens in an answer of the token endpoint.

    Raises:
        InputError: they are none that could be used. The message has no values.
    """
    inner = given.get(provider.token_within)
    within = inner if isinstance(inner, Mapping) else given  # renewed ones are at the top even there
    kind = within.get("token_type", "bearer")
    if not provider.token_within and (not isinstance(kind, str) or kind.lower() != "bearer"):
        raise InputError("the answer has a token that is no bearer token; no other kind is known here")
    scopes = within.get("scope")
    return Answer(
        _token(within, "access_token"),
        _token(within, "refresh_token") if within.get("refresh_token") else "",
        _lifetime(within.get("expires_in")),
        scopes_in(scopes) if isinstance(scopes, str) else None,
    )


def scopes_in(text: str) -> tuple[str, ...]:
    """The scopes in a text: by blanks as in the standard, or by commas as some write them. Each once, in order."""
    return tuple(dict.fromkeys(scope for scope in re.split(r"[\s,]+", text) if scope))


def _token(given: Mapping[str, Any], name: str) -> str:
    token = given.get(name)
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise InputError(f"the answer has no {name} that could be used")
    return token


def _lifetime(given: object) -> float:
    try:
        lifetime = float(given) if isinstance(given, (int, float, str)) else 0.0
    except (ValueError, OverflowError):
        lifetime = 0.0
    return lifetime if 0 < lifetime < _LONGEST_LIFE_S else 0.0
