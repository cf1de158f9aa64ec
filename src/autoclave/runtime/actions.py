"""The actions of a journal, and the managers of their resources. Reads only: decides and changes nothing."""

import heapq
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from autoclave.config import Config
from autoclave.core import HostError, InputError, UsageError
from autoclave.core.json import first_error, nearest, rule_of, shown
from autoclave.runtime.footprints import Done, Footprint, groups, meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Json, Manager
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.records import Record
from autoclave.runtime.states import STANDING, ActionState

_S = ActionState
_MOST_KEPT = 10 << 30
"""Bytes that all actions together may keep to be undone and redone."""
_KEPT_S = 30 * 86_400.0
"""The time for which an undone action can be redone, a failed one is kept, and a proposed one can be run."""
_NUM_FORGOTTEN = 64
"""The number of actions that are checked for their age before each new one."""


class Actions:
    """The actions in `journal` on the resources of `managers`."""

    def __init__(self, journal: Journal, managers: Sequence[Manager]) -> None:
        self.journal = journal
        self.managers = {do: manager for manager in managers for do in manager.operations}
        self.all_managers = tuple(managers)
        self.operations = {do: model for manager in managers for do, model in manager.operations.items()}

    def operation(self, given: Json, where: str = "operation") -> Config:
        """Return the operation that JSON data describes; messages begin with `where`."""
        return operation_from(given, self.operations, where)

    def manager_of(self, standing: Standing) -> Manager:
        """Return the manager of the resource that an action changes. Raises InputError where it was not opened."""
        do = str(standing.proposed["operation"]["do"])
        if do not in self.managers:
            raise InputError(f"action {standing.action}: {do!r} is of a kind that was not opened")
        return self.managers[do]

    def manager_of_action(self, action: str) -> Manager:
        return self.manager_of(self.journal.standing(action))

    def receipt(self, action: str) -> dict[str, Any]:
        """Return the receipt of its latest execution or redo."""
        return dict(self.last_record(action, (_S.EXECUTED, _S.REDONE)).body)

    def last_record(self, action: str, states: Sequence[ActionState]) -> Record:
        """Return the latest record of one of these states. Raises InputError if there is none."""
        found = [record for record in self.journal.records(action) if record.kind in states]
        if not found:
            raise InputError(f"action {action}: was never {', '.join(states)}")
        return found[-1]

    def footprint(self, action: str) -> Footprint:
        """Return what an executed action read and wrote."""
        receipt = self.receipt(action)
        return Footprint(frozenset(receipt["reads"]), frozenset(receipt["writes"]))

    def difference(self, action: str) -> list[str]:
        """Return lines that show what an action would change, has changed, or had changed before it was undone."""
        standing = self.journal.standing(action)
        if standing.state is _S.COMMITTED:
            raise InputError(f"action {action}: is committed, and what it replaced is no longer kept")
        if standing.state is _S.READ:
            return []
        manager = self.manager_of(standing)
        operation = self.operation(standing.proposed["operation"], f"action {action}")
        is_done = standing.state in STANDING
        receipt = self.receipt(action) if is_done or standing.state is _S.UNDONE else standing.proposed.get("kept")
        return manager.difference(action, operation, receipt, is_done=is_done)

    def standing_order(self) -> list[Standing]:
        """Return the actions that stand, in the order of their execution."""
        return sorted(self.journal.standings(STANDING), key=lambda each: each.number)

    def dependents(self, standing: Standing) -> list[str]:
        """Return the later actions that stand and depend on this one, directly or indirectly; the latest first."""
        written, found = self.footprint(standing.action).writes, list[str]()
        ahead = self.journal.touching(written, standing.number)
        heapq.heapify(ahead)
        while ahead:  # in the order of execution; an action that touches several keys comes several times
            number, action = heapq.heappop(ahead)
            footprint = self.footprint(action)
            if action not in found and meet(footprint.reads | footprint.writes, written):
                written |= footprint.writes
                found.append(action)
                for each in self.journal.touching(footprint.writes, number):
                    heapq.heappush(ahead, each)
        return found[::-1]

    def groups(self) -> list[list[str]]:
        """Return the actions that stand, in groups of actions that commute; see `footprints.groups`."""
        savepoints = [record.at for record in self.journal.records_of_kinds("savepoint")]
        done = (
            Done(each.action, self.footprint(each.action), each.at, each.proposed["guarantee"] == Guarantee.NONE)
            for each in self.standing_order()
        )
        return groups(done, savepoints)

    def undone_with(self, mark: str) -> Iterator[Json]:
        for record in self.journal.records_with(mark):
            standing = self.journal.standing(record.subject)
            if standing.state not in STANDING or standing.number > record.number:
                yield record.body

    def discard(self, action: str, manager: Manager, reason: str = "") -> None:
        """Delete what is kept for an action outside the journal."""
        manager.discard(action)
        self.journal.forget(action, reason)

    def make_room(self, action: str = "") -> None:
        """Delete what is kept for actions that are too old, then for the oldest until the quota holds.

        Never for `action` or actions that stand. Raises HostError where those alone exceed the quota.
        """
        kept, oldest = self.journal.kept_bytes(), time.time() - _KEPT_S
        number = -1 if kept > _MOST_KEPT else _NUM_FORGOTTEN
        for forgotten, at, num_bytes in self.journal.forgettable(action, number):
            if at < oldest or (kept > _MOST_KEPT and num_bytes):
                self.discard(forgotten, self.manager_of_action(forgotten), "retention")
                kept -= num_bytes
        if kept > _MOST_KEPT:
            raise HostError(
                f"{kept} bytes are kept to undo what stands, more than the quota of {_MOST_KEPT}. Fix: commit actions "
                "that are to stay"
            )


def operation_from(given: Mapping[str, Any], known: Mapping[str, type[Config]], where: str) -> Config:
    """Return the operation that JSON data describes; a UsageError begins with `where`."""
    name = given.get("do")
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"{where}: do = {shown(name)}: no such operation; {nearest(str(name), sorted(known))}")
    try:  # text, or bytes as Python has them in names (surrogate escapes)
        json.dumps(given, ensure_ascii=False, default=repr).encode("utf-8", "surrogateescape")
    except RecursionError:
        raise UsageError(f"{where}: is nested too deeply") from None
    except UnicodeEncodeError:
        raise UsageError(f"{where}: has half a character (a lone surrogate), which no file system accepts") from None
    try:
        return known[name].model_validate(given)
    except ValidationError as error:
        first = first_error(error)
        place = ".".join(str(part) for part in first["loc"]) or "do"
        raise UsageError(f"{where}: {place}: {rule_of(first['msg'])}") from None
