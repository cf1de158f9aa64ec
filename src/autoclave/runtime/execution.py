"""Executing actions. What was begun is recorded as done or is put back, also by a later process."""

from __future__ import annotations

import contextlib

from autoclave.core import InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.interface import InDoubt, Json, Manager, NotRedone
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.states import ActionState

_S = ActionState


class Execution:
    """Executes actions of all kinds, within what `permissions` approved."""

    def __init__(self, actions: Actions, permissions: Permissions) -> None:
        self._actions, self._journal, self._permissions = actions, actions.journal, permissions

    def execute(self, action: str, manager: Manager, started: Json) -> None:
        """Execute an action for which everything is prepared.

        Raises:
            InputError, HostError: it failed and was put back, or it is in doubt.
        """
        self._journal.advance(action, _S.EXECUTING, started)
        try:
            try:
                receipt = manager.execute(action, started)
            except InDoubt as error:
                if (found := manager.find_out(action, started)) is None:
                    raise InputError(f"{error}; it was not done") from None
                receipt = found
        except InDoubt as error:
            self._journal.advance(action, _S.IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: nobody can tell whether it was done: {error}") from None
        except (InputError, OSError) as error:
            self._fail(action, manager, started, str(error))
            raise
        self._record(action, manager, started, receipt)

    def finish(self, action: str, manager: Manager, started: Json) -> None:
        """Record how an action ended whose process died."""
        try:
            receipt = manager.find_out(action, started)
        except (InDoubt, InputError) as error:
            self._journal.advance(action, _S.IN_DOUBT, {"reason": str(error)}, seal=True)
            return
        if receipt is None:
            self._fail(action, manager, started, "the process died while it was executed; it was put back")
        else:
            self._record(action, manager, started, receipt)

    def check_again(self, action: str, manager: Manager) -> None:
        """Find out how an action in doubt stands, and record it.

        Raises:
            InDoubt: it is still in doubt.
        """
        begun = self._actions.last_record(action, (_S.EXECUTING, _S.REDOING))
        if begun.kind == _S.REDOING:
            try:
                receipt = manager.redo(action, self._actions.receipt(action), begun.body, is_late=True)
            except NotRedone as error:
                undone = self._actions.last_record(action, (_S.UNDONE,)).body
                self._journal.advance(action, _S.UNDONE, {**undone, "reason": str(error)}, seal=True)
                return
            self._journal.advance(action, _S.EXECUTED, receipt, seal=True, kept_bytes=manager.kept_bytes(receipt))
        elif (receipt := manager.find_out(action, begun.body)) is not None:
            self._record(action, manager, begun.body, receipt)
        elif not self._fail(action, manager, begun.body, "it was not done"):
            raise InDoubt("it was not done whole, and what it did cannot be put back")

    def _record(self, action: str, manager: Manager, started: Json, receipt: Json) -> None:
        """Record what was done if it is within the approval; else put it back.

        Raises:
            NotPermitted: it is not.
        """
        try:
            approval = self._actions.last_record(action, (_S.APPROVED,))
            self._permissions.require_within(action, approval, manager.observed(action, receipt))
            self._journal.advance(action, _S.EXECUTED, receipt, kept_bytes=manager.kept_bytes(receipt))
        except (InputError, OSError) as error:
            self._fail(action, manager, {**started, **receipt}, str(error))
            raise
        self._journal.seal()

    def _fail(self, action: str, manager: Manager, started: Json, reason: str) -> bool:
        """Put back what was begun and record it, or leave that to the next opening of the state; return if it is."""
        is_back = False
        with contextlib.suppress(OSError):
            is_back = manager.put_back(action, started)
            if is_back or self._journal.standing(action).state is not _S.IN_DOUBT:
                self._journal.advance(action, _S.FAILED if is_back else _S.IN_DOUBT, {"reason": reason}, seal=True)
            if is_back:
                self._actions.discard(action, manager)
        return is_back
