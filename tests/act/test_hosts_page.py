"""The commands of docs/how-to/act-hosts.md work in their order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.runtime.conftest import sealing_host
from tests.sandbox.test_traces import wait_until

__all__ = ["sealing_host"]
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "act-hosts.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_work(tmp_path: Path, sealing_host: None):
    (tmp_path / "project").mkdir()
    lines = re.findall(r"^    ((?:autoclave|echo) .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 10
    install, shown, undo, *others = (line.replace("autoclave ", f"{sys.executable} -m autoclave ") for line in lines)

    def call(line: str) -> str:
        ended = subprocess.run(line, shell=True, cwd=tmp_path, text=True, capture_output=True, check=False)
        assert ended.returncode == 0, (line, ended.stderr)
        return ended.stdout

    try:
        for line in (install, *others, shown):
            listed = call(line)
            if "--resident" in line:
                assert wait_until((tmp_path / ".autoclave-project/shell/socket").exists)
        assert "run 'sh -c echo hello > hello.txt'" in listed
        assert (tmp_path / "project" / "hello.txt").read_text() == "hello\n"
        call(undo)
        assert not (tmp_path / "project" / "hello.txt").exists()
    finally:
        call(f"{sys.executable} -m autoclave act uninstall --host claude --root project")
    assert wait_until(lambda: not (tmp_path / ".autoclave-project/shell/socket").exists())
