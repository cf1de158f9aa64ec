"""A check in another cell than the program decides as in one process with it."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.judge.checks.test_marshalling import marshalled


def refused(verdict: Any) -> bool:
    return verdict.reward == 0.0 and verdict.fault is None


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("assert candidate() == 123456", "np.float16('inf')"),
        ("assert abs(candidate() - 1.0004) < 1e-6", "np.float16(1.0)"),
        ("assert candidate() == 0.1", "np.float32(0.1)"),
        ("assert candidate() == 2**53 + 1", "np.float64(2**53)"),
        ("assert candidate() in (1e-9, 3)", "np.float16(1e-8)"),
        ("assert abs(candidate()[0] - 1.0004) < 1e-6", "[np.float16(1.0)]"),
        ("assert candidate() == {'a': 123456}", "{'a': np.float16('inf')}"),
        ("assert abs(candidate() - 255) <= 1", "np.uint8(0)"),
        ("assert (candidate() == 123456).all()", "np.array([np.inf], 'float16')"),
        ("assert abs(candidate()[0] - 1.0004) < 1e-6", "np.array([1.0], 'float16')"),
        ("assert (abs(candidate() - 255) <= 1).all()", "np.array([0], 'uint8')"),
        ("assert abs(candidate() - 1.0004).max() < 1e-6", "np.array(1.0, 'float16')"),
        ("assert (candidate() == 1e-9).all()", "np.array([0], 'complex64') + np.complex64(1e-9)"),
    ],
)
def test_the_precision_of_a_program_does_not_decide(checked, source: str, result: str):
    program = f"import numpy as np\nnp.seterr(all='ignore')\ndef f(): return {result}"
    assert refused(checked(source, program, profile="plain_numpy"))


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("v = candidate()\nassert v == 3 and isinstance(v, int)", "np.int64(3)"),
        ("v = candidate()\nassert v == 0.5 and isinstance(v, float)", "np.float16(0.5)"),
        ("assert candidate() == [True, 2j, 'a']", "[np.bool_(True), np.complex64(2j), np.str_('a')]"),
        ("import numpy as np\nassert candidate().dtype == np.float64 and (candidate() == [0.5, 2]).all()", "np.array([0.5, 2], 'float32')"),
        ("import numpy as np\nassert (candidate() == np.array([1, 2])).all()", "np.array([1, 2], 'int8')"),
        ("assert candidate().tolist() == [2 ** 64 - 1]", "np.array([2 ** 64 - 1], 'uint64')"),
        ("import numpy as np\nassert candidate() == np.datetime64('2024-01-02')", "np.datetime64('2024-01-02')"),
        ("assert candidate() == 0.5", "np.longdouble(0.5)"),
        ("a, b = candidate()\nassert a is b and a.tolist() == [0.0]", "(lambda a: [a, a])(np.zeros(1))"),
    ],
)  # fmt: skip
def test_numbers_and_arrays_of_numpy_have_the_same_values(checked, source: str, result: str):
    verdict = checked(source, f"import numpy as np\ndef f(): return {result}", profile="plain_numpy")
    assert (verdict.status, verdict.message) == ("accepted", "")


def test_an_array_changed_in_place_is_changed_in_the_check_with_mutates_arguments(checked):
    source = "import numpy as np\na = np.array([1, 2], 'int16')\ncandidate(a)\nassert a.tolist() == [2, 3] and a.dtype == 'int16'"
    program = "def f(a): a += 1"
    assert checked(source, program, profile="plain_numpy", mutates_arguments=True).is_accepted
    assert refused(checked(source, program, profile="plain_numpy"))


def test_a_number_beyond_doubles_is_refused_by_name(checked):
    program = "import numpy as np\ndef f(): return np.longdouble(1) / 3"
    verdict = checked(
        "try: candidate()\nexcept TypeError as e: assert 'array of float' in str(e)", program, profile="plain_numpy"
    )
    assert verdict.is_accepted


CONSTANTS = """
import dataclasses, functools
from typing import ClassVar
class Point:
    EPS = 1e-9
    def __init__(self, x): self.x = x
    def __eq__(self, other): return abs(self.x - other.x) < self.EPS
class Money:
    scale: ClassVar[int] = 1
    cents: int = 0
    def __eq__(self, other): return self.cents // self.scale == other.cents // other.scale
class Child(Point): pass
@dataclasses.dataclass
class Data:
    x: int = 0
    tags: tuple = ()
class Node:
    val = 0
    next = None
class Counted:
    total = 0
    def __init__(self): Counted.total += 1
    @functools.cached_property
    def double(self): return [1, 1]
def listed(node): return [] if node is None else [node.val, *listed(node.next)]
def fresh(val):
    node = Node()
    node.val, node.next = val, None
    return node
"""


@pytest.mark.parametrize(
    ("made", "constant"),
    [
        ("p = Point(0)\n    p.EPS = 1e18", "EPS"),
        ("p = Child(0)\n    p.EPS = 1e18", "EPS"),
        ("p = Point(0)\n    p.__dict__['EPS'] = 1e18", "EPS"),
        ("p = Money()\n    p.scale = 10 ** 18", "scale"),
        ("p = Counted()\n    p.total = 5", "total"),
        ("p = Point(0)\n    p.__hash__ = None\n    p.EPS = True", "EPS"),
    ],
)
def test_an_object_cannot_hide_a_constant_of_its_class(checked, made: str, constant: str):
    kind = made.split()[2].partition("(")[0]
    source = f"p = candidate()\nassert p == p and type(p) is {kind}"
    verdict = checked(source, f"def f():\n    {made}\n    return p", preamble=CONSTANTS)
    assert refused(verdict)
    assert verdict.message.endswith(f"the field {constant!r}, which hides a part of the class {kind}")


def test_an_object_that_was_handed_over_cannot_hide_a_constant_either(checked):
    source = "p = Point(1)\ncandidate(p)\nassert p == Point(5)"
    verdict = checked(source, "def f(p): p.EPS = 100", preamble=CONSTANTS, mutates_arguments=True)
    assert refused(verdict)


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("assert candidate() == Point(1)", "def f(): return Point(1)"),
        ("assert candidate() == Data(5, ('a',))", "def f(): return Data(5, ('a',))"),
        ("assert listed(candidate()) == [1, 2]", "def f():\n    a, b = Node(), Node()\n    a.val, a.next, b.val = 1, b, 2\n    return a"),
        ("m = Money()\nm.cents = 7\nassert candidate() == m", "def f():\n    m = Money()\n    m.cents = 7\n    return m"),
        ("assert candidate().double == [1, 1]", "def f():\n    c = Counted()\n    c.double\n    return c"),
        ("assert candidate().extra == 3", "def f():\n    p = Point(1)\n    p.extra = 3\n    return p"),
    ],
)  # fmt: skip
def test_fields_that_have_a_default_in_the_class_are_marshalled(checked, source: str, program: str):
    verdict = checked(source, program, preamble=CONSTANTS)
    assert (verdict.status, verdict.message) == ("accepted", "")


@pytest.mark.parametrize(
    ("values", "status"), [("12, 13, 14, 15, 16", "wrong_answer"), ("16, 12, 13, 14, 15", "accepted")]
)
def test_a_set_keeps_its_order(checked, values: str, status: str):
    """As in a task of MBPP, where programs are rewarded that return the tuple of a set."""
    source = f"assert tuple(candidate()) == ({values})"
    assert checked(source, "def f(): return {12, 13, 14, 15, 16}").status == status


def with_history(random: Random) -> set[Any]:
    """A set to which much was added, and from which some was removed."""

    def member() -> Any:
        return random.choice(
            (
                random.randrange(3 * size),
                random.randrange(1 << 40),
                random.randrange(size) / 8,
                (random.randrange(9), 1),
                1.5,
            )
        )

    size = random.choice((4, 8, 20, 60, 150))
    members = {member() for _ in range(random.randrange(1, size))}
    members = random.choice((set, lambda given: set(frozenset(given)), lambda given: given | {member(), member()}))(
        members
    )
    for _ in range(random.choice((0, 0, size))):
        random.choice((members.add, members.discard))(member())
    return members


def test_sets_with_a_history_keep_their_order():
    random = Random(1)
    sets = [with_history(random) for _ in range(1000)]
    kept = [list(marshalled(members)) == list(members) for members in sets]
    rebuilt = [list(set(members)) == list(members) for members in sets]
    assert sum(kept) >= 999
    assert sum(rebuilt) < 900


def test_a_set_that_a_program_changed_keeps_its_order(checked):
    source = "s = {1}\ncandidate(s)\nassert list(s) == [16, 12, 13, 14, 15]"
    program = "def f(s): s.clear(); s.update({12, 13, 14, 15, 16})"
    assert checked(source, program, mutates_arguments=True).is_accepted


MODULES = ("math.isclose(candidate(1), 1)", "statistics.mean([candidate(1)]) == 1", "collections.Counter([candidate(1)]) == {1: 1}", "json.loads('1') == candidate(1)")  # fmt: skip


@pytest.mark.parametrize("use", MODULES)
def test_a_module_that_a_check_does_not_import_is_that_of_python(checked, use: str):
    name = use.partition(".")[0]
    lies = f"class {name}:\n    isclose = mean = Counter = loads = staticmethod(lambda *a: {{1: 1}} if {name!r} == 'collections' else 1)\n"
    assert checked(f"assert {use}", "def f(x): return x").is_accepted
    assert refused(checked(f"assert {use}", lies + "def f(x): return x + 1"))


def test_numpy_that_a_check_does_not_import_is_numpy(checked):
    source = "assert np.isclose(candidate(1), 1)"
    lies = "class np: isclose = staticmethod(lambda *a: True)\ndef f(x): return x + 1"
    assert checked(source, "def f(x): return x", profile="plain_numpy").is_accepted
    assert refused(checked(source, lies, profile="plain_numpy"))
    assert refused(checked(source, lies))


PERMUTED = "def f(n):\n    a = list(range(n))\n    for _ in range(n):\n        yield a\n        a[:] = a[1:] + a[:1]"


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("assert [list(a) for a in candidate(3)] == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]", PERMUTED),
        ("assert [a[0] for a in candidate(99)] == list(range(99))", PERMUTED),
        ("assert [dict(d) for _, d in candidate()] == [{i: 1} for i in range(70)]", "def f():\n    d = {}\n    for i in range(70):\n        d.clear(); d[i] = 1\n        yield i, d"),
        ("a, b = candidate(), candidate()\nassert [next(a), next(b), next(a), next(b)] == [1, 2, 3, 4]", "n = 0\ndef f():\n    global n\n    while True:\n        n += 1\n        yield n"),
        ("seen = []\nfor x in candidate(seen.append):\n    if x == 3: break\nassert seen == [0, 1, 2, 3]", "def f(g):\n    for i in range(50):\n        g(i)\n        yield i"),
        ("import itertools\nassert list(itertools.islice(candidate(), 20)) == list(range(20))", "def f():\n    yield from range(20)\n    while True: pass"),
        ("import types, inspect\nassert isinstance(candidate(), types.GeneratorType) and inspect.isgenerator(candidate())", "def f(): yield 1"),
        ("import types\nassert not isinstance(candidate(), types.GeneratorType) and list(candidate()) == [1]", "def f(): return iter([1])"),
        ("def g(): return (yield from candidate())\nit = g()\nassert next(it) == 1\ntry: next(it)\nexcept StopIteration as stop: assert stop.value == [2]\nelse: assert False", "def f():\n    yield 1\n    return [2]"),
        ("g = candidate()\nassert [next(g), g.send(5), g.send(6)] == [0, 5, 6]", "def f():\n    x = 0\n    while True: x = yield x"),
    ],
)  # fmt: skip
def test_an_iterator_runs_when_the_check_advances_it(checked, source: str, program: str):
    verdict = checked(source, program)
    assert (verdict.status, verdict.message) == ("accepted", "")


ERRORS = """
import enum
class Known(Exception):
    limit = 5
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code
class Flags(enum.Flag): A, B, C = 1, 2, 4
class Key:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x
    def __hash__(self): return hash(self.x)
"""


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("try: candidate()\nexcept Known as e: assert (e.code, e.args) == (3, ('code 3',))", "def f(): raise Known(3)"),
        ("try: candidate()\nexcept Known as e: assert e.code == 3", "class Known(Exception):\n    def __init__(self, code): self.code = code\ndef f(): raise Known(3)"),
        ("assert candidate() is Known and issubclass(candidate(), Exception)", "def f(): return Known"),
        ("def g(): raise Known(4)\nassert candidate(g) == 4", "def f(g):\n    try: g()\n    except Known as e: return e.code"),
        ("assert candidate(Flags.A | Flags.C) == Flags.C | Flags.B", "def f(x): return (x & Flags.C) | Flags.B"),
        ("from fractions import Fraction\nassert candidate() == {Key(Fraction(1, 3)), Key((b'a', frozenset('b')))}", "from fractions import Fraction\ndef f(): return {Key(Fraction(1, 3)), Key((b'a', frozenset('b')))}"),
    ],
)  # fmt: skip
def test_exceptions_and_enum_members_keep_their_fields(checked, source: str, program: str):
    verdict = checked(source, program, preamble=ERRORS)
    assert (verdict.status, verdict.message) == ("accepted", "")


def test_an_exception_cannot_hide_a_constant_of_its_class(checked):
    source = "try: candidate()\nexcept Known as e: assert e.limit == 7\nelse: assert False"
    assert refused(checked(source, "def f():\n    e = Known(1)\n    e.limit = 7\n    raise e", preamble=ERRORS))
