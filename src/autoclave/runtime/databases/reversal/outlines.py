"""What an action did to rows, as digests: enough to tell whether its undo brings back what was, and nothing else. Pure.

Statements that are to take an action back must remove exactly the rows that it brought, as it left them, and bring
exactly those that it took. So the digests of both say whether somebody has changed a row since, whether a row would be
another than before, and whether more would be changed than the action did.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import Effect, Image

Outline = Callable[[Image], Image]
_SIGN = "sha256:"


def outlined(effect: Effect, outline: Outline) -> Effect:
    """An effect with digests for rows. Of an effect that has digests already: the same."""

    def digest(image: Image) -> Image:
        if is_digest(image[1]):
            return image
        key, data = outline(image)
        return key, f"{_SIGN}{hashlib.sha256(canonical_json(data)).hexdigest()}"

    tables = (
        replace(each, removed=tuple(map(digest, each.removed)), added=tuple(map(digest, each.added)))
        for each in effect.tables
    )
    return replace(effect, tables=tuple(tables))


def is_digest(data: object) -> bool:
    """Whether what an image holds is a digest."""
    return isinstance(data, str) and data.startswith(_SIGN)


@dataclass(frozen=True, slots=True)
class Deviation:
    """How statements that were run to take an action back differ from its inverse. Rows by table and key.

    Attributes:
        contested: the action left them otherwise than they were found.
        beyond: the action did not touch them.
        otherwise: they would not be as they were before the action.
    """

    contested: tuple[tuple[str, str], ...] = ()
    beyond: tuple[tuple[str, str], ...] = ()
    otherwise: tuple[tuple[str, str], ...] = ()


def deviation(undo: Effect, act: Effect) -> Deviation:
    """How an undo differs from the inverse of an action, both as digests of the same outlines."""
    own = _by_table(act)
    done = _by_table(undo)
    contested, beyond, otherwise = dict[tuple[str, str], None](), dict[tuple[str, str], None](), list[tuple[str, str]]()
    for table in sorted({*own, *done}):
        took, brought = own.get(table, (Counter[Image](), Counter[Image]()))
        removed, added = done.get(table, (Counter[Image](), Counter[Image]()))
        touched = {key for key, _ in (*took, *brought)}
        wrong = (removed - brought) + (brought - removed)
        contested.update(dict.fromkeys((table, key) for key, _ in wrong if key in touched))
        beyond.update(dict.fromkeys((table, key) for key, _ in (*removed, *added) if key not in touched))
        differing = dict.fromkeys(key for key, _ in (added - took) + (took - added) if key in touched)
        otherwise += [(table, key) for key in differing if (table, key) not in contested]
    return Deviation(tuple(contested), tuple(beyond), tuple(otherwise))


def outcome_differs(undo: Effect, act: Effect) -> Iterator[tuple[str, str]]:
    """Rows that an undo leaves otherwise than they were before the action, whoever changed them meanwhile."""
    own, done = _by_table(act), _by_table(undo)
    for table in sorted({*own, *done}):
        took = own.get(table, (Counter[Image](), Counter[Image]()))[0]
        added = done.get(table, (Counter[Image](), Counter[Image]()))[1]
        yield from ((table, key) for key, _ in (added - took) + (took - added))


def _by_table(effect: Effect) -> dict[str, tuple[Counter[Image], Counter[Image]]]:
    return {each.table: (Counter(each.removed), Counter(each.added)) for each in effect.tables}
