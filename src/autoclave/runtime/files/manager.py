"""Actions on the files of one folder: planned as steps, prepared in a stash on the same file system, taken and undone.

Theory of operation. Each action has a folder of its own in the stash. What it brings into the tree is prepared there
(or, for a command, was written there by the command itself, in an overlay over the tree), and what it takes out goes
there. Every step is one rename between tree and stash, whose outcome can be seen afterwards by inodes. So after a crash
an interrupted action can be completed or rolled back.
"""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from autoclave.config import Config
from autoclave.core import HostError, InputError
from autoclave.core.files import sync_directory
from autoclave.runtime.files.capture import remove_tree
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.difference import difference_of
from autoclave.runtime.files.operations import OPERATIONS, Command, ReadOperation, key_of
from autoclave.runtime.files.planning import make
from autoclave.runtime.files.plans import (
    Planned,
    Planner,
    accesses_of,
    asked_by,
    digest_of,
    keys_of,
    needed_by,
    paths_of,
    steps_from,
    surveys_of,
)
from autoclave.runtime.files.reading import tree_text
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import (
    Step,
    as_it_is,
    has_happened,
    is_possible,
    is_untouched,
    located,
    pending,
    require_kept,
    take_steps,
)
from autoclave.runtime.files.tree_digest import Survey, is_by_inode, survey, survey_by_inode, tree_digest
from autoclave.runtime.files.undoing import left_with, set_times, times_around, times_before, undo_steps
from autoclave.runtime.footprints import meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, Manager, NotRedone, NotUndone, Plan, UndoneWith
from autoclave.runtime.policy.request import Access, Request

_MOST_BY_SIZE = 8 << 20
"""Bytes up to which what is kept counts by its size, holes included; beyond, by what it occupies."""


class FileManager(Manager):
    """Actions on the folder of `scope`. `stash` is a private folder on the same file system."""

    operations: Mapping[str, type[Config]] = OPERATIONS

    def __init__(self, scope: Scope, stash: Path, commands: CommandRunner) -> None:
        stash.mkdir(exist_ok=True)
        self.scope, self.stash, self.commands = scope, stash, commands
        self._planner = Planner(scope, stash, commands)
        self._stashed: dict[tuple[str, str], Survey] = {}  # what was taken last, by action and place

    def plan(self, action: str, operation: Config) -> Plan:
        """See `Manager`. A command is run over the tree without changing it."""
        if isinstance(operation, ReadOperation):
            return self._planner.plan_of_read(operation)
        if not isinstance(operation, Command):
            return self._planner.plan_of(operation, self._planner.of_data(operation))
        self._fresh_folder(action)
        try:
            return self._planner.plan_of(operation, self._planner.of_command(action, operation))
        except BaseException:
            self.discard(action)
            raise

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """See `Manager`. A command is not run again: its first result counts, if it would see the same tree now."""
        if not isinstance(operation, Command):
            return self.plan(action, operation)
        return self._planner.plan_of(operation, self._planner.of_command_before(action, operation, kept))

    def told(self) -> str:
        return tree_text(self.scope)

    def asks(self, operation: Config) -> Request:
        return asked_by(operation)

    def needs(self, operation: Config) -> list[tuple[Access, ...]]:
        return needed_by(operation, self.scope)

    def observed(self, action: str, receipt: Json) -> Request:
        """See `Manager`. Looks at what was taken to the stash and brought to the tree; includes uses of a command."""
        accesses = self._accesses(action, receipt, is_done=True)
        return Request(accesses, Guarantee(receipt["guarantee"]))

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        if receipt.get("is_observed"):  # no grant covered it when it was done
            return Request((), Guarantee(receipt["guarantee"]))
        return Request(self._accesses(action, {**receipt, "steps": redoing["steps"]}, is_done=False))

    def _accesses(self, action: str, receipt: Json, *, is_done: bool) -> tuple[Access, ...]:
        """Return the accesses of planning an action, and those that its steps made or will make."""
        accesses = [Access(verb, resource) for verb, resource in receipt["asked"]]
        with Scope(self.stash / action) as stash:
            for step in steps_from(receipt["steps"]):
                stashed = self._stashed.pop((action, step.stash), None) if is_done else None
                if stashed is None:
                    stashed = survey_by_inode(step.stash, stash) if step.stash else Survey()
                in_tree = survey_by_inode((is_done and step.to) or step.path, self.scope)
                accesses += accesses_of(step, *((stashed, in_tree) if is_done else (in_tree, stashed)), self.scope)
        return tuple(accesses)

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. Prepares what is new, durably, then compares everything with the plan once more."""
        try:
            planned = self._made_ready(action, operation, plan.kept)
            for folder in () if isinstance(operation, Command) else (self.stash / action, self.stash):
                sync_directory(folder)  # what a command brings was made durable when it ended
            steps = [located(step, self.scope, self.stash / action) for step in planned.steps]
            for step in steps:
                if step.do == "set_facts" and (entry := self.scope.entry(step.path)) and entry.shared:
                    raise InputError(f"path {step.path!r}: has several names now; propose it again")
            before = surveys_of(steps, self.scope, self._planner.latest)
            if digest_of(operation, planned, before) != plan.digest:
                raise InputError(f"action {action}: its resource has changed since it was planned; propose it again")
        except BaseException:
            if not isinstance(operation, Command):
                self.discard(action)
            raise
        taken = [before[step.path].num_bytes for step in steps if step.do in ("take", "exchange")]
        return {
            "steps": [step.to_json() for step in steps],
            "before": {path: each.digest for path, each in before.items()},
            "kept_bytes": sum(taken),
            "asked": [(access.verb, access.resource) for access in self.asks(operation).accesses],
            "guarantee": plan.guarantee,
            "parents": times_around(steps, self.scope),
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def _made_ready(self, action: str, operation: Config, kept: Json | None = None) -> Planned:
        if isinstance(operation, Command):
            assert kept is not None
            return self._planner.of_command_before(action, operation, kept, kept["seen"])
        planned = self._planner.of_data(operation)
        folder = self._fresh_folder(action)
        try:
            for new in planned.new:
                make(folder, new)
        except OSError as error:
            if isinstance(error, HostError):
                raise
            raise HostError(f"{folder}: new content cannot be prepared ({error.strerror})") from None
        return planned

    def execute(self, action: str, started: Json) -> Json:
        """See `Manager`. Checks right before and after each step that it moves what was planned."""
        steps = steps_from(started["steps"])
        self._stashed.clear()
        with Scope(self.stash / action) as stash:

            def is_right(step: Step) -> bool:
                if step.do == "move":
                    return tree_digest(step.to, self.scope) == started["before"][step.path]
                if step.do not in ("take", "exchange"):
                    return True
                found = self._stashed[action, step.stash] = survey_by_inode(step.stash, stash)
                return found.digest == started["before"][step.path]

            take_steps(pending(steps, self.scope, stash, InputError), self.scope, stash, is_right)
        return self.accept(action, started)

    def accept(self, action: str, started: Json) -> Json:
        steps = [as_it_is(step, self.scope, self.stash / action) for step in steps_from(started["steps"])]
        after = self._digests(started["before"])
        kept = {}
        if started["kept_bytes"] > _MOST_BY_SIZE:
            with Scope(self.stash / action) as stash:
                kept = {"kept_bytes": stash.bytes_on_disk()}
        plain = [step.to_json() for step in steps]
        return {**started, **kept, "steps": plain, "after": after, **left_with(times_around(steps, self.scope))}

    def put_back(self, action: str, started: Json) -> bool:
        """See `Manager`. Where nothing of it is left, changes of others meanwhile stay."""
        is_back = self._reverse(action, steps_from(started["steps"]))
        if self._changed(started["before"]):
            return is_back
        set_times(started["parents"], self.scope)
        return True

    def _reverse(self, action: str, steps: Sequence[Step]) -> bool:
        """Take back the steps that have happened; return whether certainly nothing of them is left."""
        with Scope(self.stash / action) as stash:
            for step in reversed(steps):
                is_partly = step.do == "set_facts" and not is_untouched(step, self.scope, stash)
                if is_partly or has_happened(step, self.scope, stash):
                    with contextlib.suppress(InputError):  # it shows below
                        take_steps([step.inverse()], self.scope, stash)
            return all(is_untouched(step, self.scope, stash) for step in steps)

    def discard(self, action: str) -> None:
        remove_tree(self.stash / f".{action}")
        remove_tree(self.stash / action)

    def sweep(self, kept: Collection[str]) -> None:
        """Remove what crashes left in the stash: everything that does not belong to an action in `kept`."""
        for name in set(os.listdir(self.stash)).difference(kept):  # with each session, so it is to be quick
            remove_tree(self.stash / name)

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        folder = self.stash / action
        if receipt is not None:
            with Scope(folder) if folder.is_dir() else contextlib.nullcontext() as stash:
                return list(difference_of(steps_from(receipt["steps"]), self.scope, stash, is_done=is_done))
        trial = f"{action}.difference"  # apart from the folder of the action itself
        try:
            planned = self._made_ready(trial, operation)
            with Scope(self.stash / trial) as stash:
                return list(difference_of(planned.steps, self.scope, stash, is_done=is_done))
        finally:
            self.discard(trial)

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:  # latest first: later ones changed what earlier ones left
            changed = {
                path
                for path, was in receipt["after"].items()
                if not meet({key_of(path)}, seen)
                if (now := survey(path, self.scope)).digest != was
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
        steps, found = steps_from(receipt["steps"]), self._digests(receipt["after"])
        kept = self._changed_in_stash(action, receipt)
        changed = {path for path, was in receipt["after"].items() if found[path] != was}
        changed |= {path for path in kept if choices.get(path, default) in (Choice.REFUSE, Choice.SKIP)}
        undoing = undo_steps(action, steps, changed, lambda path: choices.get(path, default), self.scope)
        require_kept(action, undoing.steps, self.stash / action)
        return {
            "steps": [located(step, self.scope, self.stash / action).to_json() for step in undoing.steps],
            "found": found,
            "wanted": {
                path: kept.get(path, was)
                for path, was in receipt["before"].items()
                if not meet({path}, {*undoing.skipped, *undoing.edited})
            },
            "times": times_before(steps, receipt, undone_with, self.scope),
            "around": times_around(steps, self.scope),
            "skipped": undoing.skipped,
        }

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        steps = steps_from(undoing["steps"])
        with self._wholly(action, steps, undoing["around"], NotUndone, "it stands as it was done"):
            self._go_on(action, steps, undoing["found"], is_late=is_late)
        set_times(undoing["times"], self.scope)
        self._require_same(undoing["wanted"], "was taken back, but is not as it was before")
        return {**undoing, "undone": self._digests({*undoing["found"], *paths_of(steps)})}

    @contextlib.contextmanager
    def _wholly(
        self, action: str, steps: Sequence[Step], times: Mapping[str, int], failure: type[InputError], told: str
    ) -> Iterator[None]:
        """Take back the steps taken in the block if it fails; raise `failure` where that succeeds."""
        try:
            yield
        except (InputError, InDoubt) as error:
            if not self._reverse(action, steps):
                raise
            set_times(times, self.scope)
            raise failure(f"{error}; {told}") from None

    def plan_redo(self, action: str, undone: Json) -> Json:
        if changed := self._changed(undone["undone"]):
            raise InputError(
                f"action {action}: {', '.join(map(repr, changed))} changed since it was undone; nothing was done"
            )
        steps = [
            located(step.inverse(), self.scope, self.stash / action) for step in reversed(steps_from(undone["steps"]))
        ]
        self._require_possible(action, steps)
        return {
            "steps": [step.to_json() for step in steps],
            "found": undone["undone"],
            "wanted": undone["found"],
            "parents": times_around(steps, self.scope),
        }

    def _require_possible(self, action: str, steps: Sequence[Step]) -> None:
        """Raise InputError if a step that is independent of those before it cannot be taken."""
        done: set[str] = set()
        with Scope(self.stash / action) as stash:
            for step in steps:
                if not (meet(step.paths, done) or is_possible(step, self.scope, stash)):
                    raise InputError(
                        f"action {action}: {step.path!r} is not as it was before the action, or its folder "
                        "is missing; nothing was done. Fix: redo the earlier actions first"
                    )
                done |= set(step.paths)

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        steps = steps_from(redoing["steps"])
        with self._wholly(action, steps, redoing["parents"], NotRedone, "it is as it was after its undo"):
            self._go_on(action, steps, redoing["found"], is_late=is_late)
        self._require_same(redoing["wanted"], "was done again, but is not as it was then")
        done = steps_from(receipt["steps"])
        times = {"parents": redoing["parents"], **left_with(times_around(done, self.scope))}
        again = {path: now for path, now in self._in_stash(action, receipt).items() if is_by_inode(now)}
        return {**receipt, "before": receipt["before"] | again, **times}  # inodes in it may have changed meanwhile

    def _go_on(self, action: str, steps: Sequence[Step], found: Mapping[str, str], *, is_late: bool) -> None:
        """Take the steps that have not happened yet. Raises InDoubt where others have changed something."""
        with Scope(self.stash / action) as stash:
            if is_late and not any(has_happened(step, self.scope, stash) for step in steps):
                self._require_same(found, "somebody else has changed it")
            take_steps(pending(steps, self.scope, stash, InDoubt), self.scope, stash)

    def _in_stash(self, action: str, receipt: Json) -> dict[str, str]:
        """Return the present digests of what was taken out of the tree, by its path there; without what is missing."""
        before = receipt["before"]
        with Scope(self.stash / action) as stash:
            taken = [step for step in steps_from(receipt["steps"]) if step.do in ("take", "exchange")]
            found = {step.path: tree_digest(step.stash, stash, before[step.path]) for step in taken}
        return {path: now for path, now in found.items() if now}

    def _changed_in_stash(self, action: str, receipt: Json) -> dict[str, str]:
        """Return those that have changed, as when a file has another name elsewhere."""
        return {path: now for path, now in self._in_stash(action, receipt).items() if now != receipt["before"][path]}

    def _digests(self, paths: Iterable[str]) -> dict[str, str]:
        return {path: tree_digest(path, self.scope) for path in sorted(paths)}

    def _changed(self, expected: Mapping[str, str]) -> list[str]:
        return [path for path, was in expected.items() if tree_digest(path, self.scope, was) != was]

    def _require_same(self, expected: Mapping[str, str], complaint: str) -> None:
        if changed := self._changed(expected):
            raise InDoubt(f"path {', '.join(map(repr, changed))}: {complaint}")

    def _fresh_folder(self, action: str) -> Path:
        folder = self.stash / action
        self.discard(action)  # left by an interrupted attempt
        folder.mkdir()
        return folder
