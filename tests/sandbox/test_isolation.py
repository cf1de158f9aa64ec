"""What cells in namespaces do beyond the conformance suite."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import pytest

from autoclave.core import Ended, SandboxFault
from autoclave.sandbox.namespace.root import base_interpreter, root_plan
from autoclave_testing.sandboxes.cells import ECHO


def test_only_the_interpreter_is_in_the_file_system(run):
    source = (
        "import os\n"
        "library = os.path.dirname(os.__file__)\n"
        "for folder, folders, files in os.walk('/'):\n"
        "    if folder in (library, '/usr/lib/locale/C.utf8', '/usr/share/zoneinfo'): folders[:] = []; continue\n"
        "    for name in files:\n"
        "        if '.so' not in name: print(os.path.join(folder, name))\n"
        "for name in ('site-packages', 'dist-packages'):\n"
        "    if os.path.isdir(f'{library}/{name}'): print(os.listdir(f'{library}/{name}'))\n"
    )
    seen = set(run(source).stdout.decode().split("\n")) - {"", "[]"}
    devices = {"/dev/null", "/dev/zero", "/dev/urandom"}
    assert devices < seen
    assert {Path(path).name for path in seen - devices} == {Path(base_interpreter()).resolve().name}


@pytest.mark.parametrize("path", [__file__, "/etc/passwd", "/proc/self/mem", "/sys/kernel", "/root/.bashrc"])
def test_files_of_the_host_are_absent(run, path: str):
    assert run(f"import os; print(os.path.exists({path!r}))").stdout == b"False\n"


def test_the_environment_is_empty_but_for_what_makes_runs_repeatable(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
    outcome = run("import os; print(sorted(os.environ.items()))")
    assert outcome.stdout == b"[('LANG', 'C.UTF-8'), ('PYTHONHASHSEED', '0'), ('TZ', 'UTC')]\n"


def test_no_other_process_is_visible_or_can_be_signalled(run):
    source = (
        "import os\n"
        "print(os.getpid(), os.getppid())\n"
        "for pid in range(1, 1000):\n"
        "    if pid != os.getpid():\n"
        "        try: os.kill(pid, 9)\n"
        "        except OSError: pass\n"
        "print('alive')"
    )
    assert run(source).stdout == b"2 1\nalive\n"


def test_an_account_that_claims_a_fault_costs_no_outcome_before_it_and_no_descriptor_after_it(open_cell):
    source = (
        "import sys, time\n"
        "frame = sys._getframe()\n"
        "while 'test' not in frame.f_locals: frame = frame.f_back\n"
        "wish = sys.stdin.read()\n"
        "if wish == 'claim': frame.f_locals['test'].report('setting up')\n"
        "if wish == 'sleep': time.sleep(0.05)"
    )
    with open_cell(source) as cell:
        before = len(os.listdir("/proc/self/fd"))
        assert len(cell.run_ahead([(b"", b""), (b"claim", b""), (b"sleep", b"")])) == 1
        with pytest.raises(SandboxFault, match="could not be set up"):
            cell.run_ahead([(b"claim", b"")])
        assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_test_writes_beside_its_account_is_gone_in_the_next(open_cell):
    source = (
        "import sys\n"
        "frame = sys._getframe()\n"
        "while frame and 'test' not in frame.f_locals: frame = frame.f_back\n"
        "owner = getattr(frame.f_locals['test']._report, '__self__', None)\n"
        "account = getattr(owner, '_account', bytearray(4096))\n"  # the compiled one gives no way to it
        "print(bytes(account[1000:1004]))\n"
        "account[1000:1004] = b'left'\n"
    )
    with open_cell(source) as cell:
        assert [cell.run(b"").stdout for _ in range(2)] == [b"b'\\x00\\x00\\x00\\x00'\n"] * 2


@pytest.mark.parametrize(
    "change",
    [
        "open('file', 'w').close()",
        "open('file', 'w').close(); os.remove('file'); os.utime('/tmp', ns=(before.st_atime_ns, before.st_mtime_ns))",
        "os.makedirs('a/b')",
        "os.listdir('/tmp')",
        "os.chmod('/tmp', 0o755)",
        "os.chmod('/tmp', 0o755); os.chmod('/tmp', 0o700)",
        "os.utime('/tmp', (1, 1))",
        "os.setxattr('/tmp', 'user.name', b'value') if has_attributes else None",
    ],
)
def test_what_a_test_changes_about_its_scratch_folder_is_as_new_in_the_next(open_cell, change: str):
    has_attributes = tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 6)
    source = (
        f"import os, sys\nhas_attributes = {has_attributes}\nbefore = os.stat('/tmp')\n"
        "times = {before.st_atime_ns, before.st_mtime_ns, before.st_ctime_ns}\n"
        "print(oct(before.st_mode), before.st_size, len(times), os.statvfs('/tmp').f_ffree)\n"
        f"if sys.stdin.read(): {change}\n"
        "else: print(os.listdir('/tmp'), os.listxattr('/tmp'))"
    )
    with open_cell(source) as cell:
        new, *_, after = [cell.run(stdin) for stdin in (b"", b"x", b"x", b"")]
    assert new.exit_code == 0
    assert after.stdout == new.stdout


def test_a_link_to_itself_beside_a_library_is_passed_over(tmp_path: Path):
    library, link, loop = (tmp_path / f"libx.so{end}" for end in (".1", "", ".0"))
    library.touch()
    link.symlink_to(library.name)
    loop.symlink_to(loop.name)
    links = dict(root_plan(base_interpreter(), paths=(str(library),)).links)
    assert (links.get(str(link)), links.get(str(loop))) == (library.name, None)


def test_standard_input_is_a_file_in_memory_whatever_its_size(run):
    source = (
        "import os, stat\nprint(stat.S_ISREG(os.fstat(0).st_mode))\n"
        "try: os.write(0, b'x')\nexcept OSError: print('read-only')"
    )
    assert run(source).stdout == b"True\nread-only\n"


def test_no_capability_is_left_and_none_can_be_gained(run):
    source = (
        "import ctypes; libc = ctypes.CDLL(None)\n"
        "print([libc.prctl(23, number) for number in range(41)].count(1), libc.prctl(39, 0, 0, 0, 0))"
    )
    assert run(source).stdout == b"0 1\n"  # bounding set empty, no_new_privs on


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a cell user ids of its own")
def test_as_root_tests_run_under_another_user_than_the_first_process(run):
    source = (
        "import os\ntry: os.kill(1, 0)\n"
        "except PermissionError: print('not mine', os.getuid(), os.getgid(), os.getgroups())"
    )
    assert run(source).stdout == b"not mine 1000 1000 []\n"


def test_an_exchange_carries_one_frame_each_way(open_cell):
    with open_cell("frames = 1", ECHO) as cell:
        for frame in (b"", b"small", bytes(range(256)) * 3000):
            assert cell.exchange(frame)[1] == frame


@pytest.mark.parametrize(
    ("source", "ended"),
    [
        ("frames = 0", Ended.EXITED),
        ("import os\nwhile True: os.write(3, b'\\xff' * 65536)", Ended.OUTPUT),
        ("while True: pass", Ended.CPU_TIME),
    ],
)
def test_an_exchange_without_an_answer_has_an_outcome(open_cell, source: str, ended: Ended):
    with open_cell(source, ECHO, cpu_s=0.3) as cell:
        for frame in (b"small", bytes(500_000)):
            outcome, answer = cell.exchange(frame)
            assert (outcome.ended, answer) == (ended, None)
