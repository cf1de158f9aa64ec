"""Undoing several actions, all or none, even when a process dies; and atomic blocks of actions.

A group is journalled before its first undo (`undoing_all`) and after its last (`undone_all`). When an undo fails or is
in doubt, that is journalled (`putting_back_all`), and the actions already undone are redone.
"""

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence

from autoclave.core import HostError, InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.execution import Execution
from autoclave.runtime.interface import Choice, NothingLeft, NotUndone
from autoclave.runtime.records import Record
from autoclave.runtime.states import STANDING, ActionState

_S = ActionState


class Undoing:
    """Undoes actions of all kinds, each by `execution`."""

    def __init__(self, actions: Actions, execution: Execution) -> None:
        self._actions, self._journal, self._execution = actions, actions.journal, execution
        self._num_read, self._unfinished = 0, dict[str, list[Record]]()
        self._block: Record | None = None
        self._own_block = ""

    @contextlib.contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Undo what was done in the block if it fails, or, on recovery, if the process died in it."""
        self._own_block = secrets.token_hex(4)
        block = self._journal.append("atomic", self._own_block, {})
        try:
            yield
        except BaseException:
            self._undo_block(block)
            raise
        finally:
            self._own_block = ""
        self._journal.append("atomic_over", block.subject, {})

    def _undo_block(self, block: Record) -> list[str]:
        """Undo what was done since a block began; return the actions. Failure is recorded."""
        names = [each.action for each in self._actions.standing_order() if each.number > block.number][::-1]
        reason = ""
        try:
            if names:
                self.undo(names, {}, Choice.REFUSE)
        except (InputError, HostError) as error:
            reason = str(error)
        self._journal.append("atomic_over", block.subject, {"undone": names, **({"reason": reason} if reason else {})})
        if reason:
            raise InputError(f"what was done before it stands: {reason}")
        return names

    def undo(self, names: Sequence[str], choices: Mapping[str, Choice], on_conflict: Choice) -> list[str]:
        """Undo actions in this order, all or none; return their ids. See `Session.undo`."""
        self._require_undoable(names, choices, on_conflict)
        if len(names) > 1:
            together = secrets.token_hex(4)
            body = {"actions": list(names), "choices": dict(choices), "on_conflict": on_conflict}
            self._journal.append("undoing_all", together, body)
            return self._undo_together(together, names, choices, on_conflict)
        for name in names:
            self._execution.undo(name, choices, on_conflict)
        return list(names)

    def _require_undoable(self, names: Sequence[str], choices: Mapping[str, Choice], on_conflict: Choice) -> None:
        receipts = {name: self._actions.receipt(name) for name in names}
        managers = {name: self._actions.manager_of_action(name) for name in names}
        for name in names:
            if obstacle := managers[name].obstacle(name, receipts[name]):
                raise InputError(f"action {name}: {obstacle}; nothing was taken back")
        for manager in {id(each): each for each in managers.values()}.values():
            own = [(name, receipts[name]) for name in names if managers[name] is manager]
            for name, changed in manager.conflicts(own).items():
                if refused := [each for each in changed if choices.get(each, on_conflict) is Choice.REFUSE]:
                    raise InputError(
                        f"action {name}: somebody else has changed {', '.join(refused)} since; nothing was taken back. "
                        "Fix: say what becomes of it (skip, force, save_aside)"
                    )

    def _undo_together(
        self, together: str, names: Sequence[str], choices: Mapping[str, Choice], on_conflict: Choice
    ) -> list[str]:
        """Undo those that still stand; if one cannot be undone, redo those that were.

        Return the ids of the undone; actions of which the choices keep everything stand.
        """
        left: list[str] = []
        for name in names:
            state = self._journal.standing(name).state
            try:
                if state is _S.UNDO_IN_DOUBT:
                    raise InputError(f"action {name}: it is unknown whether it was taken back")
                if state in STANDING:
                    self._execution.undo(name, choices, on_conflict)
            except NothingLeft:
                left.append(name)
            except (InputError, HostError) as error:
                self._journal.append("putting_back_all", together, {"reason": str(error)})
                left = self._redo_together(together, names)
                is_sure = self._journal.standing(name).state is not _S.UNDO_IN_DOUBT
                told = "so nothing was taken back" if is_sure else "the others stand as they did"
                told = f"could not be done again: {', '.join(left)}" if left else told
                raise InputError(f"{error}; {told}") from None
        self._journal.append("undone_all", together, {"left": left} if left else {})
        if left == list(names):
            raise NotUndone(f"actions {', '.join(left)}: others have changed all of it, so nothing was taken back")
        return [name for name in names if name not in left]

    def _redo_together(self, together: str, names: Sequence[str]) -> list[str]:
        """Redo those actions of a group that were undone; return the ids of those that cannot be."""
        left: list[str] = []
        for name in reversed(names):
            if self._journal.standing(name).state is _S.UNDONE:
                try:
                    self._execution.redo(name, *self._execution.plan_redo(name))
                except (InputError, HostError):
                    left.append(name)
        self._journal.append("undone_all", together, {"left": left})
        return left

    def recover(self) -> Iterator[str]:
        """Complete or roll back interrupted undos of groups; undo blocks in which a process died."""
        kinds = ("undoing_all", "putting_back_all", "undone_all", "atomic", "atomic_over")
        for record in self._journal.records_of_kinds(*kinds, after=self._num_read):
            self._num_read = record.number
            if record.kind in ("atomic", "atomic_over"):
                self._block = record if record.kind == "atomic" else None
            elif record.kind == "undone_all":
                self._unfinished.pop(record.subject)
            else:
                self._unfinished.setdefault(record.subject, []).append(record)
        for together, (begun, *later) in list(self._unfinished.items()):
            names = list(begun.body["actions"])
            if later:
                self._redo_together(together, names)
            else:
                choices = {name: Choice(choice) for name, choice in begun.body["choices"].items()}
                with contextlib.suppress(InputError):  # their states are recorded
                    self._undo_together(together, names, choices, Choice(begun.body["on_conflict"]))
            yield from names
        if self._block and self._block.subject != self._own_block:
            block, self._block = self._block, None
            with contextlib.suppress(InputError):  # their states are recorded
                yield from self._undo_block(block)
