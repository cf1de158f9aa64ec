"""Claude Code and Codex, installed from npm, with a scripted model: what their tools do is undone exactly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from autoclave.act.install import HostName, install, uninstall
from autoclave.runtime.opening import open_session
from tests.act.scripted_models import scripted_model
from tests.runtime.trees import manifest

pytestmark = pytest.mark.soak

PACKAGES = {"claude": "@anthropic-ai/claude-code@2.1.197", "codex": "@openai/codex@0.171.0"}
CODEX = """
model = "m"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
wire_api = "responses"
[projects."{root}"]
trust_level = "trusted"
"""
SHELL = "cd {root} && echo made > new.txt && rm b.txt && printf x >> a.txt && mkdir d && ln -s ../a.txt d/l"
LATER = "cd {root} && chmod 600 c.txt && printf tail >> c.txt && mv a.txt moved.txt"
PATCH = "cd {root} && apply_patch <<'E'\n*** Begin Patch\n*** Update File: c.txt\n@@\n-c\n+C\n*** End Patch\nE"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES.values()]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    return folder / "node_modules" / ".bin"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text(f"{name}\n")
    (folder / "b.txt").chmod(0o640)
    return folder


def kept(root: Path) -> dict[str, Any]:
    """The manifest but for inodes: a file comes back as a copy. The folder itself also has the settings of the host."""
    return {path: (*facts[:4], *facts[6:]) for path, facts in manifest(root).items() if path != "."}


@pytest.mark.parametrize("host", PACKAGES)
def test_what_the_host_did_is_undone_to_the_last_attribute(host: str, programs: Path, root: Path, tmp_path: Path):
    before, home = kept(root), tmp_path / "home"
    home.mkdir()
    known = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | {"HOME": str(home)}
    shell, later, patch = (text.format(root=root) for text in (SHELL, LATER, PATCH))
    if host == "claude":
        uses = [
            ("Bash", {"command": shell}),
            ("Read", {"file_path": str(root / "c.txt")}),
            ("Edit", {"file_path": str(root / "c.txt"), "old_string": "c", "new_string": "C"}),
            ("Write", {"file_path": str(root / "w.txt"), "content": "written"}),
            ("Bash", {"command": later}),
        ]
        words = ["claude", "-p", "go", "--permission-mode", "bypassPermissions"]
        known |= {"IS_SANDBOX": "1", "ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    else:  # of a patch that a shell command applies, Codex reports the beginning and no end
        uses = [("exec_command", {"cmd": command}) for command in (shell, patch, later)]
        words = ["codex", "exec", "go", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
        words += ["--dangerously-bypass-approvals-and-sandbox"]
        known |= {"CODEX_HOME": str(home)}
    install(cast(HostName, host), root)
    try:
        with scripted_model(uses) as address:
            (home / "config.toml").write_text(CODEX.format(address=address, root=root))
            ended = subprocess.run(
                [programs / words[0], *words[1:]],
                cwd=root,
                env=known | {"ANTHROPIC_BASE_URL": address},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
        assert (root / "moved.txt").read_text() == "a\nx"
        assert (root / "c.txt").read_text() == "C\ntail"
    finally:
        uninstall(cast(HostName, host), root)
    with open_session(root) as session:
        actions = session.journal.standings()
        assert [each.proposed["guarantee"] for each in actions] == ["exact"] * (4 if host == "claude" else 3)
        session.undo(*(each.action for each in actions))
    assert kept(root) == before
