"""Files of compressed JSON lines: what stages hand to each other, and what they dropped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core.files import atomic_writer
from autoclave.core.json import parse_object
from autoclave.problems.candidate import Candidate

_LEVEL = 6


@contextmanager
def compressed_lines(path: Path) -> Generator[Callable[[dict[str, Any]], None]]:
    """A function that writes an object as a line of a zstd file, which is there once the block ends well.

    The same objects make the same bytes.
    """
    import zstandard

    with (
        atomic_writer(path, text=False) as file,
        zstandard.ZstdCompressor(_LEVEL).stream_writer(file, closefd=False) as out,
    ):

        def write(value: dict[str, Any]) -> None:
            out.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")

        yield write


def read_compressed_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of compressed lines.

    Raises:
        DataError: a line is none; the message names it.
    """
    import zstandard

    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        for number, line in enumerate(io.TextIOWrapper(stream, encoding="utf-8"), 1):
            yield parse_object(line, f"{path}:{number}")


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """Candidates that can be gone through any number of times, one at a time."""

    path: Path

    def __iter__(self) -> Iterator[Candidate]:
        for number, value in enumerate(read_compressed_lines(self.path), 1):
            yield Candidate.from_json(value, f"{self.path}:{number}")
