"""What a kind of actions has to offer, so that one session and one journal serve them all.

A manager knows one world: a folder, a database, a service. It looks at it, plans, prepares, changes it and takes the
change back; it journals nothing and decides nothing. What it returns as "JSON data" the session keeps in the journal
before the next call, and hands back after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from autoclave.config import Config
from autoclave.core import AutoclaveError, InputError
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.request import Request

Json = Mapping[str, Any]
UndoneWith = Callable[[str], Iterator[Json]]
"""Gives receipts with some text in them of what was done and has been undone since, the last first."""


class Choice(StrEnum):
    """What an undo does with something that somebody else has changed since."""

    REFUSE = "refuse"
    """Nothing is taken back, and it is named."""
    SKIP = "skip"
    """It stays as it is; the rest is taken back."""
    FORCE = "force"
    """It is taken back all the same; theirs is kept with the action, and a redo brings it again."""
    SAVE_ASIDE = "save_aside"
    """It is taken back, and theirs gets another name beside it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operation would do to the world as it is now.

    Attributes:
        digest: of the operation and of what it would change: another world, another digest.
        changes: what it would do, in order, in words.
        request: the same for the policy.
        footprint: what it reads and writes.
        guarantee: how good its undo is.
        hold_s: for so many seconds after its approval it can be withdrawn before it is done.
        kept: JSON data without which the manager could not do exactly this later; recorded with the proposal.
        output: what a command printed, and how it ended; empty for what is no command.
        is_left_open: after it is run it ends by itself unless it is committed; see `Manager.lapsed`.
    """

    digest: str
    changes: tuple[str, ...]
    request: Request
    footprint: Footprint
    guarantee: Guarantee
    hold_s: float = 0.0
    kept: Json = field(default_factory=dict[str, Any])
    output: Json = field(default_factory=dict[str, Any])
    is_left_open: bool = False


class NotPermitted(InputError):
    """The policy denies it. `hint` says to the person who grants what would permit it; a model must not see that."""

    hint: str = ""

    @staticmethod
    def because(reason: str, hint: str) -> NotPermitted:
        error = NotPermitted(reason)
        error.hint = hint
        return error


class InDoubt(AutoclaveError):
    """Nobody can tell how far something got, or it is neither as before nor as after."""


class NotUndone(InputError):
    """It could not be taken back, and stands as it was done. It may be tried again."""


class NothingLeft(NotUndone):
    """All that it left was changed by others, and by choice stays; so it stands. Of several, the others go on."""


class NotRedone(InputError):
    """It could not be done again, and is as it was after its undo. It may be tried again."""


class Manager(Protocol):
    """One world that actions change.

    A receipt is the JSON data of an action that was done; it has at least `reads` and `writes`, maybe `adds` (its
    footprint).
    """

    operations: Mapping[str, type[Config]]
    """What can be proposed, by its name (`do`)."""

    def told(self) -> str:
        """What a model may know of the world before it proposes anything."""
        ...

    def asks(self, operation: Config) -> Request:
        """What an operation asks for before it can be planned; nothing if planning only looks."""
        ...

    def plan(self, action: str, operation: Config) -> Plan:
        """What an operation would do. The world stays as it is.

        Raises:
            InputError: it cannot be done.
        """
        ...

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """The plan of an operation that was proposed before, for the world as it is now.

        Raises:
            InputError: it cannot be done any more.
        """
        ...

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """Make ready what `execute` needs, without changing anything that others see; JSON data to do and undo it by.

        Raises:
            InputError, HostError: it cannot be done; nothing is left of the try.
        """
        ...

    def execute(self, action: str, started: Json) -> Json:
        """Do it; the receipt.

        Raises:
            InputError, HostError: it failed, maybe in the middle: `put_back` follows.
            InDoubt: it may have been done or not: `find_out` follows.
        """
        ...

    def find_out(self, action: str, started: Json) -> Json | None:
        """The receipt of an action whose end nobody saw, if all of it was done; None if not, and it is to be put back.

        Raises:
            InDoubt: nobody can tell, at least not now.
        """
        ...

    def observed(self, action: str, receipt: Json) -> Request:
        """What an action really did, looked at and not taken from its plan."""
        ...

    def accept(self, action: str, started: Json) -> Json:
        """The receipt of an action of which a person says that it was done: the world as it is now is what it left."""
        ...

    def put_back(self, action: str, started: Json) -> bool:
        """Take back as much of it as was done; whether all is as before. May be called again."""
        ...

    def keep(self, action: str, receipt: Json) -> None:
        """It is recorded that it was done: put what is kept of it where it is to stay.

        Raises:
            HostError: that cannot be now; it stays where it is.
        """
        ...

    def kept_bytes(self, receipt: Json) -> int:
        """What the action keeps outside of the journal."""
        ...

    def obstacle(self, action: str, receipt: Json) -> str:
        """Why an action can by no means be taken back; empty if it can."""
        ...

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        """What others have changed of what actions left, by action. `done`: names and receipts, the last done first."""
        ...

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        """JSON data of how to take it back, with a choice for what others changed (by the names of `conflicts`).

        Raises:
            InputError: something cannot be taken back that way.
            NothingLeft: by choice, all of it stays.
        """
        ...

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        """Take it back, or go on with that after a crash (`is_late`), and look whether it is; JSON data for `redo`.

        Raises:
            NotUndone: nothing of it was taken back.
            InDoubt: it is neither as before nor as after.
            HostError: not now; it goes on when the state is opened again.
        """
        ...

    def plan_redo(self, action: str, undone: Json) -> Json:
        """JSON data of how to do again what was undone.

        Raises:
            InputError: others have changed it since, or what it needs is not there.
        """
        ...

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """What doing it again would do, for the policy."""
        ...

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        """Do it again, or go on with that; the new receipt.

        Raises:
            NotRedone: nothing of it was done.
            InDoubt, HostError: as `undo`.
        """
        ...

    def commit(self, action: str, receipt: Json) -> None:
        """Bring to its end what was left open so that it could be taken back. May be called again.

        Raises:
            InputError: it is not there any more.
            HostError, InDoubt: that cannot be now.
        """
        ...

    def lapsed(self, action: str, receipt: Json) -> str:
        """Why an action that stands does not stand by itself any more, so that it is to be undone; empty if it does."""
        ...

    def discard(self, action: str) -> None:
        """Forget what is kept for an action that will be neither undone nor redone. May be called again."""
        ...

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """Lines that show to a person what it would change, has changed, or had changed before it was undone.

        `receipt`: JSON data of its plan (`kept`) or of what was done; None if there is none.
        """
        ...
