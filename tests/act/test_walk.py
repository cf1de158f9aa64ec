"""docs/tutorials/agent-walk.md: its commands print what it says, and its pictures are of this page.

    AUTOCLAVE_RECORD=1 pytest tests/act/test_walk.py

writes what was printed into the page, and takes the pictures again.
"""

from __future__ import annotations

import base64
import io
import os
import re
import shlex
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from PIL import Image

from tests.browser import Browser, headless
from tests.forked import ForkedCommands
from tests.postgresql import Postgres, postgres
from tests.review.test_in_browser import until
from tests.runtime.conftest import sealing_host
from tests.runtime.databases.shops import prepare
from tests.runtime.rest.acting import KEY, Reader
from tests.runtime.rest.servers import kinto_running

__all__ = ["postgres", "sealing_host"]
PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "agent-walk.md"
MOST_BYTES = 150_000


class Walk:
    """The page, block by block, in a folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], commands: ForkedCommands, browser: Browser) -> None:
        self.folder, self.environment, self.commands, self.browser = folder, environment, commands, browser
        self.printed = list[str]()
        self._num_pictures = 0

    def run(self, block: str) -> None:
        """Run a block: commands of `autoclave` in forks, which is faster, all else in a shell."""
        lines = [block] if "<<" in block else block.splitlines()
        self.printed.append(
            "".join(self._forked(each) if "autoclave act " in each else self._in_shell(each) for each in lines)
        )

    def _forked(self, line: str) -> str:
        words = shlex.split(string.Template(line).substitute(self.environment))
        given = self.environment[words[1]] if words[0] == "printenv" else ""
        words = words[words.index("autoclave") + 1 :]
        ended = self.commands.run(self.folder, *words, input=given, env=self.environment)
        assert ended.returncode == 0, (line, ended.stderr)
        return ended.stdout

    def _in_shell(self, commands: str) -> str:
        commands = commands.replace("examples/", f"{PAGE.parents[2]}/examples/")
        search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "-ec", commands],
            cwd=self.folder,
            env=self.environment | {"PATH": search},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def picture(self) -> None:
        self._num_pictures += 1
        content = base64.b64decode(self.browser._call("Page.captureScreenshot")["data"])
        picture = PAGE.with_name(f"{PAGE.stem}-{self._num_pictures}.png")
        if os.environ.get("AUTOCLAVE_RECORD"):
            Image.open(io.BytesIO(content)).quantize(128).save(picture, optimize=True)
        assert picture.read_bytes()[16:24] == content[16:24]  # width and height
        assert picture.stat().st_size < MOST_BYTES

    def review(self, command: str) -> None:
        """Start the server of the page, and do in the browser what is told below it."""
        words = [sys.executable, "-m", *shlex.split(command)]
        server = subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            self.undo_and_commit(server.stdout.readline().split()[-1])
        finally:
            server.terminate()
            server.communicate(timeout=60)

    def undo_and_commit(self, url: str) -> None:
        page = self.browser
        size = {"width": 1280, "height": 780, "deviceScaleFactor": 1, "mobile": False}
        page._call("Emulation.setDeviceMetricsOverride", **size)
        page.open(url)
        until(page, "document.querySelectorAll('.row').length", 6)
        page.evaluate(f"{row('price * 1.1')}.querySelector('button').click()")
        until(page, "document.querySelectorAll('.rows tbody tr').length", 6)
        until(page, "document.querySelector('#audit').textContent.endsWith('as they were written')")
        self.picture()
        self.select("price * 1.1", "create_record")
        page.press("u")
        until(page, "document.querySelectorAll('dialog[open] li').length", 3)
        self.picture()
        page.evaluate("document.querySelector('dialog .main').click()")
        until(page, "document.querySelectorAll('.row.undone').length", 3)
        self.select("edit", "words.txt")
        page.press("c")
        until(page, "document.querySelectorAll('dialog[open] li').length", 2)
        page.evaluate("document.querySelector('dialog .danger').click()")
        until(page, "document.querySelectorAll('.row.committed').length", 2)
        until(page, "document.querySelector('#message').textContent.startsWith('Committed')")
        self.picture()

    def select(self, *words: str) -> None:
        for each in words:
            self.browser.evaluate(f"{row(each)}.querySelector('input').click()")


def row(words: str) -> str:
    return f"[...document.querySelectorAll('.row')].find((each) => each.textContent.includes({words!r}))"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="walk-") as name:
        yield Path(name)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with headless(tmp_path / "chromium") as opened:
        yield opened


@pytest.mark.timeout(240)
def test_the_commands_of_the_page_and_its_pictures(
    folder: Path, tmp_path: Path, browser: Browser, forking: ForkedCommands, postgres: Postgres, sealing_host: None
):
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prepare(postgres)
    with (
        kinto_running(tmp_path) as port,
        psycopg.connect(**postgres.place("shop"), user="owner", autocommit=True) as shop,
    ):
        news = Reader(port, "shop", "news")
        news.make()
        place = {"PGHOST": postgres.place("shop")["host"], "KINTO": f"localhost:{port}", "KINTO_KEY": KEY}
        walk = Walk(folder, {**os.environ, **place, "XDG_DATA_HOME": str(tmp_path / "data")}, forking, browser)
        for kind, content in blocks:
            if kind == "sql":
                shop.execute(content.encode())
            elif content.startswith("autoclave act serve"):
                walk.review(content)
            elif kind == "sh":
                walk.run(content)
        assert shop.execute("SELECT price::float FROM item ORDER BY id").fetchall() == [(9.0,), (14.0,), (12.5,)]
        assert news.records() == {}
    shown = [printed for printed in walk.printed if printed]
    if os.environ.get("AUTOCLAVE_RECORD"):
        filled = iter(shown)
        text = re.sub(
            r"(^```text\n).*?(^```$)", lambda found: f"{found[1]}{next(filled)}{found[2]}", text, flags=re.M | re.S
        )
        PAGE.write_text(text, encoding="utf-8")
    assert list(map(without_ids, shown)) == list(
        map(without_ids, re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S))
    )


def without_ids(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{8,}\b", "ID", text)
