"""The system calls that Python does not offer. Each raises OSError with the name of the call.

Only mechanism; `enter.py`, `zygote.py` and `init.py` decide when a process enters a namespace. All go through one
primitive: a compiled module where there is one (`_cell.c`), else ctypes.
"""

import os
import sys
from typing import Any

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

RLIMIT_STACK = 3
RLIMIT_CORE = 4
RLIMIT_MEMLOCK = 8
RLIMIT_MSGQUEUE = 12

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_CAPBSET_DROP = 24
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_SIGCHLD = 17

MACHINE = os.uname().machine
_NUMBERS = {
    "clone": (56, 220), "unshare": (272, 97), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "prctl": (157, 167), "capset": (126, 91), "sethostname": (170, 161),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
}  # fmt: skip
_MACHINES = ("x86_64", "aarch64")
_NO_CAPABILITIES = bytes(24)
_CAPABILITY_HEADER = (0x20080522).to_bytes(8, sys.byteorder)  # version, and 0 for this process


def _load_compiled(path: str) -> Any:
    """Return the compiled module at `path`, or None if this interpreter cannot load it."""
    from _frozen_importlib_external import ExtensionFileLoader  # importlib's own, without importing importlib
    from _imp import create_dynamic, exec_dynamic

    class Spec:
        name, origin, loader = "_cell", path, ExtensionFileLoader("_cell", path)

    try:
        module = create_dynamic(Spec)  # pyright: ignore[reportArgumentType]
        exec_dynamic(module)
    except ImportError:
        return None
    module.__file__ = "_cell"  # hides the path of autoclave on the host
    return module


compiled: Any = _load_compiled(sys.argv[1]) if sys.argv[1] else None
"""The module of `_cell.c`, or None."""


def _syscall_by_ctypes() -> Any:
    import ctypes

    # PyDLL keeps the interpreter lock, so a fork through it leaves the child's interpreter in order.
    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long

    def syscall(*arguments: "int | bytes | None") -> int:
        result = call(*(ctypes.c_long(value) if isinstance(value, int) else value for value in arguments))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    return syscall


_syscall: Any = compiled.syscall if compiled else _syscall_by_ctypes()


def is_known_machine() -> bool:
    """Return whether the system call numbers of this processor are known."""
    return MACHINE in _MACHINES


def _call(name: str, *arguments: "int | bytes | None", what: str = "") -> int:
    try:
        return _syscall(_NUMBERS[name][_MACHINES.index(MACHINE)], *arguments)
    except OSError as error:
        raise OSError(error.errno, f"{name} {what}".rstrip() + f": {error.strerror}") from None


def _encoded(text: "str | None") -> "bytes | None":
    return None if text is None else os.fsencode(text)


def mount(source: "str | None", target: str, kind: "str | None" = None, flags: int = 0, data: str = "") -> None:
    """Mount, bind or remount."""
    arguments = (_encoded(source), _encoded(target), _encoded(kind), flags, _encoded(data or None))
    _call("mount", *arguments, what=f"{kind or source or ''} on {target}")


def unmount(target: str) -> None:
    """Detach the mount at `target`; processes that still use it keep it."""
    _call("umount2", _encoded(target), MNT_DETACH, what=target)


def pivot_root_here() -> None:
    """Make the current directory, which must be a mount, the root, and drop the old root."""
    _call("pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _call("unshare", flags)


def clone(flags: int = 0) -> int:
    """Fork, in new namespaces if `flags` name some; returns 0 in the child.

    Skips the fork hooks of Python and libc, so there must be no threads; `random` is not reseeded.
    """
    return _call("clone", flags | _SIGCHLD, 0, 0, 0, 0)


def die_with_parent() -> None:
    """Have this process killed when its parent ends."""
    _call("prctl", _PR_SET_PDEATHSIG, 9, 0, 0, 0)


def set_dumpable(is_dumpable: bool) -> None:
    """Set whether other processes of this user may inspect this process."""
    _call("prctl", _PR_SET_DUMPABLE, int(is_dumpable), 0, 0, 0)


def renounce_privileges(keep: "tuple[int, ...] | list[int]" = ()) -> None:
    """Keep programs started from now on from gaining privileges by set-user-id or capabilities.

    A program of root keeps the held capabilities in `keep`.
    """
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(64):
        if capability in keep:
            continue
        try:
            _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:  # beyond the last of this kernel
            break


def drop_capabilities() -> None:
    """Give up every capability held."""
    _call("capset", _CAPABILITY_HEADER, _NO_CAPABILITIES)


def keep_capabilities_over_users() -> None:
    """Let the next change of user leave the capabilities held."""
    _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)


def hold_capabilities(*capabilities: int) -> None:
    """Give up every capability but these, all of which must be held."""
    bits = sum(1 << capability for capability in capabilities).to_bytes(4, sys.byteorder)
    _call("capset", _CAPABILITY_HEADER, bits + bits + bytes(16))  # effective, permitted; none inheritable


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def landlock_create_ruleset(attributes: "bytes | None", flags: int = 0) -> int:
    """A descriptor of a new set of rules."""
    return _call("landlock_create_ruleset", attributes, len(attributes or b""), flags)


def landlock_add_rule(ruleset: int, kind: int, rule: bytes) -> None:
    """Add a rule to a set."""
    _call("landlock_add_rule", ruleset, kind, rule, 0)


def landlock_restrict_self(ruleset: int) -> None:
    """Bind this process and its future children to a set."""
    _call("landlock_restrict_self", ruleset, 0)


def lower_limit(kind: int, value: int, *, keep_hard: bool = False) -> None:
    """Set a resource limit of this process, never above what the host set."""
    if compiled:
        compiled.lower_limit(kind, value, keep_hard)
        return
    import resource

    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, hard if keep_hard else value))


def load_filter(instructions: bytes) -> None:
    """Have every later system call of this process and its children pass the seccomp program `instructions`."""
    words = (len(instructions) // 8, _address(instructions))  # a short, padded, and a pointer
    program = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0)


def _address(content: bytes) -> int:
    """Return the address of the bytes of `content`: CPython keeps them, and a final zero, at the end of the object."""
    return id(content) + bytes.__basicsize__ - 1


def set_host_name(name: str) -> None:
    """Name the host of this UTS namespace."""
    _call("sethostname", os.fsencode(name), len(name))
