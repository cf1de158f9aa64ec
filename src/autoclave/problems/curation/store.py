"""The traits of many problems on disk, so that a million of them do not fill the memory.

In memory is one number per problem. The file is removed when the store is closed.
"""

from __future__ import annotations

import struct
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from autoclave.problems.curation.traits import Traits

_HEAD = struct.Struct("<16sQ7I")


class TraitStore:
    """Traits by the order in which they were added, from 0."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, prefix="traits.")  # noqa: SIM115  closed by `close`
        self._starts = array("Q")

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, traits: Traits) -> None:
        """Append the traits of one problem."""
        texts = [each.encode("utf-8") for each in (traits.shape, "\n".join(sorted(traits.names)), traits.version)]
        sizes = (len(traits.words), len(traits.topic), len(traits.inputs), *map(len, texts), traits.num_tests)
        arrays = (traits.words, traits.topic, traits.inputs, traits.outputs)
        self._starts.append(self._file.seek(0, 2))
        self._file.write(
            _HEAD.pack(traits.text, traits.code, *sizes) + b"".join([*(part.tobytes() for part in arrays), *texts])
        )

    def __getitem__(self, number: int) -> Traits:
        self._file.seek(self._starts[number])
        text, code, words, topic, cases, shape, names, version, num_tests = _HEAD.unpack(self._file.read(_HEAD.size))
        return Traits(
            text=text if any(text) else b"",
            words=np.frombuffer(self._file.read(4 * words), dtype=np.uint32),
            topic=np.frombuffer(self._file.read(4 * topic), dtype=np.uint32),
            inputs=np.frombuffer(self._file.read(8 * cases), dtype=np.uint64),
            outputs=np.frombuffer(self._file.read(8 * cases), dtype=np.uint64),
            code=code,
            shape=self._file.read(shape).decode("utf-8"),
            num_tests=num_tests,
            names=frozenset(self._file.read(names).decode("utf-8").splitlines()),
            version=self._file.read(version).decode("utf-8"),
        )

    def __iter__(self) -> Iterator[Traits]:
        return (self[number] for number in range(len(self)))

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
