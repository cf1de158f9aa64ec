"""The way without a browser on this machine: a code that a person types in on another device (RFC 8628)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.oauth.endpoints import Endpoints, Refused, Unreachable
from autoclave.runtime.vault.secret import https_url

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL_S, _SLOWER_S, _MOST_INTERVAL_S = 5.0, 5.0, 60.0
_LIFETIME_S, _LONGEST_LIFE_S = 600.0, 3600.0
_USER_CODE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,62}[\x21-\x7e])?")
_REASONS = {"access_denied": "it was denied", "expired_token": "nobody agreed in time: the code has expired"}


@dataclass(frozen=True, slots=True)
class Device:
    """What a person has to do: open `page`, and type in `user_code`."""

    user_code: str
    page: str
    device_code: str = field(repr=False)
    lifetime_s: float
    interval_s: float


def begun(endpoints: Endpoints, scopes: str) -> Device:
    """A new code.

    Raises:
        InputError: the provider refuses, or answers what cannot be shown to a person.
        HostError: it cannot be reached.
    """
    if not endpoints.provider.device_url:
        raise InputError("the provider has no device flow that is known here; leave out --device, or give --device-url")
    given = endpoints.device(scopes)
    user_code, device_code = given.get("user_code"), given.get("device_code")
    if not isinstance(device_code, str) or not device_code:
        raise InputError("the provider's answer has no device_code")
    if not isinstance(user_code, str) or not _USER_CODE.fullmatch(user_code):
        raise InputError("the provider's answer has no user_code that could be shown")
    try:
        page = https_url(str(given.get("verification_uri") or given.get("verification_url")))  # as Google has it
    except ValueError as error:
        raise InputError(f"the provider's answer: verification_uri: {error}") from None
    lifetime_s = _number(given.get("expires_in"), _LIFETIME_S, _LONGEST_LIFE_S)
    return Device(
        user_code, page, device_code, lifetime_s, _number(given.get("interval"), _INTERVAL_S, _MOST_INTERVAL_S)
    )


def granted(
    endpoints: Endpoints,
    device: Device,
    wait: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Mapping[str, Any]:
    """What the token endpoint answers as soon as the person has agreed. Asks no faster than the provider wants.

    Raises:
        InputError: it was denied, or nobody agreed in time.
    """
    until, interval = now() + device.lifetime_s, device.interval_s
    while True:
        wait(interval)
        if now() >= until:
            raise InputError("nobody agreed in time: the code has expired; nothing was granted. Authorise again")
        try:
            return endpoints.tokens(_GRANT, device_code=device.device_code)
        except Unreachable:
            interval = min(interval * 2, _MOST_INTERVAL_S)
        except Refused as error:
            if error.code == "slow_down":
                interval = min(interval + _SLOWER_S, _MOST_INTERVAL_S)
            elif error.code in _REASONS:
                raise InputError(f"{_REASONS[error.code]} ({error.code}); nothing was granted") from None
            elif error.code != "authorization_pending":
                raise


def _number(given: object, default: float, most: float) -> float:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return float(min(given, most)) if is_number and given > 0 else default  # pyright: ignore[reportOperatorIssue, reportArgumentType]
