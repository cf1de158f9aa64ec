"""Programs that try to cheat, to break out or to do damage, while honest ones are judged beside them."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from autoclave.core import Program
from autoclave.judge import JudgeJob, stream

SUM = "print(sum(map(int, input().split())))"
ATTACKS = {
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "thread bomb": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
    "memory in many processes": "import os\nfor _ in range(3): os.fork()\nx = bytearray(100 << 20)\nwhile True: pass",
    "flood of output": "import os\nwhile True: os.write(1, b'7\\n' * 30_000)",
    "flood of output in children": "import os\nfor _ in range(3): os.fork()\nwhile True: os.write(2, b'x' * 60_000)",
    "killing everyone": "import os, signal\nfor pid in (*range(1, 99), -1, 0):\n    try: os.kill(pid, signal.SIGKILL)\n    except OSError: pass",
    "stopping the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nwhile True: pass",
    "exit before the answer": "import os\nos._exit(0)",
    "closing the streams": "import os\nfor fd in range(256):\n    try: os.close(fd)\n    except OSError: pass",
    "daemon": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(99)\n    os._exit(0)",
    "huge file": "f = open('/tmp/f', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "deep recursion in C": "x = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
    "endless recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "crash": "import ctypes\nctypes.string_at(1)",
    "reading the answer from memory": "import gc\nprint(*[o for o in gc.get_objects() if isinstance(o, str)])",
    "reading the answer from files": "import glob\nfor f in glob.glob('/**/*', recursive=True):\n    try: print(open(f).read())\n    except Exception: pass",
    "reading the parent's memory": "import os\nfor pid in (1, os.getppid()):\n    print(open(f'/proc/{pid}/mem', 'rb').read())",
    "patched comparison": "import builtins\nbuiltins.str = builtins.list = type('A', (), {'__eq__': lambda *a: True})",
    "tracing the runner": "import sys\nsys.settrace(lambda *a: None)\nsys._getframe(1).f_locals.clear()",
    "exit code through the runner": "import sys\nsys._getframe(1).f_locals['code'] = 0\nsys.modules['os']._exit(0)",
    "leaving a trap for the next test": "import os\nif os.path.exists('/tmp/answer'): print(open('/tmp/answer').read())\nopen('/tmp/answer', 'w').write('7')",
    "raising in the exit handlers": "import atexit, os\natexit.register(os._exit, 0)\n1 / 0",
    "replaced exception hook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\n1 / 0",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_not_rewarded_and_honest_programs_are(judge, stdin_problem, attack: str):
    problem = stdin_problem(("3 4\n", "7\n"), ("5 6\n", "11\n"), time_limit_s=0.5)
    jobs = [JudgeJob(problem, Program(f"{SUM}  # {attack} {copy}"), f"honest {copy}") for copy in range(4)]
    jobs.insert(1, JudgeJob(problem, Program(ATTACKS[attack]), "attack"))
    verdicts = {job.id: verdict for job, verdict in stream(judge, jobs)}
    assert verdicts["attack"].reward == 0.0
    assert {verdict.status for name, verdict in verdicts.items() if name != "attack"} == {"accepted"}


def test_a_batch_of_attacks_leaves_no_file_on_the_host_and_takes_none_away(judge, stdin_problem):
    problem = stdin_problem(("", "?"))
    with tempfile.NamedTemporaryFile(dir="/tmp") as of_the_host:
        mark = Path(of_the_host.name).name
        source = (
            f"import os, tempfile\ntempfile.mkstemp(prefix='left-{mark}')\nopen('/tmp/left-{mark}', 'w').close()\n"
            f"os.unlink('{of_the_host.name}')"
        )
        list(stream(judge, [JudgeJob(problem, Program(f"{source}  # {copy}")) for copy in range(5)]))
        assert Path(of_the_host.name).exists()
    assert not [name for name in os.listdir("/tmp") if name.startswith(f"left-{mark}")]
    assert not Path("/tmp/answer").exists()


def test_memory_of_the_judge_stays_bounded_whatever_a_program_prints(judge, stdin_problem):
    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    before = resident_mb()
    problem = stdin_problem(("", ""))
    source = "import os\nwhile True: os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)"
    verdicts = [v for _, v in stream(judge, [JudgeJob(problem, Program(f"{source}  # {i}")) for i in range(20)])]
    assert {verdict.status for verdict in verdicts} == {"output_limit"}
    assert resident_mb() - before < 30  # two workers hold two caps of 2 MiB each
