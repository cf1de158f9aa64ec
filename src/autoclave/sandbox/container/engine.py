"""Talk to podman or docker by their command lines."""

import contextlib
import hashlib
import io
import logging
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from autoclave.core import HostError, SandboxFault
from autoclave.sandbox.host import HostCheck, tried
from autoclave.sandbox.namespace.root import RootPlan

_log = logging.getLogger(__name__)
EngineName = Literal["podman", "docker"]
_TIMEOUT_S = 120.0
FIXES: dict[EngineName, str] = {
    "podman": "as root: apt-get install podman runc",
    "docker": "as root: apt-get install docker.io, and start its daemon: systemctl start docker",
}
_FIX = "as root: apt-get install podman runc (or docker.io), or another sandbox.backend"


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine of this host."""

    name: EngineName
    command: tuple[str, ...]
    runtime: str
    """Runtime that the engine starts containers with; empty for its default."""

    def run(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> str:
        """Return what the command prints. What it starts may write files to `cwd`, such as `oom` by podman.

        Raises:
            SandboxFault: it fails; the message is its own.
        """
        done = self.attempt(*arguments, stdin=stdin, cwd=cwd)
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
            raise SandboxFault(f"{self.name} {arguments[0]}: {lines[-1]}")
        return done.stdout.decode(errors="replace")

    def attempt(
        self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the command, which may fail.

        Raises:
            SandboxFault: it cannot be started, or does not end.
        """
        try:
            return subprocess.run(
                [*self.command, *arguments], input=stdin, capture_output=True, timeout=_TIMEOUT_S, cwd=cwd
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxFault(f"{self.name} {arguments[0]}: {error}") from None

    def with_other_runtime(self, fault: SandboxFault) -> "Engine":
        """The engine with another installed runtime, after its default one failed to start a container with `fault`.

        Raises:
            SandboxFault: `fault`, if it has another cause, the runtime is configured, or no other is installed.
        """
        reason = str(fault)
        if self.name != "podman" or self.runtime or "runtime" not in reason.lower():
            raise fault
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        for runtime in ("runc", "crun"):
            if f"{runtime}:" not in reason and shutil.which(runtime, path=path):
                _log.warning("podman's default runtime fails (%s): containers are started with %s", reason, runtime)
                return Engine(self.name, (*self.command, "--runtime", runtime), runtime)
        raise SandboxFault(f"{reason}. Fix: as root: apt-get install runc, or set sandbox.container_runtime") from fault

    def remove(self, name: str) -> None:
        """Kill and remove a container, if it exists."""
        patience = ("--time", "0") if self.name == "podman" else ()
        self.attempt("rm", "--force", *patience, name)

    def remove_strays(self) -> None:
        """Remove containers and folders of judging processes that have ended."""
        listed = self.run("ps", "--all", "--filter", "name=autoclave-", "--format", "{{.Names}}")
        for name in listed.split():
            if _is_stray(name):
                self.remove(name)
        for folder in Path(tempfile.gettempdir()).glob("autoclave-*-*-*-*"):
            if _is_stray(folder.name):
                shutil.rmtree(folder, ignore_errors=True)


def find_engine(wanted: Literal["auto", "podman", "docker"], runtime: str) -> Engine:
    """Return the engine to use: podman before docker if both answer. Raises HostError: none answers."""
    names: tuple[EngineName, ...] = ("podman", "docker") if wanted == "auto" else (wanted,)
    reasons: list[str] = []
    for name in names:
        if shutil.which(name) is None:
            reasons.append(f"{name} is not installed")
            continue
        engine = Engine(name, (name, *(("--runtime", runtime) if runtime and name == "podman" else ())), runtime)
        try:
            engine.run("ps", "--quiet")
        except SandboxFault as fault:
            reasons.append(str(fault))
        else:
            return engine
    raise HostError(f"no container engine: {'; '.join(reasons)}. Fix: {_FIX}")


@contextlib.contextmanager
def without_pause_process() -> Generator[None]:
    """End the pause process that an ordinary user's podman starts in the block; not one that ran before."""
    before = pause_processes()
    try:
        yield
    finally:
        for pid in pause_processes() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def pause_processes() -> set[int]:
    """Return the processes of this user that files of podman name, in folders of this user."""
    user = os.geteuid()
    folders = {os.environ.get("XDG_RUNTIME_DIR") or "/run/user", f"/run/user/{user}", f"/tmp/podman-run-{user}"}
    found: set[int] = set()
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            file = Path(folder, "libpod/tmp/pause.pid")
            if Path(folder).lstat().st_uid != user or not file.is_file():
                continue
            pid = int(file.read_text())
            if pid > 1 and Path(f"/proc/{pid}").stat().st_uid == user:
                found.add(pid)
    return found


def new_name(number: int) -> str:
    """Return a name for a container, from which other processes see whether this process has ended."""
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"autoclave-{namespace}-{os.getpid()}-{_start_time(os.getpid())}-{number}"


def _is_stray(name: str) -> bool:
    """Return whether its judging process was visible here and has ended."""
    with contextlib.suppress(ValueError):
        _, namespace, pid, start, _ = name.split("-")
        return int(namespace) == Path("/proc/self/ns/pid").stat().st_ino and _start_time(int(pid)) != int(start)
    return False


def _start_time(pid: int) -> int:
    """Start time of the process, in ticks since the host's; 0 when it does not exist."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except OSError:
        return 0


_REPOSITORY = "localhost/autoclave-cell"
OWN_FOLDERS = ("/tmp", "/program", "/judge", "/proc", "/sys", "/dev")
"""Paths at which the engine or the sandbox mounts something."""


@cache
def image_for(engine: Engine, plan: RootPlan) -> str:
    """Return the name of the image for `plan`. The engine makes it if it is missing.

    Raises SandboxFault: the engine rejects it.
    """
    content = image_content(plan)
    name = f"{_REPOSITORY}:{hashlib.sha256(content).hexdigest()[:16]}"
    if engine.attempt("image", "inspect", name).returncode != 0:
        _log.info("making the container image %s", name)
        engine.run("import", "-", name, stdin=content)
    return name


def image_content(plan: RootPlan) -> bytes:
    """A tar archive; the same for the same plan."""
    links = {link: target for link, target in plan.links if not link.startswith("/dev/")}
    shown = [(path, path) for path in plan.binds] + list(plan.placed)
    files = {target for source, target in shown if os.path.isfile(source)}
    folders = {target for source, target in shown if os.path.isdir(source)} | set(OWN_FOLDERS)
    folders |= {str(parent) for path in [*links, *files, *folders] for parent in PurePosixPath(path).parents} - {"/"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folders):
            _add(archive, path, tarfile.DIRTYPE)
        for path in sorted(files):
            _add(archive, path, tarfile.REGTYPE)
        for link, target in sorted(links.items()):
            _add(archive, link, tarfile.SYMTYPE, target)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, kind: bytes, target: str = "") -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.linkname, entry.mode = kind, target, 0o755
    archive.addfile(entry)


def check_engines(engine: EngineName | Literal["auto"], runtime: str) -> list[HostCheck]:
    """Return whether the engines that the settings allow answer; one is enough."""
    names: tuple[EngineName, ...] = ("podman", "docker")
    checks = [_check_engine(name, runtime) for name in (names if engine == "auto" else (engine,))]
    is_needed = not any(check.is_present for check in checks)
    return [replace(check, is_required=is_needed) for check in checks]


def _check_engine(name: EngineName, runtime: str) -> HostCheck:
    def find() -> str:
        find_engine(name, runtime)
        return "answers"

    why = "starts the containers of the backend container; podman or docker is enough"
    return tried(f"container engine {name}", find, why, FIXES[name], "backends")
