"""Sending a call, and finding out what became of one whose answer nobody saw. Never is one sent twice blindly.

Theory of operation. A mark is durable before the first byte goes out, the answer before it is used. A call of which
there is a mark and no answer is in doubt, and settled so:

1. What the service shows tells: it is as the call leaves it, or still as it was.
2. Where it is still as it was, the call is sent again only if that cannot do it twice: with a key by which the service
   does it once, or on a condition (If-Match, If-None-Match) that fails once it was done.
3. Otherwise one that has not shown for a time was not done. Where nothing shows, a person has to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from autoclave.core import HostError, InputError
from autoclave.runtime.interface import InDoubt
from autoclave.runtime.rest.catalogue import OperationSpec
from autoclave.runtime.rest.expressions import evaluated, is_part_of
from autoclave.runtime.rest.forms import canonical, fingerprint
from autoclave.runtime.rest.notes import Notes
from autoclave.runtime.rest.operations import Ask
from autoclave.runtime.rest.parts import Answer, Call, Part, State
from autoclave.runtime.rest.service import Service, complaint
from autoclave.runtime.rest.wire import Lost

_UNDECIDED = (408, 409, 425)
_MEANT_S = 900.0
"""For so long, in seconds, after a request was sent it is meant: who comes back later is told, and decides anew."""
_UNSEEN = "unseen"
"""In place of the fingerprint of a state that nobody has seen: the same as no other."""


class Outcome(StrEnum):
    """What an answer says."""

    APPLIED = "applied"
    """It was done."""
    REFUSED = "refused"
    """It was not."""
    UNKNOWN = "unknown"
    """Neither, as when a gateway gave up."""


class Refused(InputError):
    """The service did not do it."""

    status: int = 0

    @staticmethod
    def by(service: Service, part: Part, answer: Answer) -> Refused:
        """What an answer says."""
        error = Refused(f"service {service.name}: {part.call.told}: {complaint(answer)}")
        error.status = answer.status
        return error


def outcome(service: Service, answer: Answer) -> Outcome:
    """What an answer says of a request that changes something."""
    status = answer.status
    if 200 <= status < 300:
        return Outcome.REFUSED if service.is_refusal(answer) else Outcome.APPLIED
    if status == 429 or (status == 503 and "retry-after" in answer.headers) or status in (307, 308):
        return Outcome.REFUSED
    return Outcome.REFUSED if 400 <= status < 500 and status not in _UNDECIDED else Outcome.UNKNOWN


class Sender:
    """Sends the calls of actions. `notes`: where marks and answers are."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    # --- Sending ----------------------------------------------------------------------------------------------------

    def carried_out(self, service: Service, action: str, request: str, part: Part) -> Part:
        """Send a part, unless that was done before; the part with its answer and what is seen after it.

        Raises:
            Refused: it was not done.
            NotSent: there was no connection.
            InDoubt: nobody knows.
        """
        if (noted := self.notes.answer(action, request)) and outcome(service, noted) is not Outcome.UNKNOWN:
            return self._judged(service, part, noted)
        if self.notes.sent_at(action, request) is not None:
            ended = self.settled(service, action, request, part)
            if ended is None:
                raise Refused(f"service {service.name}: {part.call.told}: was lost on the way, and not done")
            return ended
        answer = self._sent(service, action, request, part.call, part.guard)
        return self._judged(service, part, answer)

    def carried_out_together(
        self, service: Service, action: str, request: str, ask: Ask, whole: Call, parts: Sequence[Part]
    ) -> list[Part]:
        """Send parts in one request; those that were done.

        Raises:
            Refused, NotSent, InDoubt: as `carried_out`, of the whole.
        """
        answer = self._sent(service, action, request, whole, {})
        if outcome(service, answer) is Outcome.REFUSED:
            raise Refused.by(service, replace(parts[0], call=whole), answer)
        return self.split(service, ask, answer, parts)

    def split(self, service: Service, ask: Ask, answer: Answer, parts: Sequence[Part]) -> list[Part]:
        """The parts that were done, by the answer to the whole.

        Raises:
            InDoubt: it does not say.
        """
        try:
            answers = service.answers(ask, answer, len(parts))
        except InputError as error:
            raise InDoubt(f"service {service.name}: {complaint(answer)}: {error}") from None
        done: list[Part] = []
        for part, own in zip(parts, answers, strict=True):
            if outcome(service, own) is Outcome.UNKNOWN:
                raise InDoubt(f"service {service.name}: {part.call.told}: {complaint(own)}")
            done += [part.with_end(own, None)] if outcome(service, own) is Outcome.APPLIED else []
        return [self._with_after(service, part) for part in done]

    def _sent(self, service: Service, action: str, request: str, call: Call, guard: Mapping[str, str]) -> Answer:
        try:
            answer = service.wire.send(call, guard, lambda: self.notes.mark_sent(action, request))
        except Lost as error:
            raise InDoubt(str(error)) from None
        self.notes.note_answer(action, request, answer)
        return answer

    def _judged(self, service: Service, part: Part, answer: Answer) -> Part:
        match outcome(service, answer):
            case Outcome.REFUSED:
                raise Refused.by(service, part, answer)
            case Outcome.UNKNOWN:
                raise InDoubt(f"service {service.name}: {part.call.told}: {complaint(answer)}")
            case Outcome.APPLIED:
                return self._with_after(service, part.with_end(answer, None))

    def _with_after(self, service: Service, part: Part) -> Part:
        """A part that was answered, with what is seen after it, when that has come to show."""
        spec = service.spec_of(part)
        part = replace(part, subject=part.subject or service.subject(part))
        if part.subject is None:
            return part
        must_satisfy = bool(part.leaves) or part.wanted is not None

        def has_come(now: State) -> bool:
            if must_satisfy:
                return part.satisfies(now)
            return now.is_there == spec.leaves_it and not is_other_version(part, now)

        after = self.seen_when(service, part, has_come)
        if not must_satisfy and after.is_there != spec.leaves_it:
            shows = "it is not there" if spec.leaves_it else "it is still there"
            raise InDoubt(f"service {service.name}: {part.call.told}: was answered as done, but {shows}")
        if not must_satisfy and is_other_version(part, after):
            after = replace(after, fingerprint=_UNSEEN)  # somebody was faster: what it left nobody has seen
        return replace(part, after=after)

    def seen_when(self, service: Service, part: Part, has_come: Callable[[State], bool]) -> State:
        """What is seen of the subject of a part when something has come, or when it has been waited for long enough.

        Raises:
            InDoubt: the service does not show it.
        """
        assert part.subject is not None
        until, pause_s = time.monotonic() + service.connection.patience_s, 0.02
        while True:
            now = self.look(service, part)
            if has_come(now) or time.monotonic() >= until:
                return now
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def look(self, service: Service, part: Part) -> State:
        """What is seen of the subject of a part.

        Raises:
            InDoubt: the service does not show it.
        """
        assert part.subject is not None
        try:
            return service.look(part.look, part.subject)
        except (InputError, HostError) as error:
            raise InDoubt(str(error)) from None

    # --- Finding out ------------------------------------------------------------------------------------------------

    def settled(
        self,
        service: Service,
        action: str,
        request: str,
        part: Part,
        *,
        is_alone: bool = True,
        may_send: bool = True,
    ) -> Part | None:
        """The part with its end, if it was done; None if it was not, and will not be.

        `is_alone`: whether the answer to the request is that to this part. `may_send`: whether it may be sent again.

        Raises:
            InDoubt: nobody can tell.
        """
        sent_at = self.notes.sent_at(action, request)
        if sent_at is None:
            return None
        answer = self.notes.answer(action, request)
        if answer is not None and is_alone and (said := outcome(service, answer)) is not Outcome.UNKNOWN:
            return self._judged(service, part, answer) if said is Outcome.APPLIED else None
        until, pause_s = sent_at + service.connection.patience_s, 0.05
        while True:
            if shown := self._shown(service, part):
                return shown
            if may_send and self._may_send_again(service, part, sent_at):
                return self._sent_again(service, action, request, part)
            if not self._can_show(part):
                told = f"; it {complaint(answer)}" if answer else ""
                raise InDoubt(f"service {service.name}: {part.call.told}: nothing shows whether it was done{told}")
            if time.time() >= until:
                return None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _can_show(self, part: Part) -> bool:
        return part.listed is not None or (part.subject is not None and part.before is not None)

    def _shown(self, service: Service, part: Part) -> Part | None:
        """The part with its end if what is seen says that it was done; None if all is as before.

        Raises:
            InDoubt: it is neither.
        """
        if part.subject is not None and part.before is not None:
            return self._shown_by_look(service, part, part.before)
        if part.listed is not None:
            return self._shown_by_listing(service, part, part.listed)
        return None

    def _shown_by_look(self, service: Service, part: Part, before: State) -> Part | None:
        now, spec = self.look(service, part), service.spec_of(part)
        answer = Answer(0, {"etag": now.etag} if now.etag else {}, now.body)  # as if: 0 says that nobody saw it
        if part.wanted is not None or part.leaves:
            if part.satisfies(now):
                return part.with_end(answer, now)
        elif spec.leaves_it:
            if now.is_there and not _is_version(now, before) and _is_made_by(part, now, service, spec):
                return part.with_end(answer, now)
        elif not now.is_there:
            return part.with_end(answer, now)
        if _is_version(now, before) or (not now.is_there and not before.is_there):
            return None
        if part.guard and not spec.leaves_it:
            return None  # it is another version, so its condition was not met, nor will be
        raise InDoubt(f"service {service.name}: {part.call.told}: somebody else has changed it meanwhile")

    def _shown_by_listing(self, service: Service, part: Part, before: Sequence[str]) -> Part | None:
        spec = service.spec_of(part)
        assert service.catalogue is not None
        listing = service.catalogue.listings[spec.listing]
        try:
            now = service.listed(spec.listing, part)
        except (InputError, HostError) as error:
            raise InDoubt(str(error)) from None
        new = [evaluated(listing.shows, {"item": item}) for name, item in now.items() if name not in set(before)]
        ours = [shown for shown in new if part.call.body is None or is_part_of(part.call.body, shown)]
        if len(ours) > 1:
            raise InDoubt(f"service {service.name}: {part.call.told}: {len(ours)} new ones could be what it made")
        return self._with_after(service, part.with_end(Answer(0, {}, ours[0]), None)) if ours else None

    # --- Sending again ----------------------------------------------------------------------------------------------

    def _may_send_again(self, service: Service, part: Part, sent_at: float) -> bool:
        """Whether it is still meant, and to send it once more cannot do it twice."""
        if time.time() > sent_at + _MEANT_S:
            return False
        if part.guard:
            return True
        key = service.spec_of(part).idempotency
        return part.is_keyed and key is not None and (key.valid_s is None or time.time() < sent_at + key.valid_s)

    def _sent_again(self, service: Service, action: str, request: str, part: Part) -> Part | None:
        until, pause_s = time.monotonic() + service.connection.patience_s, 0.05
        while True:
            try:
                answer = service.wire.send(part.call, part.guard)
                said, told = outcome(service, answer), complaint(answer)
            except (Lost, HostError, InputError) as error:
                answer, said, told = None, Outcome.UNKNOWN, str(error)
            if answer is not None and said is Outcome.APPLIED:
                self.notes.note_answer(action, request, answer)
                return self._judged(service, part, answer)
            if shown := self._shown(service, part):  # the first one came after all
                return shown
            if said is Outcome.REFUSED and answer is not None and answer.status != 429:
                return self._refused_again(service, part, answer)
            if time.monotonic() >= until:
                raise InDoubt(f"service {service.name}: {part.call.told}: sent again for want of an answer: {told}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _refused_again(self, service: Service, part: Part, answer: Answer) -> None:
        """It is still as it was, and not done: final, if not for reasons that say nothing of the first one.

        Raises:
            InDoubt: they do not.
        """
        if answer.status in (401, 403, 412):
            raise InDoubt(
                f"service {service.name}: {part.call.told}: sent again for want of an answer: {complaint(answer)}"
            )


def _is_version(now: State, before: State) -> bool:
    """Whether it is the version that was there before, which an entity tag names better than the content."""
    if now.etag and before.etag:
        return now.etag == before.etag
    return now.is_same(before)


def _is_made_by(part: Part, now: State, service: Service, spec: OperationSpec) -> bool:
    """Whether what is there now is what a part would make."""
    if part.is_keyed and not part.existed:
        return True  # under an identifier that nobody else has
    if part.call.body is None:
        return not part.existed
    assert service.catalogue is not None
    look = service.catalogue.looks[spec.look]
    if look.form == "json":
        return is_part_of(part.call.body, now.body)
    return fingerprint(canonical(part.call.body, look.form, look.volatile)) == now.fingerprint


def is_other_version(part: Part, now: State) -> bool:
    """Whether what is seen is not the version of which the answer speaks."""
    named = part.answer.headers.get("etag", "") if part.answer and part.guards else ""
    return bool(named and now.etag) and named != now.etag
