"""What a test costs without isolation: a fork of a warm interpreter, or a new interpreter. For `judge.py`.

`source` is a program that adds the numbers of its input; for calls, one that defines a function.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from harness import on_cores

from autoclave.judge.profiles import PROFILES

# Runs in the base interpreter; prints CPU milliseconds per test, of the loop and of its forks, and all seconds.
_FLOOR = """
import os, resource, sys, time
*modules, source, rounds = sys.argv[1:]
namespace = {"__name__": "__main__"}
for module in modules:
    exec(f"from {module} import *", namespace)
code = compile(source, "program.py", "exec")
def once():
    stdin, feed = os.pipe()
    take, stdout = os.pipe()
    os.write(feed, b"1 2 3\\n")
    os.close(feed)
    pid = os.fork()
    if pid == 0:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        exec(code, namespace)
        sys.stdout.flush()
        os._exit(0)
    os.close(stdin)
    os.close(stdout)
    output = b""
    while part := os.read(take, 65536):
        output += part
    os.close(take)
    assert os.waitpid(pid, 0)[1] == 0 and output == b"6\\n"
def cpu_s(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime
for _ in range(20):
    once()
sides = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
started, before = time.perf_counter(), [cpu_s(who) for who in sides]
for _ in range(int(rounds)):
    once()
seconds = time.perf_counter() - started
print(*((cpu_s(who) - spent) / int(rounds) * 1000 for who, spent in zip(sides, before)), seconds)
"""
# Prints CPU milliseconds per case, of the loop and of its forks together.
_CALLS = """
import json, os, resource, sys
*modules, source, name, cases, rounds = sys.argv[1:]
namespace = {"__name__": "solution"}
for module in modules:
    exec(f"from {module} import *", namespace)
code = compile(source, "program.py", "exec")
cases = json.loads(cases)
def is_right(arguments, expected):
    pid = os.fork()
    if pid == 0:
        exec(code, namespace)
        os._exit(namespace[name](*arguments) != expected)
    return os.waitpid(pid, 0)[1] == 0
def cpu_s():
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
assert all(is_right(*case) for case in cases)
before = cpu_s()
for _ in range(int(rounds)):
    assert all(is_right(*case) for case in cases)
print((cpu_s() - before) / int(rounds) / len(cases) * 1000)
"""
_IMPORTS = "".join(f"from {name} import *\n" for name in PROFILES["lcb"].modules)


def floor_ms(source: str, rounds: int) -> tuple[float, float]:
    """CPU milliseconds per test of the naive fork: of the loop, and of what it forks."""
    ((parent, child, _),) = _floors(source, rounds, [sorted(os.sched_getaffinity(0))])
    return parent, child


def floor_s(source: str, rounds: int, cores: Sequence[int]) -> float:
    """Seconds of `rounds` naive forks in loops that share them, one on each core."""
    return max(seconds for *_, seconds in _floors(source, rounds // len(cores), [[core] for core in cores]))


def _floors(source: str, rounds: int, places: Sequence[Sequence[int]]) -> list[list[float]]:
    """Run a loop of forks on the cores of each place, at the same time; return what each prints."""
    command = [base_interpreter(), "-I", "-S", "-c", _FLOOR, *PROFILES["lcb"].modules, source, str(rounds)]
    loops: list[subprocess.Popen[str]] = []
    for cores in places:
        with on_cores(cores):
            loops.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    printed = [loop.communicate()[0] for loop in loops]
    if any(loop.returncode for loop in loops):
        raise SystemExit("a loop of forks has failed")
    return [[*map(float, text.split())] for text in printed]


def unsealed_calls_ms(source: str, name: str, cases: Sequence[tuple[list[Any], Any]], rounds: int) -> float:
    """CPU milliseconds per case of a grader that forks, calls the function, compares the result, and exits."""
    command = [base_interpreter(), "-I", "-S", "-c", _CALLS, *PROFILES["lcb"].modules]
    command += [source, name, json.dumps(cases), str(rounds)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def interpreter_ms(source: str, rounds: int) -> float:
    """CPU milliseconds per test of a new interpreter each."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(rounds):
        command = [base_interpreter(), "-I", "-S", "-c", _IMPORTS + source]
        done = subprocess.run(command, input=b"1 2 3\n", capture_output=True, check=True)
        assert done.stdout == b"6\n"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / rounds * 1000


def base_interpreter() -> str:
    """The interpreter that cells run."""
    return getattr(sys, "_base_executable", sys.executable)
