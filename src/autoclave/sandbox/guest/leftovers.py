"""Remove the leftovers of a test without namespaces: processes below this one, and files in a folder."""

import contextlib
import os
import signal


def kill_below() -> None:
    """Kill all descendants of this process, which adopts orphans, and leave them to be reaped.

    A process whose parent ends becomes a child of this one before the parent shows as ended. So two scans in a row that
    find the same ended processes, and no living one, prove that none is left.
    """
    before: set[int] = set()
    while True:
        seen, living = _look(os.getpid())
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not living and seen == before:
            return
        before = seen


def _look(root: int) -> "tuple[set[int], list[int]]":
    """All descendants of `root`, and those of them that have not ended."""
    seen: set[int] = set()
    living: list[int] = []
    waiting = _children(root)
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        if _is_living(pid):
            living.append(pid)
            waiting += _children(pid)
    return seen, living


def _children(pid: int) -> "list[int]":
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _is_living(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def count_processes(user: int) -> int:
    """Processes and threads of `user` on this host."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                count += len(os.listdir(f"/proc/{name}/task")) if os.stat(f"/proc/{name}").st_uid == user else 0
    return count


def reap_all() -> None:
    """Wait for every child, after all were killed."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def empty_folder(folder: str) -> None:
    """Remove the content of `folder`, of any depth and modes, without following links.

    The content of a subfolder is moved up first, so no path gets long and nothing recurses.
    """
    number = 0
    while names := os.listdir(folder):
        for name in names:
            path = f"{folder}/{name}"
            try:
                os.unlink(path)
            except IsADirectoryError:
                os.chmod(path, 0o700)
                for inner in os.listdir(path):
                    number = _move_up(path, inner, folder, number)
                os.rmdir(path)


def _move_up(path: str, inner: str, folder: str, number: int) -> int:
    """Remove `inner`, or move it to `folder` under a free name. Return the next number to try."""
    try:
        os.unlink(f"{path}/{inner}")
        return number
    except IsADirectoryError:
        os.chmod(f"{path}/{inner}", 0o700)  # a folder that is moved is written to
    while os.path.lexists(f"{folder}/{number}"):
        number += 1
    os.rename(f"{path}/{inner}", f"{folder}/{number}")
    return number + 1
