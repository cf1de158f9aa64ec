"""Start the sandbox of the settings, or report the requirements that the host does not meet."""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from autoclave.config.levels import LEVELS, Level
from autoclave.config.sandbox import SandboxConfig, backend_names
from autoclave.core import AutoclaveError, HostError, IsolationError, SandboxFault
from autoclave.sandbox.backend import Backend, find_backend
from autoclave.sandbox.bootstrap import require_current_parts
from autoclave.sandbox.host import HostCheck, tried
from autoclave.sandbox.interface import Limits, Profile, Runner, Sandbox

_log = logging.getLogger(__name__)


def open_sandbox(config: SandboxConfig) -> Sandbox:
    """Return a sandbox that isolates at least as much as `config.minimum_level`.

    Raises:
        HostError: a compiled part of this checkout is older than its source.
        IsolationError: the level requested is not offered by the backend or cannot be reached on this host.
    """
    require_current_parts()
    backend = find_backend(config.backend)
    return backend.open(config, _proven_level(config.model_dump_json()))


@cache
def _proven_level(settings: str) -> Level:
    """Return the best level that the settings allow and whose cells work. Tried once per process."""
    config = SandboxConfig.model_validate_json(settings)
    backend = find_backend(config.backend)
    reasons: list[str] = []
    for level in _wanted(config, backend):
        try:
            try_level(config, backend, level)
        except (HostError, SandboxFault) as error:
            reasons.append(f'sandbox.level "{level}" cannot be reached on this host: {error}')
            continue
        if reasons:
            _log.warning('%s. Level "%s" is used, as sandbox.minimum_level allows.', "; ".join(reasons), level)
        return level
    missing = [check for check in backend.validate(config) if check.is_required and not check.is_present]
    fixes = [f"  {check.name}: {check.detail}\n    Fix: {check.fix}" for check in missing]
    raise IsolationError("\n".join(reasons + fixes)) from None


def _wanted(config: SandboxConfig, backend: Backend) -> list[Level]:
    """Return the levels to try, best first. Raises IsolationError: the backend offers no acceptable level."""
    enough: list[Level] = [
        level for level in backend.levels if LEVELS.index(level) >= LEVELS.index(config.minimum_level)
    ]
    wanted: list[Level] = enough if config.level == "auto" else [level for level in enough if level == config.level]
    if not wanted:
        requested = config.minimum_level if config.level == "auto" else config.level
        offered = " or ".join(f'"{level}"' for level in backend.levels)
        raise IsolationError(
            f"sandbox.level = {config.level}, sandbox.minimum_level = {config.minimum_level}: backend "
            f'"{config.backend}" offers {offered}, not "{requested}". Fix: sandbox.level={backend.levels[0]}'
            + ("" if enough else f" and sandbox.minimum_level={backend.levels[0]}, to accept less isolation")
            + ", or another sandbox.backend."
        )
    return wanted


def try_level(config: SandboxConfig, backend: Backend, level: Level) -> None:
    """Run a program in a cell of this level.

    Raises HostError: a requirement is missing on the host; the message has the fix. SandboxFault: no cell could be
    made, or the program could do what the level forbids.
    """
    sandbox = backend.open(config, level)
    try:
        try_sandbox(sandbox)
    finally:
        sandbox.close()


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
"""Reads its level, and prints what it could do although the level forbids it."""
_LIMITS = Limits(cpu_s=10, wall_s=60, memory_mb=256, output_bytes=4096, processes=8, disk_mb=1, open_files=16)


def try_sandbox(sandbox: Sandbox) -> None:
    """Run a program in a cell and check the isolation of the sandbox's level.

    Raises HostError: the interpreter does not start. SandboxFault: no cell could be made, it does not work, or the
    program could do what the level forbids.
    """
    with sandbox.open(_PROGRAM, _PROFILE, _LIMITS, _RUNNER) as cell:
        outcome = cell.run(sandbox.level.encode())
    if outcome.stdout != b"done":
        reported = outcome.stdout.decode(errors="replace")
        raise SandboxFault(f"the trial ended with {outcome.ended}, exit code {outcome.exit_code} {reported}".strip())


_GAIN: dict[Level, str] = {
    "sealed": "a program sees nothing of the host",
    "restricted": "a program opens no file of the host and signals no process, but sees that they exist",
    "open": "no isolation: a program can do what you can",
}
_FIX = "fix what is missing above, or choose another sandbox.backend"


def validate_backends(config: SandboxConfig) -> list[HostCheck]:
    """Return the checks of each backend, then one per level of it; the configured one is marked."""
    with ThreadPoolExecutor(max_workers=8) as threads:
        found = threads.map(partial(_validate, config=config), backend_names())
        return [check for checks in found for check in checks]


def _validate(name: str, config: SandboxConfig) -> list[HostCheck]:
    try:
        backend = find_backend(name)
        own = [check for check in backend.validate(config) if check.section == "backends"]
        return own + [_level_check(name, level, own, config) for level in backend.levels]
    except (AutoclaveError, ImportError) as error:
        why = "an installed package offers it"
        return [HostCheck(f"{name}", False, name == config.backend, why, "repair that package", str(error), "backends")]


def _level_check(name: str, level: Level, own: list[HostCheck], config: SandboxConfig) -> HostCheck:
    def find() -> str:
        try_level(config, find_backend(name), level)
        return "a program ran in a cell"

    fixes = [check.fix for check in own if not check.is_present]
    is_configured = name == config.backend
    requested = config.minimum_level if config.level == "auto" else config.level
    return tried(
        f"{name}: {level}" + (" (configured)" if is_configured else ""),
        find,
        _GAIN[level],
        "; or ".join(fixes) or _FIX,
        "backends",
        is_required=is_configured and level == requested,
    )
