"""From a person's consent to a token in the vault: by a browser on this machine, or by a code for another device.

Three things bind the answer of a browser to the question. `state` says that the browser which comes back is the one
that was sent; see `loopback`. The verifier, of which only the digest is sent ahead (PKCE, S256), makes a code worthless
to another who gets hold of it. And the name of the issuer (RFC 9207) says that the code is of the provider that was
asked. For another device (RFC 8628) a person types in a code there, and the provider is asked until that was done.
"""

import re
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from autoclave.core import AutoclaveError, InputError
from autoclave.core.json import validated
from autoclave.runtime.oauth.endpoints import (
    Endpoints,
    Refused,
    Unreachable,
    answer_of,
    described,
    number_in,
    shown_code,
)
from autoclave.runtime.oauth.loopback import Loopback
from autoclave.runtime.vault.secret import Authorization, Provider, Secret, https_url
from autoclave.runtime.vault.vault import Vault

_DEADLINE_S = 300.0
_GRANT_OF_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL_S, _SLOWER_S, _MOST_INTERVAL_S = 5.0, 5.0, 60.0
_LIFETIME_S, _LONGEST_LIFE_S = 600.0, 3600.0
_USER_CODE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,62}[\x21-\x7e])?")
_REASONS = {"access_denied": "it was denied", "expired_token": "nobody agreed in time: the code has expired"}


@dataclass(frozen=True, slots=True)
class Wish:
    """The use that a person asks a service for.

    Attributes:
        service: its name in the vault.
        provider: who is asked.
        client_id: what this program is registered as with the provider.
        client_secret: empty for a public client.
        scopes: what to ask for, beside what was granted before.
        about: settings of the `Secret`: hosts, methods, paths. Those of before stay where nothing is said.
    """

    service: str
    provider: Provider
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Device:
    """The steps for a person: open `page`, and type in `user_code`."""

    user_code: str
    page: str
    device_code: str = field(repr=False)
    lifetime_s: float
    interval_s: float


class Authorizing:
    """Puts tokens of authorised services into `vault`; `verify`: certificates of providers, None for the system's."""

    def __init__(
        self, vault: Vault, verify: ssl.SSLContext | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._vault, self._verify, self._now = vault, verify, now

    def by_browser(self, wish: Wish, show: Callable[[str], object], deadline_s: float = _DEADLINE_S) -> tuple[str, ...]:
        """Wait for a browser that was sent to the address which is shown; the scopes that are granted.

        Nobody is asked for what was granted before.

        Raises:
            InputError: it was denied, or the answer is not one to this question. What was granted before stays.
            HostError: the provider cannot be reached, or the port is taken.
        """

        def ask(endpoints: Endpoints, scope: str) -> Mapping[str, Any]:
            provider = endpoints.provider
            if not provider.authorization_url:
                raise InputError("no address for the browser is known; give --issuer, --authorization-url or --device")
            state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
            with Loopback(state, provider.redirect_port) as loopback:
                address = prepare_grant_uri(
                    provider.authorization_url,
                    wish.client_id,
                    "code",
                    redirect_uri=loopback.redirect_uri,
                    scope=scope or None,
                    state=state,
                    code_challenge=create_s256_code_challenge(verifier),
                    code_challenge_method="S256",
                )
                show(address)
                code = code_of(loopback.query(deadline_s), provider)
            return endpoints.tokens(
                "authorization_code", code=code, redirect_uri=loopback.redirect_uri, code_verifier=verifier
            )

        return self._granted(wish, ask)

    def by_device(
        self, wish: Wish, show: Callable[[Device], object], wait: Callable[[float], object] = time.sleep
    ) -> tuple[str, ...]:
        """Wait for a person who types in the code which is shown, on any device; the scopes that are granted.

        Raises InputError and HostError as `by_browser`.
        """

        def ask(endpoints: Endpoints, scope: str) -> Mapping[str, Any]:
            device = begun(endpoints, scope)
            show(device)
            return granted(endpoints, device, wait)

        return self._granted(wish, ask)

    def _granted(self, wish: Wish, ask: Callable[[Endpoints, str], Mapping[str, Any]]) -> tuple[str, ...]:
        before = self._before(wish)
        had = before.scopes if before else ()
        scopes = tuple(dict.fromkeys((*had, *wish.scopes)))
        if before and not before.ended and scopes == had:
            return had
        wanted = Authorization(
            provider=wish.provider, client_id=wish.client_id, client_secret=wish.client_secret, scopes=scopes
        )
        try:
            answer = ask(Endpoints(wanted, self._verify), " ".join(scopes))
            token, authorization = answer_of(answer, wanted, self._now())
        except AutoclaveError as error:
            raise described(error, wish.service) from None
        with self._vault.alone():  # no renewal of the old token comes after this
            has_one = wish.service in self._vault.names()
            kept = self._vault.secret(wish.service, "to authorise more").model_dump() if has_one else {}
            secret = _secret(wish, token, authorization, kept)
            self._vault.put(secret, "authorise", scopes=list(authorization.scopes), hosts=list(secret.hosts))
        return authorization.scopes

    def _before(self, wish: Wish) -> Authorization | None:
        """Return what was granted to this client before; raise InputError if the service has another key or token."""
        if wish.service not in self._vault.names():
            _ = _secret(wish, "x", None, {})  # what is wrong with its settings is said before anybody is asked
            return None
        held = self._vault.secret(wish.service, "to authorise more").authorization
        if held is None:
            raise InputError(f"service {wish.service}: has a key that was typed in; remove it first")
        if (held.client_id, held.provider.token_url) != (wish.client_id, wish.provider.token_url):
            raise InputError(f"service {wish.service}: has a token of another client or provider; remove it first")
        return held


def _secret(wish: Wish, token: str, authorization: Authorization | None, before: Mapping[str, Any]) -> Secret:
    given = {**before, **wish.about, "service": wish.service, "value": token, "authorization": authorization}
    return validated(Secret, given, f"service {wish.service}")


def code_of(query: str, provider: Provider) -> str:
    """Return the code that the browser came back with; raise InputError if it is a refusal, or of another provider."""
    pairs = parse_qsl(query, keep_blank_values=True)
    given = dict(pairs)
    if len(given) != len(pairs):
        raise InputError("the browser came back with a parameter given twice; nothing was taken from it")
    issuer = given.get("iss")
    if (issuer is not None or provider.names_itself) and provider.issuer and issuer != provider.issuer:
        said = "another issuer" if issuer is not None else "no issuer"
        raise InputError(f"the answer names {said} than {provider.issuer}, which was asked (mix-up); nothing was taken")
    if "error" in given:
        code = shown_code(given["error"]) or "without a reason that could be shown"
        told = "it was denied" if code == "access_denied" else "the provider refused it"
        raise InputError(f"{told} ({code}); nothing was granted")
    if not given.get("code"):
        raise InputError("the browser came back without a code; nothing was granted")
    return given["code"]


def begun(endpoints: Endpoints, scope: str) -> Device:
    """A new code.

    Raises InputError where the provider refuses, or answers what cannot be shown to a person, and HostError where it
    cannot be reached.
    """
    if not endpoints.provider.device_url:
        raise InputError("the provider has no device flow that is known here; leave out --device, or give --device-url")
    given = endpoints.device(scope)
    user_code, device_code = given.get("user_code"), given.get("device_code")
    if not isinstance(device_code, str) or not device_code:
        raise InputError("the provider's answer has no device_code")
    if not isinstance(user_code, str) or not _USER_CODE.fullmatch(user_code):
        raise InputError("the provider's answer has no user_code that could be shown")
    try:
        page = https_url(str(given.get("verification_uri") or given.get("verification_url")))  # as Google has it
    except ValueError as error:
        raise InputError(f"the provider's answer: verification_uri: {error}") from None
    lifetime_s = number_in(given.get("expires_in"), _LIFETIME_S, _LONGEST_LIFE_S)
    interval_s = number_in(given.get("interval"), _INTERVAL_S, _MOST_INTERVAL_S)
    return Device(user_code, page, device_code, lifetime_s, interval_s)


def granted(
    endpoints: Endpoints,
    device: Device,
    wait: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Mapping[str, Any]:
    """Return what the token endpoint answers as soon as the person has agreed. Asks no faster than the provider wants.

    Raises InputError where it was denied, or nobody agreed in time.
    """
    until, interval = now() + device.lifetime_s, device.interval_s
    while True:
        wait(interval)
        if now() >= until:
            raise InputError("nobody agreed in time: the code has expired; nothing was granted. Authorise again")
        try:
            return endpoints.tokens(_GRANT_OF_DEVICE, device_code=device.device_code)
        except Unreachable:
            interval = min(interval * 2, _MOST_INTERVAL_S)
        except Refused as error:
            if error.code == "slow_down":
                interval = min(interval + _SLOWER_S, _MOST_INTERVAL_S)
            elif error.code in _REASONS:
                raise InputError(f"{_REASONS[error.code]} ({error.code}); nothing was granted") from None
            elif error.code != "authorization_pending":
                raise
