"""Files of compressed JSON lines: what stages hand to each other, and what they dropped."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core.files import atomic_writer, read_jsonl
from autoclave.problems.candidate import Candidate

_LEVEL = 6


@contextmanager
def compressed_lines(path: Path) -> Generator[Callable[[dict[str, Any]], object]]:
    """A function that writes an object as a line of a zstd file, which is there once the block ends well.

    The same objects make the same bytes.
    """
    import zstandard

    packing = zstandard.ZstdCompressor(_LEVEL)
    with atomic_writer(path, text=False) as file, packing.stream_writer(file, closefd=False) as packed:
        yield lambda value: packed.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """Candidates that can be gone through any number of times, one at a time."""

    path: Path

    def __iter__(self) -> Iterator[Candidate]:
        for where, value in read_jsonl(self.path):
            yield Candidate.from_json(value, where)
