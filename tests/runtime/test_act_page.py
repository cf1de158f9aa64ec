"""The first commands of docs/how-to/act.md, pasted into a shell, and its Python example."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from examples.acting.local_servers import held_port
from tests.runtime.rest.servers import installed

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "act.md").read_text(encoding="utf-8")


def test_the_commands_and_the_example_of_the_page_work_when_pasted(tmp_path: Path):
    commands, listed, source = re.findall(r"^```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:3]
    with held_port() as port:
        commands = commands.replace("5232", f"{port}")
        commands = commands.replace("python -m radicale", shlex.join(installed("radicale")))
        search = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        script = f"set -e; trap 'kill $(jobs -p)' EXIT\n{commands}"
        ended = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=os.environ | search, capture_output=True, text=True, timeout=120
        )
    assert ended.returncode == 0, ended.stderr
    printed = re.sub(r"^[0-9a-f]{8}\b", "ID", ended.stdout, flags=re.MULTILINE)
    assert re.sub(r"^[0-9a-f]{8}\b", "ID", listed, flags=re.MULTILINE) in printed
    assert printed.endswith("v1\n")
    python = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert python.stdout == source.partition("# ")[2].partition("\n")[0] + "\n"
    assert (tmp_path / "project" / "notes.txt").read_text() == "v1\n"
