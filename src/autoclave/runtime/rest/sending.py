"""Sending a call, and finding out what became of one whose answer nobody saw. Never is one sent twice blindly.

Theory of operation. A mark is durable before the first byte goes out, the answer before it is used. A call of which
there is a mark and no answer is in doubt, and settled so:

1. With a key by which the service does it once, it is sent again, and the answer tells.
2. What the service shows tells, as far as it proves anything; see `evidence.py`.
3. Where all is still as it was, it is sent again only on a condition (If-Match, If-None-Match) that fails once it was
   done. Otherwise one that has not shown for a time was not done.
4. What was taken on for later (202) is done when all that it asks for shows; till then it is in doubt, and not sent
   again.
5. Where something has changed, or can turn up, and nothing proves by whom, or nothing shows, a person has to say.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from autoclave.core import HostError, InputError
from autoclave.runtime.interface import InDoubt
from autoclave.runtime.rest.evidence import (
    Evidence,
    evidence,
    has_own_name,
    is_as_asked,
    is_other_version,
    may_be_late,
    told,
)
from autoclave.runtime.rest.expressions import evaluated, is_part_of
from autoclave.runtime.rest.notes import Notes, age_s
from autoclave.runtime.rest.outcomes import Outcome, Refused, outcome
from autoclave.runtime.rest.parts import Answer, Part, State
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.wire import Lost, complaint

_MEANT_S = 900.0
"""For so long, in seconds, after a request was sent it is meant: who comes back later is told, and decides anew."""
_NEVER_DONE = frozenset({401, 403, 407, 429})
"""Statuses of a service, or of a gateway before it, that did not examine the request itself."""
_UNSEEN = "unseen"
"""In place of the digest of a state that nobody has seen: the same as no other."""


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
        if (noted := self.notes.answer(action, request)) and self._says(service, part, noted) is not Outcome.UNKNOWN:
            return self._judged(service, part, noted)
        if self.notes.sent_at(action, request) is not None:
            ended = self.settled(service, action, request, part)
            if ended is None:
                raise Refused(f"service {service.name}: {part.call.told}: was lost on the way, and not done")
            return ended
        try:
            self._require_contents(service, part)
        except (InputError, HostError) as error:
            raise Refused(str(error)) from None
        return self._judged(service, part, self._sent(service, action, request, part))

    def _sent(self, service: Service, action: str, request: str, part: Part) -> Answer:
        try:
            answer = service.wire.send(part.call, part.guard, lambda: self.notes.mark_sent(action, request))
        except Lost as error:
            raise InDoubt(str(error)) from None
        self.notes.note_answer(action, request, answer)
        return answer

    def _require_contents(self, service: Service, part: Part) -> None:
        """Check right before it is sent that as much goes with its subject as when that was read.

        Raises:
            InputError, HostError: it is not so, or nobody can tell.
        """
        if part.num_inside is not None and (now := service.num_inside(part)) != part.num_inside:
            raise InputError(
                f"service {service.name}: {part.call.told}: there are {now} things in it, which would go with it, "
                f"and {part.num_inside} before"
            )

    def _says(self, service: Service, part: Part, answer: Answer) -> Outcome:
        return outcome(service, answer, service.spec_of(part))

    def _judged(self, service: Service, part: Part, answer: Answer) -> Part:
        match self._says(service, part, answer):
            case Outcome.REFUSED:
                if done := self._done_though_refused(service, part, answer):
                    return done
                raise Refused.by(service, part, answer)
            case Outcome.UNKNOWN:
                raise InDoubt(f"service {service.name}: {part.call.told}: {complaint(answer)}")
            case Outcome.ACCEPTED:
                return self._come_about(service, part.with_end(answer, None))
            case Outcome.APPLIED:
                return self._with_after(service, part.with_end(answer, None))

    def _done_though_refused(self, service: Service, part: Part, answer: Answer) -> Part | None:
        """Return a refused part with its end if the service shows that it was done; None if it was not.

        A gateway that re-sends a request returns the second answer, which refuses what the first request has done: the
        version of If-Match is gone, the name is taken, the deleted thing is not found.

        Raises:
            InDoubt: everything is as requested, and nothing proves who did it; or the service does not show it.
        """
        if answer.status in _NEVER_DONE or not self._can_show(part):
            return None
        if part.subject is None or part.before is None:
            return self._shown(service, part)
        now, spec, read_back = self.read_back(service, part), service.spec_of(part), service.read_back_of(part)
        match evidence(part, spec, read_back, now):
            case Evidence.DONE if part.wanted is not None or part.leaves or has_own_name(part, spec):
                return part.with_end(_seen_answer(now), now)
            case Evidence.DONE | Evidence.UNCLEAR if is_as_asked(
                part, spec, read_back, now
            ):  # others may write the same
                place = f"service {service.name}: {part.call.told}"
                raise InDoubt(f"{place}: {complaint(answer)}, but is as requested, and nothing proves who did it")
            case _:
                return None

    def _with_after(self, service: Service, part: Part) -> Part:
        """A part that was answered, with what is seen after it, when that has come to show."""
        spec = service.spec_of(part)
        part = replace(part, subject=part.subject or service.subject(part))
        if part.subject is None and part.listed is not None:
            part = self._named_by_listing(service, part)
        if part.subject is None:
            return part
        must_satisfy = bool(part.leaves) or part.wanted is not None

        def has_come(now: State) -> bool:
            if must_satisfy:
                return part.satisfies(now)
            is_late = is_other_version(part, now) or may_be_late(part, spec, service.read_back_of(part), now)
            return now.is_there == spec.leaves_it and not is_late

        try:
            after = self.seen_when(service, part, has_come)
        except (InputError, HostError) as error:
            raise InDoubt(str(error)) from None
        if not must_satisfy and after.is_there != spec.leaves_it:
            shows = "it is not there" if spec.leaves_it else "it is still there"
            raise InDoubt(f"service {service.name}: {part.call.told}: was answered as done, but {shows}")
        if part.answer is not None and part.answer.body in (None, "") and after.is_there:
            # a compensating request may need what the answer left out
            part = replace(part, answer=replace(part.answer, body=after.body))
        if not must_satisfy and is_other_version(part, after):
            after = replace(after, digest=_UNSEEN)  # somebody was faster: what it left nobody has seen
        return replace(part, after=after)

    def _named_by_listing(self, service: Service, part: Part) -> Part:
        """Return a part whose answer does not name what it made with the one new thing in its listing as the answer.

        Raises:
            InDoubt: there are several, or none.
        """
        found = self.candidates(service, part)
        if len(found) != 1:
            names = f": {', '.join(sorted(found)[:10])}" if found else ""
            raise InDoubt(
                f"service {service.name}: {part.call.told}: was answered as done without the name of what it made, and "
                f"{len(found)} new things could be it{names}"
            )
        part = replace(part, answer=next(iter(found.values())))
        return replace(part, subject=service.subject(part))

    def _come_about(self, service: Service, part: Part) -> Part:
        """A part that was taken on for later, when all that it asks for is seen.

        Raises:
            InDoubt: it is not so yet; or nothing shows it.
        """
        taken_on = f"service {service.name}: {part.call.told}: was taken on (202), to be done later"
        part = replace(part, subject=part.subject or service.subject(part))
        if part.subject is None:
            raise InDoubt(f"{taken_on}; nothing shows when it is")
        spec, read_back = service.spec_of(part), service.read_back_of(part)
        try:
            after = self.seen_when(service, part, lambda now: is_as_asked(part, spec, read_back, now))
        except (InputError, HostError) as error:
            raise InDoubt(f"{taken_on}, and nobody can see whether it is: {error}") from None
        if not is_as_asked(part, spec, read_back, after):
            raise InDoubt(f"{taken_on}, and does not show yet")
        return replace(part, after=after)

    def seen_when(self, service: Service, part: Part, has_come: Callable[[State], bool]) -> State:
        """What is seen of the subject of a part when something has come, or when it has been waited for long enough.

        Raises:
            InputError, HostError: the service does not show it.
        """
        assert part.subject is not None
        until, pause_s = time.monotonic() + service.connection.patience_s, 0.02
        while True:
            now = service.read_back(part.read_back, part.subject)
            if has_come(now) or time.monotonic() >= until:
                return now
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def current(self, service: Service, part: Part, after: State) -> State:
        """What there is of the subject of a part that left `after`. If as before, that may be late, and is waited for.

        Raises:
            InputError, HostError: the service does not show it.
        """
        before = part.before or State()

        def is_late(now: State) -> bool:
            return now.is_same(before) and not now.is_same(after) and now.etag in ("", before.etag)

        return self.seen_when(service, part, lambda now: not is_late(now))

    def read_back(self, service: Service, part: Part) -> State:
        """What is seen of the subject of a part.

        Raises:
            InDoubt: the service does not show it.
        """
        assert part.subject is not None
        try:
            return service.read_back(part.read_back, part.subject)
        except (InputError, HostError) as error:
            raise InDoubt(str(error)) from None

    # --- Finding out ------------------------------------------------------------------------------------------------

    def settled(self, service: Service, action: str, request: str, part: Part, *, may_send: bool = True) -> Part | None:
        """The part with its end, if it was done; None if it was not, and will not be.

        `may_send`: whether it may be sent again.

        Raises:
            InDoubt: nobody can tell.
        """
        sent_at = self.notes.sent_at(action, request)
        if sent_at is None:
            return None
        answer = self.notes.answer(action, request)
        if answer is not None and (said := self._says(service, part, answer)) is not Outcome.UNKNOWN:
            return (
                self._done_though_refused(service, part, answer)
                if said is Outcome.REFUSED
                else self._judged(service, part, answer)
            )
        patience_s, pause_s = service.connection.patience_s, 0.05
        until = time.monotonic() + _left_s(sent_at, patience_s)
        while True:
            if may_send and self._key_tells(service, part, sent_at):
                return self._sent_again(service, action, request, part)
            if done := self._shown(service, part):
                return done
            if may_send and self._may_send_again(service, part, sent_at):
                return self._sent_again(service, action, request, part)
            if not self._can_show(part):
                reason = f"; it {complaint(answer)}" if answer else ""
                raise InDoubt(f"service {service.name}: {part.call.told}: nothing shows whether it was done{reason}")
            if time.monotonic() >= until:
                return None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _can_show(self, part: Part) -> bool:
        return part.listed is not None or (part.subject is not None and part.before is not None)

    def _shown(self, service: Service, part: Part) -> Part | None:
        """The part with its end if what is seen proves that it was done; None if all is as before.

        Raises:
            InDoubt: it is neither.
        """
        place = f"service {service.name}: {part.call.told}"
        if part.subject is not None and part.before is not None:
            now = self.read_back(service, part)
            match evidence(part, service.spec_of(part), service.read_back_of(part), now):
                case Evidence.DONE:
                    return part.with_end(_seen_answer(now), now)
                case Evidence.UNCLEAR:
                    raise InDoubt(f"{place}: {told(now, part.before)}, and nothing proves by whom")
                case Evidence.AS_BEFORE:
                    return None
        if part.listed is not None and (found := self.candidates(service, part)):
            names = ", ".join(sorted(found)[:10])
            raise InDoubt(f"{place}: {len(found)} new ones could be what it made, and nothing proves by whom: {names}")
        return None

    def candidates(self, service: Service, part: Part) -> dict[str, Answer]:
        """What is new in the listing of a part, and as it would make it, by names, each as if it were the answer.

        Raises:
            InDoubt: the service does not show it.
        """
        spec = service.spec_of(part)
        assert service.catalogue is not None
        assert part.listed is not None
        listing, before = service.catalogue.listings[spec.listing], set(part.listed)
        try:
            now = service.listed(spec.listing, part)
        except (InputError, HostError) as error:
            raise InDoubt(str(error)) from None
        new = {name: evaluated(listing.shows, {"item": item}) for name, item in now.items() if name not in before}
        body = part.call.body
        return {name: Answer(0, {}, each) for name, each in new.items() if body is None or is_part_of(body, each)}

    def accepted(self, service: Service, part: Part, noted: Answer | None) -> Part:
        """A part of which a person says that it was done: without an answer, the only new one in its listing is it.

        Raises:
            InputError, HostError, InDoubt: the service does not show it.
        """
        if part.answer is None and noted and self._says(service, part, noted) in (Outcome.APPLIED, Outcome.ACCEPTED):
            part = replace(part, answer=noted)
        elif part.answer is None and part.listed is not None:
            found = list(self.candidates(service, part).values())
            part = replace(part, answer=found[0] if len(found) == 1 else None)
        subject = part.subject or service.subject(part)
        after = service.read_back(part.read_back, subject) if subject else None
        if part.answer is None and after is not None:
            part = replace(part, answer=_seen_answer(after))
        return replace(part, subject=subject, after=after)

    # --- Sending again ----------------------------------------------------------------------------------------------

    def _key_tells(self, service: Service, part: Part, sent_at: float) -> bool:
        """Whether it has a key by which another answer to it tells more than any read-back."""
        return self._has_key(service, part, sent_at) and not has_own_name(part, service.spec_of(part))

    def _may_send_again(self, service: Service, part: Part, sent_at: float) -> bool:
        """Whether it is still meant, and to send it once more cannot do it twice."""
        return (bool(part.guard) and age_s(sent_at) <= _MEANT_S) or self._has_key(service, part, sent_at)

    def _has_key(self, service: Service, part: Part, sent_at: float) -> bool:
        key, age = service.spec_of(part).idempotency, age_s(sent_at)
        return part.is_keyed and key is not None and age <= _MEANT_S and (key.valid_s is None or age < key.valid_s)

    def _sent_again(self, service: Service, action: str, request: str, part: Part) -> Part | None:
        is_told_by_key = part.is_keyed and not has_own_name(part, service.spec_of(part))
        until, pause_s = time.monotonic() + service.connection.patience_s, 0.05
        while True:
            try:
                self._require_contents(service, part)
                answer = service.wire.send(part.call, part.guard)
                said, reason = self._says(service, part, answer), complaint(answer)
            except (Lost, HostError, InputError) as error:
                answer, said, reason = None, Outcome.UNKNOWN, str(error)
            if answer is not None and said in (Outcome.APPLIED, Outcome.ACCEPTED):
                self.notes.note_answer(action, request, answer)
                return self._judged(service, part, answer)
            if not is_told_by_key and (done := self._shown(service, part)):  # the first one came after all
                return done
            if said is Outcome.REFUSED and answer is not None and answer.status != 429:
                return self._done_though_refused(service, part, answer) or self._refused_again(service, part, answer)
            if time.monotonic() >= until:
                raise InDoubt(f"service {service.name}: {part.call.told}: sent again for want of an answer: {reason}")
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


def _seen_answer(now: State) -> Answer:
    """What is seen, as if it were the answer; its status 0 says that nobody saw that."""
    return Answer(0, {"etag": now.etag} if now.etag else {}, now.body)


def _left_s(sent_at: float, patience_s: float) -> float:
    """How long, in seconds, it is to be waited still; all of it where the clock says nothing of how long it was."""
    age = age_s(sent_at)
    return patience_s if age == math.inf else max(0.0, patience_s - age)
