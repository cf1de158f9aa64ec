"""The sessions of `agent_sessions.py` under a published undo tool, and what its rewind leaves; part of `agents.py`.

stepback 0.2.0 of PyPI (https://github.com/Archerkattri/stepback) records checkpoints of the folder in which it runs an
agent, with Git. It is used as its page says: `stepback run -- AGENT`, then `stepback rewind 1`, its checkpoint of the
start. The agent has tools of its own, since a command of Autoclave is refused where another program changes the folder
meanwhile, as stepback does; it is not killed. What stepback does not promise is counted apart: modes, folders, and rows
of a database outside of the folder. Times do not count.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_sessions import build, manifest, random_sessions

_STEPBACK = (
    str(Path(sys.executable).with_name("uv")),
    "tool",
    "run",
    "--quiet",
    "--from",
    "stepback==0.2.0",
    "stepback",
)


def wrong_rewinds(place: Path, num_sessions: int) -> dict[str, float]:
    """Return in how many sessions stepback restored content, folder or anything wrongly. Needs a network once."""
    views = {"content": _content, "folder": _folder, "anything": lambda found: (_folder(found), found["database"])}
    num_wrong = dict.fromkeys(views, 0)
    for number, session in enumerate(random_sessions(num_sessions, 0)):
        root, database = build(place / f"rewound{number}" / "project")
        calls = root.with_name("calls.jsonl")
        calls.write_text("".join(f"{json.dumps(call)}\n" for call in session.calls))
        before = manifest(root, database)
        _stepback(root, "run", "--", sys.executable, __file__, str(calls), str(database))
        _stepback(root, "rewind", "1", "--yes")
        after = manifest(root, database)
        for name, view in views.items():
            num_wrong[name] += view(after) != view(before)
    return {f"stepback_wrong_{name}": num for name, num in num_wrong.items()}


def _stepback(root: Path, *words: str) -> None:
    subprocess.run([*_STEPBACK, *words], cwd=root, check=True, stdout=subprocess.DEVNULL)


def _content(found: dict[str, Any]) -> dict[str, Any]:
    """Return the content of files and links alone."""
    return {path: content for path, (_, content) in _folder(found).items() if content is not None}


def _folder(found: dict[str, Any]) -> dict[str, Any]:
    """Return mode and content of all in the folder, but not what stepback keeps there."""
    places = {path: each for path, each in found.items() if path != "database" and "/.stepback" not in path}
    return {path: (mode, content) for path, (mode, _, content) in places.items()}


# --- Agent -----------------------------------------------------------------------------------------------------------


def perform(name: str, given: dict[str, Any], database: str) -> None:
    """Do in the current folder what a call of a tool asks for. Raises OSError where a file is not there."""
    path = Path(given.get("path", "."))
    match name:
        case "write":
            path.write_text(given["content"])
        case "edit":
            path.write_text(path.read_text().replace(given["old_string"], given["new_string"]))
        case "delete":
            path.unlink()
        case "move":
            path.replace(given["to"])
        case "run":
            subprocess.run(given["command"], check=False, stderr=subprocess.DEVNULL)
        case "sql":
            with contextlib.closing(sqlite3.connect(database)) as connection, connection:
                connection.execute(given["statements"][0])
        case _:
            raise ValueError(name)


if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text().splitlines():
        tool, arguments = json.loads(line)
        with contextlib.suppress(OSError):  # some fail, as those of models do
            perform(tool, arguments, sys.argv[2])
