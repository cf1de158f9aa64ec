"""Settings of agent hosts get the hooks and the server, keep everything else, and are restored."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from autoclave.act.install import install as add
from autoclave.cli.main import cli
from autoclave.core import InputError
from autoclave.runtime.opening import open_session

SETTINGS = """{
    "permissions": {"allow": ["Bash(npm test)"]},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}]
    }
}"""
TOML = '# mine\nmodel = "gpt"\n\n[mcp_servers.docs]\ncommand = "docs"\n'


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "my project"
    root.mkdir()
    (root / "a.txt").write_text("first\n")
    yield root
    for host in ("claude", "codex"):
        act("uninstall", host, root)


def act(verb: str, host: str, root: Path, *options: str) -> Result:
    result = CliRunner().invoke(cli, ["act", verb, "--host", host, "--root", str(root), *options])
    assert result.exit_code == 0, result.output
    return result


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def fire(root: Path, settings: str, event: str, **given: Any) -> None:
    """Call the hooks of an event as a host does."""
    for group in json.loads((root / settings).read_text())["hooks"][event]:
        for hook in group["hooks"]:
            if "autoclave" in hook["command"]:
                what = json.dumps({"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "make"}, **given})
                ended = subprocess.run(
                    hook["command"], shell=True, input=what, text=True, capture_output=True, check=False
                )
                assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(("host", "settings"), [("claude", ".claude/settings.json"), ("codex", ".codex/hooks.json")])
def test_the_hooks_of_a_new_project_record_what_a_tool_does_and_go_without_a_trace(
    root: Path, host: str, settings: str
):
    before = files(root)
    act("install", host, root)
    fire(root, settings, "PreToolUse")
    (root / "a.txt").write_text("by the tool\n")
    fire(root, settings, "PostToolUse")
    fire(root, settings, "Stop")
    act("uninstall", host, root)
    with open_session(root) as session:
        (action,) = [each.action for each in session.journal.standings()]
        session.undo(action)
    assert files(root) == before
    assert not (root / settings).parent.exists()
    assert not (root.parent / ".autoclave-my project" / "observer").exists()


def test_other_settings_stay_and_come_back_byte_for_byte(root: Path):
    (root / ".claude").mkdir()
    (root / ".claude/settings.json").write_text(SETTINGS)
    (root / ".mcp.json").write_text('{"mcpServers": {"docs": {"command": "docs"}}}')
    before = files(root)
    told = act("install", "claude", root).output
    assert ".claude/settings.json: added entries\n.mcp.json: added entries\n" in told
    settings, servers = (json.loads(files(root)[name]) for name in (".claude/settings.json", ".mcp.json"))
    assert settings["permissions"] == {"allow": ["Bash(npm test)"]}
    assert settings["hooks"]["PreToolUse"][0] == {
        "matcher": "Bash",
        "hooks": [{"type": "command", "command": "./check.sh"}],
    }
    assert "SessionEnd" in settings["hooks"]
    assert set(servers["mcpServers"]) == {"docs", "autoclave"}
    assert shlex.split(settings["hooks"]["PreToolUse"][1]["hooks"][0]["command"])[1:3] == [
        str(root.parent / ".autoclave-my project" / "observer"),
        "before",
    ]
    act("uninstall", "claude", root)
    assert files(root) == before


def test_a_second_installation_changes_nothing(root: Path):
    (root / ".codex").mkdir()
    (root / ".codex/config.toml").write_text(TOML)
    before = files(root)
    for host in ("claude", "codex"):
        act("install", host, root)
        installed = files(root)
        assert "has the entries already" in act("install", host, root).output
        assert files(root) == installed
    for host in ("codex", "claude"):
        act("uninstall", host, root)
    assert files(root) == before


def test_settings_that_were_changed_meanwhile_lose_the_entries_alone(root: Path):
    (root / ".codex").mkdir()
    (root / ".codex/config.toml").write_text(TOML)
    act("install", "codex", root)
    act("install", "claude", root)
    config = root / ".codex/config.toml"
    assert set(tomllib.loads(config.read_text())["mcp_servers"]) == {"docs", "autoclave"}
    config.write_text(config.read_text() + "\n[more]\nx = 1\n")
    for name in (".codex/hooks.json", ".claude/settings.json"):
        settings = json.loads((root / name).read_text())
        settings["hooks"]["Stop"].insert(0, {"hooks": [{"type": "command", "command": "say done"}]})
        (root / name).write_text(json.dumps(settings))
    (root / ".mcp.json").write_text(json.dumps({**json.loads((root / ".mcp.json").read_text()), "other": 1}))
    assert "removed the entries; other changes stay" in act("uninstall", "codex", root).output
    act("uninstall", "claude", root)
    assert config.read_text() == f"{TOML}\n[more]\nx = 1\n"
    for name in (".codex/hooks.json", ".claude/settings.json"):
        assert json.loads((root / name).read_text()) == {
            "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}
        }
    assert json.loads((root / ".mcp.json").read_text()) == {"mcpServers": {}, "other": 1}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (".claude/settings.json", "{", "is not valid"),
        (".claude/settings.json", "[]", "is not valid"),
        (".mcp.json", '{"mcpServers": {"autoclave": {"command": "other"}}}', "is another server"),
        (".codex/config.toml", "[mcp_servers.autoclave]\ncommand = 'other'\n", "is another server"),
        (".codex/config.toml", "= 1", "is not valid"),
        (".codex/hooks.json", "\udcff", "cannot be read"),
    ],
)
def test_settings_that_cannot_be_edited_stay_as_they_are(root: Path, name: str, content: str, why: str):
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    host = "codex" if "codex" in name else "claude"
    result = CliRunner().invoke(cli, ["act", "install", "--host", host, "--root", str(root)])
    assert why in str(result.exception)
    assert "othing was changed" in str(result.exception)
    assert [path.name for path in root.rglob("*") if path.is_file()].sort() == ["a.txt", Path(name).name].sort()
    assert (root / name).read_bytes() == content.encode("utf-8", "surrogateescape")


def test_the_agent_has_a_session_of_its_own(root: Path):
    for host, name in (("claude", ".mcp.json"), ("codex", ".codex/config.toml")):
        act("install", host, root)
        assert f'"--session", "{host}"' in " ".join((root / name).read_text().split())
        for command in (("install", "--host", host), ("mcp",)):
            refused = CliRunner().invoke(cli, ["act", *command, "--root", str(root), "--session", "main"])
            assert "is the session of your command line" in str(refused.exception)
    act("install", "codex", root, "--session", "tests")
    assert "--session tests" in (root / ".codex/hooks.json").read_text()


def test_the_server_can_be_left_out(root: Path):
    assert add("claude", root, mcp=False) == [".claude/settings.json: made"]
    assert add("codex", root, mcp=False) == [".codex/hooks.json: made"]


def test_where_nothing_is_installed_nothing_is_removed(root: Path):
    assert act("uninstall", "claude", root).output == f"{root}: nothing is installed for claude\n"


def test_settings_behind_a_link_out_of_the_folder_are_refused(root: Path):
    home = root.parent / "home"
    home.mkdir()
    (home / "settings.json").write_text(SETTINGS)
    (root / ".claude").symlink_to(home)
    with pytest.raises(InputError, match="which is not in the folder"):
        add("claude", root)
    assert (home / "settings.json").read_text() == SETTINGS
    assert not (root / ".mcp.json").exists()
