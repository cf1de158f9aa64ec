"""The reads and writes of actions, their dependencies, and groups of actions that commute. Pure.

A key names something that an action touches, with everything below it: `files/src/a.py`, a row of a table, a resource
of a service. Keys are paths whose first part is the kind.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_MOST_IN_A_GROUP = 50


@dataclass(frozen=True, slots=True)
class Footprint:
    """The keys that an action reads, and those that it writes."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def depends_on(self, earlier: "Footprint") -> bool:
        """Return whether it read or wrote something that the earlier one wrote."""
        return meet(self.reads | self.writes, earlier.writes)

    def commutes_with(self, other: "Footprint") -> bool:
        """Return whether the order of the two makes no difference."""
        return not (self.depends_on(other) or other.depends_on(self))


def meet(one: Iterable[str], other: Iterable[str]) -> bool:
    """Return whether two sets share a key, or one has a key that is below a key of the other."""
    keys, others = set(one), set(other)
    return any(above in others for key in keys for above in with_those_above(key)) or any(
        above in keys for key in others for above in with_those_above(key)
    )


def with_those_above(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Done:
    """An executed action. `at` is in seconds since 1970; `closes`: no later action joins its group."""

    action: str
    footprint: Footprint
    at: float
    closes: bool = False


def groups(done: Iterable[Done], savepoints: Sequence[float] = ()) -> list[list[str]]:
    """Return runs of actions that commute with each other (GoEX's watermarks).

    A group ends before an action that does not commute with all of it, after one that `closes` it (an irreversible
    one), at a savepoint (given by its time), and when it is full.
    """
    found: list[list[Done]] = []
    for each in done:
        if found and _joins(found[-1], each, savepoints):
            found[-1].append(each)
        else:
            found.append([each])
    return [[each.action for each in group] for group in found]


def _joins(group: Sequence[Done], new: Done, savepoints: Sequence[float]) -> bool:
    last = group[-1]
    return (
        not last.closes
        and len(group) < _MOST_IN_A_GROUP
        and not any(last.at <= each < new.at for each in savepoints)
        and all(each.footprint.commutes_with(new.footprint) for each in group)
    )
