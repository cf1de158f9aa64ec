"""Settling what another process, or a resource that was lost, has left unfinished or in doubt."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.execution import Execution
from autoclave.runtime.interface import Manager, NotRedone, NotUndone
from autoclave.runtime.states import IN_DOUBT, UNFINISHED, ActionState
from autoclave.runtime.undoing import Undoing

_S = ActionState
_CHECKING_S = 5.0
"""After so many seconds no further action in doubt is checked."""
_PAUSE_S = 1.0
"""An action that stays in doubt is checked again after so many seconds, and ten times what the check took."""


class Recovery:
    """Settles actions of all kinds by `execution` and `undoing`."""

    def __init__(self, actions: Actions, execution: Execution, undoing: Undoing) -> None:
        self._actions, self._journal = actions, actions.journal
        self._execution, self._undoing = execution, undoing
        self._next_check = dict[str, float]()

    def recover(self) -> Iterator[str]:
        """Settle what is unfinished, and what is in doubt where the resource answers; the ids of the actions."""
        for standing in self._journal.standings(UNFINISHED):
            try:
                self._execution.settle(standing.action)
            except (AutoclaveError, OSError) as error:  # recorded, or checked again with the next command
                if not isinstance(error, InputError | HostError):
                    raise
            except Exception as error:  # noqa: BLE001 - no session could be opened any more
                # its words may hold what no journal is to hold
                doubt = _S.UNDO_IN_DOUBT if standing.state is _S.UNDOING else _S.IN_DOUBT
                told = {"reason": f"{type(error).__name__}, which nobody foresaw"}
                self._journal.advance(standing.action, doubt, told, seal=True)
            yield standing.action
        yield from self._settle_doubts()
        for standing in self._journal.standings((_S.COMMITTED,), kept_only=True):
            self._actions.discard(standing.action, self._actions.manager_of(standing))
        yield from self._undoing.recover()
        for action in self._journal.left_open():
            if self._execution.is_lapsed(action):
                yield action

    def require_settled(self, manager: Manager) -> None:
        """Raise HostError if something of a manager is unfinished, since its resource does not answer."""
        for standing in self._journal.standings(UNFINISHED):
            if self._actions.manager_of(standing) is manager:
                raise HostError(
                    f"action {standing.action}: is {standing.state}, and its resource does not answer, so nothing else "
                    "is done there. Fix: try again when it answers"
                )

    def check_again(self, action: str) -> None:
        """Find out how an action in doubt stands, and record it. Raises InputError if it still is, or was not."""
        standing = self._journal.standing(action)
        if standing.state not in IN_DOUBT:
            raise InputError(f"action {action}: is {standing.state}; only an action in doubt is checked again")
        try:
            self._execution.settle(action)
        except (NotUndone, NotRedone):
            return  # it is recorded how it stands
        except InputError as error:
            if self._journal.standing(action).state not in IN_DOUBT:
                raise
            told = str(error).removeprefix(f"action {action}: ")
            raise InputError(f"action {action}: is still in doubt: {told}") from None

    def _settle_doubts(self) -> Iterator[str]:
        """Check actions in doubt again whose resource answers; the ids of those that are settled.

        A resource that is away, or that cannot tell, is left alone for a while.
        """
        began = time.monotonic()
        for standing in self._journal.standings(IN_DOUBT):
            action, check_began = standing.action, time.monotonic()
            if check_began < self._next_check.get(action, 0.0):
                continue
            if check_began > began + _CHECKING_S:
                return
            with contextlib.suppress(Exception):  # it is still in doubt; and no session could be opened any more
                begun = self._actions.last_record(action, (_S.EXECUTING, _S.UNDOING, _S.REDOING)).body
                if self._actions.manager_of(standing).answers(action, begun):
                    self.check_again(action)
                    yield action
                    continue
            now = time.monotonic()
            self._next_check[action] = now + _PAUSE_S + 10 * (now - check_began)
