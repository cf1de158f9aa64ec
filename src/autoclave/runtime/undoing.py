"""Taking actions back and doing them again, one or several: those all or none, also when a process dies.

That several belong together is journalled before the first (`undoing_all`) and after the last (`undone_all`). When one
of them cannot be taken back, or nobody can tell, that is journalled (`putting_back_all`), and those before it are done
again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence

from autoclave.core import HostError, InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, NothingLeft, NotRedone, NotUndone
from autoclave.runtime.journal import Standing
from autoclave.runtime.records import Record
from autoclave.runtime.states import STANDING, ActionState

_S = ActionState


class Undoing:
    """Of actions of all kinds."""

    def __init__(self, actions: Actions) -> None:
        self._actions, self._journal = actions, actions.journal
        self._num_read, self._unfinished = 0, dict[str, Record]()
        self._begun: dict[str, Json] = {}
        self._block: Record | None = None
        self._own_block = ""

    @contextlib.contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Undo what was done in the block if that fails, or, at the next opening, if the process dies in it."""
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
        """Undo what was done since a block began; the actions. If that is not possible, it is recorded, and they stand.

        Raises:
            InputError: it is not possible.
        """
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
        """Take back actions in this order, all or none; their names. See `Session.undo`."""
        self._require_undoable(names, choices, on_conflict)
        if len(names) > 1:
            together = secrets.token_hex(4)
            body = {"actions": list(names), "choices": dict(choices), "on_conflict": on_conflict}
            self._journal.append("undoing_all", together, body)
            return self._undo_together(together, names, choices, on_conflict)
        for name in names:
            self._undo_one(name, choices, on_conflict)
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

    def _undo_one(self, action: str, choices: Mapping[str, Choice], on_conflict: Choice) -> None:
        manager = self._actions.manager_of_action(action)
        receipt = self._actions.receipt(action)
        try:
            undoing = manager.plan_undo(action, receipt, choices, on_conflict, self._actions.undone_with)
        except NothingLeft as error:
            raise NothingLeft(f"action {action}: {error}") from None
        self._journal.advance(action, _S.UNDOING, undoing)
        self.finish_undo(action, manager, undoing)

    def _undo_together(
        self, together: str, names: Sequence[str], choices: Mapping[str, Choice], on_conflict: Choice
    ) -> list[str]:
        """Take back those that still stand; if one cannot be, do again those that were taken back.

        Those of which nothing is left to take back, by choice, stand; the names of the others.
        """
        left: list[str] = []
        for name in names:
            state = self._journal.standing(name).state
            try:
                if state is _S.UNDO_IN_DOUBT:
                    raise InputError(f"action {name}: nobody can tell whether it was taken back")
                if state in STANDING:
                    self._undo_one(name, choices, on_conflict)
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
        """Do again those of an undo of several that were taken back; the names of those that cannot be."""
        left: list[str] = []
        for name in reversed(names):
            if self._journal.standing(name).state is _S.UNDONE:
                try:
                    self.redo(name, *self.plan_redo(name))
                except (InputError, HostError):
                    left.append(name)
        self._journal.append("undone_all", together, {"left": left})
        return left

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
            self._journal.advance(action, _S.UNDO_IN_DOUBT, {"reason": str(error)}, seal=True)
            return True
        self._journal.advance(action, _S.UNDOING, {**undoing, "lapsed": reason})
        with contextlib.suppress(InputError):  # it is recorded how it stands
            self.finish_undo(action, manager, undoing)
        return True

    def finish_undo(self, action: str, manager: Manager, undoing: Json, *, is_late: bool = False) -> None:
        """Take an action back as it is recorded with `undoing`, or go on with that (`is_late`).

        Raises:
            InputError: it stands, or nobody can tell; that is recorded.
        """
        try:
            undone = manager.undo(action, undoing, is_late=is_late)
        except NotUndone as error:
            self._journal.advance(action, _S.UNDO_FAILED, {"reason": str(error)}, seal=True)
            raise NotUndone(f"action {action}: {error}") from None
        except (InDoubt, InputError, HostError) as error:
            self._journal.advance(action, _S.UNDO_IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: {error}") from None
        self._journal.advance(action, _S.UNDONE, undone, seal=True)

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

    def redo(self, action: str, manager: Manager, redoing: Json) -> Standing:
        """Do again what was undone, as `plan_redo` says.

        Raises:
            InputError: as `finish_redo`.
        """
        self._journal.advance(action, _S.REDOING, redoing)
        return self.finish_redo(action, manager, redoing)

    def finish_redo(self, action: str, manager: Manager, redoing: Json, *, is_late: bool = False) -> Standing:
        """Do an action again as it is recorded with `redoing`, or go on with that (`is_late`).

        Raises:
            NotRedone: nothing was done; that is recorded.
            InputError: nobody can tell how far it came; that is recorded.
        """
        try:
            receipt = manager.redo(action, self._actions.receipt(action), redoing, is_late=is_late)
        except NotRedone as error:
            undone = self._actions.last_record(action, (_S.UNDONE,)).body
            self._journal.advance(action, _S.UNDONE, {**undone, "reason": str(error)}, seal=True)
            raise NotRedone(f"action {action}: {error}") from None
        except (InDoubt, InputError, HostError) as error:
            self._journal.advance(action, _S.IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: {error}") from None
        self._journal.advance(action, _S.REDONE, receipt, seal=True, kept_bytes=manager.kept_bytes(receipt))
        return self._journal.standing(action)

    def recover(self) -> Iterator[str]:
        """Bring undos of several actions to their end, or all of them back; undo blocks in which a process died."""
        kinds = ("undoing_all", "putting_back_all", "undone_all", "atomic", "atomic_over")
        for record in self._journal.records_of_kinds(*kinds, after=self._num_read):
            self._num_read = record.number
            if record.kind in ("atomic", "atomic_over"):
                self._block = record if record.kind == "atomic" else None
                continue
            if record.kind == "undoing_all":
                self._begun[record.subject] = record.body
            self._unfinished[record.subject] = record
            if record.kind == "undone_all":
                self._unfinished.pop(record.subject)
                self._begun.pop(record.subject, None)
        for together, record in list(self._unfinished.items()):
            body = self._begun[together]
            names = list(body["actions"])
            if record.kind == "putting_back_all":
                self._redo_together(together, names)
            else:
                choices = {name: Choice(choice) for name, choice in body["choices"].items()}
                with contextlib.suppress(InputError):  # it is recorded how they stand
                    self._undo_together(together, names, choices, Choice(body["on_conflict"]))
            yield from names
        if self._block and self._block.subject != self._own_block:
            block, self._block = self._block, None
            with contextlib.suppress(InputError):  # it is recorded how they stand
                yield from self._undo_block(block)
