"""Start zygotes in containers, and verify from outside that each is confined as its flags require."""

import contextlib
import itertools
import os
import resource
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from autoclave.config.levels import Level
from autoclave.config.sandbox import SandboxConfig
from autoclave.core import SandboxFault
from autoclave.sandbox.bootstrap import FOLDER, guest_command, guest_environment
from autoclave.sandbox.container.engine import Engine, find_engine, image_for, new_name
from autoclave.sandbox.interface import Profile
from autoclave.sandbox.launch import TestUsage, Usage
from autoclave.sandbox.namespace.root import PACKAGES_FOLDER, RootPlan, base_interpreter, root_plan
from autoclave.sandbox.watch import ProcessMeter, descendants

SCRATCH = ("/tmp", "/dev/shm")
"""Folders that tests can write. Both are emptied after each test."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts/ptmx")
_CAPABILITIES = {"KILL": 5, "SETGID": 6, "SETUID": 7}
_NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
_SHARED_MEMORY_MB = 16
_PROGRAM_MB = 64
_OWN_MEMORY_MB = 192
"""For the zygote with its imports, and the first process."""
_OWN_PROCESSES = 16
_OWN_CPU_S = 0.02
"""Most CPU time of the zygote and the first process themselves for a test."""
_MAX_FILES = 4096
_START_TIMEOUT_S = 60.0
_numbers = itertools.count()


class ContainerLauncher:
    """Zygotes as main processes of containers without network, privileges or anything to write but scratch."""

    level: Level = "sealed"

    def __init__(self, config: SandboxConfig) -> None:
        """Find the engine and remove leftovers of ended judging processes.

        Raises HostError: no engine answers, or the interpreter does not start. SandboxFault: the engine fails.
        """
        self._config = config
        self._root = root_plan(base_interpreter())
        self._engine = find_engine(config.container_engine, config.container_runtime)
        self._engine.remove_strays()

    def launch(self, profile: Profile) -> "ContainerZygote":
        try:
            return self._launch(profile)
        except SandboxFault as fault:
            self._engine = self._engine.with_other_runtime(fault)
            return self._launch(profile)

    def _launch(self, profile: Profile) -> "ContainerZygote":
        name = new_name(next(_numbers))
        root = root_plan(self._root.executable, profile.packages, profile.paths)
        return ContainerZygote(self._engine, name, self._flags(profile), image_for(self._engine, root), root)

    def _flags(self, profile: Profile) -> list[str]:
        config = self._config
        of_cells = max(config.memory_limit_mb, profile.memory_mb)
        memory = f"{of_cells + config.disk_limit_mb + _PROGRAM_MB + _OWN_MEMORY_MB}m"
        flags = [
            "--network=none", "--ipc=none", "--read-only", "--pull=never", "--user=0:0",
            "--cap-drop=ALL", *(f"--cap-add={name}" for name in _CAPABILITIES), "--security-opt=no-new-privileges",
            f"--memory={memory}", f"--memory-swap={memory}", f"--pids-limit={config.process_limit + _OWN_PROCESSES}",
            f"--ulimit=nofile={_within(resource.RLIMIT_NOFILE, 1024)}",
            f"--ulimit=nproc={_within(resource.RLIMIT_NPROC, 4096)}", "--ulimit=core=0:0",
            self._tmpfs("/tmp", config.disk_limit_mb, "exec,mode=1777"),
            self._tmpfs("/dev/shm", min(config.disk_limit_mb, _SHARED_MEMORY_MB), "noexec,mode=1777"),
            self._tmpfs("/program", _PROGRAM_MB, "exec,mode=0755"),
        ]  # fmt: skip
        if self._engine.name == "podman":
            flags.append("--read-only-tmpfs=false")
        elif self._engine.runtime:
            flags.append(f"--runtime={self._engine.runtime}")
        return flags

    def _tmpfs(self, path: str, size_mb: int, options: str) -> str:
        # podman takes no limit on the number of files; there the judge counts them
        files = f",nr_inodes={_MAX_FILES}" if self._engine.name == "docker" else ""
        return f"--tmpfs={path}:rw,nosuid,nodev,size={size_mb}m,{options}{files}"


class ContainerZygote:
    """A zygote in a container of its own."""

    def __init__(self, engine: Engine, name: str, flags: list[str], image: str, root: RootPlan) -> None:
        """Start it and take its connection.

        Raises SandboxFault: the engine fails, the zygote does not connect, or the container is not sealed.
        """
        self._engine = engine
        self._name = name
        self._folder = Path(tempfile.gettempdir()) / name
        self._process: int | None = None
        self.plan = _plan_of(root)
        self._folder.mkdir(mode=0o700)
        try:
            self.control = self._start(flags, image, root)
        except BaseException:
            self._remove()
            raise

    def map_ids(self) -> None:
        raise SandboxFault("a zygote in a container requested ids")

    def meter(self, first_process: Callable[[], int]) -> "ContainerMeter":
        return ContainerMeter(cache(lambda: _seen_from_outside(self.pid, first_process())), self.pid)

    def last_words(self) -> str:
        return f"container {self._name}"

    def kill(self) -> None:
        self.control.close()
        self._remove()

    def _start(self, flags: list[str], image: str, root: RootPlan) -> socket.socket:
        shown = self._folder / "judge"  # its parent is private, so its modes matter in the container alone
        shutil.copytree(FOLDER, shown / "guest", ignore=shutil.ignore_patterns("__pycache__"))
        (empty := self._folder / "empty").mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            _bind(listener, shown)
            listener.listen(1)
            for path in (shown, shown / "control", shown / "guest", *shown.glob("guest/*"), empty):
                path.chmod(0o777 if path.is_socket() else 0o755)
            binds = [(path, path) for path in root.binds if not path.startswith("/dev/")] + list(root.placed)
            binds += [(str(empty), mask) for mask in root.masks] + [(str(shown), "/judge")]
            volumes = [f"--volume={source}:{target}:ro" for source, target in binds]
            variables = [f"--env={name}={value}" for name, value in guest_environment().items()]
            executable, *arguments = guest_command(root.executable, "joining", "/judge/control", use_compiled=False)
            command = [
                "run", "--rm", f"--name={self._name}", "--workdir=/judge/guest", f"--entrypoint={executable}",
                *flags, *volumes, *variables, image, *arguments,
            ]  # fmt: skip
            self._engine.run(command[0], "--detach", *command[1:], cwd=self._folder)
            control = self._accept(listener, command)
        try:
            self._identify(control)
        except BaseException:
            control.close()
            raise
        for path in shown.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return control

    def _accept(self, listener: socket.socket, command: list[str]) -> socket.socket:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if select.select([listener], [], [], 1.0)[0]:
                return listener.accept()[0]
            if not self._engine.run("ps", "--quiet", "--filter", f"name={self._name}").strip():
                break
        self._engine.remove(self._name)
        self._engine.run(*command)  # once more, in the foreground: raises with the reason
        raise SandboxFault(f"the container {self._name} does not connect")

    def _identify(self, control: socket.socket) -> None:
        """Find the process of the host that connected, and check its confinement."""
        credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid = int.from_bytes(credentials[:4], "little")
        if self.pid == 0:
            raise SandboxFault("the container's processes are not visible from here, so nothing can be measured")
        self._process = os.pidfd_open(self.pid)
        if missing := _missing(self.pid):
            raise SandboxFault(f"the container is not sealed: {', '.join(missing)}")

    def _remove(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):  # gone, or of another user
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            os.close(self._process)
            self._process = None
        self._engine.remove(self._name)
        shutil.rmtree(self._folder, ignore_errors=True)


class ContainerMeter(ProcessMeter):
    """Measures a test's processes, CPU time by the container's group, and scratch where the judge can read it."""

    def __init__(self, first_process: Callable[[], int], main_process: int) -> None:
        super().__init__(first_process)
        self.kills = -2
        self._scratch = f"/proc/{main_process}/root/tmp"
        self._cpu_file = _group_file(main_process, "cpuacct", "cpuacct.usage", "cpu.stat")
        self._kills_file = _group_file(main_process, "memory", "memory.oom_control", "memory.events")
        self._start_cpu_s = 0.0
        self._start_kills = 0

    def begin_test(self) -> None:
        super().begin_test()
        self._start_cpu_s = self._group_cpu_s()
        self._start_kills = self._num_kills()

    def usage(self) -> Usage:
        usage = super().usage()
        usage = replace(usage, cpu_s=max(usage.cpu_s, self._group_cpu_s() - self._start_cpu_s))
        with contextlib.suppress(OSError):
            state = os.statvfs(self._scratch)
            used = (state.f_blocks - state.f_bfree) * state.f_frsize
            return replace(usage, disk_mb=used / 2**20, num_files=state.f_files - state.f_ffree - 1)
        return usage

    def end_test(self, reaped_cpu_s: float) -> TestUsage:
        cpu_s = self._group_cpu_s() - self._start_cpu_s
        return TestUsage(cpu_s if cpu_s > reaped_cpu_s + _OWN_CPU_S else reaped_cpu_s)

    def is_memory_exceeded(self) -> bool:
        return self._num_kills() > self._start_kills

    def _num_kills(self) -> int:
        """Number of processes of the container that were killed because memory ran out; 0 if unknown."""
        if self._kills_file is not None:
            with contextlib.suppress(OSError):
                words = self._kills_file.read_text().split()
                return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
        return 0

    def _group_cpu_s(self) -> float:
        """CPU time of all processes of the container, also of those that no process waited for; 0 if unknown."""
        if self._cpu_file is None:
            return 0.0
        with contextlib.suppress(OSError):
            text = self._cpu_file.read_text()
            return int(text.split()[1]) / 1e6 if text.startswith("usage_usec") else int(text) / 1e9
        return 0.0


def _group_file(pid: int, controller: str, first_version: str, second_version: str) -> Path | None:
    """The file of the control group of this process, under its name in the version that is in use."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            places = [Path(f"/sys/fs/cgroup/{name}{path}/{first_version}") for name in (controllers, controller)]
        elif number == "0":
            places = [Path(f"/sys/fs/cgroup{path}/{second_version}")]
        else:
            continue
        for place in places:
            if path != "/" and place.exists():
                return place
    return None


def _bind(listener: socket.socket, folder: Path) -> None:
    """Put the socket `control` into `folder`, whose own path may be longer than that of a socket."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/control")
    finally:
        os.close(descriptor)


def _plan_of(root: RootPlan) -> dict[str, Any]:
    return {
        "confinement": "contained",
        "number": os.getpid() * 64 + next(_numbers) % 64,
        "scratch": SCRATCH,
        "devices": _DEVICES,
        "readable": [path for path in root.binds if not path.startswith("/dev/")] + [path for _, path in root.placed],
        "search_path": [PACKAGES_FOLDER] if root.placed else [],
    }


def _missing(pid: int) -> list[str]:
    """Return the reasons for which the main process is not confined, as the host's kernel reports."""
    judge_namespaces, container_namespaces = Path("/proc/self/ns"), Path(f"/proc/{pid}/ns")
    shared = [name for name in _NAMESPACES if (container_namespaces / name).samefile(judge_namespaces / name)]
    missing = [f"it shares the {name} namespace of this process" for name in shared]
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    allowed = sum(1 << number for number in _CAPABILITIES.values())
    if int(status["CapPrm"], 16) & ~allowed or int(status["CapBnd"], 16) & ~allowed:
        missing.append("it holds more capabilities than it was given")
    if status["NoNewPrivs"] != "1":
        missing.append("it may gain privileges")
    if status["Seccomp"] != "2":
        missing.append("the engine's seccomp profile is off")
    return missing


def _seen_from_outside(main_process: int, pid: int) -> int:
    """Return the number on the host of process `pid` of the container. Raises SandboxFault: it has ended."""
    for child in descendants(main_process):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
            if next(line for line in lines if line.startswith("NSpid:")).split()[-1] == str(pid):
                return child
    raise SandboxFault("the first process of a cell is gone")


def _within(kind: int, wanted: int) -> str:
    """`soft:hard` that may be set here: a limit can only be lowered."""
    hard = resource.getrlimit(kind)[1]
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return f"{value}:{value}"
