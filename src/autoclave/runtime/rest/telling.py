"""What others are told of actions on services: footprints, accesses for the policy, and words. Asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoclave.core import InputError
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.request import Access
from autoclave.runtime.rest.calls import filled
from autoclave.runtime.rest.catalogue import Body
from autoclave.runtime.rest.expressions import evaluated
from autoclave.runtime.rest.forms import encoded
from autoclave.runtime.rest.parts import Part
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.undoing import worst


def footprint_of(service: Service, parts: Sequence[Part]) -> Footprint:
    """What parts read, write and add to: their subjects, if the catalogue does not say otherwise."""
    keys: dict[str, set[str]] = {"reads": set(), "writes": set(), "adds": set()}
    for part in parts:
        spec = service.spec_of(part)
        if spec.touches is not None:
            for kind in keys:
                for template in getattr(spec.touches, kind):
                    keys[kind].add(service.key(filled(template, part.call.path)))
        elif part.subject is not None:
            keys["writes"].add(service.key_of(part.subject))
        else:
            keys["reads" if spec.is_reading else "writes"].add(service.key(part.call.target))
    return Footprint(*map(frozenset, keys.values()))


def accesses_of(service: Service, parts: Sequence[Part], *, is_counted: bool = True) -> Iterator[Access]:
    """What parts ask of the policy; `is_counted`: with how much that is.

    Raises:
        InputError: what one costs is no number.
    """
    for part in parts:
        spec = service.spec_of(part)
        resource = service.resource(part.call)
        if not is_counted:
            yield Access(spec.policy_verb, resource)
            continue
        spend = evaluated(spec.spend, {"request": part.call.request})
        if isinstance(spend, bool) or not isinstance(spend, (int, float)) or not 0 <= spend < float("inf"):
            raise InputError(f"{part.operation}: costs {spend!r}, which must be a number of at least 0")
        num_bytes = len(encoded(part.call.body, part.call.content_type))
        yield Access(spec.policy_verb, resource, bytes_written=num_bytes, spend=float(spend))


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
