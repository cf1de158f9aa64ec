"""Try on this host, each in a process of its own, what a zygote will have to do; print what failed as JSON."""

import json
import os
import sys
from collections.abc import Callable

from . import linux
from .filter import filter_program


def main() -> None:
    """Print `{probe: error or null}`."""
    sys.stdout.write(json.dumps({name: _outcome(probe) for name, probe in _PROBES.items()}))


def _outcome(probe: "Callable[[], None]") -> "str | None":
    """The error of `probe`, run in a child, or None."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            probe()
            code = 0
        except Exception as error:  # noqa: BLE001  reported to the parent
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as reported:
        message = reported.read().decode(errors="replace")
    status = os.waitpid(pid, 0)[1]
    return None if status == 0 else message or f"wait status {status}"


def _unshare(flags: int) -> None:
    """As root directly, else below a user namespace, the way a zygote does it."""
    linux.unshare(flags if os.geteuid() == 0 else flags | linux.CLONE_NEWUSER)


def _mount_tmpfs() -> None:
    _unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("probe", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m")


def _pivot_root() -> None:
    _mount_tmpfs()
    os.chdir("/tmp")
    linux.pivot_root_here()


def _load_filter() -> None:
    if not linux.is_known_machine():
        raise OSError(f"no table of system calls for {linux.MACHINE}")
    linux.renounce_privileges()
    linux.load_filter(filter_program(linux.MACHINE))


_PROBES: "dict[str, Callable[[], None]]" = {
    "user namespace": lambda: linux.unshare(linux.CLONE_NEWUSER),
    "mount namespace": lambda: _unshare(linux.CLONE_NEWNS),
    "process namespace": lambda: _unshare(linux.CLONE_NEWPID),
    "network namespace": lambda: _unshare(linux.CLONE_NEWNET),
    "ipc namespace": lambda: _unshare(linux.CLONE_NEWIPC),
    "uts namespace": lambda: _unshare(linux.CLONE_NEWUTS),
    "cgroup namespace": lambda: _unshare(linux.CLONE_NEWCGROUP),
    "tmpfs mount": _mount_tmpfs,
    "pivot_root": _pivot_root,
    "seccomp": _load_filter,
}
