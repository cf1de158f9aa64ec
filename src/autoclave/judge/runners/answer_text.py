r"""Parts of an answer of mathematics that its parser drops or bends: units, bases, brackets, relations, dots.

Pure functions of text, in time proportional to its length. This text stands before that of `answer_checker`.
"""

import re
from collections import Counter

_TYPOGRAPHY = str.maketrans("\u2013\u2014\u2212\uff1d\uff0c", "---=,")
_WRAPS = [
    re.compile(wrap, re.DOTALL)
    for wrap in (r"\$\$?([^$]+)\$\$?", r"\\\((.*)\\\)", r"\\\[(.*)\\\]", r"\\(?:boxed|fbox)\s*\{(.*)\}")
]
_GAP = r"(?:\\[,;:! ]|~|\s)"
_SPELLINGS = [
    (re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])(?:\s*\.(?!\d))?|\\displaystyle(?![a-zA-Z])|\\!"), ""),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\lbrace(?![a-zA-Z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![a-zA-Z])"), r"\\}"),
    (re.compile(r"\\text\s?\{\s?per\s?cent(?:age)?\s?\}|\bper\s?cent(?:age)?\b|(?<!\\)%"), r"\\%"),
    (re.compile(rf"(?<=\d)(?:\{{,\}}|{_GAP})(?=\d{{3}}(?!\d))"), ""),  # groups of three digits
    (re.compile(rf"(?<![\d.,])(\d+){_GAP}+(\d+)\s?/\s?(\d+)(?!\d)"), r"\1\\frac{\2}{\3}"),  # a mixed number
    (re.compile(r"(\d)E([+-]?\d)"), r"\1\\times 10^\2"),
    (re.compile(r"(\\times 10\^)([+-]?\d+)"), r"\1{\2}"),
    (re.compile(r",?\s?\\text\s?\{\s?(?:or|and)\s?\}|(?<![a-zA-Z\\])(?:,\s?)?(?:or|and)(?![a-zA-Z])"), ","),
]
DECIMAL = re.compile(r"(?<!\d)(\d*)\.(\d+)")
_SEPARATOR = re.compile(r"[,;]")
_VARIABLE = re.compile(
    r"\s*((?:\\angle\s*[A-Za-z]+|\\?[A-Za-z]+|\\(?:text|mathrm|mathbf|overline|operatorname)\s?\{[A-Za-z .]*\}|[A-Z]+)"
    r"(?:_(?:\w|\{\w*\})|\^\{-1\}|'|\([A-Za-z]*\))*)\s*(?:=(?!=)|\\in(?![a-zA-Z]))"
)
_MARKS = [
    (re.compile(pattern), mark)
    for pattern, mark in (
        (r"\\(?:neq?|not\s*=)(?![a-zA-Z])|≠|!=", "!="),
        (r"\\(?:leq?|leqslant|geq?|geqslant)(?![a-zA-Z])|≤|≥|<=|>=", "<="),
        (r"\\(?:lt|gt)(?![a-zA-Z])|<|>", "<"),
        (r"\\(?:equiv|cong)(?![a-zA-Z])|≡", "equiv"),
        (r"\\(?:approx|sim|simeq)(?![a-zA-Z])|≈|~=", "approx"),
        (r"\\in(?![a-zA-Z])|∈", "in"),
        (r"\\(?:[lcd]?dots|dots[cbm])(?![a-zA-Z])|…|\.\.\.", "dots"),
        (r"'|\\prime(?![a-zA-Z])", "prime"),
        (r":", ":"),
        (r"\\circ(?![a-zA-Z])|°", "degree"),
        (r"\\[a-zA-Z]*arrow|\\(?:to|implies|iff)(?![a-zA-Z])", "arrow"),
        (r"=", "="),
    )
]
_BASE = re.compile(r"\d\)?\s?_\s?(\{(?:[^{}]|\{[^{}]*\})*\}|\w)")
_BRACKETS = re.compile(r"\\[{}]|[(){}\[\],;]")
_NUMBER = r"[-+]?(?:[\d.,]+|\d*\\frac\s?(?:\{\d+\}\{\d+\}|\d\d)|\d+/\d+)"
_UNIT = re.compile(
    r"(?P<core>.*[\w)}\]!%])(?P<unit>\^\s?\{?\\circ\}?|°|"
    rf"{_GAP}*\\(?:text(?:bf|it|rm|normal)?|mathrm|mbox|operatorname)\s?\{{[^{{}}]*\}}(?:\^\s?(?:\d|\{{\d\}}))?)",
    re.DOTALL,
)
_UNIT_IN_WORDS = re.compile(
    rf"(?P<core>{_NUMBER}(?:\\%)?)\s?(?P<unit>(?:cm|mm|km|kg|mg|ft|in|lb|oz|mi|yd|hr|ml|mph|[A-Za-z]{{3,}})"
    r"(?: [A-Za-z]+)*(?:\^\s?(?:\d|\{\d\}))?)"
)
_CURRENCY = re.compile(r"(?P<unit>\\\$|\$|€|£|¥)\s?(?P<core>.*)", re.DOTALL)
_UNITS = {"\\$": "dollar", "$": "dollar", "€": "euro", "£": "pound", "feet": "foot", "inches": "inch", "in": "inch"} | {
    short: name
    for names in (
        "mm millimeter;cm centimeter;dm decimeter;m meter;km kilometer;g gram;kg kilogram;mg milligram;s second",
        "sec second;min minute;h hour;hr hour;ft foot;lb pound;yd yard;mi mile;l liter;ml milliliter;deg degree",
    )
    for short, _, name in (pair.partition(" ") for pair in names.split(";"))
}
ANGLE = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)")
LETTERS = re.compile(r"(?:\\text\s?\{)?\s?[A-Za-z][A-Za-z ]*[A-Za-z]\s?\}?")
PRODUCT = re.compile(r"[a-z]{2,3}|[a-z]( [a-z])+")


def tidy(text: str) -> str:
    """The text in one spelling, without what stands around an answer."""
    text = text.translate(_TYPOGRAPHY).strip()
    while unwrapped := next((found[1].strip() for wrap in _WRAPS if (found := wrap.fullmatch(text))), None):
        text = unwrapped
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    text = text.strip().removesuffix(".").rstrip(",; \t\n")
    return re.sub(r",(?=\S)", ", ", text) if re.search(r"[(\[]|\\\{", text) else text  # no groups of digits in lists


def split_unit(text: str) -> "tuple[str, str]":
    """Return what stands before a unit (behind a sign of currency), and its one spelling; empty if there is none."""
    for pattern in (_CURRENCY, _UNIT_IN_WORDS, _UNIT):
        found = pattern.fullmatch(text)
        if found and re.search(r"\d|\\[a-z]|(?<![a-zA-Z])[a-z](?![a-zA-Z])", re.sub(r"\\text", "", found["core"])):
            return found["core"].strip(), _unit_name(found["unit"])
    return text, ""


def _unit_name(unit: str) -> str:
    if "\\circ" in unit or unit == "°":
        return "degree"
    if unit in _UNITS:
        return _UNITS[unit]
    power = "".join(re.findall(r"\d", unit))
    words = re.findall(r"[a-z]+", re.sub(r"\\[a-z]+", "", unit.lower()))
    for word, named in (("square", "2"), ("sq", "2"), ("cubic", "3"), ("cu", "3")):
        if word in words:
            words.remove(word)
            power = named
    names = [(_UNITS.get(word) or word).removesuffix("s") for word in words]
    return "".join(_UNITS.get(name) or name for name in names) + power


def without_variable(text: str) -> "str | None":
    """The text without the one variable that each of its equations begins with; None where it is not so."""
    parts = re.split(r"([,;])", text)
    found = [_VARIABLE.match(part) for part in parts]
    if not found[0] or any(each and each[1] != found[0][1] for each in found):
        return None
    return "".join(part[each.end() :] if each else part for part, each in zip(parts, found, strict=True))


def marks(text: str) -> "Counter[str]":
    """Count each relation (both directions are one), of dots, primes and bases, and brackets around lists."""
    counts: Counter[str] = Counter(f"base {base.strip('{}')}" for base in _BASE.findall(text))
    text = re.sub(r"_\s?\{[^{}]*\}", "", text)  # the range of a sum is not an equation
    for pattern, mark in _MARKS:
        text, number = pattern.subn(" ", text)
        counts[mark] += number
    opened = [["", ""]]
    for part in _BRACKETS.findall(text):
        if part in (",", ";"):
            opened[-1][1] = "list"
        elif part in ("{", "\\{", "(", "["):
            opened.append([part, ""])
        elif len(opened) > 1:
            left, kind = opened.pop()
            if kind and (left in "([" or part in ")]"):
                counts[left + part] += 1
    return +counts


def chains(text: str) -> int:
    """Most signs of equality in one part of a list."""
    return max(part.count("=") for part in _SEPARATOR.split(text))


def words(text: str) -> "list[str]":
    """The words of a text in small letters; parentheses do not count."""
    return re.findall(r"\w+", re.sub(r"\\[a-z]+", "", text).lower())


def compact(text: str) -> str:
    return "".join(text.split())
