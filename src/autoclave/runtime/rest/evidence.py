"""True if what a service shows proves that a call was done, and by us. Pure.

Of a call whose answer is lost, content alone proves nothing: somebody else may have done the same, or more. It is proof

1. that something is there under a name that nobody but us knows;
2. that it has another version than the one that the condition of our call named, and that all that is in it comes from
   our call or was there before: somebody else would have had to do exactly the same between our read-back and our call.

That something is gone is no proof of a deletion: whoever deletes it leaves the same.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from autoclave.runtime.rest.catalogue import OperationSpec, ReadBack
from autoclave.runtime.rest.expressions import at, without
from autoclave.runtime.rest.forms import canonical, digest_of
from autoclave.runtime.rest.parts import Part, State


class Evidence(StrEnum):
    """Evidence, from the state of a service, of a call whose answer was lost."""

    DONE = "done"
    """It was done, or what it was to bring about is so."""
    AS_BEFORE = "as before"
    """It was not done, so far."""
    UNCLEAR = "unclear"
    """It may have been done by it, or by somebody else."""


def evidence(part: Part, spec: OperationSpec, read_back: ReadBack, now: State) -> Evidence:
    """Return what is said of a part, of which somebody looked before, by what there is now."""
    assert part.before is not None
    if part.has_aim:  # an undo or redo: it does not matter who has brought it about
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


def has_own_name(part: Part, spec: OperationSpec) -> bool:
    """Return whether its subject is something new under a name that only we know, since its key is in it."""
    if not part.is_keyed or part.subject is None or part.existed:
        return False
    key = spec.idempotency
    own = at(part.call.body, key, "") if spec.has_key_in_body else part.arguments.get(key, "")
    return bool(own) and str(own) in f"{part.subject.target} {part.subject.body}"


def may_be_late(part: Part, spec: OperationSpec, read_back: ReadBack, now: State) -> bool:
    """Return whether the state after a part is the one before it, though that is not what it asked for."""
    is_before = part.before is not None and part.existed and spec.leaves_it and _is_version(now, part.before)
    return is_before and not _is_made_of(part, read_back, now)


def is_other_version(part: Part, now: State) -> bool:
    """Return whether what is seen is not the version of which the answer speaks."""
    named = part.answer.headers.get("etag", "") if part.answer and part.guards else ""
    return is_other_tag(now.etag, named)


def is_other_tag(one: str, other: str) -> bool:
    """Return whether two entity tags name two versions. A strong one may become weak on the way, and names the same."""
    return bool(one and other) and one.removeprefix("W/") != other.removeprefix("W/")


def _is_version(now: State, before: State) -> bool:
    """Return whether it is the version from before. An entity tag tells versions of the same content apart; but a
    weak one, or one that is made of a time, may stay where the content does not.
    """
    return now.is_same(before) and not is_other_tag(now.etag, before.etag)


def is_as_asked(part: Part, spec: OperationSpec, read_back: ReadBack, now: State) -> bool:
    """Return whether all that a part asks for is so now, by whatever request."""
    if part.has_aim:
        return part.satisfies(now)
    if not (now.is_there and spec.leaves_it):
        return now.is_there == spec.leaves_it
    if part.call.body is None:
        return not part.existed
    is_whole = part.call.method != "PATCH" and read_back.form == "json"
    if part.before and part.existed and is_whole and _is_version(now, part.before):
        # all is as it was: what the part takes out of it may be there still
        return _is_shown(part, read_back, now) and _is_explained(part, read_back, now, part.call.body, None)
    return _is_shown(part, read_back, now)


def _is_shown(part: Part, read_back: ReadBack, now: State) -> bool:
    """Return whether all of the body of a call is there."""
    if read_back.form != "json":
        return digest_of(canonical(part.call.body, read_back.form, read_back.volatile)) == now.digest
    return is_part_of(without(part.call.body, read_back.volatile), now.body)


def _is_made_of(part: Part, read_back: ReadBack, now: State) -> bool:
    """Return whether all that was asked for is there, and nothing that comes neither from that nor from before."""
    body, before = part.call.body, part.before.body if part.before else None
    if read_back.form != "json":
        return body is not None and _is_shown(part, read_back, now)
    asked = {} if body is None else _merged(before, body) if part.call.method == "PATCH" else body
    is_shown = is_part_of(without(asked, read_back.volatile), now.body)
    return is_shown and _is_explained(part, read_back, now, asked, before)


def _merged(before: Any, change: Any) -> Any:
    if not (isinstance(before, Mapping) and isinstance(change, Mapping)):
        return change
    return {**before, **{key: _merged(before.get(key), inner) for key, inner in change.items()}}


def _is_explained(part: Part, read_back: ReadBack, now: State, asked: Any, before: Any) -> bool:
    """Return whether each value is at the same place of the request or the state before, or is a name in the path."""
    names = {str(each) for each in part.call.path.values()}

    def is_known(seen: Any, *sources: Any) -> bool:
        if isinstance(seen, Mapping):
            objects = [each for each in sources if isinstance(each, Mapping)]
            return all(is_known(seen[key], *(each[key] for each in objects if key in each)) for key in seen)
        if any(type(seen) is type(each) and seen == each for each in sources):
            return True
        return isinstance(seen, (str, int)) and str(seen) in names

    return is_known(without(now.body, [*read_back.volatile, *read_back.added]), asked, before)


def is_part_of(asked: Any, seen: Any) -> bool:
    """Return whether a value has all that `asked` says: objects may have more names, lists are as long and in order."""
    if isinstance(asked, Mapping) and isinstance(seen, Mapping):
        return all(key in seen and is_part_of(inner, seen[key]) for key, inner in asked.items())
    if isinstance(asked, list) and isinstance(seen, list):
        return len(asked) == len(seen) and all(map(is_part_of, asked, seen))
    if isinstance(asked, (int, float)) and isinstance(seen, (int, float)):  # 1.0 may be shown as 1
        return isinstance(asked, bool) == isinstance(seen, bool) and asked == seen
    return type(asked) is type(seen) and asked == seen
