"""Executing, undoing and redoing one action: each is recorded as complete or rolled back, at the latest on recovery.

Actions that a crash or a lost resource left unfinished or in doubt are settled here.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, NothingLeft, NotRedone, NotUndone
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.states import IN_DOUBT, UNFINISHED, ActionState

_S = ActionState
_BEGUN = (_S.EXECUTING, _S.UNDOING, _S.REDOING)
_CHECKING_S = 5.0
"""Seconds after which no further action in doubt is checked."""
_PAUSE_S = 1.0
"""Seconds before an action that stays in doubt is checked again, plus ten times the duration of the check."""


class Execution:
    """Changes resources of all kinds, within what `permissions` approved."""

    def __init__(self, actions: Actions, permissions: Permissions) -> None:
        self._actions, self._journal, self._permissions = actions, actions.journal, permissions
        self._next_check = dict[str, float]()

    def execute(self, action: str, manager: Manager, started: Json) -> None:
        """Execute a prepared action. Raises InputError or HostError where it was put back, or is in doubt."""
        self._journal.advance(action, _S.EXECUTING, started)
        try:
            try:
                receipt = manager.execute(action, started)
            except InDoubt as error:
                if (found := manager.find_out(action, started)) is None:
                    raise InputError(f"{error}; it was not done") from None
                receipt = found
        except InDoubt as error:
            raise self._doubt(action, _S.IN_DOUBT, f"it is unknown whether it was done: {error}") from None
        except (InputError, OSError) as error:
            self._fail(action, manager, started, str(error))
            raise
        self._record(action, manager, started, receipt)

    def undo(self, action: str, choices: Mapping[str, Choice], on_conflict: Choice) -> None:
        """Undo an action. Raises NothingLeft where the choices keep all of it, and InputError where it failed."""
        manager, receipt = self._actions.manager_of_action(action), self._actions.receipt(action)
        try:
            undoing = manager.plan_undo(action, receipt, choices, on_conflict, self._actions.undone_with)
        except NothingLeft as error:
            raise NothingLeft(f"action {action}: {error}") from None
        self._journal.advance(action, _S.UNDOING, undoing)
        self._finish_undo(action, manager, undoing)

    def plan_redo(self, action: str) -> tuple[Manager, Json]:
        """Plan to redo an action. Raises InputError where it was not undone, or something has changed since."""
        standing = self._journal.standing(action)
        if standing.state is not _S.UNDONE:
            raise InputError(f"action {action}: is {standing.state}; only an undone action can be redone")
        if standing.kept_bytes is None or standing.body.keys() == {"resolved"}:
            raise InputError(f"action {action}: what a redo needs is no longer kept; propose it again")
        manager = self._actions.manager_of(standing)
        return manager, manager.plan_redo(action, standing.body)

    def redo(self, action: str, manager: Manager, redoing: Json) -> None:
        """Redo an action as planned by `plan_redo`. Raises NotRedone or InputError where it failed."""
        self._journal.advance(action, _S.REDOING, redoing)
        self._finish_redo(action, manager, redoing)

    def recover(self) -> Iterator[str]:
        """Settle unfinished actions, and those in doubt whose resource answers; yield the ids of the actions."""
        for standing in self._journal.standings(UNFINISHED):
            try:
                self._settle(standing.action)
            except (AutoclaveError, OSError) as error:  # recorded, or checked again with the next command
                if not isinstance(error, InputError | HostError):
                    raise
            except Exception as error:  # noqa: BLE001 - else no session could be opened
                # its message may contain secrets
                doubt = _S.UNDO_IN_DOUBT if standing.state is _S.UNDOING else _S.IN_DOUBT
                self._doubt(standing.action, doubt, f"unexpected {type(error).__name__}")
            yield standing.action
        yield from self._settle_doubts()
        for standing in self._journal.standings((_S.COMMITTED,), kept_only=True):
            self._actions.discard(standing.action, self._actions.manager_of(standing))

    def undo_lapsed(self) -> Iterator[str]:
        """Record as undone the actions left open that have lapsed; yield their ids.

        Where the resource cannot tell, the action is in doubt; where it does not answer, the action still stands.
        """
        for action in self._journal.left_open():
            manager, receipt = self._actions.manager_of_action(action), self._actions.receipt(action)
            undoing = manager.plan_undo(action, receipt, {}, Choice.REFUSE, self._actions.undone_with)
            try:
                if not (reason := manager.lapsed(action, receipt)):
                    continue
            except HostError:
                continue
            except (InDoubt, InputError) as error:
                self._journal.advance(action, _S.UNDOING, {**undoing, "lapsed": str(error)})
                self._doubt(action, _S.UNDO_IN_DOUBT, error)
            else:
                self._journal.advance(action, _S.UNDOING, {**undoing, "lapsed": reason})
                with contextlib.suppress(InputError):  # its state is recorded
                    self._finish_undo(action, manager, undoing)
            yield action

    def require_settled(self, manager: Manager) -> None:
        """Raise HostError if an action of a manager is unfinished because its resource does not answer."""
        for standing in self._journal.standings(UNFINISHED):
            if self._actions.manager_of(standing) is manager:
                raise HostError(
                    f"action {standing.action}: is {standing.state}, and its resource does not answer, so nothing else "
                    "is done there. Fix: try again when it answers"
                )

    def check_again(self, action: str) -> None:
        """Find out and record the state of an action in doubt. Raises InputError if it still is, or was not."""
        standing = self._journal.standing(action)
        if standing.state not in IN_DOUBT:
            raise InputError(f"action {action}: is {standing.state}; only an action in doubt is checked again")
        try:
            self._settle(action)
        except (NotUndone, NotRedone):
            return  # its state is recorded
        except InputError as error:
            if self._journal.standing(action).state not in IN_DOUBT:
                raise
            told = str(error).removeprefix(f"action {action}: ")
            raise InputError(f"action {action}: is still in doubt: {told}") from None

    def _settle_doubts(self) -> Iterator[str]:
        """Check again the actions in doubt whose resource answers; yield the ids of those that are settled.

        A resource that is unreachable, or cannot tell, is left alone for a while.
        """
        began = time.monotonic()
        for standing in self._journal.standings(IN_DOUBT):
            action, check_began = standing.action, time.monotonic()
            if check_began < self._next_check.get(action, 0.0):
                continue
            if check_began > began + _CHECKING_S:
                return
            with contextlib.suppress(Exception):  # it stays in doubt; else no session could be opened
                begun = self._actions.last_record(action, _BEGUN).body
                if self._actions.manager_of(standing).answers(action, begun):
                    self.check_again(action)
                    yield action
                    continue
            now = time.monotonic()
            self._next_check[action] = now + _PAUSE_S + 10 * (now - check_began)

    def _settle(self, action: str) -> None:
        """Complete or roll back an action that is unfinished or in doubt, and record that.

        Raises InputError where neither was possible (recorded), and HostError where its resource does not answer.
        """
        standing = self._journal.standing(action)
        manager, begun = self._actions.manager_of(standing), self._actions.last_record(action, _BEGUN)
        if begun.kind == _S.UNDOING:
            self._finish_undo(action, manager, begun.body, is_late=True)
        elif begun.kind == _S.REDOING:
            self._finish_redo(action, manager, begun.body, is_late=True)
        else:
            try:
                receipt = manager.find_out(action, begun.body)
            except (InDoubt, InputError) as error:
                raise self._doubt(action, _S.IN_DOUBT, error) from None
            died = "the process died while it was executed; it was put back"
            why = died if standing.state is _S.EXECUTING else "it was not done"
            if receipt is not None:
                self._record(action, manager, begun.body, receipt)
            elif not self._fail(action, manager, begun.body, why):
                raise InputError(f"action {action}: it was done in part, and that cannot be put back")

    def _finish_undo(self, action: str, manager: Manager, undoing: Json, *, is_late: bool = False) -> None:
        """Undo an action as recorded in `undoing`, or resume that (`is_late`)."""
        try:
            undone = manager.undo(action, undoing, is_late=is_late)
        except NotUndone as error:
            self._journal.advance(action, _S.UNDO_FAILED, {"reason": str(error)}, seal=True)
            raise NotUndone(f"action {action}: {error}") from None
        except (InDoubt, InputError, HostError) as error:
            raise self._doubt(action, _S.UNDO_IN_DOUBT, error) from None
        self._journal.advance(action, _S.UNDONE, undone, seal=True)

    def _finish_redo(self, action: str, manager: Manager, redoing: Json, *, is_late: bool = False) -> None:
        """Redo an action as recorded in `redoing`, or resume that (`is_late`)."""
        try:
            receipt = manager.redo(action, self._actions.receipt(action), redoing, is_late=is_late)
        except NotRedone as error:
            undone = self._actions.last_record(action, (_S.UNDONE,)).body
            self._journal.advance(action, _S.UNDONE, {**undone, "reason": str(error)}, seal=True)
            raise NotRedone(f"action {action}: {error}") from None
        except (InDoubt, InputError, HostError) as error:
            raise self._doubt(action, _S.IN_DOUBT, error) from None
        self._journal.advance(action, _S.REDONE, receipt, seal=True, kept_bytes=manager.kept_bytes(receipt))

    def _record(self, action: str, manager: Manager, started: Json, receipt: Json) -> None:
        """Record what was done if the approval covers it; else put it back and raise NotPermitted."""
        try:
            approval = self._actions.last_record(action, (_S.APPROVED,))
            self._permissions.require_within(action, approval, manager.observed(action, receipt))
            self._journal.advance(action, _S.EXECUTED, receipt, kept_bytes=manager.kept_bytes(receipt))
        except (InputError, OSError) as error:
            self._fail(action, manager, {**started, **receipt}, str(error))
            raise
        self._journal.seal()

    def _fail(self, action: str, manager: Manager, started: Json, reason: str) -> bool:
        """Put back what was begun and record it, or leave that to the next recovery; return whether it is back."""
        is_back = False
        with contextlib.suppress(OSError):
            is_back = manager.put_back(action, started)
            if is_back:
                self._journal.advance(action, _S.FAILED, {"reason": reason}, seal=True)
                self._actions.discard(action, manager)
            else:
                self._doubt(action, _S.IN_DOUBT, reason)
        return is_back

    def _doubt(self, action: str, state: ActionState, reason: object) -> InputError:
        """Record that the state of an action is unknown; return the error that says so."""
        if self._journal.standing(action).state not in IN_DOUBT:
            self._journal.advance(action, state, {"reason": str(reason)}, seal=True)
        return InputError(f"action {action}: {reason}")
