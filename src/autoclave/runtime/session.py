"""Actions of all kinds under one journal: proposed, run, taken back, done again, committed.

Theory of operation. One process at a time has the state (a lock), and the worlds that its managers change (a lease
each). What an action will change is journalled with `executing` before the first change, and what it has become with
`executed` after the last. So when a process dies, the next one that opens the state finds each unfinished action and
brings it to one side: an action that was being executed is put back and has `failed`, an undo or a redo is brought to
its end. Where the world is neither as before nor as after, because somebody else changed it meanwhile, the action is in
doubt: what is not its own is left alone, and a person settles it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.config import Config
from autoclave.core import HostError, InputError
from autoclave.core.closing import Closing
from autoclave.runtime.footprints import Done, Footprint, GroupLimits, dependents, groups
from autoclave.runtime.interface import Choice, Guarantee, InDoubt, Json, Manager, NotPermitted, Plan
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.operations import operation_from
from autoclave.runtime.policy.decision import Decision, decide, shown_decision, usage_of, violations
from autoclave.runtime.policy.grants import Grant, active
from autoclave.runtime.policy.request import Request
from autoclave.runtime.records import Finding
from autoclave.runtime.retention import Retention, due
from autoclave.runtime.states import STANDING, UNFINISHED, ActionState, require_step

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
    alone. Without a grant nothing is permitted. `budget` is the most risk that may stand uncommitted; see
    `policy.Request.weight`.
    """

    def __init__(
        self,
        journal: Journal,
        managers: Sequence[Manager],
        opened: contextlib.ExitStack | None = None,
        *,
        name: str = "main",
        retention: Retention | None = None,
        budget: float = 1000.0,
    ) -> None:
        self.journal, self.name, self._budget = journal, name, budget
        self._narrowing: list[Grant] = []
        self._managers = {do: manager for manager in managers for do in manager.operations}
        self._operations = {do: model for manager in managers for do, model in manager.operations.items()}
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
        operation, action = self._operation(given), secrets.token_hex(4)
        manager = self._managers[str(given["do"])]
        self._require_allowed(action, manager.asks(operation))
        try:
            plan = manager.plan(action, operation)
            self._require_allowed(action, plan.request)
            return plan
        finally:
            manager.discard(action)

    def propose(self, given: Json, *, by: str = "caller") -> Proposal:
        """Plan an operation, and record it. The world stays as it is.

        Raises:
            InputError: it is no operation, or cannot be done to the world as it is.
            NotPermitted: no grant covers it, or one forbids it.
        """
        operation, action = self._operation(given), secrets.token_hex(4)
        self._make_room()
        manager = self._managers[str(given["do"])]
        self._require_allowed(action, manager.asks(operation))
        plan = manager.plan(action, operation)
        try:
            self._require_allowed(action, plan.request)
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
        self.journal.advance(action, _S.PROPOSED, told, kept_bytes=num_bytes)
        return Proposal(action, operation, plan)

    def run(self, action: str, plan_digest: str, *, approved_by: str = "caller") -> Standing:
        """Do what was planned, exactly that.

        Raises:
            InputError: it was run or refused before; the world has changed so that it would be something else; or it
                cannot be done.
            HostError: the machine cannot; it was put back.
        """
        self._settle()
        standing = self.journal.standing(action)
        if standing.state is not _S.PROPOSED:
            require_step(action, standing.state, _S.EXECUTING)  # before anything that is kept for it is touched
        manager, proposed = self._manager_of(standing), standing.proposed
        operation = operation_from(proposed["operation"], self._operations, f"action {action}")
        if plan_digest != proposed["plan"]:
            raise InputError(f"action {action}: was planned with digest {proposed['plan']}, not {plan_digest}")
        plan = manager.plan_again(action, operation, proposed.get("kept", {}))
        if plan.digest != plan_digest:
            raise InputError(f"action {action}: what it is about has changed since it was planned; propose it again")
        asked = manager.asks(operation)
        whole = Request((*asked.accesses, *plan.request.accesses), plan.guarantee)
        decision = self._require_allowed(action, whole)
        self._require_budget(action, whole)
        self._make_room()
        if standing.state is _S.PROPOSED:
            self.journal.advance(action, _S.APPROVED, {"by": approved_by, **shown_decision(decision)})
        started = manager.prepare(action, operation, plan)
        self.journal.advance(action, _S.EXECUTING, started)
        try:
            receipt = manager.execute(action, started)
            self._require_within(action, decision, manager.observed(action, receipt))
            self.journal.advance(action, _S.EXECUTED, receipt, kept_bytes=manager.kept_bytes(receipt))
        except (InputError, OSError) as error:
            self._fail(action, manager, started, str(error))
            raise
        self.journal.seal()
        manager.keep(action, receipt)
        return self.journal.standing(action)

    def _fail(self, action: str, manager: Manager, started: Json, reason: str) -> None:
        """Put back what was begun, and record it, if need be with the next opening of the state."""
        with contextlib.suppress(OSError):
            is_back = manager.put_back(action, started)
            self.journal.advance(action, _S.FAILED if is_back else _S.IN_DOUBT, {"reason": reason}, seal=True)
            if is_back:
                self._discard(action, manager)

    # --- Permission -------------------------------------------------------------------------------------------------

    def grant(self, grant: Grant) -> None:
        """Permit or forbid something. For a person, never for what a model says.

        Raises:
            InputError: it narrows a grant that there is not.
        """
        if grant.parent and grant.parent not in [each.id for each in self.grants()]:
            raise InputError(f"grant {grant.id}: narrows {grant.parent!r}, which is not granted")
        self.journal.append("grant", grant.id, grant.model_dump(mode="json"))
        self.journal.seal()

    def revoke(self, grant: str) -> None:
        """Take a grant back, with those that narrow it.

        Raises:
            InputError: there is none of that name.
        """
        if grant not in [each.id for each in self.grants()]:
            raise InputError(f"grant {grant}: there is none; `autoclave act grant` without resources lists them")
        self.journal.append("revoke", grant, {})
        self.journal.seal()

    def grants(self) -> list[Grant]:
        """What is granted to this session."""
        return [*active(self.journal.records_of_kinds("grant", "revoke"), self.name), *self._narrowing]

    def narrow(self, prohibition: Grant, reason: str) -> None:
        """Forbid something for as long as this object lives. Unlike `grant`, also for what a model says.

        Raises:
            InputError: it is no prohibition.
        """
        if prohibition.effect != "forbid":
            raise InputError(f"grant {prohibition.id}: would permit something; a session is narrowed by prohibitions")
        self.journal.append("narrowed", prohibition.id, {"reason": reason, **prohibition.model_dump(mode="json")})
        self._narrowing.append(prohibition)

    def _require_allowed(self, action: str, request: Request) -> Decision:
        """Have the policy decide.

        Raises:
            NotPermitted: it denies; that is recorded.
        """
        grants = self.grants()
        usage = usage_of(self.journal.records_of_kinds(_S.APPROVED)) if any(each.is_limited for each in grants) else {}
        decision = decide(grants, request, usage, time.time())
        if not decision.is_allowed:
            self.journal.append("denied", action, {"session": self.name, **shown_decision(decision)})
            raise NotPermitted.because(decision.reason, decision.hint)
        return decision

    def _require_budget(self, action: str, request: Request) -> None:
        standing = [(each.action, float(each.proposed["weight"])) for each in self._standing_order()]
        total = sum(weight for _, weight in standing) + request.weight
        if total > self._budget:
            largest = max(standing, key=lambda each: each[1], default=("", 0.0))[0]
            hint = (
                f"commit or undo some of the {len(standing)} actions that stand, such as {largest}, or raise the budget"
            )
            raise NotPermitted.because(f"action {action}: too much stands that nobody has committed", hint)

    def _require_within(self, action: str, decision: Decision, actual: Request) -> None:
        """Look whether what an action did is what was decided.

        Raises:
            NotPermitted: it is not; that is recorded, and the caller takes it back.
        """
        if outside := violations(self.grants(), decision.rules, actual):
            self.journal.append("alarm", action, {"session": self.name, "outside": outside[:100]})
            hint = "what was decided and what was done differ: look at the journal before granting anything more"
            raise NotPermitted.because(f"action {action}: did {outside[0]}, which is not permitted", hint)

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
        return self._undo_all(names, choices or {}, on_conflict)

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
        since = [each.action for each in self._standing_order() if each.number > marks[-1]]
        return self._undo_all(since[::-1], choices or {}, on_conflict)

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
        order = [each.action for each in self._standing_order() if each.action in names]
        return self._undo_all(order[::-1], choices or {}, on_conflict)

    def _undo_all(self, names: Sequence[str], choices: Mapping[str, Choice], on_conflict: Choice) -> list[str]:
        receipts = {name: self._receipt(name) for name in names}
        for manager in {id(each): each for each in self._managers.values()}.values():
            own = [(name, receipts[name]) for name in names if self._manager_of(self.journal.standing(name)) is manager]
            for name, changed in manager.conflicts(own).items():
                if refused := [each for each in changed if choices.get(each, on_conflict) is Choice.REFUSE]:
                    raise InputError(
                        f"action {name}: somebody else has changed {', '.join(refused)} since; nothing was taken back. "
                        "Mend: say what becomes of it (skip, force, save_aside)"
                    )
        for name in names:
            manager = self._manager_of(self.journal.standing(name))
            undoing = manager.plan_undo(name, receipts[name], choices, on_conflict, self._undone_with)
            self.journal.advance(name, _S.UNDOING, undoing)
            self._finish_undo(name, manager, undoing)
        return list(names)

    def _finish_undo(self, action: str, manager: Manager, undoing: Json, *, is_late: bool = False) -> None:
        try:
            undone = manager.undo(action, undoing, is_late=is_late)
        except (InDoubt, InputError) as error:
            self.journal.advance(action, _S.UNDO_IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: {error}") from None
        self.journal.advance(action, _S.UNDONE, undone, seal=True)

    def redo(self, action: str) -> Standing:
        """Do again what was undone.

        Raises:
            InputError: it was not undone, or somebody has changed what was there before.
        """
        standing = self.journal.standing(action)
        if standing.state is not _S.UNDONE:
            raise InputError(f"action {action}: is {standing.state}; what was undone can be redone")
        if standing.kept_bytes is None or "resolved" in standing.body:
            raise InputError(f"action {action}: what a redo needs is not kept any more; propose it again")
        manager = self._manager_of(standing)
        redoing = manager.plan_redo(action, standing.body)
        self.journal.advance(action, _S.REDOING, redoing)
        return self._finish_redo(action, manager, redoing)

    def _finish_redo(self, action: str, manager: Manager, redoing: Json, *, is_late: bool = False) -> Standing:
        try:
            receipt = manager.redo(action, self._receipt(action), redoing, is_late=is_late)
        except (InDoubt, InputError) as error:
            self.journal.advance(action, _S.IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: {error}") from None
        self.journal.advance(action, _S.REDONE, receipt, seal=True, kept_bytes=manager.kept_bytes(receipt))
        manager.keep(action, receipt)
        return self.journal.standing(action)

    # --- Settling ---------------------------------------------------------------------------------------------------

    def commit(self, action: str) -> Standing:
        """Keep what an action did for good. What was kept to take it back is removed.

        Raises:
            InputError: it does not stand.
        """
        manager = self._manager_of(self.journal.standing(action))
        self.journal.advance(action, _S.COMMITTED, seal=True)
        self._discard(action, manager)
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
            body |= self._manager_of(standing).accept(action, self._last_body(action, kinds))
        self.journal.advance(action, state, body, seal=True)
        return self.journal.standing(action)

    def mark(self, name: str) -> None:
        """Give this moment a name, to which `undo_to` goes back."""
        self.journal.append("mark", name, {"session": self.name})

    # --- Looking ----------------------------------------------------------------------------------------------------

    def dependents_of(self, action: str) -> list[str]:
        """Actions that stand, came later, and depend on this one, directly or by others of them; the last first.

        Raises:
            InputError: the action does not stand.
        """
        order = self._standing_order()
        if action not in [each.action for each in order]:
            raise InputError(f"action {action}: is {self.journal.standing(action).state}; what stands can be undone")
        return dependents(action, [(each.action, _footprint(self._receipt(each.action))) for each in order])

    def groups(self, limits: GroupLimits | None = None) -> list[list[str]]:
        """The actions that stand, in groups that commute within themselves; see `footprints.groups`."""
        marks = [record.at for record in self.journal.records() if record.kind == "mark"]
        done = [
            Done(
                each.action,
                _footprint(self._receipt(each.action)),
                each.at,
                each.kept_bytes or 0,
                each.proposed["guarantee"] == Guarantee.NONE,
            )
            for each in self._standing_order()
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
        manager = self._manager_of(standing)
        operation = operation_from(standing.proposed["operation"], self._operations, f"action {action}")
        is_done = standing.state in STANDING
        receipt = self._receipt(action) if is_done or standing.state is _S.UNDONE else standing.proposed.get("kept")
        return manager.difference(action, operation, receipt, is_done=is_done)

    def conflicts_of(self, action: str) -> list[str]:
        """What somebody else has changed of what an action left.

        Raises:
            InputError: it does not stand.
        """
        order = [each.action for each in self._standing_order()]
        names = [*self.dependents_of(action), action]
        manager = self._manager_of(self.journal.standing(action))
        own = sorted(names, key=order.index, reverse=True)
        return [
            path
            for paths in manager.conflicts([(name, self._receipt(name)) for name in own]).values()
            for path in paths
        ]

    def told(self) -> str:
        """What a model may know of the worlds before it proposes anything."""
        return "\n".join(manager.told() for manager in {id(each): each for each in self._managers.values()}.values())

    @property
    def operations(self) -> Mapping[str, type[Config]]:
        """What can be proposed, by its name (`do`)."""
        return self._operations

    def audit(self) -> list[Finding]:
        """What was done to the journal by others; see `Journal.audit`."""
        return self.journal.audit()

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _operation(self, given: Json) -> Config:
        return operation_from(given, self._operations, "operation")

    def _manager_of(self, standing: Standing) -> Manager:
        do = str(standing.proposed["operation"]["do"])
        if do not in self._managers:
            raise InputError(f"action {standing.action}: {do!r} is of a kind that was not opened")
        return self._managers[do]

    def _receipt(self, action: str) -> dict[str, Any]:
        """What was recorded when it was executed, or done again."""
        return self._last_body(action, (_S.EXECUTED, _S.REDONE))

    def _last_body(self, action: str, states: Sequence[ActionState]) -> dict[str, Any]:
        kinds = [state.value for state in states]
        bodies = [record.body for record in self.journal.records(action) if record.kind in kinds]
        if not bodies:
            raise InputError(f"action {action}: was never executed")
        return dict(bodies[-1])

    def _undone_with(self, text: str) -> Iterator[Json]:
        """See `interface.UndoneWith`."""
        for record in self.journal.records_with(text, _S.EXECUTED, _S.REDONE):
            standing = self.journal.standing(record.subject)
            if standing.state not in STANDING or standing.number > record.number:
                yield record.body

    def _discard(self, action: str, manager: Manager, reason: str = "") -> None:
        manager.discard(action)
        self.journal.forget(action, reason)

    def _standing_order(self) -> list[Standing]:
        """Actions that stand, in the order in which they were done."""
        return sorted(self.journal.standings(STANDING), key=lambda each: each.number)

    def _make_room(self) -> None:
        """Forget what the retention rules do not keep, of actions that do not stand.

        Raises:
            HostError: what stands alone takes more than the quota.
        """
        forgettable = self.journal.standings((_S.PROPOSED, _S.UNDONE, _S.FAILED), kept_only=True)
        names = due(forgettable, self._retention, self.journal.kept_bytes(), time.time())
        for standing in forgettable:
            if standing.action in names:
                self._discard(standing.action, self._manager_of(standing), "retention")
        if (kept := self.journal.kept_bytes()) > self._retention.num_bytes:
            raise HostError(
                f"{kept} bytes are kept to take back what stands, more than the quota of {self._retention.num_bytes}. "
                "Mend: commit actions that shall stay, or raise the quota"
            )

    # --- After a death ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What a failure of the machine left unfinished comes first."""
        self.recovered += self._recover()

    def _recover(self) -> Iterator[str]:
        """Bring what a process that died left unfinished to one side; the names."""
        for standing in self.journal.standings(UNFINISHED):
            action, manager = standing.action, self._manager_of(standing)
            if standing.state is _S.EXECUTING:
                self._fail(action, manager, standing.body, "the process died while it was executed; it was put back")
            else:
                finish = self._finish_undo if standing.state is _S.UNDOING else self._finish_redo
                with contextlib.suppress(InputError):  # it is recorded as in doubt
                    finish(action, manager, standing.body, is_late=True)
            yield action
        for standing in self.journal.standings((_S.COMMITTED,), kept_only=True):
            self._discard(standing.action, self._manager_of(standing))


def _footprint(receipt: Json) -> Footprint:
    return Footprint(frozenset(receipt["reads"]), frozenset(receipt["writes"]))
