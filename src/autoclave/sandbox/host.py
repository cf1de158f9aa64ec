"""Checks of this host's isolation, item by item, each with the reason why it matters and the command that fixes it.

Changes nothing on the host. `autoclave doctor` prints the checks, and `open_sandbox` quotes them when no cell can
start. `start.py` tries the backends.
"""

import ctypes
import json
import os
import resource
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from autoclave.core import AutoclaveError, SandboxFault
from autoclave.sandbox import streams
from autoclave.sandbox.bootstrap import FOLDER, guest_command, is_compiled
from autoclave.sandbox.cgroups import FIX, Group, Place, find_place
from autoclave.sandbox.namespace.launch import new_identity
from autoclave.sandbox.namespace.root import base_interpreter
from autoclave.sandbox.watch import HAS_DELAYS

_PROBE_TIMEOUT_S = 60.0
_LANDLOCK_CREATE_RULESET = 444  # on every processor
_LANDLOCK_FOR_FILES = (3, "6.2")
"""The first version that rules truncating, and its kernel."""
_LANDLOCK_FOR_SIGNALS = (6, "6.12")
_CHANGE_GROUP_AND_USER = 0b11 << 6
_DESCRIPTORS_PER_WORKER = 32
"""Two or three zygotes of nine or ten descriptors, and the streams of a test."""
_CONTAINER_FIX = (
    "in a container: allow namespaces (docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined)"
)
_USER_FIX = "as root: sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000"

_PROBED: dict[str, tuple[str, str]] = {
    "user namespace": ("gives a program user ids of its own and no privilege on the host", _USER_FIX),
    "mount namespace": ("hides the host's files from a program", _CONTAINER_FIX),
    "process namespace": ("hides other processes, and ends everything a program left behind", _CONTAINER_FIX),
    "network namespace": ("leaves a program without any network", _CONTAINER_FIX),
    "ipc namespace": ("keeps System V objects of different programs apart", _CONTAINER_FIX),
    "uts namespace": ("hides the name of the host", _CONTAINER_FIX),
    "cgroup namespace": ("hides where in the host's control groups a program runs", _CONTAINER_FIX),
    "tmpfs mount": ("gives each test a fresh scratch file system with a size limit", _CONTAINER_FIX),
    "pivot_root": ("replaces the root by a read-only one that holds the interpreter only", _CONTAINER_FIX),
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


Section = Literal["isolation", "limits", "backends", "languages"]


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One item. Without a required one no sealed cell starts; others strengthen isolation or explain a failure.

    `detail` describes what was found, or why it is missing.
    """

    name: str
    is_present: bool
    is_required: bool
    why: str
    fix: str
    detail: str = ""
    section: Section = "isolation"


def tried(
    name: str, find: Callable[[], str], why: str, fix: str, section: Section, *, is_required: bool = False
) -> HostCheck:
    """Return a check that holds if `find` returns what was found; otherwise its error is the detail."""
    try:
        is_present, detail = True, find()
    except AutoclaveError as error:
        is_present, detail = False, str(error).partition(" Fix:")[0]
    return HostCheck(name, is_present, is_required, why, fix, detail, section)


def validate_host() -> list[HostCheck]:
    """Checks of the kernel and the settings of this host: the sections on isolation and on limits."""
    probed = _probe()
    checks = [
        HostCheck(name, probed.get(name, "not tried") is None, True, why, fix, probed.get(name) or "")
        for name, (why, fix) in _PROBED.items()
    ]
    isolation = [
        *checks, _own_ids(), check_landlock(), _user_namespace_setting(), _readable_interpreter(), _compiled_parts()
    ]  # fmt: skip
    limits = [_child_lists(), *_control_groups(), _run_delays(), _descriptors()]
    return [*isolation, *(replace(check, section="limits") for check in limits)]


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
    """Check the settings by which some distributions forbid user namespaces to ordinary users."""
    blocked = [setting for setting, (bad, _) in _USER_SETTINGS.items() if _content(f"/proc/sys/{setting}") == bad]
    fixes = " ".join(f"{setting.replace('/', '.')}={_USER_SETTINGS[setting][1]}" for setting in blocked)
    return HostCheck(
        "unprivileged user namespaces",
        not blocked,
        False,
        "lets an ordinary user, not only root, make cells",
        f"as root: sysctl -w {fixes}" if blocked else "nothing to do",
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


def _own_ids() -> HostCheck:
    """Check for own ids of each zygote; see `namespace/launch.py`."""
    identity = new_identity()
    is_present = identity.kind == "range"
    found = f"from {identity.base} on" if is_present else "one user id for all: that of this process"
    return HostCheck(
        "user ids of its own for each cell",
        is_present,
        False,
        "puts the kernel's check of users between programs, besides the namespaces",
        "run as root, in a container with at least 65536 ids",
        found,
    )


def check_landlock() -> HostCheck:
    """Return whether Landlock has the version that the level `restricted` needs. Confines nothing."""
    needed, kernel = _LANDLOCK_FOR_FILES if may_change_user() else _LANDLOCK_FOR_SIGNALS
    found = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return HostCheck(
        "landlock",
        found >= needed,
        False,
        "keeps a program from the host's files where namespaces are refused: the level `restricted`",
        f"a kernel of {kernel} or later that names landlock in /sys/kernel/security/lsm, "
        "and in a container a seccomp profile that lets its three system calls pass",
        f"version {max(found, 0) or 'none'}, needed is {needed}",
    )


def may_change_user() -> bool:
    """Return whether this process can give tests a user of their own."""
    status = Path("/proc/self/status").read_text()
    held = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return os.geteuid() == 0 and held & _CHANGE_GROUP_AND_USER == _CHANGE_GROUP_AND_USER


def _compiled_parts() -> HostCheck:
    is_present = is_compiled() and streams.is_compiled()
    return HostCheck(
        "compiled parts of the sandbox",
        is_present,
        False,
        "make judging faster; without them the same is done in Python",
        "install gcc, then reinstall Autoclave",
        "in use" if is_present else "they were not built when autoclave was installed",
    )


def _readable_interpreter() -> HostCheck:
    """Check for a folder that only root may enter, which keeps ordinary users from using this interpreter."""
    path = Path(base_interpreter()).resolve()
    private = [str(folder) for folder in path.parents if not folder.stat().st_mode & stat.S_IXOTH]
    return HostCheck(
        "interpreter for ordinary users",
        not private,
        False,
        "lets an ordinary user, not only root, make cells",
        "install Python outside of private folders, for instance with the system's package manager",
        f"{private[-1]} is private" if private else str(path),
    )


def _control_groups() -> list[HostCheck]:
    place = find_place()
    problem = _group_problem(place)
    reasons = {
        "memory": "bounds the memory of a whole cell in the kernel; without it a burst between two samples is missed",
        "cpu": "counts CPU time of children that no process waits for; without it only the wall clock bounds it",
        "pids": "bounds processes also where the kernel does not count them by user",
    }
    return [
        HostCheck(
            f"control group: {name}",
            name in place.seats and not problem,
            False,
            why,
            FIX,
            place.missing.get(name) or problem or _seat_text(place, name),
        )
        for name, why in reasons.items()
    ]


def _group_problem(place: Place) -> str:
    """Return why no group can be made there; empty if one can."""
    if not place.is_usable:
        return "not used alone: groups need the controllers for memory and CPU time"
    try:
        Group(place).remove()
    except SandboxFault as fault:
        return str(fault)
    return ""


def _seat_text(place: Place, name: str) -> str:
    seat = place.seats[name]
    return f"version {seat.version}, below {seat.folder}"


def _run_delays() -> HostCheck:
    return HostCheck(
        "waiting time of threads",
        HAS_DELAYS,
        False,
        "distinguishes a program that sleeps from one that waits on a busy machine; without it both are run twice",
        "use a kernel with CONFIG_SCHED_INFO",
        "/proc/self/schedstat" if HAS_DELAYS else "/proc/self/schedstat is missing",
    )


def _descriptors() -> HostCheck:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 32 + _DESCRIPTORS_PER_WORKER * len(os.sched_getaffinity(0))
    return HostCheck(
        "file descriptors",
        limit >= needed,
        False,
        "a judge with one worker per core needs so many; where they run out, programs get no verdict",
        f"ulimit -n {needed}, or fewer judge.workers",
        f"{limit} allowed, {needed} needed",
    )


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
