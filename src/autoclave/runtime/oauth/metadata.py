"""What an issuer publishes of itself (RFC 8414 or OpenID Connect Discovery), taken only if it is of itself indeed."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url

from autoclave.core import InputError
from autoclave.core.json import validated
from autoclave.runtime.oauth.endpoints import Refused, Unreachable, published
from autoclave.runtime.vault.authorization import Provider, https_url

_ENDPOINTS = {
    "authorization_url": "authorization_endpoint",
    "token_url": "token_endpoint",
    "device_url": "device_authorization_endpoint",
    "revocation_url": "revocation_endpoint",
}


def discovered(issuer: str, given: Provider | None = None, verify: ssl.SSLContext | None = None) -> Provider:
    """A provider with the endpoints that its issuer publishes; those that are `given` are kept.

    Raises:
        InputError: the issuer publishes nothing, or not of itself, or says that it knows no PKCE.
        HostError: it cannot be reached.
    """
    try:
        https_url(issuer)
    except ValueError as error:
        raise InputError(f"issuer: {error}") from None
    failure: Refused | Unreachable | None = None
    of_openid = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    for address in (get_well_known_url(issuer, external=True), of_openid):
        try:
            return _provider(issuer, published(address, verify), given or Provider())
        except (Refused, Unreachable) as error:
            failure = error
    if isinstance(failure, Unreachable):
        raise failure
    raise InputError(f"issuer {issuer}: publishes no settings ({failure}); give --token-url and the others")


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
    revoking = told.get("revocation_endpoint_auth_methods_supported", ["none"])
    if given.client_authentication == "none" and "none" not in revoking:
        del found["revocation_url"]  # it makes tokens void for clients with a password only
    names_itself = told.get("authorization_response_iss_parameter_supported") is True
    plain = {**found, **kept, "issuer": issuer, "names_itself": names_itself}
    return validated(Provider, plain, f"issuer {issuer}")
