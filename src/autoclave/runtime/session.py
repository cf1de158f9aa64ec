"""Actions of all kinds under one journal: proposed, run, undone, redone, committed.

Theory of operation. One process at a time holds the state (a lock) and the resources that its managers change (a lease
each). What an action will change is journalled with `executing` before the first change, and the result with `executed`
after the last. So when a process dies, the next one that opens the state finds each unfinished action and completes or
rolls it back: an action that was being executed is put back and has `failed`; an undo or a redo is completed. Where a
resource is neither as before nor as after, because others changed it meanwhile, the action is in doubt: changes of
others are left alone, and a user settles it. Where a resource was lost, the action is in doubt too, and is settled
automatically when the resource answers again and shows the outcome. Undoing several actions is all or nothing, also
when a process dies: the group is journalled before the first and after the last.
"""

import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from autoclave.config import Config
from autoclave.core import AutoclaveError, HostError, InputError, UsageError
from autoclave.core.closing import Closing
from autoclave.runtime.actions import Actions
from autoclave.runtime.execution import Execution
from autoclave.runtime.footprints import Footprint
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
_SENT = "files are unchanged, and what it did over the network stands"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A planned action: its id, its operation, and the plan, whose digest `run` requires."""

    action: str
    operation: Config
    plan: Plan


class Session(Closing):
    """Actions on the resources of `managers`, in `journal`. Closes `opened`. Not for several threads.

    `name` is recorded with each action, and grants can be limited to it. Without a grant in `permissions` nothing is
    permitted.
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
            journal.seal_after_death()
            self._settle()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._opened.close()

    def asked(self, given: Json) -> Request:
        """Return the accesses that planning an operation makes. Raises NotPermitted where they are not permitted."""
        operation = self.actions.operation(given)
        asked = self.actions.managers[str(given["do"])].asks(operation)
        self.permissions.require_allowed(secrets.token_hex(4), asked)
        return asked

    def plan(self, given: Json) -> Plan:
        """Plan an operation, keeping nothing. Only what planning sent is recorded. Raises as `propose`."""
        proposal, manager = self._planned(given, "caller"), self.actions.managers[str(given["do"])]
        if manager.asks(proposal.operation).guarantee is Guarantee.NONE:
            self._record_proposed(proposal, "caller")
            self.discard(proposal.action, f"it was only planned; {_SENT}")
        else:
            manager.discard(proposal.action)
        return proposal.plan

    def _planned(self, given: Json, by: str) -> Proposal:
        operation, action = self.actions.operation(given), secrets.token_hex(4)
        manager = self.actions.managers[str(given["do"])]
        self.permissions.require_any(action, manager.needs(operation))
        asked = manager.asks(operation)
        self.permissions.use(action, asked)
        try:
            plan = manager.plan(action, operation)
            self.permissions.require_allowed(action, plan.request)
        except BaseException as error:
            manager.discard(action)
            if asked.guarantee is Guarantee.NONE:  # what planning it sent stands
                empty = Plan("", (), asked, Footprint(), asked.guarantee)
                self._record_proposed(Proposal(action, operation, empty), by)
                if isinstance(error, AutoclaveError):
                    told = str(error).removesuffix("; nothing was done")
                    error.action, error.args = action, (f"{told}; {_SENT}",)
                self.journal.advance(action, _S.FAILED, {"reason": str(error)}, seal=True)
                self.journal.forget(action)
            raise
        return Proposal(action, operation, plan)

    def propose(self, given: Json, *, by: str = "caller") -> Proposal:
        """Plan an operation, and record it. Nothing is changed.

        Where planning sends requests and then fails, the action is recorded as failed.

        Raises:
            InputError: it is not a valid operation, or impossible for the resource as it is.
            NotPermitted: no grant covers it, or one forbids it.
        """
        self.actions.make_room()
        proposal = self._planned(given, by)
        self._record_proposed(proposal, by)
        return proposal

    def _record_proposed(self, proposal: Proposal, by: str) -> None:
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

    def run(self, action: str, plan_digest: str, *, approved_by: str = "caller") -> Standing:
        """Execute exactly what was planned. An action with a delay is queued; `run_queued` executes it.

        Raises:
            InputError: it was run or refused before; the resource has changed so that the plan would be another; or it
                failed.
            HostError: the host failed; it was put back.
        """
        self._settle()
        standing = self.journal.standing(action)
        if standing.state is not _S.PROPOSED:
            require_step(action, standing.state, _S.EXECUTING)  # before touching anything that is kept for it
        manager, proposed = self.actions.manager_of(standing), standing.proposed
        self._execution.require_settled(manager)
        operation = self.actions.operation(proposed["operation"], f"action {action}")
        if plan_digest != proposed["plan"]:
            raise InputError(f"action {action}: was planned with digest {proposed['plan']}, not {plan_digest}")
        plan = manager.plan_again(action, operation, proposed.get("kept", {}))
        if plan.digest != plan_digest:
            raise InputError(f"action {action}: its resource has changed since it was planned; propose it again")
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

        What others changed meanwhile is not undone; that is recorded (`atomic_over`).
        """
        return self._undoing.all_or_none()

    def run_queued(self) -> list[Standing]:
        """Execute the approved actions in the outbox whose delay has passed, up to the first that fails."""
        queued = [each for each in self.journal.standings((_S.APPROVED,)) if each.body["delay_s"]]
        due = [each for each in queued if _due_at(each) <= time.time()]
        return [self.run(each.action, str(each.proposed["plan"])) for each in due]

    def discard(self, action: str, reason: str = "") -> Standing:
        """Discard an action that is proposed or queued in the outbox."""
        standing = self.journal.standing(action)
        if standing.state not in (_S.PROPOSED, _S.APPROVED):
            raise InputError(
                f"action {action}: is {standing.state}; only an action that has not begun can be discarded"
            )
        self.journal.advance(action, _S.FAILED, {"reason": reason or "discarded"}, seal=True)
        self.actions.discard(action, self.actions.manager_of(standing))
        return self.journal.standing(action)

    def undo(
        self,
        *actions: str,
        dependents: bool = False,
        choices: Mapping[str, Choice] | None = None,
        on_conflict: Choice = Choice.REFUSE,
    ) -> list[str]:
        """Undo actions, all or none, with `dependents` also later ones that depend on them; return the ids in order.

        For what others have changed since, `choices` apply by name, else `on_conflict`. Raises InputError where an
        action does not stand, later ones depend on it, or others changed what it left; nothing is undone then.
        """
        self._settle()
        names = set(actions)
        for action in actions:
            later = self.dependents_of(action)
            if not dependents and not names.issuperset(later):
                raise InputError(
                    f"action {action}: {', '.join(each for each in later if each not in names)} came later and depend "
                    "on it; undo them first, or as well (--dependents)"
                )
            names |= set(later) if dependents else set()
        order = sorted(names, key=lambda each: self.journal.standing(each).number, reverse=True)
        return self._undoing.undo(order, choices or {}, on_conflict)

    def undo_to(
        self, savepoint: str, *, choices: Mapping[str, Choice] | None = None, on_conflict: Choice = Choice.REFUSE
    ) -> list[str]:
        """Undo all actions since a savepoint that stand, and return their ids; otherwise as `undo`."""
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
        """Redo an action that was undone.

        Raises:
            InputError: it was not undone, or others have changed what its undo restored.
            NotPermitted: it is no longer permitted.
        """
        self._settle()
        manager, redoing = self._execution.plan_redo(action)
        accesses = manager.request_of_redo(action, self.actions.receipt(action), redoing).accesses
        request = Request(accesses, Guarantee(self.journal.standing(action).proposed["guarantee"]))
        self.permissions.require_allowed(action, request)
        self.permissions.require_budget(action, request)
        self._execution.redo(action, manager, redoing)
        return self.journal.standing(action)

    def commit(self, action: str) -> Standing:
        """Make an action permanent. What was kept for its undo is deleted.

        Raises InputError where it does not stand (any more), and HostError where it cannot be committed now.
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
        """Set the state of an action in doubt, after a person has inspected the resource.

        What is kept for it stays: an `executed` action can be undone, and an `undone` one redone if its manager knows
        enough. Raises InputError where it is not in doubt, or cannot have that state.
        """
        standing = self.journal.standing(action)
        if standing.state not in IN_DOUBT:
            raise InputError(f"action {action}: is {standing.state}; only an action in doubt can be resolved")
        body: dict[str, Any] = {"resolved": reason}
        manager = self.actions.manager_of(standing)
        if state in (_S.EXECUTED, _S.REDONE):
            kinds = (_S.EXECUTING, _S.EXECUTED, _S.REDONE)
            body |= manager.accept(action, self.actions.last_record(action, kinds).body)
        elif state is _S.UNDONE:
            last = self.actions.last_record(action, (_S.UNDOING, _S.UNDONE))
            body |= last.body if last.kind == _S.UNDONE else manager.accept_undo(action, last.body)
        self.journal.advance(action, state, body, seal=True)
        return self.journal.standing(action)

    def check_again(self, action: str) -> Standing:
        """Try again to determine the state of an action in doubt. Raises InputError if it is still unknown."""
        self._execution.check_again(action)
        return self.journal.standing(action)

    def savepoint(self, name: str) -> None:
        """Record a savepoint for `undo_to`. Raises InputError where any session has one of that name."""
        text = name.encode(errors="replace").decode()  # what is not text is refused below
        if known := [each for each in self.journal.records(text) if each.kind == "savepoint"]:
            who = known[0].body["session"]
            raise InputError(f"savepoint {name!r}: session {who!r} has one of that name already; give another name")
        self.journal.append("savepoint", name, {"session": self.name})

    def dependents_of(self, action: str) -> list[str]:
        """Return the later actions that stand and depend on this one, directly or indirectly; the latest first."""
        standing = self.journal.standing(action)
        if standing.state not in STANDING:
            raise InputError(f"action {action}: is {standing.state}; only an action that stands can be undone")
        return self.actions.dependents(standing)

    def difference(self, action: str) -> list[str]:
        return self.actions.difference(action)

    def conflicts_of(self, action: str) -> list[str]:
        """Return what others have changed of what an action left."""
        names = [*self.dependents_of(action), action]  # the last first
        manager = self.actions.manager_of_action(action)
        found = manager.conflicts([(name, self.actions.receipt(name)) for name in names])
        return [path for paths in found.values() for path in paths]

    def told(self) -> str:
        """Describe the resources to a model before it proposes anything."""
        return "\n".join(manager.told() for manager in self.actions.all_managers)

    @property
    def operations(self) -> Mapping[str, type[Config]]:
        """The operations that can be proposed, by name (`do`)."""
        return {do: model for do, model in self.actions.operations.items() if do != "observed"}

    def audit(self, known: tuple[int, bytes] | None = None) -> list[Finding]:
        """See `Journal.audit`."""
        return self.journal.audit(known)

    def _settle(self) -> None:
        """Settle actions that are unfinished or in doubt, as far as their resources answer."""
        for settled in (self._execution.recover(), self._undoing.recover(), self._execution.undo_lapsed()):
            self.recovered += settled


def _due_at(approved: Standing) -> float:
    """Return the time from which a queued action may be executed, in seconds since 1970."""
    return approved.at + float(approved.body["delay_s"])
