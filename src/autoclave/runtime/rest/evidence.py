"""Whether what a service shows proves that a call was done, and by us. Pure.

Of a call whose answer is lost, content alone proves nothing: somebody else may have done the same, or more. It is proof

1. that something is there under a name that nobody but us knows;
2. that it has another version than the one that the condition of our call named, and that all that is in it comes from
   our call or was there before: somebody else would have had to do exactly the same between our read-back and our call.

That something is gone is no proof of a deletion: whoever deletes it leaves the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from autoclave.core.json import shown
from autoclave.runtime.rest.catalogue import OperationSpec, ReadBack
from autoclave.runtime.rest.expressions import at, is_part_of, without
from autoclave.runtime.rest.forms import canonical, digest_of
from autoclave.runtime.rest.parts import Part, State

_MISSING = object()


class Evidence(StrEnum):
    """What is seen says of a call whose answer nobody saw."""

    DONE = "done"
    """It was done, or what it was to bring about is so."""
    AS_BEFORE = "as before"
    """It was not done, so far."""
    UNCLEAR = "unclear"
    """It may have been done by it, or by somebody else."""


def evidence(part: Part, spec: OperationSpec, read_back: ReadBack, now: State) -> Evidence:
    """What is said of a part, of which somebody looked before, by what there is now."""
    assert part.before is not None
    if part.wanted is not None or part.leaves:  # an undo or redo: it does not matter who has brought it about
        if part.satisfies(now):
            return Evidence.DONE
    elif has_own_name(part, spec):
        return Evidence.DONE if now.is_there == spec.leaves_it else Evidence.AS_BEFORE
    if _is_version(now, part.before) or (not now.is_there and not part.before.is_there):
        return Evidence.AS_BEFORE
    is_conditional = bool(part.guard) and (not part.existed or is_other_tag(now.etag, part.before.etag))
    if is_conditional and spec.leaves_it and now.is_there and _is_made_of(part, read_back, now):
        return Evidence.DONE
    return Evidence.UNCLEAR


def told(now: State, before: State) -> str:
    """What there is now, in words."""
    if not now.is_there:
        return "it is not there any more"
    return f"it {'has changed' if before.is_there else 'is there by now'} ({shown(now.body, 200)})"


def has_own_name(part: Part, spec: OperationSpec) -> bool:
    """Whether its subject is something new under a name that only we know, since its key is in it."""
    key, subject = key_of(part, spec), part.subject
    return bool(key and subject and not part.existed and key in f"{subject.target} {subject.body}")


def key_of(part: Part, spec: OperationSpec) -> str:
    """The key that we chose for a call, by which the service does it once; empty if there is none."""
    if not part.is_keyed or spec.idempotency is None:
        return ""
    place, name = spec.idempotency.place, spec.idempotency.name
    if place == "body":
        return str(at(part.call.body, name, ""))
    return str(part.arguments.get(spec.key_parameter, ""))


def may_be_late(part: Part, spec: OperationSpec, read_back: ReadBack, now: State) -> bool:
    """Whether what is seen after a part was done is what was there before, though that is not what it asked for."""
    if part.before is None or not part.existed or not spec.leaves_it:
        return False
    return _is_version(now, part.before) and not _is_made_of(part, read_back, now)


def is_other_version(part: Part, now: State) -> bool:
    """Whether what is seen is not the version of which the answer speaks."""
    named = part.answer.headers.get("etag", "") if part.answer and part.guards else ""
    return is_other_tag(now.etag, named)


def is_other_tag(one: str, other: str) -> bool:
    """Whether two entity tags name two versions. On the way a strong one may become weak, which names the same."""
    return bool(one and other) and one.removeprefix("W/") != other.removeprefix("W/")


def _is_version(now: State, before: State) -> bool:
    """Whether it is the version that was there before. An entity tag tells versions of the same content apart; but a
    weak one, or one that is made of a time, may stay where the content does not.
    """
    return now.is_same(before) and not is_other_tag(now.etag, before.etag)


def is_as_asked(part: Part, spec: OperationSpec, read_back: ReadBack, now: State) -> bool:
    """Whether all that a part asks for is so now, whoever brought it about."""
    if part.wanted is not None or part.leaves:
        return part.satisfies(now)
    if not (now.is_there and spec.leaves_it):
        return now.is_there == spec.leaves_it
    if part.call.body is None:
        return not part.existed
    return _is_shown(part, read_back, now) and not (part.existed and _may_still_come(part, read_back, now))


def _may_still_come(part: Part, read_back: ReadBack, now: State) -> bool:
    """Whether all is as it was, and a part takes something out of it that is still there."""
    if (
        part.before is None
        or not _is_version(now, part.before)
        or part.call.method == "PATCH"
        or read_back.form != "json"
    ):
        return False
    left, names = (
        without(now.body, [*read_back.volatile, *read_back.added]),
        {str(each) for each in part.call.path.values()},
    )
    return not _is_explained(left, part.call.body, None, names)


def _is_shown(part: Part, read_back: ReadBack, now: State) -> bool:
    """Whether all of the body of a call is there."""
    if read_back.form != "json":
        return digest_of(canonical(part.call.body, read_back.form, read_back.volatile)) == now.digest
    return is_part_of(without(part.call.body, read_back.volatile), now.body)


def _is_made_of(part: Part, read_back: ReadBack, now: State) -> bool:
    """Whether all that was asked for is there, and nothing that comes neither from that nor from before."""
    body, before = part.call.body, part.before.body if part.before else None
    if read_back.form != "json":
        return body is not None and _is_shown(part, read_back, now)
    asked = {} if body is None else merged(before, body) if part.call.method == "PATCH" else body
    ignored = [*read_back.volatile, *read_back.added]
    left = without(now.body, ignored)
    names = {str(each) for each in part.call.path.values()}
    return is_part_of(without(asked, read_back.volatile), now.body) and _is_explained(left, asked, before, names)


def merged(before: Any, change: Any) -> Any:
    """What a change of some names leaves."""
    if not (isinstance(before, Mapping) and isinstance(change, Mapping)):
        return change
    return {**before, **{key: merged(before.get(key), inner) for key, inner in change.items()}}


def _is_explained(seen: Any, asked: Any, before: Any, names: set[str]) -> bool:
    """Whether each value is the one at the same place of what was asked or there before, or is one of `names`."""
    if isinstance(seen, Mapping):
        return all(
            _is_explained(inner, _inside(asked, key), _inside(before, key), names) for key, inner in seen.items()
        )
    is_known = any(type(seen) is type(each) and seen == each for each in (asked, before))
    return is_known or (isinstance(seen, (str, int)) and str(seen) in names)


def _inside(value: Any, key: str) -> Any:
    return value.get(key, _MISSING) if isinstance(value, Mapping) else _MISSING
