"""What a kind of actions has to offer, so that one session and one journal serve them all.

A manager knows one resource: a folder, a database, a service. It looks at it, plans, prepares, changes it and takes the
change back; it journals nothing and decides nothing. What it returns as "JSON data" the session keeps in the journal
before the next call, and hands back after a crash.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from autoclave.config import Config
from autoclave.core import AutoclaveError, InputError
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.request import Access, Request

Json = Mapping[str, Any]
UndoneWith = Callable[[str], Iterator[Json]]
"""Return the receipts that have a string in their list `marks`, of what was done and undone since, the last first."""


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
    """What an operation would do to the resource as it is now.

    Attributes:
        digest: of the operation and of what it would change: where that differs, so does the digest.
        changes: what it would do, in order, in words.
        request: the same for the policy.
        footprint: what it reads and writes.
        guarantee: how good its undo is.
        delay_s: seconds that an approved action is queued in the outbox, where it can be discarded.
        kept: JSON data without which the manager could not do exactly this later; recorded with the proposal.
        output: what a command printed, and how it ended, or what was read; else empty.
        is_read: it only reads, so there is nothing to undo; what it read is in `output`.
        is_left_open: after it is run it ends by itself unless it is committed; see `Manager.lapsed`.
    """

    digest: str
    changes: tuple[str, ...]
    request: Request
    footprint: Footprint
    guarantee: Guarantee
    delay_s: float = 0.0
    kept: Json = field(default_factory=dict[str, Any])
    output: Json = field(default_factory=dict[str, Any])
    is_left_open: bool = False
    is_read: bool = False


class NotPermitted(InputError):
    """The policy denies it. `hint` says to the person who grants what would permit it; a model must not see that."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class CommandFailed(InputError):
    """A command failed, and nothing was done. `output`: how it ended, and what it would have changed."""

    def __init__(self, reason: str, output: Json | None = None) -> None:
        super().__init__(reason)
        self.output = output or {}


class InDoubt(AutoclaveError):
    """Nobody can tell how far something got, or it is neither as before nor as after."""


class NotUndone(InputError):
    """It could not be taken back, and stands as it was done. It may be tried again."""


class NothingLeft(NotUndone):
    """All that it left was changed by others, and by choice stays; so it stands. Of several, the others go on."""


class NotRedone(InputError):
    """It could not be done again, and is as it was after its undo. It may be tried again."""


class Manager(ABC):
    """One kind of resource that actions change. The abstract methods and `operations` suffice; the rest has defaults.

    A receipt is the JSON data of an action that was done; it has at least its footprint, `reads` and `writes`.
    """

    operations: Mapping[str, type[Config]]
    """What can be proposed, by its name (`do`)."""

    def told(self) -> str:
        """What a model may know of the resource before it proposes anything."""
        return ""

    def asks(self, operation: Config) -> Request:
        """What an operation asks for before it can be planned; nothing if planning only looks."""
        return Request(())

    @abstractmethod
    def plan(self, action: str, operation: Config) -> Plan:
        """Plan an operation. Nothing is changed. Raises InputError where it cannot be done."""

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """Plan an operation that was proposed before, for the resource as it is now. Raises as `plan`."""
        return self.plan(action, operation)

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """Make ready what `execute` needs, without changing anything that others see; JSON data to do and undo it by.

        The default returns what was kept with the plan, `operation`, `accesses`, `guarantee` and the footprint. Raises
        InputError or HostError where it cannot be done; nothing is left of the try.
        """
        accesses = [asdict(each) for each in plan.request.accesses]
        footprint = {name: sorted(getattr(plan.footprint, name)) for name in ("reads", "writes")}
        told = {"operation": operation.model_dump(mode="json"), "guarantee": plan.guarantee, "accesses": accesses}
        return {**plan.kept, **told, **footprint}

    @abstractmethod
    def execute(self, action: str, started: Json) -> Json:
        """Do it; the receipt.

        Raises:
            InputError, HostError: it failed, maybe in the middle: `put_back` follows.
            InDoubt: it may have been done or not: `find_out` follows.
        """

    def find_out(self, action: str, started: Json) -> Json | None:
        """The receipt of an action whose end nobody saw, if all of it was done; None if not, and it is to be put back.

        Raises InDoubt where nobody can tell, at least not now.
        """
        return None

    def answers(self, action: str, begun: Json) -> bool:
        """Whether the resource of an action in doubt answers, so that it may be settled; False: only by a user.

        `begun`: what was recorded before the last `execute`, `undo` or `redo`. Takes seconds at most.
        """
        return False

    def observed(self, action: str, receipt: Json) -> Request:
        """What an action really did, looked at and not taken from its plan.

        The default takes it from the receipt: right for a manager whose `execute` can do nothing but what was planned.
        """
        accesses = [Access(**{**each, "inside": tuple(each["inside"])}) for each in receipt["accesses"]]
        return Request(tuple(accesses), Guarantee(receipt["guarantee"]))

    def accept(self, action: str, started: Json) -> Json:
        """The receipt of an action of which a person says that it was done: the resource is now as it left it."""
        if (receipt := self.find_out(action, started)) is None:
            raise InputError(f"action {action}: was not done")
        return receipt

    @abstractmethod
    def put_back(self, action: str, started: Json) -> bool:
        """Take back as much of it as was done; whether all is as before. May be called again."""

    def kept_bytes(self, receipt: Json) -> int:
        """What the action keeps outside of the journal."""
        return int(receipt.get("kept_bytes", 0))

    def obstacle(self, action: str, receipt: Json) -> str:
        """Why an action can by no means be taken back; empty if it can."""
        return ""

    @abstractmethod
    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        """What others have changed of what actions left, by action. `done`: names and receipts, the last done first."""

    @abstractmethod
    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        """JSON data of how to take it back, with a choice for what others changed (by the names of `conflicts`).

        Raises:
            InputError: something cannot be taken back that way.
            NothingLeft: by choice, all of it stays.
        """

    @abstractmethod
    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        """Take it back, or go on with that after a crash (`is_late`), and look whether it is; JSON data for `redo`.

        Raises:
            NotUndone: nothing of it was taken back.
            InDoubt: it is neither as before nor as after.
            HostError: not now; it goes on when the state is opened again.
        """

    @abstractmethod
    def plan_redo(self, action: str, undone: Json) -> Json:
        """JSON data of how to redo what was undone. Raises InputError where something was changed since."""

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """What doing it again would do, for the policy."""
        return self.observed(action, receipt)

    @abstractmethod
    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        """Do it again, or go on with that; the new receipt. Raises NotRedone where nothing was done, else as `undo`."""

    def commit(self, action: str, receipt: Json) -> None:  # noqa: B027 - nothing is left open by default
        """Bring to its end what was left open so that it could be taken back. May be called again.

        Raises InputError where it is not there any more, and HostError or InDoubt where that cannot be now.
        """

    def lapsed(self, action: str, receipt: Json) -> str:
        """Why an action that stands does not stand by itself any more, so that it is to be undone; empty if it does."""
        return ""

    def discard(self, action: str) -> None:  # noqa: B027 - nothing is kept by default
        """Forget what is kept for an action that will be neither undone nor redone. May be called again."""

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """Lines that show to a person what it would change, has changed, or had changed before it was undone.

        `receipt`: JSON data of its plan (`kept`) or of what was done; None if there is none.
        """
        return []

    def close(self) -> None:  # noqa: B027 - nothing is opened by default
        """Free what was opened."""
