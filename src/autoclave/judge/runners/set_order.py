"""Rebuild sets so that they iterate in a given order.

A set iterates in the order of the slots of its hash table. This module finds members to add and to remove that put
each member of a set into such a slot, as CPython's `set` would. Pure functions; their text follows that of
`marshalling` in runners.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import itertools
import operator
from collections.abc import Iterator
from typing import Any

SMALLEST_TABLE = 8
_NUM_LINEAR_PROBES = 9
_MAX_PROBES, _MAX_SEARCHED, _MAX_PERMUTED = 40, 2048, 5


def table_size(members: Any) -> int:
    """Return the number of slots in the table of a set, a power of two."""
    kind: Any = set if isinstance(members, set) else frozenset
    slots = (kind.__sizeof__(members) - kind().__sizeof__()) // 16
    return max(SMALLEST_TABLE, (1 << slots.bit_length()) >> 1)


def fill_set(container: "set[Any]", order: "list[Any]", size: int) -> None:
    """Add the members to the empty set so that it iterates in this order, with a table of `size` slots.

    The slot of a member depends on the size, on the members present when it was added, and on members removed since.
    With size 0, or where the search finds no such table, the members are added one by one.
    """
    for placed, others in placements(order, size) if size else ():
        if len(placed) * 5 < (size - 1) * 3:
            _fill_table(container, placed, size)
            for member in others:
                container.discard(member)
            if len(container) == len(order) and all(map(operator.is_, container, order)):
                return
            container.clear()
    container.update(order)


def _fill_table(container: "set[Any]", placed: "list[Any]", size: int) -> None:
    """Add the members in turn to the empty set, in a table of `size` slots from the first on.

    A set that a dict is added to gets room for twice as many at once.
    """
    first = dict.fromkeys(placed[: size // 2 - 1]) if size > SMALLEST_TABLE else {}
    more = [object() for _ in range(max(size // 4, 5) - len(first))] if first else []
    container.update(first | dict.fromkeys(more))
    for member in placed[len(first) :]:
        container.add(member)
    for member in more:
        container.discard(member)


def placements(order: "list[Any]", size: int, max_attempts: int = 20) -> "Iterator[tuple[list[Any], list[Any]]]":
    """Yield ways to put the members into slots of this order: members to add in turn, and those to remove then."""
    hashes = [hash(member) for member in order]
    yield from _additions(order, _shortest(hashes, size - 1), size)
    if len(order) > _MAX_SEARCHED:
        return
    paths = [list(itertools.islice(_probes(value, size - 1), _MAX_PROBES)) for value in hashes]
    taken: set[int] = set()
    for attempt in range(min(max_attempts, 1 + 2 * _MAX_SEARCHED // (len(order) + 1))):
        found = _ascending(paths, taken, attempt)
        taken = {path[-1] for path in found}
        yield from _additions(order, found, size)
    if len(order) <= _MAX_PERMUTED:
        yield from ((list(members), []) for members in itertools.permutations(order))


def _shortest(hashes: "list[int]", mask: int) -> "list[list[int]]":
    """Return the path of each member to the first slot after that of the member before; [] if there is no such slot."""
    paths: list[list[int]] = []
    last = -1
    for value in hashes:
        path = [value & mask]
        if path[0] <= last:
            path = list(itertools.islice(_probes(value, mask), _MAX_PROBES))
            last = next((slot for slot in path if slot > last), mask + 1)
            if last > mask:
                return []
            path = path[: path.index(last) + 1]
        last = path[-1]
        paths.append(path)
    return paths


def _ascending(paths: "list[list[int]]", taken: "set[int]", attempt: int) -> "list[list[int]]":
    """Return the beginnings of the paths whose ends ascend with the least sum of costs.

    Passing a slot costs least if the attempt before took it: no further member is needed for it.
    """
    steps: list[list[tuple[int, int, int]]] = []  # for each end of a path: the least sum, the end, the step before
    before = [(0, -1, -1)]
    for path in paths:
        found: list[tuple[int, int, int]] = []
        best, position = -1, 0
        costs: dict[int, int] = {}
        cost = 0
        for slot in path:
            costs.setdefault(slot, cost)
            cost += (1 if slot in taken else 16) + (slot * 40503 >> 4 ^ slot * attempt) % (1 + attempt)
        for slot in sorted(costs):
            while position < len(before) and before[position][1] < slot:
                best = position if best < 0 or before[position][0] < before[best][0] else best
                position += 1
            if best >= 0:
                found.append((before[best][0] + costs[slot], slot, best))
        if not found:
            return []
        steps.append(found)
        before = found
    at = before.index(min(before))
    slots: list[int] = []
    for found in reversed(steps):
        slots.append(found[at][1])
        at = found[at][2]
    return [path[: path.index(slot) + 1] for path, slot in zip(paths, reversed(slots), strict=True)]


def _probes(value: int, mask: int) -> "Iterator[int]":
    """Yield the slots that CPython probes for a member of this hash value."""
    rest = value & (1 << 64) - 1
    slot = value & mask
    while True:
        yield from range(slot, slot + (_NUM_LINEAR_PROBES if slot + _NUM_LINEAR_PROBES <= mask else 0) + 1)
        rest >>= 5
        slot = (slot * 5 + 1 + rest) & mask


def _additions(order: "list[Any]", paths: "list[list[int]]", size: int) -> "Iterator[tuple[list[Any], list[Any]]]":
    """Yield the members, each after members or made-up numbers that fill the slots before the end of its path."""
    number_at = {path[-1]: number for number, path in enumerate(paths)}
    known = set(order)
    placed: list[Any] = []
    others: list[Any] = []
    done: set[int] = set()
    begun: set[int] = set()
    pending = [path[-1] for path in sorted(paths, key=len, reverse=True)]  # those with the shortest paths go first
    while pending:
        slot = pending[-1]
        number = number_at.get(slot)
        missing = [] if number is None else [before for before in paths[number][:-1] if before not in done]
        if missing and slot in begun:
            return  # two members would each have to come first
        begun.add(slot)
        pending += missing
        if not missing:
            pending.pop()
            if slot not in done:
                done.add(slot)
                if number is None:
                    others.append(
                        next(value for value in itertools.count(size * size + slot, size) if value not in known)
                    )
                placed.append(others[-1] if number is None else order[number])
    if paths:
        yield placed, others
