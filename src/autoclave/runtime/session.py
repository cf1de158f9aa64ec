"""Actions of all kinds under one journal: proposed, run, taken back, done again, committed.

Theory of operation. One process at a time has the state (a lock), and the resources that its managers change (a lease
each). What an action will change is journalled with `executing` before the first change, and what it has become with
`executed` after the last. So when a process dies, the next one that opens the state finds each unfinished action and
brings it to one side: an action that was being executed is put back and has `failed`, an undo or a redo is brought to
its end. Where a resource is neither as before nor as after, because somebody else changed it meanwhile, the action is
in doubt: what is not its own is left alone, and a user settles it. Where a resource was lost, the action is in doubt
too, and is settled by itself when the resource answers again and shows how it ended. Several actions are undone all or
none, also when a process dies: that they belong together is journalled before the first and after the last.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from autoclave.config import Config
from autoclave.core import HostError, InputError, UsageError
from autoclave.core.closing import Closing
from autoclave.runtime.actions import Actions
from autoclave.runtime.execution import Execution
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, Plan
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.decision import shown_decision
from autoclave.runtime.policy.request import Request
from autoclave.runtime.records import Finding
from autoclave.runtime.states import IN_DOUBT, STANDING, ActionState, require_step
from autoclave.runtime.undoing import Undoing

_S = ActionState


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action that was planned: its name, what it would do, and the digest of the plan that `run` wants back."""

    action: str
    operation: Config
    plan: Plan


class Session(Closing):
    """Actions on what `managers` know, in `journal`. Closes all that is in `opened`. Not for several threads.

    `name` is recorded with each action, so that those of one purpose can be told from others, and grants can be for it
    alone. Without a grant in `permissions` nothing is permitted.
    """

    def __init__(
        self,
        journal: Journal,
        managers: Sequence[Manager],
        permissions: Permissions,
        opened: contextlib.ExitStack | None = None,
        *,
        name: str = "main",
    ) -> None:
        self.journal, self.name, self.permissions = journal, name, permissions
        self.actions = Actions(journal, managers)
        self._execution = Execution(self.actions, permissions)
        self._undoing = Undoing(self.actions, self._execution)
        self._opened = opened or contextlib.ExitStack()
        self.recovered = list[str]()
        try:
            self._settle()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._opened.close()

    # --- Doing ------------------------------------------------------------------------------------------------------

    def plan(self, given: Json) -> Plan:
        """Plan an operation. Nothing is recorded, and nothing kept. Raises InputError where it cannot be done."""
        proposal = self._planned(given)
        self.actions.managers[str(given["do"])].discard(proposal.action)
        return proposal.plan

    def _planned(self, given: Json) -> Proposal:
        operation, action = self.actions.operation(given), secrets.token_hex(4)
        manager = self.actions.managers[str(given["do"])]
        self.permissions.use(action, manager.asks(operation))
        try:
            plan = manager.plan(action, operation)
            self.permissions.require_allowed(action, plan.request)
        except BaseException:
            manager.discard(action)
            raise
        return Proposal(action, operation, plan)

    def propose(self, given: Json, *, by: str = "caller") -> Proposal:
        """Plan an operation, and record it. Nothing is changed.

        Raises:
            InputError: it is no operation, or cannot be done to the resource as it is.
            NotPermitted: no grant covers it, or one forbids it.
        """
        self.actions.make_room()
        proposal = self._planned(given)
        plan = proposal.plan
        told = {
            "session": self.name,
            "by": by,
            "operation": proposal.operation.model_dump(mode="json"),
            "plan": plan.digest,
            "guarantee": plan.guarantee,
            "weight": plan.request.weight,
        }
        num_bytes = sum(access.bytes_written for access in plan.request.accesses) if plan.kept else 0
        told |= {"kept": plan.kept} if plan.kept else {}
        told |= {"left_open": True} if plan.is_left_open else {}
        self.journal.advance(proposal.action, _S.PROPOSED, told, kept_bytes=num_bytes)
        return proposal

    def run(self, action: str, plan_digest: str, *, approved_by: str = "caller") -> Standing:
        """Do what was planned, exactly that. An action with a delay is queued; `run_queued` executes it.

        Raises:
            InputError: it was run or refused before; the resource has changed so that it would be something else; or it
                cannot be done.
            HostError: the machine cannot; it was put back.
        """
        self._settle()
        standing = self.journal.standing(action)
        if standing.state is not _S.PROPOSED:
            require_step(action, standing.state, _S.EXECUTING)  # before anything that is kept for it is touched
        manager, proposed = self.actions.manager_of(standing), standing.proposed
        self._execution.require_settled(manager)
        operation = self.actions.operation(proposed["operation"], f"action {action}")
        if plan_digest != proposed["plan"]:
            raise InputError(f"action {action}: was planned with digest {proposed['plan']}, not {plan_digest}")
        plan = manager.plan_again(action, operation, proposed.get("kept", {}))
        if plan.digest != plan_digest:
            raise InputError(f"action {action}: what it is about has changed since it was planned; propose it again")
        asked = manager.asks(operation)
        whole = Request((*asked.accesses, *plan.request.accesses), plan.guarantee)
        decision = self.permissions.require_allowed(action, whole)
        if plan.is_read:
            self.journal.advance(action, _S.READ, {"by": approved_by, **shown_decision(decision)}, seal=True)
            return self.journal.standing(action)
        self.permissions.require_budget(action, whole)
        self.actions.make_room(action)
        if standing.state is _S.PROPOSED:
            approval = {"by": approved_by, "delay_s": plan.delay_s, **shown_decision(decision)}
            self.journal.advance(action, _S.APPROVED, approval)
            if plan.delay_s:
                return self.journal.standing(action)
        elif (due_at := _due_at(standing)) > time.time():
            raise InputError(
                f"action {action}: is queued for another {due_at - time.time():.0f} s; it can be discarded"
            )
        started = manager.prepare(action, operation, plan)
        self._execution.execute(action, manager, started)
        return self.journal.standing(action)

    def atomic(self) -> AbstractContextManager[None]:
        """Do all that is run in a block, or nothing: if it raises, or the process dies, what was done is undone.

        What others have changed meanwhile is not undone; that is recorded (`atomic_over`).
        """
        return self._undoing.all_or_none()

    def run_queued(self) -> list[Standing]:
        """Execute the approved actions in the outbox whose delay has passed, up to the first that fails."""
        queued = [each for each in self.journal.standings((_S.APPROVED,)) if each.body["delay_s"]]
        due = [each for each in queued if _due_at(each) <= time.time()]
        return [self.run(each.action, str(each.proposed["plan"])) for each in due]

    def discard(self, action: str, reason: str = "") -> Standing:
        """Discard an action that was proposed or is queued in the outbox, before anything has happened."""
        standing = self.journal.standing(action)
        if standing.state not in (_S.PROPOSED, _S.APPROVED):
            raise InputError(
                f"action {action}: is {standing.state}; only an action that has not begun can be discarded"
            )
        self.journal.advance(action, _S.FAILED, {"reason": reason or "discarded"}, seal=True)
        self.actions.discard(action, self.actions.manager_of(standing))
        return self.journal.standing(action)

    # --- Taking back ------------------------------------------------------------------------------------------------

    def undo(
        self,
        *actions: str,
        dependents: bool = False,
        choices: Mapping[str, Choice] | None = None,
        on_conflict: Choice = Choice.REFUSE,
    ) -> list[str]:
        """Undo actions, all or none, and with `dependents` those after them that depend on them; the ids in that order.

        Where somebody else has changed something since, `choices` say by its name what becomes of it, else
        `on_conflict`. Raises InputError where one does not stand, later actions depend on it, or others changed what it
        left; nothing was undone.
        """
        self._settle()
        names = set(actions)
        for action in actions:
            later = self.dependents_of(action)
            if not dependents and not names.issuperset(later):
                raise InputError(
                    f"action {action}: {', '.join(each for each in later if each not in names)} came later and depend "
                    "on it; undo them as well (--dependents), or first"
                )
            names |= set(later) if dependents else set()
        order = sorted(names, key=lambda each: self.journal.standing(each).number, reverse=True)
        return self._undoing.undo(order, choices or {}, on_conflict)

    def undo_to(
        self, savepoint: str, *, choices: Mapping[str, Choice] | None = None, on_conflict: Choice = Choice.REFUSE
    ) -> list[str]:
        """Undo all actions since a savepoint that still stand, and return their ids; otherwise as `undo`."""
        self._settle()
        numbers = [record.number for record in self.journal.records(savepoint) if record.kind == "savepoint"]
        if not numbers:
            raise UsageError(f"savepoint {savepoint!r}: there is none")
        since = [each.action for each in self.actions.standing_order() if each.number > numbers[-1]]
        return self._undoing.undo(since[::-1], choices or {}, on_conflict)

    def undo_group(
        self, number: int, *, choices: Mapping[str, Choice] | None = None, on_conflict: Choice = Choice.REFUSE
    ) -> list[str]:
        """Undo a group of actions that commute, as `groups` numbers them from 1; otherwise as `undo`."""
        self._settle()
        found = self.actions.groups()
        if not 1 <= number <= len(found):
            raise UsageError(f"group {number}: there are {len(found)}")
        return self.undo(*found[number - 1], choices=choices, on_conflict=on_conflict)

    def redo(self, action: str) -> Standing:
        """Do again what was undone.

        Raises:
            InputError: it was not undone, or somebody has changed what was there before.
            NotPermitted: it is not permitted any more.
        """
        self._settle()
        manager, redoing = self._execution.plan_redo(action)
        accesses = manager.request_of_redo(action, self.actions.receipt(action), redoing).accesses
        request = Request(accesses, Guarantee(self.journal.standing(action).proposed["guarantee"]))
        self.permissions.require_allowed(action, request)
        self.permissions.require_budget(action, request)
        self._execution.redo(action, manager, redoing)
        return self.journal.standing(action)

    # --- Settling ---------------------------------------------------------------------------------------------------

    def commit(self, action: str) -> Standing:
        """Keep what an action did for good. What was kept to take it back is removed.

        Raises InputError where it does not stand, or not any more, and HostError where that cannot be now.
        """
        self._settle()
        standing = self.journal.standing(action)
        require_step(action, standing.state, _S.COMMITTED)
        manager = self.actions.manager_of(standing)
        try:
            manager.commit(action, self.actions.receipt(action))
        except InDoubt as error:
            raise HostError(f"action {action}: {error}. Fix: commit it again") from None
        self.journal.advance(action, _S.COMMITTED, seal=True)
        self.actions.discard(action, manager)
        return self.journal.standing(action)

    def resolve(self, action: str, state: ActionState, reason: str) -> Standing:
        """Say how an action that is in doubt stands, after somebody has looked.

        What is kept for it stays, as the state wants it: what is `executed` can be undone, what is `undone` redone.
        Raises InputError where it is not in doubt, or cannot stand so.
        """
        standing = self.journal.standing(action)
        if standing.state not in IN_DOUBT:
            raise InputError(f"action {action}: is {standing.state}; what is in doubt is resolved")
        body: dict[str, Any] = {"resolved": reason}
        if state is _S.EXECUTED:
            kinds = (_S.EXECUTING, _S.EXECUTED, _S.REDONE)
            body |= self.actions.manager_of(standing).accept(action, self.actions.last_record(action, kinds).body)
        self.journal.advance(action, state, body, seal=True)
        return self.journal.standing(action)

    def check_again(self, action: str) -> Standing:
        """Try once more to find out how an action in doubt stands. Raises InputError if nobody can tell yet."""
        self._execution.check_again(action)
        return self.journal.standing(action)

    def savepoint(self, name: str) -> None:
        """Record a savepoint, to which `undo_to` goes back."""
        self.journal.append("savepoint", name, {"session": self.name})

    # --- Looking ----------------------------------------------------------------------------------------------------

    def dependents_of(self, action: str) -> list[str]:
        """Actions that stand, came later, and depend on this one, directly or by others of them; the last first."""
        standing = self.journal.standing(action)
        if standing.state not in STANDING:
            raise InputError(f"action {action}: is {standing.state}; what stands can be undone")
        return self.actions.dependents(standing)

    def difference(self, action: str) -> list[str]:
        """See `Actions.difference`."""
        return self.actions.difference(action)

    def conflicts_of(self, action: str) -> list[str]:
        """What somebody else has changed of what an action left."""
        names = [*self.dependents_of(action), action]  # the last first
        manager = self.actions.manager_of_action(action)
        found = manager.conflicts([(name, self.actions.receipt(name)) for name in names])
        return [path for paths in found.values() for path in paths]

    def told(self) -> str:
        """What a model may know of the resources before it proposes anything."""
        return "\n".join(manager.told() for manager in self.actions.all_managers)

    @property
    def operations(self) -> Mapping[str, type[Config]]:
        """What can be proposed, by its name (`do`)."""
        return self.actions.operations

    def audit(self, known: tuple[int, bytes] | None = None) -> list[Finding]:
        """What was done to the journal by others; see `Journal.audit`."""
        return self.journal.audit(known)

    def _settle(self) -> None:
        """Settle first what is unfinished or in doubt, as far as its resource answers."""
        for settled in (self._execution.recover(), self._undoing.recover(), self._execution.undo_lapsed()):
            self.recovered += settled


def _due_at(approved: Standing) -> float:
    """The time from which a queued action may be executed, in seconds since 1970."""
    return approved.at + float(approved.body["delay_s"])
