"""What the vault keeps beside an access token that was got by OAuth 2, so that another can be got when it expires.

Data only: who asks whom for what is in `autoclave.runtime.oauth`.
"""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from autoclave.config import Config

_LEEWAY_S = 60.0


class Provider(Config):
    """Where tokens for a service are got, and how. Every address is one of https."""

    model_config = ConfigDict(extra="ignore")  # a vault may have settings that are not used any more

    issuer: str = ""
    """Who gives the tokens. Its published settings are read once, and the endpoints are kept here."""
    authorization_url: str = ""
    """Where the browser is sent."""
    token_url: str = ""
    device_url: str = ""
    """Where the code for another device is got; empty where there is no such way."""
    revocation_url: str = ""
    """Where tokens are made void; empty where there is no such way."""
    client_authentication: Literal["none", "basic", "post"] = "none"
    """How the client says who it is: not at all (public), in a header, or in the form."""
    names_itself: bool = False
    """Whether it says in its answers who it is (RFC 9207). An answer that does not is then refused."""
    redirect_port: int = Field(default=0, ge=0, le=65_535)
    """Of the address on this machine that the browser comes back to; 0 for any free one, as RFC 8252 has it."""

    @field_validator("issuer", "authorization_url", "token_url", "device_url", "revocation_url")
    @classmethod
    def _is_https(cls, given: str) -> str:
        return given if not given else https_url(given)

    @model_validator(mode="after")
    def _has_an_issuer_to_compare(self) -> Self:
        if self.names_itself and not self.issuer:
            raise ValueError("names_itself needs issuer, which the name is compared with")
        return self


class Authorization(Config):
    """What was granted, and the means to renew it. The access token itself is the value of its `Secret`."""

    model_config = ConfigDict(extra="ignore")

    provider: Provider
    client_id: str = Field(min_length=1)
    client_secret: str = Field(default="", repr=False)
    refresh_token: str = Field(default="", repr=False)
    scopes: tuple[str, ...] = Field(default=(), strict=False)
    """What was granted."""
    expires_at: float = 0.0
    """When the access token expires, in seconds since 1970; 0 if nobody said."""
    ended: str = ""
    """Why it cannot be renewed any more; a person has to authorise again."""

    def is_expiring(self, now: float) -> bool:
        """Whether the access token has expired, or will within a minute."""
        return bool(self.expires_at) and now > self.expires_at - _LEEWAY_S

    def has_expired(self, now: float) -> bool:
        """Whether it has expired already."""
        return bool(self.expires_at) and now >= self.expires_at


def https_url(given: str) -> str:
    """An address of https, as it is.

    Raises:
        ValueError: it is none, has a user in it or a fragment.
    """
    parts = urlsplit(given)
    is_plain = given.isascii() and given.isprintable() and " " not in given
    if parts.scheme != "https" or not parts.hostname or not is_plain:
        raise ValueError(f"{given[:200]!r} must begin with https:// and a host")
    if "@" in parts.netloc or "#" in given:
        raise ValueError("must have no user, password or fragment")
    return given
