"""The commands of tutorials, pasted into a shell one after the other, print what the pages say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.recipes import MODELS
from tests.forked import ForkedCommands
from tests.ports import reserved_port

SHELL = """
set -eo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
autoclave() {
    if [ "$1" = serve ]; then exec autoclave "$@"; fi
    printf '%s\\0' "$PWD" "$@" > "$ORDERS/words"
    local code; read -r code < "$ORDERS/code"
    cat "$ORDERS/out"; cat "$ORDERS/err" >&2; return "$code"
}
"""
"""What precedes a page: its commands, but for the server, run in forks of one process (`tests/forked.py`)."""
TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
_FENCE = re.compile(r"(?:^`([\w./]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\b[0-9a-f]{8}\b|\b[0-9a-f]{64}\b|\b\d+(\.\d+)? s\b")


def words_of(text: str) -> str:
    """Return the words of a text, without what differs in each run."""
    return " ".join(_NUMBER.sub("...", text).split())


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Pipes on which `SHELL` hands over its commands."""
    folder = tmp_path_factory.mktemp("orders")
    for name in ("words", "code"):
        os.mkfifo(folder / name)

    def run() -> None:
        while words := os.fsdecode((folder / "words").read_bytes()).split("\0")[:-1]:
            ended = commands.run(Path(words[0]), *words[1:])
            (folder / "out").write_text(ended.stdout)
            (folder / "err").write_text(ended.stderr)
            (folder / "code").write_text(f"{ended.returncode}\n")

    with ForkedCommands() as commands, ThreadPoolExecutor(1) as thread:
        running = thread.submit(run)
        yield folder
        (folder / "words").write_bytes(b"")
        running.result(60)


@pytest.mark.parametrize("name", ["judge-programs", "one-gpu", "task-with-tools", "undo-actions", "verl"])
def test_the_commands_of_a_tutorial_work_when_pasted(name: str, orders: Path, tmp_path: Path):
    page = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
    with reserved_port() as seat:
        blocks = _FENCE.findall(page.replace("8750", str(seat.getsockname()[1])))
        for path, _, content in blocks:
            if path:
                (tmp_path / path).write_text(content)
        if name == "one-gpu":  # in place of the hub
            model = "Qwen/Qwen2.5-Coder-1.5B-Instruct"
            (tmp_path / model).mkdir(parents=True)
            (tmp_path / model / "config.json").write_text(json.dumps(MODELS[model]))
        ended = subprocess.run(
            ["bash", "-c", SHELL + "".join(content for _, language, content in blocks if language == "sh")],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ORDERS": str(orders)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    printed = words_of(ended.stdout)
    expected = [line for _, language, content in blocks if language == "text" for line in content.splitlines()]
    assert expected
    assert [line for line in expected if words_of(line) not in printed] == [], ended.stdout
