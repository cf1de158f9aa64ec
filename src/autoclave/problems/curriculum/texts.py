"""The table of the `text` domain: a string `s` of small letters."""

from __future__ import annotations

from autoclave.problems.curriculum.operations import Domain, Operation, Parameter

_COUNT = (Parameter.COUNT,)
_LETTER = (Parameter.LETTER,)

_OPERATIONS = (
    Operation("reverse", ("read it backwards", "reverse it"), "s = s[::-1]", ("s = s[:-1]", "s = ''.join(sorted(s))")),
    Operation(
        "sort",
        ("put the letters in order", "sort the letters"),
        "s = ''.join(sorted(s))",
        ("s = ''.join(sorted(set(s)))", "s = ''.join(sorted(s, reverse=True))"),
    ),
    Operation("capitals", ("capitalise every letter",), "s = s.upper()", ("s = s.capitalize()", "s = s.lower()")),
    Operation(
        "double",
        ("double every character",),
        "s = ''.join(c + c for c in s)",
        ("s = s + s", "s = ''.join(c * 3 for c in s)"),
    ),
    Operation("mirror", ("append its reverse",), "s = s + s[::-1]", ("s = s[::-1] + s", "s = s + s")),
    Operation(
        "prepend",
        ("prepend '{p}'", "put '{p}' in front"),
        "s = '{p}' + s",
        ("s = s + '{p}'", "s = '{p}'.join(s)"),
        _LETTER,
    ),
    Operation(
        "append",
        ("append '{p}'", "put '{p}' at the end"),
        "s = s + '{p}'",
        ("s = '{p}' + s", "s = s + '{p}{p}'"),
        _LETTER,
    ),
    Operation(
        "replace",
        ("replace '{p}' by '{q}'", "change '{p}' to '{q}'"),
        "s = s.replace('{p}', '{q}')",
        ("s = s.replace('{p}', '{q}', 1)", "s = s.replace('{q}', '{p}')"),
        (Parameter.LETTER, Parameter.LETTER),
    ),
    Operation(
        "remove",
        ("remove every '{p}'", "delete every '{p}'"),
        "s = s.replace('{p}', '')",
        ("s = s.strip('{p}')", "s = s.replace('{p}', '', 1)"),
        _LETTER,
    ),
    Operation("first", ("keep the first {p}",), "s = s[:{p}]", ("s = s[:{p+1}]", "s = s[{p}:]"), _COUNT),
    Operation(
        "last",
        ("keep the last {p}", "keep the trailing {p}"),
        "s = s[-{p}:]",
        ("s = s[{p}:]", "s = s[-{p-1}:]"),
        _COUNT,
    ),
    Operation(
        "skip", ("drop the first {p}", "skip the first {p}"), "s = s[{p}:]", ("s = s[{p-1}:]", "s = s[:{p}]"), _COUNT
    ),
    Operation("even-indexes", ("take letters at even indexes",), "s = s[::2]", ("s = s[1::2]", "s = s[:2]")),
    Operation(
        "rotate",
        ("move the first letter to the end",),
        "s = s[1:] + s[:1]",
        ("s = s[-1:] + s[:-1]", "s = s[1:] + s[1:]"),
    ),
    Operation(
        "consonants",
        ("remove vowels",),
        "s = ''.join(c for c in s if c not in 'aeiou')",
        ("s = ''.join(c for c in s if c in 'aeiou')", "s = ''.join(c for c in s if c not in 'aei')"),
    ),
    Operation(
        "unique",
        ("remove repeated letters",),
        "s = ''.join(dict.fromkeys(s))",
        ("s = ''.join(sorted(set(s)))", "s = s.replace(s[:1], '')"),
    ),
)

_FINALS = (
    Operation("text", ("the result",), "s", ("s[1:]", "s[:-1]")),
    Operation("length", ("its length",), "len(s)", ("len(set(s))", "len(s) - 1")),
    Operation(
        "occurrences",
        ("how often '{p}' occurs",),
        "s.count('{p}')",
        ("len(s) - s.count('{p}')", "s.find('{p}')"),
        _LETTER,
    ),
    Operation("different", ("how many different letters it has",), "len(set(s))", ("len(s)", "len(s) - len(set(s))")),
    Operation("last-letter", ("its last letter",), "s[-1:]", ("s[:1]", "s[:-1]")),
)

TEXTS = Domain(
    name="text",
    variable="s",
    arguments="s",
    call_opening="f(s) on a text",
    stdin_opening="read a line s",
    reading="s = input()",
    starts=(),
    operations=_OPERATIONS,
    finals=_FINALS,
)
