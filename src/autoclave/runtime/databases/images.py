"""Rows as images: a key in words and JSON data; many of them as one text that need not be read to be kept. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, overload

Image = tuple[str, Any]
"""A row: its key in words (empty if it has none), and JSON data in the engine's own form that say all of it."""

SEPARATOR = ",\n"
_KEY = re.compile(r'^\["((?:[^"\\]|\\.)*)",', re.MULTILINE)


class Images(Sequence[Image]):
    """Images that an engine has brought as text: a line `[KEY,DATA]` of JSON for each.

    They are counted, kept, compared and written back as this text; it is parsed when somebody looks at a row.
    """

    __slots__ = ("_length", "_rows", "text")

    def __init__(self, lines: Sequence[str]) -> None:
        """`lines`: without any end of a line within."""
        self.text, self._length = f"[{SEPARATOR.join(lines)}]", len(lines)
        self._rows: tuple[Image, ...] | None = None

    @property
    def rows(self) -> tuple[Image, ...]:
        if self._rows is None:
            self._rows = tuple((key, data) for key, data in json.loads(self.text))
        return self._rows

    @property
    def keys(self) -> list[str]:
        """Of each image."""
        found = _KEY.findall(self.text[1:-1])
        return [json.loads(f'"{key}"') if "\\" in key else key for key in found]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Image]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Image]: ...
    def __getitem__(self, index: int | slice) -> Image | Sequence[Image]:
        return self.rows[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Images) and self.text == other.text:
            return True
        return isinstance(other, Sequence) and len(self) == len(other) and repr(self.rows) == repr(tuple(other))

    def __repr__(self) -> str:
        return f"Images({self._length} rows)"


def keys_in(images: Sequence[Image]) -> Sequence[str]:
    """The keys of images, in their order."""
    return images.keys if isinstance(images, Images) else [key for key, _ in images]


def lines_of(images: Sequence[Image]) -> str:
    """Images as JSON, with `SEPARATOR` between them and nowhere else."""
    if isinstance(images, Images):
        return images.text[1:-1]
    return SEPARATOR.join(json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in images)


def text_of(images: Sequence[Image]) -> str:
    """Images as JSON, the same of those that were read again."""
    return f"[{lines_of(images)}]"


def is_same(one: Image | None, other: Image | None) -> bool:
    """Whether two rows are the same to the last bit; 1 and 1.0 are not."""
    return one == other and repr(one) == repr(other)
