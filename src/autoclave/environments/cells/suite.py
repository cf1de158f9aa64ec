"""The part of pytest that suites can use, and `run`, which runs one test. In a cell this is the module `pytest`."""
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportFunctionMemberAccess=false
# pyright: reportPrivateUsage=false, reportCallIssue=false

import collections
import contextlib
import importlib
import inspect
import io
import itertools
import math
import os
import pathlib
import tempfile
import unittest
from typing import Any
from unittest import mock

importorskip = importlib.import_module
_MISSING = object()


def fail(reason: str = "", **_: Any) -> Any:
    """Fail the test. A test that skips itself shows nothing, so it fails as well."""
    raise AssertionError(reason)


skip = xfail = fail


class _Raises(unittest.case._AssertRaisesContext):  # type: ignore[type-arg]
    value: Any = property(lambda self: self.exception)


def raises(expected: Any, match: "str | None" = None) -> Any:
    return _Raises(expected, unittest.TestCase(), match)


class approx:  # noqa: N801
    """A number, sequence or mapping that is equal to near ones."""

    def __init__(self, expected: Any, rel: "float | None" = None, abs: "float | None" = None) -> None:
        self.expected, self.abs = expected, 1e-12 if abs is None else abs
        self.rel = rel if rel is not None else 0.0 if abs is not None else 1e-6

    def __eq__(self, actual: Any) -> bool:
        return self._is_near(self.expected, actual)

    __hash__ = None  # type: ignore[assignment]

    def _is_near(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, dict):
            is_alike = isinstance(actual, dict) and actual.keys() == expected.keys()
            return is_alike and all(self._is_near(value, actual[key]) for key, value in expected.items())
        if isinstance(expected, (list, tuple)):
            is_alike = isinstance(actual, (list, tuple)) and len(actual) == len(expected)
            return is_alike and all(map(self._is_near, expected, actual))
        if {type(expected), type(actual)} <= {int, float}:
            return math.isclose(expected, actual, rel_tol=self.rel, abs_tol=self.abs)
        return type(expected).__eq__(expected, actual) is True


class param(tuple):  # noqa: N801
    """Values of one case of `parametrize`."""

    def __new__(cls, *values: Any, id: Any = None) -> "param":
        return tuple.__new__(cls, values)


class _Mark:
    """`pytest.mark`: of all marks only `parametrize` has an effect at run time."""

    def parametrize(self, names: Any, values: Any, ids: Any = None) -> Any:
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        rows = [(value,) if len(names) == 1 and type(value) is not param else value for value in values]
        cases = [dict(zip(names, row, strict=True)) for row in rows]

        def marked(test: Any) -> Any:
            test.parameters = [*getattr(test, "parameters", ()), cases]
            return test

        return marked

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **_: given[0] if given and callable(given[0]) else lambda test: test


mark = _Mark()


def fixture(function: Any = None, *, scope: str = "", autouse: bool = False, name: str = "") -> Any:
    def marked(function: Any) -> Any:
        function.fixture = (name or function.__name__, autouse)
        return function

    return marked(function) if function else marked


class MonkeyPatch:
    """Changes that are undone at the end of a test."""

    def __init__(self, opened: contextlib.ExitStack) -> None:
        self._opened = opened

    def setattr(self, target: Any, name: Any, value: Any = _MISSING, raising: bool = True) -> None:
        if value is _MISSING:
            path, _, attribute = target.rpartition(".")
            target, name, value = importlib.import_module(path), attribute, name
        self._opened.enter_context(mock.patch.object(target, name, value, create=not raising))

    def setitem(self, target: Any, name: Any, value: Any) -> None:
        self._opened.enter_context(mock.patch.dict(target, {name: value}))

    def delitem(self, target: Any, name: Any, raising: bool = True) -> None:
        self._opened.enter_context(mock.patch.dict(target))
        if raising or name in target:
            del target[name]

    def setenv(self, name: str, value: str) -> None:
        self.setitem(os.environ, name, value)

    def delenv(self, name: str, raising: bool = True) -> None:
        self.delitem(os.environ, name, raising)

    def chdir(self, path: Any) -> None:
        self._opened.enter_context(contextlib.chdir(path))


_Captured = collections.namedtuple("_Captured", ("out", "err"))


class _CapSys:
    def __init__(self, opened: contextlib.ExitStack) -> None:
        self._streams = io.StringIO(), io.StringIO()
        opened.enter_context(contextlib.redirect_stdout(self._streams[0]))
        opened.enter_context(contextlib.redirect_stderr(self._streams[1]))

    def readouterr(self) -> Any:
        read = _Captured(*(stream.getvalue() for stream in self._streams))
        for stream in self._streams:
            stream.truncate(stream.seek(0))
        return read


_BUILTIN = {
    "capsys": _CapSys,
    "monkeypatch": MonkeyPatch,
    "tmp_path": lambda opened: pathlib.Path(opened.enter_context(tempfile.TemporaryDirectory())),
}


class _Fixtures:
    """Values of the fixtures of one test."""

    def __init__(self, namespace: "dict[str, Any]", instance: Any, opened: contextlib.ExitStack) -> None:
        self._opened, self._values = opened, dict[str, Any]()
        owned = [getattr(instance, name) for name in dir(type(instance)) if not name.startswith("__")]
        known: list[Any] = [each for each in (*namespace.values(), *owned) if inspect.isroutine(each)]
        self._known: dict[str, Any] = {each.fixture[0]: each for each in known if hasattr(each, "fixture")}
        for name, each in self._known.items():
            if each.fixture[1]:
                self.value(name)

    def value(self, name: str) -> Any:
        if name not in self._values:
            made = self.call(self._known[name], {}) if name in self._known else _BUILTIN[name](self._opened)
            if inspect.isgenerator(made):
                self._opened.callback(next, made, None)
                made = next(made)
            self._values[name] = made
        return self._values[name]

    def call(self, function: Any, given: "dict[str, Any]") -> Any:
        parameters = inspect.signature(function).parameters.values()
        names = [each.name for each in parameters if each.default is each.empty and each.name not in given]
        return function(**given, **{name: self.value(name) for name in names})


def run(namespace: "dict[str, Any]", name: str) -> None:
    """Run a test with all its parameters; raises if it fails."""
    owner, _, method = name.rpartition(".")
    kind = namespace[owner] if owner else None
    if kind and issubclass(kind, unittest.TestCase):
        result = unittest.TestResult()
        unittest.TestSuite([kind(method)]).run(result)
        if result.testsRun != 1 or not result.wasSuccessful() or result.skipped:
            fail(name)
        return
    function = getattr(kind, method) if kind else namespace[name]
    cases = list(itertools.product(*getattr(function, "parameters", ()), *getattr(kind, "parameters", ())))
    if not cases:
        fail(f"{name}: no cases")
    for case in cases:
        instance: Any = kind() if kind else None
        with contextlib.ExitStack() as opened:
            fixtures = _Fixtures(namespace, instance, opened)
            if hasattr(instance, "setup_method"):
                fixtures.call(instance.setup_method, {})
            if hasattr(instance, "teardown_method"):
                opened.callback(fixtures.call, instance.teardown_method, {})
            given = {name: value for part in case for name, value in part.items()}
            fixtures.call(getattr(instance, method) if kind else function, given)
