"""The table of the `list` domain: a list of integers `x`."""

from __future__ import annotations

from autoclave.problems.curriculum.operations import Domain, Operation, Parameter

_NUMBER = (Parameter.NUMBER,)
_COUNT = (Parameter.COUNT,)


def _keep(name: str, phrasings: tuple[str, ...], condition: str, *wrong: str, number: bool = True) -> Operation:
    """A filter; `condition` and `wrong` are on the item `v`."""
    code, *variants = (f"x = [v for v in x if {test}]" for test in (condition, *wrong))
    return Operation(name, phrasings, code, tuple(variants), _NUMBER if number else ())


def _each(name: str, phrasings: tuple[str, ...], value: str, *wrong: str, number: bool = True) -> Operation:
    """A map; `value` and `wrong` are of the item `v`."""
    code, *variants = (f"x = [{item} for v in x]" for item in (value, *wrong))
    return Operation(name, phrasings, code, tuple(variants), _NUMBER if number else ())


_FILTERS = (
    _keep(
        "keep-multiples",
        ("keep multiples of {p}", "keep numbers divisible by {p}"),
        "v % {p} == 0",
        "v % {p} != 0",
        "v % {p+1} == 0",
    ),
    _keep(
        "drop-multiples",
        ("drop multiples of {p}", "drop numbers divisible by {p}"),
        "v % {p} != 0",
        "v % {p} == 0",
        "v % {p+1} != 0",
    ),
    _keep("keep-above", ("keep numbers above {p}", "keep numbers greater than {p}"), "v > {p}", "v >= {p}", "v < {p}"),
    _keep("keep-below", ("keep numbers below {p}", "keep numbers less than {p}"), "v < {p}", "v <= {p}", "v > {p}"),
    _keep("drop-above", ("drop numbers above {p}", "drop numbers greater than {p}"), "v <= {p}", "v > {p}", "v < {p}"),
    _keep("drop-below", ("drop numbers below {p}", "drop numbers less than {p}"), "v >= {p}", "v > {p}", "v < {p}"),
    _keep("drop-negative", ("drop negative numbers",), "v >= 0", "v > 0", "v < 0", number=False),
    _keep("keep-even", ("keep even numbers", "drop odd numbers"), "v % 2 == 0", "v % 2 == 1", "v > 2", number=False),
)

_MAPS = (
    _each("cap", ("cap each at {p}", "limit each to at most {p}"), "min(v, {p})", "max(v, {p})", "min(v, {p-1})"),
    _each("add", ("add {p} to each", "increase each by {p}"), "v + {p}", "v + {p-1}", "v * {p}"),
    _each("subtract", ("subtract {p} from each", "decrease each by {p}"), "v - {p}", "{p} - v", "v + {p}"),
    _each("scale", ("multiply each by {p}", "scale each by {p}"), "v * {p}", "v + {p}", "v * {p+1}"),
    _each("modulo", ("take each modulo {p}",), "v % {p}", "v // {p}", "v % {p+1}"),
    _each("divide", ("divide each by {p} rounding down",), "v // {p}", "int(v / {p})", "v % {p}"),
    _each("square", ("square each",), "v * v", "v * 2", "v * v * v", number=False),
    _each("absolute", ("take absolute values",), "abs(v)", "-v", "max(v, 0)", number=False),
    _each(
        "double-above",
        ("double numbers above {p}",),
        "v * 2 if v > {p} else v",
        "v * 2 if v > {p} else {p}",
        "v * 2 if v < {p} else v",
    ),
    Operation(
        "replace",
        ("replace {p} by {q}", "change {p} to {q}"),
        "x = [{q} if v == {p} else v for v in x]",
        ("x = [{p} if v == {q} else v for v in x]", "x = [{q} if v != {p} else v for v in x]"),
        (Parameter.NUMBER, Parameter.NUMBER),
    ),
)

_RUNNING_TOTALS = "t = 0\ny = []\nfor v in x:\n    t += v\n    y.append(t)\nx = y"
_TOTALS_BEFORE = "t = 0\ny = []\nfor v in x:\n    y.append(t)\n    t += v\nx = y"
_TOTALS_ASSIGNED = "t = 0\ny = []\nfor v in x:\n    t = v\n    y.append(t)\nx = y"

_ARRANGEMENTS = (
    Operation("first", ("keep the first {p}",), "x = x[:{p}]", ("x = x[:{p+1}]", "x = x[{p}:]"), _COUNT),
    Operation(
        "last",
        ("keep the last {p}", "keep the trailing {p}"),
        "x = x[-{p}:]",
        ("x = x[{p}:]", "x = x[-{p-1}:]"),
        _COUNT,
    ),
    Operation(
        "skip", ("drop the first {p}", "skip the first {p}"), "x = x[{p}:]", ("x = x[{p-1}:]", "x = x[:{p}]"), _COUNT
    ),
    Operation("reverse", ("reverse the list",), "x = x[::-1]", ("x = sorted(x)[::-1]", "x = x[:-1]")),
    Operation(
        "sort",
        ("sort ascending", "sort from small to large"),
        "x = sorted(x)",
        ("x = sorted(x, reverse=True)", "x = sorted(set(x))"),
    ),
    Operation(
        "sort-down",
        ("sort descending", "sort from large to small"),
        "x = sorted(x, reverse=True)",
        ("x = x[::-1]", "x = sorted(x)"),
    ),
    Operation(
        "unique",
        ("remove repeats",),
        "x = list(dict.fromkeys(x))",
        ("x = sorted(set(x))", "x = [v for v in x if x.count(v) == 1]"),
    ),
    Operation(
        "even-indexes",
        ("take items at even indexes",),
        "x = x[::2]",
        ("x = x[1::2]", "x = [v for v in x if v % 2 == 0]"),
    ),
    Operation("running-totals", ("take running totals",), _RUNNING_TOTALS, (_TOTALS_BEFORE, _TOTALS_ASSIGNED)),
    Operation(
        "differences",
        ("take differences of neighbours",),
        "x = [b - a for a, b in zip(x, x[1:])]",
        ("x = [a - b for a, b in zip(x, x[1:])]", "x = [b - a for a, b in zip(x, x[2:])]"),
    ),
    Operation(
        "rotate", ("move the first item to the end",), "x = x[1:] + x[:1]", ("x = x[-1:] + x[:-1]", "x = x[1:] + x[1:]")
    ),
    Operation("append", ("append {p}",), "x = x + [{p}]", ("x = [{p}] + x", "x = x + [{p+1}]"), _NUMBER),
)

_FINALS = (
    Operation("items", ("the list",), "x", ("x[1:]", "sorted(x)"), has_items=True),
    Operation("sum", ("the sum",), "sum(x)", ("sum(x[1:])", "len(x)")),
    Operation("count", ("how many remain",), "len(x)", ("len(set(x))", "len(x) - 1")),
    Operation("largest", ("the largest or 0",), "max(x, default=0)", ("min(x, default=0)", "x[-1] if x else 0")),
    Operation("smallest", ("the smallest or 0",), "min(x, default=0)", ("max(x, default=0)", "x[0] if x else 0")),
    Operation("last-item", ("the last item or 0",), "x[-1] if x else 0", ("x[0] if x else 0", "max(x, default=0)")),
    Operation(
        "count-above",
        ("how many are above {p}",),
        "sum(v > {p} for v in x)",
        ("sum(v >= {p} for v in x)", "sum(v for v in x if v > {p})"),
        _NUMBER,
    ),
)

LISTS = Domain(
    name="list",
    variable="x",
    arguments="x",
    call_opening="f(x) on a list",
    stdin_opening="read integers x",
    reading="x = list(map(int, input().split()))",
    starts=(),
    operations=_FILTERS + _MAPS + _ARRANGEMENTS,
    finals=_FINALS,
)
