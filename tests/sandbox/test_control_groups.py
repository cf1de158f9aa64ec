"""With control groups the kernel counts and bounds a whole cell: nothing of it happens between two looks."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from autoclave.core import Ended
from autoclave.sandbox import Sandbox
from autoclave.sandbox.cgroups import Group, find_place, remove_stale_groups
from autoclave.sandbox.namespace import launch
from autoclave.sandbox.namespace.launch import Identity
from autoclave.sandbox.pool import ZygotePool

from .conftest import LIMITS, MINIMAL, PLAIN
from .test_traces import JUDGING, children, descendants, first_processes, is_alive, wait_until

pytestmark = [
    pytest.mark.usefixtures("sandbox"),  # skips where no cells can be made
    pytest.mark.skipif(not find_place().is_usable, reason=f"no control groups can be made: {find_place().missing}"),
]


def groups_of(pid: int) -> list[Path]:
    return [found for folder in find_place().folders for found in folder.glob(f"autoclave-cell-{pid}-*")]


def test_a_burst_between_two_looks_is_stopped(run):
    outcome = run("import os; x = bytearray(400 << 20); os._exit(0)")
    assert (outcome.ended, outcome.exit_code) == (Ended.MEMORY, None)


def test_many_small_processes_exceed_the_memory_together_and_the_next_test_runs(open_cell):
    source = (
        "import os, sys, time\nif sys.stdin.read():\n    for _ in range(60):\n        if os.fork() == 0:\n"
        "            x = bytearray(2 << 20); time.sleep(60)\n    time.sleep(60)\nprint('fine')"
    )
    # Each is smaller than the zygote and the first process: the kernel may well pick one of those.
    with open_cell(source, memory_mb=64, processes=80, cpu_s=20, wall_s=30) as cell:
        outcomes = [cell.run(stdin) for stdin in (b"x", b"", b"x", b"")]
    assert [outcome.ended for outcome in outcomes] == [Ended.MEMORY, Ended.EXITED] * 2
    assert outcomes[3].stdout == b"fine\n"


def test_a_first_process_that_dies_of_a_tests_memory_is_that_tests_end_and_no_fault(open_cell):
    source = "import sys, time\nif sys.stdin.read(): x = bytearray(400 << 20)\nprint('fine')"
    before = first_processes()
    with open_cell(source) as cell:
        assert cell.run(b"").stdout == b"fine\n"
        (first_process,) = first_processes() - before
        (group,) = (path for path in groups_of(os.getpid()) if str(first_process) in members(path))
        prefer(first_process, group)
        outcomes = [cell.run(b"x"), cell.run(b"")]
    assert [outcome.ended for outcome in outcomes] == [Ended.MEMORY, Ended.EXITED]


def members(group: Path) -> list[str]:
    return (group / "cgroup.procs").read_text().split() if (group / "memory.limit_in_bytes").exists() else []


def prefer(pid: int, group: Path) -> None:
    """Have the kernel choose `pid` when the group is out of memory, as it does when tests are smaller."""
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def test_cpu_time_of_children_that_nobody_waits_for_counts(run):
    source = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(400):\n"
        "    if os.fork() == 0:\n        while time.process_time() < 0.02: pass\n        os._exit(0)\n"
        "    try: os.wait()\n    except ChildProcessError: pass"
    )
    assert run(source, cpu_s=0.8, wall_s=30).ended is Ended.CPU_TIME
    short = run(source.replace("400", "5"), cpu_s=2, wall_s=30)
    assert (short.ended, short.cpu_s > 0.09) == (Ended.EXITED, True)


def test_shared_memory_that_nobody_maps_at_the_moment_counts(run):
    source = (
        "import mmap, time\nkept = []\nfor _ in range(40):\n    m = mmap.mmap(-1, 10 << 20)\n"
        "    m.write(b'x' * len(m))\n    m.madvise(mmap.MADV_DONTNEED)\n    kept.append(m)"
    )
    assert run(source, cpu_s=10, wall_s=31).ended is Ended.MEMORY


def test_memory_behind_a_process_whose_first_thread_has_ended_counts(run):
    source = (
        "import ctypes, threading, time\ndef grow():\n    time.sleep(0.2)\n    x = []\n"
        "    while True: x.append(bytearray(1 << 20))\n"
        "threading.Thread(target=grow).start()\nctypes.CDLL(None).syscall(60, 0)"
    )
    assert run(source, cpu_s=10, wall_s=31).ended is Ended.MEMORY


def test_bytes_in_pipes_and_sockets_count(run):
    source = (
        "import os, socket, time\nfor _ in range(3): os.fork()\nkept = []\nfor _ in range(24):\n"
        "    pair = socket.socketpair()\n    kept.append(pair)\n    for end in pair:\n        end.setblocking(False)\n"
        "        try:\n            while True: end.send(b'x' * 60000)\n        except BlockingIOError: pass\n"
        "time.sleep(60)"
    )
    assert run(source, memory_mb=48, cpu_s=10, wall_s=31).ended is Ended.MEMORY


def test_the_peak_is_that_of_all_processes_together_and_of_this_test_only(open_cell):
    source = (
        "import os, sys, time\nif sys.stdin.read():\n    heard, told = os.pipe()\n    first = os.getpid()\n"
        "    os.fork(); os.fork()\n    x = bytearray(40 << 20)\n    os.write(told, b'x')\n"
        "    if os.getpid() != first: time.sleep(60)\n    for _ in range(4): os.read(heard, 1)\n"
        "open('f', 'wb').write(bytes(6 << 20))"
    )
    with open_cell(source, wall_s=30) as cell:
        large, small = cell.run(b"x"), cell.run(b"")
    assert (large.ended, small.ended) == (Ended.EXITED, Ended.EXITED)
    assert 160 < large.memory_mb < 230
    assert 6 < small.memory_mb < 40


def test_what_tests_leave_on_disk_or_in_flight_does_not_shrink_the_next_ones(open_cell):
    source = (
        "import array, os, socket\nwith open('f', 'wb') as file: file.write(bytes(7 << 20))\n"
        "one, other = socket.socketpair()\none.sendmsg([b'x'], [(1, 1, array.array('i', [os.open('f', 0)]))])\n"
        "x = bytearray(24 << 20)\nprint('fine')"
    )
    with open_cell(source, memory_mb=64, wall_s=30) as cell:  # ten times 7 MiB would not fit beside 24
        assert {cell.run(b"").stdout for _ in range(10)} == {b"fine\n"}


def test_processes_are_bounded_where_the_kernel_does_not_count_them_by_user(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "new_identity", lambda: Identity("single"))
    source = (
        b"import os, time\nn = 0\ntry:\n    for _ in range(40):\n        if not os.fork(): time.sleep(9); os._exit(0)\n"
        b"        n += 1\nexcept OSError: pass\nprint(n)"
    )
    sandbox = ZygotePool(launch.NamespaceLauncher())
    try:
        with sandbox.open(source, PLAIN, replace(LIMITS, processes=10), MINIMAL) as cell:
            assert int(cell.run(b"").stdout) == 9
    finally:
        sandbox.close()


@pytest.fixture
def killed_judge() -> int:
    """Process id of a judging process that was killed in the middle of a test."""
    with subprocess.Popen([sys.executable, "-c", JUDGING], stdout=subprocess.PIPE, env=dict(os.environ)) as judging:
        assert judging.stdout
        assert judging.stdout.readline() == b"started\n"
        assert wait_until(lambda: len(descendants(judging.pid)) >= 2 + 8)
        processes = descendants(judging.pid)
        assert groups_of(judging.pid)
        judging.send_signal(signal.SIGKILL)
        judging.wait()
    assert wait_until(lambda: not any(map(is_alive, processes)))
    return judging.pid


def test_groups_of_a_killed_judging_process_go_by_themselves(killed_judge: int):
    assert wait_until(lambda: not groups_of(killed_judge))


def test_groups_that_no_watcher_removed_are_removed_by_the_next_judging_process():
    left = [folder / f"autoclave-cell-{os.getpid()}-left" for folder in find_place().folders]
    for folder in left:
        folder.mkdir()
    assert launch.NamespaceLauncher()
    assert not any(folder.exists() for folder in left)


def test_a_group_that_several_threads_remove_leaves_the_watcher_of_the_others(sandbox: Sandbox):
    before, group, other = zygotes_and_watchers(), Group(find_place()), Group(find_place())
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: group.remove(), range(32)))
    assert groups_of(os.getpid())
    other.remove()
    assert zygotes_and_watchers() == before


def zygotes_and_watchers() -> set[int]:
    return set(children(os.getpid()))


def test_groups_of_a_living_judging_process_are_left_alone(sandbox: Sandbox):
    group = Group(find_place())  # empty: nothing but its lock protects it
    try:
        before = groups_of(os.getpid())
        remove_stale_groups(find_place())
        assert groups_of(os.getpid()) == before != []
    finally:
        group.remove()
    assert len(groups_of(os.getpid())) < len(before)


def test_a_group_that_another_process_cleared_away_before_it_was_locked_is_made_anew(monkeypatch: pytest.MonkeyPatch):
    lock, cleared = fcntl.flock, list[bool]()

    def late(descriptor: int, operation: int) -> None:
        if not cleared:
            cleared.append(True)
            remove_stale_groups(find_place())
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    group = Group(find_place())
    try:
        assert cleared
        assert group.cpu.seconds() == 0
        assert len(groups_of(os.getpid())) >= len(find_place().folders)
    finally:
        group.remove()


def test_a_closed_sandbox_leaves_no_group():
    before = groups_of(os.getpid())
    sandbox = ZygotePool(launch.NamespaceLauncher())
    with sandbox.open(b"pass", PLAIN, LIMITS, MINIMAL) as cell:
        cell.run(b"")
        assert len(groups_of(os.getpid())) > len(before)
    sandbox.close()
    assert groups_of(os.getpid()) == before
