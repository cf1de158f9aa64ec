"""`autoclave act serve`, as a person starts and ends it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
from click.testing import CliRunner

from autoclave.cli.main import cli

from .conftest import prepared


def test_the_command_prints_a_url_with_a_new_token_and_ends_with_ctrl_c(tmp_path: Path):
    root, state = prepared(tmp_path)
    command = [sys.executable, "-m", "autoclave", "act", "serve", "--root", str(root), "--state", str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"Review page: ((http://127\.0\.0\.1:\d+)/([\w-]{43})/)\n", line)
            assert found is not None, line
            page, base, token = found.groups()
            assert "<title>Autoclave review</title>" in httpx.get(page).text
            told = httpx.get(f"{base}/api/timeline", headers={"Authorization": f"Bearer {token}"}).json()
            assert told["root"] == str(root)
            process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")


def test_mistakes_are_told_before_anything_is_served(tmp_path: Path):
    missing = CliRunner().invoke(cli, ["act", "serve", "--root", str(tmp_path / "missing")])
    assert "must be a folder that can be read" in str(missing.exception)
    root, state = prepared(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["act", "serve", "--root", str(root), "--state", str(state), "--port", port]
        assert f"port {port}: cannot be used" in str(CliRunner().invoke(cli, words).exception)
