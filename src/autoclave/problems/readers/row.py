"""One row of a set: typed access to its fields by name, and the reason why a row is unusable."""

import ast
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from autoclave.core import Problem
from autoclave.core.json import shown


class UnusableRow(Exception):
    """The row is not a problem: `reason` is a key for counting, `detail` a sentence for users."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """A problem as a set has it, with its identity there (see `Origin`)."""

    problem: Problem
    key: str = ""
    url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class RawRow:
    """The fields of a row at `place`, such as `train.jsonl:17`. A null field counts as missing."""

    place: str
    fields: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null."""
        return self.fields.get(name) is not None

    def value(self, *names: str) -> Any:
        """Return the first of these fields that is present. Raises UnusableRow: all are missing (`missing_field`)."""
        for name in names:
            if self.has(name):
                return self.fields[name]
        present = ", ".join(sorted(str(name) for name in self.fields)[:12]) or "none"
        raise UnusableRow("missing_field", f"no field {' or '.join(names)}; its fields: {present}")

    def text(self, *names: str) -> str:
        """Return `value`, which must be a string, with Unix line ends."""
        value = self.value(*names)
        if not isinstance(value, str):
            raise wrong_type(names[0], value, "text")
        return unix_lines(value)

    def text_or(self, default: str, *names: str) -> str:
        """Return the first string or number of these as a string, or `default`. Some exports have ids as numbers."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return str(value)
            if isinstance(value, str):
                return unix_lines(value)
        return default

    def list(self, *names: str) -> "list[Any]":
        """Return `value`, parsed if it is a string, which must be a list."""
        value = parsed(self.value(*names), names[0])
        if not isinstance(value, list):
            raise wrong_type(names[0], value, "a list")
        return cast("list[Any]", value)

    def list_or_empty(self, *names: str) -> "list[Any]":
        """Return the first list of these, or an empty one: for labels, which no test depends on."""
        return cast("list[Any]", self._first(list, "[", names) or [])

    def struct(self, *names: str) -> "RawRow":
        """Return the first object of these, or an empty one: metadata are missing in many exports."""
        return RawRow(self.place, cast("Mapping[str, Any]", self._first(Mapping, "{", names) or {}))

    def _first(self, kind: type[Any], opening: str, names: tuple[str, ...]) -> Any:
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str) and value.strip().startswith(opening):
                value = parsed(value, name)
            if isinstance(value, kind):
                return value
        return None


Reader = Callable[[RawRow], ReadProblem]
"""Converts a row of a layout into a problem. Raises `UnusableRow`."""


def wrong_type(name: str, value: Any, expected: str) -> UnusableRow:
    return UnusableRow("wrong_type", f"{name} = {shown(value)}: must be {expected}")


def parsed(value: Any, name: str) -> Any:
    """Return a value; a string is parsed as JSON or as a Python literal. Raises UnusableRow: a string is neither."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise UnusableRow("no_tests", f"{name} is empty")
    try:
        return value_of_text(value)
    except ValueError as error:
        raise UnusableRow("not_json", f"{name} = {shown(value)}: {error}") from None


def unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n") if "\r" in text else text


def texts(values: Sequence[Any]) -> list[str]:
    """Return the values that are strings and not blank, with Unix line ends."""
    return [unix_lines(value) for value in values if isinstance(value, str) and value.strip()]


PYTHON_LITERAL_LIMIT = 4 << 20
"""Longest Python literal that is parsed, in characters; its syntax tree takes about a hundred times as much memory."""


class HugeInteger(str):
    """The digits of an integer above Python's limit: valid in standard input, not in a call."""

    __slots__ = ()


def value_of_text(text: str) -> Any:
    """Parse `text` as JSON, or else as a Python literal. Integers too long for Python become `HugeInteger`.

    Raises ValueError: `text` is neither, is nested too deeply, or is too long for a Python literal.
    """
    try:
        most = sys.get_int_max_str_digits()
        return json.loads(text, parse_int=lambda each: int(each) if len(each) <= most else HugeInteger(each))
    except (ValueError, RecursionError):
        pass  # Python writes True, None and single quotes
    if len(text) > PYTHON_LITERAL_LIMIT:
        raise ValueError(f"not JSON, and too long for a Python literal ({len(text)} characters)")
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise ValueError("must be JSON or a Python literal") from None
