"""The way without a browser on this machine: a code that a person types in on another device (RFC 8628)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.oauth.endpoints import Endpoints, Refused, Unreachable
from autoclave.runtime.vault.authorization import https_url

_INTERVAL_S, _SLOWER_S, _MOST_INTERVAL_S = 5.0, 5.0, 60.0
_LIFETIME_S, _LONGEST_LIFE_S = 600.0, 3600.0
_USER_CODE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,62}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class Device:
    """What a person has to do: open `page`, and type in `user_code`. `direct_page` has the code in it already."""

    user_code: str
    page: str
    direct_page: str
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
    return _device(endpoints.device(scopes))


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
            raise InputError("nobody agreed in time: the code has expired. Nothing was granted; authorise again")
        try:
            return endpoints.tokens("device_code", device_code=device.device_code)
        except Unreachable:
            interval = min(interval * 2, _MOST_INTERVAL_S)
        except Refused as error:
            if error.code == "slow_down":
                interval = min(interval + _SLOWER_S, _MOST_INTERVAL_S)
            elif error.code != "authorization_pending":
                raise _reason(error) from None


def _reason(error: Refused) -> InputError:
    if error.code == "access_denied":
        return InputError("it was denied (access_denied); nothing was granted")
    if error.code == "expired_token":
        return InputError("nobody agreed in time: the code has expired (expired_token). Nothing was granted")
    return error


def _device(given: Mapping[str, Any]) -> Device:
    user_code, device_code = given.get("user_code"), given.get("device_code")
    page = given.get("verification_uri") or given.get("verification_url")  # as Google has it
    direct = given.get("verification_uri_complete") or ""
    if not isinstance(device_code, str) or not device_code:
        raise InputError("the provider's answer has no device_code")
    if not isinstance(user_code, str) or not _USER_CODE.fullmatch(user_code):
        raise InputError("the provider's answer has no user_code that could be shown")
    try:
        if not isinstance(page, str) or not isinstance(direct, str):
            raise ValueError("is missing")
        page, direct = https_url(page), https_url(direct) if direct else ""
    except ValueError as error:
        raise InputError(f"the provider's answer: verification_uri: {error}") from None
    return Device(
        user_code,
        page,
        direct,
        device_code,
        _number(given.get("expires_in"), _LIFETIME_S, _LONGEST_LIFE_S),
        _number(given.get("interval"), _INTERVAL_S, _MOST_INTERVAL_S),
    )


def _number(given: object, default: float, most: float) -> float:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return float(min(given, most)) if is_number and given > 0 else default  # pyright: ignore[reportOperatorIssue, reportArgumentType]
