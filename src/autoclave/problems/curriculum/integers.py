"""The table of the `integer` domain: a number `n` made from two integers `a` and `b`."""

from __future__ import annotations

from autoclave.problems.curriculum.operations import Domain, Operation, Parameter

_NUMBER = (Parameter.NUMBER,)

_STARTS = (
    Operation("sum", ("the sum of a and b",), "n = a + b", ("n = a - b", "n = a * b")),
    Operation("product", ("the product of a and b",), "n = a * b", ("n = a + b", "n = a * a")),
    Operation("difference", ("a minus b",), "n = a - b", ("n = b - a", "n = abs(a - b)")),
    Operation("distance", ("the distance of a and b",), "n = abs(a - b)", ("n = a - b", "n = b - a")),
    Operation("larger", ("the larger of a and b",), "n = max(a, b)", ("n = min(a, b)", "n = a")),
    Operation("smaller", ("the smaller of a and b",), "n = min(a, b)", ("n = max(a, b)", "n = b")),
)

_HALVE_OR_TRIPLE = "if n % 2 == 0:\n    n = n // 2\nelse:\n    n = n * 3"
_HALVE_OR_TRIPLE_AND_ONE = "if n % 2 == 0:\n    n = n // 2\nelse:\n    n = n * 3 + 1"
_TRIPLE_OR_HALVE = "if n % 2 == 1:\n    n = n // 2\nelse:\n    n = n * 3"

_OPERATIONS = (
    Operation("add", ("add {p}", "increase it by {p}"), "n = n + {p}", ("n = n + {p-1}", "n = n * {p}"), _NUMBER),
    Operation(
        "subtract", ("subtract {p}", "decrease it by {p}"), "n = n - {p}", ("n = {p} - n", "n = n + {p}"), _NUMBER
    ),
    Operation(
        "scale", ("multiply it by {p}", "scale it by {p}"), "n = n * {p}", ("n = n + {p}", "n = n * {p+1}"), _NUMBER
    ),
    Operation("modulo", ("take it modulo {p}",), "n = n % {p}", ("n = n // {p}", "n = n % {p+1}"), _NUMBER),
    Operation(
        "divide", ("divide it by {p} rounding down",), "n = n // {p}", ("n = n % {p}", "n = int(n / {p})"), _NUMBER
    ),
    Operation("square", ("square it",), "n = n * n", ("n = n * 2", "n = n * n * n")),
    Operation("absolute", ("take its absolute value",), "n = abs(n)", ("n = -n", "n = max(n, 0)")),
    Operation(
        "cap",
        ("cap it at {p}", "limit it to at most {p}"),
        "n = min(n, {p})",
        ("n = max(n, {p})", "n = min(n, {p-1})"),
        _NUMBER,
    ),
    Operation(
        "shrink",
        ("if it is above {p} subtract {p}",),
        "if n > {p}:\n    n = n - {p}",
        ("if n > {p}:\n    n = n - 1", "if n >= {p}:\n    n = n - {p}"),
        _NUMBER,
    ),
    Operation(
        "halve-or-triple",
        ("if it is even halve it, else triple it",),
        _HALVE_OR_TRIPLE,
        (_HALVE_OR_TRIPLE_AND_ONE, _TRIPLE_OR_HALVE),
    ),
    Operation(
        "halve-above",
        ("while it is above {p} halve it",),
        "while n > {p}:\n    n = n // 2",
        ("if n > {p}:\n    n = n // 2", "while n >= {p}:\n    n = n // 2"),
        _NUMBER,
    ),
    Operation(
        "digit-sum",
        ("add up its digits",),
        "n = sum(int(c) for c in str(abs(n)))",
        ("n = len(str(abs(n)))", "n = max(int(c) for c in str(abs(n)))"),
    ),
)

_FINALS = (
    Operation("number", ("the number",), "n", ("-n", "abs(n)")),
    Operation("last-digit", ("its last digit",), "abs(n) % 10", ("abs(n) // 10", "n % 10")),
    Operation("digits", ("how many digits it has",), "len(str(abs(n)))", ("len(str(n))", "len(str(abs(n))) - 1")),
    Operation("remainder", ("its remainder by {p}",), "n % {p}", ("n // {p}", "n % {p-1}"), _NUMBER),
)

INTEGERS = Domain(
    name="integer",
    variable="n",
    arguments="a, b",
    call_opening="f(a, b) on integers",
    stdin_opening="read integers a and b",
    reading="a, b = map(int, input().split())",
    starts=_STARTS,
    operations=_OPERATIONS,
    finals=_FINALS,
)
