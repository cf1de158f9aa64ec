r"""Answers whose equality is known by construction: values as Python data, rendered to LaTeX in several styles.

`cases(number, seed)` gives triples (expected, answer, whether they are equal). An equal answer is the same value in any
of its styles; a different one is another value, or a form that no value has: a chain, an equation for a number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

Case = tuple[str, str, bool]
Styles = Callable[[Any], list[str]]


def _fraction(value: Fraction) -> list[str]:
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    if bottom == 1:
        return [f"{sign}{top}", f"{sign}{top}.0", f"\\boxed{{{sign}{top}}}", f"${sign}{top}$"]
    found = [
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"\\dfrac{{{sign}{2 * top}}}{{{2 * bottom}}}",
        f"{sign}{top}/{bottom}",
    ]
    if top > bottom:
        found.append(f"{sign}{top // bottom}\\frac{{{top % bottom}}}{{{bottom}}}")
    if not 10**6 % bottom:
        found.append(f"{float(value):.6f}".rstrip("0"))
    return found


def _thousands(value: int) -> list[str]:
    return [f"{value}", f"{value:,}", f"{value:,}".replace(",", "{,}"), f"{value:,}".replace(",", "\\,"), f"{value}."]


def _scientific(value: tuple[int, int]) -> list[str]:
    mantissa, power = value
    text = f"{mantissa // 100}.{mantissa % 100:02}"
    return [f"{text}\\times10^{{{power}}}", f"{text} \\cdot 10^{{{power}}}", f"{mantissa}\\times 10^{{{power - 2}}}"]


def _decimal(value: tuple[int, int]) -> list[str]:
    digits, places = value
    text = f"0.{digits:0{places}}"
    return [text, text + "0", text[1:], f"\\frac{{{digits}}}{{{10**places}}}", f"{digits}\\times10^{{{-places}}}"]


def _root(value: tuple[int, int]) -> list[str]:
    factor, radicand = value
    under = f"\\sqrt{{{factor**2 * radicand}}}"
    return [f"{factor}\\sqrt{{{radicand}}}", under, f"{factor}\\cdot\\sqrt{radicand}" if radicand < 10 else under]


def _pi(value: Fraction) -> list[str]:
    top, bottom = value.numerator, value.denominator
    return [f"\\frac{{{top}\\pi}}{{{bottom}}}", f"\\frac{{{top}}}{{{bottom}}}\\pi", f"{top}\\pi/{bottom}"]


def _percent(value: Fraction) -> list[str]:
    text = f"{float(value):.1f}".removesuffix(".0")
    return [f"{text}\\%", f"{text}%", f"{text} percent"]


def _point(value: tuple[Fraction, ...]) -> list[str]:
    strings = [_fraction(part)[:2] for part in value]
    return [f"({','.join(each[0] for each in strings)})", f"\\left({', '.join(each[-1] for each in strings)}\\right)"]


def _interval(value: tuple[str, int, int, str]) -> list[str]:
    left, low, high, right = value
    return [
        f"{left}{low},{high}{right}",
        f"\\left{left}{low}, {high}\\right{right}",
        f"x \\in {left}{low},{high}{right}",
    ]


def _union(value: tuple[int, int, int, str]) -> list[str]:
    low, middle, high, left = value
    parts = [f"(-\\infty,{low})", f"{left}{middle},{high})"]
    return ["\\cup".join(parts), " \\cup ".join(reversed(parts))]


def _set(value: frozenset[int]) -> list[str]:
    inside = [str(each) for each in sorted(value)]
    return [f"\\{{{','.join(inside)}\\}}", f"\\left\\{{{', '.join(reversed(inside))}\\right\\}}", ", ".join(inside)]


def _matrix(value: tuple[int, int, int, int]) -> list[str]:
    a, b, c, d = value
    inside = f"{a} & {b} \\\\ {c} & {d}"
    return [f"\\begin{{{kind}}}{inside}\\end{{{kind}}}" for kind in ("pmatrix", "bmatrix")]


def _complex(value: tuple[int, int]) -> list[str]:
    real, imaginary = value
    return [f"{real}{imaginary:+}i", f"{imaginary}i{real:+}"]


def _line(value: tuple[int, int]) -> list[str]:
    slope, shift = value
    return [f"y={slope}x{shift:+}", f"y = {shift}{slope:+}x", f"{slope}x{shift:+}=y"]


def _equation(value: tuple[int, int, int]) -> list[str]:
    a, b, c = value
    return [f"{a}x{b:+}y={c}", f"{c}={a}x{b:+}y", f"{2 * a}x{2 * b:+}y={2 * c}", f"{b}y{a:+}x={c}"]


def _inequality(value: tuple[str, int]) -> list[str]:
    relation, bound = value
    turned = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}[relation]
    return [f"x{relation} {bound}", f"{bound}{turned} x", f"x {relation}{'q' if len(relation) > 1 else ''} {bound}"]


def _base(value: tuple[str, int]) -> list[str]:
    return [f"{value[0]}_{value[1]}", f"{value[0]}_{{{value[1]}}}"]


def _measure(value: tuple[int, str]) -> list[str]:
    number, unit = value
    return [
        f"{number}\\text{{ {unit}}}",
        f"{number} \\mathrm{{{unit}}}",
        f"{number} {unit}",
        f"{number}\\,\\text{{{unit}}}",
    ]


def _choice(value: str) -> list[str]:
    return [f"\\text{{{value}}}", value, f"\\text{{({value})}}", f"({value})"]


def _polynomial(value: tuple[int, int]) -> list[str]:
    one, two = value
    return [f"(x{one:+})(x{two:+})", f"x^2{one + two:+}x{one * two:+}", f"(x{two:+})(x{one:+})"]


def _spread(value: tuple[int, int]) -> list[str]:
    middle, radicand = value
    root = f"\\sqrt{{{radicand}}}"
    return [f"{middle}\\pm{root}", f"{middle}+{root}, {middle}-{root}", f"{middle}-{root}, {middle}+{root}"]


def _kinds(draw: random.Random) -> dict[str, tuple[Any, Styles]]:
    """One value of each kind, with its styles."""
    small, top = draw.randint, draw.choice([1, -1]) * draw.randint(1, 99)
    low = small(-20, 20)
    return {
        "integer": (Fraction(small(-9999, 9999)), _fraction),
        "fraction": (Fraction(top, small(2, 40)), _fraction),
        "thousands": (small(1000, 9_999_999), _thousands),
        "scientific": ((small(100, 999), draw.choice([-1, 1]) * small(3, 30)), _scientific),
        "decimal": ((small(1, 9) * 10 + small(1, 9), small(3, 12)), _decimal),
        "root": ((small(2, 12), draw.choice([2, 3, 5, 6, 7, 10, 11, 13])), _root),
        "pi": (Fraction(small(2, 30), small(2, 12)), _pi),
        "percent": (Fraction(small(11, 990), 10), _percent),
        "point": (tuple(Fraction(small(-9, 9), small(1, 4)) for _ in range(small(2, 3))), _point),
        "interval": ((draw.choice("(["), low, low + small(1, 20), draw.choice(")]")), _interval),
        "union": ((low, low + small(1, 5), low + small(6, 9), draw.choice("([")), _union),
        "set": (frozenset(draw.sample(range(-99, 99), small(2, 4))), _set),
        "matrix": (tuple(small(-9, 9) for _ in range(4)), _matrix),
        "complex": ((small(1, 9), draw.choice([-1, 1]) * small(2, 9)), _complex),
        "line": ((small(2, 9), draw.choice([-1, 1]) * small(1, 9)), _line),
        "equation": ((small(2, 5), draw.choice([-7, -1, 3, 8]), 2 * small(1, 9) + 1), _equation),
        "inequality": ((draw.choice(["<", ">", "\\le", "\\ge"]), small(-20, 20)), _inequality),
        "base": ((f"{small(2, 999):b}", small(3, 9)), _base),
        "measure": ((small(2, 999), draw.choice(["cm", "km", "kg", "inches", "dollars"])), _measure),
        "choice": (draw.choice("ABCDEFGH"), _choice),
        "polynomial": (tuple(sorted((small(1, 9), small(-9, -1)))), _polynomial),
        "spread": ((small(1, 9), draw.choice([2, 3, 5, 6, 7])), _spread),
    }


_NUMBERS = ("integer", "fraction", "thousands", "scientific", "decimal", "root", "pi")


def _forms(draw: random.Random, kind: str, styles: list[str]) -> list[str]:
    """Forms that differ from every value of the kind, though parts of them look like it."""
    text, other = draw.choice(styles), draw.randint(2, 9)
    if kind in _NUMBERS:
        bare = styles[0]
        return [f"{other}={bare}", f"{bare}={bare}", f"{bare}=={bare}", f"{other}=x={bare}", f"x+{other}={bare}",
                f"{bare}, {bare}+1", f"x<{bare}", f"{other}\\equiv{bare}", f"x\\ne {bare}", f"({bare},{bare})",
                f"{bare}+{other}", f"-({bare})", f"{bare}x", f"10({bare})", f"y={other}={bare}"]  # fmt: skip
    if kind in ("line", "equation"):
        return [f"{styles[0]}={other}", f"{other}={styles[0]}", styles[0].partition("=")[2] + "+1"]
    if kind == "inequality":
        return [styles[0].translate(str.maketrans("<>", "><")) if styles[0][1] in "<>" else f"x={other}"]
    if kind == "measure":
        return [f"{styles[0].partition(chr(92))[0]}\\text{{ {unit}}}" for unit in ("mm", "m", "seconds", "cm^2")]
    if kind in ("point", "interval") and text[0] in "([":
        inside = styles[0][1:-1]
        return [f"{{{inside}}}", f"\\{{{inside}\\}}", inside, f"({inside},1)"]
    return []


def cases(number: int, seed: int) -> Iterator[tuple[str, Case]]:
    """So many cases, each with its kind."""
    draw, made = random.Random(seed), 0
    while True:
        ours, others = _kinds(draw), _kinds(draw)
        for kind, (value, styles) in ours.items():
            expected = draw.choice(styles(value))
            found = [(expected, True), (draw.choice(styles(value)), True)]
            found += [(draw.choice(styles(others[kind][0])), False)] if others[kind][0] != value else []
            changed = _nudged(draw, value)
            found += [(draw.choice(styles(changed)), False)] if changed != value else []
            found += [(form, False) for form in draw.sample(_forms(draw, kind, styles(value)) or [""], 1) if form]
            for answer, is_equal in found:
                if made == number:
                    return
                made += 1
                yield kind, (expected, answer, is_equal)


def _nudged(draw: random.Random, value: Any) -> Any:
    """The value with one part changed a little, or turned round; the same where it cannot be."""
    if isinstance(value, Fraction | int):
        step = Fraction(1, 10) if isinstance(value, Fraction) else 1
        return (
            draw.choice([-value, value + 1, value * 10, value + step]) if isinstance(value, Fraction) else value + step
        )
    if isinstance(value, frozenset):
        return value ^ {draw.choice(sorted(value))} | {100}
    if isinstance(value, tuple):
        place = draw.choice([at for at, part in enumerate(value) if isinstance(part, Fraction | int)])
        return (*value[:place], value[place] + 1, *value[place + 1 :])
    return value
