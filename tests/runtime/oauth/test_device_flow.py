"""Authorisation on another device: asked as fast as the provider wants, until it is agreed to, denied or expired."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.oauth import Authorization, Authorizing, Device, Provider, Wish
from autoclave.runtime.oauth.authorizing import begun, granted
from autoclave.runtime.oauth.endpoints import Endpoints
from autoclave.runtime.vault import Vault
from tests.runtime.oauth.conftest import status_at
from tests.runtime.oauth.servers import Browser, Server


class Waiting:
    """Keeps how long it was waited for, and does what happens meanwhile: one of `events` at each time."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.intervals: list[float] = []
        self._events = list(events)

    def __call__(self, interval_s: float) -> None:
        self.intervals.append(interval_s)
        if self._events:
            self._events.pop(0)()


def nothing() -> None:
    """Nothing has been done yet."""


def test_a_code_that_is_typed_in_elsewhere_gives_a_token(
    server: Server, vault: Vault, browser: Browser, wish: Wish, told: list[Any]
):
    shown: list[Device] = []
    waiting = Waiting(nothing, nothing, lambda: browser.types_in(shown[0].page, shown[0].user_code))
    before = server.control()
    given = Authorizing(vault, server.verify).by_device(wish, shown.append, waiting)
    assert given == ("openid", "read")
    assert status_at(server, "/api/things", vault.secret("api", "").value) == 200
    assert waiting.intervals == [5.0, 5.0, 5.0]  # the default of RFC 8628 where the provider names none
    assert len(server.control()) == len(before) + 3 + 1  # two were told to wait, and the request to the service
    assert shown[0].device_code not in repr(shown[0])
    assert told[0][2]["access"] == "authorise"


def test_who_is_told_to_slow_down_does(server: Server, vault: Vault, browser: Browser, wish: Wish):
    shown: list[Device] = []
    server.control(slow_down=2)
    waiting = Waiting(nothing, nothing, nothing, lambda: browser.types_in(shown[0].page, shown[0].user_code))
    Authorizing(vault, server.verify).by_device(wish, shown.append, waiting)
    assert waiting.intervals == [5.0, 10.0, 15.0, 15.0]


def test_who_gets_no_answer_asks_less_often(server: Server, vault: Vault, browser: Browser, wish: Wish):
    shown: list[Device] = []

    def agree() -> None:
        server.control(is_down=False)
        browser.types_in(shown[0].page, shown[0].user_code)

    waiting = Waiting(lambda: server.control(lose_requests=1), lambda: server.control(is_down=True), agree)
    Authorizing(vault, server.verify).by_device(wish, shown.append, waiting)
    assert waiting.intervals == [5.0, 10.0, 20.0]


def test_who_is_denied_elsewhere_gets_nothing(server: Server, vault: Vault, browser: Browser, wish: Wish):
    shown: list[Device] = []
    waiting = Waiting(nothing, lambda: browser.types_in(shown[0].page, shown[0].user_code, denies=True))
    with pytest.raises(InputError, match=r"service api: it was denied \(access_denied\)"):
        Authorizing(vault, server.verify).by_device(wish, shown.append, waiting)
    assert vault.names() == []


def test_a_code_that_the_provider_calls_expired_is(server: Server, provider: Provider):
    """Our own clock stands still meanwhile, so that the provider is the one who says it."""
    server.control(device_lifetime_s=1)
    endpoints = Endpoints(Authorization(provider=provider, client_id="native"), server.verify)
    pause = threading.Event()
    with pytest.raises(InputError, match=r"the code has expired \(expired_token\)"):
        granted(endpoints, begun(endpoints, "openid"), lambda _: pause.wait(0.1), now=lambda: 0.0)


def test_no_one_is_asked_after_the_code_has_expired_by_our_clock(server: Server, provider: Provider):
    clock = [0.0]
    endpoints = Endpoints(Authorization(provider=provider, client_id="native"), server.verify)
    device = dataclasses.replace(begun(endpoints, "openid"), lifetime_s=12.0)
    before = server.control()

    def wait(interval_s: float) -> None:
        clock[0] += interval_s

    with pytest.raises(InputError, match="nobody agreed in time: the code has expired"):
        granted(endpoints, device, wait, now=lambda: clock[0])
    assert len(server.control()) == len(before) + 2  # at 5 and 10 seconds


def test_a_provider_without_a_device_flow_says_so(vault: Vault, server: Server, wish: Wish):
    without = dataclasses.replace(wish, provider=wish.provider.model_copy(update={"device_url": ""}))
    with pytest.raises(InputError, match="no device flow that is known here"):
        Authorizing(vault, server.verify).by_device(without, lambda _: None)
