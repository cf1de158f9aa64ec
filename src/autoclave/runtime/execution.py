"""Executing, undoing and redoing one action: what was begun is recorded as ended or is put back, also later."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from autoclave.core import HostError, InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, NothingLeft, NotRedone, NotUndone
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.states import IN_DOUBT, ActionState

_S = ActionState


class Execution:
    """Changes the resources of actions of all kinds, within what `permissions` approved."""

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
            self._doubt(action, _S.IN_DOUBT, error)
            raise InputError(f"action {action}: nobody can tell whether it was done: {error}") from None
        except (InputError, OSError) as error:
            self._fail(action, manager, started, str(error))
            raise
        self._record(action, manager, started, receipt)

    def undo(self, action: str, choices: Mapping[str, Choice], on_conflict: Choice) -> None:
        """Undo an action.

        Raises:
            NothingLeft: by choice, all of it stays.
            InputError: it stands, or nobody can tell; that is recorded.
        """
        manager, receipt = self._actions.manager_of_action(action), self._actions.receipt(action)
        try:
            undoing = manager.plan_undo(action, receipt, choices, on_conflict, self._actions.undone_with)
        except NothingLeft as error:
            raise NothingLeft(f"action {action}: {error}") from None
        self._journal.advance(action, _S.UNDOING, undoing)
        self._finish_undo(action, manager, undoing)

    def plan_redo(self, action: str) -> tuple[Manager, Json]:
        """How what was undone is done again.

        Raises:
            InputError: it was not undone, or somebody has changed what was there before.
        """
        standing = self._journal.standing(action)
        if standing.state is not _S.UNDONE:
            raise InputError(f"action {action}: is {standing.state}; what was undone can be redone")
        if standing.kept_bytes is None or "resolved" in standing.body:
            raise InputError(f"action {action}: what a redo needs is not kept any more; propose it again")
        manager = self._actions.manager_of(standing)
        return manager, manager.plan_redo(action, standing.body)

    def redo(self, action: str, manager: Manager, redoing: Json) -> None:
        """Do again what was undone, as `plan_redo` says.

        Raises:
            NotRedone: nothing was done; that is recorded.
            InputError: nobody can tell how far it came; that is recorded.
        """
        self._journal.advance(action, _S.REDOING, redoing)
        self._finish_redo(action, manager, redoing)

    def settle(self, action: str) -> None:
        """Bring an action that is unfinished or in doubt to its end, or back, and record it.

        Raises:
            InputError: it failed, or nobody can tell; that is recorded.
            HostError: its resource does not answer.
        """
        standing = self._journal.standing(action)
        manager = self._actions.manager_of(standing)
        begun = self._actions.last_record(action, (_S.EXECUTING, _S.UNDOING, _S.REDOING))
        if begun.kind == _S.UNDOING:
            self._finish_undo(action, manager, begun.body, is_late=True)
        elif begun.kind == _S.REDOING:
            self._finish_redo(action, manager, begun.body, is_late=True)
        else:
            try:
                receipt = manager.find_out(action, begun.body)
            except (InDoubt, InputError) as error:
                self._doubt(action, _S.IN_DOUBT, error)
                raise InputError(f"action {action}: {error}") from None
            if receipt is not None:
                self._record(action, manager, begun.body, receipt)
            else:
                died = "the process died while it was executed; it was put back"
                why = died if standing.state is _S.EXECUTING else "it was not done"
                if not self._fail(action, manager, begun.body, why):
                    raise InputError(f"action {action}: it was not done whole, and what it did cannot be put back")

    def is_lapsed(self, action: str) -> bool:
        """Whether an action that was left open does not stand by itself any more; then it is recorded as undone.

        Where the resource does not tell, the action is in doubt; where it does not answer now, it stands until then.
        """
        manager, receipt = self._actions.manager_of_action(action), self._actions.receipt(action)
        undoing = manager.plan_undo(action, receipt, {}, Choice.REFUSE, self._actions.undone_with)
        try:
            if not (reason := manager.lapsed(action, receipt)):
                return False
        except HostError:
            return False
        except (InDoubt, InputError) as error:
            self._journal.advance(action, _S.UNDOING, {**undoing, "lapsed": str(error)})
            self._doubt(action, _S.UNDO_IN_DOUBT, error)
            return True
        self._journal.advance(action, _S.UNDOING, {**undoing, "lapsed": reason})
        with contextlib.suppress(InputError):  # it is recorded how it stands
            self._finish_undo(action, manager, undoing)
        return True

    def _finish_undo(self, action: str, manager: Manager, undoing: Json, *, is_late: bool = False) -> None:
        """Take an action back as it is recorded with `undoing`, or go on with that (`is_late`)."""
        try:
            undone = manager.undo(action, undoing, is_late=is_late)
        except NotUndone as error:
            self._journal.advance(action, _S.UNDO_FAILED, {"reason": str(error)}, seal=True)
            raise NotUndone(f"action {action}: {error}") from None
        except (InDoubt, InputError, HostError) as error:
            self._doubt(action, _S.UNDO_IN_DOUBT, error)
            raise InputError(f"action {action}: {error}") from None
        self._journal.advance(action, _S.UNDONE, undone, seal=True)

    def _finish_redo(self, action: str, manager: Manager, redoing: Json, *, is_late: bool = False) -> None:
        """Do an action again as it is recorded with `redoing`, or go on with that (`is_late`)."""
        try:
            receipt = manager.redo(action, self._actions.receipt(action), redoing, is_late=is_late)
        except NotRedone as error:
            undone = self._actions.last_record(action, (_S.UNDONE,)).body
            self._journal.advance(action, _S.UNDONE, {**undone, "reason": str(error)}, seal=True)
            raise NotRedone(f"action {action}: {error}") from None
        except (InDoubt, InputError, HostError) as error:
            self._doubt(action, _S.IN_DOUBT, error)
            raise InputError(f"action {action}: {error}") from None
        self._journal.advance(action, _S.REDONE, receipt, seal=True, kept_bytes=manager.kept_bytes(receipt))

    def _record(self, action: str, manager: Manager, started: Json, receipt: Json) -> None:
        """Record what was done if it is within the approval; else put it back, and raise NotPermitted."""
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
            if is_back:
                self._journal.advance(action, _S.FAILED, {"reason": reason}, seal=True)
                self._actions.discard(action, manager)
            else:
                self._doubt(action, _S.IN_DOUBT, reason)
        return is_back

    def _doubt(self, action: str, state: ActionState, reason: object) -> None:
        if self._journal.standing(action).state not in IN_DOUBT:
            self._journal.advance(action, state, {"reason": str(reason)}, seal=True)
