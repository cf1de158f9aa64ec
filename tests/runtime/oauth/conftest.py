"""A provider of tokens, a vault, and somebody at a browser."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from autoclave.runtime.oauth import Authorizing, Provider, Wish, discovered
from autoclave.runtime.vault import KeyFile, Vault
from tests.runtime.oauth.servers import (
    HERE,
    NODE_MODULES,
    Browser,
    Certificates,
    Server,
    certificates,
    ended,
    node,
    started,
)

CALM = {
    "slow_down": 0,
    "lose_answers": 0,
    "lose_requests": 0,
    "is_down": False,
    "device_lifetime_s": 300,
    "lifetime_s": 3600,
}


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def running(identity: Certificates) -> Iterator[Server]:
    command = [node(), str(HERE / "provider.mjs"), str(NODE_MODULES), str(identity.certificate), str(identity.key)]
    process, port = started(command, identity)
    server = Server(f"https://localhost:{port}", identity.verify, identity.authority)
    with httpx.Client(verify=identity.verify) as client:

        def control(**changes: Any) -> list[str]:
            return client.post(f"{server.issuer}/control", json=changes).json()["asked"]

        server.control = control
        yield server
    ended(process)


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.control(**CALM)
    yield running
    running.control(**CALM)


@pytest.fixture
def provider(server: Server) -> Provider:
    return discovered(server.issuer, verify=server.verify)


@pytest.fixture
def told() -> list[tuple[str, str, Any]]:
    """What was recorded."""
    return []


@pytest.fixture
def vault(tmp_path: Path, told: list[tuple[str, str, Any]]) -> Vault:
    return Vault(tmp_path / "vault", KeyFile.beside(tmp_path / "vault"), lambda *words: told.append(words))


@pytest.fixture
def browser(server: Server) -> Iterator[Browser]:
    browser = Browser(server.verify)
    yield browser
    browser.close()


@pytest.fixture
def wish(server: Server, provider: Provider) -> Wish:
    return Wish(
        "api", provider, "native", scopes=("openid", "read"), about={"hosts": (server.place,), "allows_private": True}
    )


class Somebody:
    """Sits at the browser while a token is waited for, and opens what is shown."""

    def __init__(self, vault: Vault, server: Server, browser: Browser) -> None:
        self.authorizing = Authorizing(vault, server.verify)
        self._browser = browser

    def authorises(
        self,
        wish: Wish,
        change: Callable[[str], str] = lambda url: url,
        come_back: Callable[[str], str] = lambda url: url,
        *,
        denies: bool = False,
    ) -> tuple[str, ...]:
        """Follow the whole way. `change` is done to the address shown, `come_back` to the one that is sent back to."""
        shown: queue.Queue[str] = queue.Queue()
        failures: list[BaseException] = []

        def sit() -> None:
            try:
                there = come_back(self._browser.sent_back(change(shown.get(timeout=20)), denies=denies))
                assert httpx.get(there, timeout=20).status_code == 200
            except BaseException as error:  # noqa: BLE001  # raised below, in the thread of the test
                failures.append(error)

        thread = threading.Thread(target=sit)
        thread.start()
        try:
            return self.authorizing.by_browser(wish, shown.put, deadline_s=20)
        finally:
            thread.join(20)
            for failure in failures:
                raise failure


@pytest.fixture
def somebody(vault: Vault, server: Server, browser: Browser) -> Somebody:
    return Somebody(vault, server, browser)


def status_at(server: Server, path: str, token: str) -> int:
    """What the service says to a token."""
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{server.issuer}{path}", headers=headers, verify=server.verify).status_code
