"""The process that observes a folder between hooks: started by the first one, ends when there were none for a while.

A client (`client.py`, `_hook.c`) connects to the socket in the observer's folder, sends a line with the event and the
JSON data that the host gave to its hook, and gets an exit code with a message for the user. One event at a time. An
answer to the end of a tool use does not wait for the pre-images of what is new; the next event does.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoclave.act.client import exchange
from autoclave.act.observer import Observer, ToolUse, observer_folder
from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.opening import default_state

_ENDED = "(ended)"
_IN_BACKGROUND = f'("$@"; echo "{_ENDED}") &'
EVENTS = ("start", "before", "after", "end")
"""A session of the host begins; before a tool use; after it; a turn or the session ends, and with it all tool uses."""
_IDLE_S = 3600.0
_START_S = 60.0
_OTHER_S = 1.0
_PAUSE_S = 0.02
_CLIENT_S = 30.0
_PIECE = 1 << 16
_ABOUT = ("command", "file_path", "notebook_path", "path", "url", "pattern", "description")
_MOST_ABOUT, _MOST_TOLD = 300, 5


def serve(root: Path, state: Path | None = None, *, name: str = "main", idle_s: float = _IDLE_S) -> None:
    """Observe a folder until there was no event for `idle_s` seconds. Raises as `Observer`."""
    with Observer(root, state, name=name) as observer:
        folder = observer_folder((state or default_state(root)).resolve())
        with listening(folder) as listener:
            listener.settimeout(idle_s)
            with contextlib.suppress(TimeoutError):
                while _serve_one(listener, observer):
                    pass
            (folder / "socket").unlink(missing_ok=True)


def listening(folder: Path) -> socket.socket:
    """Return a socket that listens in a folder, which is of this user alone, in place of one of a dead process."""
    with contextlib.chdir(folder):  # its path may be longer than an address
        Path("socket").unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("socket")
    listener.listen(64)
    return listener


def _serve_one(listener: socket.socket, observer: Observer) -> bool:
    """Answer one event; return whether there may be more."""
    link, _ = listener.accept()
    with link:
        link.settimeout(_CLIENT_S)
        try:
            content = b"".join(iter(lambda: link.recv(_PIECE), b""))
        except OSError:
            return True
        event, _, given = content.partition(b"\n")
        if event == b"stop":
            return False
        if not observer.is_current:
            return False  # the client starts another one, for the folder that is there now
        is_late = event == b"before" and _has_left(link)  # by a time-out of the host: the tool may run already
        told = "" if is_late else handled(observer, event.decode(errors="replace"), given)
        if event == b"before" and _has_left(link):
            with contextlib.suppress(InputError, RecursionError):
                observer.forget(use_from(_given(given)))
        with contextlib.suppress(OSError):  # the host has ended its hook
            link.sendall(b"%d%s" % (bool(told), told.encode(errors="replace")))
    with contextlib.suppress(AutoclaveError):  # the next event tries again, and says so
        observer.catch_up()
    return True


def _has_left(link: socket.socket) -> bool:
    """Return whether a client has gone without waiting for its answer."""
    poll = select.poll()
    poll.register(link, select.POLLHUP)
    return bool(poll.poll(0))


def handled(observer: Observer, event: str, content: bytes) -> str:
    """Pass an event to an observer; return what the user must know, or ""."""
    try:
        told = _told(observer, event, _given(content))
    except AutoclaveError as error:
        then = "the next hook tries again" if event == "after" else "undo may not cover this tool use"
        told = [f"{error}", then]
    except RecursionError:
        told = ["standard input is nested too deeply; undo may not cover this tool use"]
    return _shown(told)


def _shown(told: list[str]) -> str:
    more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return f"autoclave: {'; '.join(told[:_MOST_TOLD])}{more}\n" if told else ""


def _given(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError("standard input must be the JSON object that the host gives to its hooks")
    return found


def _told(observer: Observer, event: str, given: Mapping[str, Any]) -> list[str]:
    match event:
        case "before":
            return observer.before(use_from(given))
        case "after":
            return observer.after(use_from(given))[1]
        case "start":
            return observer.start()
        case "end":
            return observer.end(str(given.get("session_id", "")))
        case _:
            raise InputError(f"event {event!r}: must be one of {', '.join(EVENTS)}")


def use_from(given: Mapping[str, Any]) -> ToolUse:
    """Return the tool use that a host describes (Claude Code and Codex alike)."""
    session, tool, what = str(given.get("session_id", "")), str(given.get("tool_name", "tool")), given.get("tool_input")
    if isinstance(what, dict):
        what = next((what[name] for name in _ABOUT if what.get(name)), json.dumps(what))
    about = " ".join(map(str, what)) if isinstance(what, list) else str(what or "")
    return ToolUse(str(given.get("tool_use_id") or f"{session} {tool} {about}"), tool, about[:_MOST_ABOUT], session)


def options_for(root: Path, state: Path | None, name: str) -> list[str]:
    """Return the options of `autoclave act` for a folder and a session."""
    return ["--root", str(root.resolve()), *(["--state", str(state.resolve())] if state else []), "--session", name]


def hand_over(event: str, content: bytes, root: Path, state: Path | None, name: str) -> bytes:
    """Return the answer to an event of the observer of a folder, which is started if there is none.

    Raises HostError where it cannot be started, with what it said.
    """
    folder = observer_folder((state or default_state(root)).resolve())
    with contextlib.suppress(OSError):
        return exchange(str(folder), event, content)
    command = [sys.executable, "-I", "-m", "autoclave", "act", "observe", *options_for(root, state, name)]
    with tempfile.TemporaryFile() as said:
        subprocess.run(
            ["/bin/sh", "-c", _IN_BACKGROUND, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            check=True,
        )
        until, why = time.monotonic() + _START_S, ""
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                return exchange(str(folder), event, content)
            why = os.pread(said.fileno(), _PIECE, 0).decode(errors="replace").strip()
            if why.endswith(_ENDED):  # perhaps since another one was quicker, which will answer soon
                until = min(until, time.monotonic() + _OTHER_S)
            time.sleep(_PAUSE_S)
    why = why.removesuffix(_ENDED).strip().removeprefix("Error: ")[-_MOST_ABOUT:] or "it does not answer"
    raise HostError(f"the observer of {root} cannot be started: {why}")
