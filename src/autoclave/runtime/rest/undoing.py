"""Taking calls back: which inverse fits and may be used, what it is made into, and whether it did what it is for.

An inverse is made from what was asked, what was answered, and what was there before. After it was sent, what the
service shows is compared with that. So a pair that is wrong is found out the first time, is quarantined, and what it
did is taken back in its turn where the catalogue knows how.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pydantic import ValidationError

from autoclave.core import HostError, InputError
from autoclave.core.json import first_error, rule_of
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import InDoubt, NotUndone
from autoclave.runtime.rest.calls import filled
from autoclave.runtime.rest.catalogue import Undo
from autoclave.runtime.rest.evidence import is_other_tag, is_other_version
from autoclave.runtime.rest.expressions import evaluated, expressions_in, value_of
from autoclave.runtime.rest.fields import shape_of
from autoclave.runtime.rest.marks import has_mark
from autoclave.runtime.rest.outcomes import Refused
from autoclave.runtime.rest.pairs import Match, Pairs, PairStatus
from autoclave.runtime.rest.parts import Call, Part, State
from autoclave.runtime.rest.sending import Sender
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.wire import NotSent

Json = Mapping[str, Any]
ProposeInverse = Callable[[Json, Json, Json], Json]
"""Asks a model for an inverse: given request, response and all operations, it gives `operation` and `arguments`."""
_ORDER = (Guarantee.EXACT, Guarantee.EQUIVALENT, Guarantee.COMPENSATING, Guarantee.NONE)
_BROKEN = (400, 404, 405, 410, 422)
"""Statuses by which a service says of an inverse that nobody has proven that it is none."""


@dataclass(frozen=True, slots=True)
class Inverse:
    """A way to take a part back, and what is known of it."""

    undo: Undo
    pair: str
    status: PairStatus
    num_proofs: int = 0

    @property
    def told(self) -> str:
        """In words."""
        known = f"proven {self.num_proofs} times" if self.status is PairStatus.PROVEN else self.status.value
        window = f", within {self.undo.window_s:.0f} s" if self.undo.window_s else ""
        return f"{self.undo.operation}, {self.undo.grade} ({known}){window}"


def worst(grades: Sequence[Guarantee]) -> Guarantee:
    """The least that several undos promise together."""
    return max(grades, key=_ORDER.index, default=Guarantee.EXACT)


class Inverses:
    """Chooses and makes inverses. `propose` is asked where the catalogue has none, and believed by nobody."""

    def __init__(self, pairs: Pairs, sender: Sender, propose: ProposeInverse | None = None) -> None:
        self._pairs, self._sender, self._propose = pairs, sender, propose

    # --- Choosing ---------------------------------------------------------------------------------------------------

    def best(self, service: Service, part: Part) -> Inverse | None:
        """The inverse of the catalogue, or one learnt, that fits what was there before; None if there is none.

        What was broken is never used, and in strict mode only what is pinned.
        """
        declared = [
            each for each in service.spec_of(part).undo if _fits(each, part) and _may_be_own(service, part, each)
        ]
        learnt = self._pairs.reusable(service.name, part.operation) if part.operation else []
        found = [self.known(service, part, undo) for undo in (*declared, *learnt)]
        usable = [
            each for each in found if each.status is not PairStatus.QUARANTINED and _can_be_written(each.undo, part)
        ]
        if service.connection.is_strict:
            usable = [each for each in usable if each.status is PairStatus.PINNED]
        return next((each for each in usable if each.undo.grade is not Guarantee.NONE), None)

    def known(self, service: Service, part: Part, undo: Undo, operation: str = "") -> Inverse:
        """What is known of an inverse for a part, as that of its operation or of another one."""
        operation = operation or part.operation
        match, spec = Match(service.connection.match), service.spec(operation, part.call.method)
        pair = self._pairs.name(match, service.name, operation, spec, part.arguments, undo)
        learnt = self._pairs.learnt(pair, undo.status)
        return Inverse(undo, pair, learnt.status, learnt.num_proofs)

    def declared(self, service: Service) -> Iterator[tuple[str, Inverse]]:
        """All that the catalogue of a service has, with their operations.

        Where a connection matches exactly, there are pairs only of what was done.
        """
        operations = service.catalogue.operations if service.catalogue else {}
        for operation, spec in operations.items() if service.connection.match != Match.EXACT else ():
            part = Part(operation, {}, Call(spec.method, spec.path))
            yield from ((operation, self.known(service, part, undo)) for undo in spec.undo)

    def why_none(self, service: Service, part: Part) -> str:
        """Why there is no inverse of a part."""
        for undo in service.spec_of(part).undo:
            known = self.known(service, part, undo)
            if known.status is PairStatus.QUARANTINED:
                reason = self._pairs.learnt(known.pair).reason
                return f"{undo.operation} was to take it back, and is quarantined: {reason}"
            if not _may_be_own(service, part, undo):
                return f"{undo.operation}, which its description names for it, is about something else than it"
            if _fits(undo, part) and (missing := _missing(undo, part)):
                return f"{undo.operation} needs {missing} to take it back, and there is nothing of that name"
            if _fits(undo, part) and not _can_be_written(undo, part):
                return "what was there before has a key, or something that is not read exactly, and cannot be put back"
        if service.connection.is_strict:
            return "no inverse is pinned, and this connection is strict"
        return "cannot be taken back; no inverse is known"

    def planned(self, service: Service, part: Part) -> tuple[Inverse | None, str]:
        """The inverse that fits, and why it is none or could not be sent as things stand; empty if it could."""
        inverse = self.best(service, part)
        if inverse is None:
            return None, self.why_none(service, part)
        try:
            return inverse, service.wire.why_not(service.foreseen(inverse.undo.operation, inverse.undo.arguments, part))
        except InputError as error:
            return inverse, str(error)

    @property
    def can_propose(self) -> bool:
        """Whether there is somebody to ask for an inverse that the catalogue does not have."""
        return self._propose is not None

    def proposed(self, service: Service, part: Part) -> Inverse:
        """The inverse that the model proposes, for lack of another. Nothing is known of it.

        Raises:
            InputError: it proposes nothing that can be used.
        """
        if self._propose is None or service.catalogue is None or service.connection.is_strict:
            raise InputError(f"service {service.name}: {part.call.told}: nothing is known that takes it back")
        request = {"operation": part.operation, "method": part.call.method, "path": part.call.target}
        request |= {"arguments": part.arguments, "before": part.before.body if part.before else None}
        response = part.answer.response if part.answer else {}
        operations = {
            name: spec.model_dump(mode="json", include={"method", "path", "summary", "parameters", "body"})
            for name, spec in service.catalogue.operations.items()
            if not spec.is_reading
        }
        given = self._propose(request, response, operations)
        try:
            undo = Undo(operation=str(given["operation"]), arguments=dict(given.get("arguments", {})))
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            told = rule_of(first_error(error)["msg"]) if isinstance(error, ValidationError) else "no operation"
            raise InputError(f"service {service.name}: the inverse that was proposed cannot be used: {told}") from None
        inverse = self.known(service, part, undo)
        if inverse.status is PairStatus.QUARANTINED:
            raise InputError(f"service {service.name}: {undo.operation} was proposed again, and is known to be wrong")
        return inverse

    # --- Making -----------------------------------------------------------------------------------------------------

    def made(self, service: Service, part: Part, inverse: Inverse, now: State | None) -> Part:
        """The part that takes another back, given what there is now.

        Raises:
            InputError: it cannot be made, or is about something else than the part.
        """
        undo = inverse.undo
        new = service.part(undo.operation, evaluated(undo.arguments, part.scene), looks=False)
        num_inside = service.num_inside(new) if now is None or now.is_there else None
        if num_inside:
            raise InputError(f"{new.call.told}: there are {num_inside} things in it, which would go with it")
        is_declared = undo in service.spec_of(part).undo
        if not is_declared or _is_described(service):
            self._require_own(service, part, new)
        return replace(
            new,
            look=part.look,
            subject=part.subject,
            before=now,
            num_inside=num_inside,
            wanted=None if undo.leaves or part.subject is None else part.before or State(),
            leaves=undo.leaves,
            pair=inverse.pair,
            inverse=None if is_declared else undo.model_dump(mode="json"),
        )

    def _require_own(self, service: Service, part: Part, new: Part) -> None:
        """An inverse that a model or a description proposed may touch only what the action itself wrote."""
        target = part.subject.target if part.subject else ""
        if not target and not part.look and _is_described(service):
            target = filled(_own_path(service, part), part.call.path)
        own, other = service.key(target) if target else "", service.key(new.call.target)
        if not own or not (other == own or other.startswith(f"{own}/")):
            raise InputError(f"service {service.name}: the inverse that was proposed is about {other}, not about it")

    # --- Doing ------------------------------------------------------------------------------------------------------

    def done(self, service: Service, action: str, run: str, parts: Sequence[Part]) -> list[Part]:
        """Send inverses one after the other, and look each time; or go on with that. With what is seen after each.

        Raises:
            NotUndone: nothing was changed, or it was put back.
            InDoubt: it is neither as before nor as after.
        """
        ended: list[Part] = []
        for number, part in enumerate(parts):
            request = f"{run}-{number}"
            end = self._sender.notes.end(action, request)
            try:
                end = end or self._one(service, action, request, part)
            except (Refused, NotSent) as error:
                if isinstance(error, Refused) and error.status in _BROKEN and part.pair:
                    self._doubt(part, str(error))
                self._give_up(service, action, run, ended, str(error))
            if not part.satisfies(end.after):
                self._found_broken(service, action, run, ended, end)
            self._sender.notes.note_end(action, request, end)
            ended.append(end)
        return ended

    def _one(self, service: Service, action: str, request: str, part: Part) -> Part:
        """One inverse: not sent if all is as it would leave it, nor if somebody has changed it since it was made."""
        if part.subject is not None and part.before is not None and self._is_new(action, request):
            now = self._first_look(service, part)
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

    def _first_look(self, service: Service, part: Part) -> State:
        """What there is before an inverse is sent. That it is as wanted may be what was there before the action, shown
        late, and is believed only when it stays so.
        """
        assert part.subject is not None
        assert part.before is not None
        try:
            if part.satisfies(part.before):  # it was so already, and waited for, when this was planned
                return service.look(part.look, part.subject)
            return self._sender.seen_when(service, part, lambda now: not part.satisfies(now))
        except (InputError, HostError) as error:  # nothing was sent yet, so nothing is in doubt
            raise Refused(str(error)) from None

    def _is_new(self, action: str, request: str) -> bool:
        notes = self._sender.notes
        return notes.sent_at(action, request) is None and notes.answer(action, request) is None

    def _doubt(self, part: Part, reason: str) -> None:
        """Quarantine a pair that the service refuses, unless it was proven or somebody answers for it."""
        if self._pairs.learnt(part.pair).status is PairStatus.UNPROVEN:
            self._pairs.quarantine(part.pair, reason)

    def _found_broken(self, service: Service, action: str, run: str, ended: Sequence[Part], wrong: Part) -> None:
        """An inverse was sent, and what there is now is not what it is for."""
        place = service.key_of(wrong.subject) if wrong.subject else wrong.call.told
        if self._is_of_somebody_else(service, wrong):
            raise InDoubt(f"{place}: was taken back, and somebody else has changed it since")
        told = f"{place}: after {wrong.operation} it is not as it was before; this inverse is not used again"
        if wrong.pair:
            self._pairs.quarantine(wrong.pair, told)
        if wrong.after is not None and wrong.before is not None and wrong.after.is_same(wrong.before):
            self._give_up(service, action, run, ended, told)
        self._give_up(service, action, run, [*ended, wrong], told)

    def _is_of_somebody_else(self, service: Service, part: Part) -> bool:
        """Whether what is seen after an inverse is a version that it did not make."""
        if part.after is None or part.before is None or not part.after.etag:
            return False
        if not service.spec_of(part).leaves_it:
            return part.after.is_there and is_other_tag(part.after.etag, part.before.etag)
        return is_other_version(part, part.after)

    def _give_up(self, service: Service, action: str, run: str, ended: Sequence[Part], reason: str) -> NoReturn:
        """Put back what inverses did so far.

        Raises:
            NotUndone: that is so.
            InDoubt: it cannot be put back.
        """
        for number, part in enumerate(reversed(ended)):
            if part.answer is None:
                continue  # it was as wanted, and nothing was sent
            try:
                back = self.restoring(service, part, part.after)
                end = self._one(service, action, f"{run}-back-{number}", back)
            except (InputError, HostError, InDoubt) as error:
                raise InDoubt(f"{reason}; what was changed cannot be put back: {error}") from None
            if not back.satisfies(end.after):
                raise InDoubt(f"{reason}; what was changed could not be put back")
        raise NotUndone(reason)

    def restoring(self, service: Service, part: Part, now: State | None) -> Part:
        """What takes an inverse back: as the catalogue says of it, or of another operation on the same subject.

        Raises:
            InputError: it knows no way.
        """
        if part.before is not None:
            inverse = self.best(service, part)
            if inverse is not None and inverse.undo.grade is not Guarantee.COMPENSATING:
                return self.made(service, part, inverse, now)
            for inverse in self._of_same_subject(service, part):
                with contextlib.suppress(InputError):
                    return replace(self.made(service, part, inverse, now), pair="", inverse=None)
        raise InputError(f"service {service.name}: nothing is known that takes {part.operation} back")

    def _of_same_subject(self, service: Service, part: Part) -> Iterator[Inverse]:
        """Inverses that are pinned for other operations on what a part is about, and not broken since."""
        for operation, spec in (service.catalogue.operations if service.catalogue and part.look else {}).items():
            if spec.look == part.look:
                found = [self.known(service, part, undo, operation) for undo in spec.undo if _fits(undo, part)]
                yield from (each for each in found if each.status is PairStatus.PINNED)


def _fits(undo: Undo, part: Part) -> bool:
    if undo.is_for_empty and part.num_inside != 0:
        return False
    return undo.when == "any" or (undo.when == "existed") == part.existed


def _is_described(service: Service) -> bool:
    return service.catalogue is not None and service.catalogue.is_described


def _may_be_own(service: Service, part: Part, undo: Undo) -> bool:
    """Whether an inverse can be about what a part itself changes, by the paths of both."""
    if not _is_described(service):
        return True
    own, path = (shape_of(each).rstrip("/") for each in (_own_path(service, part), service.spec(undo.operation).path))
    return bool(own) and (path == own or path.startswith(f"{own}/"))


def _own_path(service: Service, part: Part) -> str:
    """The path of what a part changes, as a template: that of its look, or its own up to the last parameter."""
    if part.look:
        return service.look_of(part).path.partition("?")[0]
    path = service.spec_of(part).path
    return path[: path.rindex("}") + 1] if "}" in path else ""


def _can_be_written(undo: Undo, part: Part) -> bool:
    """Whether what an inverse needs can be sent as it was seen, as far as it is known yet."""
    return not _missing(undo, part) and not has_mark(evaluated(undo.arguments, part.scene, is_partial=True))


def _missing(undo: Undo, part: Part) -> str:
    """What an inverse needs of the request or of what was there before, and neither has; empty if there is nothing."""
    known = ("$request", "$before") if part.before is not None else ("$request",)
    for each in expressions_in(undo.arguments):
        if each.startswith(known):
            try:
                value_of(each, part.scene)
            except InputError:
                return each
    return ""
