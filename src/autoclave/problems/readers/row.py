"""One row of a set: its fields by name, with the types that a reader asks for, and why it cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from autoclave.core import Problem
from autoclave.core.json import shown
from autoclave.problems.readers.literals import value_of_text


class UnusableRow(Exception):
    """A row that is no problem: `reason` is a word for counting, `detail` a sentence for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """A problem as a set has it, and what it is known by there (see `Origin`)."""

    problem: Problem
    key: str = ""
    url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of a row. `place` is where it stands, such as `train.jsonl:17`. Null is as good as not there."""

    place: str
    fields: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.fields.get(name) is not None

    def value(self, *names: str) -> Any:
        """The first of these fields that is there.

        Raises:
            UnusableRow: none is (`missing_field`).
        """
        for name in names:
            if self.has(name):
                return self.fields[name]
        there = ", ".join(sorted(str(name) for name in self.fields)[:12]) or "none"
        raise UnusableRow("missing_field", f"no field {' or '.join(names)}; its fields: {there}")

    def text(self, *names: str) -> str:
        """The same, which must be text. Lines end in a line feed alone."""
        value = self.value(*names)
        if not isinstance(value, str):
            raise wrong_type(names[0], value, "text")
        return unix_lines(value)

    def text_or(self, default: str, *names: str) -> str:
        """The first of these that is there, or `default`. A number is written out: some exports have ids as numbers."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return str(value)
            if isinstance(value, str):
                return unix_lines(value)
        return default

    def parsed(self, *names: str) -> Any:
        """The first of these that is there; text is read as JSON or as a Python literal.

        Raises:
            UnusableRow: none is there, or text that is neither (`not_json`).
        """
        return parsed(self.value(*names), names[0])

    def list(self, *names: str) -> list[Any]:
        """The same, which must be a list."""
        value = self.parsed(*names)
        if not isinstance(value, list):
            raise wrong_type(names[0], value, "a list")
        return cast("list[Any]", value)

    def list_or_empty(self, *names: str) -> list[Any]:
        """A list, or nothing where none of the fields holds one: for labels, which no test depends on."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str) and value.strip().startswith("["):
                value = parsed(value, name)
            if isinstance(value, list):
                return cast("list[Any]", value)
        return []

    def struct(self, *names: str) -> Row:
        """A field with fields of its own, or an empty one: metadata are missing in many exports."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str) and value.strip().startswith("{"):
                value = parsed(value, name)
            if isinstance(value, Mapping):
                return Row(self.place, cast("Mapping[str, Any]", value))
        return Row(self.place, {})


Reader = Callable[[Row], ReadProblem]
"""How rows of a layout become problems. Raises `UnusableRow`."""


def wrong_type(name: str, value: Any, wanted: str) -> UnusableRow:
    """A field that holds something else."""
    return UnusableRow("wrong_type", f"{name} = {shown(value)}: must be {wanted}")


def parsed(value: Any, name: str) -> Any:
    """A value that may be written as JSON or as a Python literal.

    Raises:
        UnusableRow: text that is neither.
    """
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise UnusableRow("no_tests", f"{name} is empty")
    try:
        return value_of_text(value)
    except ValueError as error:
        raise UnusableRow("not_json", f"{name} = {shown(value)}: {error}") from None


def unix_lines(text: str) -> str:
    """Text whose lines end in a line feed alone."""
    return text.replace("\r\n", "\n") if "\r" in text else text


def texts(values: Sequence[Any]) -> list[str]:
    """Those of the values that are text and not blank."""
    return [unix_lines(value) for value in values if isinstance(value, str) and value.strip()]
