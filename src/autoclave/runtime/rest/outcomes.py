"""What an answer says of a request that changes something: done, not done, taken on for later, or nothing. Pure."""

from __future__ import annotations

from enum import StrEnum

from autoclave.core import InputError
from autoclave.runtime.rest.catalogue import OperationSpec
from autoclave.runtime.rest.parts import Answer, Part
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.wire import complaint

_ACCEPTED = 202
_UNDECIDED = (408, 409, 425)


class Outcome(StrEnum):
    """What an answer says."""

    APPLIED = "applied"
    """It was done."""
    ACCEPTED = "accepted"
    """It was taken on, to be done by and by: only what is seen says when it is."""
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


def outcome(service: Service, answer: Answer, spec: OperationSpec) -> Outcome:
    """What an answer says of a request that changes something."""
    status = answer.status
    if 200 <= status < 300:
        if status not in (spec.success or (status,)) or service.is_refusal(answer):
            return Outcome.REFUSED
        # where nothing shows it and nothing takes it back, as of a mail, to be taken on is all that can be known
        is_later = status == _ACCEPTED and not spec.success and bool(spec.read_back or spec.undo)
        return Outcome.ACCEPTED if is_later else Outcome.APPLIED
    if status in (307, 308):
        return Outcome.REFUSED
    return Outcome.REFUSED if 400 <= status < 500 and status not in _UNDECIDED else Outcome.UNKNOWN
