"""The test of reverse statements: an action and its undo, one after the other, in worlds of generated rows.

What is compared is all that is in the tables, and what they are made of, before and after. Nothing that a statement
returns decides anything. A pass says that the undo is right in each of these worlds, where rows were many kinds of
different: no more. So it is looked at once more when it is used.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from autoclave.core import InputError
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.reversal.drawing import Draw, Recipe
from autoclave.runtime.databases.reversal.ground import Content, Ground, World, changed_tables, concerned, parents_first
from autoclave.runtime.databases.reversal.hints import hints_of

NUM_WORLDS = 6
MIN_WORLDS = 2
"""In so many worlds, at least, an action has to do something."""
_TRIES, _REFUSALS = 6, 3
_STATEMENTS_S = 5.0
"""For all statements of one test together; what takes longer on a few rows may never end."""
_SHOWN, _MORE, _ENOUGH_LOST = 3, 2, 12


class WrongUndo(InputError):
    """Reverse statements do not bring back what was."""


class NotTestable(InputError):
    """Nothing can be said of reverse statements, so they are not used."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A test that was passed.

    Attributes:
        num_worlds: in which the action did something, each with other rows.
        changed: tables that it changed in any of them.
        counters: names of counters that are not as before, which is not required.
    """

    num_worlds: int
    changed: tuple[str, ...]
    counters: tuple[str, ...] = ()


def recipes(num_worlds: int, seed: int) -> Iterator[Recipe]:
    """Worlds to be tried, as many as are needed for so many that tell something."""
    sizes, avoids = (8, 10, 4, 8, 12), (1, 0, 1, 0, 2)
    for number in range(num_worlds * 3):
        yield Recipe(
            1000 * seed + number + 1, sizes[number % len(sizes)], avoids[number % len(avoids)], number % 4 == 3
        )


def try_out(ground: Ground, act: Sql, undo: Sql, *, num_worlds: int = NUM_WORLDS, seed: int = 0) -> Trial:
    """Test reverse statements.

    Raises:
        WrongUndo: they fail, or something is not as before after them.
        NotTestable: the action fails, changes nothing in nearly all worlds, or takes too long.
    """
    hints = hints_of(act, undo, ground.shape)
    schema = ground.shape.schema
    tables = [
        place
        for place in concerned(ground.shape, (*act.statements, *undo.statements))
        if not schema.tables[place].is_view
    ]
    order = parents_first(schema, tables)
    changed, counters = dict[str, None](), dict[str, None]()
    empty = {place for place in hints.tables if place in order}
    num_tested, num_lost, why, spent_s = 0, 0, "it changes nothing", 0.0
    for recipe in recipes(num_worlds, seed):
        if spent_s > _STATEMENTS_S:
            raise NotTestable(
                f"undo: cannot be tested: on a few rows the statements take longer than {_STATEMENTS_S:g} s; "
                "leave it out, and rows are kept"
            )
        with ground.world() as world:
            fill(world, Draw(ground.shape, hints, recipe), order, hints.tables)
            began = time.monotonic()
            try:
                found = _both_ways(world, act, undo)
            except _Idle as idle:
                why = f"{idle}"
                continue
            finally:
                spent_s += time.monotonic() - began
        num_tested += 1
        empty -= found.filled
        num_lost += found.num_lost
        changed.update(dict.fromkeys(found.changed))
        counters.update(dict.fromkeys(found.counters))
        if num_tested >= num_worlds and (not num_lost or num_lost >= _ENOUGH_LOST):
            break
    if num_tested < MIN_WORLDS:
        raise NotTestable(
            f"undo: cannot be tested: on rows that are made for it, the action does nothing to be undone ({why}); "
            "leave it out, and rows are kept"
        )
    if empty:
        raise NotTestable(
            f"undo: cannot be tested: no rows were found that {min(empty)} takes; leave it out, and rows are kept"
        )
    return Trial(num_tested, tuple(changed), tuple(counters))


@dataclass(frozen=True, slots=True)
class _Found:
    """What was seen in one world.

    Attributes:
        changed: tables that the action changed.
        filled: tables that had rows before.
        num_lost: rows that the action took or changed, all of which came back.
        counters: those that are not as before.
    """

    changed: list[str]
    filled: set[str]
    num_lost: int
    counters: list[str]


class _Idle(Exception):
    """A world in which nothing is done."""


def fill(world: World, draw: Draw, order: Sequence[str], named: Collection[str]) -> None:
    """Put rows into tables of a world, in this order; more into those that statements name."""
    for place in order:
        refused = 0
        for _ in range(draw.recipe.num_rows * (_MORE if place in named else 1)):
            for _ in range(_TRIES):
                row = draw.row(place)
                if row is not None and world.insert(place, row):
                    draw.accept(place, row)
                    refused = 0
                    break
            else:
                refused += 1
                if refused == _REFUSALS:
                    break
    for place, key, values in draw.late(order):
        world.refer(place, key, values)
    world.settle()


def _both_ways(world: World, act: Sql, undo: Sql) -> _Found:
    """Do and undo, twice."""
    before, counters = world.content(), world.counters()
    changed: list[str] = []
    first: Content = {}
    for is_again in (False, True):
        try:
            world.run(act)
        except InputError as error:
            if is_again:
                raise WrongUndo(f"undo: is wrong: after it the action cannot be done again ({error})") from None
            raise _Idle(f"{error}") from None
        after = world.content()
        first = first or after
        changed = changed_tables(before, after)
        if not changed:
            if is_again:  # it does something else each time
                break
            raise _Idle("it changes nothing")
        try:
            world.run(undo)
        except InputError as error:
            raise WrongUndo(f"undo: is wrong: it fails after the action ({error})") from None
        if wrong := changed_tables(before, now := world.content()):
            raise WrongUndo(f"undo: is wrong: {_told(wrong, before, now)} would not be as before")
    moved = world.counters()
    lost = sum(_missing(before[name], first.get(name, ())).total() for name in changed_tables(before, first))
    return _Found(
        list(changed),
        {name for name, rows in before.items() if rows},
        lost,
        [name for name in {**counters, **moved} if counters.get(name) != moved.get(name)],
    )


def _told(wrong: list[str], before: Content, now: Content) -> str:
    """Tables and how many of their rows, without values."""
    lines: list[str] = []
    for name in wrong[:_SHOWN]:
        there, here = before.get(name, ()), now.get(name, ())
        missing, new = _missing(there, here).total(), _missing(here, there).total()
        lines.append(f"table {name} ({missing} rows missing, {new} that were not there)")
    return "; ".join(lines)


def _missing(rows: Sequence[str], others: Sequence[str]) -> Counter[str]:
    """Rows that others have not, or not as often."""
    return Counter(rows) - Counter(others)
