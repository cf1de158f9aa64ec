"""Entries of Autoclave in the settings of agent hosts: the hooks of the observer, and the MCP server.

The settings are those of the project, in its folder. What a file was before is kept in the folder of the observer: if
nobody has changed it since, `uninstall` restores it byte for byte, else it removes the entries alone.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from autoclave.act import client
from autoclave.act.client import exchange
from autoclave.act.observer import observer_folder
from autoclave.act.resident import options_for
from autoclave.core import InputError
from autoclave.core.files import alone_with, write_atomically
from autoclave.runtime.opening import alone_on, default_state

HostName = Literal["claude", "codex"]
_TOOL_EVENTS = {"PreToolUse": "before", "PostToolUse": "after"}
_TURN_EVENTS = {"SessionStart": "start", "UserPromptSubmit": "end", "Stop": "end"}
_EVENTS: Mapping[str, Mapping[str, str]] = {
    "claude": {**_TOOL_EVENTS, "PostToolUseFailure": "after", **_TURN_EVENTS, "SessionEnd": "end"},
    "codex": {**_TOOL_EVENTS, **_TURN_EVENTS},
}
"""Hooks of a host, and the events of `act hook` that they are."""
_FILES = {"claude": (".claude/settings.json", ".mcp.json"), "codex": (".codex/hooks.json", ".codex/config.toml")}
"""Settings of a host with hooks, and with servers."""
_TIMEOUT_S = 120
_OURS = " -m autoclave act hook "
_SERVER = "autoclave"
_BLOCK = re.compile(r"\n?# >>> autoclave act install\n.*?# <<< autoclave act install\n", re.DOTALL)
_STOP_S = 10.0


def install(host: HostName, root: Path, state: Path | None = None, *, name: str = "", mcp: bool = True) -> list[str]:
    """Add the entries to the settings of a host for the folder `root`; return what was changed, in words.

    `name`: of the session, that of the host by default.

    Raises:
        InputError: a file of settings cannot be read, or has another entry of the same name. Nothing is written then.
    """
    with alone_on(root, state, wait_s=_STOP_S) as place:
        folder = observer_folder(place)
        folder.mkdir(exist_ok=True, mode=0o700)
    common = options_for(root, state, name or host)
    commands = {event: hook_command(folder, what, common) for event, what in _EVENTS[host].items()}
    server = {"command": sys.executable, "args": ["-I", "-m", "autoclave", "act", "mcp", *common]}
    hooks, servers = _FILES[host]
    edits: dict[str, Callable[[str], str]] = {hooks: partial(_with_hooks, commands=commands)}
    if mcp:
        edits[servers] = partial(_with_block if servers.endswith(".toml") else _with_server, server=server)
    # All, before the first is written.
    written = {path: _edited(_inside(root, path), edit) for path, edit in edits.items()}
    kept = _kept(folder, host)
    told = []
    for path, (before, after) in written.items():
        if after == before:
            told.append(f"{path}: has the entries already")
            continue
        known = kept.get(path)
        is_ours = known is not None and known["after"] == _digest(before or "")
        kept[path] = {"before": known["before"] if known and is_ours else before, "after": _digest(after)}
        if known and not is_ours:
            kept[path]["after"] = ""  # others have changed it: entries are removed, the rest stays
        write_atomically(folder / f"installed-{host}.json", json.dumps(kept))
        (root / path).parent.mkdir(exist_ok=True)
        write_atomically(root / path, after)
        told.append(f"{path}: {'added entries' if before is not None else 'made'}")
    return told


def uninstall(host: HostName, root: Path, state: Path | None = None) -> list[str]:
    """Remove the entries, end what runs for the host, and delete the pre-images; return what was changed, in words.

    Journal and stash stay, so that what was recorded can still be undone.
    """
    folder = observer_folder((state or default_state(root)).resolve())
    told = []
    for path, known in _kept(folder, host).items():
        place = _inside(root, path)
        now = _text(place)
        if now is None:
            told.append(f"{path}: is gone")
        elif _digest(now) == known["after"]:
            if known["before"] is None:
                place.unlink()
                with contextlib.suppress(OSError):  # others have files there
                    if place.parent != root:
                        place.parent.rmdir()
            else:
                write_atomically(place, known["before"])
            told.append(f"{path}: restored")
        else:
            write_atomically(place, _BLOCK.sub("", now) if path.endswith(".toml") else _without_entries(now, path))
            told.append(f"{path}: removed the entries; other changes stay")
    (folder / f"installed-{host}.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it ends without an answer
        exchange(str(folder.with_name("shell")), "stop", b"")
    if folder.exists() and not list(folder.glob("installed-*")):
        with contextlib.suppress(OSError):
            exchange(str(folder), "stop", b"{}")
        with alone_with(folder / "observer", f"{folder}: the observer does not end", _STOP_S):
            shutil.rmtree(folder)
        told.append(f"{folder}: deleted the pre-images")
    return told


def hook_command(folder: Path, event: str, common: list[str]) -> str:
    """Return the line of shell that hands an event to the observer."""
    program = Path(client.__file__).with_name("_hook")
    fast = [str(program)] if os.access(program, os.X_OK) else [sys.executable, "-I", "-S", client.__file__]
    return shlex.join(
        [*fast, str(folder), event, sys.executable, "-I", "-m", "autoclave", "act", "hook", event, *common]
    )


def _kept(folder: Path, host: HostName) -> dict[str, Any]:
    text = _text(folder / f"installed-{host}.json")
    return json.loads(text) if text else {}


def _inside(root: Path, path: str) -> Path:
    """Return the place of a file of settings. Raises InputError where a link leads out of the folder."""
    place = (root / path).resolve()
    if not place.is_relative_to(root.resolve()):
        raise InputError(f"{root / path}: a link leads to {place}, which is not in the folder. Nothing was changed")
    return root / path


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); nothing was changed") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _edited(path: Path, edit: Callable[[str], str]) -> tuple[str | None, str]:
    """Return the text of a file, None where there is none, and the edited text."""
    before = _text(path)
    try:
        return before, edit(before or "")
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: is not valid ({error}); repair it first. Nothing was changed") from None


def _with_hooks(text: str, commands: Mapping[str, str]) -> str:
    settings = json.loads(text or "{}")
    cleaned = _without_hooks(settings)
    hooks = cleaned.setdefault("hooks", {})
    for event, command in commands.items():
        entry = {"type": "command", "command": command, "timeout": _TIMEOUT_S}
        hooks.setdefault(event, []).append({"hooks": [entry]})
    return text if cleaned == settings else _dumped(cleaned)


def _without_hooks(settings: Mapping[str, Any]) -> dict[str, Any]:
    found = {event: [] for event in settings.get("hooks", {})}
    for event, groups in settings.get("hooks", {}).items():
        for group in groups:
            others = [each for each in group.get("hooks", []) if _OURS not in str(each.get("command", ""))]
            if others or not group.get("hooks"):
                found[event].append({**group, "hooks": others} if "hooks" in group else group)
    kept = {event: groups for event, groups in found.items() if groups}
    others = {key: value for key, value in settings.items() if key != "hooks"}
    return {**others, "hooks": kept} if kept else others


def _with_server(text: str, server: Mapping[str, Any]) -> str:
    settings = json.loads(text or "{}")
    known = settings.get("mcpServers", {}).get(_SERVER)
    if known == server:
        return text
    if known is not None and "mcp" not in known.get("args", ()):
        raise InputError(f"mcpServers.{_SERVER}: is another server; give it another name first. Nothing was changed")
    return _dumped({**settings, "mcpServers": {**settings.get("mcpServers", {}), _SERVER: server}})


def _without_entries(text: str, path: str) -> str:
    settings = json.loads(text)
    if path != ".mcp.json":
        return _dumped(_without_hooks(settings))
    settings.get("mcpServers", {}).pop(_SERVER, None)
    return _dumped(settings)


def _with_block(text: str, server: Mapping[str, Any]) -> str:
    others = _BLOCK.sub("", text)
    if _SERVER in tomllib.loads(others).get("mcp_servers", {}):
        raise InputError(f"mcp_servers.{_SERVER}: is another server; give it another name first. Nothing was changed")
    lines = [f"[mcp_servers.{_SERVER}]", *(f"{name} = {json.dumps(value)}" for name, value in server.items())]
    block = "\n".join(["# >>> autoclave act install", *lines, "# <<< autoclave act install", ""])
    edited = f"{others}\n{block}" if others else block
    tomllib.loads(edited)
    return edited


def _dumped(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
