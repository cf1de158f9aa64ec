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

import contextlib
import math
from collections.abc import Callable, Generator
from dataclasses import replace

from autoclave.core import HostError, InputError
from autoclave.core.json import shown
from autoclave.runtime.interface import InDoubt
from autoclave.runtime.rest.evidence import (
    Evidence,
    evidence,
    has_own_name,
    is_as_asked,
    is_other_version,
    is_part_of,
    may_be_late,
)
from autoclave.runtime.rest.expressions import evaluated
from autoclave.runtime.rest.notes import Notes, age_s
from autoclave.runtime.rest.parts import Answer, Part, State
from autoclave.runtime.rest.service import Service, attempts
from autoclave.runtime.rest.wire import Lost, complaint

_MEANT_S = 900.0
"""For so long, in seconds, after a request was sent it is meant: who comes back later is told, and decides anew."""
_ACCEPTED = 202
_UNDECIDED = (408, 409, 425)
"""Statuses from 400 to 499 that do not say that nothing was done."""
_NEVER_DONE = (401, 403, 407, 429)
"""Statuses of a service, or of a gateway before it, that did not examine the request itself."""
_UNSEEN = "unseen"
"""In place of the digest of a state that nobody has seen: the same as no other."""


class Refused(InputError):
    """The service did not do it. `status`: of its answer; 0 if there is none."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


class Sender:
    """Sends the calls of actions, with marks in `notes`. Raises InDoubt where it is unknown what became of a call."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def carried_out(self, service: Service, action: str, request: str, part: Part) -> Part:
        """Send a part, or settle it if it was sent before; the part with its answer and what is seen after it.

        Raises:
            Refused: it was not done.
            NotSent: there was no connection.
            InDoubt: nobody knows.
        """
        if self.notes.sent_at(action, request) is not None:
            if (ended := self.settled(service, action, request, part)) is None:
                raise Refused(f"{service.place(part)}: was lost on the way, and not done")
            return ended
        try:
            service.require_contents(part)
        except (InputError, HostError) as error:
            raise Refused(str(error)) from None
        try:
            answer = service.wire.send(part.call, part.guard, lambda: self.notes.mark_sent(action, request))
        except Lost as error:
            raise InDoubt(str(error)) from None
        self.notes.note_answer(action, request, answer)
        if ended := self._judged(service, part, answer):
            return ended
        raise Refused(f"{service.place(part)}: {complaint(answer)}", answer.status)

    def _judged(self, service: Service, part: Part, answer: Answer) -> Part | None:
        """The part with its end by an answer; None if it was not done."""
        if _says_nothing(answer):
            raise InDoubt(f"{service.place(part)}: {complaint(answer)}")
        if not _is_done(service, part, answer):
            return self._done_though_refused(service, part, answer)
        spec, part = service.spec_of(part), part.with_end(answer, None)
        # where nothing shows it and nothing takes it back, as of a mail, to be taken on is all that can be known
        if answer.status == _ACCEPTED and not spec.success and (spec.read_back or spec.undo):
            return self._come_about(service, part)
        return self._seen_after(service, part)

    def _done_though_refused(self, service: Service, part: Part, answer: Answer) -> Part | None:
        """Return a refused part with its end if the service shows that it was done; None if it was not.

        A gateway that re-sends a request returns the second answer, which refuses what the first request has done: the
        version of If-Match is gone, the name is taken, the deleted thing is not found.
        """
        if answer.status in _NEVER_DONE or not _can_show(part):
            return None
        if part.subject is None or part.before is None:
            return self._shown(service, part)
        spec, now, found = service.spec_of(part), *_seen(service, part)
        if found is Evidence.DONE and (part.has_aim or has_own_name(part, spec)):
            return part.with_end(_seen_answer(now), now)
        is_so = is_as_asked(part, spec, service.read_back_of(part), now)
        if found is not Evidence.AS_BEFORE and is_so:  # others may write the same
            why = f"{complaint(answer)}, but is as requested, and nothing proves who did it"
            raise InDoubt(f"{service.place(part)}: {why}")
        return None

    def _seen_after(self, service: Service, part: Part) -> Part:
        """A part that was answered, with what is seen after it, when that has come to show."""
        spec = service.spec_of(part)
        part = replace(part, subject=part.subject or service.subject(part))
        if part.subject is None and part.listed is not None:
            part = self._named_by_listing(service, part)
        if part.subject is None:
            return part

        def has_come(now: State) -> bool:
            if part.has_aim:
                return part.satisfies(now)
            is_late = is_other_version(part, now) or may_be_late(part, spec, service.read_back_of(part), now)
            return now.is_there == spec.leaves_it and not is_late

        with _in_doubt():
            after = self.seen_when(service, part, has_come)
        if not part.has_aim and after.is_there != spec.leaves_it:
            shows = "it is not there" if spec.leaves_it else "it is still there"
            raise InDoubt(f"{service.place(part)}: was answered as done, but {shows}")
        if part.answer is not None and part.answer.body in (None, "") and after.is_there:
            # a compensating request may need what the answer left out
            part = replace(part, answer=replace(part.answer, body=after.body))
        if not part.has_aim and is_other_version(part, after):
            after = replace(after, digest=_UNSEEN)  # somebody was faster: what it left nobody has seen
        return replace(part, after=after)

    def _named_by_listing(self, service: Service, part: Part) -> Part:
        """Return a part whose answer does not name what it made with the one new thing in its listing as the answer."""
        found = _candidates(service, part)
        if len(found) != 1:
            raise InDoubt(
                f"{service.place(part)}: was answered as done without the name of what it made, and {len(found)} new "
                f"things could be it: {', '.join(sorted(found)[:10]) or 'none'}"
            )
        part = replace(part, answer=next(iter(found.values())))
        return replace(part, subject=service.subject(part))

    def _come_about(self, service: Service, part: Part) -> Part:
        """A part that was taken on for later, when all that it asks for is seen."""
        taken_on = f"{service.place(part)}: was taken on (202), to be done later"
        part = replace(part, subject=part.subject or service.subject(part))
        if part.subject is None:
            raise InDoubt(f"{taken_on}; nothing shows when it is")
        spec, read_back = service.spec_of(part), service.read_back_of(part)
        with _in_doubt(f"{taken_on}, and nobody can see whether it is: "):
            after = self.seen_when(service, part, lambda now: is_as_asked(part, spec, read_back, now))
        if not is_as_asked(part, spec, read_back, after):
            raise InDoubt(f"{taken_on}, and does not show yet")
        return replace(part, after=after)

    def seen_when(self, service: Service, part: Part, has_come: Callable[[State], bool]) -> State:
        """Return the state of the subject of a part once something has come, or after the longest wait."""
        assert part.subject is not None
        now = State()
        for _ in attempts(service.connection.patience_s):
            now = service.read_back(part.read_back, part.subject)
            if has_come(now):
                break
        return now

    def current(self, service: Service, part: Part, after: State) -> State:
        """Return the state of the subject of a part that left `after`. It may be late, and is waited for."""
        before = part.before or State()

        def is_late(now: State) -> bool:
            return now.is_same(before) and not now.is_same(after) and now.etag in ("", before.etag)

        return self.seen_when(service, part, lambda now: not is_late(now))

    def _shown(self, service: Service, part: Part) -> Part | None:
        """The part with its end if what is seen proves that it was done; None if all is as before."""
        if part.subject is not None and part.before is not None:
            now, found = _seen(service, part)
            if found is Evidence.UNCLEAR:
                has_changed = f"{'has changed' if part.existed else 'is there by now'} ({shown(now.body, 200)})"
                told = f"it {has_changed if now.is_there else 'is not there any more'}"
                raise InDoubt(f"{service.place(part)}: {told}, and nothing proves by whom")
            return part.with_end(_seen_answer(now), now) if found is Evidence.DONE else None
        if part.listed is not None and (found := _candidates(service, part)):
            raise InDoubt(
                f"{service.place(part)}: {len(found)} new ones could be what it made, and nothing proves by whom: "
                f"{', '.join(sorted(found)[:10])}"
            )
        return None

    def settled(self, service: Service, action: str, request: str, part: Part, *, may_send: bool = True) -> Part | None:
        """The part with its end, if it was done; None if it was not, and will not be.

        `may_send`: whether it may be sent again.
        """
        sent_at = self.notes.sent_at(action, request)
        if sent_at is None:
            return None
        answer = self.notes.answer(action, request)
        if answer is not None and not _says_nothing(answer):
            return self._judged(service, part, answer)
        patience_s, age = service.connection.patience_s, age_s(sent_at)
        may_send = may_send and age <= _MEANT_S
        # all of the time where the clock says nothing of how long it was
        for _ in attempts(max(0.0, patience_s - age) if age < math.inf else patience_s):
            if may_send and _is_told_by_key(service, part):
                return self._sent_again(service, action, request, part)
            if done := self._shown(service, part):
                return done
            if may_send and (part.guard or part.is_keyed):
                return self._sent_again(service, action, request, part)
            if not _can_show(part):
                reason = f"; it {complaint(answer)}" if answer else ""
                raise InDoubt(f"{service.place(part)}: nothing shows whether it was done{reason}")
        return None

    def _sent_again(self, service: Service, action: str, request: str, part: Part) -> Part | None:
        """Send a part once more, which cannot do it twice, until an answer or what is seen says what became of it."""
        reason = ""
        for _ in attempts(service.connection.patience_s):
            answer = None
            try:
                service.require_contents(part)
                answer = service.wire.send(part.call, part.guard)
                reason = complaint(answer)
            except (Lost, HostError, InputError) as error:
                reason = str(error)
            if answer is not None and _is_done(service, part, answer):
                self.notes.note_answer(action, request, answer)
                return self._judged(service, part, answer)
            if not _is_told_by_key(service, part) and (done := self._shown(service, part)):
                return done  # the first one came after all
            if answer is not None and not _says_nothing(answer) and answer.status != 429:
                done = self._done_though_refused(service, part, answer)
                if done or answer.status not in (401, 403, 412):  # which say nothing of the first one
                    return done
                break
        raise InDoubt(f"{service.place(part)}: sent again for want of an answer: {reason}")

    def accepted(self, service: Service, part: Part, noted: Answer | None) -> Part:
        """A part of which a user says that it was done: without an answer, the only new one in its listing is it."""
        if part.answer is None and noted and _is_done(service, part, noted):
            part = replace(part, answer=noted)
        elif part.answer is None and part.listed is not None:
            found = list(_candidates(service, part).values())
            part = replace(part, answer=found[0] if len(found) == 1 else None)
        subject = part.subject or service.subject(part)
        after = service.read_back(part.read_back, subject) if subject else None
        if part.answer is None and after is not None:
            part = replace(part, answer=_seen_answer(after))
        return replace(part, subject=subject, after=after)


def _is_done(service: Service, part: Part, answer: Answer) -> bool:
    """Return whether an answer says that a part was done, or taken on to be done."""
    is_good = 200 <= answer.status < 300 and answer.status in (service.spec_of(part).success or (answer.status,))
    return is_good and not service.is_refusal(answer)


def _says_nothing(answer: Answer) -> bool:
    """Return whether an answer says neither that a request was done nor that it was not, as when a gateway gave up."""
    is_refused = answer.status in (307, 308) or (400 <= answer.status < 500 and answer.status not in _UNDECIDED)
    return not (200 <= answer.status < 300 or is_refused)


def _seen(service: Service, part: Part) -> tuple[State, Evidence]:
    assert part.subject is not None
    with _in_doubt():
        now = service.read_back(part.read_back, part.subject)
    return now, evidence(part, service.spec_of(part), service.read_back_of(part), now)


def _candidates(service: Service, part: Part) -> dict[str, Answer]:
    """Return what is new in the listing of a part, and as it would make it, by names, each as if it were the answer."""
    assert service.catalogue is not None
    assert part.listed is not None
    name, body, before = service.spec_of(part).listing, part.call.body, set(part.listed)
    with _in_doubt():
        now = service.listed(name, part)
    shows = service.catalogue.listings[name].shows
    new = {each: evaluated(shows, {"item": item}) for each, item in now.items() if each not in before}
    return {each: Answer(0, {}, made) for each, made in new.items() if body is None or is_part_of(body, made)}


@contextlib.contextmanager
def _in_doubt(about: str = "") -> Generator[None]:
    """Within the block only reads are made: what goes wrong says nothing of what was sent."""
    try:
        yield
    except (InputError, HostError) as error:
        raise InDoubt(f"{about}{error}") from None


def _can_show(part: Part) -> bool:
    return part.listed is not None or (part.subject is not None and part.before is not None)


def _is_told_by_key(service: Service, part: Part) -> bool:
    """Return whether a part has a key by which another answer to it tells more than any read-back."""
    return part.is_keyed and not has_own_name(part, service.spec_of(part))


def _seen_answer(now: State) -> Answer:
    """Return what is seen, as if it were the answer; its status 0 says that nobody saw that."""
    return Answer(0, {"etag": now.etag} if now.etag else {}, now.body)
