"""Permissions of a session: the grants in its journal, and decisions by them, which are journalled as well.

The policy itself is in `policy/`, and pure. This module adds journal and clock.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from autoclave.core import InputError, UsageError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.journal import Journal
from autoclave.runtime.policy.decision import Decision, Usage, decide, is_granted, shown_decision, usage_of, violation
from autoclave.runtime.policy.grants import Grant, active
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.records import Record
from autoclave.runtime.states import ActionState


class Permissions:
    """Permissions of the session `name`. `budget` limits the uncommitted risk; see `policy.Request.weight`."""

    def __init__(self, journal: Journal, name: str, budget: float) -> None:
        self._journal, self._name, self._budget = journal, name, budget
        self._narrowing: list[Grant] = []
        self._charged, self._num_read = dict[str, Record](), 0

    def grant(self, grant: Grant) -> None:
        """Add a grant; for a user only. Raises InputError where it narrows a grant that does not exist."""
        if grant.parent and grant.parent not in [each.id for each in self.grants()]:
            raise InputError(f"grant {grant.id}: narrows {grant.parent!r}, which is not granted")
        self._journal.append("grant", grant.id, grant.model_dump(mode="json"), is_signed=True)
        self._journal.seal()

    def revoke(self, grant: str) -> None:
        """Revoke a grant, and those that narrow it."""
        if grant not in [each.id for each in self.grants()]:
            raise UsageError(f"grant {grant}: session {self._name} has none; `act grant` lists those of --session")
        self._journal.append("revoke", grant, {}, is_signed=True)
        self._journal.seal()

    def grants(self) -> list[Grant]:
        """Return the grants of this session. A record that was not signed with the key grants and revokes nothing."""
        signed = filter(self._journal.has_signature, self._journal.records_of_kinds("grant", "revoke"))
        return [*active(signed, self._name), *self._narrowing]

    def narrow(self, prohibition: Grant, reason: str) -> None:
        """Forbid something for the life of this object. Unlike `grant`, also at the request of a model."""
        if prohibition.effect != "forbid":
            raise InputError(f"grant {prohibition.id}: would permit something; only prohibitions narrow a session")
        self._journal.append("narrowed", prohibition.id, {"reason": reason, **prohibition.model_dump(mode="json")})
        self._narrowing.append(prohibition)

    def require_allowed(self, action: str, request: Request) -> Decision:
        """Apply the policy. Raises NotPermitted where it denies, which is recorded."""
        grants = self.grants()
        decision = decide(grants, request, self._usage(action, grants), time.time())
        if not decision.is_allowed:
            raise self._denied(action, decision)
        return decision

    def require_any(self, action: str, needed: Sequence[Sequence[Access]]) -> None:
        """Raise NotPermitted, as `require_allowed`, where no access of a group would be permitted.

        The reason has the resource of the first access of the group, the hint that of the last.
        """
        grants = self.grants() if needed else []
        usage, now = self._usage(action, grants), time.time()
        for group in needed:
            if not any(decide(grants, Request((each,)), usage, now).is_allowed for each in group):
                verbs = " or ".join(dict.fromkeys(each.verb for each in group))
                reason = f"{verbs} {group[0].resource!r} is not permitted"
                wanted = [each for all_of in needed for each in all_of if each.resource == all_of[-1].resource]
                raise self._denied(action, replace(decide(grants, Request(tuple(wanted)), usage, now), reason=reason))

    def _denied(self, action: str, decision: Decision) -> NotPermitted:
        self._journal.append("denied", action, {"session": self._name, **shown_decision(decision)})
        return NotPermitted(decision.reason, decision.hint)

    def use(self, action: str, request: Request) -> None:
        """Decide on the accesses that planning an action makes, and charge those that cannot be undone."""
        decision = self.require_allowed(action, request)
        if request.accesses and request.guarantee is Guarantee.NONE:  # planning has effects
            self.require_budget(action, request)
            self._journal.append("used", action, {"session": self._name, **shown_decision(decision)})

    def require_budget(self, action: str, request: Request) -> None:
        """Raise NotPermitted if an action and all that stand exceed the budget."""
        if self._journal.risk(other_than=action) + request.weight > self._budget:
            number, heaviest = self._journal.riskiest(other_than=action)
            hint = f"commit or undo some of the {number} actions that stand, such as {heaviest}, or raise the budget"
            raise NotPermitted(f"action {action}: too much stands uncommitted", hint)

    def require_within(self, action: str, approval: Record, actual: Request) -> None:
        """Raise NotPermitted if an action did more than its grants cover; that is recorded."""
        grants = self.grants()
        if outside := violation(grants, approval.body["rules"], actual, self._usage(action, grants), approval.at):
            self._journal.append("alarm", action, {"session": self._name, "outside": outside})
            hint = "what was approved and what was done differ: look at the journal before granting anything more"
            raise NotPermitted(f"action {action}: did {outside}, which is not permitted", hint)

    def may_use(self, service: str) -> bool:
        """Return whether a service is granted at all. For the proxy of cells, which does not rely on a decision."""
        return is_granted(self.grants(), "use", f"services/{service}", time.time())

    def not_readable(self, resources: Sequence[str]) -> list[str]:
        """Return those of `resources` that no grant permits to read. For cells, as `may_use`."""
        grants, now = self.grants() if resources else [], time.time()
        return [each for each in resources if not is_granted(grants, "read", each, now)]

    def _usage(self, action: str, grants: Sequence[Grant]) -> Usage:
        """Return the charges of all other actions, so that a second decision on one does not charge it twice."""
        if not any(each.is_limited for each in grants):
            return {}
        new = self._journal.records_of_kinds("used", ActionState.APPROVED, ActionState.READ, after=self._num_read)
        for record in new:
            self._num_read = record.number
            if "charges" in record.body:  # the latest of each action counts
                self._charged[record.subject] = record
        return usage_of(each for each in self._charged.values() if each.subject != action)
