"""Programs that mean well and use Python as they please are accepted."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import pytest

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
    "in a thread": "import threading\ndef f(): print(sum(map(int, input().split())))\nt = threading.Thread(target=f)\nt.start()",
}
WRITING = {
    "os.write": "import os\nos.write(1, b'7\\n')",
    "stdout.write": "import sys\nsys.stdout.write('7')",
    "stdout.buffer": "import sys\nsys.stdout.buffer.write(b'7')",
    "replaced stdout": "import io, sys\nsys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, 'w')))\nprint(7)",
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


def test_a_megabyte_in_and_out_is_fine(judged, stdin_problem):
    text = "0123456789abcdef" * 65_536 + "\n"
    assert judged(stdin_problem((text, text)), "print(input())").status == "accepted"


def test_the_plain_profile_is_python_as_it_comes(judged, stdin_problem):
    problem = stdin_problem(("", "1000 4300 False\n"), profile="plain")
    source = "import sys\nprint(sys.getrecursionlimit(), sys.get_int_max_str_digits(), 'Counter' in globals())"
    assert judged(problem, source).status == "accepted"


def test_random_programs_print_the_same_every_time(judge, judged, stdin_problem):
    source = "import random\nprint(random.random(), hash('text'), {str(i) for i in range(9)})"
    with_any_answer = stdin_problem(("", "?"), ("", "?"))
    results = {judged(with_any_answer, source + f"  # {copy}").status for copy in range(2)}
    assert results == {"wrong_answer"}


def test_two_tests_share_nothing_of_a_programs_state(judged, stdin_problem):
    source = "import os\nprint(os.path.exists('seen'), 'seen' in dir(__builtins__))\nopen('seen', 'w')\n__builtins__.seen = 1"
    assert judged(stdin_problem(("1", "False False"), ("2", "False False")), source).status == "accepted"
