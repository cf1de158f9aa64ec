"""A sealed command, and the roots of cells: parts of the host, read-only, and files and folders of their own."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autoclave.core import SandboxFault
from autoclave.sandbox.namespace.root import PACKAGES_FOLDER, base_interpreter, root_plan
from autoclave.workspaces.interface import WorkspaceLimits

HOME = "/.home"
"""Home of a command: an empty folder of its own, in memory."""
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": HOME, "LANG": "C.UTF-8", "TZ": "UTC"}
_PLACES = {"/workspace": 0o755, "/tmp": 0o1777, "/dev/shm": 0o1777, HOME: 0o755}
"""Folders of a workspace that can be written."""
_BIN = "/.bin"
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OF_ETC = (
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/mime.types", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf"),  # not /etc/ssl/private
)
_HOST_NAMES = ("/etc/hosts", "/etc/resolv.conf")
_LINKS = (
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
)
_SCRATCH = ("/mnt", "/media", "/srv", "/run", "/opt", "/tmp", "/var", "/home")


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Limits of a command with all processes that it starts. `disk_mb` limits its writes to the folder."""

    wall_s: float = 60.0
    cpu_s: float = 60.0
    memory_mb: int = 1024
    processes: int = 256
    disk_mb: int = 1024
    scratch_mb: int = 256
    open_files: int = 1024
    output_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class SealedCommand:
    """A command and the folder that it runs over.

    Attributes:
        argv: program and arguments; the program is looked for in PATH of the environment.
        tree: the folder of the host, which it sees at the same absolute path.
        layers: a folder with the empty folders `upper` and `work`, not below `tree`; the changes of the command go into
            `upper`. With the method `copy`, `upper` is a copy of the tree, which the command works on.
        tree_inode: device and inode number that `tree` must still have; None accepts any.
        method: `overlay`, or `copy` where the host cannot stack folders; see `overlay_problem`.
        environment: variables added to a minimal environment; nothing is inherited.
        hidden: files of the tree, without links on the way, that it can neither read nor change: it sees sockets there.
        shown: other folders and files of the host that it sees read-only, each with its path inside.
        listens: whether to make a socket that listens at `port` on its loopback interface.
        shares_network: whether it has the network of the host; not together with `listens`.
    """

    argv: tuple[str, ...]
    tree: Path
    layers: Path
    tree_inode: tuple[int, int] | None = None
    method: Literal["overlay", "copy"] = "overlay"
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    hidden: tuple[str, ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    listens: bool = False
    port: int = 3128
    shares_network: bool = False


def root_of(command: SealedCommand, limits: CommandLimits, user: int = 0) -> dict[str, Any]:
    """Return the plan of a root, which is the same for many commands while mounts of the host and files in it are."""
    user = user or os.geteuid() or 1000
    root = root_plan(base_interpreter())
    links = [(name, os.readlink(name)) for name in _SYSTEM if os.path.islink(name)]
    taken = {name for name, _ in links} | {"/dev/shm"}
    system = ["/usr", *(name for name in _SYSTEM if os.path.isdir(name) and not os.path.islink(name))]
    own = [path for path in root.binds if not path.startswith(tuple(f"{each}/" for each in (*system, *_SYSTEM)))]
    binds = [*system, *own, *_DEVICES, *(path for path in _OF_ETC if os.path.exists(path))]
    pairs = [*((path, path) for path in dict.fromkeys(binds)), *command.shown]
    sources = [*(source for source, _ in pairs), str(command.tree.resolve()), str(command.layers.resolve())]
    account = f"root:x:0:0:root:{HOME}:/bin/sh\nuser:x:{user}:{os.getegid() or 1000}:user:{HOME}:/bin/sh\n"
    resolving = _HOST_NAMES if command.shares_network else ()
    names = {path: Path(path).read_text(errors="replace") for path in resolving if os.path.exists(path)}
    groups = f"root:x:0:\nuser:x:{os.getegid() or 1000}:\n"
    return {
        "scratch": _scratch(sources),
        "binds": pairs,
        "masks": [path for path in root.masks if not path.startswith("/usr/")],
        "links": [*links, *_LINKS, *(each for each in root.links if each[0] not in taken)],
        "files": {
            "/etc/passwd": account,
            "/etc/group": groups,
            "/etc/hosts": "127.0.0.1 localhost\n",
            "/etc/nsswitch.conf": f"passwd: files\ngroup: files\nhosts: files{' dns' if resolving else ''}\n",
            "/etc/resolv.conf": "",
            **names,
        },
        "folders": ["/.lower", "/.layers"],
        "scratch_folders": ["/tmp", "/dev/shm", HOME],
        "scratch_bytes": limits.scratch_mb << 20,
        "scratch_files": 1 << 17,
        "shares_network": command.shares_network,
        "mounts": Path("/proc/self/mountinfo").read_text(errors="replace"),
        "files_of_host": [os.stat(path).st_ino for path in (*_OF_ETC, *_DEVICES) if os.path.exists(path)],
    }


def workspace_plan(limits: WorkspaceLimits, packages: tuple[str, ...], user: int) -> dict[str, Any]:
    """Return what the guest needs to know of workspaces whose tools run as `user`, if not 0."""
    shown = root_plan(base_interpreter(), packages).placed
    parts = root_of(SealedCommand((), Path("/"), Path("/"), shown=shown), CommandLimits(), user)
    python, path = os.path.realpath(base_interpreter()), f"{_BIN}:{ENVIRONMENT['PATH']}"
    return parts | {
        "links": [*parts["links"], *((f"{_BIN}/{name}", python) for name in ("python", "python3"))],
        "folders": [*_PLACES, "/.disk"],
        "scratch_folders": [],
        "place": "/workspace",
        "places": list(_PLACES.items()),
        "disk": f"mode=0700,size={limits.disk_mb << 20},nr_inodes={limits.num_files}",
        "keeps_processes": limits.keeps_processes,
        "user": user,
        "capabilities": [],
        "shell": shutil.which("bash", path="/usr/bin:/bin") or "/bin/sh",
        "python": python,
        "environment": {**ENVIRONMENT, "PATH": path, "PYTHONPATH": PACKAGES_FOLDER, "PYTHONDONTWRITEBYTECODE": "1"},
    }


def _scratch(sources: Sequence[str]) -> str:
    """Return a folder of the host where the root can be assembled without hiding a source of it."""
    for path in _SCRATCH:
        is_free = not any(source == path or source.startswith(f"{path}/") for source in sources)
        if is_free and Path(path).is_dir():
            return path
    raise SandboxFault(f"none of {', '.join(_SCRATCH)} is a folder without parts of the cell in it")
