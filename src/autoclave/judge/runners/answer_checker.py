r"""Compare an answer with the expected one, by the comparator that the content names: `math` or `value`.

The expected answer comes first and is parsed; then this side sends `ready`, and only then the answer arrives, so a
later failure comes from the answer. One word goes back, `true` or `false`; nothing after an exception. Both texts are
data: where sympy would compile code made of a text, only arithmetic with plain numbers passes. The texts of `frames`,
`python_program`, `failure` and `answer_text` stand before this text; this `prepare` and `run` take the place of theirs.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

import ast
import importlib
import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.answer_text import (
        ANGLE,
        DECIMAL,
        LETTERS,
        PRODUCT,
        chains,
        compact,
        marks,
        split_unit,
        tidy,
        without_variable,
        words,
    )
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.frames import receive_frame, send_frame

_ARITHMETIC = re.compile(
    r"from sympy import \*|(?:Integer|Float|Rational|[0-9\s().,'+\-*/])*"
    r"|def monomial_[a-z]+\([ABk, ]+\):\n(?:[\sABabkr0-9(),+*<>=:-]|\b(?:if|else|return|None)\b)*"
)
"""Source that sympy compiles: an import of its own, a number in words such as `Integer (7 )`, and the product, quotient
and so on of two monomials, which it writes for each number of variables."""


class CodeRefusedError(Exception):
    """A text was about to be compiled."""


def prepare(content: bytes, _place: Any) -> Any:
    """The comparator: a function that reads a text, and one that compares what was read."""
    return {"math": Mathematics, "value": PythonValue}[content.decode("ascii")]


def run(test: Any) -> None:
    """Compare the one answer and leave the process. Does not return."""
    try:
        comparator = test.program()
        expected = comparator.expected(receive_frame().decode("utf-8", "surrogatepass"))
        send_frame(b"ready")
        passed = comparator.matches(expected, receive_frame().decode("utf-8", "replace"))
    except BaseException as error:  # noqa: BLE001  any exception ends the comparison
        test.report(account_of(error))
        os._exit(1)
    send_frame(b"true" if passed is True else b"false")
    os._exit(0)


class Mathematics:
    """Equality by math-verify, with numbers compared by value, in one written form.

    What its parser drops or bends is compared before it. Time limits are those of the cell, enforced from outside.
    """

    def __init__(self) -> None:
        self._sympy: Any = importlib.import_module("sympy")
        self._latex: Any = importlib.import_module("latex2sympy2_extended.latex2sympy2")
        self._grader: Any = importlib.import_module("math_verify.grader")
        self._grader.sympy_numeric_eq = self._is_same_number
        self._grader.sympy_solve_and_compare = self._has_same_solutions
        self._rules = self._latex.NormalizationConfig(malformed_operators=True, nits=True, boxed="none")
        self._parsed: dict[str, Any] = {}
        importlib.import_module("sympy.physics.units")  # what simplifying imports, and what compiles names
        sys.addaudithook(_refuse_code)

    def expected(self, text: str) -> str:
        """Return the tidy text after parsing it; raises ValueError if it is empty."""
        tidied = tidy(text)
        if not tidied:
            raise ValueError(text)
        for part in (tidied, split_unit(tidied)[0], without_variable(tidied) or tidied):
            self._read(part)
        return tidied

    def matches(self, expected: str, text: str) -> bool:
        """Return whether the text means the same. A unit or one leading `variable =` may stand on one side only."""
        answer = tidy(text)
        if compact(answer) == compact(expected):
            return True
        (expected, unit), (answer, other) = split_unit(expected), split_unit(answer)
        if unit != other and ((unit and other) or ANGLE.search(expected)):
            return False
        equations = [marks(side)["="] + marks(side)["in"] for side in (expected, answer)]
        if equations[0] < equations[1]:
            answer = without_variable(answer) or answer
        elif equations[0] > equations[1]:
            expected = without_variable(expected) or expected
        written, other_written = marks(expected), marks(answer)
        is_interval = bool(written) and set(written) <= {"<", "<="} and set(other_written) <= {"()", "(]", "[)", "[]"}
        if written != other_written and not is_interval:
            return False
        if max(chains(expected), chains(answer)) > 1:
            parts = [side.split("=") for side in (expected, answer)]
            return len(parts[0]) == len(parts[1]) and all(map(self._is_same, *parts))
        return self._is_same(expected, answer)

    def _is_same(self, expected: str, answer: str) -> bool:
        bare, other_bare = expected.removesuffix("\\%"), answer.removesuffix("\\%")
        if (bare, other_bare) != (expected, answer):
            shares = [
                side if side == short else f"\\frac{{{short}}}{{100}}"
                for side, short in ((expected, bare), (answer, other_bare))
            ]
            is_omitted = bare != expected or bare.lstrip("-").isdigit()  # 50 may be 50%, but 0.5 is not 0.5%
            return (is_omitted and self._is_same(bare, other_bare)) or self._is_same(*shares)
        if LETTERS.fullmatch(expected) and not PRODUCT.fullmatch(expected):  # words are not products of their letters
            return compact(" ".join(words(expected))) == compact(" ".join(words(answer)))
        gold, read = self._read(expected), self._read(answer)
        if gold is None or read is None:
            return compact(expected) == compact(answer)
        if self._grader.verify(gold, read, timeout_seconds=None):
            return True
        if not self._grader.is_relation(read) or not hasattr(read, "_unsorted_args"):
            return False
        turned = self._latex.And(*reversed(read._unsorted_args))  # 2 > x > 1
        return bool(self._grader.verify(gold, turned, timeout_seconds=None))

    def _read(self, text: str) -> Any:
        """Parse a text with sympy; None if that fails. Decimals are read as the fractions that they are."""
        if text not in self._parsed:
            exact = DECIMAL.sub(lambda found: f"\\frac{{{found[1]}{found[2]}}}{{1{'0' * len(found[2])}}}", text)
            exact = self._latex.normalize_latex(exact, self._rules)
            is_real = not self._grader.should_treat_as_complex(exact)
            try:
                self._parsed[text] = self._latex.latex2sympy(
                    exact, is_real=is_real, convert_degrees=False, normalization_config=None
                )
            except (MemoryError, RecursionError, CodeRefusedError):
                raise
            except Exception:  # noqa: BLE001  the parser raises no other type
                self._parsed[text] = None
        return self._parsed[text]

    def _is_same_number(self, gold: Any, read: Any, *_precision: int) -> bool:
        """Compare rationals by value, other numbers to 40 digits."""
        if hasattr(gold, "flat") and hasattr(read, "flat"):
            is_alike = partial(self._grader.sympy_expr_eq, float_rounding=6, numeric_precision=15)
            return gold.shape == read.shape and all(map(is_alike, gold.flat(), read.flat()))
        one, other = (self._grader.safe_sympy_doit(value) for value in (gold, read))
        if one == other or one.free_symbols or other.free_symbols or (one.is_Rational and other.is_Rational):
            return bool(one == other)
        if one.is_infinite or other.is_infinite:
            return False
        one, other = one.evalf(50), other.evalf(50)
        return bool(abs(one - other) <= abs(one) / 10**40)

    def _has_same_solutions(self, gold: Any, read: Any, *_precision: int) -> bool:
        """Return whether two relations have the same solutions, and some, for each of their symbols."""
        equation = self._sympy.Eq
        if gold.free_symbols != read.free_symbols or isinstance(gold, equation) != isinstance(read, equation):
            return False
        for symbol in gold.free_symbols:
            solved = [self._sympy.solve(relation, symbol) for relation in (gold, read)]
            if isinstance(gold, equation):
                solved = [self._sympy.FiniteSet(*map(self._sympy.simplify, each)) for each in solved]
            if solved[0] != solved[1] or (isinstance(gold, equation) and not solved[0]):
                return False
        return bool(gold.free_symbols)


class PythonValue:
    """Equal literals of Python, of the same types throughout."""

    def expected(self, text: str) -> Any:
        """The value; raises what `literal_eval` raises."""
        return ast.literal_eval(text.strip())

    def matches(self, expected: Any, text: str) -> bool:
        """Return whether the text is the same value; one that is not a value is not."""
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, TypeError, SyntaxError):
            return False
        return _canonical(value) == _canonical(expected)


def _canonical(value: Any) -> str:
    """Return a canonical form of a value: sets and dicts in one order, and the type of every part."""
    if isinstance(value, dict):
        items = sorted(f"{_canonical(key)}:{_canonical(part)}" for key, part in value.items())
    elif isinstance(value, set):
        items = sorted(map(_canonical, value))
    elif isinstance(value, list | tuple):
        items = list(map(_canonical, value))
    else:
        return repr(value)
    return f"{type(value).__name__}({','.join(items)})"


def _refuse_code(event: str, arguments: "tuple[Any, ...]") -> None:
    """Raise when a text is compiled that is neither a module of a file nor arithmetic."""
    if event != "compile":
        return
    source, name = arguments
    if isinstance(name, bytes | str) and os.fsdecode(name).startswith("/"):
        return  # a module that is imported only now
    text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
    if isinstance(text, str) and not _ARITHMETIC.fullmatch(text):
        raise CodeRefusedError(name)
