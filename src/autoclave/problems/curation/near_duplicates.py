"""Find pairs of problems to compare: with similar MinHash signatures, or with a test in common.

Locality-sensitive hashing by sorting: one band of all signatures at a time, so that memory is a few numbers per
problem; signatures are on disk. `similarity.py` decides on the pairs found here.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoclave.core.install import needing
from autoclave.problems.curation.features import FeatureStore
from autoclave.problems.curation.similarity import WordFrequencies

Pairs: TypeAlias = NDArray[np.uint64]
"""Sorted; each has the better-placed member in the upper 32 bits and the other in the lower ones."""

_NO_PAIRS: Pairs = np.empty(0, dtype=np.uint64)
_SEED = 1
_PERMUTATIONS = 192  # hash functions of a MinHash signature
_BANDS = 48  # groups of these; two statements are compared when one group agrees
_LEAST_ESTIMATE = 0.25
_CHUNK = 1 << 16
_MIX = np.uint64(0x9E3779B97F4A7C15)
_PARTITIONS = 16


def near_pairs(
    store: FeatureStore, ordered: Sequence[int], frequencies: WordFrequencies, bucket_limit: int, folder: Path
) -> tuple[Pairs, int]:
    """Return pairs of places in `ordered` with similar signatures, and the number of too large buckets.

    Raises HostError: datasketch is not installed.
    """
    if not ordered:
        return _NO_PAIRS, 0
    with tempfile.TemporaryFile(dir=folder, prefix="signatures.") as file:
        for signature in _signatures(frequencies.rare(store[number].topic) for number in ordered):
            file.write(signature.tobytes())
        file.flush()
        signatures = np.memmap(file, dtype=np.uint32, mode="r", shape=(len(ordered), _PERMUTATIONS))
        return _pairs_in_bands(signatures, bucket_limit)


def _signatures(topics: Iterable[Any]) -> Iterator[NDArray[np.uint32]]:
    with needing("deduplication.near", "curate"):
        from datasketch import MinHash
    empty = MinHash(_PERMUTATIONS, seed=_SEED, hashfunc=int)
    for topic in topics:
        sketch = empty.copy()
        sketch.update_batch(topic.tolist())
        yield sketch.hashvalues.astype(np.uint32)


def _pairs_in_bands(signatures: NDArray[np.uint32], bucket_limit: int) -> tuple[Pairs, int]:
    rows = _PERMUTATIONS // _BANDS
    places = np.arange(len(signatures), dtype=np.uint64)
    found = _NO_PAIRS
    num_large = 0
    for band in range(_BANDS):
        buckets = _Buckets(_mixed(np.asarray(signatures[:, band * rows : (band + 1) * rows])), places)
        num_large += buckets.num_larger_than(bucket_limit)
        similar = [_with_similar_signatures(pairs, signatures) for pairs in buckets.pairs(bucket_limit)]
        found = np.unique(np.concatenate([found, *similar]))
    return found, num_large


def _mixed(columns: NDArray[np.uint32]) -> NDArray[np.uint64]:
    mixed = np.zeros(len(columns), dtype=np.uint64)
    for column in range(columns.shape[1]):
        mixed = (mixed ^ columns[:, column]) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _with_similar_signatures(pairs: Pairs, signatures: NDArray[np.uint32]) -> Pairs:
    """Return the pairs whose signatures agree in enough places."""
    least = _LEAST_ESTIMATE * signatures.shape[1]
    kept: list[Pairs] = []
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        left, right = signatures[chunk >> np.uint64(32)], signatures[chunk & np.uint64(2**32 - 1)]
        kept.append(chunk[(left == right).sum(axis=1) >= least])
    return np.concatenate(kept) if kept else pairs


class _Buckets:
    """Groups of places with equal keys, each in order."""

    def __init__(self, keys: NDArray[np.uint64], places: NDArray[np.uint64]) -> None:
        order = np.lexsort((places, keys))
        keys = keys[order]
        self._places = places[order]
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        self._sizes = np.diff(np.append(starts, len(keys)))
        self._start = np.repeat(starts, self._sizes)

    def num_larger_than(self, limit: int) -> int:
        return int((self._sizes > limit).sum())

    def pairs(self, limit: int) -> Iterator[Pairs]:
        """Yield all pairs; in buckets of more than `limit` members, each member with the first and the next ones."""
        within = np.arange(len(self._places)) - self._start
        is_large = np.repeat(self._sizes > limit, self._sizes)
        for distance in range(1, min(limit, int(self._sizes.max()))):
            at = np.flatnonzero(within >= distance)
            yield self._paired(at - distance, at)
            late = np.flatnonzero(is_large & (within >= distance))
            yield self._paired(self._start[late] + distance - 1, late)

    def _paired(self, first: NDArray[Any], second: NDArray[Any]) -> Pairs:
        return (self._places[first] << np.uint64(32)) | self._places[second]


def pairs_with_common_tests(store: FeatureStore, ordered: Sequence[int], limit: int, folder: Path) -> tuple[Pairs, int]:
    """Return pairs of places in `ordered` with a test or test code in common, and the number of too large buckets."""
    row = np.dtype([("key", np.uint64), ("place", np.uint64)])
    with tempfile.TemporaryFile(dir=folder, prefix="tests.") as file:
        for place, number in enumerate(ordered):
            features = store[number]
            code = np.array([features.code] if features.code else [], dtype=np.uint64)
            keys = np.append((features.inputs * _MIX) ^ features.outputs, code)
            rows = np.empty(len(keys), dtype=row)
            rows["key"] = keys
            rows["place"] = place
            file.write(rows.tobytes())
        size = file.tell() // row.itemsize
        file.flush()
        if not size:
            return _NO_PAIRS, 0
        return _pairs_in_partitions(np.memmap(file, dtype=row, mode="r", shape=(size,)), limit)


def _pairs_in_partitions(rows: NDArray[Any], limit: int) -> tuple[Pairs, int]:
    found = _NO_PAIRS
    num_large = 0
    for partition in range(_PARTITIONS):
        part = rows[rows["key"] % np.uint64(_PARTITIONS) == partition]
        if not len(part):
            continue
        buckets = _Buckets(part["key"], part["place"])
        num_large += buckets.num_larger_than(limit)
        found = np.unique(np.concatenate([found, *buckets.pairs(limit)]))
    return found, num_large
