"""What a provider answers, checked: tokens. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.vault.authorization import Provider

_LONGEST_LIFE_S = 10 * 366 * 86_400
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")


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
