"""One try to be authorised in a browser: the address it is sent to, and what it comes back with. Pure.

Three things bind the answer to the question. `state` says that the browser which comes back is the one that was sent.
The verifier, of which only the digest is sent ahead (PKCE, S256), makes a code worthless to whoever else gets hold of
it. And the name of the issuer (RFC 9207) says that the code is of the provider that was asked, not of another one.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from autoclave.core import InputError
from autoclave.runtime.oauth.endpoints import shown_code
from autoclave.runtime.vault.authorization import Provider


def new_state() -> str:
    """What nobody can guess, to know the browser again by."""
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
