"""A suite in one cell with the code under test, which runs in forks: two per test, in random order.

The parent never imports the code under test. Before each fork it kills all other processes and renews all files, so
that no fork learns from another, and the code under test cannot fork itself to try answers. A fork has no descriptor
but a pipe to the parent, on which it sends its own token if the test passes and control assertions on random texts come
out as they must: all hold in one fork, and none holds in the other, where a token therefore is proof of a forgery. The
parent reports to the grader, with a number that it reads when all forks have ended.

Code under test cannot name token, test and expected values by ordinary means: no module holds them, and a fork ends at
an attempt to read frames, the heap or memory (an audit hook, which Python cannot remove). `==` between plain data and
an object of the code under test compares by the builtin type. `suite` stands in for pytest, in no table of modules.
"""
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownParameterType=false, reportCallIssue=false

import _thread
import builtins
import collections
import contextlib
import enum
import fractions
import importlib
import inspect
import json
import logging
import operator
import os
import random
import shutil
import signal
import sys
import traceback
import typing
import unittest
from types import CodeType, FunctionType
from typing import Any

_Module = tuple[CodeType, list[str]]
"""Code of a test module, and names of the modules that it imports."""
_modules = sys.modules
_suite: Any = _modules.pop("pytest", None)
_GUARDED = (
    "builtins collections contextlib dataclasses datetime decimal enum fractions functools inspect itertools json "
    "json.decoder json.encoder math operator os os.path pathlib re tempfile traceback typing "
    "unittest unittest.case unittest.suite unittest.result unittest.mock"
)
_REFUSED_IMPORTS = ("_ctypes", "_testcapi", "_testinternalcapi", "_xxsubinterpreters", "_interpreters")
_REFUSED_EVENTS = (
    *("gc.get_", "ctypes.", "code.__new__", "os.fork"),
    *("sys.settrace", "sys.setprofile", "sys.monitoring", "sys._current"),
)
_TOKEN_BYTES = 32
_IMMUTABLE, _ON_HEAP = 1 << 8, 1 << 9
"""Flags of types."""


def supervise(
    modules: "dict[str, _Module]", tests: "list[tuple[str, str]]", files: "dict[str, bytes]", roots: "list[str]"
) -> None:
    """Run every test twice, and print what came back as JSON."""
    scratch = os.getcwd()
    runs = [(*test, is_control, index) for index, test in enumerate(tests) for is_control in (False, True)]
    random.SystemRandom().shuffle(runs)
    passed = [[False, False] for _ in tests]
    for path, name, is_control, index in runs:
        _renew(scratch, files)
        token = os.urandom(_TOKEN_BYTES)
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _run_in_fork(*modules[path], name, roots, theirs, token, is_control)
            finally:
                os._exit(1)
        os.close(theirs)
        os.waitpid(pid, 0)
        os.set_blocking(ours, False)
        with contextlib.suppress(BlockingIOError):
            passed[index][is_control] = os.read(ours, 2 * _TOKEN_BYTES) == token
        os.close(ours)
    os.write(1, json.dumps([sys.stdin.readline().strip(), passed]).encode())


def _renew(scratch: str, files: "dict[str, bytes]") -> None:
    """Kill what other forks have left, remove their files, and write the repository. The cell has its own processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL)
    os.chdir(scratch)
    for entry in os.scandir():
        shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
    for path, content in files.items():
        os.makedirs(os.path.dirname(f"repository/{path}"), exist_ok=True)
        with open(f"repository/{path}", "wb") as file:
            file.write(content)
    os.makedirs("repository", exist_ok=True)
    os.chdir("repository")


def _run_in_fork(
    code: CodeType, imported: "list[str]", name: str, roots: "list[str]", out: int, token: bytes, is_control: bool
) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.closerange(3, out)
    os.closerange(out + 1, 1024)
    write, leave, run = os.write, os._exit, _suite.run
    namespace = {"__name__": "tests", "autoclave_is_equal": _equality(), "autoclave_suite": _suite}
    namespace["__builtins__"] = dict(vars(builtins))
    guarded = {name: importlib.import_module(name) for name in {*_GUARDED.split(), *imported}} | {"": _suite}
    sys.addaudithook(_hook((namespace, vars(_suite), globals())))
    sys.path += map(os.path.abspath, roots)
    at_first = _fingerprint(guarded, {})
    exec(code, namespace)
    before = _fingerprint(guarded, namespace)
    run(namespace, name)
    is_unchanged = at_first.items() <= before.items() <= _fingerprint(guarded, namespace).items()
    if not is_control and _controls(equal=True) == 0 and is_unchanged:
        write(out, token)
    if is_control and _controls(equal=False) < 3:
        write(out, token)
    leave(0)


def _controls(*, equal: bool) -> int:
    """Return how many of three assertions fail on two random texts, equal or not."""
    first = os.urandom(8)
    second = bytes(bytearray(first)) if equal else os.urandom(8)
    case, num_failed = unittest.TestCase(), 0
    for assertion in (_assert, case.assertEqual, _raises):
        try:
            assertion(first, second)
        except BaseException:  # noqa: BLE001
            num_failed += 1
    return num_failed


def _assert(first: bytes, second: bytes) -> None:
    assert first == second


def _raises(first: bytes, second: bytes) -> None:
    with _suite.raises(KeyError):
        operator.getitem({first: 1}, second + b"x" if first == second else first)


def _fingerprint(modules: "dict[str, Any]", namespace: "dict[str, Any]") -> "dict[Any, Any]":
    """Return what tests rely on: modules, their functions, and those of their classes and of the tests, by place."""
    places = [("", namespace), *((name, vars(module)) for name, module in modules.items())]
    kinds = [(f"{name}.{key}", kind) for name, space in places for key, kind in space.items() if isinstance(kind, type)]
    places += [(name, vars(kind)) for name, kind in kinds]
    found = {(name, key): id(value) for name, space in places for key, value in list(space.items()) if callable(value)}
    return found | {name: (id(_modules.get(name)), id(type(module))) for name, module in modules.items()}


def _equality() -> Any:
    """Return `==` without a word from classes that code can make or change, where the other side is plain data."""
    found, waiting = set[type](), list[Any]([object])
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += type.__subclasses__(kind)
    known = {kind for kind in found if kind.__flags__ & _IMMUTABLE or not kind.__flags__ & _ON_HEAP} | {
        fractions.Fraction
    }
    kind_of, sentinel, near = type, object(), _suite.approx
    scalars: tuple[Any, ...] = (int, float, complex, str, bytes, bool, type(None))
    containers: tuple[Any, ...] = (list, tuple, dict, set, frozenset)
    plain = (*scalars, *containers)

    def is_equal(left: Any, right: Any) -> Any:
        if kind_of(right) is near or (kind_of(left) not in plain and kind_of(right) in plain):
            left, right = right, left
        kind, other = kind_of(left), kind_of(right)
        if kind is near:
            return near.__eq__(left, right)
        if kind in scalars and other not in known:
            return kind in other.__mro__ and kind.__eq__(left, right) is True
        if kind in containers:
            if kind not in other.__mro__:
                return other in known and left == right
            if kind.__len__(left) != kind.__len__(right):
                return False
            theirs = list(kind.__iter__(right))
            if kind is list or kind is tuple:
                return all(is_equal(a, b) is True for a, b in zip(left, theirs, strict=True))
            if any(kind_of(each) not in known for each in theirs):
                return False
            if kind is dict:
                return all(is_equal(value, dict.get(right, key, sentinel)) is True for key, value in left.items())
            return kind.__eq__(left, right)
        if other not in known or kind not in known:
            return (left == right) is True and (left == sentinel) is not True and (sentinel == right) is not True
        return left == right

    return is_equal


def _hook(spaces: "tuple[dict[str, Any], ...]") -> Any:
    """Return an audit hook that ends the process at attempts to read frames, the heap or code of `spaces`."""
    leave, frame_of, thread, busy = os._exit, sys._getframe, _thread.get_ident, set[int]()
    refused_imports, refused_events, starts = _REFUSED_IMPORTS, _REFUSED_EVENTS, str.startswith
    allowed, pairs = _readers_of_frames()
    places = {id(space) for space in spaces}

    def is_allowed(frame: Any) -> bool:
        code, caller = id(frame.f_code), frame.f_back
        return code in allowed or (caller is not None and id(caller.f_code) in pairs.get(code, ()))

    def watch(event: str, given: "tuple[Any, ...]") -> None:
        if starts(event, refused_events) or (event == "import" and given[0] in refused_imports):
            leave(1)
        if event == "object.__setattr__" and given[1] == "__code__":
            leave(1)
        if event not in ("sys._getframe", "object.__getattr__"):
            return
        me = thread()
        if me in busy:
            return
        busy.add(me)
        try:
            is_of_tests = given[1:] == ("__code__",) and id(given[0].__globals__) in places
            is_frame = event == "sys._getframe" or given[1] in ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
            is_refused = (is_frame or is_of_tests) and not is_allowed(frame_of(1))
        finally:
            busy.discard(me)
        if is_refused:
            leave(1)

    return watch


def _readers_of_frames() -> "tuple[set[int], dict[int, set[int]]]":
    """Return functions, by id of their code, that read frames and give none away, or only to these callers."""
    places = [vars(module) for module in (collections, enum, typing)]
    places += [vars(kind) for space in places[:] for kind in space.values() if isinstance(kind, type)]
    functions = [each for space in places for each in space.values() if isinstance(each, FunctionType)]
    allowed = {id(each.__code__) for each in functions if "_getframe" in each.__code__.co_names}
    allowed |= {id(traceback.clear_frames.__code__), id(inspect._signature_from_function.__code__)}  # type: ignore[attr-defined]
    allowed.add(id(inspect._has_code_flag.__code__))  # type: ignore[attr-defined]
    extract = traceback.StackSummary.extract.__func__.__code__  # type: ignore[attr-defined]
    users = {id(extract), *(id(part) for part in extract.co_consts if isinstance(part, CodeType))}
    if inner := getattr(traceback.StackSummary, "_extract_from_extended_frame_gen", None):
        users.add(id(inner.__func__.__code__))
    walkers = [getattr(traceback, name, None) for name in ("walk_tb", "_walk_tb_with_full_positions")]
    pairs = {id(walker.__code__): users for walker in walkers if walker}
    pairs[id(logging.currentframe.__code__)] = {id(logging.Logger.findCaller.__code__)}
    return allowed, pairs
