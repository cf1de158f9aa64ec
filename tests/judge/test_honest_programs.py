"""Programs that mean well and use Python as they please are accepted."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import subprocess
import sys

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Program
from autoclave.judge import JudgeJob, LocalJudge

READING = {
    "input": "a, b = map(int, input().split())\nprint(a + b)",
    "input until the end": "t = 0\ntry:\n    while True: t += sum(map(int, input().split()))\nexcept EOFError: print(t)",
    "stdin.read": "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
    "stdin.readline": "import sys\nprint(sum(map(int, sys.stdin.readline().split())))",
    "stdin.readlines": "import sys\nprint(sum(int(n) for line in sys.stdin.readlines() for n in line.split()))",
    "stdin iteration": "import sys\nprint(sum(int(n) for line in sys.stdin for n in line.split()))",
    "stdin.buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
    "stdin.buffer.readline": "import sys\nprint(sum(map(int, sys.stdin.buffer.readline().split())))",
    "open(0)": "print(sum(map(int, open(0).read().split())))",
    "os.read": "import os\nprint(sum(map(int, os.read(0, 99).split())))",
    "fileinput": "import fileinput\nprint(sum(int(n) for line in fileinput.input('-') for n in line.split()))",
    "os.read of the whole size": "import os\nprint(sum(map(int, os.read(0, os.fstat(0).st_size).split())))",
    "byte order mark": "\ufeffa, b = map(int, input().split())\nprint(a + b)",
    "input past the end": (
        "t = 0\nwhile True:\n    try: line = input()\n    except EOFError: break\n    t += sum(map(int, line.split()))\nprint(t)"
    ),
    "readline past the end": (
        "import sys\nt = 0\nwhile line := sys.stdin.readline(): t += sum(map(int, line.split()))\n"
        "print(t if sys.stdin.readline() == sys.stdin.read() == '' else 'x')"
    ),
    "buffer.readline past the end": (
        "import sys\nread = sys.stdin.buffer.readline\nt = 0\nwhile line := read(): t += sum(map(int, line.split()))\nprint(t)"
    ),
    "buffer iteration": "import sys\nprint(sum(int(n) for line in sys.stdin.buffer for n in line.split()))",
    "buffer.readlines": "import sys\nprint(sum(int(n) for line in sys.stdin.buffer.readlines() for n in line.split()))",
    "os.fdopen": "import os\nprint(sum(map(int, os.fdopen(0).read().split())))",
    "BytesIO of the whole": "import io, os, sys\nsys.stdin = io.StringIO(io.BytesIO(os.read(0, 1 << 16)).read().decode())\nprint(sum(map(int, input().split())))",
    "mmap": "import mmap\nprint(sum(map(int, mmap.mmap(0, 0, access=mmap.ACCESS_READ).read().split())))",
    "select": "import select, sys\nselect.select([sys.stdin], [], [])\nprint(sum(map(int, input().split())))",
    "seek back": "import sys\ninput()\nsys.stdin.seek(0)\nprint(sum(map(int, input().split())))",
    "fileinput without arguments": "import fileinput\nprint(sum(int(n) for line in fileinput.input() for n in line.split()))",
    "main in a thread with a large stack": (
        "import sys, threading\ndef main(): print(sum(map(int, input().split())))\nsys.setrecursionlimit(1 << 25)\n"
        "threading.stack_size(1 << 26)\nt = threading.Thread(target=main)\nt.start()\nt.join()"
    ),
    "in a thread": "import threading\ndef f(): print(sum(map(int, input().split())))\nt = threading.Thread(target=f)\nt.start()",
}
WRITING = {
    "os.write": "import os\nos.write(1, b'7\\n')",
    "time zones": "import zoneinfo\nprint(7 if zoneinfo.ZoneInfo('Europe/Paris').key else 8)",
    "stdout.write": "import sys\nsys.stdout.write('7')",
    "stdout.buffer": "import sys\nsys.stdout.buffer.write(b'7')",
    "replaced stdout": "import io, sys\nsys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, 'w')))\nprint(7)",
    "wrapped buffer": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint(7)",
    "reopened descriptors": "import os\nos.fdopen(1, 'w', buffering=1 << 16).write('7')",
    "locale of the environment": "import locale\nlocale.setlocale(locale.LC_ALL, '')\nprint(7)",
    "unclosed file": "out = open(1, 'w')\nout.write('7')",
    "file under a name of the preamble": "stdout = open(1, 'w')\nstdout.write('7')",
    "at exit": "import atexit\natexit.register(print, 7)",
    "collected and written at exit": (
        "import atexit, io, sys\nsys.stdout = io.StringIO()\n"
        "atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint(7)"
    ),
    "output object that uses a module": (
        "import os, sys\nclass Out:\n    closed, parts = False, []\n    def write(self, text): self.parts.append(text)\n"
        "    def flush(self): os.write(1, ''.join(self.parts).encode()); self.parts.clear()\nsys.stdout = Out()\nprint(7)"
    ),
    "larger stack by request": "import resource as r\nr.setrlimit(r.RLIMIT_STACK, (r.RLIM_INFINITY,) * 2) if r.getrlimit(r.RLIMIT_STACK)[1] == -1 else 0\nprint(7)",
    "finalizer": "class A:\n    def __del__(self): print(7)\na = A()",
    "finalizer in a cycle": "class A:\n    def __del__(self): print(7)\na = A()\na.me = a",
    "thread that outlives main": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print(7))).start()",
    "child process": "import os\nif os.fork() == 0:\n    print(7, flush=True)\nelse:\n    os.wait()",
    "subprocess": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(7)'])",
    "multiprocessing": "from multiprocessing import Pool\nwith Pool(2) as pool: print(sum(pool.map(abs, [-3, -4])))",
    "asyncio": "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print(7)\nasyncio.run(main())",
    "temporary file": "import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n    f.write('7')\n    f.seek(0)\n    print(f.read())",
    "file in the folder": "open('a.txt', 'w').write('7')\nprint(open('a.txt').read())",
    "main guard": "import sys\ndef main():\n    print(7)\n    sys.exit(0)\nif __name__ == '__main__': main()",
    "main guard with its result as exit code": "import sys\ndef main():\n    print(7)\n    return 0\nif __name__ == '__main__':\n    sys.exit(main())",
    "main guard with globals": "if __name__ == '__main__':\n    n = 3\n    def f():\n        global n\n        n += 4\n    f()\n    print(n)",
    "raise SystemExit": "print(7)\nraise SystemExit",
    "recursion of 40000": "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(40_000) - 39_993)",
    "an integer of 20000 digits read and printed": "n = int('7' * 20_000)\nprint(7 if str(n) == '7' * 20_000 else 'x')",
    "names from star imports": (
        "assert pow(2, 10, 1000) == 24 and copy.deepcopy([1]) == [1] and open and datetime.date and random.seed\n"
        "assert accumulate and reduce and Counter and defaultdict and heappush and insort and sqrt and ascii_lowercase\n"
        "assert mean and itemgetter and List and Optional and StringIO and fmean and sub and setrecursionlimit\nprint(7)"
    ),
    "names of the preamble used for other things": "open = 3\npow = 4\nlist = [open, pow]\nprint(sum(list))",
    "state in default arguments": "def f(n, seen=[]):\n    seen.append(n)\n    return sum(seen)\nf(3)\nprint(f(4))",
    "output object on a large buffer": (
        "import os, sys\nfrom io import BytesIO, IOBase\nclass FastIO(IOBase):\n    newlines = 0\n"
        "    def __init__(self, file):\n        self._fd, self.buffer = file.fileno(), BytesIO()\n        self.write = self.buffer.write\n"
        "    def flush(self):\n        os.write(self._fd, self.buffer.getvalue())\n        self.buffer.truncate(0), self.buffer.seek(0)\n"
        "class Wrapper(IOBase):\n    def __init__(self, file):\n        self.buffer = FastIO(file)\n        self.flush = self.buffer.flush\n"
        "        self.write = lambda s: self.buffer.write(s.encode('ascii'))\nsys.stdout = Wrapper(sys.stdout)\nprint(7)"
    ),
    "redirected standard output": "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as out: print(7)\nprint(out.getvalue(), end='')",
    "named temporary file": "import os, tempfile\npath = tempfile.mkdtemp()\nopen(path + '/a', 'w').write('7')\nprint(open(os.path.join(path, 'a')).read())",
    "changed folder": "import os\nos.makedirs('a/b')\nos.chdir('a')\nprint(7 if os.path.basename(os.getcwd()) == 'a' and os.listdir() == ['b'] else 'x')",
    "renamed and removed files": "import os, shutil\nopen('a', 'w').close()\nos.rename('a', 'b')\nos.remove('b')\nos.mkdir('c')\nshutil.rmtree('c')\nprint(7)",
    "signal and alarm": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: print(7))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()",
    "an answer of 200 kB": "print('0' * 200_000 + '7')",
    "leading zeros and exponent": "print('07.00e0')",
    "exit": "print(7)\nexit()",
    "quit in a function": "def f():\n    print(7)\n    quit()\nf()",
    "sys.exit(True and None)": "import sys\nprint(7)\nsys.exit(None)",
    "globals": "n = 0\ndef f():\n    global n\n    n += 7\nf()\nprint(globals()['n'])",
    "recursion": "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(50_000) - 49_993)",
    "recursion without asking": "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(49_000) - 48_993)",
    "recursion through C": "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n and f(n - 1) + 1\nprint(f(15_000) - 14_993)",
    "thread with a large stack": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**28)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nt = threading.Thread(target=lambda: print(f(90_000) - 89_993))\n"
        "t.start()\nt.join()"
    ),
    "large numbers": "print(len(str(10**40_000)) - 39_994)",
    "dataclass": "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    n: int = 7\nprint(A().n)",
    "type hints without import": "def f(a: List[int]) -> Optional[int]: return a[0]\nprint(f([7]))",
    "names of the preamble": "print(Counter('a' * 7)['a'], end=''); heappush([], 1); deque(); gcd(2, 4); inf; bisect_left([1], 1)",
    "names that several modules have": "print(floor(7.5) * pow(7, 1, 9) // 7, end='' if copy.copy and random.random else 'x')",
    "warning": "import warnings\nwarnings.warn('w')\nprint(7)",
    "text on standard error": "import sys\nprint('debug', file=sys.stderr)\nprint(7)",
    "trailing blanks": "print('7   \\n\\n')",
    "own input function": "import sys\ninput = sys.stdin.readline\nprint(sum(map(int, input().split())))",
    "decimal and fractions": "from fractions import Fraction\nfrom decimal import Decimal\nprint(Decimal(7), end='' if Fraction(1) else '')",
    "modules that are not preloaded": "import csv, hashlib, sqlite3, zlib, ssl, ctypes, uuid\nprint(7)",
    "exec and eval": "exec('x = 7')\nprint(eval('x'))",
    "pickle of an own class": "import pickle\nclass A: pass\npickle.loads(pickle.dumps(A()))\nprint(7)",
}


@pytest.mark.parametrize("way", READING)
def test_input_can_be_read_in_any_way(judged, stdin_problem, way: str):
    verdict = judged(stdin_problem(("3 4\n", "7\n")), READING[way])
    assert (verdict.status, verdict.message) == ("accepted", "")


@pytest.mark.parametrize("way", WRITING)
def test_an_answer_can_be_found_and_written_in_any_way(judged, stdin_problem, way: str):
    verdict = judged(stdin_problem(("3 4\n", "7\n")), WRITING[way])
    assert (verdict.status, verdict.message) == ("accepted", "")


CALLS = {
    "class named Solution": "class Solution:\n    def f(self, n): return n + 1",
    "function beside a Solution": "class Solution: pass\ndef f(n): return n + 1",
    "static method": "class Solution:\n    @staticmethod\n    def f(n): return n + 1",
    "class method": "class Solution:\n    @classmethod\n    def f(cls, n): return n + 1",
    "state in the instance": "class Solution:\n    def __init__(self): self.n = 0\n    def f(self, n):\n        self.n += 1\n        return n + self.n",
    "state in the class": "class Solution:\n    n = 0\n    def f(self, n):\n        Solution.n += 1\n        return n + Solution.n",
    "state in default arguments": "def f(n, seen=[]):\n    seen.append(n)\n    return n + len(seen)",
    "global state": "count = 0\ndef f(n):\n    global count\n    count += 1\n    return n + count",
    "memo": "from functools import cache\nclass Solution:\n    @cache\n    def f(self, n): return n + 1",
    "prints": "print('loading')\ndef f(n):\n    print('debug', n)\n    return n + 1",
    "prints to standard error": "import sys\ndef f(n):\n    sys.stderr.write('debug')\n    return n + 1",
    "main guard": "def f(n): return n + 1\nif __name__ == '__main__':\n    print(f(int(input())))",
    "main guard that exits": "import sys\ndef f(n): return n + 1\nif __name__ == '__main__': sys.exit(1)",
    "code that runs f itself": "class Solution:\n    def f(self, n: int) -> int: return n + 1\nassert Solution().f(1) == 2",
    "types of the preamble": "class Solution:\n    def f(self, n: Optional[int], more: List[int] = []) -> Dict[str, int]: return n + 1",
    "boolean arithmetic": "def f(n): return n + True",
    "float": "def f(n): return float(n + 1)",
    "subclass of int": "class A(int): pass\ndef f(n): return A(n + 1)",
    "deep recursion": "def f(n):\n    def g(k): return k and 1 + g(k - 1)\n    return g(40_000) - 40_000 + n + 1",
    "thread": "import threading\ndef f(n):\n    r = []\n    t = threading.Thread(target=lambda: r.append(n + 1))\n    t.start()\n    t.join()\n    return r[0]",
    "temporary file": "import tempfile\ndef f(n):\n    with tempfile.TemporaryFile() as file: file.write(b'x')\n    return n + 1",
    "closed standard output": "import sys\ndef f(n):\n    sys.stdout.close()\n    return n + 1",
    "fraction": "from fractions import Fraction\ndef f(n): return Fraction(n + 1)",
    "exit handler": "import atexit\natexit.register(print, 'bye')\ndef f(n): return n + 1",
}
LISTS = {
    "list": "[n, n]",
    "tuple": "(n, n)",
    "named tuple": "collections.namedtuple('P', 'x y')(n, n)",
    "subclass of list": "type('L', (list,), {})([n, n])",
}
NOT_LISTS = {
    "generator": "(m for m in (n, n))",
    "map": "map(int, (n, n))",
    "range": "range(n, n + 2)",
    "deque": "deque([n, n])",
    "dict": "{n: n}",
    "set": "{n, n + 1}",
    "text": "str([n, n])",
    "list in a list": "[[n, n]]",
}


@pytest.mark.parametrize("way", CALLS)
def test_a_function_can_be_written_in_any_way(judged, call_problem, way: str):
    verdict = judged(call_problem("f", ([6], 7), ([0], 1)), CALLS[way])
    assert (verdict.status, verdict.message) == ("accepted", "")


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_can_be_returned_as_any_list_or_tuple(judged, call_problem, kind: str):
    assert judged(call_problem("f", ([7], [7, 7])), f"def f(n): return {LISTS[kind]}").status == "accepted"


@pytest.mark.parametrize("kind", NOT_LISTS)
def test_what_is_not_equal_to_a_list_is_none(judged, call_problem, kind: str):
    assert judged(call_problem("f", ([7], [7, 7])), f"def f(n): return {NOT_LISTS[kind]}").status == "wrong_answer"


def test_64_threads_run_at_the_same_time_under_the_default_limits(judged, stdin_problem):
    source = """
import threading
begun = threading.Barrier(65)
threads = [threading.Thread(target=begun.wait) for _ in range(64)]
for thread in threads: thread.start()
begun.wait()
print(7)"""
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=1)) as judge:
        verdict = judge.submit(JudgeJob(stdin_problem(("", "7")), Program(source))).result(timeout=60)
    assert (verdict.status, verdict.message) == ("accepted", "")


def test_arguments_of_one_call_are_not_changed_by_another(judged, call_problem):
    shared = [1, 2, 3]
    problem = call_problem("f", ([shared], 6), ([shared], 6))
    assert judged(problem, "def f(a):\n    a.append(sum(a))\n    return a[-1]").status == "accepted"


def test_a_megabyte_in_and_out_is_fine(judged, stdin_problem):
    text = "0123456789abcdef" * 65_536 + "\n"
    assert judged(stdin_problem((text, text)), "print(input())").status == "accepted"


def test_the_plain_profile_is_python_as_it_comes(judged, stdin_problem):
    problem = stdin_problem(("", "1000 4300 False\n"), profile="plain")
    source = "import sys\nprint(sys.getrecursionlimit(), sys.get_int_max_str_digits(), 'Counter' in globals())"
    assert judged(problem, source).status == "accepted"


def test_what_depends_on_hashes_is_the_same_every_time(judged, stdin_problem):
    """Else a program could pass now and then. What it draws by lot itself stays its own risk."""
    reported = "hash('text'), {str(i) for i in range(9)}"
    command = [sys.executable, "-c", f"print({reported})"]
    here = subprocess.run(command, env={"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True).stdout
    problem = stdin_problem(("", here), ("", here))
    assert {judged(problem, f"print({reported})  # {copy}").status for copy in range(2)} == {"accepted"}


def test_two_tests_share_nothing_of_a_programs_state(judged, stdin_problem):
    source = "import os\nprint(os.path.exists('seen'), 'seen' in dir(__builtins__))\nopen('seen', 'w')\n__builtins__.seen = 1"
    assert judged(stdin_problem(("1", "False False"), ("2", "False False")), source).status == "accepted"
