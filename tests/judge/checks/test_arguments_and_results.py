"""Arguments and results keep their value and type between a check and a program."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import pytest

IMPORTS = "import collections, datetime, decimal, fractions, math, operator, functools, types\n"
SAME = f"{IMPORTS}def f(x): return x"
VALUES = (
    *(
        "None",
        "True",
        "1",
        "-(10 ** 400)",
        "10 ** 4000",
        "1.5",
        "-0.0",
        "float('inf')",
        "'ä\\ud800'",
        "b'a\\0'",
        "bytearray(b'a')",
    ),
    *(
        "[1, [2, [3]]]",
        "(1, (2,))",
        "{'a': [1], 'b': (2,)}",
        "{1: 2, (3, 4): 5}",
        "{1, 2}",
        "frozenset({1})",
        "2j",
        "...",
        "slice(1, 2)",
    ),
    *(
        "range(2, 10, 3)",
        "collections.Counter('aab')",
        "collections.OrderedDict(b=1, a=2)",
        "collections.deque([1, [2]], 3)",
    ),
    *(
        "fractions.Fraction(1, 3)",
        "decimal.Decimal('1.10')",
        "datetime.date(2024, 2, 29)",
        "datetime.timedelta(1, 2, 3)",
    ),
    *(
        "datetime.datetime(2024, 1, 1, 2, tzinfo=datetime.timezone.utc)",
        "datetime.time(1, 2)",
        "int",
        "ValueError",
        "list",
        "object",
    ),
    *("[1.0, float('inf')]", "[10 ** 4000]", "[True, 1, 1.0]", "{'a': {'b': {}}}"),
)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_comes_back_equal_and_of_the_same_type(checked, value: str):
    source = f"{IMPORTS}given = {value}\nfound = candidate(given)\nassert type(found) is type(given) and found == given and repr(found) == repr(given)"
    assert checked(source, SAME).status == "accepted"


@pytest.mark.parametrize("value", VALUES)
def test_a_program_receives_an_equal_value_of_the_same_type(checked, value: str):
    program = (
        f"{IMPORTS}given = {value}\ndef f(x): return type(x) is type(given) and x == given and repr(x) == repr(given)"
    )
    assert checked(f"{IMPORTS}assert candidate({value}) is True", program).status == "accepted"


def test_nan_and_default_dicts_are_marshalled(checked):
    source = f"{IMPORTS}assert math.isnan(candidate(math.nan))\nd = candidate(collections.defaultdict(list, a=[1]))\nassert d['b'] == [] and d['a'] == [1]"
    assert checked(source, SAME).status == "accepted"


@pytest.mark.parametrize(
    ("result", "expected"),
    [("True", "1"), ("(1, 2)", "[1, 2]"), ("[1, 2]", "(1, 2)"), ("1.0", "1"), ("'1'", "1"), ("{1}", "frozenset({1})")],
)
def test_types_are_told_apart(checked, result: str, expected: str):
    source = f"found = candidate(0)\nassert type(found) is type({expected})"
    assert checked(source, f"def f(x): return {result}").status == "wrong_answer"


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("assert candidate(1, b=2) == (1, 2, 3)", "def f(a, b=0, c=3): return a, b, c"),
        ("assert candidate(*[1, 2], **{'c': 4}) == (1, (2,), {'c': 4})", "def f(a, *b, **c): return a, b, c"),
        ("assert f(2) == candidate(2) == 4", "def f(x): return x * x"),
        ("assert candidate('abc') == {'a', 'b', 'c'}", "f = set"),
        ("assert candidate(lambda x: x + 1, 2) == 3", "def f(g, x): return g(x)"),
        ("assert candidate(2)(3) == 6", "def f(x): return lambda y: x * y"),
        ("assert candidate(lambda g: g(3))(lambda x: x + 1) == 4", "def f(h): return lambda g: h(g)"),
        ("def g(n): return candidate(g, n - 1) + 1 if n else 0\nassert g(20) == 20", "def f(g, n): return g(n)"),
        ("g = lambda: 0\nassert candidate(g) is g", "def f(g): return g"),
        ("h = candidate(0)\nassert candidate(h) is h", "def f(x, g=lambda: 0): return x or g"),
        ("assert list(candidate(3)) == [0, 1, 2]", "def f(n): yield from range(n)"),
        ("import itertools\nassert list(itertools.islice(candidate(), 200)) == list(range(200))", "import itertools\ndef f(): return itertools.count()"),
        ("g = candidate()\nassert next(g) == 1\ntry: next(g)\nexcept ValueError: pass\nelse: assert False", "def f():\n    yield 1\n    raise ValueError"),
        ("assert sorted(candidate({'b': 1, 'a': 2})) == ['a', 'b']", "def f(d): return d.keys()"),
        ("assert list(candidate([1, 2])) == [2, 4]", "def f(v): return map(lambda x: 2 * x, v)"),
        ("assert candidate(iter([1, 2])) == [1, 2]", "def f(v): return list(v)"),
        ("assert candidate(x for x in 'ab') == ['a', 'b']", "def f(v): return list(v)"),
        ("assert candidate(int, '12') == 12", "def f(kind, x): return kind(x)"),
        ("assert candidate(2) == 4 and helper(3) == 6 and LIMIT == 9", "LIMIT = 9\ndef helper(x): return 2 * x\ndef f(x): return helper(x)"),
        ("s = f()\ns.push(1)\ns.push(2)\nassert s.pop() == 2 and s.size == 1 and s is not f()", "class f:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n    def pop(self): return self.items.pop()\n    @property\n    def size(self): return len(self.items)"),
        ("a = Node(1)\na.next = Node(2)\nassert candidate(a) == 3 and a.next.val == 2", "class Node:\n    def __init__(self, val): self.val, self.next = val, None\ndef f(node): return node.val + node.next.val"),
        ("assert candidate(3).value == 3", "class Box:\n    def __init__(self, v): self.value = v\ndef f(v): return Box(v)"),
        ("import threading\nresults = []\nthreads = [threading.Thread(target=lambda: results.append(candidate(2))) for _ in range(4)]\n[t.start() for t in threads]\n[t.join() for t in threads]\nassert results == [4] * 4", "def f(x): return x * x"),
        ("assert candidate(lambda x: x + 1) == [1, 2, 3]", "from concurrent.futures import ThreadPoolExecutor\ndef f(g):\n    with ThreadPoolExecutor(3) as pool: return list(pool.map(g, range(3)))"),
    ],
)  # fmt: skip
def test_an_honest_program_is_accepted(checked, source: str, program: str):
    verdict = checked(source, program)
    assert (verdict.status, verdict.message) == ("accepted", "")


NODES = """
from collections import namedtuple
from enum import Enum
class ListNode:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
class TreeNode:
    __slots__ = ("val", "left", "right")
    def __init__(self, val=0, left=None, right=None): self.val, self.left, self.right = val, left, right
    def sum(self): return self.val + sum(child.sum() for child in (self.left, self.right) if child)
Point = namedtuple("Point", "x y")
class Place:
    def __init__(self, x, tags=(), inner=None): self.x, self.tags, self.inner = x, tags, inner
    def __eq__(self, other): return (self.x, self.tags, self.inner) == (other.x, other.tags, other.inner)
    def __hash__(self): return hash((self.x, self.tags, self.inner))
class Colour(Enum): RED = 1
def as_list(node):
    found = []
    while node: found.append(node.val); node = node.next
    return found
def as_nodes(values):
    node = None
    for value in reversed(values): node = ListNode(value, node)
    return node
"""


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("assert as_list(candidate(as_nodes([1, 2, 3]))) == [3, 2, 1]", "def f(node):\n    last = None\n    while node: node.next, node, last = last, node.next, node\n    return last"),
        ("assert as_list(candidate(as_nodes(list(range(3000))))) == list(range(3000))", "def f(node): return node"),
        ("assert as_list(candidate(as_nodes([1]))) == [0, 1]", "class ListNode:\n    def __init__(self, val, next): self.val = val; self.next = next\ndef f(node): return ListNode(0, node)"),
        ("assert as_list(candidate(as_nodes([1]))) == [0, 1]", "class Mine(ListNode): pass\ndef f(node): return Mine(0, node)"),
        ("n = candidate(ListNode(1))\nassert n.next.next is n and type(n) is ListNode", "def f(node):\n    node.next = ListNode(2, node)\n    return node"),
        ("a = ListNode(1)\nassert candidate(a, a) is True and candidate(a, ListNode(1)) is False", "def f(a, b): return a is b"),
        ("t = candidate(TreeNode(1, TreeNode(2), TreeNode(3)))\nassert t.sum() == 6 and t.left.val == 3", "def f(t):\n    t.left, t.right = t.right, t.left\n    return t"),
        ("p = candidate(Point(1, 2))\nassert p == Point(2, 1) and p.x == 2 and type(p) is Point", "def f(p): return Point(p.y, p.x)"),
        ("assert candidate(Colour.RED) is Colour.RED", "def f(c): return Colour.RED if c is Colour.RED else None"),
        ("assert candidate({Place(1)}) == {Place(1), Place(2)}", "def f(places): return places | {Place(2)}"),
        ("assert candidate({Place(1, ('a',), Place(2)): [3]}) == {Place(2): [Place(1, ('a',), Place(2))]}", "def f(d): return {key.inner: [key] for key in d if d[Place(1, ('a',), Place(2))] == [3]}"),
        ("assert candidate(frozenset((Place(1),))) == {(1, Place(3)): 4}", "def f(places): return {(1, Place(3)): 4 for place in places if place.x == 1}"),
        ("assert candidate(ListNode).val == 5", "def f(kind): return kind(5)"),
        ("rows = candidate(2)\nassert rows == [[0], [0]] and rows[0] is rows[1]", "def f(n):\n    row = [0]\n    return [row] * n"),
        ("loop = candidate()\nassert loop[0] is loop", "def f():\n    a = []\n    a.append(a)\n    return a"),
    ],
)  # fmt: skip
def test_objects_of_classes_in_the_preamble_are_marshalled_as_their_fields(checked, source: str, program: str):
    verdict = checked(source, program, preamble=NODES)
    assert (verdict.status, verdict.message) == ("accepted", "")


def test_arguments_are_copies_without_mutates_arguments(checked):
    program = "def f(v):\n    v.sort()\n    v.append([9])"
    source = "v = [3, 1, 2]\ncandidate(v)\nassert v == {}"
    assert checked(source.format("[3, 1, 2]"), program).status == "accepted"
    assert checked(source.format("[1, 2, 3, [9]]"), program, mutates_arguments=True).status == "accepted"
    assert checked(source.format("[3, 1, 2]"), program, mutates_arguments=True).status == "wrong_answer"


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("m = [[1, 2], [3, 4]]\nrow = m[0]\ncandidate(m)\nassert m == [[3, 1], [4, 2]] and row == [3, 1]", "def f(m): m[:] = [m[0], m[1]]; a, b = m; a[:], b[:] = [b[0], a[0]], [b[1], a[1]]"),
        ("d, s, b = {1: 2}, {1}, bytearray(b'a')\ncandidate(d, s, b)\nassert d == {3: [4]} and s == {2} and b == b'ab'", "def f(d, s, b):\n    d.clear(); d[3] = [4]\n    s.clear(); s.add(2)\n    b += b'b'"),
        ("v = []\nassert candidate(v) is v and v == [1]", "def f(v):\n    v.append(1)\n    return v"),
        ("a = as_nodes([1, 2])\nb = a.next\nassert candidate(a) is b and b.next is a and a.next is None", "def f(a):\n    b = a.next\n    b.next, a.next = a, None\n    return b"),
        ("a = ListNode(1)\na.extra = 1\ncandidate(a)\nassert not hasattr(a, 'extra') and a.next.val == 7", "def f(a):\n    del a.extra\n    a.next = ListNode(7)"),
        ("v = [1]\nassert candidate(v, lambda: v.append(5)) is None and v == [2]", "def f(v, g): v[0] = 2; g()"),
    ],
)  # fmt: skip
def test_changes_of_arguments_reach_the_check_with_mutates_arguments(checked, source: str, program: str):
    verdict = checked(source, program, preamble=NODES, mutates_arguments=True)
    assert (verdict.status, verdict.message) == ("accepted", "")
