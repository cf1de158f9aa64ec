"""Undo of calls: the choice of a compensating request, the request itself, and the proof of what it did.

A compensating request is made from what was requested, what was answered, and what was there before. After it was sent,
what the service shows is compared with that. So one that is wrong is found out the first time, is quarantined, and what
it did is undone in its turn where the catalogue knows how.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from pydantic import ValidationError

from autoclave.core import HostError, InputError
from autoclave.core.json import first_error, rule_of
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import InDoubt, NotUndone
from autoclave.runtime.rest.calls import filled, free_call, require_target
from autoclave.runtime.rest.catalogue import Undo
from autoclave.runtime.rest.compensations import Compensation, Compensations, Match, ProofStatus
from autoclave.runtime.rest.evidence import is_other_tag, is_other_version
from autoclave.runtime.rest.expressions import evaluated, expressions_in, value_of
from autoclave.runtime.rest.fields import shape_of
from autoclave.runtime.rest.forms import has_mark
from autoclave.runtime.rest.operations import Ask
from autoclave.runtime.rest.outcomes import Refused
from autoclave.runtime.rest.parts import Call, Part, State
from autoclave.runtime.rest.sending import Sender
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.wire import NotSent

Json = Mapping[str, Any]
ProposeCompensation = Callable[[Json, Json, Json | None], Json]
"""Asks a model for a compensating request: given request, response and all operations, it gives `operation` and
`arguments`; without operations, for a service that has no catalogue, `method`, `path` and `body`."""
_BROKEN = (400, 404, 405, 410, 422)
"""Statuses by which a service says of a compensating request that nobody has proven that it is none."""


class Compensator:
    """Chooses and makes compensating requests. `propose` is asked where the catalogue has none, and is unproven."""

    def __init__(
        self, compensations: Compensations, sender: Sender, propose: ProposeCompensation | None = None
    ) -> None:
        self._compensations, self._sender, self._propose = compensations, sender, propose

    # --- Choosing ---------------------------------------------------------------------------------------------------

    def best(self, service: Service, part: Part) -> Compensation | None:
        """Return the one of the catalogue, or one learnt, that fits what was there before; None if there is none.

        What was broken is never used, and in strict mode only what is pinned.
        """
        declared = [
            each for each in service.spec_of(part).undo if _fits(each, part) and _may_be_own(service, part, each)
        ]
        learnt = self._compensations.reusable(service.name, part.operation) if part.operation else []
        found = [self.known(service, part, undo) for undo in (*declared, *learnt)]
        usable = [
            each for each in found if each.status is not ProofStatus.QUARANTINED and _can_be_written(each.undo, part)
        ]
        if service.connection.is_strict:
            usable = [each for each in usable if each.status is ProofStatus.PINNED]
        return next((each for each in usable if each.undo.grade is not Guarantee.NONE), None)

    def known(self, service: Service, part: Part, undo: Undo, operation: str = "") -> Compensation:
        """What is known of a compensating request for a part, as that of its operation or of another one."""
        operation = operation or part.operation
        match, spec = Match(service.connection.match), service.spec(operation, part.call.method)
        name = self._compensations.name(match, service.name, operation, spec, part.arguments, undo)
        learnt = self._compensations.learnt(name, undo.status)
        valid_s = service.connection.proof_days * 86_400
        return Compensation(undo, name, learnt.status, learnt.num_proofs, learnt.proven_at, valid_s)

    def declared(self, service: Service) -> Iterator[tuple[str, Compensation]]:
        """All that the catalogue of a service has, with their operations.

        Where a connection matches exactly, only those of what was done are known.
        """
        operations = service.catalogue.operations if service.catalogue else {}
        for operation, spec in operations.items() if service.connection.match != Match.EXACT else ():
            part = Part(operation, {}, Call(spec.method, spec.path))
            yield from ((operation, self.known(service, part, undo)) for undo in spec.undo)

    def why_none(self, service: Service, part: Part) -> str:
        """Why there is no compensating request of a part."""
        for undo in service.spec_of(part).undo:
            known = self.known(service, part, undo)
            if known.status is ProofStatus.QUARANTINED:
                reason = self._compensations.learnt(known.name).reason
                return f"{undo.operation} was to take it back, and is quarantined: {reason}"
            if not _may_be_own(service, part, undo):
                return f"{undo.operation}, which its description names for it, is about something else than it"
            if _fits(undo, part) and (missing := _missing(undo, part)):
                return f"{undo.operation} needs {missing} to take it back, and there is nothing of that name"
            if _fits(undo, part) and not _can_be_written(undo, part):
                return "what was there before has a key, or something that is not read exactly, and cannot be put back"
        if service.connection.is_strict:
            return "no compensating request is pinned, and this connection is strict"
        return "cannot be taken back; no compensating request is known"

    def planned(self, service: Service, part: Part) -> tuple[Compensation | None, str]:
        """Return the one that fits, and why there is none or it could not be sent now; empty if it could."""
        compensation = self.best(service, part)
        if compensation is None:
            return None, self.why_none(service, part)
        try:
            return compensation, service.wire.why_not(
                service.foreseen(compensation.undo.operation, compensation.undo.arguments, part)
            )
        except InputError as error:
            return compensation, str(error)

    @property
    def can_propose(self) -> bool:
        """Whether there is somebody to ask for a compensating request that the catalogue does not have."""
        return self._propose is not None

    def proposed(self, service: Service, part: Part) -> Compensation:
        """The compensating request that the model proposes, for lack of another. Nothing is known of it.

        Raises:
            InputError: it proposes nothing that can be used.
        """
        if self._propose is None or service.catalogue is None or service.connection.is_strict:
            raise InputError(f"service {service.name}: {part.call.told}: nothing is known that takes it back")
        operations = {
            name: spec.model_dump(mode="json", include={"method", "path", "summary", "parameters", "body"})
            for name, spec in service.catalogue.operations.items()
            if not spec.is_reading
        }
        given = self._asked(self._propose, part, operations)
        try:
            undo = Undo(operation=str(given["operation"]), arguments=dict(given.get("arguments", {})))
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            told = rule_of(first_error(error)["msg"]) if isinstance(error, ValidationError) else "no operation"
            raise InputError(
                f"service {service.name}: the proposed compensating request cannot be used: {told}"
            ) from None
        compensation = self.known(service, part, undo)
        if compensation.status is ProofStatus.QUARANTINED:
            raise InputError(f"service {service.name}: {undo.operation} was proposed again, and is known to be wrong")
        return compensation

    def requested(self, service: Service, part: Part) -> Part:
        """The request that the model proposes for one of no catalogue. Nothing is known of it, nor seen after it.

        It may be about what the request named, or, after a POST, about what is below that.

        Raises:
            InputError: it proposes nothing that can be used.
        """
        if self._propose is None or service.connection.is_strict:
            raise InputError(f"service {service.name}: {part.call.told}: {self.why_none(service, part)}")
        given = self._asked(self._propose, part, None)
        try:
            filled_in = {name: evaluated(given.get(name), part.context) for name in ("method", "path", "body")}
            ask = Ask.model_validate({"do": "request", "service": service.name, **filled_in})
            require_target(ask.path)
        except ValidationError as error:
            told = rule_of(first_error(error)["msg"])
            raise InputError(
                f"service {service.name}: the proposed compensating request cannot be used: {told}"
            ) from None
        call = free_call(ask.method, ask.path, ask.body, ask.content_type, service.catalogue)
        own, other = service.key(part.call.target), service.key(call.target)
        if not (other.startswith(f"{own}/") if part.call.method == "POST" else other == own):
            raise InputError(
                f"service {service.name}: the proposed compensating request targets {other}, not this resource"
            )
        return Part("", {}, call)

    @staticmethod
    def _asked(propose: ProposeCompensation, part: Part, operations: Json | None) -> Json:
        request = {"operation": part.operation, "method": part.call.method, "path": part.call.target}
        request |= {"arguments": part.arguments} if part.operation else {"body": part.call.body}
        request |= {"before": part.before.body if part.before else None}
        return propose(request, part.answer.response if part.answer else {}, operations)

    # --- Making -----------------------------------------------------------------------------------------------------

    def made(self, service: Service, part: Part, compensation: Compensation, now: State | None) -> Part:
        """The part that takes another back, given what there is now.

        Raises:
            InputError: it cannot be made, or is about something else than the part.
        """
        undo = compensation.undo
        new = service.part(undo.operation, evaluated(undo.arguments, part.context), reads_back=False)
        num_inside = service.num_inside(new) if now is None or now.is_there else None
        if num_inside:
            raise InputError(f"{new.call.told}: there are {num_inside} things in it, which would go with it")
        is_declared = undo in service.spec_of(part).undo
        if not is_declared or _is_described(service):
            self._require_own(service, part, new)
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

    def _require_own(self, service: Service, part: Part, new: Part) -> None:
        """A compensating request that a model or a description proposed may touch only what the action itself wrote."""
        target = part.subject.target if part.subject else ""
        if not target and not part.read_back and _is_described(service):
            target = filled(_own_path(service, part), part.call.path)
        own, other = service.key(target) if target else "", service.key(new.call.target)
        if not own or not (other == own or other.startswith(f"{own}/")):
            raise InputError(
                f"service {service.name}: the proposed compensating request targets {other}, not this resource"
            )

    # --- Doing ------------------------------------------------------------------------------------------------------

    def done(self, service: Service, action: str, run: str, part: Part) -> Part:
        """Send a compensating request and read back, or go on with that; with what is seen after it.

        Raises:
            NotUndone: nothing was changed, or it was put back.
            InDoubt: it is neither as before nor as after.
        """
        end = self._sender.notes.end(action, run)
        try:
            end = end or self._one(service, action, run, part)
        except (Refused, NotSent) as error:
            if isinstance(error, Refused) and error.status in _BROKEN and part.compensation and not part.is_pinned:
                self._doubt(part, str(error))
            raise NotUndone(str(error)) from None
        if not part.satisfies(end.after):
            self._found_broken(service, action, run, end)
        self._sender.notes.note_end(action, run, end)
        return end

    def _one(self, service: Service, action: str, request: str, part: Part) -> Part:
        """Send one, if not all is as it would leave it already, and nobody has changed it since it was made."""
        if part.subject is not None and part.before is not None and self._is_new(action, request):
            now = self._first_read_back(service, part)
            if part.satisfies(now) and (part.leaves or part.wanted is not None):
                return part.with_end(None, now)
            if not now.is_same(part.before):
                raise Refused(f"{service.key_of(part.subject)}: somebody else has changed it meanwhile")
            if now.etag != part.before.etag:  # the same to whoever uses it, under another name
                part = replace(part, before=now)
        try:
            return self._sender.carried_out(service, action, request, part)
        except InDoubt:
            ended = self._sender.settled(service, action, request, part)
        if ended is None:
            raise Refused(f"service {service.name}: {part.call.told}: was lost on the way, and not done")
        return ended

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

    def _is_new(self, action: str, request: str) -> bool:
        notes = self._sender.notes
        return notes.sent_at(action, request) is None and notes.answer(action, request) is None

    def _doubt(self, part: Part, reason: str) -> None:
        """Quarantine a request that the service refuses, unless it was proven or somebody answers for it."""
        if self._compensations.learnt(part.compensation).status is ProofStatus.UNPROVEN:
            self._compensations.quarantine(part.compensation, reason)

    def _found_broken(self, service: Service, action: str, run: str, wrong: Part) -> NoReturn:
        """Quarantine a request after which something else is there than was before, and put back what it did.

        Raises:
            NotUndone: that is so.
            InDoubt: it cannot be put back.
        """
        place = service.key_of(wrong.subject) if wrong.subject else wrong.call.told
        if self._is_of_somebody_else(service, wrong):
            raise InDoubt(f"{place}: was taken back, and somebody else has changed it since")
        reason = f"{place}: after {wrong.operation} it is not as it was before"
        if wrong.compensation and not wrong.is_pinned:
            reason += "; this compensating request is not used again"
            self._compensations.quarantine(wrong.compensation, reason)
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

    def _is_of_somebody_else(self, service: Service, part: Part) -> bool:
        """Whether what is seen after a compensating request is a version that it did not make."""
        if part.after is None or part.before is None or not part.after.etag:
            return False
        if not service.spec_of(part).leaves_it:
            return part.after.is_there and is_other_tag(part.after.etag, part.before.etag)
        return is_other_version(part, part.after)

    def restoring(self, service: Service, part: Part, now: State | None) -> Part:
        """Return what undoes a compensating request: by the catalogue, or by another operation on the same subject.

        Raises:
            InputError: it knows no way.
        """
        if part.before is not None:
            compensation = self.best(service, part)
            if compensation is not None and compensation.undo.grade is not Guarantee.COMPENSATING:
                return self.made(service, part, compensation, now)
            for compensation in self._of_same_subject(service, part):
                with contextlib.suppress(InputError):
                    return replace(
                        self.made(service, part, compensation, now), compensation="", is_pinned=False, proposed=None
                    )
        raise InputError(f"service {service.name}: nothing is known that takes {part.operation} back")

    def _of_same_subject(self, service: Service, part: Part) -> Iterator[Compensation]:
        """Compensating requests that are pinned for other operations on what a part is about, and not broken since."""
        for operation, spec in (service.catalogue.operations if service.catalogue and part.read_back else {}).items():
            if spec.read_back == part.read_back:
                found = [self.known(service, part, undo, operation) for undo in spec.undo if _fits(undo, part)]
                yield from (each for each in found if each.status is ProofStatus.PINNED)


def _fits(undo: Undo, part: Part) -> bool:
    if undo.is_for_empty and part.num_inside != 0:
        return False
    return undo.when == "any" or (undo.when == "existed") == part.existed


def _is_described(service: Service) -> bool:
    return service.catalogue is not None and service.catalogue.is_described


def _may_be_own(service: Service, part: Part, undo: Undo) -> bool:
    """Whether a compensating request can be about what a part itself changes, by the paths of both."""
    if not _is_described(service):
        return True
    own, path = (shape_of(each).rstrip("/") for each in (_own_path(service, part), service.spec(undo.operation).path))
    return bool(own) and (path == own or path.startswith(f"{own}/"))


def _own_path(service: Service, part: Part) -> str:
    """The path of what a part changes, as a template: that of its read-back, or its own up to the last parameter."""
    if part.read_back:
        return service.read_back_of(part).path.partition("?")[0]
    path = service.spec_of(part).path
    return path[: path.rindex("}") + 1] if "}" in path else ""


def _can_be_written(undo: Undo, part: Part) -> bool:
    """Whether what a compensating request needs can be sent as it was seen, as far as it is known yet."""
    return not _missing(undo, part) and not has_mark(evaluated(undo.arguments, part.context, is_partial=True))


def _missing(undo: Undo, part: Part) -> str:
    """What a compensating request needs of the request or of the state before, and neither has; empty if nothing."""
    known = ("$request", "$before") if part.before is not None else ("$request",)
    for each in expressions_in(undo.arguments):
        if each.startswith(known):
            try:
                value_of(each, part.context)
            except InputError:
                return each
    return ""
