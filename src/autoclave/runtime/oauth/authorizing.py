"""From a person's consent to a token in the vault: by a browser on this machine, or by a code for another device.

Three things bind the answer of a browser to the question. `state` says that the browser which comes back is the one
that was sent. The verifier, of which only the digest is sent ahead (PKCE, S256), makes a code worthless to whoever else
gets hold of it. And the name of the issuer (RFC 9207) says that the code is of the provider that was asked.
"""

from __future__ import annotations

import hmac
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from autoclave.core import AutoclaveError, InputError
from autoclave.runtime.oauth.device import Device, begun, granted
from autoclave.runtime.oauth.endpoints import Endpoints, answer_of, described, shown_code
from autoclave.runtime.oauth.loopback import Loopback
from autoclave.runtime.vault.authorization import Authorization, Provider
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.vault import Vault, secret_from

_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants a service to be used for.

    Attributes:
        service: its name in the vault.
        provider: who is asked.
        client_id: what this program is registered as with the provider.
        client_secret: empty for a public client.
        scopes: what to ask for; empty for what the provider's settings have.
        about: settings of the `Secret`: hosts, methods, paths. Those of before stay where nothing is said.
        is_anew: ask even if everything is granted already.
    """

    service: str
    provider: Provider
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_anew: bool = False


def wish_again(vault: Vault, service: str) -> Wish | None:
    """What a service was authorised by before, to authorise it again or for more; None if it never was."""
    if service not in vault.names():
        return None
    held = vault.secret(service, "to authorise again").authorization
    return Wish(service, held.provider, held.client_id, held.client_secret) if held else None


@dataclass(frozen=True, slots=True)
class Granted:
    """What came of it. `asked` is empty when all of it was granted before, and nobody was asked."""

    scopes: tuple[str, ...]
    asked: tuple[str, ...] = ()
    not_granted: tuple[str, ...] = ()


class Authorizing:
    """Has services authorised, and puts their tokens into `vault`.

    `verify`: the certificates that providers are verified by; None for those of the system.
    """

    def __init__(
        self, vault: Vault, verify: ssl.SSLContext | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._vault, self._verify, self._now = vault, verify, now

    def by_browser(self, wish: Wish, show: Callable[[str], object], deadline_s: float = _DEADLINE_S) -> Granted:
        """Wait for a browser that was sent to the address which is shown.

        Raises:
            InputError: it was denied, or the answer is not one to this question. What was granted before stays.
            HostError: the provider cannot be reached, or the port is taken.
        """

        def ask(endpoints: Endpoints, scopes: tuple[str, ...]) -> Mapping[str, Any]:
            provider = endpoints.provider
            if not provider.authorization_url:
                raise InputError("no address for the browser is known; give --issuer, --authorization-url or --device")
            state = new_state()
            with Loopback(state, provider.redirect_port) as loopback:
                attempt = Attempt(loopback.redirect_uri, state)
                show(authorization_url(provider, wish.client_id, scopes, attempt))
                code = code_of(loopback.query(deadline_s), provider, attempt)
            return endpoints.tokens(
                "authorization_code", code=code, redirect_uri=attempt.redirect_uri, code_verifier=attempt.verifier
            )

        return self._granted(wish, ask)

    def by_device(
        self, wish: Wish, show: Callable[[Device], object], wait: Callable[[float], object] = time.sleep
    ) -> Granted:
        """Wait for a person who types in the code which is shown, on any device.

        Raises:
            InputError, HostError: as `by_browser`.
        """

        def ask(endpoints: Endpoints, scopes: tuple[str, ...]) -> Mapping[str, Any]:
            device = begun(endpoints, joined(endpoints.provider, scopes))
            show(device)
            return granted(endpoints, device, wait)

        return self._granted(wish, ask)

    def _granted(self, wish: Wish, ask: Callable[[Endpoints, tuple[str, ...]], Mapping[str, Any]]) -> Granted:
        before = self._before(wish)
        had = before.scopes if before else ()
        is_valid = before is not None and not before.ended
        wanted = wish.scopes or wish.provider.scopes
        missing = tuple(scope for scope in wanted if scope not in had)
        if is_valid and not missing and not wish.is_anew:
            return Granted(had)
        is_added = wish.provider.adds_scopes and is_valid and not wish.is_anew
        asked = missing if is_added else tuple(dict.fromkeys((*had, *wanted)))
        endpoints = Endpoints(wish.provider, wish.client_id, wish.client_secret, self._verify)
        try:
            answer = answer_of(ask(endpoints, asked), wish.provider)
        except AutoclaveError as error:
            raise described(error, wish.service) from None
        told = answer.scopes if answer.scopes is not None else asked
        scopes = tuple(dict.fromkeys((*had, *told))) if is_added else told
        if lost := [scope for scope in had if is_valid and scope not in scopes]:
            raise InputError(
                f"service {wish.service}: the new token would be without {', '.join(lost)}, which was granted before; "
                "the old one is kept. Remove it first if that is meant"
            )
        now = self._now()
        authorization = Authorization(
            provider=wish.provider,
            client_id=wish.client_id,
            client_secret=wish.client_secret,
            refresh_token=answer.refresh_token,
            scopes=scopes,
            obtained_at=now,
            expires_at=now + answer.lifetime_s if answer.lifetime_s else 0.0,
        )
        self._keep(wish, answer.access_token, authorization)
        return Granted(scopes, asked, tuple(scope for scope in asked if scope not in scopes))

    def _before(self, wish: Wish) -> Authorization | None:
        """What was granted to the same client before.

        Raises:
            InputError: the service has a key, or another client's token.
        """
        if wish.service not in self._vault.names():
            _ = _secret(wish, "x", None, {})  # what is wrong with its settings is said before anybody is asked
            return None
        held = self._vault.secret(wish.service, "to authorise more").authorization
        if held is None:
            raise InputError(f"service {wish.service}: has a key that was typed in; remove it first")
        is_same = (held.client_id, held.provider.token_url) == (wish.client_id, wish.provider.token_url)
        if not is_same:
            raise InputError(f"service {wish.service}: has a token of another client or provider; remove it first")
        return held

    def _keep(self, wish: Wish, token: str, authorization: Authorization) -> None:
        with self._vault.alone():  # no renewal of the old token comes after this
            has_one = wish.service in self._vault.names()
            before = self._vault.secret(wish.service, "to authorise more").model_dump() if has_one else {}
            secret = _secret(wish, token, authorization, before)
            self._vault.put(secret, "authorise", scopes=list(authorization.scopes), hosts=list(secret.hosts))


def _secret(wish: Wish, token: str, authorization: Authorization | None, before: Mapping[str, Any]) -> Secret:
    given = {**before, **wish.about, "service": wish.service, "value": token, "authorization": authorization}
    return secret_from(given, f"service {wish.service}")


# --- One try in a browser --------------------------------------------------------------------------------------------


def new_state() -> str:
    """An unguessable value by which the browser is recognised."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one try is known by. Never used for another."""

    redirect_uri: str
    state: str = field(default_factory=new_state, repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)


def authorization_url(provider: Provider, client_id: str, scopes: Sequence[str], attempt: Attempt) -> str:
    """Where the browser is sent."""
    asked = {provider.scope_parameter: joined(provider, scopes)} if scopes else {}
    return prepare_grant_uri(
        provider.authorization_url,
        client_id,
        "code",
        redirect_uri=attempt.redirect_uri,
        state=attempt.state,
        code_challenge=create_s256_code_challenge(attempt.verifier),
        code_challenge_method="S256",
        resource=provider.resource or None,
        **asked,
        **provider.parameters,
    )


def joined(provider: Provider, scopes: Sequence[str]) -> str:
    """Scopes as the provider has them in one parameter."""
    return provider.scope_separator.join(scopes)


def code_of(query: str, provider: Provider, attempt: Attempt) -> str:
    """The code that the browser came back with.

    Raises:
        InputError: it is the answer to another question, of another provider, or a refusal.
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    given = dict(pairs)
    if len(given) != len(pairs):
        raise InputError("the browser came back with a parameter given twice; nothing was taken from it")
    if not hmac.compare_digest(given.get("state", "").encode(), attempt.state.encode()):
        raise InputError(
            "the browser came back with another state than it was sent with: the answer is not to this question. "
            "Nothing was taken from it; authorise again, and open no address that somebody else gave you"
        )
    issuer = given.get("iss")
    if (issuer is not None or provider.names_itself) and provider.issuer and issuer != provider.issuer:
        said = "another issuer" if issuer is not None else "no issuer"
        raise InputError(f"the answer names {said} than {provider.issuer}, which was asked (mix-up); nothing was taken")
    if "error" in given:
        code = shown_code(given["error"], (attempt.state, attempt.verifier)) or "without a reason that could be shown"
        told = "it was denied" if code == "access_denied" else "the provider refused it"
        raise InputError(f"{told} ({code}); nothing was granted")
    if not given.get("code"):
        raise InputError("the browser came back without a code; nothing was granted")
    return given["code"]
