"""Workspaces of this host pass the conformance suite, seal what runs in them, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import HostError, SandboxFault, UsageError
from autoclave.sandbox.cgroups import find_place
from autoclave.workspaces import Declared, LocalWorkspaces, ToolResult, WorkspaceLimits
from autoclave.workspaces.local import LocalWorkspace
from tests.sandbox.test_traces import wait_until
from tests.workspaces.conformance import LIMITS, WorkspaceConformance
from tests.workspaces.test_command import ESCAPES


def opened(limits: WorkspaceLimits = LIMITS) -> LocalWorkspaces:
    try:
        return LocalWorkspaces(limits)
    except HostError as error:
        pytest.skip(f"this host cannot seal workspaces: {error}")


def zygote_of(workspace: LocalWorkspace) -> Any:
    return workspace._zygote


def first_of(workspace: LocalWorkspace) -> int:
    pid = zygote_of(workspace)._process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


class TestLocalWorkspaces(WorkspaceConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def workspaces(cls) -> Iterator[LocalWorkspaces]:
        workspaces = opened()
        yield workspaces
        workspaces.close()

    @pytest.mark.parametrize("name", [name for name in ESCAPES if name not in ("a link that leads out", "a device")])
    def test_a_way_out_is_closed(self, call, name: str):
        result = call("python", code=ESCAPES[name])
        if name == "a home folder":
            assert not result.is_error or "No such file" in result.text
        else:
            assert result.is_error, result

    def test_tools_have_no_privilege(self, call):
        source = (
            "status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)\n"
            "[status[name].split() for name in ('NoNewPrivs', 'CapEff', 'CapBnd', 'Seccomp', 'Uid')]"
        )
        none = "0" * 16
        *others, users = eval(call("python", code=source).text)
        assert others == [["1"], [none], [none], ["2"]]
        assert len(set(users)) == 1
        assert os.geteuid() or users[0] not in ("0", "1000")

    def test_the_pipe_of_tools_is_as_new_in_each_call(self, call):
        call("python", code="import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 4096), os.set_blocking(1, False)")
        assert call("shell", command="head -c 60000 /dev/zero | tr '\\0' x").text == "x" * 60000
        assert call("python", code="fcntl.fcntl(1, fcntl.F_GETPIPE_SZ), os.get_blocking(1)").text == "(65536, True)\n"

    def test_the_first_process_is_out_of_reach(self, call):
        for path in ("mem", "environ", "maps", "fd/0"):
            assert call("python", code=f"open('/proc/1/{path}', 'rb').read(1)").is_error
        assert call("shell", command="for s in 2 9 11 15 17; do kill -$s 1; done; echo on").text.endswith("on\n")


def test_what_a_call_starts_stays_if_asked_for_but_never_past_the_end():
    workspaces = opened(WorkspaceLimits(keeps_processes=True))
    workspace = workspaces.start({}).result()
    daemon = "(setsid sh -c 'while :; do date +%N > ticks; sleep 0.01; done' &) > /dev/null 2>&1; sleep 0.2"
    workspace.call("shell", {"command": daemon}).result()
    ticks = [workspace.call("shell", {"command": "cat ticks; sleep 0.1"}).result().text for _ in range(2)]
    assert ticks[0] != ticks[1]
    first = first_of(workspace)
    workspace.end(Declared()).result()
    assert not Path(f"/proc/{first}").exists()  # with it, its namespace
    workspaces.close()


def test_what_processes_that_are_kept_print_and_compute_between_calls_counts():
    workspaces = opened(WorkspaceLimits(keeps_processes=True, call_cpu_s=0.5))
    flood = 'import fcntl, os; os.popen("sleep .5").read(); fcntl.fcntl(1, 1031, 1 << 20); os.write(1, bytes(1 << 21))'
    for started, limit in (
        (f"python3 -c '{flood}' &", "output"),
        ("(while :; do :; done) > /dev/null 2>&1 &", "cpu_time"),
    ):
        workspace = workspaces.start({}).result()
        assert workspace.call("shell", {"command": started}).result() == ToolResult("")
        time.sleep(1.5)
        assert workspace.call("shell", {"command": "true"}).result().ended_by == limit
        workspace.close()
    workspaces.close()


@pytest.mark.parametrize("victim", ["first process", "zygote"])
def test_a_killed_cell_is_a_fault_and_the_next_one_works(victim: str):
    workspaces = opened()
    workspace = workspaces.start({}).result()
    zygote = zygote_of(workspace)
    call = workspace.call("shell", {"command": "sleep 2"})
    os.kill(zygote._process.pid if victim == "zygote" else first_of(workspace), signal.SIGKILL)
    with pytest.raises(SandboxFault):
        call.result()
    assert workspaces.start({}).result().call("shell", {"command": "echo on"}).result().text == "on\n"
    workspaces.close()


def test_memory_that_is_the_end_of_the_zygote_is_the_policys_end_of_the_episode(monkeypatch: pytest.MonkeyPatch):
    workspaces = opened()
    workspace = workspaces.start({}).result()
    zygote = zygote_of(workspace)
    monkeypatch.setattr(zygote.meter, "is_memory_exceeded", lambda: not zygote._process.is_running())
    call = workspace.call("shell", {"command": "sleep 2"})
    os.kill(zygote._process.pid, signal.SIGKILL)
    assert (call.result().ended_by, call.result().is_over) == ("memory", True)
    assert workspace.call("shell", {"command": "true"}).result() == call.result()
    assert "limit of memory" in workspace.end(Declared()).result().left_out["*"]
    workspaces.close()


@pytest.mark.parametrize(
    "code",
    [
        "import threading, time\nfor i in range(99): threading.Thread(target=time.sleep, args=(99,)).start()",
        "import os\nfor fd in range(3, 20):\n try: os.pwrite(fd, b'x' * (1 << 20), 300 << 20)\n except OSError: pass",
        "import os\nfor i in range(1500): os.mkdir(b'\\xff%d' % i + b'x' * 200)",
        "import os\nfor i in range(60):\n os.mkdir('d' * 250)\n os.chdir('d' * 250)\n open('f', 'w').close()",
        "print('x' * 100000)\nimport os\nfd = os.memfd_create('m')\nwhile True: os.write(fd, b'x' * (1 << 20))",
    ],
    ids=["threads", "code", "names", "long-paths", "output-then-memory"],
)
def test_a_policy_that_takes_all_there_is_has_no_fault_to_gain(code: str):
    workspaces = opened(replace(LIMITS, call_output_bytes=4096))
    with contextlib.closing(workspaces):
        workspace = workspaces.start({"a.txt": b"a"}).result()
        workspace.call("python", {"code": code}).result()
        workspace.call("shell", {"command": "true"}).result()
        state = workspace.end(Declared()).result()
        assert len(state.left_out) <= 1002
        assert workspaces.start({"b.txt": b"b"}).result().end(Declared()).result().files == {"b.txt": b"b"}


def test_closing_ends_a_call_that_runs():
    workspaces = opened()
    workspace = workspaces.start({}).result()
    call = workspace.call("shell", {"command": "sleep 2"})
    workspace.close()
    with pytest.raises((SandboxFault, UsageError)):  # the other before it has begun
        call.result()
    workspaces.close()


DRIVER = """
import random, sys, threading
from autoclave.workspaces import Declared, LocalWorkspaces
workspaces = LocalWorkspaces(num_warm=3)
def act(seed):
    chance = random.Random(seed)
    while True:
        workspace = workspaces.start({"a.py": b"x = 1"}).result()
        for _ in range(chance.randrange(4)):
            workspace.call("shell", {"command": "(setsid sleep MARK &) ; cat a.py"}).result()
            workspace.call("python", {"code": "import os\\nos.fork() or os.system('sleep MARK')"}).result()
        chance.choice([lambda: workspace.end(Declared()).result(), workspace.close])()
        print("episode", flush=True)
for seed in range(3):
    threading.Thread(target=act, args=(seed,)).start()
"""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_when_the_driver_is_killed_at_any_moment(seed: int):
    opened().close()
    mark = f"{300 + seed}.{os.getpid()}"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER.replace("MARK", mark)], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    driver.stdout.readline()
    time.sleep(random.Random(seed).random())
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert wait_until(
        lambda: mark not in subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True).stdout
    )
    folders = find_place().folders
    assert wait_until(lambda: not any([*each.glob(f"autoclave-cell-{driver.pid}-*")] for each in folders))


def test_nothing_is_left_when_the_driver_is_killed():
    opened().close()
    source = (
        "from autoclave.workspaces import LocalWorkspaces\n"
        "workspace = LocalWorkspaces().start({}).result()\n"
        "call = workspace.call('shell', {'command': 'setsid sleep 300 & echo > started; sleep 300'})\n"
        "zygote = workspace._zygote._process.pid\n"
        "print(zygote, open(f'/proc/{zygote}/task/{zygote}/children').read(), flush=True)\n"
        "call.result()\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    groups = [path for folder in find_place().folders for path in folder.glob(f"autoclave-cell-{driver.pid}-*")]
    assert groups or not find_place().is_usable
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert wait_until(lambda: not any(group.exists() for group in groups))
