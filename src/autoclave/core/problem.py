"""Problems and how answers are checked: `Problem` and the kinds of tests, one JSON line each.

Data only; nothing here runs a program. File format `autoclave-problem/1` (docs/reference/formats.md).
"""

import datetime
import hashlib
import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from dataclasses import Field as DataclassField
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Strict, Tag

from autoclave.core.errors import DataError
from autoclave.core.files import read_jsonl
from autoclave.core.json import canonical_json, from_plain, shown, to_plain

FORMAT = "autoclave-problem/1"
_STRICT = ConfigDict(extra="forbid")


def _well_formed(text: str) -> str:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            half = text[error.start]
            raise ValueError(f"must be well-formed Unicode; U+{ord(half):04X} is half of a surrogate pair") from None
    return text


def _from_text(value: Any) -> Any:
    if value is not None and not isinstance(value, (str, datetime.date)):
        raise ValueError("must be a date as text, such as 2024-03-01")
    return value


Text = Annotated[str, Strict(), AfterValidator(_well_formed)]
Number = Annotated[float, Strict()]
Date = Annotated[datetime.date, BeforeValidator(_from_text)]


@dataclass(frozen=True, slots=True)
class StdinCase:
    """One run: the text on standard input and the text expected on standard output."""

    __pydantic_config__ = _STRICT
    input: Text
    output: Text


@dataclass(frozen=True, slots=True)
class CallCase:
    """One call: positional arguments and the value expected back, as JSON data."""

    __pydantic_config__ = _STRICT
    arguments: list[Any]
    output: Any


@dataclass(frozen=True, slots=True)
class StdinTests:
    """The program reads standard input and prints; each case is a process of its own."""

    __pydantic_config__ = _STRICT
    kind: Literal["stdin"]
    cases: list[StdinCase]


@dataclass(frozen=True, slots=True)
class CallTests:
    """A function is called; `Solution.twoSum` means the bound method of a fresh instance."""

    __pydantic_config__ = _STRICT
    kind: Literal["call"]
    entry_point: Text
    cases: list[CallCase]
    preamble: Text = ""


@dataclass(frozen=True, slots=True)
class CheckTests:
    """Test code that is handed the candidate: `source` defines it, `invocation` runs it.

    With `mutates_arguments` the check sees what the candidate did to the arguments of a call.
    """

    __pydantic_config__ = _STRICT
    kind: Literal["check"]
    entry_point: Text
    source: Text
    invocation: Text
    preamble: Text = ""
    mutates_arguments: Annotated[bool, Strict()] = False


@dataclass(frozen=True, slots=True)
class AnswerTests:
    """A final answer is compared; no program runs."""

    __pydantic_config__ = _STRICT
    kind: Literal["answer"]
    expected: Text
    comparator: Literal["math", "value", "text"]


@dataclass(frozen=True, slots=True)
class StoredTests:
    """The tests are in a judge service, under this digest."""

    __pydantic_config__ = _STRICT
    kind: Literal["stored"]
    digest: Text


@dataclass(frozen=True, slots=True)
class FloatChecker:
    """Words that are numbers may differ: by `atol`, or by `rtol` times the expected number, whichever is more."""

    __pydantic_config__ = _STRICT
    name: Literal["float"]
    rtol: Number
    atol: Number


@dataclass(frozen=True, slots=True)
class CustomChecker:
    """Code that defines `check`; it decides, in a cell of its own."""

    __pydantic_config__ = _STRICT
    name: Literal["custom"]
    source: Text


def _form_of_checker(value: Any) -> str:
    return "text" if isinstance(value, str) or not isinstance(value, (dict, FloatChecker, CustomChecker)) else "object"


CheckerObject = Annotated[FloatChecker | CustomChecker, Field(discriminator="name")]
Checker = Annotated[
    Annotated[Text, Tag("text")] | Annotated[CheckerObject, Tag("object")], Discriminator(_form_of_checker)
]
Tests = Annotated[StdinTests | CallTests | CheckTests | AnswerTests | StoredTests, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Problem:
    """One task with its tests, limits and rules of comparison.

    `id` is a label, unique in a file; `digest` identifies what is judged. Limits of None mean the judge's default.
    """

    __pydantic_config__ = _STRICT
    statement: Text
    tests: Tests
    format: Literal["autoclave-problem/1"] = FORMAT
    id: Text = ""
    starter_code: Text = ""
    solutions: list[Text] = field(default_factory=list[str])
    time_limit_s: Number | None = None
    memory_limit_mb: Annotated[int, Strict()] | None = None
    checker: Checker = "lcb"
    profile: Text = "lcb"
    language: Text = "python"
    source: Text = ""
    released: Date | None = None
    difficulty: Text = ""
    tags: list[Text] = field(default_factory=list[str])

    @property
    def digest(self) -> str:
        """sha256 (hex) of what decides a verdict: tests, limits, checker and profile; not id or statement."""
        if isinstance(self.tests, StoredTests):
            return self.tests.digest
        judged = {
            "tests": _plain_check(self.tests) if isinstance(self.tests, CheckTests) else self.tests,
            "time_limit_s": self.time_limit_s,
            "memory_limit_mb": self.memory_limit_mb,
            "checker": self.checker,
            "profile": self.profile,
        }
        return hashlib.sha256(canonical_json(judged)).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The object of one line of a problem file, without fields that hold their default."""
        plain = to_plain(self)
        if isinstance(self.tests, CheckTests):
            plain["tests"] = _plain_check(self.tests)
        changed = {f.name: plain[f.name] for f in fields(self) if getattr(self, f.name) != _default_of(f)}
        return {"format": FORMAT, "id": self.id} | changed

    @staticmethod
    def from_json(value: dict[str, Any], where: str = "problem") -> "Problem":
        """A problem from one parsed line.

        Raises:
            DataError: unknown or missing field, wrong type, another format, no tests, a limit that is not positive.
        """
        if value.get("format") != FORMAT:
            raise DataError(f"{where}: format = {shown(value.get('format'))}: must be {shown(FORMAT)}")
        problem = from_plain(Problem, value, where)
        _check(problem, where)
        return problem if problem.id else replace(problem, id=problem.digest[:16])


def _plain_check(tests: CheckTests) -> dict[str, Any]:
    """As in a line: without `mutates_arguments` where it is false, so that digests are those of before it existed."""
    plain = to_plain(tests)
    return plain if tests.mutates_arguments else {name: value for name, value in plain.items() if value is not False}


def _default_of(known: DataclassField[Any]) -> Any:
    return known.default if known.default_factory is MISSING else known.default_factory()


def _check(problem: Problem, where: str) -> None:
    tests = problem.tests
    label = f"{where} (problem {shown(problem.id)})" if problem.id else where
    if isinstance(tests, (StdinTests, CallTests)) and not tests.cases:
        raise DataError(f"{label}: tests.cases = []: a problem needs at least one test")
    if isinstance(tests, (CallTests, CheckTests)) and not all(p.isidentifier() for p in tests.entry_point.split(".")):
        raise DataError(
            f"{label}: tests.entry_point = {shown(tests.entry_point)}: must be a name such as 'f' or 'Solution.f'"
        )
    if problem.time_limit_s is not None and not (0 < problem.time_limit_s < math.inf):
        raise DataError(f"{label}: time_limit_s = {problem.time_limit_s}: must be greater than 0")
    if problem.memory_limit_mb is not None and problem.memory_limit_mb <= 0:
        raise DataError(f"{label}: memory_limit_mb = {problem.memory_limit_mb}: must be greater than 0")


def read_problems(path: Path) -> Iterator[Problem]:
    """The problems of a file, one at a time.

    Raises:
        InputError: the file is missing.
        DataError: a line cannot be used, or an id occurs twice; the message begins with `file:line`.
    """
    seen: dict[str, str] = {}
    for where, value in read_jsonl(path, "problem file"):
        problem = Problem.from_json(value, where)
        if problem.id in seen:
            raise DataError(
                f"{where}: id = {shown(problem.id)}: already used at {seen[problem.id]}; ids are unique in a file"
            )
        seen[problem.id] = where
        yield problem
