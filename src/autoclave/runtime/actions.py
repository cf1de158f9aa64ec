"""The actions of a journal, and the managers of the worlds that they are about. Looks; decides and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.interface import Json, Manager
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.operations import operation_from
from autoclave.runtime.records import Record
from autoclave.runtime.states import STANDING, ActionState

_S = ActionState


class Actions:
    """What is recorded in `journal` of actions on what `managers` know."""

    def __init__(self, journal: Journal, managers: Sequence[Manager]) -> None:
        self.journal = journal
        self.managers = {do: manager for manager in managers for do in manager.operations}
        self.worlds = tuple(managers)
        self.operations = {do: model for manager in managers for do, model in manager.operations.items()}

    def operation(self, given: Json, where: str = "operation") -> Config:
        """The operation that JSON data says.

        Raises:
            InputError: it is none; the message begins with `where`.
        """
        return operation_from(given, self.operations, where)

    def manager_of(self, standing: Standing) -> Manager:
        """The manager of the world that an action is about.

        Raises:
            InputError: it was not opened.
        """
        do = str(standing.proposed["operation"]["do"])
        if do not in self.managers:
            raise InputError(f"action {standing.action}: {do!r} is of a kind that was not opened")
        return self.managers[do]

    def manager_of_action(self, action: str) -> Manager:
        """Likewise, by the name of the action."""
        return self.manager_of(self.journal.standing(action))

    def receipt(self, action: str) -> dict[str, Any]:
        """What was recorded when it was executed, or done again.

        Raises:
            InputError: it never was.
        """
        return dict(self.last_record(action, (_S.EXECUTED, _S.REDONE)).body)

    def last_record(self, action: str, states: Sequence[ActionState]) -> Record:
        """With which it came to one of these states for the last time.

        Raises:
            InputError: it never did.
        """
        found = [record for record in self.journal.records(action) if record.kind in states]
        if not found:
            raise InputError(f"action {action}: was never {', '.join(states)}")
        return found[-1]

    def footprint(self, action: str) -> Footprint:
        """What an action that was done has read and written."""
        receipt = self.receipt(action)
        sets = (receipt["reads"], receipt["writes"], receipt.get("adds", ()))
        return Footprint(*map(frozenset, sets))

    def standing_order(self) -> list[Standing]:
        """Actions that stand, in the order in which they were done."""
        return sorted(self.journal.standings(STANDING), key=lambda each: each.number)

    def undone_with(self, text: str) -> Iterator[Json]:
        """See `interface.UndoneWith`."""
        for record in self.journal.records_with(text, _S.EXECUTED, _S.REDONE):
            standing = self.journal.standing(record.subject)
            if standing.state not in STANDING or standing.number > record.number:
                yield record.body

    def keep(self, action: str, manager: Manager, receipt: Json) -> None:
        """Put what is kept of an action that was done where it is to stay; if that fails, it is recorded why.

        It stays where it is then, and can be taken back from there.
        """
        try:
            manager.keep(action, receipt)
        except (InputError, OSError) as error:
            self.journal.append("not_kept", action, {"reason": str(error)})

    def discard(self, action: str, manager: Manager, reason: str = "") -> None:
        """Drop what is kept for an action outside of the journal."""
        manager.discard(action)
        self.journal.forget(action, reason)
