"""Requirements at the levels `restricted` and `sealed`: a program cannot reach the host."""

from dataclasses import replace

import pytest

from autoclave.config.levels import Level
from autoclave_testing.sandboxes.cells import EXECUTE, OpenCell, Run
from autoclave_testing.sandboxes.open import SandboxConformance


class RestrictedConformance(SandboxConformance):
    """Requirements at `restricted` and above: a program cannot read, change or query anything of the host."""

    level: Level = "restricted"

    @pytest.mark.parametrize("path", [__file__, "/etc/shadow", "/proc/1/environ"])
    def test_files_of_the_host_cannot_be_opened(self, run: Run, path: str):
        source = f"import os\ntry: os.open({path!r}, os.O_RDONLY); print('open')\nexcept OSError: print('refused')"
        assert run(source).stdout == b"refused\n"

    def test_nothing_but_the_scratch_folder_can_be_written(self, run: Run):
        source = (
            "import os\n"
            "for path in ('/x', '/dev/x', '/usr/x', '/var/tmp/x', os.__file__, os.path.dirname(os.__file__) + '/x'):\n"
            "    try: open(path, 'ab'); print('wrote', path)\n"
            "    except OSError: pass\n"
            "for change in (lambda p: os.chmod(p, 0o777), os.utime, lambda p: os.setxattr(p, 'user.x', b'x')):\n"
            "    try: change(os.__file__); print('changed')\n"
            "    except OSError: pass\n"
            "open('here', 'w').close(); print(os.listdir('.'))"
        )
        assert run(source).stdout == b"['here']\n"

    def test_a_placed_file_cannot_be_changed_by_a_test(self, open_cell: OpenCell):
        runner = replace(
            EXECUTE,
            name="tamper",
            source="import os\n"
            "def prepare(content, place):\n    return place('program', content)\n"
            "def run(test):\n"
            "    for change in (lambda: open(test.program, 'wb'), lambda: os.unlink(test.program),\n"
            "                   lambda: os.rename(test.program, 'x'), lambda: os.chmod(test.program, 0o777)):\n"
            "        try: change(); print('changed', flush=True)\n"
            "        except OSError: pass\n"
            "    print(open(test.program).read(), flush=True); os._exit(0)\n",
        )
        with open_cell("content", runner) as cell:
            assert [cell.run(b"").stdout for _ in range(2)] == [b"content\n"] * 2

    def test_no_other_process_can_be_signalled(self, open_cell: OpenCell):
        source = (
            "import os\n"
            "for pid in (os.getppid(), 1):\n"
            "    for signal in (9, 15, 19):\n"
            "        try: os.kill(pid, signal)\n"
            "        except OSError: pass\n"
            "print('alive')"
        )
        with open_cell(source) as cell:
            assert [cell.run(b"").stdout for _ in range(2)] == [b"alive\n"] * 2

    def test_only_socket_pairs_can_be_made(self, run: Run):
        source = (
            "import socket\n"
            "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_VSOCK):\n"
            "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
            "        try: socket.socket(family, kind); print('open', family)\n"
            "        except OSError: pass\n"
            "try: socket.socketpair(socket.AF_VSOCK); print('open pair')\n"
            "except PermissionError: pass\n"
            "a, b = socket.socketpair(); a.send(b'pair'); print(b.recv(9))"
        )
        assert run(source).stdout == b"b'pair'\n"

    def test_dangerous_system_calls_are_refused(self, run: Run):
        source = (
            "import ctypes, platform\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "calls = {\n"
            "    'unshare': lambda: libc.unshare(0x10000000), 'ptrace': lambda: libc.ptrace(0, 0, 0, 0),\n"
            "    'mount': lambda: libc.mount(b'x', b'/tmp', b'tmpfs', 0, None),\n"
            "    'umount': lambda: libc.umount2(b'/tmp', 2), 'hostname': lambda: libc.sethostname(b'x', 1),\n"
            "    'personality': lambda: libc.personality(0x40000), 'chroot': lambda: libc.chroot(b'/tmp'),\n"
            "    'memfd': lambda: libc.memfd_create(b'x', 0), 'shmget': lambda: libc.shmget(0, 4096, 0o1600),\n"
            "    'setns': lambda: libc.setns(0, 0), 'vm': lambda: libc.process_vm_readv(1, None, 0, None, 0, 0),\n"
            "    'io_uring': lambda: libc.syscall(425, 1, None),\n"
            "    'vmsplice': lambda: libc.vmsplice(1, None, 0, 0), 'inotify': lambda: libc.inotify_init1(0),\n"
            "    'affinity': lambda: libc.sched_setaffinity(0, 128, b'\\xff' * 128),\n"
            "    'setuid': lambda: libc.setuid(0), 'prlimit of 1': lambda: libc.prlimit(1, 0, None, None)}\n"
            "if platform.machine() == 'x86_64':\n"
            "    calls['clone'] = lambda: libc.syscall(56, 0x10000011, 0, 0, 0, 0)\n"
            "    calls['keyctl'] = lambda: libc.syscall(250, 0, 0)\n"
            "    calls['bpf'] = lambda: libc.syscall(321, 0, None, 0)\n"
            "    calls['userfaultfd'] = lambda: libc.syscall(323, 0)\n"
            "print([name for name, call in calls.items() if call() != -1])\n"
        )
        assert run(source).stdout == b"[]\n"

    def test_no_privilege_can_be_gained(self, run: Run):
        assert run("import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))").stdout == b"1\n"


class SealedConformance(RestrictedConformance):
    """Requirements at `sealed`: the host is absent."""

    level: Level = "sealed"

    @pytest.mark.parametrize("path", [__file__, "/root/.bashrc", "/home", "/boot", "/var/log"])
    def test_files_of_the_host_are_absent(self, run: Run, path: str):
        assert run(f"import os; print(os.path.exists({path!r}))").stdout == b"False\n"

    def test_no_capability_is_left(self, run: Run):
        source = (
            "import ctypes; header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()\n"
            "print(ctypes.CDLL(None).capget(header, held), *held)"
        )
        assert run(source).stdout == b"0 0 0 0 0 0 0\n"

    def test_no_other_process_is_visible(self, run: Run):
        source = (
            "import os\n"
            "def is_there(pid):\n"
            "    try: os.kill(pid, 0)\n"
            "    except ProcessLookupError: return False\n"
            "    except PermissionError: pass\n"
            "    return True\n"
            "others = [pid for pid in range(1, 40_000) if pid not in (os.getpid(), os.getppid()) and is_there(pid)]\n"
            "print(others in ([], [1]))"
        )
        assert run(source).stdout == b"True\n"

    def test_the_first_process_survives_every_signal(self, open_cell: OpenCell):
        source = (
            "import os\n"
            "for pid in (1, os.getppid()):\n"
            "    for s in range(1, 65):\n"
            "        try: os.kill(pid, s)\n"
            "        except OSError: pass\n"
            "print('sent')"
        )
        with open_cell(source) as cell:
            assert [cell.run(b"").stdout for _ in range(2)] == [b"sent\n"] * 2
