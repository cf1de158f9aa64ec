"""A process that removes the control groups of this one when it is killed: the kernel does not."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

PREFIX = "autoclave-cell-"
_PAUSES_S = "0 .01 .02 .05 .1 .2 .5 1 2 4"
"""Before each attempt: killed processes leave a group a little after they died."""
_SCRIPT = """
read -r _ && exit
for pause in {pauses}; do
    sleep $pause
    left=
    for group in {groups}; do
        [ ! -d "$group" ] || rmdir "$group" 2>/dev/null || left=1
    done
    [ "$left" ] || exit
done
"""
_lock = threading.Lock()
_users: dict[Watcher, set[int]] = {}


class Watcher:
    """Shared by all groups below the same folders. It waits on a pipe that this process alone holds."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.groups = _own_groups(folders)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT.format(pauses=_PAUSES_S, groups=self.groups)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )

    @classmethod
    def of(cls, folders: Sequence[Path], user: object) -> Watcher:
        """The one for `folders`, started if there is none. It lasts until all of its users have left.

        Raises:
            OSError: no process can be started.
        """
        with _lock:
            found = next((each for each in _users if each.groups == _own_groups(folders)), None) or cls(folders)
            _users.setdefault(found, set()).add(id(user))
            return found

    def leave(self, user: object) -> None:
        """End it if it has no other user. May be called again, and from several threads."""
        with _lock:
            users = _users.get(self, set())
            users.discard(id(user))
            if not users and _users.pop(self, None) is not None:
                self._process.communicate(b"\n")


def _own_groups(folders: Sequence[Path]) -> str:
    """Patterns of the groups of this process, as the shell reads them."""
    return " ".join(f"{shlex.quote(str(folder))}/{PREFIX}{os.getpid()}-*" for folder in folders)
