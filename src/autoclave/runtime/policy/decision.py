"""Decisions on whether an action may do what it asks for, and whether it did more than that. Pure.

Each access, with everything inside it, must be covered by one allowance; a prohibition of any part denies the whole.
The amounts of an access are charged to the allowance that covers it, and to those that it narrows. Allowances are tried
in the order in which they were given; where one is used up, the next is tried.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoclave.runtime.guarantee import worst
from autoclave.runtime.policy.grants import COUNTED, Grant, has_secret_name, protected_names
from autoclave.runtime.policy.request import MALFORMED, Access, Request
from autoclave.runtime.records import Record

_NOT_PERMITTED = " is not permitted"

Usage = Mapping[str, Mapping[str, float]]
"""Charges to each allowance, by its id: how often it was used (`uses`), and amounts by name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. `reason` is for the one who asked, and reveals no grants; `hint` is for the person who grants.

    `charges`: amounts by the id of each allowance that covers a part.
    """

    is_allowed: bool
    reason: str = ""
    hint: str = ""
    rules: tuple[str, ...] = ()
    charges: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])


def usage_of(records: Iterable[Record]) -> Usage:
    """Sum the charges in the records of a journal, the latest of each action. Undone actions stay charged."""
    found: dict[str, Counter[str]] = {}
    for record in {each.subject: each for each in records if "charges" in each.body}.values():
        for grant, counts in record.body["charges"].items():
            found.setdefault(grant, Counter()).update({"uses": 1, **counts})
    return found


def decide(grants: Sequence[Grant], request: Request, usage: Usage, now: float) -> Decision:
    """Decide whether `request` may be done at `now` (seconds since 1970), given the charges to each grant."""
    forbids = [grant for grant in grants if grant.effect == "forbid" and not grant.is_over(now)]
    allows = [grant for grant in grants if grant.effect == "allow"]
    by_id = {grant.id: grant for grant in allows}
    about = {
        verb: [(each.prefixes, each) for each in allows if each.is_about(verb)]
        for verb in {access.verb for access in request.accesses}
    }
    charges: dict[str, dict[str, float]] = {}
    for access in request.accesses:
        resources = access.resources
        if (malformed := next(filter(MALFORMED.search, resources), None)) is not None:
            return _denied(access, malformed, "no grant can cover it", ())
        for grant in forbids:
            if hit := next((each for each in resources if grant.covers(access.verb, each)), ""):
                return _denied(access, hit, f"grant {grant.id} forbids it", (grant.id,))
        problems: list[str] = []
        for prefixes, grant in about[access.verb]:
            if not access.resource.startswith(prefixes):  # rules out most
                continue
            line = [grant, *_narrowed(grant, by_id)]
            if not all(each.covers_all(access.verb, resources) for each in line):
                continue
            if access.holds_secret and not all(each.has_name_of(access.resource) for each in line):
                problems.append(
                    f"a private key is in it, so that a grant must have its name: {_grant_for(access, request)}"
                )
                continue
            problem = next(filter(None, (_problem(each, access, request, usage, charges, now) for each in line)), "")
            if not problem:
                for each in line:
                    _charge(charges.setdefault(each.id, {}), access)
                break
            problems.append(problem)
        else:
            hint = "; ".join(problems) or _grant_for(access, request)
            return _denied(access, access.resource, hint, ())
    return Decision(True, rules=tuple(charges), charges=charges)


def violation(grants: Sequence[Grant], rules: Sequence[str], actual: Request, usage: Usage, now: float) -> str:
    """Return the first access that is forbidden or exceeds `rules` at this `usage` and `now`; empty if none is."""
    valid = [grant for grant in grants if grant.effect == "forbid" or grant.id in rules]
    return decide(valid, actual, usage, now).reason.removesuffix(_NOT_PERMITTED)


def is_granted(grants: Iterable[Grant], verb: str, resource: str, now: float) -> bool:
    """Return whether a resource may be used at all, regardless of limits; for barriers independent of a decision."""
    about = [grant for grant in grants if not grant.is_over(now) and grant.covers(verb, resource)]
    return bool(about) and all(grant.effect == "allow" for grant in about)


def _denied(access: Access, resource: str, hint: str, rules: tuple[str, ...]) -> Decision:
    return Decision(False, f"{access.verb} {resource!r}{_NOT_PERMITTED}", hint, rules)


def _grant_for(access: Access, request: Request) -> str:
    """Return the command that would permit an access, and others of the request in the same folder."""
    folder, _, name = access.resource.rpartition("/")
    needs_name = access.holds_secret or has_secret_name(name) or protected_names(name)
    is_whole = access.resource.startswith("files/") and name != "**" and not needs_name
    pattern = f"{folder}/**" if is_whole else access.resource
    verbs = [each.verb for each in request.accesses if is_whole and each.resource.startswith(f"{folder}/")]
    return f"autoclave act grant {shlex.quote(pattern)} --verbs {','.join(dict.fromkeys((access.verb, *verbs)))}"


def _narrowed(grant: Grant, by_id: Mapping[str, Grant]) -> list[Grant]:
    found: list[Grant] = []
    while grant.parent in by_id and by_id[grant.parent] not in found:
        grant = by_id[grant.parent]
        found.append(grant)
    return found


def _problem(grant: Grant, access: Access, request: Request, usage: Usage, charges: Usage, now: float) -> str:
    """Return why a matching allowance does not permit an access now; empty if it does."""
    if grant.is_over(now):
        return f"the time of grant {grant.id} is over"
    if worst((request.guarantee, grant.minimum_guarantee)) != grant.minimum_guarantee:
        return f"grant {grant.id} is for what can be taken back better than {request.guarantee}"
    used = usage.get(grant.id, {})
    if grant.max_uses is not None and used.get("uses", 0) >= grant.max_uses:
        return f"grant {grant.id} was used {used['uses']} times"
    for name in COUNTED:
        most: float | None = getattr(grant, f"max_{name}")
        if most is not None:
            total = used.get(name, 0) + charges.get(grant.id, {}).get(name, 0) + getattr(access, name)
            if total > most:
                return f"grant {grant.id} is for {most} {name.replace('_', ' ')}, and this would make {total}"
    return ""


def _charge(counts: dict[str, float], access: Access) -> None:
    for name in COUNTED:
        if own := getattr(access, name):
            counts[name] = counts.get(name, 0) + own


def shown_decision(decision: Decision) -> dict[str, Any]:
    if decision.is_allowed:
        return {"rules": list(decision.rules), "charges": {name: dict(each) for name, each in decision.charges.items()}}
    return {"reason": decision.reason, "hint": decision.hint, "rules": list(decision.rules)}
