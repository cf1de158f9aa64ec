"""Alignment samples that wait to be asked: bounded, newest first, no two alike. A plain state machine."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from autoclave.core import AlignmentSample
from autoclave.core.json import from_plain, to_plain

REMEMBERED = 16
"""Of so many buffers full of alignment samples it is remembered that they were taught."""


class AlignmentBuffer:
    """Takes alignment samples in, and gives the newest out, each once."""

    def __init__(self, *, capacity: int, per_problem: int, max_staleness: int | None = None) -> None:
        """An empty one.

        Args:
            capacity: most alignment samples that wait; the oldest leave first.
            per_problem: most of one problem; likewise.
            max_staleness: alignment samples from policies that are more versions old are dropped; None: none is.
        """
        self._capacity, self._per_problem, self._max_staleness = capacity, per_problem, max_staleness
        self._waiting: dict[str, AlignmentSample] = {}  # by key, the oldest first
        self._known: dict[str, None] = {}  # keys, in the order in which they came

    def __len__(self) -> int:
        return len(self._waiting)

    def knows(self, key: str) -> bool:
        """Return whether an alignment sample with this key has come before, as far as that is remembered."""
        return key in self._known

    def add(self, alignment_samples: Iterable[AlignmentSample]) -> Counter[str]:
        """Take these in, in their order: how many were `added`, were a `duplicate`, or drove out others (`dropped`)."""
        counts: Counter[str] = Counter()
        for alignment_sample in alignment_samples:
            if alignment_sample.key in self._known:
                counts["duplicate"] += 1
                continue
            self._known[alignment_sample.key] = None
            self._waiting[alignment_sample.key] = alignment_sample
            counts["added"] += 1
            own = [key for key, other in self._waiting.items() if other.problem_id == alignment_sample.problem_id]
            counts["dropped"] += self._drop(_first(own, over=self._per_problem))
            counts["dropped"] += self._drop(_first(list(self._waiting), over=self._capacity))
        for key in _first(list(self._known), over=REMEMBERED * self._capacity):
            del self._known[key]
        return counts

    def add_again(self, alignment_samples: Iterable[AlignmentSample]) -> None:
        """Have these wait, in their order, whether they were taught or not."""
        for alignment_sample in alignment_samples:
            self._known[alignment_sample.key] = None
            self._waiting[alignment_sample.key] = alignment_sample
        self._drop(_first(list(self._waiting), over=self._capacity))

    def take(self, count: int) -> list[AlignmentSample]:
        """The newest `count`, or as many as there are; they do not wait any more."""
        newest = list(reversed(self._waiting))[:count]
        return [self._waiting.pop(key) for key in newest]

    def drop_stale(self, version: int) -> int:
        """Drop those that are too old for a policy of `version`; how many they were."""
        if self._max_staleness is None:
            return 0
        oldest = version - self._max_staleness
        return self._drop([key for key, alignment_sample in self._waiting.items() if alignment_sample.version < oldest])

    def to_plain(self) -> dict[str, Any]:
        return {"waiting": [to_plain(each) for each in self._waiting.values()], "known": list(self._known)}

    def restore(self, plain: dict[str, Any]) -> None:
        """Become what `to_plain` told.

        Raises DataError, KeyError, TypeError: it told no such thing.
        """
        waiting = [from_plain(AlignmentSample, each, "alignment_sample") for each in plain["waiting"]]
        self._waiting = {each.key: each for each in waiting}
        self._known = dict.fromkeys(map(str, plain["known"]))

    def _drop(self, keys: list[str]) -> int:
        for key in keys:
            del self._waiting[key]
        return len(keys)


def _first(keys: list[str], *, over: int) -> list[str]:
    """The first of `keys`, as many as there are over this number."""
    return keys[: max(0, len(keys) - over)]
