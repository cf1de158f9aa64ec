"""One service: its catalogue, what is requested of it, and what can be seen of it. Reading changes nothing there."""

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from autoclave.core import HostError, InputError
from autoclave.core.json import shown
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee, worst
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.rest.catalogue import Catalogue, Listing, OperationSpec, ReadBack
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.expressions import at, evaluated, expressions_in, value_of, with_value
from autoclave.runtime.rest.forms import canonical, digest_of, encoded
from autoclave.runtime.rest.parts import ABSENT, Answer, Ask, Call, Part, State, call_of, filled, free_call
from autoclave.runtime.rest.wire import Lost, NotSent, Wire, complaint
from autoclave.runtime.vault.targets import plain_path

_MOST_PAGES = 100
_LINK = "$response.header.link"
_NEXT = re.compile(r"(?<![\w-])next(?![\w-])", re.IGNORECASE)


class Service:
    """A service under the name that grants and actions have for it.

    What cannot be requested, or is not shown, raises InputError; where the service cannot be reached, HostError.
    """

    def __init__(self, name: str, connection: ServiceConnection, catalogue: Catalogue | None, wire: Wire) -> None:
        self.name, self.connection, self.catalogue, self.wire = name, connection, catalogue, wire

    def spec(self, operation: str, method: str = "POST") -> OperationSpec:
        """Return what is known of an operation; of a free request, without a name, that is the method alone."""
        if not operation:
            return OperationSpec(method=method, path="/")
        if self.catalogue is None:
            raise InputError(f"service {self.name}: operation {shown(operation)}: it has no catalogue")
        return self.catalogue.operation(operation)

    def spec_of(self, part: Part) -> OperationSpec:
        return self.spec(part.operation, part.call.method)

    def read_back_of(self, part: Part) -> ReadBack:
        assert self.catalogue is not None
        return self.catalogue.read_backs[part.read_back]

    def resource(self, call: Call) -> str:
        """The name that the policy knows a call by."""
        return f"services/{self.name}/{call.method}{_plain(call.target)}"

    def told(self, call: Call) -> str:
        """A call in words, with the path as grants have it."""
        return f"{call.method} {_plain(call.target)}"

    def place(self, part: Part) -> str:
        """The beginning of messages about a part."""
        return f"service {self.name}: {part.call.told}"

    def key(self, target: str) -> str:
        """The key of what is at a path, for footprints and conflicts."""
        return f"services/{self.name}{_plain(target)}"

    def key_of(self, subject: Call) -> str:
        """The key of what a read-back shows: its path, and what else says what it is about."""
        query, body = subject.target.partition("?")[2], subject.body
        names = [quote(query, safe="=")] if query else []
        names += [digest_of(body)[:16]] if body is not None else []
        return "/".join([self.key(subject.target), *names])

    def footprint(self, part: Part) -> Footprint:
        """Return what a part reads and writes: its subject, if the catalogue does not say otherwise."""
        spec = self.spec_of(part)
        if spec.touches:
            return Footprint(writes=frozenset(self.key(filled(each, part.call.path)) for each in spec.touches))
        if part.subject is not None:
            return Footprint(writes=frozenset({self.key_of(part.subject)}))
        key = frozenset({self.key(part.call.target)})
        return Footprint(reads=key) if spec.is_reading else Footprint(writes=key)

    def request(self, part: Part, guarantee: Guarantee = Guarantee.EXACT) -> Request:
        """Return what a part requests of the policy, with how much that is."""
        spec = self.spec_of(part)
        spend = evaluated(spec.spend, {"request": part.call.request})
        if isinstance(spend, bool) or not isinstance(spend, (int, float)) or not 0 <= spend < float("inf"):
            raise InputError(f"{part.operation}: costs {spend!r}, which must be a number of at least 0")
        num_bytes = len(encoded(part.call.body, part.call.content_type))
        access = Access(spec.policy_verb, self.resource(part.call), bytes_written=num_bytes, spend=float(spend))
        return Request((access,), guarantee)

    def requested(self, ask: Ask, *, reads_back: bool) -> Part:
        """Return what is requested, with what there is before it. Without `reads_back`, nothing is sent."""
        if ask.operation:
            return self.part(ask.operation, ask.arguments, reads_back=reads_back)
        if self.catalogue is not None:
            raise InputError(f"service {self.name}: has a catalogue; name one of its operations, not method and path")
        return Part("", {}, free_call(ask.method, ask.path, ask.body, ask.content_type))

    def part(self, name: str, arguments: Mapping[str, Any], *, reads_back: bool = True) -> Part:
        """One call, with a key of ours if the service takes one, and what there is before it."""
        spec = self.spec(name)
        arguments, is_keyed = _with_key(spec, arguments)
        call = call_of(name, spec, arguments, self.catalogue.headers if self.catalogue else {})
        part = Part(name, arguments, call, is_keyed=is_keyed, guards=spec.is_guarded, read_back=spec.read_back)
        if not reads_back or spec.is_reading:
            return part
        subject = None if spec.needs_answer else self.subject(part)
        part = replace(part, subject=subject, before=self.read_back(spec.read_back, subject) if subject else None)
        if spec.listing and subject is None and not is_keyed:
            part = replace(part, listed=sorted(self.listed(spec.listing, part)))
        return replace(part, num_inside=self.num_inside(part)) if part.existed else part

    def num_inside(self, part: Part) -> int | None:
        """Return how many things are in the subject of a part that go with it; None if the catalogue knows of none."""
        spec = self.spec_of(part)
        return len(self.listed(spec.contents, part)) if spec.contents else None

    def require_contents(self, part: Part) -> None:
        """Check, right before a part is sent, that as much goes with its subject as when that was read."""
        if part.num_inside is not None and (now := self.num_inside(part)) != part.num_inside:
            told = f"{self.place(part)}: there are {now} things in it, which would go with it"
            raise InputError(f"{told}, and {part.num_inside} before")

    def subject(self, part: Part) -> Call | None:
        """The read-back that shows what a part changes; None if there is none, or its place is not known yet."""
        spec = self.spec(part.operation)
        if not spec.read_back or self.catalogue is None:
            return None
        read_back, values = self.catalogue.read_backs[spec.read_back], {**part.call.path, **part.call.query}
        if any(value_of(each, part.context, None) is None for each in expressions_in(spec.subject)):
            return None
        values |= evaluated(spec.subject, part.context)
        context = {"request": {**part.call.request, "path": values}}
        body = evaluated(read_back.body, context) if read_back.body is not None else None
        target = filled(read_back.path, values)
        return Call(read_back.method, target, self.catalogue.headers, body, form=read_back.form)

    def read_back(self, name: str, subject: Call) -> State:
        assert self.catalogue is not None
        read_back, answer = self.catalogue.read_backs[name], self.seen(subject)
        if read_back.is_absence(answer.status, answer.body):
            return State(ABSENT)
        if not 200 <= answer.status < 300 or self.is_refusal(answer):
            raise InputError(f"service {self.name}: {subject.told}: {complaint(answer)}")
        digest = digest_of(canonical(answer.body, read_back.form, read_back.volatile))
        return State(digest, answer.headers.get("etag", ""), answer.body)

    def seen(self, call: Call) -> Answer:
        """The answer to a request that changes nothing, asked for again while the service is not well."""
        place = f"service {self.name}: {call.told}"
        problem = ""
        for _ in attempts(self.connection.patience_s):
            try:
                answer = self.wire.send(call)
            except (NotSent, Lost) as error:
                problem = str(error)
                continue
            if answer.status in (301, 302, 303, 307, 308):
                where = answer.headers.get("location", "")[:200]
                raise InputError(f"{place}: leads to {where!r}; redirects are not followed. Fix: ask for that")
            if answer.status not in (500, 502, 503, 504):
                return answer
            problem = f"{place}: {complaint(answer)}"
        raise HostError(f"{problem}. Fix: try again when the service is well")

    def is_refusal(self, answer: Answer) -> bool:
        """Return whether the body says that nothing was done, though the status does not."""
        told = self.catalogue.refusals if self.catalogue else {}
        return any(at(answer.body, pointer, told) == value for pointer, value in told.items())

    def listed(self, name: str, part: Part) -> dict[str, Any]:
        """Return what is in the listing of this name for a part, by identifiers, from all pages."""
        assert self.catalogue is not None
        listing = self.catalogue.listings[name]
        values = {**part.call.path, **part.call.query}
        first = call = Call("GET", filled(listing.path, values), self.catalogue.headers, form="json")
        found: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            answer = self.seen(call)
            items = at(answer.body, listing.items)
            if not 200 <= answer.status < 300 or self.is_refusal(answer) or not isinstance(items, list):
                raise InputError(f"service {self.name}: {call.told}: {complaint(answer)}, and no list")
            found |= {self._id_of(call, listing, item): item for item in items}
            if (following_page := self.next_page(listing, first, answer)) is None:
                return found
            call = following_page
        raise InputError(f"service {self.name}: {first.told}: has more than {_MOST_PAGES} pages")

    def _id_of(self, call: Call, listing: Listing, item: Any) -> str:
        """The identifier of an item; several without any would be taken for one."""
        name = at(item, listing.id)
        if isinstance(name, bool) or not isinstance(name, (str, int)) or name == "":
            raise InputError(
                f"service {self.name}: {call.told}: {shown(item, 100)} has no identifier at {listing.id!r} "
                "(listings.id in its catalogue), so nobody can tell what is there"
            )
        return str(name)

    def next_page(self, listing: Listing, first: Call, answer: Answer) -> Call | None:
        """The request for the page after an answer, at the same path alone. None if that was the last."""
        told = value_of(listing.next, {"response": answer.response}, None) if listing.next else None
        place = f"service {self.name}: {first.told}"
        if listing.next == _LINK or not told:
            told = following(answer.headers.get("link", ""))
            if told and listing.next != _LINK:
                raise InputError(f"{place}: has more pages than its catalogue knows of. Fix: listings.next = {_LINK}")
        if not told:
            return None
        path, _, query = first.target.partition("?")
        if listing.next_as:
            more = urlencode({listing.next_as: str(told)})
            return replace(first, target=f"{path}?{query}&{more}" if query else f"{path}?{more}")
        page = str(told).partition("#")[0].partition("?")[2]
        if page in ("", query):
            raise InputError(f"{place}: the next page is {str(told)[:200]!r}, whose query does not say which it is")
        return replace(first, target=f"{path}?{page}")

    def described(self) -> Iterator[str]:
        """The operations in lines: names, parameters, what they are for, how good their undo is at least."""
        yield f"service {self.name}:" + ("" if self.catalogue else " free requests only")
        for name, spec in (self.catalogue.operations if self.catalogue else {}).items():
            given = {each: about for each, about in spec.all_parameters.items() if each != spec.key_parameter}
            arguments = [each if about.is_required else f"{each}?" for each, about in given.items()]
            if spec.body:
                needed = spec.body.form.get("required", ())
                known = dict.fromkeys([*needed, *spec.body.form.get("properties", {})])
                names = ", ".join(each if each in needed else f"{each}?" for each in known)
                arguments.append("body" + ("" if spec.body.is_required else "?") + (f"{{{names}}}" if names else ""))
            grade = worst([each.grade for each in spec.undo]) if spec.undo else Guarantee.NONE
            ending = "reads only" if spec.is_reading else f"undo: {grade}"
            yield f"  {name}({', '.join(arguments)}): {spec.summary or spec.method + ' ' + spec.path} [{ending}]"


def attempts(within_s: float) -> Iterator[None]:
    """Yield at once, and again after pauses that become longer, until so many seconds are over."""
    until, pause_s = time.monotonic() + within_s, 0.02
    yield
    while time.monotonic() < until:
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 1.0)
        yield


def _with_key(spec: OperationSpec, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The arguments with a key of ours where the service takes one, and whether it is ours."""
    if not spec.idempotency:
        return arguments, False
    key, name = str(uuid.uuid4()), spec.idempotency
    if spec.has_key_in_body:
        if at(arguments.get("body"), name) is not None:
            return arguments, False
        return {**arguments, "body": with_value(arguments.get("body"), name, key)}, True
    if name in arguments:
        why = f"{name} is a key by which the service does a request once, and chosen again for each"
        raise InputError(f"{why}. Fix: leave it out")
    return {**arguments, name: key}, True


def _plain(target: str) -> str:
    """The path of a target in its one spelling, for rules and footprints."""
    return plain_path(target).rstrip("/")


def following(header: str) -> str:
    """Return the target of the link to the next page in a header Link (RFC 8288); empty if there is none.

    Raises InputError: a next page is named and not clear; to take that for the end would be to overlook what is there.
    """
    import httpx

    links = httpx.Response(200, headers=[(b"link", header.encode("latin-1", "replace"))]).links.values()
    plain = [{name.lower(): value for name, value in link.items()} for link in links]
    found = [link["url"] for link in plain if _NEXT.search(link.get("rel", ""))]
    if len(found) != len(_NEXT.findall(re.sub("<[^<>]*>", "", header))) or len(found) > 1:
        raise InputError(f"header link {shown(header, 100)}: does not say clearly which page is the next one")
    return found[0] if found else ""
