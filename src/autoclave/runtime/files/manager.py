"""Actions on the files of one folder: planned as steps, prepared in a stash on the same file system, taken and undone.

Theory of operation. Each action has a folder of its own in the stash. What it brings into the tree is made ready there
(or, for a command, was written there by the command itself, in an overlay over the tree), and what it takes out goes
there. Every step is one rename between tree and stash, whose outcome can be seen afterwards by inodes. So whatever a
process that died left in the middle can be brought to either side.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import HostError, InputError
from autoclave.core.files import sync_directory
from autoclave.runtime.files.accesses import accesses_of, asked_by, key_of
from autoclave.runtime.files.capture import remove_tree
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.difference import difference_of
from autoclave.runtime.files.folder_times import set_times, times_around, times_before
from autoclave.runtime.files.git_store import GitStore
from autoclave.runtime.files.glances import glance
from autoclave.runtime.files.inodes import as_it_is, on_what_is_there, with_inodes
from autoclave.runtime.files.keeping import Keeping
from autoclave.runtime.files.making import New, make
from autoclave.runtime.files.operations import OPERATIONS, Command
from autoclave.runtime.files.planning import Survey, fingerprint, survey
from autoclave.runtime.files.plans import Planned, Planner, digest_of, keys_of, paths_of, steps_from
from autoclave.runtime.files.reversal import outline, undoing_command
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import (
    Step,
    changed_meanwhile,
    has_happened,
    is_possible,
    is_untouched,
    take_steps,
)
from autoclave.runtime.files.tree_text import tree_text
from autoclave.runtime.files.undoing import undo_steps
from autoclave.runtime.footprints import meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, NotRedone, NotUndone, Plan, UndoneWith
from autoclave.runtime.policy.request import Access, Request


class FileManager:
    """Actions on the folder of `scope`. `stash` is a folder on the same file system that nobody else touches.

    `history` is looked into for what the stash does not have; with `keeps_in_git`, what was done goes from one to the
    other.
    """

    operations: Mapping[str, type[Config]] = OPERATIONS

    def __init__(
        self,
        scope: Scope,
        stash: Path,
        commands: CommandRunner,
        history: GitStore | None = None,
        *,
        keeps_in_git: bool = False,
    ) -> None:
        stash.mkdir(exist_ok=True)
        self._scope, self._stash, self._commands = scope, stash, commands
        self._keeping = Keeping(scope, stash, history, is_used=keeps_in_git)
        self._planner = Planner(scope, stash, commands)

    # --- Planning ---------------------------------------------------------------------------------------------------

    def plan(self, action: str, operation: Config) -> Plan:
        """See `Manager`. A command is run over the tree, which stays as it is."""
        if not isinstance(operation, Command):
            return self._planner.plan_of(operation, self._planner.of_data(operation))
        self._fresh_folder(action)
        try:
            return self._planner.plan_of(operation, self._planner.of_command(action, operation))
        except BaseException:
            self.discard(action)
            raise

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """See `Manager`. A command is not run again: what it made then is meant, if it would see the same now."""
        if not isinstance(operation, Command):
            return self.plan(action, operation)
        return self._planner.plan_of(operation, self._planner.of_command_before(action, operation, kept))

    def told(self) -> str:
        """See `Manager`: the names of the tree."""
        return tree_text(self._scope)

    def asks(self, operation: Config) -> Request:
        """See `Manager`: a command is run to see what it would do."""
        return asked_by(operation)

    def observed(self, action: str, receipt: Json) -> Request:
        """See `Manager`: what was there is in the stash by now, what came is in the tree. With what a command used."""
        accesses = [Access(verb, resource) for verb, resource in receipt["asked"]]
        with Scope(self._stash / action) as stash:
            for step in steps_from(receipt["steps"]):
                old = survey(step.stash, stash) if step.stash else Survey()
                accesses += accesses_of(step, old, survey(step.to or step.path, self._scope), self._scope)
        return Request(tuple(accesses), Guarantee(receipt["guarantee"]))

    # --- Doing ------------------------------------------------------------------------------------------------------

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. What is new is made ready, durably; then all is compared with the plan once more."""
        try:
            planned = self._made_ready(action, operation, plan)
            sync_directory(self._stash / action)
            sync_directory(self._stash)
            steps = [with_inodes(step, self._scope, self._stash / action) for step in planned.steps]
            moving = [step.path for step in steps if step.do in ("take", "exchange", "move")]
            glances = {path: glance(path, self._scope) for path in moving}  # first: what comes later shows by them
            before = {path: survey(path, self._scope) for path in paths_of(steps)}
            if digest_of(operation, planned, before) != plan.digest:
                raise InputError(
                    f"action {action}: what it is about has changed since it was planned; propose it again"
                )
        except BaseException:
            if not isinstance(operation, Command):
                self.discard(action)
            raise
        taken = [before[step.path].num_bytes for step in steps if step.do in ("take", "exchange")]
        reversal = self._reversal(operation, before)
        return {
            "steps": [step.to_json() for step in steps],
            "before": {path: each.fingerprint for path, each in before.items()},
            "glances": glances,
            "kept_bytes": 0 if reversal else sum(taken),
            **({"reversal": reversal} if reversal else {}),
            "asked": [(access.verb, access.resource) for access in self.asks(operation).accesses],
            "guarantee": plan.guarantee,
            "parents": times_around(steps, self._scope),
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def _made_ready(self, action: str, operation: Config, plan: Plan) -> Planned:
        if isinstance(operation, Command):
            return self._planner.of_command_before(action, operation, plan.kept, plan.kept["seen"])
        planned = self._planner.of_data(operation)
        folder = self._fresh_folder(action)
        try:
            for new in planned.new:
                make(folder, new, self._scope)
        except OSError as error:
            if isinstance(error, HostError):
                raise
            raise HostError(f"{folder}: what is new cannot be made ready ({error.strerror})") from None
        return planned

    def _reversal(self, operation: Config, paths: Iterable[str]) -> Json | None:
        """How an undo by a command goes, and what it has to bring back."""
        if not isinstance(operation, Command) or (undo := undoing_command(operation)) is None:
            return None
        outlines = {path: outline(path, self._scope, undo.undo_compared) for path in paths}
        return {"operation": undo.model_dump(mode="json"), "outlines": outlines}

    def execute(self, action: str, started: Json) -> Json:
        """See `Manager`. Right before and after each step it is looked whether it is about what was planned."""
        steps, glances = steps_from(started["steps"]), started["glances"]
        with self._stash_of(action) as descriptor, Scope(self._stash / action) as stash:

            def possible() -> Iterator[Step]:
                for step in steps:
                    if not is_possible(step, self._scope, descriptor):
                        raise changed_meanwhile(step)
                    yield step

            def is_right(step: Step) -> bool:
                if step.path not in glances:
                    return True
                now = glance(step.to, self._scope) if step.do == "move" else glance(step.stash, stash)
                return now == glances[step.path]

            take_steps(possible(), self._scope, descriptor, is_right)
        return self.accept(action, started)

    def find_out(self, action: str, started: Json) -> Json | None:
        """See `Manager`: what was begun is always put back."""
        return None

    def accept(self, action: str, started: Json) -> Json:
        steps = [as_it_is(step, self._scope) for step in steps_from(started["steps"])]
        after = self._fingerprints(started["before"])
        plain = [step.to_json() for step in steps]
        return {
            **started,
            "steps": plain,
            "after": after,
            "parents_after": times_around(steps, self._scope),
        }

    def put_back(self, action: str, started: Json) -> bool:
        """See `Manager`. Where nothing of it is left, what others have changed meanwhile is theirs."""
        is_back = self._reverse(action, steps_from(started["steps"]))
        if self._changed(started["before"]):
            return is_back
        set_times(started["parents"], self._scope)
        return True

    def _reverse(self, action: str, steps: Sequence[Step]) -> bool:
        """Take back those steps that have happened; whether it is certain that nothing of them is left."""
        with self._stash_of(action) as stash:
            for step in reversed(steps):
                is_partly = step.do == "set_facts" and not is_untouched(step, self._scope, stash)
                if is_partly or has_happened(step, self._scope, stash):
                    with contextlib.suppress(InputError):  # it shows below
                        take_steps([step.inverse()], self._scope, stash)
            return all(is_untouched(step, self._scope, stash) for step in steps)

    def keep(self, action: str, receipt: Json) -> None:
        """See `Manager`. What Git can keep whole goes there, and the rest stays in the stash; with an undo of its own,
        nothing does.
        """
        if "reversal" in receipt:
            self._fresh_folder(action)
            return
        self._keeping.keep(action, steps_from(receipt["steps"]))

    def kept_bytes(self, receipt: Json) -> int:
        """See `Manager`: what was taken out of the tree."""
        return int(receipt["kept_bytes"])

    def commit(self, action: str, receipt: Json) -> None:
        """See `Manager`: nothing was left open."""

    def lapsed(self, action: str, receipt: Json) -> str:
        """See `Manager`: what was done to files stands."""
        return ""

    def discard(self, action: str) -> None:
        remove_tree(self._stash / f".{action}")
        remove_tree(self._stash / action)
        self._keeping.forget(action)

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: the lines of text files that differ, and what else does."""
        new: dict[str, New] = {}
        if receipt is not None:
            steps = (
                self._keeping.with_restored(action, steps_from(receipt["steps"]))
                if is_done
                else steps_from(receipt["steps"])
            )
        else:
            planned = self._planner.of_data(operation)
            steps, new = planned.steps, {each.stash: each for each in planned.new}
        folder = self._stash / action
        with Scope(folder) if folder.is_dir() else contextlib.nullcontext() as stash:
            return list(difference_of(steps, self._scope, stash, new, is_done=is_done))

    # --- Undo and redo ----------------------------------------------------------------------------------------------

    def obstacle(self, action: str, receipt: Json) -> str:
        """See `Manager`: there is none."""
        return ""

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:  # the last first: what an earlier one left was changed by a later one of them
            changed = {
                path
                for path, was in receipt["after"].items()
                if not meet({key_of(path)}, seen)
                if (now := survey(path, self._scope)).fingerprint != was
                if not meet(keys_of(now.shared), seen)
            }
            if not meet(receipt["writes"], seen):
                changed |= self._changed_in_stash(action, receipt).keys()
            if changed:
                found[action] = sorted(changed)
            seen |= set(receipt["writes"])
        return found

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        if "reversal" in receipt:
            return self._plan_reversal(action, receipt, choices, default, undone_with)
        steps = self._keeping.with_restored(action, steps_from(receipt["steps"]))
        found = self._fingerprints(receipt["after"])
        kept = self._changed_in_stash(action, receipt)
        changed = {path for path, was in receipt["after"].items() if found[path] != was}
        changed |= {path for path in kept if choices.get(path, default) in (Choice.REFUSE, Choice.SKIP)}
        undoing = undo_steps(action, steps, changed, lambda path: choices.get(path, default), self._scope)
        self._require_kept(action, undoing.steps)
        return {
            "steps": [on_what_is_there(step, self._scope).to_json() for step in undoing.steps],
            "found": found,
            "wanted": {
                path: kept.get(path, was)
                for path, was in receipt["before"].items()
                if not meet({path}, {*undoing.skipped, *undoing.edited})
            },
            "times": times_before(steps, receipt, undone_with, self._scope),
            "around": times_around(steps, self._scope),
            "skipped": undoing.skipped,
        }

    def _plan_reversal(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        """Run the command that takes an action back over the tree as it is now; the steps that do what it did."""
        for path in self._changed(receipt["after"]):
            if choices.get(path, default) is not Choice.FORCE:
                raise InputError(f"path {path!r}: others changed it, and the undo is a command: force it, or leave it")
        found = self._fingerprints(receipt["after"])
        given = receipt["reversal"]["operation"]
        folder = self._fresh_folder(action)
        undo = cast("Command", OPERATIONS[given["do"]].model_validate(given))
        ran = self._commands.run(undo, folder)
        if self._commands.seen_by(undo) != ran.seen:
            raise InputError("somebody changed the folder while its undo ran; nothing was taken back. Fix: try again")
        capture = ran.capture
        own = receipt["before"]
        if beyond := [path for path in paths_of(capture.steps) if not any(_is_within(path, each) for each in own)]:
            raise InputError(f"its undo would change {_named(beyond)}, which it did not touch; nothing was taken back")
        steps = [with_inodes(step, self._scope, folder) for step in capture.steps]
        return {
            "steps": [step.to_json() for step in steps],
            "found": found,
            "wanted": {},
            "outlines": receipt["reversal"]["outlines"],
            "compared": given["undo_compared"],
            "times": times_before(steps, receipt, undone_with, self._scope),
            "around": times_around(steps, self._scope),
            "skipped": [],
        }

    def _require_outlines(self, action: str, undoing: Json) -> None:
        """Look whether a command has taken an action back; if not, take back what it did.

        Raises:
            NotUndone: it has not.
        """
        compared = undoing.get("compared", "content")
        wanted: Mapping[str, str] = undoing.get("outlines", {})
        if wrong := [path for path, was in wanted.items() if outline(path, self._scope, compared) != was]:
            self._reverse(action, steps_from(undoing["steps"]))
            set_times(undoing["around"], self._scope)
            raise NotUndone(f"after its undo {_named(wrong)} would not be as before; it stands as it was done")

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        steps = steps_from(undoing["steps"])
        try:
            self._go_on(action, steps, undoing["found"], is_late=is_late)
        except (InputError, InDoubt) as error:
            if not self._reverse(action, steps):
                raise
            set_times(undoing["around"], self._scope)
            raise NotUndone(f"{error}; it stands as it was done") from None
        self._require_outlines(action, undoing)
        set_times(undoing["times"], self._scope)
        self._require_same(undoing["wanted"], "was taken back, but is not as it was before")
        paths = {*undoing["found"], *paths_of(steps)}
        return {**undoing, "undone": self._fingerprints(paths)}

    def plan_redo(self, action: str, undone: Json) -> Json:
        if changed := self._changed(undone["undone"]):
            raise InputError(f"action {action}: {_named(changed)} changed since it was undone; nothing was done")
        steps = [on_what_is_there(step.inverse(), self._scope) for step in reversed(steps_from(undone["steps"]))]
        self._require_possible(action, steps)
        return {
            "steps": [step.to_json() for step in steps],
            "found": undone["undone"],
            "wanted": undone["found"],
            "parents": times_around(steps, self._scope),
        }

    def _require_possible(self, action: str, steps: Sequence[Step]) -> None:
        """Look whether each step can be taken, as far as it has nothing to do with those before it.

        Raises:
            InputError: one cannot.
        """
        done: set[str] = set()
        with self._stash_of(action) as stash:
            for step in steps:
                if not (meet(step.paths, done) or is_possible(step, self._scope, stash)):
                    raise InputError(
                        f"action {action}: {step.path!r} is not as it was before it, or the folder that it is in is "
                        "not there; nothing was done. Fix: redo first what was done before it"
                    )
                done |= set(step.paths)

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """See `Manager`."""
        accesses = [Access(verb, resource) for verb, resource in receipt["asked"]]
        with Scope(self._stash / action) as stash:
            for step in steps_from(redoing["steps"]):
                new = survey(step.stash, stash) if step.do in ("put", "exchange") else Survey()
                accesses += accesses_of(step, survey(step.path, self._scope), new, self._scope)
        return Request(tuple(accesses))

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        steps = steps_from(redoing["steps"])
        try:
            self._go_on(action, steps, redoing["found"], is_late=is_late)
        except (InputError, InDoubt) as error:
            if not self._reverse(action, steps):
                raise
            set_times(redoing["parents"], self._scope)
            raise NotRedone(f"{error}; it is as it was after its undo") from None
        self._require_same(redoing["wanted"], "was done again, but is not as it was then")
        after = times_around(steps_from(receipt["steps"]), self._scope)
        times = {"parents": redoing["parents"], "parents_after": after}
        return {**receipt, **times}

    def _go_on(self, action: str, steps: Sequence[Step], found: Mapping[str, str], *, is_late: bool) -> None:
        """Take the steps that have not happened yet.

        Raises:
            InDoubt: somebody else has changed what one of them is about.
        """
        with self._stash_of(action) as stash:
            if is_late and not any(has_happened(step, self._scope, stash) for step in steps):
                self._require_same(found, "somebody else has changed it")
            take_steps(self._pending(steps, stash), self._scope, stash)

    def _pending(self, steps: Sequence[Step], stash: int) -> Iterator[Step]:
        """Each step that has not happened, when those before it have."""
        for step in steps:
            if has_happened(step, self._scope, stash):
                continue
            if not is_possible(step, self._scope, stash):
                raise InDoubt(f"path {step.path!r}: somebody else has changed it meanwhile")
            yield step

    # --- Looking ----------------------------------------------------------------------------------------------------

    def _changed_in_stash(self, action: str, receipt: Json) -> dict[str, str]:
        """What was taken out of the tree and is not as it was any more, as when a file has a name elsewhere.

        By its path in the tree, with its fingerprint now. What is not there at all is left out.
        """
        if "reversal" in receipt:
            return {}
        found: dict[str, str] = {}
        with Scope(self._stash / action) as stash:
            for step in steps_from(receipt["steps"]):
                if step.do in ("take", "exchange") and (now := fingerprint(step.stash, stash)):
                    found[step.path] = now
        return {path: now for path, now in found.items() if now != receipt["before"][path]}

    def _fingerprints(self, paths: Iterable[str]) -> dict[str, str]:
        return {path: fingerprint(path, self._scope) for path in sorted(paths)}

    def _changed(self, expected: Mapping[str, str]) -> list[str]:
        return [path for path, was in expected.items() if fingerprint(path, self._scope) != was]

    def _require_same(self, expected: Mapping[str, str], complaint: str) -> None:
        if changed := self._changed(expected):
            raise InDoubt(f"path {_named(changed)}: {complaint}")

    def _require_kept(self, action: str, steps: Sequence[Step]) -> None:
        """Look whether what steps bring out of the stash is there.

        Raises:
            InputError: it is not, as after somebody has settled an action that was in doubt.
        """
        for step in steps:
            place, inode = self._stash / action / step.stash, step.inode
            if step.do in ("put", "exchange") and not (os.path.lexists(place) and place.lstat().st_ino == inode):
                raise InputError(f"action {action}: what it replaced at {step.path!r} is not kept, so it stays")

    def _fresh_folder(self, action: str) -> Path:
        folder = self._stash / action
        self.discard(action)  # of a try before that died
        folder.mkdir()
        return folder

    @contextlib.contextmanager
    def _stash_of(self, action: str) -> Iterator[int]:
        descriptor = os.open(self._stash / action, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _is_within(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def _named(paths: Sequence[str]) -> str:
    return ", ".join(map(repr, paths))
