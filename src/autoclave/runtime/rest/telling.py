"""What others are told of actions on services: footprints, accesses for the policy, and words. Asks nobody."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.rest.calls import filled
from autoclave.runtime.rest.catalogue import Body
from autoclave.runtime.rest.compensations import worst
from autoclave.runtime.rest.expressions import evaluated
from autoclave.runtime.rest.forms import encoded
from autoclave.runtime.rest.parts import Part
from autoclave.runtime.rest.service import Service

_MOST_LINES = 400


def footprint_of(service: Service, part: Part) -> Footprint:
    """Return what a part reads, writes and adds to: its subject, if the catalogue does not say otherwise."""
    spec = service.spec_of(part)
    if spec.touches is not None:
        kinds = (spec.touches.reads, spec.touches.writes, spec.touches.adds)
        return Footprint(*(frozenset(service.key(filled(each, part.call.path)) for each in kind) for kind in kinds))
    if part.subject is not None:
        return Footprint(writes=frozenset({service.key_of(part.subject)}))
    key = frozenset({service.key(part.call.target)})
    return Footprint(reads=key) if spec.is_reading else Footprint(writes=key)


def request_of(service: Service, part: Part, guarantee: Guarantee | None = None) -> Request:
    """Return what a part requests of the policy, with how much that is.

    Raises:
        InputError: what it costs is not a number.
    """
    spec = service.spec_of(part)
    spend = evaluated(spec.spend, {"request": part.call.request})
    if isinstance(spend, bool) or not isinstance(spend, (int, float)) or not 0 <= spend < float("inf"):
        raise InputError(f"{part.operation}: costs {spend!r}, which must be a number of at least 0")
    num_bytes = len(encoded(part.call.body, part.call.content_type))
    access = Access(spec.policy_verb, service.resource(part.call), bytes_written=num_bytes, spend=float(spend))
    return Request((access,)) if guarantee is None else Request((access,), guarantee)


def told_of(service: Service) -> Iterator[str]:
    """The operations of a service in lines: names, parameters, what they are for, how good their undo is at least."""
    yield f"service {service.name}:" + ("" if service.catalogue else " free requests only")
    for name, spec in (service.catalogue.operations if service.catalogue else {}).items():
        given = {each: about for each, about in spec.all_parameters.items() if each != spec.key_parameter}
        arguments = [each if about.is_required else f"{each}?" for each, about in given.items()]
        arguments += [_body_of(spec.body)] if spec.body else []
        grade = worst([each.grade for each in spec.undo]) if spec.undo else Guarantee.NONE
        ending = "reads only" if spec.is_reading else f"undo: {grade}"
        yield f"  {name}({', '.join(arguments)}): {spec.summary or spec.method + ' ' + spec.path} [{ending}]"


def _body_of(body: Body) -> str:
    """A body in a word, with the names of what it has, as far as its form tells them."""
    needed = body.form.get("required", ())
    known = dict.fromkeys([*needed, *body.form.get("properties", {})])
    names = [each if each in needed else f"{each}?" for each in known]
    return "body" + ("" if body.is_required else "?") + (f"{{{', '.join(names)}}}" if names else "")


def differences(part: Part) -> Iterator[str]:
    """Lines as `diff -u` has them; before an action is run, those of the request in place of what it will leave."""
    before = _lines(part.before.body) if part.before and part.before.is_there else []
    after = _lines(part.after.body if part.after else part.call.body)
    place = part.subject.target if part.subject else part.call.target
    lines = list(difflib.unified_diff(before, after, place, f"{place} ({part.call.method})", lineterm=""))
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"... and {len(lines) - _MOST_LINES} lines more"


def _lines(body: Any) -> list[str]:
    if body is None:
        return []
    return (
        body if isinstance(body, str) else json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False)
    ).splitlines()
