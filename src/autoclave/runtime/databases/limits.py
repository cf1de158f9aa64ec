"""How far one action may go, by the settings of its database. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.settings import DatabaseConnection


def too_many(max_rows: int) -> str:
    """What is said where more rows would change."""
    return f"changes more than {max_rows} rows (max_rows); do it in parts, or have the limit raised"


def require_limits(where: str, effect: Effect, settings: DatabaseConnection, num_left: Callable[[str], int]) -> None:
    """Check what statements did. `num_left`: how many rows a table has now; asked where a share is limited.

    Raises:
        InputError: it is too much.
    """
    if effect.num_rows > settings.max_rows:
        raise InputError(f"{where}: {too_many(settings.max_rows)}")
    counts: dict[str, Counter[str]] = {}
    for table, verb, rows in effect.row_counts() if settings.max_share < 1 else ():
        counts.setdefault(table, Counter())[verb] += rows
    for table, found in counts.items():
        before = num_left(table) + found["delete"] - found["create"]
        if found["modify"] + found["delete"] > settings.max_share * max(before, 1):
            raise InputError(f"{where}: table {table}: changes a larger share of its rows than max_share")
