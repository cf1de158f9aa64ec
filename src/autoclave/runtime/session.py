"""File actions on one folder: proposed, run, taken back, done again, committed; in the journal before they happen.

Theory of operation. One process at a time has the folder's state (a lock). What an action will change is journalled
with `executing` before the first change, and what it has become with `executed` after the last. Every change is one
rename, whose outcome can be seen afterwards. So when a process dies, the next one that opens the state finds each
unfinished action and brings it to one side: an action that was being executed is put back and has `failed`, an undo or
a redo is brought to its end. Where the tree is neither as before nor as after, because somebody else changed it
meanwhile, the action is in doubt: what is not its own is left alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.closing import Closing
from autoclave.core.files import alone_with, sync_directory
from autoclave.runtime.filesystem import (
    FileOperation,
    New,
    Plan,
    fingerprint,
    footprint,
    meet,
    operation_from,
    plan_of,
)
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.records import Finding
from autoclave.runtime.scope import Entry, NothingThere, Scope
from autoclave.runtime.states import STANDING, UNFINISHED, ActionState, require_step
from autoclave.runtime.steps import Step, has_happened, is_possible, take_step

_S = ActionState


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action that was planned: its name, what it would do, and the digest of the plan that `run` wants back."""

    action: str
    operation: FileOperation
    plan: Plan


class Session(Closing):
    """Actions on the folder `root`. Their journal and what they took out of the tree are in the folder `state`.

    Not for several threads.

    Raises:
        InputError: a folder cannot be used, or another process works on it.
        HostError: they are not on one file system.
    """

    def __init__(self, root: Path, state: Path) -> None:
        self._opened = contextlib.ExitStack()
        with contextlib.ExitStack() as opening:
            self.scope = opening.enter_context(Scope(root))
            state = _folder_outside(state, self.scope)
            complaint = f"state {state}: another process works on {self.scope.root}; wait for it, or end it"
            opening.enter_context(alone_with(state / "session", complaint))
            self._stash = state / "stash"
            self._stash.mkdir(exist_ok=True)
            self.journal = opening.enter_context(Journal(state / "journal.sqlite", state / "checkpoints" / "signed"))
            self._opened = opening.pop_all()
        try:
            self.recovered = list(self._recover())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._opened.close()

    # --- What can be done -------------------------------------------------------------------------------------------

    def propose(self, given: Mapping[str, Any], *, by: str = "caller") -> Proposal:
        """Plan an operation, and record it. Nothing changes.

        Raises:
            InputError: it is no operation, or cannot be done to the tree as it is.
        """
        operation = operation_from(given, "operation")
        plan = plan_of(operation, self.scope)
        action = secrets.token_hex(4)
        body = {"by": by, "operation": operation.model_dump(mode="json"), "plan": plan.digest}
        self.journal.advance(action, _S.PROPOSED, body)
        return Proposal(action, operation, plan)

    def run(self, action: str, plan_digest: str, *, approved_by: str = "caller") -> Standing:
        """Do what was planned, exactly that.

        Raises:
            InputError: it was run or refused before; the tree has changed so that it would be something else; or it
                cannot be done.
        """
        standing = self.journal.standing(action)
        if standing.state is not _S.PROPOSED:
            require_step(action, standing.state, _S.EXECUTING)  # before anything in its stash is touched
        operation = operation_from(standing.proposed["operation"], f"action {action}")
        if plan_digest != standing.proposed["plan"]:
            raise InputError(f"action {action}: was planned with digest {standing.proposed['plan']}, not {plan_digest}")
        plan = plan_of(operation, self.scope)
        if plan.digest != plan_digest:
            raise InputError(f"action {action}: the tree has changed since it was planned; propose it again")
        if standing.state is _S.PROPOSED:
            self.journal.advance(action, _S.APPROVED, {"by": approved_by})
        steps = self._prepared(action, plan)
        times = self._parents_of(steps)
        started = {"steps": [step.to_json() for step in steps], "before": plan.before, "parents": times}
        self.journal.advance(action, _S.EXECUTING, started)
        try:
            self._take(action, steps)
            after = {path: fingerprint(path, self.scope) for path in plan.before}
        except (InputError, OSError) as error:
            self._put_back(action, steps, times)
            self.journal.advance(action, _S.FAILED, {"reason": str(error)}, seal=True)
            raise
        receipt = {**started, "after": after, "parents_after": self._parents_of(steps), "guarantee": "exact"}
        self.journal.advance(action, _S.EXECUTED, receipt, seal=True)
        return self.journal.standing(action)

    def undo(self, action: str, *, dependents: bool = False) -> list[str]:
        """Take an action back, and with `dependents` those after it that touch the same; the names in that order.

        Raises:
            InputError: it does not stand, later actions depend on it, or somebody else has changed what it left.
        """
        names = [*self.dependents_of(action), action]
        if len(names) > 1 and not dependents:
            raise InputError(
                f"action {action}: {', '.join(names[:-1])} came later and touched the same; undo them as well "
                "(--dependents), or first"
            )
        receipts = {name: self._receipt(name) for name in names}
        self._require_untouched(names, receipts)
        for name in names:
            self._undo(name, receipts[name])
        return names

    def redo(self, action: str) -> Standing:
        """Do again what was undone.

        Raises:
            InputError: it was not undone, or somebody has changed what was there before.
        """
        if self.journal.standing(action).state is not _S.UNDONE:
            raise InputError(
                f"action {action}: is {self.journal.standing(action).state}; what was undone can be redone"
            )
        receipt = self._receipt(action)
        if changed := self._changed(receipt["before"]):
            raise InputError(f"action {action}: {', '.join(changed)} changed since it was undone; nothing was done")
        self.journal.advance(action, _S.REDOING, receipt)
        return self._finish_redo(action, receipt)

    def commit(self, action: str) -> Standing:
        """Keep what an action did for good. What it took out of the tree is removed.

        Raises:
            InputError: it does not stand.
        """
        self.journal.advance(action, _S.COMMITTED, seal=True)
        shutil.rmtree(self._stash / action, ignore_errors=True)
        return self.journal.standing(action)

    def mark(self, name: str) -> None:
        """Give this moment a name, to which `undo_to` goes back."""
        self.journal.append("mark", name, {})

    def undo_to(self, name: str) -> list[str]:
        """Take back all that was done since a mark and still stands; the names of the actions.

        Raises:
            InputError: there is no such mark, or somebody else has changed what one of them left.
        """
        marks = [record.number for record in self.journal.records(name) if record.kind == "mark"]
        if not marks:
            raise InputError(f"mark {name!r}: there is none")
        since = [each for each in self._standing_order() if self._executed_at(each) > marks[-1]]
        names = [each.action for each in reversed(since)]
        receipts = {name: self._receipt(name) for name in names}
        self._require_untouched(names, receipts)
        for each in names:
            self._undo(each, receipts[each])
        return names

    def dependents_of(self, action: str) -> list[str]:
        """Actions that stand, came later, and touched the same paths, directly or by others of them; the last first.

        Raises:
            InputError: the action does not stand.
        """
        order = self._standing_order()
        names = [each.action for each in order]
        if action not in names:
            raise InputError(f"action {action}: is {self.journal.standing(action).state}; what stands can be undone")
        touched = footprint(_steps_of(self._receipt(action)))
        found: list[str] = []
        for each in order[names.index(action) + 1 :]:
            own = footprint(_steps_of(self._receipt(each.action)))
            if meet(own, touched):
                touched |= own
                found.append(each.action)
        return found[::-1]

    def audit(self) -> list[Finding]:
        """What was done to the journal by others; see `Journal.audit`."""
        return self.journal.audit()

    # --- Steps ------------------------------------------------------------------------------------------------------

    def _prepared(self, action: str, plan: Plan) -> tuple[Step, ...]:
        """The steps with the inodes of what they move. What is new is made ready, durably."""
        folder = self._stash / action
        shutil.rmtree(folder, ignore_errors=True)  # of a try before that died
        folder.mkdir()
        for new in plan.new:
            _make(folder, new)
        sync_directory(folder)
        sync_directory(self._stash)
        return tuple(self._with_inodes(step, folder) for step in plan.steps)

    def _with_inodes(self, step: Step, folder: Path) -> Step:
        if step.do == "set_mode":
            return step
        if step.do == "put":
            return replace(step, inode=(folder / step.stash).lstat().st_ino)
        with self.scope.parent_of(step.path) as (parent, name):
            own = os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino
        if step.do == "exchange":
            return replace(step, inode=(folder / step.stash).lstat().st_ino, old_inode=own)
        return replace(step, inode=own)

    def _take(self, action: str, steps: Sequence[Step]) -> None:
        with self._stash_of(action) as stash:
            for step in steps:
                take_step(step, self.scope, stash)

    def _put_back(self, action: str, steps: Sequence[Step], times: Mapping[str, int]) -> None:
        """Take back the steps that have happened, last first."""
        with self._stash_of(action) as stash:
            for step in reversed(steps):
                if has_happened(step, self.scope, stash):
                    take_step(step.inverse(), self.scope, stash)
        self._set_times(times)

    def _go_on(self, action: str, steps: Sequence[Step]) -> None:
        """Take the steps that have not happened yet.

        Raises:
            InputError: somebody else has changed what one of them is about.
        """
        with self._stash_of(action) as stash:
            for step in steps:
                if has_happened(step, self.scope, stash):
                    continue
                if not is_possible(step, self.scope, stash):
                    raise InputError(f"path {step.path!r}: somebody else has changed it meanwhile")
                take_step(step, self.scope, stash)

    def _has_begun(self, action: str, steps: Sequence[Step]) -> bool:
        with self._stash_of(action) as stash:
            return any(has_happened(step, self.scope, stash) for step in steps)

    @contextlib.contextmanager
    def _stash_of(self, action: str) -> Iterator[int]:
        descriptor = os.open(self._stash / action, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _parents_of(self, steps: Sequence[Step]) -> dict[str, int]:
        """When the folders in which steps change names were changed last."""
        parents = {path.rpartition("/")[0] for step in steps for path in (step.path, step.to) if path}
        times: dict[str, int] = {}
        for parent in sorted(parents):
            with contextlib.suppress(NothingThere), self._folder(parent) as folder:  # else the action makes it
                times[parent] = os.stat(".", dir_fd=folder).st_mtime_ns
        return times

    def _set_times(self, times: Mapping[str, int]) -> None:
        for parent, mtime_ns in times.items():
            with contextlib.suppress(InputError), self._folder(parent) as folder:
                about = os.stat(".", dir_fd=folder)
                os.utime(".", ns=(about.st_atime_ns, mtime_ns), dir_fd=folder)

    @contextlib.contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        with self.scope.parent_of(f"{path}/any" if path else "any") as (descriptor, _):
            yield descriptor

    # --- Undo and redo ----------------------------------------------------------------------------------------------

    def _receipt(self, action: str) -> dict[str, Any]:
        """What was recorded when it was executed."""
        bodies = [record.body for record in self.journal.records(action) if "after" in record.body]
        if not bodies:
            raise InputError(f"action {action}: was never executed")
        return dict(bodies[-1])

    def _changed(self, expected: Mapping[str, str]) -> list[str]:
        return [path for path, was in expected.items() if fingerprint(path, self.scope) != was]

    def _require_same(self, expected: Mapping[str, str], complaint: str) -> None:
        if changed := self._changed(expected):
            raise InputError(f"path {', '.join(map(repr, changed))}: {complaint}")

    def _require_untouched(self, names: Sequence[str], receipts: Mapping[str, Mapping[str, Any]]) -> None:
        """Look whether everything is as the last of several actions left it.

        Raises:
            InputError: it is not; nothing was taken back.
        """
        seen: set[str] = set()
        for name in names:  # the last first: what an earlier one left was changed by a later one of them
            own = {
                path: was
                for path, was in receipts[name]["after"].items()
                if not meet(frozenset({path}), frozenset(seen))
            }
            if changed := self._changed(own):
                raise InputError(
                    f"action {name}: somebody else has changed {', '.join(changed)} since; nothing was taken back"
                )
            seen |= set(receipts[name]["after"])

    def _undo(self, action: str, receipt: Mapping[str, Any]) -> None:
        now = self._parents_of(_steps_of(receipt))  # where others changed something since, the time stays
        times = {
            path: was for path, was in receipt["parents"].items() if now.get(path) == receipt["parents_after"].get(path)
        }
        self.journal.advance(action, _S.UNDOING, {**receipt, "times": times})
        self._finish_undo(action, {**receipt, "times": times})

    def _finish_undo(self, action: str, receipt: Mapping[str, Any], *, is_late: bool = False) -> None:
        steps = [step.inverse() for step in reversed(_steps_of(receipt))]
        try:
            if is_late and not self._has_begun(action, steps):
                self._require_same(receipt["after"], "somebody else has changed it")
            self._go_on(action, steps)
            self._set_times(receipt["times"])
            self._require_same(receipt["before"], "was taken back, but is not as it was before")
        except InputError as error:
            self.journal.advance(action, _S.UNDO_IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: {error}") from None
        self.journal.advance(action, _S.UNDONE, seal=True)

    def _finish_redo(self, action: str, receipt: Mapping[str, Any], *, is_late: bool = False) -> Standing:
        steps = _steps_of(receipt)
        try:
            if is_late and not self._has_begun(action, steps):
                self._require_same(receipt["before"], "somebody else has changed it")
            self._go_on(action, steps)
            self._require_same(receipt["after"], "was done again, but is not as it was then")
        except InputError as error:
            self.journal.advance(action, _S.IN_DOUBT, {"reason": str(error)}, seal=True)
            raise InputError(f"action {action}: {error}") from None
        redone = {**receipt, "parents_after": self._parents_of(_steps_of(receipt))}
        self.journal.advance(action, _S.REDONE, redone, seal=True)
        return self.journal.standing(action)

    def _executed_at(self, standing: Standing) -> int:
        """The number of the record with which it came to stand."""
        kinds = (_S.EXECUTED.value, _S.REDONE.value)
        return max(record.number for record in self.journal.records(standing.action) if record.kind in kinds)

    def _standing_order(self) -> list[Standing]:
        """Actions that stand, in the order in which they were done."""
        return sorted((each for each in self.journal.standings() if each.state in STANDING), key=self._executed_at)

    # --- After a death ----------------------------------------------------------------------------------------------

    def _recover(self) -> Iterator[str]:
        """Bring what a process that died left unfinished to one side; the names."""
        for standing in self.journal.standings():
            if standing.state is _S.COMMITTED:
                shutil.rmtree(self._stash / standing.action, ignore_errors=True)
            if standing.state not in UNFINISHED:
                continue
            action, receipt = standing.action, standing.body
            if standing.state is _S.EXECUTING:
                self._put_back(action, _steps_of(receipt), receipt["parents"])
                is_back = not self._changed(receipt["before"])
                reason = {"reason": "the process died while it was executed; it was put back"}
                self.journal.advance(action, _S.FAILED if is_back else _S.IN_DOUBT, reason, seal=True)
            else:
                with contextlib.suppress(InputError):  # it is recorded as in doubt
                    if standing.state is _S.UNDOING:
                        self._finish_undo(action, receipt, is_late=True)
                    else:
                        self._finish_redo(action, receipt, is_late=True)
            yield action


def _steps_of(receipt: Mapping[str, Any]) -> tuple[Step, ...]:
    return tuple(Step(**step) for step in receipt["steps"])


def _folder_outside(state: Path, scope: Scope) -> Path:
    """The folder for the state, which no action can reach.

    Raises:
        InputError: it cannot be made, or is inside of the scope.
        HostError: it is on another file system.
    """
    state = state.resolve()
    if state.is_relative_to(scope.root):
        raise InputError(f"state {state}: must be outside of {scope.root}, or actions could change it")
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"state {state}: cannot be made ({error.strerror})") from None
    if state.stat().st_dev != scope.device:
        raise HostError(
            f"state {state}: is on another file system than {scope.root}, so nothing could be moved there at once. "
            "Mend: give a folder on the same one (--state)"
        )
    return state


def _make(folder: Path, new: New) -> None:
    """Make something ready in a folder of the stash, durably."""
    path, entry = folder / new.stash, new.entry
    if entry.kind == "link":
        path.symlink_to(entry.target)
        return
    if entry.kind == "folder":
        path.mkdir()
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    else:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _fill(descriptor, entry, new.content)
    finally:
        os.close(descriptor)


def _fill(descriptor: int, entry: Entry, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    if os.geteuid() == 0:
        os.fchown(descriptor, entry.uid, entry.gid)
    for name, value in entry.attributes:
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, entry.mode)
    os.fsync(descriptor)
