"""What this host offers for isolation, item by item, each with the reason why it matters and the command that mends it.

Looks and tries, changes nothing. `autoclave doctor` prints it; `open_sandbox` quotes it when a sandbox cannot start.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from autoclave.core import AutoclaveError
from autoclave.sandbox.namespace.bootstrap import FOLDER, guest_command
from autoclave.sandbox.namespace.root import base_interpreter
from autoclave.sandbox.namespace.sandbox import try_sealed_cell

_PROBE_TIMEOUT_S = 60.0
_CONTAINER_MEND = (
    "in a container: allow namespaces (docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined)"
)
_USER_MEND = "as root: sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000"

_PROBED: dict[str, tuple[str, str]] = {
    "user namespace": ("gives a program user ids of its own and no privilege on the host", _USER_MEND),
    "mount namespace": ("hides the host's files from a program", _CONTAINER_MEND),
    "process namespace": ("hides other processes, and ends everything a program left behind", _CONTAINER_MEND),
    "network namespace": ("leaves a program without any network", _CONTAINER_MEND),
    "ipc namespace": ("keeps System V objects of different programs apart", _CONTAINER_MEND),
    "uts namespace": ("hides the name of the host", _CONTAINER_MEND),
    "cgroup namespace": ("hides where in the host's control groups a program runs", _CONTAINER_MEND),
    "tmpfs mount": ("gives each test a fresh scratch file system with a size limit", _CONTAINER_MEND),
    "pivot_root": ("replaces the root by a read-only one that holds the interpreter only", _CONTAINER_MEND),
    "seccomp": (
        "refuses system calls that namespaces do not confine",
        "use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64",
    ),
}

# setting: the value that forbids, the value that allows
_USER_SETTINGS = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user/max_user_namespaces": ("0", "15000"),
}


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One item. Without a required one no sealed cell starts; the others make it stronger or explain a failure."""

    name: str
    is_present: bool
    is_required: bool
    why: str
    mend: str
    detail: str = ""


def examine_host() -> list[HostCheck]:
    """All checks, required ones first; the last of these starts a real cell."""
    probed = _probe()
    checks = [
        HostCheck(name, probed.get(name, "not tried") is None, True, why, mend, probed.get(name) or "")
        for name, (why, mend) in _PROBED.items()
    ]
    return [*checks, _user_namespace_setting(), _child_lists(), _control_groups(), _sealed_cell()]


def missing_for_sealed() -> str:
    """Why no sealed cell starts, in one text with the mends."""
    lacking = [check for check in examine_host() if check.is_required and not check.is_present]
    return "\n".join(f"  {check.name}: {check.detail}\n    Mend: {check.mend}" for check in lacking)


def _probe() -> dict[str, str | None]:
    try:
        done = subprocess.run(
            guest_command(base_interpreter(), "probe"),
            cwd=FOLDER, env={}, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return dict.fromkeys(_PROBED, f"the probe did not run: {error}")


def _user_namespace_setting() -> HostCheck:
    """Ordinary users need it; some distributions turn it off in one of these places."""
    blocked = [setting for setting, (bad, _) in _USER_SETTINGS.items() if _content(f"/proc/sys/{setting}") == bad]
    mends = " ".join(f"{setting.replace('/', '.')}={_USER_SETTINGS[setting][1]}" for setting in blocked)
    return HostCheck(
        "unprivileged user namespaces",
        not blocked,
        False,
        "lets an ordinary user, not only root, make cells",
        f"as root: sysctl -w {mends}" if blocked else "nothing to do",
        ", ".join(f"{setting.replace('/', '.')} = {_USER_SETTINGS[setting][0]}" for setting in blocked),
    )


def _child_lists() -> HostCheck:
    path = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    return HostCheck(
        "lists of child processes in /proc",
        Path(path).exists(),
        True,
        "lets the judge add up memory and CPU time of all processes of a program while it runs",
        "use a kernel with CONFIG_PROC_CHILDREN, and mount /proc",
        "" if Path(path).exists() else f"{path} is missing",
    )


def _control_groups() -> HostCheck:
    controllers = (_content("/sys/fs/cgroup/cgroup.controllers") or "").split()
    first = [name for name in ("memory", "pids") if Path(f"/sys/fs/cgroup/{name}/cgroup.procs").exists()]
    seen = (
        f"version 2 with {' '.join(controllers)}"
        if controllers
        else f"version 1 with {' '.join(first)}"
        if first
        else ""
    )
    return HostCheck(
        "control groups",
        bool(seen),
        False,
        "can bound memory and processes of a whole cell in the kernel; cells do not use them yet",
        "nothing to do",
        seen,
    )


def _sealed_cell() -> HostCheck:
    detail = ""
    try:
        try_sealed_cell()
    except AutoclaveError as error:
        detail = str(error)
    return HostCheck(
        "sealed cell", not detail, True, "a program really runs sealed", "mend what is missing above", detail
    )


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
