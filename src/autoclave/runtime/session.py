"""Actions of all kinds under one journal: proposed, run, taken back, done again, committed.

Theory of operation. One process at a time has the state (a lock), and the worlds that its managers change (a lease
each). What an action will change is journalled with `executing` before the first change, and what it has become with
`executed` after the last. So when a process dies, the next one that opens the state finds each unfinished action and
brings it to one side: an action that was being executed is put back and has `failed`, an undo or a redo is brought to
its end. Where the world is neither as before nor as after, because somebody else changed it meanwhile, the action is in
doubt: what is not its own is left alone, and a person settles it. Several actions are taken back all or none, also when
a process dies: that they belong together is journalled before the first and after the last.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.config import Config
from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.closing import Closing
from autoclave.runtime.actions import Actions
from autoclave.runtime.footprints import Done, GroupLimits, dependents, groups
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, NotPermitted, NotUndone, Plan
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.decision import shown_decision
from autoclave.runtime.policy.request import Request
from autoclave.runtime.records import Finding
from autoclave.runtime.retention import Retention, due
from autoclave.runtime.states import STANDING, UNFINISHED, ActionState, require_step
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
        retention: Retention | None = None,
    ) -> None:
        self.journal, self.name, self.permissions = journal, name, permissions
        self.actions = Actions(journal, managers)
        self._undoing = Undoing(self.actions)
        self._opened = opened or contextlib.ExitStack()
        self._retention = retention or Retention()
        try:
            self.recovered = list(self._recover())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._opened.close()

    # --- Doing ------------------------------------------------------------------------------------------------------

    def plan(self, given: Json) -> Plan:
        """What an operation would do. Nothing is recorded, and nothing kept.

        Raises:
            InputError: it is no operation, or cannot be done to the world as it is.
        """
        operation, action = self.actions.operation(given), secrets.token_hex(4)
        manager = self.actions.managers[str(given["do"])]
        self.permissions.use(action, manager.asks(operation), self._risks())
        try:
            plan = manager.plan(action, operation)
            self.permissions.require_allowed(action, plan.request)
            return plan
        finally:
            manager.discard(action)

    def propose(self, given: Json, *, by: str = "caller") -> Proposal:
        """Plan an operation, and record it. The world stays as it is.

        Raises:
            InputError: it is no operation, or cannot be done to the world as it is.
            NotPermitted: no grant covers it, or one forbids it.
        """
        operation, action = self.actions.operation(given), secrets.token_hex(4)
        self._make_room()
        manager = self.actions.managers[str(given["do"])]
        self.permissions.use(action, manager.asks(operation), self._risks())
        plan = manager.plan(action, operation)
        try:
            self.permissions.require_allowed(action, plan.request)
        except NotPermitted:
            manager.discard(action)
            raise
        told = {
            "session": self.name,
            "by": by,
            "operation": operation.model_dump(mode="json"),
            "plan": plan.digest,
            "guarantee": plan.guarantee,
            "weight": plan.request.weight,
        }
        num_bytes = sum(access.bytes_written for access in plan.request.accesses) if plan.kept else 0
        told |= {"kept": plan.kept} if plan.kept else {}
        told |= {"left_open": True} if plan.is_left_open else {}
        self.journal.advance(action, _S.PROPOSED, told, kept_bytes=num_bytes)
        return Proposal(action, operation, plan)

    def run(self, action: str, plan_digest: str, *, approved_by: str = "caller") -> Standing:
        """Do what was planned, exactly that. What is held for a time is approved by this, and done by `release`.

        Raises:
            InputError: it was run or refused before; the world has changed so that it would be something else; or it
                cannot be done.
            HostError: the machine cannot; it was put back.
        """
        self._settle()
        standing = self.journal.standing(action)
        if standing.state is not _S.PROPOSED:
            require_step(action, standing.state, _S.EXECUTING)  # before anything that is kept for it is touched
        manager, proposed = self.actions.manager_of(standing), standing.proposed
        operation = self.actions.operation(proposed["operation"], f"action {action}")
        if plan_digest != proposed["plan"]:
            raise InputError(f"action {action}: was planned with digest {proposed['plan']}, not {plan_digest}")
        plan = manager.plan_again(action, operation, proposed.get("kept", {}))
        if plan.digest != plan_digest:
            raise InputError(f"action {action}: what it is about has changed since it was planned; propose it again")
        asked = manager.asks(operation)
        whole = Request((*asked.accesses, *plan.request.accesses), plan.guarantee)
        decision = self.permissions.require_allowed(action, whole)
        self.permissions.require_budget(action, whole, [each for each in self._risks() if each.action != action])
        self._make_room(action)
        if standing.state is _S.PROPOSED:
            approval = {"by": approved_by, "hold_s": plan.hold_s, **shown_decision(decision)}
            self.journal.advance(action, _S.APPROVED, approval)
            if plan.hold_s:
                return self.journal.standing(action)
        elif (due_at := _due_at(standing)) > time.time():
            raise InputError(f"action {action}: is held for another {due_at - time.time():.0f} s; it can be withdrawn")
        started = manager.prepare(action, operation, plan)
        self.journal.advance(action, _S.EXECUTING, started)
        try:
            receipt = self._executed(action, manager, started)
        except InDoubt as error:
            self.journal.advance(action, _S.IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: nobody can tell whether it was done: {error}") from None
        except (InputError, OSError) as error:
            self._fail(action, manager, started, str(error))
            raise
        self._record(action, manager, started, receipt)
        return self.journal.standing(action)

    def _executed(self, action: str, manager: Manager, started: Json) -> Json:
        try:
            return manager.execute(action, started)
        except InDoubt as error:
            if (receipt := manager.find_out(action, started)) is None:
                raise InputError(f"{error}; it was not done") from None
            return receipt

    def _record(self, action: str, manager: Manager, started: Json, receipt: Json) -> None:
        """Record what was done, if it is within what was decided; else put it back.

        Raises:
            NotPermitted: it is not.
        """
        try:
            approval = self.actions.last_record(action, (_S.APPROVED,))
            self.permissions.require_within(action, approval, manager.observed(action, receipt))
            self.journal.advance(action, _S.EXECUTED, receipt, kept_bytes=manager.kept_bytes(receipt))
        except (InputError, OSError) as error:
            self._fail(action, manager, {**started, **receipt}, str(error))
            raise
        self.journal.seal()
        self.actions.keep(action, manager, receipt)

    def _fail(self, action: str, manager: Manager, started: Json, reason: str) -> None:
        """Put back what was begun, and record it, if need be with the next opening of the state."""
        with contextlib.suppress(OSError):
            is_back = manager.put_back(action, started)
            self.journal.advance(action, _S.FAILED if is_back else _S.IN_DOUBT, {"reason": reason}, seal=True)
            if is_back:
                self.actions.discard(action, manager)

    def release(self) -> list[Standing]:
        """Do what was approved and held, and whose time has come.

        Raises:
            InputError, HostError: one of them cannot be done; those after it wait.
        """
        held = [each for each in self.journal.standings((_S.APPROVED,)) if each.body["hold_s"]]
        due = [each for each in held if _due_at(each) <= time.time()]
        return [self.run(each.action, str(each.proposed["plan"])) for each in due]

    def withdraw(self, action: str, reason: str = "") -> Standing:
        """Give up an action that was proposed, or is held, before anything has happened.

        Raises:
            InputError: it has begun, or is over.
        """
        standing = self.journal.standing(action)
        if standing.state not in (_S.PROPOSED, _S.APPROVED):
            raise InputError(f"action {action}: is {standing.state}; what has not begun can be withdrawn")
        self.journal.advance(action, _S.FAILED, {"reason": reason or "withdrawn"}, seal=True)
        self.actions.discard(action, self.actions.manager_of(standing))
        return self.journal.standing(action)

    # --- Taking back ------------------------------------------------------------------------------------------------

    def undo(
        self,
        action: str,
        *,
        dependents: bool = False,
        choices: Mapping[str, Choice] | None = None,
        on_conflict: Choice = Choice.REFUSE,
    ) -> list[str]:
        """Take an action back, and with `dependents` those after it that depend on it; the names in that order.

        Where somebody else has changed something since, `choices` say by its name what becomes of it, else
        `on_conflict`.

        Raises:
            InputError: it does not stand, later actions depend on it, or others changed what it left; nothing was taken
                back.
        """
        self._settle()
        names = [*self.dependents_of(action), action]
        if len(names) > 1 and not dependents:
            raise InputError(
                f"action {action}: {', '.join(names[:-1])} came later and depend on it; undo them as well "
                "(--dependents), or first"
            )
        return self._undoing.undo(names, choices or {}, on_conflict)

    def undo_to(
        self, mark: str, *, choices: Mapping[str, Choice] | None = None, on_conflict: Choice = Choice.REFUSE
    ) -> list[str]:
        """Take back all that was done since a mark and still stands; the names of the actions.

        Raises:
            InputError: there is no such mark, or as `undo`.
        """
        marks = [record.number for record in self.journal.records(mark) if record.kind == "mark"]
        if not marks:
            raise InputError(f"mark {mark!r}: there is none")
        since = [each.action for each in self.actions.standing_order() if each.number > marks[-1]]
        return self._undoing.undo(since[::-1], choices or {}, on_conflict)

    def undo_group(
        self, number: int, *, choices: Mapping[str, Choice] | None = None, on_conflict: Choice = Choice.REFUSE
    ) -> list[str]:
        """Take back a group of actions that commute, as `groups` numbers them from 1.

        Raises:
            InputError: there is no such group, actions of later groups depend on it, or as `undo`.
        """
        found = self.groups()
        if not 1 <= number <= len(found):
            raise InputError(f"group {number}: there are {len(found)}")
        names = set(found[number - 1])
        later = {each for name in names for each in self.dependents_of(name)} - names
        if later:
            raise InputError(f"group {number}: {', '.join(sorted(later))} came later and depend on it; undo them first")
        order = [each.action for each in self.actions.standing_order() if each.action in names]
        return self._undoing.undo(order[::-1], choices or {}, on_conflict)

    def redo(self, action: str) -> Standing:
        """Do again what was undone.

        Raises:
            InputError: it was not undone, or somebody has changed what was there before.
            NotPermitted: it is not permitted any more.
        """
        manager, redoing = self._undoing.plan_redo(action)
        guarantee = Guarantee(self.journal.standing(action).proposed["guarantee"])
        accesses = manager.request_of_redo(action, self.actions.receipt(action), redoing).accesses
        request = Request(accesses, guarantee)
        self.permissions.require_allowed(action, request)
        self.permissions.require_budget(action, request, self._risks())
        return self._undoing.redo(action, manager, redoing)

    # --- Settling ---------------------------------------------------------------------------------------------------

    def commit(self, action: str) -> Standing:
        """Keep what an action did for good. What was kept to take it back is removed.

        Raises:
            InputError: it does not stand, or not any more.
            HostError: that cannot be now.
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

        Raises:
            InputError: it is not in doubt, or cannot stand so.
        """
        standing = self.journal.standing(action)
        if standing.state not in (_S.IN_DOUBT, _S.UNDO_IN_DOUBT):
            raise InputError(f"action {action}: is {standing.state}; what is in doubt is resolved")
        body: dict[str, Any] = {"resolved": reason}
        if state is _S.EXECUTED:
            kinds = (_S.EXECUTING, _S.EXECUTED, _S.REDONE)
            body |= self.actions.manager_of(standing).accept(action, self.actions.last_record(action, kinds).body)
        self.journal.advance(action, state, body, seal=True)
        return self.journal.standing(action)

    def look_again(self, action: str) -> Standing:
        """Try once more to find out how an action stands that is in doubt.

        Raises:
            InputError: it is not in doubt, or nobody can tell yet.
        """
        standing = self.journal.standing(action)
        if standing.state not in (_S.IN_DOUBT, _S.UNDO_IN_DOUBT):
            raise InputError(f"action {action}: is {standing.state}; what is in doubt is looked at again")
        manager = self.actions.manager_of(standing)
        try:
            if standing.state is _S.UNDO_IN_DOUBT:
                undone = manager.undo(action, self.actions.last_record(action, (_S.UNDOING,)).body, is_late=True)
                self.journal.advance(action, _S.UNDONE, undone, seal=True)
            else:
                self._find_out(action, manager)
        except NotUndone as error:
            self.journal.advance(action, _S.UNDO_FAILED, {"reason": str(error)}, seal=True)
        except InDoubt as error:
            raise InputError(f"action {action}: is still in doubt: {error}") from None
        return self.journal.standing(action)

    def _find_out(self, action: str, manager: Manager) -> None:
        begun = self.actions.last_record(action, (_S.EXECUTING, _S.REDOING))
        if begun.kind == _S.REDOING:
            receipt = manager.redo(action, self.actions.receipt(action), begun.body, is_late=True)
        else:
            receipt = manager.find_out(action, begun.body)
        if receipt is not None:
            self.journal.advance(action, _S.EXECUTED, receipt, seal=True, kept_bytes=manager.kept_bytes(receipt))
        elif manager.put_back(action, begun.body):
            self.journal.advance(action, _S.FAILED, {"reason": "it was not done"}, seal=True)
            self.actions.discard(action, manager)
        else:
            raise InDoubt("it was not done whole, and what it did cannot be put back")

    def mark(self, name: str) -> None:
        """Give this moment a name, to which `undo_to` goes back."""
        self.journal.append("mark", name, {"session": self.name})

    # --- Looking ----------------------------------------------------------------------------------------------------

    def dependents_of(self, action: str) -> list[str]:
        """Actions that stand, came later, and depend on this one, directly or by others of them; the last first.

        Raises:
            InputError: the action does not stand.
        """
        order = self.actions.standing_order()
        if action not in [each.action for each in order]:
            raise InputError(f"action {action}: is {self.journal.standing(action).state}; what stands can be undone")
        return dependents(action, [(each.action, self.actions.footprint(each.action)) for each in order])

    def groups(self, limits: GroupLimits | None = None) -> list[list[str]]:
        """The actions that stand, in groups that commute within themselves; see `footprints.groups`."""
        marks = [record.at for record in self.journal.records() if record.kind == "mark"]
        done = [
            Done(
                each.action,
                self.actions.footprint(each.action),
                each.at,
                each.kept_bytes or 0,
                each.proposed["guarantee"] == Guarantee.NONE,
            )
            for each in self.actions.standing_order()
        ]
        return groups(done, marks, limits)

    def difference(self, action: str) -> list[str]:
        """Lines that show what an action would change, has changed, or had changed before it was undone.

        Raises:
            InputError: it is not known any more, since it was committed.
        """
        standing = self.journal.standing(action)
        if standing.state is _S.COMMITTED:
            raise InputError(f"action {action}: is committed, and what it replaced is not kept any more")
        manager = self.actions.manager_of(standing)
        operation = self.actions.operation(standing.proposed["operation"], f"action {action}")
        is_done = standing.state in STANDING
        receipt = (
            self.actions.receipt(action) if is_done or standing.state is _S.UNDONE else standing.proposed.get("kept")
        )
        return manager.difference(action, operation, receipt, is_done=is_done)

    def conflicts_of(self, action: str) -> list[str]:
        """What somebody else has changed of what an action left.

        Raises:
            InputError: it does not stand.
        """
        order = [each.action for each in self.actions.standing_order()]
        names = [*self.dependents_of(action), action]
        manager = self.actions.manager_of_action(action)
        own = sorted(names, key=order.index, reverse=True)
        return [
            path
            for paths in manager.conflicts([(name, self.actions.receipt(name)) for name in own]).values()
            for path in paths
        ]

    def told(self) -> str:
        """What a model may know of the worlds before it proposes anything."""
        return "\n".join(manager.told() for manager in self.actions.worlds)

    @property
    def operations(self) -> Mapping[str, type[Config]]:
        """What can be proposed, by its name (`do`)."""
        return self.actions.operations

    def audit(self, known: tuple[int, bytes] | None = None) -> list[Finding]:
        """What was done to the journal by others; see `Journal.audit`."""
        return self.journal.audit(known)

    def _risks(self) -> list[Standing]:
        """What nobody has committed: what stands, and proposals that have done already what cannot be undone."""
        proposed = self.journal.standings((_S.PROPOSED, _S.APPROVED))
        acted = [each for each in proposed if each.proposed["guarantee"] == Guarantee.NONE]
        return [*self.actions.standing_order(), *acted]

    def _make_room(self, action: str = "") -> None:
        """Forget what the retention rules do not keep, of other actions than this, that do not stand.

        Raises:
            HostError: what stands alone takes more than the quota.
        """
        over = self.journal.standings((_S.PROPOSED, _S.UNDONE, _S.FAILED), kept_only=True)
        forgettable = [each for each in over if each.action != action]
        names = due(forgettable, self._retention, self.journal.kept_bytes(), time.time())
        for standing in forgettable:
            if standing.action in names:
                self.actions.discard(standing.action, self.actions.manager_of(standing), "retention")
        if (kept := self.journal.kept_bytes()) > self._retention.num_bytes:
            raise HostError(
                f"{kept} bytes are kept to take back what stands, more than the quota of {self._retention.num_bytes}. "
                "Fix: commit actions that shall stay, or raise the quota"
            )

    # --- After a death ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What a failure of the machine left unfinished comes first."""
        self.recovered += self._recover()

    def _recover(self) -> Iterator[str]:
        """Bring what a process that died left unfinished to one side; the names."""
        for standing in self.journal.standings(UNFINISHED):
            action, manager = standing.action, self.actions.manager_of(standing)
            with contextlib.suppress(InputError):  # it is recorded how it stands
                self._finish(standing, manager)
            yield action
        for standing in self.journal.standings((_S.COMMITTED,), kept_only=True):
            self.actions.discard(standing.action, self.actions.manager_of(standing))
        yield from self._undoing.recover()
        for standing in self.actions.standing_order()[::-1]:
            if standing.proposed.get("left_open") and self._undoing.is_lapsed(standing.action):
                yield standing.action

    def _finish(self, standing: Standing, manager: Manager) -> None:
        """Bring one action to one side. What nobody foresaw leaves it in doubt: it would come again each time."""
        action = standing.action
        try:
            if standing.state is _S.EXECUTING:
                self._finish_run(action, manager, standing.body)
            elif standing.state is _S.UNDOING:
                self._undoing.finish_undo(action, manager, standing.body, is_late=True)
            else:
                self._undoing.finish_redo(action, manager, standing.body, is_late=True)
        except (AutoclaveError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - no session could be opened any more
            # its words may hold what no journal is to hold
            doubt = _S.UNDO_IN_DOUBT if standing.state is _S.UNDOING else _S.IN_DOUBT
            self.journal.advance(action, doubt, {"reason": f"{type(error).__name__}, which nobody foresaw"}, seal=True)

    def _finish_run(self, action: str, manager: Manager, started: Json) -> None:
        reason = "the process died while it was executed; it was put back"
        try:
            receipt = manager.find_out(action, started)
        except InDoubt as error:
            self.journal.advance(action, _S.IN_DOUBT, {"reason": str(error)}, seal=True)
            return
        if receipt is None:
            self._fail(action, manager, started, reason)
        else:
            self._record(action, manager, started, receipt)


def _due_at(approved: Standing) -> float:
    """When something that is held may be done, in seconds since 1970."""
    return approved.at + float(approved.body["hold_s"])
