"""Observation of a folder in which the tools of another program work: each tool use becomes an action with exact undo.

Theory of operation. Before a tool use the pre-images of the folder are brought up to date (`shadow.py`); after it,
whatever differs is what the tool did, and is journalled as one action that was executed (`recording.py`). Observing
permits nothing and forbids nothing. Undo, redo and commit are those of any file action.

Attribution. A difference found while tool uses are open is theirs; while none is open, it is the user's, and only
refreshes the pre-images. What journalled actions did meanwhile is not recorded again: it is recognised by the digests
that they left. Where a tool changed that too, there is no pre-image of what it found: that part is left out, with the
guarantee none. A use ends with its hook, with its session, or when it is an hour old and another one begins.

Crashes. Open uses are noted before a tool begins. When this process dies, what the tool did differs from the
pre-images all the same, and the next look records it. An action is noted with what it moves before it is journalled; if
it is not in the journal as executed afterwards, its pre-images are moved back, and it is recorded again.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoclave.act.recording import NotKept, Recording, build, move_back, receipt_of, recording_of
from autoclave.act.shadow import Change, Look, Shadow
from autoclave.act.watch import Happened, Watch
from autoclave.core import HostError, InputError, UsageError
from autoclave.core.closing import Closing
from autoclave.core.files import alone_with
from autoclave.runtime.files.capture import remove_tree
from autoclave.runtime.files.scope import Entry, Scope
from autoclave.runtime.files.tree_digest import tree_digest
from autoclave.runtime.footprints import with_those_above
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import alone_on, default_state
from autoclave.runtime.states import ActionState

_S = ActionState
_WAIT_S = 10.0
_MOST_ABOUT = 500
_MOST_USE_S = 3600.0
_LEAVING = (_S.EXECUTED, _S.UNDONE, _S.REDONE)
"""Records of actions that tell in what state they left the tree."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One use of a tool. `about` tells its input in a line; `session` is that of the program that uses it."""

    id: str
    tool: str
    about: str = ""
    session: str = ""


class Observer(Closing):
    """Observes the folder `root`. One at a time on a state folder; sessions may work beside it.

    Raises InputError: the folder cannot be used, or another process observes it. HostError: the folders are not on the
    same file system.
    """

    def __init__(self, root: Path, state: Path | None = None, *, name: str = "main") -> None:
        self._root, self._state, self._name = root, state or default_state(root), name
        with contextlib.ExitStack() as opening:
            self._scope = opening.enter_context(Scope(root))
            with self._alone() as place:
                self._stash, folder = place / "stash", observer_folder(place)
                folder.mkdir(exist_ok=True, mode=0o700)
                self._stash.mkdir(exist_ok=True)
                complaint = f"state {place}: another process observes this folder"
                opening.enter_context(alone_with(folder / "observer", complaint))
                self._journal = opening.enter_context(
                    Journal(place / "journal.sqlite", place / "checkpoints" / "signed")
                )
                self._shadow = opening.enter_context(Shadow(self._scope, folder))
                self._watch = opening.enter_context(Watch(self._scope.descriptor))
                self._due: tuple[Look, list[Change], int] | None = None
                self._rest: Mapping[str, Any] | None = None
                self._ending = ""
                self._told: list[str] = []
                self._recover()
            self._opened = opening.pop_all()

    def close(self) -> None:
        with contextlib.suppress(HostError, InputError):
            self.catch_up()
        self._opened.close()

    def start(self) -> list[str]:
        """Bring the pre-images up to date; return warnings for the user."""
        self._settled()
        return self._warnings()

    def before(self, use: ToolUse) -> list[str]:
        """Note that a tool is about to be used, when the pre-images are up to date; return warnings for the user.

        Raises HostError where they cannot be kept: then the use is not covered.
        """
        uses, now = self._settled(), time.time()
        kept = {each: other for each, other in uses.items() if other.get("began", now) > now - _MOST_USE_S}
        self._shadow.keep_note("uses", {**kept, use.id: {**asdict(use), "began": now}})
        return self._warnings()

    def forget(self, use: ToolUse) -> None:
        """End a tool use of which `before` came too late; `after` warns of it."""
        self._shadow.keep_note("uses", {each: other for each, other in self._uses().items() if each != use.id})

    def after(self, use: ToolUse) -> tuple[str, list[str]]:
        """Journal what a tool did; return the action ("" if nothing changed), and warnings for the user.

        Where it is known in which folders files have changed, it looks only there. `catch_up` looks at the rest, and
        brings the pre-images up to date; the next call makes it if nobody else does. Raises
        InputError or HostError where it could not be journalled: the next look tries again.
        """
        self.catch_up()
        if self._shadow.top is None:
            self._refresh(*self._look())
            raise HostError(f"{self._root}: the first copy of the folder was not complete, so this is not covered")
        open_uses = self._uses()
        if use.id not in open_uses:
            self._told.append(f"not all covered: no begin of this use of {use.tool!r} is known")
        uses = {**open_uses, use.id: asdict(use)}
        with self._alone():
            found = self._look_where_changed() if len(uses) == 1 else None
            look, changes = found or self._look()
            ends = [] if found else [use.id]  # it stays open until everything was looked at
            action = self._record(look, changes, uses, ends=ends, is_finished=use.id in open_uses)
            self._rest, self._ending = uses if found else None, use.id
        return action, self._warnings()

    def end(self, session: str) -> list[str]:
        """End the tool uses of a session of which no end was seen; return warnings."""
        if ended := [each for each, use in self._uses().items() if use["session"] == session]:
            uses = self._settled()
            self._shadow.keep_note("uses", {each: use for each, use in uses.items() if each not in ended})
        return self._warnings()

    def catch_up(self) -> None:
        """Bring the pre-images up to date after a tool use, and record what inotify did not report of it.

        Raises InputError or HostError where that fails: the next call tries again.
        """
        self._require_current()
        self._take_over()
        if self._rest:
            with self._alone():
                later = self._watch.begin_look() or Happened()  # by others, since the tool use has ended
                look = self._shadow.look()
                changes = self._shadow.changes(look)
                theirs = {each.new.inode for each in changes if each.new and later.covers(each.path)}
                missed = [
                    each
                    for each in changes
                    if not later.covers(each.path) and not (each.new and each.new.inode in theirs)
                ]
                if missed:
                    self._record(look, changes, self._rest, ends=[self._ending], is_finished=True, own=missed)
                elif changes or self._shadow.top != look.top:
                    self._due = look, changes, self._last_record()
            self._take_over()
            self._shadow.keep_note("uses", {each: use for each, use in self._uses().items() if each != self._ending})
            self._rest = None

    def _take_over(self) -> None:
        """Refresh what was recorded."""
        if self._due:
            look, changes, seen = self._due
            self._refresh(look, changes)
            self._shadow.keep_note("seen", seen)
            self._due = None
            self._close_recording()

    def _settled(self) -> dict[str, Any]:
        """Record or refresh what has changed since the last look; return the open uses."""
        self.catch_up()
        last = self._last_record()  # what is journalled from now on may not be in the look
        uses, is_first = self._uses(), self._shadow.top is None
        if self._watch.is_quiet and not self._shadow.has_names_outside:
            self._shadow.keep_note("seen", last)
            return uses
        look, changes = self._look()
        if uses and changes and not is_first:
            with self._alone():
                look, changes = self._look()
                self._record(look, changes, uses, ends=[], is_finished=False)
            self.catch_up()
            return uses
        if changes or is_first or self._shadow.top != look.top:
            self._refresh(look, changes)
        elif not self._watch.is_complete:
            self._watch.cover(self._shadow.folders())
        self._shadow.keep_note("seen", last)
        return uses

    @property
    def is_current(self) -> bool:
        """Return whether the folder is still at its path."""
        try:
            return os.path.samestat(os.stat(self._scope.root), os.fstat(self._scope.descriptor))
        except OSError:
            return False

    def _require_current(self) -> None:
        if not self.is_current:
            raise HostError(f"{self._root}: is not the folder any more that was observed; observe it again")

    def _look(self) -> tuple[Look, list[Change]]:
        self._watch.begin_look()
        look = self._shadow.look()
        return look, self._shadow.changes(look)

    def _look_where_changed(self) -> tuple[Look, list[Change]] | None:
        """Look at the folders in which inotify has reported changes.

        None where they are unknown, and where files may have names in other folders.
        """
        happened = self._watch.begin_look()
        look = self._shadow.look_at(happened.folders) if happened and not happened.trees else None
        if look is None:
            return None
        changes = self._shadow.changes(look)
        facts = [each for change in changes for each in (change.new, change.old and change.old.facts) if each]
        return None if any(each.num_links > 1 and not each.is_folder for each in facts) else (look, changes)

    def _refresh(self, look: Look, changes: Sequence[Change]) -> None:
        self._told += self._shadow.refresh(look, changes)
        self._watch.cover(self._shadow.folders())

    def _uses(self) -> dict[str, Any]:
        return self._shadow.note("uses") or {}

    def _warnings(self) -> list[str]:
        told, self._told = self._told, []
        return told

    def _unexplained(self, changes: Sequence[Change]) -> tuple[list[Change], set[str], list[str]]:
        """Return the changes that no action in the journal accounts for since the last look.

        Also the paths of those actions, and what may be theirs or a tool's, in words.
        """
        left, added = dict[str, str](), set[str]()
        for record in self._journal.records_of_kinds(*_LEAVING, after=self._shadow.note("seen") or 0):
            if "steps" in record.body:  # of files
                found = record.body["undone" if record.kind == _S.UNDONE else "after"]
                left = {each: left[each] for each in left if found.keys().isdisjoint(with_those_above(each))} | found
                added |= {path for path in found if record.body.get("before", {}).get(path) == ""}
        mixed = [path for path, digest in left.items() if not self._is_as_left(path, digest, added - {path})]
        around = {above for path in left for above in with_those_above(path.rpartition("/")[0])}
        told = [f"not covered: {path!r}, which another action has changed too" for path in mixed]
        mine = list[Change]()
        for each in changes:
            if not left.keys().isdisjoint(with_those_above(each.path)):
                continue
            is_made = each.new and each.new.is_folder and not (each.old and each.old.facts.is_folder)
            if is_made and each.path in around:
                told.append(f"not covered: the new folder {each.path!r}, in which another action has changed something")
            else:
                mine.append(each)
        return mine, set(left), told

    def _is_as_left(self, path: str, digest: str, added: set[str]) -> bool:
        """Return whether a path is as an action left it, apart from what later ones have added below it."""
        try:
            return any(
                tree_digest(path, each, digest) == digest for each in (self._scope, _Without(self._scope, added))
            )
        except InputError:  # behind a link or a file now
            return not digest

    def _last_record(self) -> int:
        found = self._journal.records_of_kinds(*_LEAVING, after=self._shadow.note("seen") or 0)
        return found[-1].number if found else self._shadow.note("seen") or 0

    def _alone(self) -> contextlib.AbstractContextManager[Path]:
        """Yield the state folder, and keep sessions from changing the tree. Raises InputError if one does not end."""
        return alone_on(self._root, self._state, wait_s=_WAIT_S)

    def _record(
        self,
        look: Look,
        changes: list[Change],
        uses: Mapping[str, Any],
        *,
        ends: list[str],
        is_finished: bool,
        own: list[Change] | None = None,
        unkept: frozenset[str] = frozenset(),
    ) -> str:
        """Journal changes as one action of these tool uses, and leave the refresh to `catch_up`; return the action.

        `own`: those of the changes that are theirs; None: all. `unkept`: paths whose pre-images could not be kept.
        """
        mine, others, told = self._unexplained(changes if own is None else own)
        recording = recording_of(mine, look.top, self._shadow, others=others, unkept=unkept)
        recording.left_out += told
        action = secrets.token_hex(4) if recording.steps else ""
        self._shadow.keep_note("pending", {"action": action, "moves": recording.moves, "ends": ends})
        try:
            if action:
                self._journal_as(action, recording, _operation(uses, is_finished=is_finished))
        except NotKept as error:
            self._recover()
            more = unkept | {error.path}
            return self._record(look, changes, uses, ends=ends, is_finished=is_finished, own=own, unkept=more)
        except (InputError, OSError) as error:
            self._recover()
            if isinstance(error, InputError | HostError):
                raise
            raise HostError(f"{error.filename or self._stash}: {error.strerror}; it was not journalled") from None
        self._told += recording.left_out
        self._due = look, changes, self._last_record()
        return action

    def _journal_as(self, action: str, recording: Recording, operation: Mapping[str, Any]) -> None:
        folder = self._stash / action
        told = {"session": self._name, "by": "observer", "operation": operation, "plan": "", "weight": 0}
        self._journal.advance(action, _S.PROPOSED, {**told, "guarantee": recording.guarantee}, kept_bytes=0)
        build(recording, self._shadow, folder)
        receipt = receipt_of(recording, self._scope, folder)
        self._journal.advance(action, _S.EXECUTED, receipt, kept_bytes=receipt["kept_bytes"])
        self._journal.seal()

    def _close_recording(self) -> None:
        pending = self._shadow.note("pending")
        if pending:
            uses = {each: use for each, use in self._uses().items() if each not in pending["ends"]}
            self._shadow.keep_note("uses", uses)
            self._shadow.keep_note("pending", None)

    def _recover(self) -> None:
        """Settle an action that was being journalled when this or an earlier process failed."""
        pending = self._shadow.note("pending")
        if not pending:
            return
        action = pending["action"]
        try:
            state = self._journal.standing(action).state if action else _S.EXECUTED
        except UsageError:  # not in the journal yet
            state = None
        if state not in (None, _S.PROPOSED):
            self._close_recording()
            return
        if (self._stash / action).exists():
            move_back(pending["moves"], self._stash / action, self._shadow.copies)
        if state is not None:
            reason = "the observer was interrupted; what it saw is recorded again"
            self._journal.advance(action, _S.FAILED, {"reason": reason}, seal=True)
            self._journal.forget(action)
        remove_tree(self._stash / action)
        self._shadow.keep_note("pending", None)


class _Without(Scope):
    """A scope without some paths and what is below them."""

    def __init__(self, scope: Scope, paths: set[str]) -> None:
        self.root, self.descriptor, self.mount, self._paths = scope.root, scope.descriptor, scope.mount, paths

    def walk(self, path: str) -> Iterator[tuple[str, Entry]]:
        found = super().walk(path)
        return (each for each in found if self._paths.isdisjoint(with_those_above(each[0])))


def observer_folder(state: Path) -> Path:
    return state / "observer"


def _operation(uses: Mapping[str, Any], *, is_finished: bool) -> dict[str, Any]:
    """Return the operation of what these tool uses did together."""
    told = list(uses.values())
    return {
        "do": "observed",
        "tool": ", ".join(dict.fromkeys(each["tool"] for each in told)),
        "about": "; ".join(dict.fromkeys(each["about"] for each in told if each["about"]))[:_MOST_ABOUT],
        "session": ", ".join(dict.fromkeys(each["session"] for each in told if each["session"])),
        "is_finished": is_finished and len(told) == 1,
    }
