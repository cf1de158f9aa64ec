"""Confine the zygote, once: namespaces, a read-only root of chosen parts, ids, privileges.

As root the mounts come before the user namespace, because a mapped root cannot pass private folders on the way to the
interpreter; the judge then writes the id map. As an ordinary user the user namespace comes first and maps one id.
"""

import os
import stat
from collections.abc import Callable
from typing import Any

from . import linux
from .filter import filter_program

_ALL_BUT_USER = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP
LOCKED_FLAGS = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC


def enter(plan: "dict[str, Any]", request_ids: Callable[[], None]) -> None:
    """Confine this process irrevocably, as `plan` requires. `request_ids` has the judge write the id maps."""
    if plan["ids"] == "range":
        linux.unshare(_ALL_BUT_USER)
        _build_root(plan)
        linux.unshare(linux.CLONE_NEWUSER)
        request_ids()
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    else:
        user, group = os.getuid(), os.getgid()
        linux.unshare(_ALL_BUT_USER | linux.CLONE_NEWUSER)
        _map_one_id(plan["test_id"], user, group)
        _build_root(plan)
    linux.renounce_privileges()
    linux.load_filter(filter_program(linux.MACHINE))


def _map_one_id(inside: int, user: int, group: int) -> None:
    for name, content in (("setgroups", "deny"), ("uid_map", f"{inside} {user} 1"), ("gid_map", f"{inside} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


def _build_root(plan: "dict[str, Any]") -> None:
    """Assemble the root on a tmpfs, make all of it read-only, and pivot into it."""
    root = plan["scratch"]
    linux.set_host_name("cell")
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("root", root, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755,size=1m")
    for source in plan["binds"]:
        bind(source, root + source)
    for source, target in plan["placed"]:
        bind(source, root + target)
    for path in plan["masks"]:
        linux.mount("mask", root + path, "tmpfs", linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV, "mode=0755")
    for path, target in plan["links"]:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.symlink(target, root + path)
    for mount_point in ("/tmp", "/program"):
        os.mkdir(root + mount_point)
    os.chdir(root)
    linux.pivot_root_here()
    linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV)


def bind(source: str, target: str) -> None:
    """Show `source` of the host at `target`, read-only. Devices stay usable, nothing else does."""
    mode = os.stat(source).st_mode
    if stat.S_ISDIR(mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    linux.mount(source, target, None, linux.MS_BIND)
    flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID
    flags |= os.statvfs(target).f_flag & LOCKED_FLAGS  # flags of the host's mount cannot be removed
    linux.mount(None, target, None, flags if stat.S_ISCHR(mode) else flags | linux.MS_NODEV)
