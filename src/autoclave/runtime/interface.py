"""The interface of a kind of actions, so that one session and one journal serve them all.

A manager knows one resource: a folder, a database, a service. It inspects it, plans, prepares, changes it and undoes
the change; it journals nothing and decides nothing. The session journals what it returns as "JSON data" before the next
call, and passes it back after a crash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict

from autoclave.config import Config
from autoclave.core import AutoclaveError, InputError
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.request import Access, Request

Json = Mapping[str, Any]
UndoneWith = Callable[[str], Iterator[Json]]
"""Returns the receipts with a string in their list `marks` of actions done and undone since, the latest first."""


class Choice(StrEnum):
    """Choices of an undo for something that others have changed since."""

    REFUSE = "refuse"
    """Nothing is undone, and the conflict is named."""
    SKIP = "skip"
    """It stays as it is; the rest is undone."""
    FORCE = "force"
    """It is undone all the same; their version is kept with the action, and a redo restores it."""
    SAVE_ASIDE = "save_aside"
    """It is undone, and their version is kept beside it under another name."""


class BaseOperation(Config):
    """Base of operations. The text under a field is its description for a model."""

    model_config = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """The effect of an operation on the resource as it is now.

    Attributes:
        digest: of the operation and of everything that it would change.
        changes: descriptions of its changes, in order.
        request: the same for the policy.
        footprint: what it reads and writes.
        guarantee: how good its undo is.
        delay_s: seconds that an approved action is queued in the outbox, where it can be discarded.
        kept: JSON data that the manager needs to do exactly this later; recorded with the proposal.
        output: the output and exit code of a command, or what was read; else empty.
        is_read: it only reads, so there is nothing to undo; what it read is in `output`.
        is_left_open: it lapses unless it is committed; see `Manager.lapsed`.
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
    """The policy denies it. `hint` tells the person who grants what would permit it; a model must not see that."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class CommandFailed(InputError):
    """A command failed, and nothing was done. `output`: its exit code, and what it would have changed."""

    def __init__(self, reason: str, output: Json | None = None) -> None:
        super().__init__(reason)
        self.output = output or {}


class InDoubt(AutoclaveError):
    """It is unknown how far an action got, or the resource is neither as before nor as after it."""


class NotUndone(InputError):
    """It could not be undone, and stands. It may be tried again."""


class NothingLeft(NotUndone):
    """Others changed all that it left, and the choices keep that, so it stands. Other actions are still undone."""


class NotRedone(InputError):
    """It could not be redone, and stays undone. It may be tried again."""


class Manager(ABC):
    """One kind of resource that actions change. The abstract methods and `operations` suffice; the rest has defaults.

    A receipt is the JSON data of an action that was done; it has at least its footprint, `reads` and `writes`.
    """

    operations: Mapping[str, type[Config]]
    """The operations that can be proposed, by name (`do`)."""

    def told(self) -> str:
        """Describe the resource to a model before it proposes anything."""
        return ""

    def asks(self, operation: Config) -> Request:
        """Return the accesses that planning an operation itself makes; none if planning only reads."""
        return Request(())

    def needs(self, operation: Config) -> Sequence[Sequence[Access]]:
        """Return groups of accesses, of each of which one must be permitted, whatever the state of the resource.

        They are checked before planning, whose errors tell what is there.
        """
        return ()

    @abstractmethod
    def plan(self, action: str, operation: Config) -> Plan:
        """Plan an operation. Nothing is changed. Raises InputError where it is impossible."""

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """Plan a proposed operation again, for the resource as it is now. Raises as `plan`."""
        return self.plan(action, operation)

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """Prepare `execute` without changing anything that others see; return JSON data for doing and undoing it.

        The default returns what was kept with the plan, `operation`, `accesses`, `guarantee` and the footprint. Raises
        InputError or HostError where that fails; nothing is left behind then.
        """
        accesses = [asdict(each) for each in plan.request.accesses]
        footprint = {name: sorted(getattr(plan.footprint, name)) for name in ("reads", "writes")}
        told = {"operation": operation.model_dump(mode="json"), "guarantee": plan.guarantee, "accesses": accesses}
        return {**plan.kept, **told, **footprint}

    @abstractmethod
    def execute(self, action: str, started: Json) -> Json:
        """Execute it; return the receipt.

        Raises InputError, HostError: it failed, possibly midway; `put_back` follows. InDoubt: it may have been done or
        not; `find_out` follows.
        """

    def find_out(self, action: str, started: Json) -> Json | None:
        """Return the receipt of an interrupted action if it was done completely; None if it is to be put back.

        Raises InDoubt where that cannot be determined, at least for now.
        """
        return None

    def answers(self, action: str, begun: Json) -> bool:
        """Return whether the resource of an action in doubt answers, so that it can be settled; False: only a user can.

        `begun`: what was recorded before the last `execute`, `undo` or `redo`. Takes seconds at most.
        """
        return False

    def observed(self, action: str, receipt: Json) -> Request:
        """Return what an action actually did, as observed and not as planned.

        The default takes it from the receipt: right for a manager whose `execute` can do only what was planned.
        """
        accesses = [Access(**{**each, "inside": tuple(each["inside"])}) for each in receipt["accesses"]]
        return Request(tuple(accesses), Guarantee(receipt["guarantee"]))

    def accept(self, action: str, started: Json) -> Json:
        """Return the receipt of an action that a person declares done: the resource is now as it left it."""
        if (receipt := self.find_out(action, started)) is None:
            raise InputError(f"action {action}: was not done")
        return receipt

    def accept_undo(self, action: str, undoing: Json) -> Json:
        """Return what `plan_redo` needs of an undo that a person declares done; empty if that is not known."""
        return {}

    @abstractmethod
    def put_back(self, action: str, started: Json) -> bool:
        """Roll back as much of it as was done; return whether all is as before. May be called again."""

    def kept_bytes(self, receipt: Json) -> int:
        """Return the number of bytes that the action keeps outside the journal."""
        return int(receipt.get("kept_bytes", 0))

    def obstacle(self, action: str, receipt: Json) -> str:
        """Return the reason why an action can never be undone; empty if it can be."""
        return ""

    @abstractmethod
    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        """Return what others changed of what actions left, by action. `done`: ids and receipts, the latest first."""

    @abstractmethod
    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        """Return JSON data of how to undo it, with choices for what others changed (by the names of `conflicts`).

        Raises InputError: something cannot be undone that way. NothingLeft: the choices keep all of it.
        """

    @abstractmethod
    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        """Undo it, or resume that after a crash (`is_late`), and verify the result; return JSON data for `redo`.

        Raises:
            NotUndone: nothing of it was undone.
            InDoubt: the resource is neither as before nor as after it.
            HostError: it cannot be done now; it is resumed when the state is opened again.
        """

    @abstractmethod
    def plan_redo(self, action: str, undone: Json) -> Json:
        """Return JSON data of how to redo it. Raises InputError where something has changed since its undo."""

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """Return what a redo would do, for the policy."""
        return self.observed(action, receipt)

    @abstractmethod
    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        """Redo it, or resume that; return the new receipt. Raises NotRedone where nothing was done, else as `undo`."""

    def commit(self, action: str, receipt: Json) -> None:  # noqa: B027 - nothing is left open by default
        """Complete what was left open so that it could be undone. May be called again.

        Raises InputError where it no longer exists, and HostError or InDoubt where it cannot be done now.
        """

    def lapsed(self, action: str, receipt: Json) -> str:
        """Return the reason why an action left open no longer stands and is to be undone; empty if it stands."""
        return ""

    def discard(self, action: str) -> None:  # noqa: B027 - nothing is kept by default
        """Delete what is kept for an action that will be neither undone nor redone. May be called again."""

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """Return lines that show a person what it would change, has changed, or had changed before it was undone.

        `receipt`: JSON data of its plan (`kept`) or of what was done; None if there is none.
        """
        return []

    def close(self) -> None:  # noqa: B027 - nothing is opened by default
        """Release what was opened."""
