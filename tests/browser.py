"""A headless Chromium that tests drive by the DevTools protocol, over a pipe: no driver, no port, no network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

KEYS = {"/": "Slash", "Escape": "Escape"}


class Browser:
    """One tab. Scripts of `evaluate` are ours: the security policy of a page does not hold them."""

    def __init__(self, answers: BinaryIO, orders: BinaryIO) -> None:
        self._answers, self._orders = answers, orders
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What the tab reported: requests for files, messages of the console."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, page: Path | str) -> None:
        """Load a file or a URL, to its end."""
        self.events.clear()
        self._call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def evaluate(self, script: str) -> Any:
        """The value of a script in the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Keys, as a user presses them."""
        for key in keys:
            text = key if len(key) == 1 else ""
            event = {"key": key, "code": KEYS.get(key, f"Key{key.upper()}"), "text": text}
            self._call("Input.dispatchKeyEvent", type="keyDown", **event)
            self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def point_at(self, selector: str) -> None:
        """Move the pointer to the middle of the first element of `selector`."""
        box = self.evaluate(
            f"(() => {{ const element = document.querySelector({json.dumps(selector)});"
            " element.scrollIntoView({ block: 'center', behavior: 'instant' });"
            " const box = element.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def _call(self, method: str, **words: Any) -> dict[str, Any]:
        self._number += 1
        order = {"id": self._number, "method": method, "params": words}
        if self._session:
            order["sessionId"] = self._session
        self._orders.write(json.dumps(order).encode() + b"\0")
        self._orders.flush()
        while (answer := self._receive()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser ended"
            message += byte
        found = json.loads(message)
        if "method" in found:
            self.events.append(found)
        return found


@contextmanager
def headless(profile: Path) -> Generator[Browser]:
    """A browser whose files are in the folder `profile`; skips where there is no Chromium."""
    command = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if command is None:
        pytest.skip("no Chromium; make setup-system installs it")
    orders, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
    script = f'exec 3<&{orders} 4>&{answers}; exec "$0" "$@"'  # the protocol's descriptors are 3 and 4
    process = subprocess.Popen(
        ["bash", "-c", script, command, *flags, f"--user-data-dir={profile}"],
        pass_fds=(orders, answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(orders)
    os.close(answers)
    try:
        with os.fdopen(from_browser, "rb") as reader, os.fdopen(to_browser, "wb") as writer:
            yield Browser(reader, writer)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
