"""The process that starts commands of `act shell` in milliseconds: all is loaded, and what the next one needs is made.

    python -m autoclave.cli.act.resident_shell FOLDER ROOT

FOLDER, in the state folder, gets its socket. A client (`act/_hook.c`) hands over the command line that would do the
same, its standard streams and its environment. A fork that was made ahead does what `act shell` does, and is
interrupted if the client ends. All ends when there were no commands for an hour.
"""

import contextlib
import ctypes
import fcntl
import gc
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from autoclave.act.client import __file__ as _client
from autoclave.act.resident import listening
from autoclave.act.shell import warm_up
from autoclave.cli.main import main as run_command_line
from autoclave.core.files import alone_with
from autoclave.runtime.opening import default_state, open_records
from autoclave.runtime.policy import Grant

_LOOK_S, _NUM_LOOKS = 60.0, 60
"""An hour without commands; after each minute it looks whether the folder is still there."""
_AHEAD_S = 0.2
"""Seconds after which the next fork is made, while a command still runs."""
_PIECE = 1 << 16
_END_WITH_PARENT, _POPULATE_WRITE = 1, 23  # prctl(2); madvise(2), which does nothing before Linux 5.14
_COMMAND = (sys.executable, "-I", "-m", "autoclave", "act", "shell", "--resident")


def prefix(root: Path, state: Path | None, options: list[str]) -> list[str]:
    """Return the words that a command is put after, and start the process if there is none."""
    root, state = root.resolve(), (state or default_state(root)).resolve()
    with open_records(root, state):  # mistakes show now; and it makes the state, for this user alone
        (folder := state / "shell").mkdir(exist_ok=True, mode=0o700)
    command, null = [sys.executable, "-I", "-m", __name__, str(folder), str(root)], subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/")
    client = Path(_client).with_name("_hook")
    quick = [str(client), str(folder), "shell"] if client.exists() else []
    return [*quick, *_COMMAND, "--root", str(root), "--state", str(state), *options, "--"]


def _serve(folder: Path, root: Path) -> None:
    with alone_with(folder / "resident", f"{folder}: has a process already"):
        _rehearse(folder)
        _hold_journal(folder, root)
        os.chdir(folder)
        with listening(folder) as listener:
            gc.freeze()
            while _serve_one(listener, folder, root):
                pass


def _rehearse(folder: Path) -> None:
    """Run a command over another folder on the same file system, so that everything is loaded."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        (root := Path(place) / "root").mkdir()
        with open_records(root) as (_, permissions):
            permissions.grant(Grant(resources=("files/**", "programs/*"), verbs=("*",)))
        sys.argv = ["autoclave", "act", "shell", "--root", str(root), "--", "sh", "-c", "echo > new"]
        with contextlib.suppress(SystemExit):
            run_command_line()


def _hold_journal(folder: Path, root: Path) -> None:
    """Have a fork keep the journal open: else each session would write its log into it when it closes."""
    waits, ends = os.pipe()
    if os.fork() == 0:
        os.close(ends)
        with open_records(root, folder.parent):
            os.read(waits, 1)  # until this process and its other forks have ended
        os._exit(0)
    os.close(waits)


def _serve_one(listener: socket.socket, folder: Path, root: Path) -> bool:
    """Have a fork serve a command. Returns when it is time for the next fork, and whether there is to be one."""
    told, tells = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.close(told)
            _be_fork(listener, folder, root, tells)
        finally:
            os._exit(1)
    os.close(tells)
    with open(told, "rb", buffering=0) as accepted:
        waits = (select.select([accepted], [], [], _LOOK_S)[0] for _ in range(_NUM_LOOKS) if os.path.exists("socket"))
        has_command = bool(next(filter(None, waits), None) and accepted.read(1))
        if has_command:
            select.select([accepted], [], [], _AHEAD_S)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink("socket")
            os.kill(pid, signal.SIGTERM)
    while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
        pass
    return has_command


def _be_fork(listener: socket.socket, folder: Path, root: Path, tells: int) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_END_WITH_PARENT, signal.SIGKILL)
    warm_up(root, folder.parent / "stash")
    for begin, end in re.findall(r"^(\w+)-(\w+) rw-p", Path("/proc/self/maps").read_text(), re.MULTILINE):
        place = int(begin, 16)  # all memory is copied now, not page by page at the first writes of the command
        libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(int(end, 16) - place), _POPULATE_WRITE)
    link, _ = listener.accept()
    content, streams, _, _ = socket.recv_fds(link, _PIECE, 3)
    if not streams:  # all is to end
        return
    libc.prctl(_END_WITH_PARENT, 0)
    os.write(tells, b"\n")
    content += b"".join(iter(lambda: link.recv(_PIECE), b""))
    count, _, texts = content.partition(b"\n")
    words = [os.fsdecode(each) for each in texts.split(b"\0")]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update({name: value for name, _, value in (each.partition("=") for each in words[int(count) : -1])})
    signal.signal(signal.SIGIO, signal.default_int_handler)  # the client has ended
    fcntl.fcntl(link, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(link, fcntl.F_SETFL, fcntl.fcntl(link, fcntl.F_GETFL) | os.O_ASYNC)
    link.sendall(b"\n")  # from now on nobody else does it
    sys.argv = ["autoclave", "act", "shell", *words[len(_COMMAND) : int(count)]]
    try:
        run_command_line()
    except SystemExit as end:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        sys.stdout.flush()
        link.sendall(bytes([int(end.code or 0)]))


if __name__ == "__main__":
    _serve(*map(Path, sys.argv[1:]))
