"""What all modes have in common: rows are kept under names, and written back or again under marks of commits.

A mode knows how an action is done and taken back. Which mode an action has is written in its receipt, so what follows
it never asks again: it asks the mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, Json, Reading
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.opened import Databases
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.guarantee import Guarantee


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What statements would do.

    Attributes:
        effect: what was found when they were run and rolled back.
        guarantee: how good its undo would be.
        told: more about it, in words.
        defined: objects whose definition changes, as far as the effect does not tell.
        uses_undo: whether the supplied undo was proved to restore exactly what the statements change.
    """

    effect: Effect
    guarantee: Guarantee
    told: tuple[str, ...] = ()
    defined: frozenset[str] = frozenset()
    uses_undo: bool = False


class ActionMode:
    """The part that all modes share. For methods that are named as those of `Manager`, see there."""

    is_left_open: ClassVar[bool] = False

    def __init__(self, databases: Databases[Engine], kept: KeptRows) -> None:
        self._databases, self._kept = databases, kept

    def read(self, sql: Sql, mode: Mode) -> Reading:
        """What statements are about; see `Engine.read`."""
        return self._databases.engine(sql.database).read(sql, mode)

    def in_receipt(self, action: str, started: Json, effect: Effect) -> Json:
        """What the receipt of an action holds beside what all have."""
        return {"kept_bytes": self._kept.num_bytes(action, started["images"])}

    def lapsed(self, action: str, receipt: Json) -> str:
        return ""

    def obstacle(self, action: str, receipt: Json) -> str:
        return ""

    def differences(self, action: str, receipt: Json) -> list[str]:
        """Lines about an action that was done, beside its rows."""
        return []
