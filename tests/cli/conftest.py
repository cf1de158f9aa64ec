"""The command as users start it, and files to judge."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.cli import main

Ended = subprocess.CompletedProcess[str]

ADD = {
    "format": "autoclave-problem/1",
    "id": "add",
    "statement": "Add two numbers.",
    "tests": {"kind": "stdin", "cases": [{"input": "3 4\n", "output": "7\n"}, {"input": "1 1\n", "output": "2\n"}]},
}
RIGHT = {"problem_id": "add", "source": "print(sum(map(int, input().split())))"}
WRONG = {"problem_id": "add", "source": "print(7)"}


@pytest.fixture
def autoclave(tmp_path: Path) -> Callable[..., Ended]:
    """autoclave("judge", ..., input="..."): the command in a process of its own, in an empty folder."""

    def run(*words: object, **options: Any) -> Ended:
        command = [sys.executable, "-m", "autoclave", *map(str, words)]
        if "input" not in options:
            options["stdin"] = subprocess.DEVNULL
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False, **options
        )

    return run


@pytest.fixture
def complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """complaint("judge", ...): exit code and what is on standard error, where nothing is to come out."""

    def run(*words: object) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["autoclave", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        assert printed.out == ""
        return caught.value.code, printed.err

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)  # forks of this process would raise KeyboardInterrupt


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """write_lines("name", line, ...): a JSONL file; text is written as it is."""

    def write(name: str, *lines: dict[str, Any] | str) -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return path

    return write
