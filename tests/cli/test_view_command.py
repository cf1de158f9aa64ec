"""`autoclave view`: the page, and what it says of folders, steps and problems that are not there."""

from __future__ import annotations

import gzip
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli

from .conftest import Ended
from .test_help import examples


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder `runs/demo` with rollouts of the steps 1 and 50."""
    folder = tmp_path / "runs" / "demo"
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.yaml").write_text("name: demo\n")
    for step in (1, 50):
        line: dict[str, Any] = {
            "format": "autoclave-rollout/1",
            "step": step,
            "item": "add",
            "group": "add",
            "sample": 0,
        }
        with gzip.open(folder / "rollouts" / f"step-{step:06d}.jsonl.gz", "wt") as file:
            file.write(json.dumps(line | {"prompt": "Add.", "response": f"print({step})", "reward": 0.0}) + "\n")
    return folder


def test_the_page_is_in_the_folder_of_the_run(autoclave: Callable[..., Ended], run: Path):
    ended = autoclave("view", "runs/demo")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "runs/demo/view.html: 2 of 2 rollouts\n"
    assert "print(50)" in (run / "view.html").read_text("utf-8")


def test_the_example_of_its_help_compares_two_steps(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(cli, examples(("view",))[0].split()[1:])
    assert (ended.exit_code, ended.output) == (0, "runs/demo/view.html: 2 of 2 rollouts\n")
    assert 'class="removed">print(1)' in (run / "view.html").read_text("utf-8")


def test_counts_come_as_json(run: Path, tmp_path: Path):
    out = tmp_path / "page.html"
    ended = CliRunner().invoke(cli, ["view", str(run), "--limit", "1", "--out", str(out), "--json"])
    assert json.loads(ended.output) == {"path": str(out), "shown": 1, "found": 2}


def test_the_page_opens_in_a_browser(autoclave: Callable[..., Ended], run: Path, tmp_path: Path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    ended = autoclave("view", run, "--open", env=os.environ | {"BROWSER": f"{browser} %s"})
    assert ended.returncode == 0
    assert (tmp_path / "opened").read_text() == f"{(run / 'view.html').as_uri()}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "run folder nowhere: no such folder; give the folder that `autoclave train` wrote"),
        (["."], ".: not a run folder, config.yaml is missing; give the folder of `autoclave train`"),
        (["empty"], "empty: no rollouts recorded; they are written after the first step of `autoclave train`"),
        (["runs/demo", "--step", 7], "--step 7: runs/demo has no rollouts of it; recorded are 1, 50"),
        (["runs/demo", "--problem", "ad"], '--problem "ad": no rollout of it in step 1, 50; did you mean add?'),
        (["runs/demo", "--against", "empty"], "empty: no rollouts recorded"),
        (["runs/demo", "--against", "runs/demo"], "--against-step: step 50 of runs/demo would be compared with itself"),
        (["runs/demo", "--limit", 0], "Invalid value for '--limit': 0 is not in the range x>=1."),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("run")
def test_errors_are_named(complaint: Callable[..., tuple[int, str]], tmp_path: Path, words: list[object], message: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.yaml").write_text("name: empty\n")
    code, error = complaint("view", *words)
    assert code == 2
    assert error.startswith(f"Error: {message}")
