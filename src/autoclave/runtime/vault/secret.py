"""Secrets of the vault: the key of a service, the only place where it may go, and what renews an OAuth 2 token.

Data only: the flows are in `autoclave.runtime.oauth`.
"""

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
    """Return an https URL unchanged. Raises ValueError where it is not one, or has a user or a fragment."""
    parts = urlsplit(given)
    is_plain = given.isascii() and given.isprintable() and " " not in given
    if parts.scheme != "https" or not parts.hostname or not is_plain:
        raise ValueError(f"{given[:200]!r} must begin with https:// and a host")
    if "@" in parts.netloc or "#" in given:
        raise ValueError("must have no user, password or fragment")
    return given


class Provider(Config):
    """The provider of tokens for a service. Every URL is https."""

    model_config = ConfigDict(extra="ignore")  # a vault may have settings of earlier versions

    issuer: str = ""
    """The issuer of the tokens. Its published metadata is read once, and the endpoints are kept here."""
    authorization_url: str = ""
    """The page to open in the browser."""
    token_url: str = ""
    device_url: str = ""
    """The endpoint of the device flow; empty if there is none."""
    revocation_url: str = ""
    """The endpoint that revokes tokens; empty if there is none."""
    client_authentication: Literal["none", "basic", "post"] = "none"
    """Authentication of the client: none (public), in a header, or in the form."""
    names_itself: bool = False
    """True if its responses name the issuer (RFC 9207). A response that does not is then refused."""
    redirect_port: int = Field(default=0, ge=0, le=65_535)
    """Port of the redirect URL on this machine; 0 for any free one, as in RFC 8252."""

    @field_validator("issuer", "authorization_url", "token_url", "device_url", "revocation_url")
    @classmethod
    def _is_https(cls, given: str) -> str:
        return given if not given else https_url(given)


class Authorization(Config):
    """An OAuth 2 authorization, and the means to renew it. The access token is the value of its `Secret`."""

    model_config = ConfigDict(extra="ignore")

    provider: Provider
    client_id: str = Field(min_length=1)
    client_secret: str = Field(default="", repr=False)
    refresh_token: str = Field(default="", repr=False)
    scopes: tuple[str, ...] = Field(default=(), strict=False)
    """The granted scopes."""
    expires_at: float = 0.0
    """The expiry of the access token, in seconds since 1970; 0 if unknown."""
    ended: str = ""
    """The reason why it cannot be renewed; a person must authorise again."""

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
    """Patterns as in grants."""
    place: Literal["header", "query", "basic"] = "header"
    """In a header, as a parameter of the query, or as the password of basic authentication."""
    name: str = Field(default="Authorization", pattern=_TOKEN)
    """Of the header or of the parameter."""
    is_file: bool = False
    """True if the dummy is in a file, with its path in the variable, and not in the variable itself."""
    allows_private: bool = False
    """True if the hosts may be on a private network or on this machine."""
    authorization: Authorization | None = None
    """The renewal of the value by OAuth 2; None for a key that was entered by hand."""

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
