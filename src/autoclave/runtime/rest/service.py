"""One service: its catalogue, what is asked of it, and what can be seen of it. Looking changes nothing there."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from autoclave.core import HostError, InputError
from autoclave.core.json import nearest, shown
from autoclave.runtime.rest.answers import complaint
from autoclave.runtime.rest.calls import call_of, filled, filled_target, free_call, require_target
from autoclave.runtime.rest.catalogue import Catalogue, Listing, Look, OperationSpec, needs_answer
from autoclave.runtime.rest.connection import ServiceConnection, origin_of
from autoclave.runtime.rest.expressions import at, evaluated, expressions_in, value_or_none, with_value
from autoclave.runtime.rest.fields import parameters_in
from autoclave.runtime.rest.forms import canonical, fingerprint
from autoclave.runtime.rest.links import following
from autoclave.runtime.rest.operations import Ask
from autoclave.runtime.rest.parts import ABSENT, Answer, Call, Part, State
from autoclave.runtime.rest.wire import Lost, NotSent, Wire
from autoclave.runtime.vault.targets import plain_path

_MOST_REDIRECTS = 3
_LINK = "$response.header.link"


class Service:
    """A service under the name that grants and actions have for it."""

    def __init__(self, name: str, connection: ServiceConnection, catalogue: Catalogue | None, wire: Wire) -> None:
        self.name, self.connection, self.catalogue, self.wire = name, connection, catalogue, wire

    def spec(self, operation: str, method: str = "POST") -> OperationSpec:
        """What is known of an operation; for an empty name: of a free request, which is nothing but the method.

        Raises:
            InputError: there is none of that name.
        """
        if not operation:
            return OperationSpec(method=method, path="/")
        if self.catalogue is None:
            raise InputError(f"service {self.name}: operation {shown(operation)}: it has no catalogue")
        if operation not in self.catalogue.operations:
            fix = nearest(operation, list(self.catalogue.operations))
            raise InputError(f"service {self.name}: operation {shown(operation)}: there is none; {fix}")
        return self.catalogue.operations[operation]

    def spec_of(self, part: Part) -> OperationSpec:
        """What is known of the operation of a part."""
        return self.spec(part.operation, part.call.method)

    def spec_of_batch(self, ask: Ask) -> OperationSpec:
        """What is known of the request that others are sent in."""
        return self.spec(self.named(ask)[0])

    def look_of(self, part: Part) -> Look:
        """The look that shows what a part changes."""
        assert self.catalogue is not None
        return self.catalogue.looks[part.look]

    def resource(self, call: Call) -> str:
        """The name that the policy knows a call by."""
        return f"services/{self.name}/{call.method}{_plain(call.target)}"

    def told(self, call: Call) -> str:
        """A call in words, with the path as grants have it."""
        return f"{call.method} {_plain(call.target)}"

    def key(self, target: str) -> str:
        """The key of what is at a path, for footprints and conflicts."""
        return f"services/{self.name}{_plain(target)}"

    def key_of(self, subject: Call) -> str:
        """The key of what a look shows: its path, and what else says what it is about."""
        query, body = subject.target.partition("?")[2], subject.body
        names = [quote(query, safe="=")] if query else []
        names += [fingerprint(body)[:16]] if body is not None else []
        return "/".join([self.key(subject.target), *names])

    # --- Asking -----------------------------------------------------------------------------------------------------

    def call(self, operation: str, arguments: Mapping[str, Any]) -> Call:
        """The call of an operation of the catalogue.

        Raises:
            InputError: there is none of that name, or the arguments are wrong.
        """
        spec = self.spec(operation)
        return call_of(operation, spec, arguments, self.catalogue.headers if self.catalogue else {})

    def foreseen(self, operation: str, arguments: Mapping[str, Any], part: Part) -> Call:
        """Method and path of what would take a part back; a name that only the answer will tell is `x` here."""
        spec, values = self.spec(operation), dict[str, Any]()
        for name in parameters_in(spec.path):
            given = arguments.get(name, "x")
            known = all(value_or_none(each, part.scene) is not None for each in expressions_in(given))
            values[name] = evaluated(given, part.scene) if known else "x"
        return Call(spec.method, filled(spec.path, values))

    def named(self, ask: Ask) -> tuple[str, Mapping[str, Any]]:
        """The operation that is asked for, and its arguments; an empty name for a free request.

        Raises:
            InputError: it is not registered, and the connection permits no free requests.
        """
        if ask.operation:
            return ask.operation, ask.arguments
        require_target(ask.path)
        path, mark, query = ask.path.partition("?")
        target = f"{plain_path(path)}{mark}{query}"
        found = self.catalogue.matched(ask.method, target) if self.catalogue else None
        if found is None:
            if not self.connection.allows_free:
                raise InputError(
                    f"service {self.name}: {ask.method} {ask.path.partition('?')[0][:200]} is no operation of its "
                    "catalogue, and this connection permits no others"
                )
            return "", {}
        name, arguments = found
        return name, arguments | ({"body": ask.body} if ask.body is not None else {})

    def parts(self, ask: Ask, *, looks: bool) -> list[Part]:
        """What is asked for, with what there is before it. Without `looks`, nothing is sent.

        Raises:
            InputError: it cannot be asked.
            HostError: the service cannot be reached.
        """
        name, arguments = self.named(ask)
        if not name:
            return [Part("", {}, free_call(ask.method, ask.path, ask.body, ask.content_type, self.catalogue))]
        spec = self.spec(name)
        if spec.batch:
            call = self.call(name, arguments)
            return [self.part(*each, looks=looks) for each in self._inner(name, spec, call)]
        return [self.part(name, arguments, looks=looks)]

    def part(self, name: str, arguments: Mapping[str, Any], *, looks: bool = True) -> Part:
        """One call, with a key of ours if the service takes one, and what there is before it."""
        spec = self.spec(name)
        arguments, is_keyed = _with_key(spec, arguments)
        call = self.call(name, arguments)
        part = Part(name, arguments, call, is_keyed=is_keyed, guards=spec.is_guarded, look=spec.look)
        if not looks or spec.is_reading:
            return part
        subject = None if needs_answer(spec) else self.subject(part)
        part = replace(part, subject=subject, before=self.look(spec.look, subject) if subject else None)
        if spec.listing and subject is None and not is_keyed:
            part = replace(part, listed=sorted(self.listed(spec.listing, part)))
        return replace(part, num_inside=self.num_inside(part)) if part.existed else part

    def num_inside(self, part: Part) -> int | None:
        """How many things are in the subject of a part that go with it; None if the catalogue knows of none."""
        spec = self.spec_of(part)
        return len(self.listed(spec.contents, part)) if spec.contents else None

    def _inner(self, name: str, spec: OperationSpec, call: Call) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The requests in a batch, each an operation of the catalogue."""
        assert spec.batch is not None
        given = at(call.body, spec.batch.requests)
        if not isinstance(given, list) or not given:
            raise InputError(f"{name}.body{spec.batch.requests}: must be a list of requests")
        defaults = at(call.body, spec.batch.defaults, {})
        for number, each in enumerate(given):
            method, path = (
                str(at(each, spec.batch.request[key], at(defaults, spec.batch.request[key], "")))
                for key in ("method", "path")
            )
            found = self.catalogue.matched(method, path) if self.catalogue else None
            if found is None or self.spec(found[0]).batch:
                raise InputError(f"{name}: request {number}: {method} {path[:200]} is no operation of the catalogue")
            body = at(each, spec.batch.request["body"], at(defaults, spec.batch.request["body"]))
            yield found[0], found[1] | ({"body": body} if body is not None else {})

    def whole(self, ask: Ask, parts: Sequence[Part]) -> Call | None:
        """The one request that a batch is sent as; None if the parts are sent alone."""
        name, arguments = self.named(ask)
        batch = self.spec(name).batch if name else None
        if batch is None:
            return None
        listed: list[Any] = []
        for part in parts:
            inner: Any = {}
            values = {"method": part.call.method, "path": part.call.target, "body": part.call.body}
            values["headers"] = {**part.call.headers, **part.guard}
            for key, pointer in batch.request.items():
                inner = inner if values[key] in (None, {}) else with_value(inner, pointer, values[key])
            listed.append(inner)
        return self.call(name, {**arguments, "body": with_value({}, batch.requests, listed)})

    def answers(self, ask: Ask, whole: Answer, number: int) -> list[Answer]:
        """The answers in that to a batch.

        Raises:
            InputError: there are not as many as there were requests, or one is none.
        """
        batch = self.spec_of_batch(ask).batch
        given = at(whole.body, batch.responses) if batch else None
        if batch is None or not isinstance(given, list) or len(given) != number:
            raise InputError("the answer has not as many parts as the request")
        found: list[Answer] = []
        for each in given:
            headers, status = (
                at(each, batch.response.get("headers", "/headers"), {}),
                at(each, batch.response["status"]),
            )
            if isinstance(status, bool) or not re.fullmatch("[1-9][0-9]{2}", str(status)):
                raise InputError(f"the answer has a part with the status {shown(status, 50)}, which is none")
            plain: Mapping[str, Any] = headers if isinstance(headers, Mapping) else {}
            lower = {key.lower(): str(value) for key, value in plain.items()}
            found.append(Answer(int(str(status)), lower, at(each, batch.response["body"])))
        return found

    # --- Looking ----------------------------------------------------------------------------------------------------

    def subject(self, part: Part) -> Call | None:
        """The look that shows what a part changes; None if there is none, or nobody can tell yet."""
        spec = self.spec(part.operation)
        if not spec.look or self.catalogue is None:
            return None
        look = self.catalogue.looks[spec.look]
        values = {**part.call.path, **part.call.query}
        for name, template in spec.subject.items():
            if any(value_or_none(each, part.scene) is None for each in expressions_in(template)):
                return None
            values[name] = evaluated(template, part.scene)
        scene = {"request": {**part.call.request, "path": values}}
        body = evaluated(look.body, scene) if look.body is not None else None
        target = filled_target(look.path, values)
        return Call(look.method, target, self.catalogue.headers, body, form=look.form)

    def look(self, name: str, subject: Call) -> State:
        """What there is of a subject, by the look of this name.

        Raises:
            InputError: the service does not show it.
            HostError: it cannot be reached.
        """
        assert self.catalogue is not None
        look = self.catalogue.looks[name]
        answer = self.seen(subject)
        if look.is_absence(answer.status, answer.body):
            return State(ABSENT)
        if not 200 <= answer.status < 300 or self.is_refusal(answer):
            raise InputError(f"service {self.name}: {subject.told}: {complaint(answer)}")
        etag = value_or_none(look.etag, {"response": answer.response})
        return State(fingerprint(canonical(answer.body, look.form, look.volatile)), str(etag or ""), answer.body)

    def seen(self, call: Call) -> Answer:
        """The answer to a request that changes nothing, asked for again while the service is not well.

        Raises:
            InputError: it leads elsewhere.
            HostError: the service cannot be reached.
        """
        until, pause_s, num_redirects = time.monotonic() + self.connection.patience_s, 0.05, 0
        while True:
            try:
                answer = self.wire.send(call)
            except (NotSent, Lost) as error:
                problem = str(error)
            else:
                problem = f"service {self.name}: {call.told}: {complaint(answer)}"
                if answer.status in (301, 302, 303, 307, 308):
                    call, num_redirects = self._redirected(call, answer, num_redirects), num_redirects + 1
                    continue
                if answer.status not in (500, 502, 503, 504):
                    return answer
            if time.monotonic() >= until:
                raise HostError(f"{problem}. Fix: try again when the service is well")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 1.0)

    def _redirected(self, call: Call, answer: Answer, number: int) -> Call:
        """Where an answer leads: only to the same path is followed, since only that was permitted.

        Raises:
            InputError: elsewhere.
        """
        place, is_here = urlsplit(""), False
        with contextlib.suppress(InputError, ValueError):
            place = urlsplit(answer.headers.get("location", ""))
            is_here = not place.netloc or origin_of(place.geturl()) == origin_of(self.connection.base_url)
        if not is_here or not place.path.startswith(f"{self.connection.prefix}/"):
            raise InputError(
                f"service {self.name}: {call.told}: leads to {place.netloc[:100]!r}, where nothing of this service goes"
            )
        target = place.path.removeprefix(self.connection.prefix) + (f"?{place.query}" if place.query else "")
        if number >= _MOST_REDIRECTS or _plain(target) != _plain(call.target):
            raise InputError(
                f"service {self.name}: {call.told}: leads to {place.path[:200]}, which was not asked for. "
                "Fix: ask for that"
            )
        return replace(call, target=target)

    def is_refusal(self, answer: Answer) -> bool:
        """Whether the body says that nothing was done, though the status does not."""
        told = self.catalogue.refusals if self.catalogue else {}
        return any(at(answer.body, pointer, told) == value for pointer, value in told.items())

    def listed(self, name: str, part: Part) -> dict[str, Any]:
        """What is in the listing of this name for a part, by identifiers, from all pages.

        Raises:
            InputError, HostError: the listing cannot be had whole.
        """
        assert self.catalogue is not None
        listing = self.catalogue.listings[name]
        values = {**part.call.path, **part.call.query}
        first = call = Call("GET", filled_target(listing.path, values), self.catalogue.headers, form="json")
        found: dict[str, Any] = {}
        for _ in range(listing.most_pages):
            answer = self.seen(call)
            items = at(answer.body, listing.items)
            if not 200 <= answer.status < 300 or self.is_refusal(answer) or not isinstance(items, list):
                raise InputError(f"service {self.name}: {call.told}: {complaint(answer)}, and no list")
            found |= {self._id_of(call, listing, item): item for item in items}
            if (following_call := self.next_page(listing, first, answer)) is None:
                return found
            call = following_call
        raise InputError(f"service {self.name}: {first.told}: has more than {listing.most_pages} pages")

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
        """The request for the page after an answer; None if that was the last.

        Raises:
            InputError: it leads elsewhere.
        """
        told = value_or_none(listing.next, {"response": answer.response}) if listing.next else None
        place = f"service {self.name}: {first.told}"
        if listing.next == _LINK:
            told = link = following(str(told or ""))
            if link and listing.next_as:
                told = dict(parse_qsl(link.partition("#")[0].partition("?")[2])).get(listing.next_as)
                if not told:
                    raise InputError(f"{place}: the next page is {link[:200]!r}, without {listing.next_as!r} in it")
        elif not told and following(answer.headers.get("link", "")):
            raise InputError(f"{place}: has more pages than its catalogue knows of. Fix: listings.next = {_LINK}")
        if not told:
            return None
        if not listing.next_as:
            return self._redirected(first, Answer(302, {"location": str(told)}), 0)
        joint = "&" if "?" in first.target else "?"
        return replace(first, target=f"{first.target}{joint}{urlencode({listing.next_as: str(told)})}")


def _with_key(spec: OperationSpec, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The arguments with a key of ours where the service takes one, and whether it is ours.

    Raises:
        InputError: one is given that is no name of anything. With one that was used, the service would do nothing.
    """
    if spec.idempotency is None:
        return arguments, False
    key = str(uuid.uuid4())
    if name := spec.key_parameter:
        if name in arguments:
            raise InputError(
                f"{name} is a key by which the service does a request once, and chosen anew for each. "
                "Fix: leave it out, and name the operation in place of method and path"
            )
        return {**arguments, name: key}, True
    name = spec.idempotency.name
    if at(arguments.get("body"), name) is not None:
        return arguments, False
    return {**arguments, "body": with_value(arguments.get("body"), name, key)}, True


def _plain(target: str) -> str:
    """The path of a target in its one spelling, for rules and footprints."""
    return plain_path(target).rstrip("/")
