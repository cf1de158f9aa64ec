"""Random sessions of an MCP client whose server is killed, undone and compared; part of `agents.py`."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, MCPError, StdioServerParameters

from autoclave.runtime.connections import Connections, save_connections
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.opening import default_state, open_records
from autoclave.runtime.policy import Grant

_SERVER = 'echo $$ > "$0"; exec "$@"'
"""Leaves the process id of the server in a file."""
_CALLS, _MOST_DELAY_S = 6, 0.06


@dataclass(frozen=True)
class RandomSession:
    """Calls of an agent, and the number of the call in which its server is killed, after a delay."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    dies_in: int | None
    delay_s: float


def random_sessions(num: int, seed: int) -> Iterator[RandomSession]:
    draw = random.Random(seed)
    for number in range(num):
        calls = tuple(random_call(draw, number * _CALLS + index) for index in range(_CALLS))
        dies_in = draw.choice((None, draw.randrange(_CALLS), draw.randrange(_CALLS)))
        yield RandomSession(calls, dies_in, draw.uniform(0, _MOST_DELAY_S))


async def wrong_restores(place: Path, num_sessions: int, seed: int) -> dict[str, float]:
    """Return the numbers of sessions that an undo restored wrongly, and that copies of edited files would have.

    A session is six random calls of file tools, shell and SQL after a savepoint. In two of three sessions the server is
    killed with SIGKILL in a random call, and a new one goes on. Then everything since the savepoint is undone, and
    folder and database are compared with how they were, by manifests that share no code with the runtime. Beside it,
    the copies that an editor keeps of the file that a file tool is about to change are put back over the same result.
    """
    root, database = build(place / "sessions")
    num_wrong, num_wrong_copies, num_kills = 0, 0, 0
    for number, session in enumerate(random_sessions(num_sessions, seed)):
        before, was = manifest(root, database), {path: path.read_bytes() for path in files(root)}
        copies: dict[Path, bytes | None] = {}
        done, timers = 0, list[threading.Timer]()
        while done < _CALLS:
            async with Client(server(root)) as client:
                if not done:
                    await client.call_tool("savepoint", {"name": f"before-{number}"})
                with contextlib.suppress(MCPError):  # the server was killed; another goes on
                    for name, arguments in session.calls[done:]:
                        for path in edited_by(name, arguments, root):
                            copies.setdefault(path, path.read_bytes() if path.is_file() else None)
                        if done == session.dies_in:
                            timers.append(threading.Timer(session.delay_s, kill_server, [root]))
                            timers[-1].start()
                        done += 1  # a call that was interrupted is not made again
                        await client.call_tool(name, arguments)
        for timer in timers:
            timer.join()
        num_kills += len(timers)
        num_wrong_copies += not are_restored_by_copies(root, copies, was, database, before)
        async with Client(server(root)) as client:
            answer = await client.call_tool("undo_to", {"savepoint": f"before-{number}"})
        if answer.is_error or manifest(root, database) != before:
            num_wrong += 1
            print(f"session {number}: {session.calls}: {answer.content}")
    print(f"{num_sessions} sessions, {num_kills} servers killed in a call")
    return {"wrongly_restored": num_wrong, "wrongly_restored_by_copies": num_wrong_copies, "servers_killed": num_kills}


def build(root: Path) -> tuple[Path, Path]:
    """Make a folder and an SQLite database beside it, connected and granted."""
    (root / "src").mkdir(parents=True)
    for number in range(8):
        (root / "src" / f"file{number}").write_text(f"line {number}\n" * 5)
    database = root.with_name("shop.db")
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
        connection.executemany(
            "INSERT INTO item VALUES (?, ?, ?)", [(each, f"item {each}", each) for each in range(20)]
        )
    connection.close()
    with open_records(root) as (_, permissions):
        permissions.grant(Grant(resources=("files/**", "programs/**", "databases/**"), verbs=("*",)))
    shop = DatabaseConnection(engine="sqlite", path=str(database))
    save_connections(default_state(root), Connections(databases={"shop": shop}))
    return root, database


def server(root: Path) -> StdioServerParameters:
    words = [sys.executable, "-m", "autoclave", "act", "mcp", "--root", str(root), "--session", "agent"]
    return StdioServerParameters(command="sh", args=["-c", _SERVER, str(root.with_name("server.pid")), *words])


def kill_server(root: Path) -> None:
    with contextlib.suppress(ProcessLookupError):  # all calls were done before
        os.kill(int(root.with_name("server.pid").read_text()), signal.SIGKILL)


# --- Calls -----------------------------------------------------------------------------------------------------------


def random_call(draw: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    """Return a tool and its arguments; some fail, as those of models do."""
    path, other = (f"src/file{draw.randrange(10)}" for _ in range(2))
    kinds: list[Callable[[], tuple[str, dict[str, Any]]]] = [
        lambda: ("write", {"path": path, "content": f"{number}\n"}),
        lambda: ("edit", {"path": path, "old_string": "line", "new_string": f"{number}", "replace_all": True}),
        lambda: ("delete", {"path": path}),
        lambda: ("move", {"path": path, "to": other, "replace": True}),
        lambda: ("run", {"command": ["sh", "-c", f"echo {number} >> {path}; rm -f {other}; mkdir -p new{number % 3}"]}),
        lambda: ("run", {"command": ["sh", "-c", f"chmod 600 {path}; ln -sf {path} src/link; : > src/empty"]}),
        lambda: ("sql", {"database": "shop", "statements": [f"UPDATE item SET price = {number} WHERE id % 3 = 0"]}),
        lambda: ("sql", {"database": "shop", "statements": [f"DELETE FROM item WHERE id = {draw.randrange(20)}"]}),
    ]
    return draw.choice(kinds)()


def edited_by(name: str, arguments: dict[str, Any], root: Path) -> list[Path]:
    """Return the files that an editor copies before a call: those of its own tools."""
    if name not in ("write", "edit", "delete", "move"):
        return []
    return [root / arguments[key] for key in ("path", "to") if key in arguments]


# --- Comparison ------------------------------------------------------------------------------------------------------


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def manifest(root: Path, database: Path) -> dict[str, Any]:
    """Return kind, mode, times of files and content of everything in a folder, and the dump of a database."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path)] = (stat.filemode(about.st_mode), about.st_mtime_ns if content is not None else 0, content)
    connection = sqlite3.connect(database)
    try:
        return found | {"database": list(connection.iterdump())}
    finally:
        connection.close()


def are_restored_by_copies(
    root: Path, copies: dict[Path, bytes | None], was: dict[Path, bytes], database: Path, before: dict[str, Any]
) -> bool:
    """Return whether the copies of edited files would restore the content of all files and rows; times do not count."""
    trial = {path: path.read_bytes() for path in files(root)}
    for path, content in copies.items():
        if content is None:
            trial.pop(path, None)
        else:
            trial[path] = content
    return trial == was and manifest(root, database)["database"] == before["database"]
