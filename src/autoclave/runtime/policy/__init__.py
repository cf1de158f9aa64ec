"""The policy of actions: default deny, forbid wins, and only a person grants. Pure: no file, no clock."""

from autoclave.runtime.policy.decision import Decision, Usage, decide, violation
from autoclave.runtime.policy.grants import Grant, active, grant_from, shown_grant
from autoclave.runtime.policy.request import Access, Request

__all__ = [
    "Access",
    "Decision",
    "Grant",
    "Request",
    "Usage",
    "active",
    "decide",
    "grant_from",
    "shown_grant",
    "violation",
]
