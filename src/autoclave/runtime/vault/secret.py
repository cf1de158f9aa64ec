"""What the vault keeps for a service: its key, and the only place where that may go."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from autoclave.config import Config
from autoclave.runtime.vault.authorization import Authorization

_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:[0-9]{1,5})?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Secret(Config):
    """The key of a service. It is put into requests to its own hosts alone, at its own place."""

    service: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    value: str = Field(min_length=1, max_length=65_536, repr=False)
    hosts: tuple[str, ...] = Field(strict=False, min_length=1)
    """Such as `api.example.com`, `*.example.com` or `api.example.com:8443`; 443 without a port."""
    methods: tuple[str, ...] = Field(default=("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"), strict=False)
    paths: tuple[str, ...] = Field(default=("/**",), strict=False)
    """Patterns as grants have them."""
    place: Literal["header", "query", "basic"] = "header"
    """In a header, as a parameter of the query, or as the password of basic authentication."""
    name: str = "Authorization"
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
        return given

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for host in given:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} must be a name in small letters, with *. before it or :PORT after it")
            port = host.partition(":")[2]
            if port and not 0 < int(port) < 1 << 16:
                raise ValueError(f"{host!r}: the port must be from 1 to 65535")
        return given

    @field_validator("methods")
    @classmethod
    def _are_methods(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for method in given:
            if not _TOKEN.fullmatch(method):
                raise ValueError(f"{method!r} must be the name of a method, such as GET")
        return tuple(method.upper() for method in given)

    @field_validator("name")
    @classmethod
    def _is_token(cls, given: str) -> str:
        if not _TOKEN.fullmatch(given):
            raise ValueError(f"{given!r} must be the name of a header or parameter")
        return given
