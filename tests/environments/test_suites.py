"""Hidden suites grade a repository: in two cells, or in one where the user asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import EndState, InputError, IsolationError, Reward, Rollout, Status, TaskItem
from autoclave.environments import Suite, SuiteGrader
from autoclave.judge.local import LocalJudge
from autoclave.judge.plain_run import PlainRunner

BOTH = pytest.mark.parametrize("level", ["sealed", "shared"])
RIGHT = """
class ParseError(ValueError): pass
class Base:
    def name(self): return type(self).__name__
def add(a, b): return a + b
def half(value): return value / 2
def parse(text): raise ParseError("bad " + text)
def fill(items): items.append(1)
def greet(): print("hello " + name())
def name(): return "you"
"""
WRONG = RIGHT.replace("a + b", "a - b")


@pytest.fixture(scope="module")
def cells() -> Iterator[tuple[LocalJudge, PlainRunner]]:
    try:
        with LocalJudge(SandboxConfig(), JudgeConfig(workers=1)) as judge, PlainRunner(SandboxConfig()) as runner:
            yield judge, runner
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")


def suite(tests: str, level: Any = "sealed", base: str = WRONG) -> Suite:
    files = {"pack/__init__.py": b"", "pack/core.py": base.encode()}
    return Suite({"tests/test_core.py": tests}, ("pack",), files, level=level)


def grade(cells: Any, suite: Suite, files: Mapping[str, str], reward: str = "fraction") -> Reward:
    judge, runner = cells
    state = EndState({path: text.encode() for path, text in {"pack/__init__.py": "", **files}.items()})
    item = TaskItem("fix", "one", "one", (), None)
    with SuiteGrader(judge, lambda item: suite, reward, runner) as grader:
        return grader(Rollout(item, 0, (), Reward(None, "ungraded"), length_limit=1, end_state=state)).result()


TESTS = """
from __future__ import annotations
import unittest
import pytest
import pack.core as core
from pack.core import ParseError, add, fill, half, parse

@pytest.fixture
def numbers():
    yield [1, 2]

@pytest.mark.parametrize("a, b, c", [(1, 2, 3), pytest.param(2, 2, 4, id="same")])
def test_add(a, b, c):
    assert add(a, b) == c

def test_fixture(numbers, tmp_path):
    (tmp_path / "x").write_text("x")
    assert core.add(*numbers) == 3

class TestClass:
    def setup_method(self):
        self.one = 1
    def test_method(self):
        assert half(self.one) == pytest.approx(0.5) != 0.6

class Case(unittest.TestCase):
    def setUp(self):
        self.one = 1
    def test_case(self):
        self.assertEqual(half(self.one), 0.5)
        with self.assertRaises(ParseError):
            parse("y")

def test_exception():
    with pytest.raises(ParseError, match="bad x"):
        parse("x")

def test_changed_argument():
    from pack.core import fill
    items = []
    fill(items)
    assert items == [1]

@pytest.mark.skip(reason="not ready")
def test_skipped(never: Undefined = None):
    assert False

if __name__ == "__main__":
    unittest.main()
"""


@BOTH
def test_each_test_of_pytest_and_unittest_has_its_result_and_the_verdict_its_level(cells: Any, level: str):
    right = grade(cells, suite(TESTS, level), {"pack/core.py": RIGHT}, "binary")
    assert (right.value, right.reason, len(right.verdict.tests)) == (1, "accepted", 6)  # type: ignore[union-attr]
    wrong = grade(cells, suite(TESTS, level), {"pack/core.py": WRONG})
    assert wrong.verdict is not None
    failed = [test.index for test in wrong.verdict.tests if test.status is Status.WRONG_ANSWER]
    assert (wrong.value, failed, wrong.verdict.level) == (4 / 6, [0, 1], level)


@BOTH
def test_files_that_the_episode_removed_are_gone_and_others_stay_as_they_began(cells: Any, level: str):
    made = Suite(
        {"test_a.py": "from pack import a, b\ndef test_a(): assert a.text() + b.text() == 'xy'"},
        ("pack",),
        {"pack/__init__.py": b"", "pack/a.py": b"def text(): return 'x'", "data.txt": b"y"},
        level=level,  # type: ignore[arg-type]
    )
    reader = "def text(): return open('data.txt').read()"
    kept = {"pack/a.py": "def text(): return 'x'", "pack/b.py": reader, "data.txt": "z"}
    assert grade(cells, made, kept).value == 1
    assert grade(cells, made, {"pack/b.py": reader}).value == 0


@BOTH
def test_a_test_without_cases_fails(cells: Any, level: str):
    tests = (
        "import pytest\nfrom pack.core import add, NAMES\n"
        "@pytest.mark.parametrize('name', NAMES)\ndef test_a(name): assert add(name, 0) == name"
    )
    files = {"pack/core.py": f"NAMES = []\n{RIGHT}"}
    made = suite(tests, level, f"NAMES = [1]\n{WRONG}")
    assert grade(cells, made, {"pack/core.py": f"NAMES = [1]\n{RIGHT}"}).value == 1
    assert grade(cells, made, files).value == 0


TOGETHER = """
import pytest
from pack import core

class Own(core.Base):
    pass

def test_subclass():
    assert isinstance(Own(), core.Base)
    assert Own().name() == "Own"

def test_patched(monkeypatch, capsys):
    monkeypatch.setattr("pack.core.name", lambda: "me")
    core.greet()
    assert capsys.readouterr().out == "hello me\\n"

def test_patch_is_undone(capsys):
    core.greet()
    assert capsys.readouterr().out == "hello you\\n"
"""


def test_a_suite_that_cannot_be_split_runs_at_level_shared_only(cells: Any):
    with pytest.raises(InputError, match=r"tests/test_core\.py:5: a subclass of core: .* ask for level = shared"):
        suite(TOGETHER)
    assert grade(cells, suite(TOGETHER, "shared"), {"pack/core.py": RIGHT}).value == 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("from pack import core\ndef test_a(monkeypatch): pass", "the fixture monkeypatch"),
        ("from unittest.mock import patch\n@patch('pack.core.add')\ndef test_a(add): pass", "patch"),
        ("from pack.core import *\ndef test_a(): pass", r"import \*"),
        ("import pack\ndef test_a():\n    try: pass\n    except pack.Error: pass", "the exception pack.Error"),
        ("from pack import A\ndef test_a(): assert isinstance(1, A)", "isinstance with A"),
        ("import pytest\n@pytest.mark.skipif(True)\ndef test_a(): pass", "skipif: which tests count"),
        ("def helper(): pass", "has no tests"),
        ("async def test_a(): pass", "a coroutine"),
        ("if True:\n    def test_a(): pass", "in a statement such as if"),
        ("class Mixin:\n    def test_a(self): pass\ndef test_b(): pass", "Mixin: tests may be methods of"),
        ("class TestA:\n    def test_a(self): pass\nclass TestB(TestA): pass", "TestB: tests may be methods of"),
        ("class TestA:\n    class TestB:\n        def test_a(self): pass\ndef test_b(): pass", "TestA: tests may be"),
        ("def test_a(: pass", "does not compile"),
    ],
)
def test_what_a_suite_cannot_do_is_refused_with_its_line(text: str, what: str):
    with pytest.raises(InputError, match=rf"tests/test_core\.py:.*{what}"):
        suite(text)


def test_the_level_shared_needs_a_sealed_runner(cells: Any):
    with (
        SuiteGrader(cells[0], lambda item: suite(TOGETHER, "shared")) as grader,
        pytest.raises(InputError, match="without a runner"),
    ):
        grader(Rollout(TaskItem("a", "b", "c", (), None), 0, (), Reward(None, ""), length_limit=1))


def test_a_module_that_is_not_of_the_code_under_test_cannot_be_replaced(cells: Any):
    tests = "import json\nfrom pack.core import add\ndef test_a(): assert json.loads('1') == add(1, 1)"
    forged = {"pack/core.py": WRONG, "json.py": "def loads(text): return 0"}
    for level in ("sealed", "shared"):
        assert grade(cells, suite(tests, level), forged).value == 0


def test_a_failed_control_takes_the_reward_of_the_whole_suite(cells: Any):
    patched = "import unittest\nunittest.TestCase.assertEqual = lambda *given: None\n" + RIGHT
    reward = grade(cells, suite(TESTS, "shared"), {"pack/core.py": patched})
    assert reward.value == 0
    assert reward.verdict is not None
    assert "a control test that must fail has passed" in reward.verdict.message


def test_a_suite_that_never_ends_is_the_fault_of_the_policy(cells: Any):
    tests = {"test_a.py": "from pack import a\ndef test_a(): assert a.f() == 1"}
    made = Suite(tests, ("pack",), level="shared", time_limit_s=0.5)
    reward = grade(cells, made, {"pack/a.py": "def f():\n    while True: pass"})
    assert (reward.value, reward.reason) == (0, "time_limit")
