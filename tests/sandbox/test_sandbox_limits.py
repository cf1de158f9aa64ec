"""What only sealed cells in namespaces do: the kernel itself refuses what is too much, to the unit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import Ended, IsolationError
from autoclave.sandbox import Sandbox, open_sandbox
from autoclave.sandbox.cgroups import Place, find_place
from autoclave.sandbox.namespace.launch import NamespaceLauncher
from autoclave.sandbox.pool import ZygotePool


@pytest.fixture(scope="module", params=["control groups", "sampling"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """One that the kernel helps, and one that must do without."""
    place = find_place() if request.param == "control groups" else Place({}, {})
    if request.param == "control groups" and not place.is_usable:
        pytest.skip(f"no control groups can be made: {place.missing}")
    try:
        open_sandbox(SandboxConfig()).close()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    opened = ZygotePool(NamespaceLauncher(place))
    yield opened
    opened.close()


def test_a_program_that_ends_by_itself_has_its_exit_code_and_output(run):
    outcome = run("import sys; print(sys.stdin.read().upper()); sys.stderr.write('e'); sys.exit", b"abc")
    assert (outcome.ended, outcome.exit_code, outcome.signal) == (Ended.EXITED, 0, None)
    assert (outcome.stdout, outcome.stderr, outcome.stdout_cut, outcome.stderr_cut) == (b"ABC\n", b"e", 0, 0)


def test_an_endless_loop_in_c_code_is_stopped_by_cpu_time(run):
    outcome = run("sum(range(10**12))", cpu_s=0.5)
    assert outcome.ended is Ended.CPU_TIME
    assert 0.45 < outcome.cpu_s < 1.5


def test_cpu_time_of_child_processes_counts(run):
    outcome = run("import os\nfor _ in range(3): os.fork()\nwhile True: pass", cpu_s=0.8, wall_s=20)
    assert outcome.ended is Ended.CPU_TIME


def test_cpu_time_of_short_lived_children_that_nobody_waits_for_counts(run):
    source = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range({}):\n"
        "    if os.fork() == 0:\n        while time.process_time() < 0.004: pass\n        os._exit(0)\n"
        "    try: os.wait()\n    except ChildProcessError: pass"
    )
    assert run(source.format(1000), cpu_s=1, wall_s=60).ended is Ended.CPU_TIME
    assert run(source.format(50), cpu_s=2, wall_s=60).ended is Ended.EXITED


def test_children_that_are_waited_for_count_once(run):
    source = (
        "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n"
        "        while time.process_time() < 0.02: pass\n        os._exit(0)\n    os.wait()\n"
        "print(sum(os.times()[:4]))"
    )
    outcome = run(source, cpu_s=5, wall_s=60)
    assert outcome.ended is Ended.EXITED
    assert 0.7 < 0.95 * float(outcome.stdout) < outcome.cpu_s < 1.3 * float(outcome.stdout) + 0.1


def test_many_children_at_once_that_are_waited_for_are_charged_what_they_used(run):
    source = (
        "import os, time\nfor _ in range(10):\n    for _ in range(12):\n        if os.fork() == 0:\n"
        "            while time.process_time() < 0.005: pass\n            os._exit(0)\n"
        "    for _ in range(12): os.wait()\nprint(sum(os.times()[:4]))"
    )
    outcome = run(source, cpu_s=6, wall_s=60)
    assert outcome.ended is Ended.EXITED
    assert 0.5 < 0.95 * float(outcome.stdout) < outcome.cpu_s < 1.3 * float(outcome.stdout) + 0.1


def test_a_sleeping_program_is_stopped_by_the_wall_clock(run):
    outcome = run("import time; time.sleep(100)", wall_s=0.6)
    assert outcome.ended is Ended.WALL_TIME
    assert 0.5 < outcome.wall_s < 3
    assert outcome.cpu_s < 0.3


def test_a_stopped_program_is_ended_by_the_wall_clock(run):
    assert run("import os; os.kill(os.getpid(), 19)", wall_s=0.6).ended is Ended.WALL_TIME


def test_a_huge_allocation_fails_inside_the_program(run):
    outcome = run("try:\n    x = [0] * 10**10\nexcept MemoryError:\n    print('refused')")
    assert outcome.stdout == b"refused\n"


def test_memory_that_grows_is_stopped_at_the_limit(run):
    outcome = run("x = []\nwhile True: x.append(bytearray(1 << 20))", cpu_s=10, wall_s=31)
    assert outcome.ended is Ended.MEMORY
    assert outcome.memory_mb > 256


def test_memory_is_the_sum_over_all_processes(run):
    source = "import os, time\nfor _ in range(3): os.fork()\nx = bytearray(60 << 20)\ntime.sleep(20)"
    assert run(source, cpu_s=10, wall_s=15).ended is Ended.MEMORY  # 8 x 60 MiB; no process exceeds 256 alone


def test_pages_shared_between_processes_count_once(run):
    source = "import os, time\nx = bytearray(100 << 20)\nfor _ in range(3): os.fork()\ntime.sleep(0.5)"
    assert run(source, cpu_s=10, wall_s=31).ended is Ended.EXITED


@pytest.mark.parametrize("descriptor", [1, 2])
def test_endless_output_is_stopped_and_cut_at_the_cap(run, descriptor: int):
    outcome = run(f"import os\nwhile True: os.write({descriptor}, b'x' * 65536)", output_bytes=100_000)
    assert outcome.ended is Ended.OUTPUT
    assert len(outcome.stdout if descriptor == 1 else outcome.stderr) == 100_000


def test_output_of_exactly_the_cap_is_whole(run):
    outcome = run("print('x' * 99_999)", output_bytes=100_000)
    assert (outcome.ended, len(outcome.stdout)) == (Ended.EXITED, 100_000)


def test_a_fork_bomb_is_contained(run):
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    outcome = run(source, cpu_s=0.5, wall_s=10)
    assert outcome.ended is Ended.CPU_TIME


def test_processes_and_threads_are_counted_together(run):
    source = (
        "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n"
        "except OSError:\n    print(n)"
    )
    assert int(run(source, processes=10).stdout) == 9


def test_many_files_cannot_outgrow_the_scratch_disk(run):
    source = (
        "try:\n    for i in range(9):\n        with open(f'f{i}', 'wb') as f: f.write(b'x' * (1 << 20))\n"
        "except OSError as e: print(e.errno, i)"
    )
    assert run(source).stdout in (b"28 7\n", b"28 8\n")  # ENOSPC: the disk has 8 MiB, a little for names


def test_the_number_of_files_is_limited(run):
    source = (
        "try:\n    for i in range(100_000): open(f'{i}', 'w').close()\nexcept OSError as e: print(e.errno, i < 5000)"
    )
    assert run(source).stdout == b"28 True\n"


def test_shared_memory_counts_also_where_no_process_maps_its_pages(run):
    source = (
        "import mmap, time\nkept = []\n"
        "for _ in range(10):\n"
        "    m = mmap.mmap(-1, 64 << 20)\n"
        "    m.write(b'x' * len(m))\n"
        "    m.madvise(mmap.MADV_DONTNEED)\n    kept.append(m)\n"
        "time.sleep(60)"
    )
    assert run(source, cpu_s=10, wall_s=31).ended is Ended.MEMORY
