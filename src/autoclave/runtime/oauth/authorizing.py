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
from autoclave.core.json import validated
from autoclave.runtime.oauth.device import Device, begun, granted
from autoclave.runtime.oauth.endpoints import Endpoints, answer_of, described, shown_code
from autoclave.runtime.oauth.loopback import Loopback
from autoclave.runtime.vault.secret import Authorization, Provider, Secret
from autoclave.runtime.vault.vault import Vault

_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants a service to be used for.

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


class Authorizing:
    """Has services authorised, and puts their tokens into `vault`.

    `verify`: the certificates that providers are verified by; None for those of the system.
    """

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

        def ask(endpoints: Endpoints, scopes: tuple[str, ...]) -> Mapping[str, Any]:
            provider = endpoints.provider
            if not provider.authorization_url:
                raise InputError("no address for the browser is known; give --issuer, --authorization-url or --device")
            state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
            with Loopback(state, provider.redirect_port) as loopback:
                show(authorization_url(provider, wish.client_id, scopes, loopback.redirect_uri, state, verifier))
                code = code_of(loopback.query(deadline_s), provider, state)
            return endpoints.tokens(
                "authorization_code", code=code, redirect_uri=loopback.redirect_uri, code_verifier=verifier
            )

        return self._granted(wish, ask)

    def by_device(
        self, wish: Wish, show: Callable[[Device], object], wait: Callable[[float], object] = time.sleep
    ) -> tuple[str, ...]:
        """Wait for a person who types in the code which is shown, on any device; the scopes that are granted.

        Raises:
            InputError, HostError: as `by_browser`.
        """

        def ask(endpoints: Endpoints, scopes: tuple[str, ...]) -> Mapping[str, Any]:
            device = begun(endpoints, " ".join(scopes))
            show(device)
            return granted(endpoints, device, wait)

        return self._granted(wish, ask)

    def _granted(self, wish: Wish, ask: Callable[[Endpoints, tuple[str, ...]], Mapping[str, Any]]) -> tuple[str, ...]:
        before = self._before(wish)
        had = before.scopes if before else ()
        asked = tuple(dict.fromkeys((*had, *wish.scopes)))
        if before and not before.ended and asked == had:
            return had
        wanted = Authorization(
            provider=wish.provider, client_id=wish.client_id, client_secret=wish.client_secret, scopes=asked
        )
        try:
            token, authorization = answer_of(ask(Endpoints(wanted, self._verify), asked), wanted, self._now())
        except AutoclaveError as error:
            raise described(error, wish.service) from None
        with self._vault.alone():  # no renewal of the old token comes after this
            has_one = wish.service in self._vault.names()
            kept = self._vault.secret(wish.service, "to authorise more").model_dump() if has_one else {}
            secret = _secret(wish, token, authorization, kept)
            self._vault.put(secret, "authorise", scopes=list(authorization.scopes), hosts=list(secret.hosts))
        return authorization.scopes

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
        if (held.client_id, held.provider.token_url) != (wish.client_id, wish.provider.token_url):
            raise InputError(f"service {wish.service}: has a token of another client or provider; remove it first")
        return held


def _secret(wish: Wish, token: str, authorization: Authorization | None, before: Mapping[str, Any]) -> Secret:
    given = {**before, **wish.about, "service": wish.service, "value": token, "authorization": authorization}
    return validated(Secret, given, f"service {wish.service}")


def authorization_url(
    provider: Provider, client_id: str, scopes: Sequence[str], redirect_uri: str, state: str, verifier: str
) -> str:
    """Where the browser is sent."""
    return prepare_grant_uri(
        provider.authorization_url,
        client_id,
        "code",
        redirect_uri=redirect_uri,
        scope=" ".join(scopes) or None,
        state=state,
        code_challenge=create_s256_code_challenge(verifier),
        code_challenge_method="S256",
    )


def code_of(query: str, provider: Provider, state: str) -> str:
    """The code that the browser came back with.

    Raises:
        InputError: it is the answer to another question, of another provider, or a refusal.
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    given = dict(pairs)
    if len(given) != len(pairs):
        raise InputError("the browser came back with a parameter given twice; nothing was taken from it")
    if not hmac.compare_digest(given.get("state", "").encode(), state.encode()):
        raise InputError("the browser came back with another state than it was sent with; nothing was taken from it")
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
