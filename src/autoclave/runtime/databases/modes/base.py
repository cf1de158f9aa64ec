"""What all modes have in common: rows are kept under names, and written back or again under marks of commits.

A mode knows how an action is done and taken back. Which mode an action has is written in its receipt, so what follows
it never asks again: it asks the mode.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, Json, Keep, Reading
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.opened import Databases
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.rows import row_names
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What statements would do.

    Attributes:
        effect: what was found when they were run and rolled back.
        shown: what is kept of it with the plan.
        guarantee: how good its undo would be.
        told: more about it, in words.
        defined: objects whose definition changes, as far as the effect does not tell.
        has_evidence: whether the engine can do just this later by the evidence in the effect.
    """

    effect: Effect
    shown: Effect
    guarantee: Guarantee
    told: tuple[str, ...] = ()
    defined: frozenset[str] = frozenset()
    has_evidence: bool = False


class ActionMode(abc.ABC):
    """How actions are done and taken back. For methods that are named as those of `Manager`, see there."""

    is_left_open: ClassVar[bool] = False

    def __init__(self, databases: Databases, kept: KeptRows) -> None:
        self._databases, self._kept = databases, kept

    # --- Planning ---------------------------------------------------------------------------------------------------

    def read(self, sql: Sql, mode: Mode) -> Reading:
        """What statements are about; see `Engine.read`."""
        return self._databases.engine(sql.database).read(sql, mode)

    @abc.abstractmethod
    def rehearse(self, sql: Sql, mode: Mode, reading: Reading) -> Rehearsed:
        """What statements would do. Raises as `Engine.rehearse`."""

    # --- Doing ------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def execute(self, action: str, sql: Sql, started: Json, keep: Keep, planned: Effect | None) -> None:
        """Do it, and call `keep` before it is committed; `planned` as for `Engine.perform`."""

    def in_receipt(self, action: str, started: Json, effect: Effect) -> Json:
        """What the receipt of an action holds beside what all have."""
        return {"kept_bytes": self._kept.num_bytes(action, started["images"])}

    @abc.abstractmethod
    def was_done(self, action: str, started: Json, mark: Json) -> bool:
        """Whether what was to be committed under this mark was done.

        Raises:
            InDoubt: nobody can tell, at least not now.
        """

    @abc.abstractmethod
    def put_back(self, action: str, started: Json) -> bool: ...

    @abc.abstractmethod
    def keep(self, action: str, receipt: Json) -> None: ...

    @abc.abstractmethod
    def commit(self, action: str, receipt: Json) -> None: ...

    def lapsed(self, action: str, receipt: Json) -> str:
        return ""

    # --- Taking back ------------------------------------------------------------------------------------------------

    def obstacle(self, action: str, receipt: Json) -> str:
        return ""

    @abc.abstractmethod
    def contested(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        """Rows that are not as an action left them, by table and key."""

    @abc.abstractmethod
    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        """JSON data of how to take it back, beside what all modes need; `images` names the rows that will be kept."""

    @abc.abstractmethod
    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None: ...

    def plan_redo(self, action: str, undone: Json, images: str) -> None:
        """Keep, under the name `images`, what is to be written."""
        effect, name = self._kept.get(action, undone["images"]).inverse(), undone["database"]
        if contested := self._databases.engine(name).contested(effect):
            raise InputError(f"action {action}: {', '.join(row_names(name, contested))} changed since it was undone")
        self._kept.put(action, images, effect)

    def differences(self, action: str, receipt: Json) -> list[str]:
        """Lines about an action that was done, beside its rows."""
        return []

    # --- Writing rows -----------------------------------------------------------------------------------------------

    def write(self, action: str, name: str, effect: Effect, database: str, *, is_late: bool) -> None:
        """Write an effect under a mark of this name, unless that was done before a crash.

        Raises:
            Contested, Rejected: as `Engine.write`.
            HostError: the database is busy or away, and nothing was written.
        """
        engine = self._databases.engine(database)
        if is_late and self._was_written(action, name, effect, engine):
            return
        if effect.is_nothing:
            return
        try:
            engine.write(effect, lambda _, mark: self._kept.put_mark(action, name, mark))
        except InDoubt as error:
            if not self._was_written(action, name, effect, engine):
                raise HostError(f"{error}. Fix: try again when the database answers") from None

    def _was_written(self, action: str, name: str, effect: Effect, engine: Engine) -> bool:
        mark = self._kept.get_mark(action, name)
        return mark is not None and engine.was_committed(mark, effect)
