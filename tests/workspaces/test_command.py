"""A command sees the host's folder, changes a layer of its own, and reaches nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autoclave.sandbox
from autoclave.core import IsolationError, Outcome
from autoclave.core.outcome import Ended
from autoclave.sandbox.cgroups import find_place
from autoclave.workspaces import (
    CommandLimits,
    SealedCommand,
    command,
    overlay_problem,
    python_executable,
    run_command,
    warm_cell,
)
from tests.sandbox.test_traces import wait_until

LIMITS = CommandLimits(wall_s=20, cpu_s=10, memory_mb=256, processes=50, disk_mb=8, scratch_mb=8)
Run = Callable[..., Outcome]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    try:
        problem = overlay_problem(tmp_path)
    except IsolationError as error:
        pytest.skip(f"this host cannot seal commands: {error}")
    if problem:
        pytest.skip(f"this host cannot stack folders: {problem}")
    tree = tmp_path / "tree"
    (tree / "docs/deep").mkdir(parents=True)
    (tree / "a.txt").write_text("first\n")
    (tree / "docs/c.txt").write_text("c" * 1000)
    (tree / "docs/deep/d.txt").write_text("d")
    (tree / "link").symlink_to("a.txt")
    (tree / "out").symlink_to("/etc/passwd")
    (tree / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tree / "run.sh").chmod(0o755)
    return tree


@pytest.fixture
def run(tree: Path) -> Run:
    """run(*argv, limits={}, **command): the outcome; what it wrote is in `layers/upper` beside the tree."""
    layers = tree.with_name("layers")

    def run_it(*argv: str, limits: dict[str, Any] | None = None, **command: Any) -> Outcome:
        subprocess.run(["rm", "-rf", layers], check=True)
        for name in ("upper", "work"):
            (layers / name).mkdir(parents=True)
        before = listing(tree)
        outcome = run_command(SealedCommand(argv, tree, layers, **command), replace(LIMITS, **(limits or {})))
        assert listing(tree) == before
        return outcome

    return run_it


def listing(folder: Path) -> list[Any]:
    return [
        (path, about.st_mode, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        for path in sorted(folder.rglob("*"))
        for about in [path.lstat()]
    ]


def upper(tree: Path) -> list[str]:
    folder = tree.with_name("layers") / "upper"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def python(source: str) -> tuple[str, ...]:
    return (python_executable(), "-c", source)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("echo more >> a.txt", ["a.txt"]),
        ("cp -a docs copy", ["copy", "copy/c.txt", "copy/deep", "copy/deep/d.txt"]),
        ("mv docs moved", ["docs", "moved", "moved/c.txt", "moved/deep", "moved/deep/d.txt"]),
        ("rm -rf docs", ["docs"]),
        ("ln a.txt same && ln -s a.txt other", ["a.txt", "other", "same"]),
        ("chmod 600 a.txt && touch -d 2001-01-01 run.sh", ["a.txt", "run.sh"]),
        ("truncate -s 1M docs/deep/holes && mkfifo pipe", ["docs", "docs/deep", "docs/deep/holes", "pipe"]),
        ("cat < link > /dev/null; ./run.sh", []),
        ("git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm c && rm -rf .git", []),
    ],
)
def test_what_a_command_writes_is_in_its_layer_and_the_folder_stays_as_it_is(run: Run, tree: Path, line, written):
    if "git" in line and subprocess.run(["which", "git"], capture_output=True, check=False).returncode:
        pytest.skip("git is not installed")
    outcome = run("sh", "-ec", line)
    assert (outcome.ended, outcome.exit_code, outcome.stderr) == (Ended.EXITED, 0, b"")
    assert upper(tree) == written


def test_streams_code_and_folder_are_the_commands_own(run: Run, tree: Path):
    outcome = run("sh", "-c", "cat; pwd; echo $FOO $HOME $SECRET; exit 3", stdin=b"given\n", environment={"FOO": "bar"})
    assert outcome.stdout == f"given\n{tree}\nbar /.home\n".encode()
    assert run("sh", "-c", "ls -A ~ && touch ~/file && ls ~").stdout == b"file\n"
    assert outcome.exit_code == 3
    large = bytes(1 << 20)
    assert len(run("cat", stdin=large, limits={"output_bytes": 1 << 21}).stdout) == len(large)
    assert run("true", stdin=large).exit_code == 0  # which does not read it
    missing = run("no-such-program")
    assert (missing.exit_code, missing.stderr) == (127, b"no-such-program: No such file or directory\n")


def test_what_it_starts_is_gone_when_it_ends(run: Run, tree: Path):
    loop = "while true; do echo again >> {}; sleep 0.1; done"
    source = f"({loop.format('one')}) & (setsid sh -c '{loop.format('other')}') & "
    outcome = run("sh", "-c", f"{source} while ! test -s one || ! test -s other; do sleep 0.1; done; echo done")
    assert (outcome.ended, outcome.stdout) == (Ended.EXITED, b"done\n")  # waited for, they would meet a limit
    before = listing(tree.with_name("layers") / "upper")
    time.sleep(0.5)
    assert listing(tree.with_name("layers") / "upper") == before


@pytest.mark.parametrize(
    ("source", "limits", "ended"),
    [
        ("import time; time.sleep(60)", {"wall_s": 0.5}, Ended.WALL_TIME),
        ("while True: pass", {"cpu_s": 1.0}, Ended.CPU_TIME),
        ("x = bytearray(1 << 30); x[::4096] = b'x' * (1 << 18)", {}, Ended.MEMORY),
        ("while True: print('x' * 1000)", {}, Ended.OUTPUT),
        ("import time\nfor i in range(64): open(f'f{i}', 'wb').write(bytes(1 << 20))\ntime.sleep(9)", {}, Ended.DISK),
    ],
)
def test_a_limit_ends_it_and_is_named(run: Run, source: str, limits: dict[str, Any], ended: Ended):
    outcome = run(*python(source), limits=limits)
    if ended is Ended.MEMORY and outcome.ended is Ended.EXITED:
        assert b"MemoryError" in outcome.stderr  # a host without control groups
        return
    assert outcome.ended is ended
    assert outcome.exit_code is None


def test_a_command_that_fails_by_the_limit_of_open_files_names_it(run: Run):
    source = "import os\ntry:\n    while True: os.dup(0)\nexcept OSError:\n    if not input(): raise"
    failed, caught = (run(*python(source), stdin=stdin, limits={"open_files": 30}) for stdin in (b"\n", b"caught\n"))
    assert (failed.ended, failed.exit_code) == (Ended.EXITED, 1)
    assert "limit of open files reached: open_files = 30" in failed.detail
    assert (caught.exit_code, caught.detail) == (0, "")


def test_a_fork_bomb_is_bounded(run: Run):
    source = """
import os, time
count = 0
try:
    while count < 5000:
        if os.fork() == 0:
            time.sleep(30)
        count += 1
except OSError:
    pass
print(count)
"""
    assert int(run(*python(source)).stdout) <= 55


ESCAPES = {
    "a file of the host": "open('/etc/shadow')",
    "a home folder": "import os; assert set(os.listdir('/root')) <= {'.pyenv'}, 'more than an interpreter'",
    "a link that leads out": "text = open('out').read(); assert 'user:x' in text and 'daemon' not in text",
    "the root": "open('/new', 'w')",
    "system files": "open('/usr/new', 'w')",
    "a device": "import os; os.mknod('dev', 0o20666, os.makedev(1, 3))",
    "another name for a file of the system": "import os; os.link('/usr/bin/env', 'env')",
    "mounting": "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
    "new namespaces": "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "another root": "import os; os.chroot('/tmp')",
    "tracing": "import ctypes; assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
    "settings of the kernel": "open('/proc/sys/kernel/core_pattern', 'w')",
    "keys": "import ctypes; assert ctypes.CDLL(None).syscall(250, 0, -3, 0) >= 0",
    "handles": "import ctypes; assert ctypes.CDLL(None).syscall(303, -100, b'.', None, None, 0) >= 0",
    "a network": "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "sockets of the file system": "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)",
    "raw sockets": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "io_uring": "import ctypes; assert ctypes.CDLL(None).syscall(425, 1, None) >= 0",
    "other processes": "import os; assert len([p for p in os.listdir('/proc') if p.isdigit()]) > 2",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_a_way_out_is_closed(run: Run, tree: Path, name: str):
    outcome = run(*python(ESCAPES[name]))
    if name in ("a home folder", "a link that leads out"):
        assert outcome.exit_code == 0 or b"No such file" in outcome.stderr
    else:
        assert outcome.exit_code == 1, outcome
    assert [each for each in upper(tree) if each != "dev"] == []


def test_set_user_id_programs_gain_nothing(run: Run):
    source = (
        "import os, subprocess\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)\n"
        "print(status['NoNewPrivs'].strip(), int(status['CapEff'], 16) & ~0b11011, int(status['Seccomp']))"
    )
    assert run(*python(source)).stdout.split() == [b"1", b"0", b"2"]


def test_descriptors_and_environment_of_ours_stay_with_us(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET", "hush")
    with open(os.devnull) as file:
        os.set_inheritable(file.fileno(), True)
        outcome = run(*python("import os; print(sorted(os.listdir('/proc/self/fd')), 'SECRET' in os.environ)"))
    assert outcome.stdout == b"['0', '1', '2', '3'] False\n"  # 3 lists the folder


def test_what_is_hidden_is_neither_read_nor_changed(run: Run, tree: Path):
    line = "cat docs/c.txt; echo x > docs/c.txt; rm -r docs; echo y > a.txt"
    outcome = run("sh", "-c", line, hidden=("docs/c.txt",))
    assert outcome.stdout == b""
    told = outcome.stderr.decode().splitlines()
    assert [each.rpartition(": ")[2] for each in told] == [
        *["No such device or address"] * 2,
        "Device or resource busy",
    ]
    assert (tree.with_name("layers") / "upper/a.txt").exists()


def test_the_one_way_out_is_the_socket_that_we_serve(run: Run, tree: Path):
    received: list[bytes] = []

    @contextlib.contextmanager
    def serve(door: socket.socket) -> Iterator[None]:
        def answer() -> None:
            connection, _ = door.accept()
            with connection:
                received.append(connection.recv(100))
                connection.sendall(b"from outside")

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join(10)

    layers = tree.with_name("layers")
    for name in ("upper", "work"):
        (layers / name).mkdir(parents=True)
    source = (
        "import socket\n"
        "link = socket.create_connection(('127.0.0.1', 3128)); link.sendall(b'hello'); print(link.recv(100).decode())\n"
        "for place in (('127.0.0.1', 22), ('10.0.0.1', 80), ('169.254.169.254', 80)):\n"
        "    try: socket.create_connection(place, 1)\n"
        "    except OSError as error: print(error.errno)\n"
    )
    outcome = run_command(SealedCommand(python(source), tree, layers, listens=True), LIMITS, serve)
    assert outcome.stdout.split(b"\n")[0] == b"from outside", outcome
    assert [int(line) for line in outcome.stdout.split()[2:]] == [111, 101, 101]
    assert received == [b"hello"]


def test_nothing_is_left_when_we_are_killed(tree: Path):
    layers = tree.with_name("layers")
    for name in ("upper", "work"):
        (layers / name).mkdir(parents=True)
    source = (
        "import sys\nfrom pathlib import Path\nfrom autoclave.workspaces import SealedCommand, run_command\n"
        "run_command(SealedCommand(('sh', '-c', 'while true; do date >> ticks; sleep 0.1; done'), "
        "Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    process = subprocess.Popen([sys.executable, "-c", source, tree, layers])
    ticks = layers / "upper/ticks"
    assert wait_until(ticks.exists, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()

    def is_over() -> bool:
        size = ticks.stat().st_size
        time.sleep(0.5)
        return ticks.stat().st_size == size

    assert wait_until(is_over)
    assert str(layers) not in Path("/proc/self/mountinfo").read_text()


def test_the_control_groups_of_one_that_was_killed_are_removed_by_the_next(run: Run):
    groups = [place / f"autoclave-cell-killed-{os.getpid()}" for place in find_place().folders]
    for group in groups:
        group.mkdir()
    assert run("true").exit_code == 0
    assert not any(group.exists() for group in groups)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_needs_nothing_more():
    interpreter = shutil.which("python3.11", path="/usr/bin")
    if interpreter is None or sys.version_info[:2] != (3, 11):
        pytest.skip("no interpreter outside of root's home that fits this environment")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    source = Path(autoclave.sandbox.__file__).parents[2]
    program = """
import os, tempfile
from pathlib import Path
from autoclave.workspaces import SealedCommand, overlay_problem, run_command
with tempfile.TemporaryDirectory() as folder:
    base = Path(folder)
    for name in ("upper", "work"):
        (base / "layers" / name).mkdir(parents=True)
    (base / "tree").mkdir()
    (base / "tree/a").write_text("a")
    assert not overlay_problem(base), overlay_problem(base)
    command = SealedCommand(("sh", "-c", "id -u; echo b > b; echo c >> a"), base / "tree", base / "layers")
    outcome = run_command(command)
    assert (outcome.stdout, outcome.exit_code) == (b"65534\\n", 0), outcome
    assert sorted(os.listdir(base / "layers/upper")) == ["a", "b"]
    assert (base / "tree/a").read_text() == "a"
    os.chmod(base / "layers/work/work", 0o700)
print("done")
"""
    done = subprocess.run(
        [interpreter, "-c", program], env={"PYTHONPATH": f"{source}:{site}", "PYTHONDONTWRITEBYTECODE": "1"},
        user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "Permission denied" in done.stderr and "autoclave" not in done.stderr:
        pytest.skip("the sources are in a private folder")
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("changed", ["", "limit", "host"])
def test_a_cell_made_ahead_serves_the_next_command_unless_something_has_changed(
    run: Run, tree: Path, monkeypatch: pytest.MonkeyPatch, changed: str
):
    limits = replace(LIMITS, scratch_mb=9) if changed == "limit" else LIMITS
    warm_cell(SealedCommand((), tree, tree.with_name("layers")), limits)
    (spare,) = command._spares
    if changed == "host":
        root_of = command.root_of
        monkeypatch.setattr(command, "root_of", lambda *given: {**root_of(*given), "mounts": "others"})
    served = list[command._Cell]()
    start = command._Cell.start
    monkeypatch.setattr(command._Cell, "start", lambda cell, *given: served.append(cell) or start(cell, *given))
    for _ in range(2):
        outcome = run("sh", "-c", "cat a.txt; echo more >> a.txt")
        assert (outcome.stdout, outcome.exit_code) == (b"first\n", 0)
    assert (tree.with_name("layers") / "upper/a.txt").read_text() == "first\nmore\n"
    assert [cell is spare for cell in served] == [not changed, False]
    assert spare._process.returncode is not None
    assert command._spares == []
