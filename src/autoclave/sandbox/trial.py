"""Prove that a backend works here, by running a program in a cell of it."""

from __future__ import annotations

from autoclave.core import SandboxFault
from autoclave.sandbox.interface import Limits, Profile, Runner, Sandbox

_PROFILE = Profile("trial")
_RUNNER = Runner(
    "trial",
    "import os\n"
    "def prepare(content, place):\n    return compile(content, 'program.py', 'exec')\n"
    "def run(test):\n    exec(test.program, {})\n    os._exit(0)\n",
)
_PROGRAM = b"""
import ctypes, os, stat

def entries(folder):
    try:
        return [entry.path for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []

def writable(folder):
    for path in entries(folder):
        if path in ("/proc", "/tmp", "/dev/shm"):
            continue
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            yield from writable(path)
            path += "/made"
        try:
            if not stat.S_ISCHR(mode):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
                yield path
        except OSError:
            pass

with open("made", "w"):
    pass
level = os.read(0, 100).decode()
libc = ctypes.CDLL(None, use_errno=True)
wrong = []
if level != "open":
    if libc.prctl(39, 0, 0, 0, 0) != 1: wrong.append("privileges can be gained")
    if libc.prctl(21, 0, 0, 0, 0) != 2: wrong.append("no seccomp filter")
    if libc.socket(2, 1, 0) >= 0: wrong.append("sockets")
    for path in ("/etc/passwd", "/proc/1/environ"):
        try:
            os.close(os.open(path, os.O_RDONLY)); wrong.append(path + " can be read")
        except OSError:
            pass
if level == "sealed":
    header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, held) or any(held): wrong.append("capabilities")
    wrong += [path + " can be written" for path in writable("/")]
os.write(1, "; ".join(wrong).encode() or b"done")
"""
"""Reads its level, and says what it could do although the level forbids it."""
_LIMITS = Limits(cpu_s=10, wall_s=60, memory_mb=256, output_bytes=4096, processes=8, disk_mb=1, open_files=16)


def try_sandbox(sandbox: Sandbox) -> None:
    """Run a program in a cell that is as isolated as the sandbox says.

    Raises:
        HostError: the interpreter does not start.
        SandboxFault: no cell could be made, it does not work, or the program could do what the level forbids.
    """
    with sandbox.open(_PROGRAM, _PROFILE, _LIMITS, _RUNNER) as cell:
        outcome = cell.run(sandbox.level.encode())
    if outcome.stdout != b"done":
        reported = outcome.stdout.decode(errors="replace")
        raise SandboxFault(f"the trial ended with {outcome.ended}, exit code {outcome.exit_code} {reported}".strip())
