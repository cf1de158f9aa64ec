"""Undo of calls: the choice of a compensating request, the request itself, and the proof of what it did.

A compensating request is made from what was requested, what was answered, and what was there before. After it was sent,
what the service shows is compared with that. So one that is wrong is found out the first time, is quarantined, and what
it did is undone in its turn where the catalogue knows how.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from autoclave.core import HostError, InputError
from autoclave.core.json import validated
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import InDoubt, NotUndone
from autoclave.runtime.rest.catalogue import Undo, parameters_in
from autoclave.runtime.rest.compensations import Compensation, Compensations, ProofStatus
from autoclave.runtime.rest.evidence import is_other_tag, is_other_version
from autoclave.runtime.rest.expressions import evaluated, expressions_in, value_of
from autoclave.runtime.rest.forms import has_mark
from autoclave.runtime.rest.parts import Ask, Call, Part, State, filled, free_call
from autoclave.runtime.rest.sending import Refused, Sender
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.wire import NotSent

Json = Mapping[str, Any]
ProposeCompensation = Callable[[Json, Json, Json | None], Json]
"""Asks a model for a compensating request: given request, response and all operations, it gives `operation` and
`arguments`; without operations, for a service that has no catalogue, `method`, `path` and `body`."""
_BROKEN = (400, 404, 405, 410, 422)
"""Statuses by which a service says of a compensating request that nobody has proven that it is none."""


class Compensator:
    """Chooses and makes compensating requests. `propose` is asked where the catalogue has none, and is unproven.

    Where there is none that can be used, or none can be made, InputError is raised.
    """

    def __init__(
        self, compensations: Compensations, sender: Sender, propose: ProposeCompensation | None = None
    ) -> None:
        self._compensations, self._sender, self._propose = compensations, sender, propose

    def best(self, service: Service, part: Part) -> tuple[Compensation | None, str]:
        """Return the declared or learnt one that fits what was there before and was never broken, or None and why."""
        declared = [each for each in service.spec_of(part).undo if _fits(service, part, each)]
        learnt = self._compensations.reusable(service.name, part.operation) if part.operation else []
        reasons: list[str] = []
        for undo in (*declared, *learnt):
            known = self._known(service, part.operation, undo)
            if known.status is ProofStatus.QUARANTINED:
                reasons.append(f"{undo.operation} was to take it back, and is quarantined: {known.learnt.reason}")
            elif missing := _missing(undo, part):
                reasons.append(f"{undo.operation} needs {missing} to take it back, and there is nothing of that name")
            elif has_mark(evaluated(undo.arguments, part.context, "")):
                what = "what was there before has a key, or something that is not read exactly"
                reasons.append(f"{what}, and cannot be put back")
            elif undo.grade is not Guarantee.NONE:
                return known, ""
        return None, next(iter(reasons), "cannot be taken back; no compensating request is known")

    def planned(self, service: Service, part: Part) -> tuple[Compensation | None, str]:
        """Return the one that fits, and why there is none or it could not be sent now; empty if it could."""
        compensation, why_not = self.best(service, part)
        if compensation is None:
            return None, why_not
        spec = service.spec(compensation.undo.operation)
        # a name that only the answer will tell is `x` here
        given = {name: compensation.undo.arguments.get(name, "x") for name in parameters_in(spec.path)}
        try:
            target = filled(spec.path, evaluated(given, part.context, "x"))
            service.wire.require_key_for(Call(spec.method, target))
        except InputError as error:
            return compensation, str(error)
        return compensation, ""

    def declared(self, service: Service) -> Iterator[tuple[str, Compensation]]:
        """All that the catalogue of a service has, each after the operation that it takes back."""
        for operation, spec in service.catalogue.operations.items() if service.catalogue else ():
            yield from ((operation, self._known(service, operation, undo)) for undo in spec.undo)

    def _known(self, service: Service, operation: str, undo: Undo) -> Compensation:
        name = self._compensations.name(service.name, operation, service.spec(operation), undo)
        valid_s = service.connection.proof_days * 86_400
        return Compensation(undo, name, self._compensations.learnt(name, undo.status), valid_s)

    @property
    def can_propose(self) -> bool:
        """True if there is a model to ask for a compensating request that nobody knows."""
        return self._propose is not None

    def _proposed(self, service: Service, part: Part) -> Compensation:
        """The compensating request that the model proposes, for lack of another. Nothing is known of it."""
        operations = {
            name: spec.model_dump(mode="json", include={"method", "path", "summary", "parameters", "body"})
            for name, spec in (service.catalogue.operations if service.catalogue else {}).items()
            if not spec.is_reading
        }
        given = self._asked(part, operations)
        proposed = {"operation": given.get("operation"), "arguments": given.get("arguments", {})}
        undo = validated(Undo, proposed, _proposal_of(service))
        compensation = self._known(service, part.operation, undo)
        if compensation.status is ProofStatus.QUARANTINED:
            raise InputError(f"service {service.name}: {undo.operation} was proposed again, and is known to be wrong")
        return compensation

    def _proposed_request(self, service: Service, part: Part) -> Part:
        """The request that the model proposes for one of no catalogue. Nothing is known of it, nor seen after it.

        It may be about what the request named, or, after a POST, about what is below that.
        """
        given = self._asked(part, None)
        filled_in = {name: evaluated(given.get(name), part.context) for name in ("method", "path", "body")}
        ask = validated(Ask, {"do": "request", "service": service.name, **filled_in}, _proposal_of(service))
        call = free_call(ask.method, ask.path, ask.body, ask.content_type)
        own, other = service.key(part.call.target), service.key(call.target)
        if not (other.startswith(f"{own}/") if part.call.method == "POST" else other == own):
            raise _about_another(service, other)
        return Part("", {}, call)

    def _asked(self, part: Part, operations: Json | None) -> Json:
        assert self._propose is not None
        request = {"operation": part.operation, "method": part.call.method, "path": part.call.target}
        request |= {"arguments": part.arguments} if part.operation else {"body": part.call.body}
        request |= {"before": part.before.body if part.before else None}
        return self._propose(request, part.answer.response if part.answer else {}, operations)

    def taking_back(self, service: Service, part: Part, now: State | None, *, may_propose: bool = False) -> Part:
        """The part that takes another back, given what there is now; with `may_propose` a model is asked for it."""
        may_propose = may_propose and self.can_propose
        if may_propose and not part.operation:
            return self._proposed_request(service, part)
        compensation, why_none = self.best(service, part)
        if compensation is None and may_propose:
            compensation = self._proposed(service, part)
        if compensation is None:
            raise InputError(f"{part.call.told}: {why_none}")
        return self._made(service, part, compensation, now)

    def _made(self, service: Service, part: Part, compensation: Compensation, now: State | None) -> Part:
        undo = compensation.undo
        new = service.part(undo.operation, evaluated(undo.arguments, part.context), reads_back=False)
        num_inside = service.num_inside(new) if now is None or now.is_there else None
        if num_inside:
            raise InputError(f"{new.call.told}: there are {num_inside} things in it, which would go with it")
        is_declared = undo in service.spec_of(part).undo
        if not is_declared:  # what a model proposes may touch only what the action itself wrote
            own, other = service.key(part.subject.target) if part.subject else "", service.key(new.call.target)
            if not own or not f"{other}/".startswith(f"{own}/"):
                raise _about_another(service, other)
        return replace(
            new,
            read_back=part.read_back,
            subject=part.subject,
            before=now,
            num_inside=num_inside,
            wanted=None if undo.leaves or part.subject is None else part.before or State(),
            leaves=undo.leaves,
            compensation=compensation.name,
            is_pinned=compensation.status is ProofStatus.PINNED,
            proposed=None if is_declared else undo.model_dump(mode="json"),
        )

    def done(self, service: Service, action: str, run: str, part: Part) -> Part:
        """Send a compensating request and read back, or go on with that; with what is seen after it.

        Raises NotUndone where nothing was changed, or it was put back, and InDoubt where it is neither as before nor as
        after.
        """
        end = self._sender.notes.end(action, run)
        try:
            end = end or self._one(service, action, run, part)
        except (Refused, NotSent) as error:
            is_refused = isinstance(error, Refused) and error.status in _BROKEN
            is_wrong = is_refused and part.compensation and not part.is_pinned
            if is_wrong and self._compensations.learnt(part.compensation).status is ProofStatus.UNPROVEN:
                self._compensations.record(part.compensation, ProofStatus.QUARANTINED, str(error))
            raise NotUndone(str(error)) from None
        if not part.satisfies(end.after):
            self._found_broken(service, action, run, end)
        self._sender.notes.note_end(action, run, end)
        return end

    def _one(self, service: Service, action: str, request: str, part: Part) -> Part:
        """Send one, if not all is as it would leave it already, and nobody has changed it since it was made."""
        is_new = self._sender.notes.sent_at(action, request) is None
        if is_new and part.subject is not None and part.before is not None:
            now = self._first_read_back(service, part)
            if part.has_aim and part.satisfies(now):
                return part.with_end(None, now)
            if not now.is_same(part.before):
                raise Refused(f"{service.key_of(part.subject)}: somebody else has changed it meanwhile")
            if now.etag != part.before.etag:  # the same to whoever uses it, under another name
                part = replace(part, before=now)
        try:
            return self._sender.carried_out(service, action, request, part)
        except InDoubt:  # the second time it is settled
            return self._sender.carried_out(service, action, request, part)

    def _first_read_back(self, service: Service, part: Part) -> State:
        """Return what there is before a compensating request is sent.

        That it is as wanted may be what was there before the action, shown late: believed only when it stays so.
        """
        assert part.subject is not None
        assert part.before is not None
        try:
            if part.satisfies(part.before):  # it was so already, and waited for, when this was planned
                return service.read_back(part.read_back, part.subject)
            return self._sender.seen_when(service, part, lambda now: not part.satisfies(now))
        except (InputError, HostError) as error:  # nothing was sent yet, so nothing is in doubt
            raise Refused(str(error)) from None

    def _found_broken(self, service: Service, action: str, run: str, wrong: Part) -> NoReturn:
        """Quarantine a request that left something else than was before, put back what it did, and raise."""
        place = service.key_of(wrong.subject) if wrong.subject else wrong.call.told
        if _is_of_somebody_else(service, wrong):
            raise InDoubt(f"{place}: was taken back, and somebody else has changed it since")
        reason = f"{place}: after {wrong.operation} it is not as it was before"
        if wrong.compensation and not wrong.is_pinned:
            reason += "; this compensating request is not used again"
            self._compensations.record(wrong.compensation, ProofStatus.QUARANTINED, reason)
        has_changed = wrong.after is None or wrong.before is None or not wrong.after.is_same(wrong.before)
        if has_changed and wrong.answer is not None:
            try:
                back = self.restoring(service, wrong, wrong.after)
                end = self._one(service, action, f"{run}-back", back)
            except (InputError, HostError, InDoubt) as error:
                raise InDoubt(f"{reason}; what was changed cannot be put back: {error}") from None
            if not back.satisfies(end.after):
                raise InDoubt(f"{reason}; what was changed could not be put back")
        raise NotUndone(reason)

    def restoring(self, service: Service, part: Part, now: State | None) -> Part:
        """Return what undoes a compensating request: by the catalogue, or by a pinned compensating request of another
        operation on the same subject.

        Raises InputError where it knows no way.
        """
        if part.before is not None:
            compensation, _ = self.best(service, part)
            if compensation is not None and compensation.undo.grade is not Guarantee.COMPENSATING:
                return self._made(service, part, compensation, now)
            operations = service.catalogue.operations if service.catalogue and part.read_back else {}
            for operation, spec in operations.items():
                other = replace(part, operation=operation)
                for undo in spec.undo if spec.read_back == part.read_back else ():
                    compensation = self._known(service, operation, undo)
                    if compensation.status is ProofStatus.PINNED and _fits(service, other, undo):
                        with contextlib.suppress(InputError):
                            back = self._made(service, part, compensation, now)
                            return replace(back, compensation="", is_pinned=False, proposed=None)
        raise InputError(f"service {service.name}: nothing is known that takes {part.operation} back")


def _fits(service: Service, part: Part, undo: Undo) -> bool:
    """Return whether a compensating request of the operation of a part is for what was there before."""
    if service.spec_of(part).contents and part.num_inside != 0:
        return False
    return undo.when == "any" or (undo.when == "existed") == part.existed


def _missing(undo: Undo, part: Part) -> str:
    """Return what a compensating request needs and neither the request nor the state before has; empty if nothing."""
    known = ("$request", "$before") if part.before is not None else ("$request",)
    needed = [each for each in expressions_in(undo.arguments) if each.startswith(known)]
    return next((each for each in needed if value_of(each, part.context, _NOTHING) is _NOTHING), "")


_NOTHING = object()


def _is_of_somebody_else(service: Service, part: Part) -> bool:
    """Return whether what is seen after a compensating request is a version that it did not make."""
    if part.after is None or part.before is None or not part.after.etag:
        return False
    if not service.spec_of(part).leaves_it:
        return part.after.is_there and is_other_tag(part.after.etag, part.before.etag)
    return is_other_version(part, part.after)


def _proposal_of(service: Service) -> str:
    return f"service {service.name}: the proposed compensating request"


def _about_another(service: Service, key: str) -> InputError:
    return InputError(f"{_proposal_of(service)} targets {key}, not this resource")
