"""The system calls that Python does not offer, through ctypes. Each raises OSError with the name of the call.

Only mechanism; who enters which namespace when is in `enter.py`, `zygote.py` and `init.py`.
"""

import ctypes
import os
import platform

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_SIGCHLD = 17

# By machine: clone, pivot_root, capset.
_NUMBERS = {"x86_64": (56, 155, 126), "aarch64": (220, 41, 91)}
MACHINE = platform.machine()

# PyDLL keeps the interpreter lock, so a fork through it leaves the child's interpreter in order.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_fork = _libc._Fork if hasattr(_libc, "_Fork") else None


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()
_CAP_HEADER = _CapHeader(0x20080522, 0)


def is_known_machine() -> bool:
    """Whether the system call numbers of this processor are known here."""
    return MACHINE in _NUMBERS


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def _encoded(text: "str | None") -> "bytes | None":
    return None if text is None else os.fsencode(text)


def mount(source: "str | None", target: str, kind: "str | None" = None, flags: int = 0, data: str = "") -> None:
    """What the system call of this name does: mount, bind or remount."""
    arguments = (_encoded(source), _encoded(target), _encoded(kind), ctypes.c_ulong(flags), _encoded(data or None))
    _check(_libc.mount(*arguments), f"mount {kind or source or ''} on {target}")


def unmount(target: str) -> None:
    """Detach the mount at `target`; what still uses it keeps it until then."""
    _check(_libc.umount2(_encoded(target), MNT_DETACH), f"umount {target}")


def pivot_root_here() -> None:
    """Make the current directory, which must be a mount, the root, and drop the old root."""
    _check(_libc.syscall(ctypes.c_long(_NUMBERS[MACHINE][1]), b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def clone(flags: int) -> int:
    """A child in new namespaces; returns 0 in it. Skips Python's and libc's fork hooks, so have no threads."""
    zero = ctypes.c_long(0)
    arguments = (ctypes.c_long(flags | _SIGCHLD), zero, zero, zero, zero)
    return _check(_libc.syscall(ctypes.c_long(_NUMBERS[MACHINE][0]), *arguments), "clone")


def fork() -> int:
    """A child, without the fork hooks that would seed `random` anew: every test starts from the same state."""
    return os.fork() if _fork is None else _check(_fork(), "fork")


def die_with_parent() -> None:
    """Have this process killed when its parent ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "prctl PDEATHSIG")


def set_dumpable(is_dumpable: bool) -> None:
    """Whether others of this user may look into this process."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(is_dumpable), 0, 0, 0), "prctl DUMPABLE")


def renounce_privileges() -> None:
    """No program started from here on gains any privilege: no set-user-id, no capability beyond those held."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")
    capability = 0
    while _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1


def drop_capabilities() -> None:
    """Give up every capability held."""
    number = ctypes.c_long(_NUMBERS[MACHINE][2])
    _check(_libc.syscall(number, ctypes.byref(_CAP_HEADER), ctypes.byref(_NO_CAPABILITIES)), "capset")


def load_filter(instructions: bytes) -> None:
    """Have every later system call of this process and its children pass the seccomp program `instructions`."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]

    program = Program(len(instructions) // 8, instructions)
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "prctl SECCOMP")


def set_host_name(name: str) -> None:
    """Name the host of this UTS namespace."""
    _check(_libc.sethostname(os.fsencode(name), ctypes.c_size_t(len(name))), "sethostname")
