"""Random values of every kind that marshalling supports, as source text, and random expressions of them."""
# ruff: noqa: E501  the values are easier to compare when each stays on one line

from __future__ import annotations

from random import Random

from tests.judge.checks.two_cells import Case

IMPORTS = """
import collections, copy, datetime, decimal, fractions, functools, itertools, json, math, operator, types
import numpy as np
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
"""
PREAMBLE = """
import enum, functools
from collections import namedtuple
from dataclasses import dataclass, field
class Plain:
    EPS = 1e-9
    def __init__(self, x, y=None): self.x, self.y = x, y
    def __eq__(self, other): return type(other) is type(self) and abs(self.x - other.x) <= self.EPS
    def __hash__(self): return hash(self.x)
    def __repr__(self): return f"{type(self).__name__}({self.x!r}, {self.y!r})"
    def __lt__(self, other): return self.x < other.x
    def __add__(self, other): return type(self)(self.x + other.x, self.y)
    def __iter__(self): return iter((self.x, self.y))
    def __len__(self): return 2
    def __contains__(self, item): return item == self.x
    def __getattr__(self, name): return "made " + name if name.startswith("m") else object.__getattribute__(self, name)
    @property
    def double(self): return 2 * self.x
    @functools.cached_property
    def cached(self): return [self.x]
class Child(Plain):
    EPS = 0.5
class Slotted:
    __slots__ = ("x", "y")
    def __init__(self, x, y=None): self.x, self.y = x, y
    def __repr__(self): return f"Slotted({self.x!r})"
    def __eq__(self, other): return (self.x, self.y) == (other.x, other.y)
@dataclass(order=True)
class Data:
    x: int = 0
    y: object = None
    z: list = field(default_factory=list, compare=False)
@dataclass(frozen=True)
class Frozen:
    x: object
    y: object = 3
Pair = namedtuple("Pair", "x y")
class Colour(enum.Enum): RED, GREEN = 1, 2
class Level(enum.IntEnum): LOW, HIGH = 1, 2
class Flags(enum.Flag): A, B, C = 1, 2, 4
class Known(Exception):
    def __init__(self, code, *more):
        super().__init__(f"code {code}", *more)
        self.code = code
class Worse(Known): pass
"""
DOCUMENTED = """
def carried(value, known=None):
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        wide = {"f": "float64", "c": "complex128"}.get(value.dtype.kind)
        return (value.astype(wide) if wide else value).item()
    if isinstance(value, np.ndarray):
        kind = {"i": "int64", "u": "int64", "f": "float64", "c": "complex128"}.get(value.dtype.kind)
        if value.dtype.kind == "u" and value.size and value.max() >= 1 << 63: kind = "uint64"
        known[id(value)] = value.astype(kind) if kind else value.copy()
        return known[id(value)]
    if type(value) is list:
        known[id(value)] = value
        value[:] = [carried(part, known) for part in value]
    if type(value) is tuple:
        return tuple(carried(part, known) for part in value)
    return value
"""
"""What becomes of the value of a program, as the pages say: numbers of numpy are Python's, arrays as wide as can be."""
_DTYPES = (
    *("float16", "float32", "float64", "longdouble", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("uint64", "bool", "complex64", "complex128", "datetime64[D]", "datetime64[Y]", "timedelta64[s]", "<U3", "S3"),
    *(">f4", ">i2", "float16", "float32", "int8", "uint8"),
)


class Maker:
    """Draws cases."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def case(self) -> Case:
        kind = self.random.choice(
            (
                "number",
                "numpy_scalar",
                "array",
                "set",
                "set",
                "set",
                "mapping",
                "view",
                "sequence",
                "iterator",
                "iterator",
                "object",
                "object",
                "shared",
                "exception",
                "exact",
                "text",
                "numpy_scalar",
                "array",
                "frozenset",
            )
        )
        return getattr(self, f"_{kind}")()

    # Parts.

    def number(self) -> str:
        draw = self.random
        return draw.choice(
            (
                str(draw.randrange(-9, 300)),
                str(draw.randrange(-(1 << 70), 1 << 70)),
                repr(round(draw.uniform(-5, 5), draw.randrange(5))),
                draw.choice(
                    ("True", "False", "0", "1.0", "-0.0", "math.inf", "-math.inf", "2**53+1", "1e16", "2j", "1e-7")
                ),
            )
        )

    def key(self) -> str:
        draw = self.random
        return draw.choice(
            (
                str(draw.randrange(-5, 100)),
                str(draw.randrange(1 << draw.choice((10, 30, 70)))),
                repr("".join(draw.choices("abcdefgh", k=draw.randrange(1, 5)))),
                f"({draw.randrange(9)}, {draw.choice('abc')!r})",
                repr(round(draw.uniform(0, 50), 2)),
                repr(bytes([draw.randrange(97, 110)])),
                draw.choice(
                    ("True", "0", "''", "()", "-1", "-2", "2**61-1", "Fraction(1, 3)", "Decimal('1.5')", "1.5")
                ),
            )
        )

    def keys(self, most: int) -> str:
        draw = self.random
        make = self.key if draw.random() < 0.6 else lambda: str(draw.randrange(3 * most))
        return ", ".join(make() for _ in range(draw.randrange(1, most)))

    def any(self) -> str:
        draw = self.random
        return draw.choice((self.number, self.key, lambda: f"[{self.number()}]"))()

    def pick(self, *expressions: str) -> str:
        return self.random.choice(expressions)

    # Cases.

    def _number(self) -> Case:
        a, b = self.number(), self.number()
        return Case(f"return {a}", self.about_number(b))

    def about_number(self, b: str) -> str:
        eps = self.pick("1e-9", "1e-6", "1e-3", "0.5")
        return self.pick(
            *(f"v == {b}", f"{b} == v", f"v < {b}", f"abs(v - {b}) < {eps}", f"math.isclose(v, {b}, abs_tol={eps})"),
            *("type(v).__name__", "repr(v)", "isinstance(v, (int, float))", "isinstance(v, bool)", "hash(v)", "v + 1"),
            *(f"v * {b}", f"v - {b}", f"[v] == [{b}]", f"v in [{b}, 1]", f"sorted([v, {b}])", "round(v, 2)", "f'{v}'"),
            *(
                "v is True",
                "bool(v)",
                "-v",
                "v ** 2",
                "v // 2",
                f"max(v, {b})",
                f"np.allclose(v, {b})",
                "json.dumps(v)",
            ),
            *(f"np.isclose(v, {b})", "int(v)", "{v: 1}", "str(v)", "v.real"),
        )

    def _numpy_scalar(self) -> Case:
        dtype, a, b = self.random.choice(_DTYPES), self.number(), self.number()
        near = self.pick(a, a, b, f"({a}) + 1e-4", f"({a}) + 1", "123456", "300")
        expression = self.about_number(near)
        value = f"np.array([{self.for_dtype(dtype, a)}]).astype({dtype!r})[0]"
        value = self.pick(value, f"[{value}, 1]", f"({value},)") if self.random.random() < 0.3 else value
        return Case(f"with np.errstate(all='ignore'): return {value}", expression)

    def for_dtype(self, dtype: str, number: str) -> str:
        if "time" in dtype:
            return "5"
        if "complex" not in dtype and number == "2j":
            return "2"
        if number in ("math.inf", "-math.inf") and not dtype.startswith(("f", "c", "l", ">f")):
            return "7"
        return f"float({number})" if "j" not in number and dtype.startswith(("f", "l", ">f")) else number

    def _array(self) -> Case:
        draw, dtype = self.random, self.random.choice(_DTYPES)
        numbers = [self.for_dtype(dtype, self.number()) for _ in range(draw.choice((0, 1, 3, 4, 4)))]
        shape = draw.choice(("-1", "-1", "(2, -1)", "(2, 2)")) if len(numbers) == 4 else "-1"
        other = self.pick(
            "123456", self.number(), f"[{', '.join(numbers)}]", "1.0004", f"({numbers[0] if numbers else 1}) + 1e-4"
        )
        body = (
            f"with np.errstate(all='ignore'):\n    a = np.array([{', '.join(numbers)}]).astype({dtype!r}).reshape({shape})\n"
            + f"return {draw.choice(('a', 'a', 'a', 'a.T', 'a[::2]', 'a[::-1]', '[a, 1]', '(a, a)', 'np.asfortranarray(a)'))}"
        )
        return Case(
            body,
            self.pick(
                *(f"(np.asarray(v, dtype=object) == {other}).tolist()", f"np.array_equal(v, {other})", "v.tolist()"),
                *(
                    f"np.allclose(v, {other})",
                    f"(abs(v - {other}) < 1e-3).tolist()",
                    f"(v == {other}).all()",
                    "v.shape",
                ),
                *("v.sum()", "v.mean()", "v[0]", "len(v)", "v.ndim", "repr(v)", "(v * 2).tolist()", "(v + 1).tolist()"),
                *("str(v.dtype)", "sorted(v.ravel().tolist())", "v.astype(str).tolist()", "[x for x in v]", "v.max()"),
                *(f"np.testing.assert_allclose(v, {other})", f"(v > {other}).tolist()", "v.size", "v[0] is v[1]"),
            ),
        )

    def set_body(self, kind: str) -> str:
        draw = self.random
        most = draw.choice((4, 6, 9, 25, 80, 150))
        start = self.pick(
            f"s = set([{self.keys(most)}])",
            f"s = set([{self.keys(most)}])",
            f"s = set(dict.fromkeys([{self.keys(most)}]))",
            f"s = set(frozenset([{self.keys(most)}]))",
            f"s = set([{self.keys(most)}]) | set([{self.keys(most)}])",
            f"s = set([{self.keys(most)}]) ^ set([{self.keys(most)}])",
            f"s = set([{self.keys(most)}]) - set([{self.keys(5)}])",
            f"s = dict.fromkeys([{self.keys(most)}]).keys() | set([{self.keys(most)}])",
            f"s = set(range({draw.randrange(40)}, {draw.randrange(200)}))",
        )
        lines = [start]
        for _ in range(draw.choice((0, 0, 1, 3))):
            lines.append(
                self.pick(
                    f"for x in [{self.keys(most)}]: s.add(x)",
                    f"for x in list(s)[::{draw.randrange(2, 5)}]: s.discard(x)",
                    f"for x in [{self.keys(most)}]: s.discard(x)",
                    f"for _ in range(min({draw.randrange(most)}, len(s))): s.pop()",
                    "s = s.copy()",
                    f"s.update([{self.keys(most)}])",
                    f"s -= set([{self.keys(9)}])",
                    f"s ^= set([{self.keys(9)}])",
                )
            )
        wrap = self.pick("s", "s", "s", "[s, 1]", "{'a': s}", "(s, s)") if kind == "set" else "frozenset(s)"
        return "\n".join([*lines, f"return {wrap}"])

    def _set(self) -> Case:
        part = "(v if type(v) is set else v[0] if type(v) is not dict else v['a'])"
        more = self.keys(5)
        body = self.set_body("set")
        return Case(
            body,
            self.pick(
                *(
                    f"list({part})",
                    f"tuple({part})",
                    f"repr({part})",
                    f"[{part}.pop() for _ in range(len({part}))]" if "pop" not in body else "v",
                    "v",
                ),
                *(
                    f"sorted({part} | set([{more}]), key=repr)",
                    f"sorted({part} - set([{more}]), key=repr)",
                    f"sorted({part} & set([{more}]), key=repr)",
                    "next(iter(v))",
                ),
                *(f"{part}.copy() == {part}", f"dict.fromkeys({part})", f"sorted({part}, key=repr)", f"len({part})"),
                *(f"{part} == set([{more}])", f"{part} <= set([{more}])", f"min({part}, key=repr)", f"str({part})"),
                *(f"''.join(map(str, {part}))", f"max({part}, key=lambda x: 0)", f"[{part}.add(77), len({part})]"),
            ),
        )

    def _frozenset(self) -> Case:
        more = self.keys(5)
        return Case(
            self.set_body("frozenset"),
            self.pick(
                *(
                    "len(v)",
                    "hash(v)",
                    f"v == {{{more}}}",
                    "sorted(v, key=repr)",
                    "type(v).__name__",
                    "{v: 1} == {v: 1}",
                )
            ),
        )

    def mapping(self) -> str:
        draw = self.random
        pairs = ", ".join(f"({self.key()}, {self.any()})" for _ in range(draw.randrange(1, 7)))
        kind = self.pick("dict", "dict", "OrderedDict", "Counter", "defaultdict")
        start = {
            "Counter": f"d = Counter({{{self.key()}: {draw.randrange(-2, 3)}, {self.key()}: 0}})",
            "defaultdict": f"d = defaultdict({self.pick('int', 'list', 'None', 'dict')}, [{pairs}])",
        }.get(kind, f"d = {kind}([{pairs}])")
        extra = self.pick("", "", "d.pop(next(iter(d)))", f"d[{self.key()}] = 5", "k = next(iter(d)); d[k] = d.pop(k)")
        return f"{start}\n{extra}" if extra else start

    def _mapping(self) -> Case:
        key, start = self.key(), self.mapping()
        twice = start.replace("d = ", "e = ").partition("\n")[0].replace("e = ", "")
        return Case(
            f"{start}\nreturn d",
            self.pick(
                *(
                    "list(v)",
                    "list(v.items())",
                    "v",
                    f"v == {twice}",
                    f"v[{key}]",
                    f"v.get({key})",
                    f"{key} in v",
                    "len(v)",
                ),
                *(
                    "type(v).__name__",
                    "list(reversed(v))",
                    "v == Counter()",
                    "v.popitem()",
                    f"[v.setdefault({key}, 1), list(v)]",
                ),
                *(
                    "v + Counter('a')",
                    "v.most_common(1)",
                    "isinstance(v, dict)",
                    "copy.copy(v)",
                    "v | {1: 2}",
                    "json.dumps(v)",
                ),
                *("sorted(v.items(), key=repr)", "max(v, key=repr)", "bool(v)", "v == dict(v)", f"{twice} == v"),
            ),
        )

    def _view(self) -> Case:
        other = self.keys(4)
        return Case(
            f"{self.mapping()}\nreturn d.{self.pick('keys', 'values', 'items')}()",
            self.pick(
                *(
                    "list(v)",
                    "len(v)",
                    f"v == {{{other}}}",
                    f"sorted(v & set([{other}]), key=repr)",
                    f"sorted(v | set([{other}]), key=repr)",
                    "sorted(v, key=repr)",
                ),
                *(
                    "list(reversed(v))",
                    f"{self.key()} in v",
                    "next(iter(v))",
                    "isinstance(v, list)",
                    "v[0]",
                ),
            ),
        )

    def _sequence(self) -> Case:
        draw, parts = self.random, ", ".join(self.any() for _ in range(self.random.randrange(5)))
        start, stop, step = draw.randrange(-5, 5), draw.randrange(20), draw.choice((1, 2, 3, -1))
        value = self.pick(
            *(f"[{parts}]", f"({parts}{',' if parts else ''})", f"deque([{parts}], {draw.choice((None, 2, 9))})"),
            *(f"range({start}, {stop}, {step})", f"slice({start}, {stop}, {step})", "bytearray(b'abc')"),
        )
        return Case(
            f"return {value}",
            self.pick(
                *(
                    "list(v)",
                    f"v == [{parts}]",
                    f"v == ({parts}{',' if parts else ''})",
                    "type(v).__name__",
                    "repr(v)",
                    "v[0]",
                ),
                *(
                    "v[-1]",
                    "len(v)",
                    "[v.append(5), list(v)]",
                    f"{self.number()} in v",
                    "v + v",
                    "v * 2",
                    "v[1:]",
                    "v[::-1]",
                ),
                *(
                    "isinstance(v, (list, tuple))",
                    f"v == range({start}, {stop}, {step})",
                    "hash(v) if type(v) is tuple else 0",
                    "sorted(v)",
                    "sum(v)",
                ),
                *("list(reversed(v))", "v.index(v[0])", "bool(v)", "max(v)", "v == v[:]"),
            ),
        )

    def _iterator(self) -> Case:
        n = self.random.randrange(1, 80)
        generators = (
            f"a = list(range(4))\ndef g():\n    for i in range({n}):\n        a[:] = a[1:] + a[:1]\n        yield a\nreturn g()",
            f"a = {{}}\ndef g():\n    for i in range({n}):\n        a[i % 3] = i\n        yield a\nreturn g()",
            f"a = set()\ndef g():\n    for i in range({n}):\n        a.add(i * 7)\n        yield (i, a)\nreturn g()",
            f"p = Plain(0)\ndef g():\n    for i in range({n}):\n        p.x = i\n        yield p\nreturn g()",
            f"def g():\n    yield from range({n})\n    return {n}\nreturn g()",
            f"def g():\n    for i in range({n}): yield i, str(i)\n    raise ValueError({n})\nreturn g()",
            "import itertools\nreturn itertools.count(3)",
            "def g():\n    got = 0\n    while True: got = yield (got or 0) + 1\nreturn g()",
            f"n = [0]\ndef g():\n    while n[0] < {n}:\n        n[0] += 1\n        yield n[0]\nreturn [g(), g()]",
            f"def g():\n    yield 1\n    yield [2]\n    yield (3, [4])\n    yield {self.any()}\nreturn g()",
            f"return map(lambda x: x * x, range({n}))",
            f"return zip(range({n}), 'abcdef')",
            f"return filter(lambda x: x % 3, range({n}))",
            f"return iter([{n}, [1], 3])",
            f"return reversed([{n}, [1], 3])",
            f"return enumerate('ab', {n})",
            "class C:\n    n = 0\n    def __iter__(self): return self\n    def __next__(self):\n        self.n += 1\n        return self.n\nreturn C()",
            f"def g():\n    for i in range(40): yield i\n    while True: raise KeyError({n})\nreturn g()",
        )
        body = self.random.choice(generators)
        two = "v[0] if type(v) is list else v"
        return Case(
            body,
            self.pick(
                *(f"[repr(x) for x in itertools.islice({two}, {k})]" for k in (1, 3, 30, 70)),
                *(
                    f"[ascii(copy.deepcopy(x)) for x in itertools.islice({two}, 50)]",
                    f"next({two})",
                    f"[repr(next({two})), repr(next({two}))]",
                ),
                f"[f(x) for f in (repr,) for x in itertools.islice({two}, 9)]",
                "[(repr(a), repr(b)) for a, b in itertools.islice(zip(*(v if type(v) is list else ())), 40)]",
                *(
                    "isinstance(v, types.GeneratorType)",
                    f"iter({two}) is ({two})",
                    "isinstance(v, collections.abc.Iterator)",
                ),
                *(
                    "[repr(next(v)), repr(v.send(5)), repr(next(v))]",
                    f"list(map(str, itertools.islice({two}, 64)))",
                    "v == v",
                    "[v.close(), list(v)]",
                ),
                f"(lambda it: [repr(x) for x in iter(lambda: next(it, None), None)][:3])(itertools.islice({two}, 9))",
            ),
        )

    def _object(self) -> Case:
        x, y = self.number(), self.any()
        value, _use = self.pick(
            *("Plain|x", "Child|x", "Slotted|x", "Data|x", "Frozen|x", "Plain|x", "Data|x"),
            "Pair|x",
        ).split("|")
        made = f"{value}({x}, {y})"
        late = self.pick(
            "",
            "",
            "o.x = 4",
            "o.y = [o]" if value in ("Slotted", "Data") else "o.y = 2",
            "o.cached",
            "o.extra = 5",
            "del o.y",
        )
        late = "" if value in ("Frozen", "Pair") else late
        if self.random.random() < 0.2:
            value = self.pick("Colour.RED", "Level.HIGH", "Flags.A | Flags.C", "Flags.B", "Colour", "Flags(0)", "Plain")
            return Case(
                f"return {value}",
                self.pick(
                    "v",
                    f"v is ({value})",
                    f"v == ({value})",
                    "isinstance(v, int)",
                    "v.name",
                    "v.value",
                    "v == 2",
                    "list(v)",
                )
                if value != "Plain"
                else self.pick("v(3).x", "v is Plain", "v.EPS", "issubclass(v, Plain)"),
            )
        return Case(
            f"o = {made}\n{late}\nreturn {self.pick('o', 'o', '[o, o]', '{1: o}')}",
            self.pick(
                *(
                    "v",
                    f"v == {made}",
                    f"v == {value}({self.number()}, 1)",
                    "v.x",
                    "v.y",
                    "v.double",
                    "v.cached",
                    "v.EPS",
                    "v.extra",
                ),
                *(
                    "type(v).__name__",
                    "isinstance(v, Plain)",
                    f"v < {made}",
                    f"v + {made}",
                    "len(v)",
                    "list(v)",
                    f"{x} in v",
                ),
                *(
                    "hash(v)",
                    "v[0] is v[1] or type(v[0]) is Pair",
                    "v.missing",
                    "sorted(vars(v))[-1]",
                    "v.z",
                    f"sorted([v, {made}])",
                    "{v: 1}",
                    "v._fields",
                    "v[0].x",
                ),
                *(
                    "copy.copy(v)",
                    "v.y[0] is v",
                    "[setattr(v, 'x', 9), v.x]",
                    f"{made} == v",
                    f"v in [{made}]",
                    f"v != {made}",
                ),
            ),
        )

    def _shared(self) -> Case:
        a, b = self.any(), self.any()
        body = self.pick(
            f"a = [{a}]\nreturn [a, a, [a]]",
            f"a = [{a}]\na.append(a)\nreturn a",
            f"a = {{1: {b}}}\nreturn (a, [a], {{2: a}})",
            f"a = {{{self.key()}}}\nreturn [a, a]",
            f"row = [{a}] * 2\nreturn [row] * 3",
            "p = Plain(1)\np.y = [p]\nreturn [p, p.y]",
            "a = np.zeros(3)\nreturn [a, a]",
            f"a = deque([{a}])\nreturn [a, a]",
            f"k = Frozen(({self.key()}, 1.5))\nreturn [{{k: 1}}, {{k}}, k]",
            "k = Frozen(Fraction(1, 3), b'a')\nreturn [{k}, [k], k]",
        )
        return Case(
            body,
            self.pick(
                *(
                    "v[0] is v[1]",
                    "v[0] is v[0][0]",
                    "[v[0].append(5), v]",
                    "v[1][0] is v[0]",
                    "repr(v)",
                    "v[0] == v[1]",
                    "len(v)",
                ),
                *(
                    "[v[0].__setitem__(0, 9), repr(v)]",
                    "v[2][2] is v[0]",
                    "v[1][0] is v",
                    "v[1][0] is v[0]",
                    "v[2] in v[0]",
                ),
                *("[id(x) for x in v] == [id(v[0])] * len(v)", "copy.deepcopy(v)[0] is v[0]", "list(v[0])[0] is v[2]"),
            ),
        )

    def _exception(self) -> Case:
        raised = self.pick(
            *(
                "ValueError('a', 1)",
                "KeyError('k')",
                "Known(3)",
                "Known(3, [4])",
                "Worse({'a'})",
                "IndexError()",
                "OSError(2, 'x')",
            ),
            *(
                "ZeroDivisionError('division by zero')",
                "UnicodeDecodeError('utf8', b'a', 0, 1, 'why')",
                "RuntimeError((1, 2))",
            ),
            *(
                "type('Own', (ValueError,), {})('q')",
                "type('Own', (Known,), {})(7)",
                "ArithmeticError(1.5)",
                "TypeError([1])",
            ),
        )
        how = self.pick(
            "raise error",
            "return error.args",
            "return type(error).__mro__[1] if type(error).__mro__[1] is not object else 0",
        )
        if how != "raise error":
            return Case(f"error = {raised}\n{how}", self.pick("v", "len(v)", "v[0]", "issubclass(v, Exception)"))
        wanted = self.pick("ValueError", "Known", "LookupError", "Exception", "ArithmeticError", "Worse", "OSError")
        what = self.pick(
            "e.args",
            "str(e)",
            "e.code",
            "repr(e.args)",
            "isinstance(e, Known)",
            "e.errno",
            "isinstance(e, ValueError)",
        )
        body = f"def g():\n    raise {raised}\nreturn g"
        return Case(body, f"caught(v, {wanted}, lambda e: {what})")

    def _exact(self) -> Case:
        n, m = self.random.randrange(1, 99), self.random.randrange(1, 12)
        value = self.pick(
            *(
                f"Fraction({n}, {m})",
                f"Decimal('{n}.{m}0')",
                f"datetime.date(2024, {m}, 3)",
                f"datetime.timedelta({n}, {m}, 7)",
            ),
            *(
                f"datetime.datetime(2024, {m}, 3, 4, 5, tzinfo=datetime.timezone.utc)",
                f"datetime.time({m}, 3)",
                "Decimal('NaN')",
            ),
            *(f"complex({n}, -{m})", "Decimal('-Infinity')", f"Decimal({n}) / Decimal(7)", f"Fraction({n}.1)"),
        )
        other = self.pick(
            value, "Fraction(1, 3)", "0.5", "Decimal('1.10')", f"{n}", f"{n}/{m}", "datetime.date(2024, 1, 3)"
        )
        return Case(
            f"return {value}",
            self.pick(
                *(
                    "v",
                    f"v == {other}",
                    f"v < {other}",
                    f"v + {other}",
                    f"v - {other}",
                    "str(v)",
                    "hash(v) is None",
                    "type(v).__name__",
                ),
                *(
                    "float(v)",
                    f"abs(v - {other}) < 1e-6",
                    "v * 3",
                    "v.isoformat()",
                    "v.numerator",
                    "round(v, 1)",
                    "bool(v)",
                    f"v in [{other}]",
                ),
            ),
        )

    def _text(self) -> Case:
        value = self.pick(
            "'aä\\ud800'",
            "'a\\0b'",
            "b'a\\0'",
            "''",
            "'ABC'",
            "'1'",
            "b'abc'",
            "type('S', (str,), {})('abc')",
            "'\\U0001F600'",
        )
        return Case(
            f"return {value}",
            self.pick(
                *(
                    "ascii(v)",
                    "v == 'ABC'",
                    "v == b'abc'",
                    "len(v)",
                    "v + v",
                    "v[0]",
                    "'a' in v",
                    "v < 'b'",
                    "v.lower()",
                    "hash(v)",
                ),
                *(
                    "type(v) is bytes",
                    "isinstance(v, str)",
                    "[ord(c) for c in v]",
                    "v == 'abc'",
                    "f'{v:>5}'",
                    "v.encode('utf8')",
                ),
            ),
        )


CAUGHT = """
def caught(function, kind, look):
    try:
        function()
    except kind as error:
        return look(error)
"""
