"""What the vault keeps for a service: its key, the only place where that may go, and what renews it if it was got by
OAuth 2. Data only: who asks whom for tokens is in `autoclave.runtime.oauth`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, StringConstraints, field_validator

from autoclave.config import Config
from autoclave.runtime.vault.targets import AMBIGUOUS

_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:[0-9]{1,5})?")
_TOKEN = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
_LEEWAY_S = 60.0


def https_url(given: str) -> str:
    """An address of https, as it is. Raises ValueError where it is none, has a user in it or a fragment."""
    parts = urlsplit(given)
    is_plain = given.isascii() and given.isprintable() and " " not in given
    if parts.scheme != "https" or not parts.hostname or not is_plain:
        raise ValueError(f"{given[:200]!r} must begin with https:// and a host")
    if "@" in parts.netloc or "#" in given:
        raise ValueError("must have no user, password or fragment")
    return given


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
        """Return whether the access token has expired, or will within a minute."""
        return bool(self.expires_at) and now > self.expires_at - _LEEWAY_S

    def has_expired(self, now: float) -> bool:
        return bool(self.expires_at) and now >= self.expires_at


class Secret(Config):
    """The key of a service. It is put into requests to its own hosts alone, at its own place."""

    service: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    value: str = Field(min_length=1, max_length=65_536, repr=False)
    hosts: tuple[str, ...] = Field(strict=False, min_length=1)
    """Such as `api.example.com`, `*.example.com` or `api.example.com:8443`; 443 without a port."""
    methods: tuple[Annotated[str, StringConstraints(to_upper=True, pattern=_TOKEN)], ...] = Field(
        default=("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"), strict=False
    )
    paths: tuple[str, ...] = Field(default=("/**",), strict=False)
    """Patterns as grants have them."""
    place: Literal["header", "query", "basic"] = "header"
    """In a header, as a parameter of the query, or as the password of basic authentication."""
    name: str = Field(default="Authorization", pattern=_TOKEN)
    """Of the header or of the parameter."""
    is_file: bool = False
    """Whether code finds the dummy in a file, whose path is in the variable, and not in the variable itself."""
    allows_private: bool = False
    """Whether the hosts may be on a private network or on this machine."""
    authorization: Authorization | None = None
    """How the value is renewed, if it was got by OAuth 2; None for a key that somebody typed in."""

    @property
    def variable(self) -> str:
        """The environment variable in which code finds the dummy, or the path to it."""
        stem = self.service.upper().replace("-", "_")
        return f"{stem}_TOKEN_FILE" if self.is_file else f"{stem}_TOKEN"

    @field_validator("value")
    @classmethod
    def _is_printable(cls, given: str) -> str:
        if any(ord(character) < 32 or ord(character) == 127 for character in given):
            raise ValueError("must have no control characters: it goes into a line of a request")
        if given != given.strip():
            raise ValueError("begins or ends with a space")
        return given

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for host in given:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} must be a name in small letters, with *. before it or :PORT after it")
            if not 0 < int(host.partition(":")[2] or 443) < 1 << 16:
                raise ValueError(f"{host!r}: the port must be from 1 to 65535")
        return given

    @field_validator("paths")
    @classmethod
    def _can_be_matched(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in given:
            if not pattern.startswith(("/", "**")) or AMBIGUOUS.search(pattern.replace("?", "x")):
                raise ValueError(
                    f"{pattern!r}: no request can match it. Fix: begin with /, and write characters as they are, "
                    "without %; those that can be read in several ways are never let through"
                )
        return given
