"""Nothing survives: no process, mount, file or descriptor, also when the judging process is killed."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import SandboxFault
from autoclave.sandbox.backend import NamespaceBackend
from autoclave.sandbox.namespace.launch import NamespaceLauncher
from autoclave.sandbox.pool import ZygotePool
from autoclave.sandbox.start import try_level
from autoclave_testing.sandboxes import LIMITS, MINIMAL, PLAIN

pytestmark = pytest.mark.usefixtures("sandbox")  # skips where no cells can be made

JUDGING = """
import sys
from autoclave.config.sandbox import SandboxConfig
from autoclave.sandbox import Limits, Profile, Runner, open_sandbox
limits = Limits(cpu_s=60, wall_s=60, memory_mb=256, output_bytes=1000, processes=16, disk_mb=8, open_files=64)
runner = Runner("minimal", "def prepare(content, place): return content\\ndef run(test): exec(test.program)\\n")
sandbox = open_sandbox(SandboxConfig())
source = b"import os, time\\nfor _ in range(3):\\n    if os.fork() == 0: os.setsid()\\ntime.sleep(50)"
with sandbox.open(source, Profile("plain"), limits, runner) as cell:
    print("started", flush=True)
    cell.run(b"")
"""


def descendants(root: int) -> set[int]:
    found: set[int] = set()
    waiting = [root]
    while waiting:
        try:
            text = Path(f"/proc/{waiting[-1]}/task/{waiting[-1]}/children").read_text()
        except OSError:
            text = ""
        waiting.pop()
        children = [int(pid) for pid in text.split()]
        found.update(children)
        waiting += children
    return found


def children(pid: int) -> list[int]:
    """Of its first thread. Process ids do not show which began first: they wrap around at the highest number."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def zygotes(pid: int) -> set[int]:
    """Beside them its children are those that watch over control groups."""
    return {child for child in children(pid) if b"\0zygote\0" in Path(f"/proc/{child}/cmdline").read_bytes()}


def first_processes() -> set[int]:
    """Process ids of the first process of each cell of this process: those are children of its zygotes."""
    return {pid for zygote in zygotes(os.getpid()) for pid in children(zygote)}


def is_alive(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_all_processes_die_with_a_judging_process_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", JUDGING], stdout=subprocess.PIPE, env=dict(os.environ)) as judging:
        assert judging.stdout
        assert judging.stdout.readline() == b"started\n"
        assert wait_until(lambda: len(descendants(judging.pid)) >= 2 + 8)  # zygote, first process, eight of the program
        processes = descendants(judging.pid)
        judging.send_signal(signal.SIGKILL)
        judging.wait()
    assert wait_until(lambda: not any(map(is_alive, processes)))


def test_all_processes_die_with_a_zygote_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", JUDGING], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as judging:
        assert judging.stdout
        assert judging.stdout.readline() == b"started\n"
        assert wait_until(lambda: len(descendants(judging.pid)) >= 2 + 8)
        processes = descendants(judging.pid)
        (zygote,) = zygotes(judging.pid)
        os.kill(zygote, signal.SIGKILL)
        assert wait_until(lambda: not any(map(is_alive, processes)))
        assert judging.wait(60) != 0  # the fault reached the judging side


def test_a_zygote_that_dies_after_its_cell_is_closed_is_no_fault_of_the_next_cell():
    before = zygotes(os.getpid())
    with contextlib.closing(ZygotePool(NamespaceLauncher())) as pool:
        with pool.open(b"print('fine')", PLAIN, LIMITS, MINIMAL) as cell:
            assert cell.run(b"").stdout == b"fine\n"
            (zygote,) = zygotes(os.getpid()) - before
            os.kill(zygote, signal.SIGSTOP)
        os.kill(zygote, signal.SIGKILL)
        with pool.open(b"print('fine')", PLAIN, LIMITS, MINIMAL) as cell:
            assert cell.run(b"").stdout == b"fine\n"


def test_a_closed_sandbox_leaves_no_process_mount_or_descriptor():
    before = (descendants(os.getpid()), Path("/proc/self/mounts").read_text(), os.listdir("/proc/self/fd"))
    try_level(SandboxConfig(), NamespaceBackend(), "sealed")
    assert (descendants(os.getpid()), Path("/proc/self/mounts").read_text(), os.listdir("/proc/self/fd")) == before


def test_a_cell_leaves_nothing_behind_when_its_user_fails(open_cell):
    with open_cell("import os, time\nif os.fork() == 0: time.sleep(60)") as cell:
        cell.run(b"")
    before = descendants(os.getpid())
    with pytest.raises(ZeroDivisionError), open_cell("pass"):
        raise ZeroDivisionError
    assert len(descendants(os.getpid())) <= len(before)


def test_a_test_that_does_not_get_its_streams_is_a_fault_and_no_outcome(open_cell):
    before = first_processes()
    with open_cell("print('fine')") as cell:
        assert cell.run(b"").stdout == b"fine\n"
        (first_process,) = first_processes() - before
        resource.prlimit(first_process, resource.RLIMIT_NOFILE, (4, 4))
        with pytest.raises(SandboxFault):
            cell.run(b"")
