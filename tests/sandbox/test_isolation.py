"""A program sees nothing of the host, of other tests, or of us, and cannot reach out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoclave.sandbox import Profile
from autoclave.sandbox.namespace.root import base_interpreter


def test_only_the_interpreter_is_in_the_file_system(run):
    source = (
        "import os\n"
        "library = os.path.dirname(os.__file__)\n"
        "for folder, folders, files in os.walk('/'):\n"
        "    if folder == library: folders[:] = []; continue\n"
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


def test_nothing_but_the_scratch_folder_can_be_written(run):
    source = (
        "import os\n"
        "for path in ('/x', '/dev/x', '/usr/x', os.__file__, os.path.dirname(os.__file__) + '/x'):\n"
        "    try: open(path, 'ab'); print('wrote', path)\n"
        "    except OSError: pass\n"
        "open('here', 'w').close(); print(os.listdir('/tmp'))"
    )
    assert run(source).stdout == b"['here']\n"


def test_the_environment_is_empty_but_for_what_makes_runs_repeatable(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
    outcome = run("import os; print(sorted(os.environ.items()))")
    assert outcome.stdout == b"[('LANG', 'C.UTF-8'), ('PYTHONHASHSEED', '0'), ('TZ', 'UTC')]\n"


def test_no_descriptor_is_inherited(run):
    source = "import os\nfor i in range(1024):\n    try: os.fstat(i); print(i, end=' ')\n    except OSError: pass"
    assert run(source).stdout == b"0 1 2 "


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


def test_the_first_process_survives_every_signal(open_cell):
    source = "import os\nfor s in range(1, 65):\n    try: os.kill(1, s)\n    except OSError: pass\nprint('sent')"
    with open_cell(source) as cell:
        assert [cell.run(b"").stdout for _ in range(2)] == [b"sent\n"] * 2


def test_there_are_no_sockets_but_socket_pairs(run):
    source = (
        "import socket\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_VSOCK):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
        "        try: socket.socket(family, kind); print('open', family)\n"
        "        except OSError: pass\n"
        "a, b = socket.socketpair(); a.send(b'pair'); print(b.recv(9))"
    )
    assert run(source).stdout == b"b'pair'\n"


def test_dangerous_system_calls_are_refused(run):
    source = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "calls = {\n"
        "    'unshare': lambda: libc.unshare(0x10000000), 'ptrace': lambda: libc.ptrace(0, 0, 0, 0),\n"
        "    'mount': lambda: libc.mount(b'x', b'/tmp', b'tmpfs', 0, None),\n"
        "    'umount': lambda: libc.umount2(b'/tmp', 2), 'hostname': lambda: libc.sethostname(b'x', 1),\n"
        "    'personality': lambda: libc.personality(0x40000), 'chroot': lambda: libc.chroot(b'/tmp'),\n"
        "    'memfd': lambda: libc.memfd_create(b'x', 0), 'shmget': lambda: libc.shmget(0, 4096, 0o1600),\n"
        "    'setns': lambda: libc.setns(0, 0), 'vm': lambda: libc.process_vm_readv(1, None, 0, None, 0, 0),\n"
        "    'clone': lambda: libc.syscall(56, 0x10000011, 0, 0, 0, 0),\n"
        "    'io_uring': lambda: libc.syscall(425, 1, None), 'keyctl': lambda: libc.syscall(250, 0, 0),\n"
        "    'vmsplice': lambda: libc.vmsplice(1, None, 0, 0), 'inotify': lambda: libc.inotify_init1(0),\n"
        "    'affinity': lambda: libc.sched_setaffinity(0, 128, b'\\xff' * 128),\n"
        "    'bpf': lambda: libc.syscall(321, 0, None, 0), 'userfaultfd': lambda: libc.syscall(323, 0),\n"
        "    'setuid': lambda: libc.setuid(0), 'prlimit of 1': lambda: libc.prlimit(1, 0, None, None)}\n"
        "print([name for name, call in calls.items() if call() != -1])\n"
    )
    assert run(source).stdout == b"[]\n"


def test_what_a_test_writes_beside_its_account_is_gone_in_the_next(open_cell):
    source = (
        "import sys\n"
        "frame = sys._getframe()\n"
        "while frame and 'test' not in frame.f_locals: frame = frame.f_back\n"
        "account = frame.f_locals['test']._account\n"
        "print(account[1000:1004])\n"
        "account[1000:1004] = b'left'\n"
    )
    with open_cell(source) as cell:
        assert [cell.run(b"").stdout for _ in range(2)] == [b"b'\\x00\\x00\\x00\\x00'\n"] * 2


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


def test_a_test_finds_nothing_of_the_test_before(open_cell):
    source = (
        "import os, sys\n"
        "print(os.listdir('/tmp'), os.getppid())\n"
        "open('left', 'w').write(sys.stdin.read())\n"
        "if os.fork() == 0:\n    os.setsid()\n    import time; time.sleep(60)\n"
    )
    with open_cell(source) as cell:
        outcomes = [cell.run(b"secret") for _ in range(3)]
    assert [outcome.stdout for outcome in outcomes] == [b"[] 1\n"] * 3


def test_neither_frames_nor_heap_hold_the_input_of_another_test(open_cell):
    source = (
        "import gc, sys\n"
        "frame, found = sys._getframe(), []\n"
        "while frame: found.append(repr(frame.f_locals)); frame = frame.f_back\n"
        "gc.unfreeze() if hasattr(gc, 'unfreeze') else None\n"
        "found += [o for o in gc.get_objects() if type(o) in (str, bytes)]\n"
        "mark = 'first' + 'secret'\n"
        "print(any(mark in str(text) for text in found))\n"
    )
    with open_cell(source) as cell:
        cell.run(b"firstsecret")
        assert cell.run(b"").stdout == b"False\n"


def test_our_own_place_on_the_host_stays_unknown(run):
    source = (
        "import sys\nframe = sys._getframe()\n"
        "while frame: print(frame.f_code.co_filename, frame.f_locals); frame = frame.f_back\n"
        "print(sys.argv, sys.orig_argv, sys.path, list(sys.modules))"
    )
    assert b"autoclave" not in run(source).stdout


def test_hash_seed_and_random_state_are_the_same_in_every_test(open_cell):
    outputs: set[bytes] = set()
    profile = Profile("random", modules=("random",))
    for _ in range(2):
        with open_cell("import random; print(hash('a'), random.random())", profile=profile) as cell:
            outputs |= {cell.run(b"").stdout for _ in range(2)}
    assert len(outputs) == 1


def test_a_daemon_is_gone_and_cannot_print_after_the_end(open_cell):
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        while True: os.write(1, b'late'); time.sleep(0.01)\n"
        "    os._exit(0)\n"
        "os.wait()"
    )
    with open_cell(source) as cell:
        started = [cell.run(b"").wall_s for _ in range(3)]
    assert max(started) < 3
