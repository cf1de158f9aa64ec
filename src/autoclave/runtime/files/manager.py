"""Actions on the files of one folder: planned as steps, prepared in a stash on the same file system, taken and undone.

Theory of operation. Each action has a folder of its own in the stash. What it brings into the tree is made ready there
(or, for a command, was written there by the command itself, in an overlay over the tree), and what it takes out goes
there. Every step is one rename between tree and stash, whose outcome can be seen afterwards by inodes. So whatever a
process that died left in the middle can be brought to either side.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import HostError, InputError
from autoclave.core.files import sync_directory
from autoclave.core.json import canonical_json
from autoclave.runtime.files.capture import remove_tree, remove_tree_or_file
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.difference import difference_of
from autoclave.runtime.files.git_store import GitStore, Place, can_keep, tree_bytes
from autoclave.runtime.files.operations import OPERATIONS, Command, DataOperation, Python
from autoclave.runtime.files.planning import New, Survey, fingerprint, steps_of, survey
from autoclave.runtime.files.reversal import outline, undoing_command
from autoclave.runtime.files.scope import Entry, NothingThere, Scope
from autoclave.runtime.files.steps import Step, has_happened, is_possible, sync_file_system, take_steps
from autoclave.runtime.files.tree_text import tree_text
from autoclave.runtime.files.undoing import inode_at, undo_steps
from autoclave.runtime.footprints import Footprint, meet
from autoclave.runtime.interface import Choice, Guarantee, InDoubt, Json, NotUndone, Plan, UndoneWith
from autoclave.runtime.packages import normalised_name
from autoclave.runtime.policy.request import Access, Request

_ROOT = "files"


@dataclass(frozen=True, slots=True)
class _Planned:
    """Steps without inodes, what they bring in by its name in the stash, and what is to be recorded of a command."""

    steps: Sequence[Step]
    brought: Mapping[str, Survey]
    new: Sequence[New] = ()
    output: Json | None = None


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
        self._history, self._keeps_in_git = history, keeps_in_git

    # --- Planning ---------------------------------------------------------------------------------------------------

    def plan(self, action: str, operation: Config) -> Plan:
        """See `Manager`. A command is run over the tree, which stays as it is."""
        if not isinstance(operation, Command):
            return self._plan_of(operation, self._data(operation))
        folder = self._fresh_folder(action)
        try:
            capture, output = self._commands.run(operation, folder)
            return self._plan_of(operation, _Planned(capture.steps, self._surveyed(action), output=output))
        except BaseException:
            self.discard(action)
            raise

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """See `Manager`. A command is not run again: what it made then is what is meant."""
        if not isinstance(operation, Command):
            return self.plan(action, operation)
        if not (self._stash / action).is_dir():
            raise InputError(f"action {action}: what its command made is not kept any more; propose it again")
        steps = steps_from(kept["steps"])
        return self._plan_of(operation, _Planned(steps, self._surveyed(action), output=kept["output"]))

    def _data(self, operation: Config) -> _Planned:
        steps, new = steps_of(cast("DataOperation", operation), self._scope)
        return _Planned(steps, {each.stash: Survey("", 1, len(each.content)) for each in new}, new)

    def _surveyed(self, action: str) -> dict[str, Survey]:
        with Scope(self._stash / action) as made:
            return {name: survey(name, made) for name, _ in made.entries_in("")}

    def _plan_of(self, operation: Config, planned: _Planned) -> Plan:
        steps, brought = planned.steps, planned.brought
        before = {path: survey(path, self._scope) for path in _paths(steps)}
        fingerprints = sorted((path, each.fingerprint) for path, each in before.items())
        made = sorted((name, each.fingerprint) for name, each in brought.items())
        plain = [step.to_json() for step in steps]
        told = [operation.model_dump(mode="json"), fingerprints, plain, made]
        is_command = isinstance(operation, Command)
        return Plan(
            digest=hashlib.sha256(canonical_json(told)).hexdigest(),
            changes=tuple(map(_words, steps)),
            request=Request(
                tuple(
                    access
                    for step in steps
                    for access in self._accesses(step, before[step.path], brought.get(step.stash, Survey()))
                ),
                _guarantee(operation),
            ),
            footprint=self._footprint(operation, steps, before.values()),
            guarantee=_guarantee(operation),
            kept={"steps": plain, "output": planned.output} if is_command else {},
            output=planned.output or {},
        )

    def told(self) -> str:
        """See `Manager`: the names of the tree."""
        return tree_text(self._scope)

    def asks(self, operation: Config) -> Request:
        """See `Manager`: a command is run to see what it would do."""
        if not isinstance(operation, Command):
            return Request(())
        packages = operation.packages if isinstance(operation, Python) else ()
        return Request(
            (
                *(Access("run", f"programs/{name}") for name in _programs(operation)),
                Access("read", f"{_key(operation.within)}/**"),
                *(Access("import", f"packages/{normalised_name(name)}") for name in packages),
                *(Access("use", f"services/{name}") for name in operation.secrets),
            ),
            _guarantee(operation),
        )

    def observed(self, action: str, receipt: Json) -> Request:
        """See `Manager`: what was there is in the stash by now, what came is in the tree. With what a command used."""
        accesses = [Access(verb, resource) for verb, resource in receipt["asked"]]
        with Scope(self._stash / action) as stash:
            for step in steps_from(receipt["steps"]):
                old = survey(step.stash, stash) if step.stash else Survey()
                accesses += self._accesses(step, old, survey(step.to or step.path, self._scope))
        return Request(tuple(accesses), Guarantee(receipt["guarantee"]))

    def _accesses(self, step: Step, old: Survey, new: Survey) -> Iterator[Access]:
        """What a step does to what was there (`old`), and brings (`new`)."""
        resource = self._resource(step.path)
        inside = tuple(f"{resource}/{name}" for name in dict.fromkeys((*old.inside, *new.inside)))
        match step.do:
            case "put":
                yield Access("create", resource, inside, max(1, new.num_files), new.num_bytes)
            case "take":
                yield Access("delete", resource, inside, old.num_files, 0, old.num_bytes)
            case "exchange":
                yield Access("modify", resource, inside, max(1, new.num_files), new.num_bytes, old.num_bytes)
            case "move":
                inner = old.inside or new.inside
                for place in (resource, self._resource(step.to)):
                    yield Access("rename", place, tuple(f"{place}/{name}" for name in inner), max(1, len(inner) + 1))
            case "set_facts":
                yield Access("set_mode", resource, (), 1)

    def _resource(self, path: str) -> str:
        """The name that the policy knows a path by: where it really is, whatever links are on the way."""
        above, _, name = path.rpartition("/")
        place = os.path.join(os.path.realpath(self._scope.root / above), name)
        within = os.path.relpath(place, self._scope.root)
        return f"outside{place}" if within.startswith("..") else f"{_ROOT}/{within}"

    def _footprint(self, operation: Config, steps: Sequence[Step], before: Iterable[Survey]) -> Footprint:
        """Paths, and files with several names: what is done to one of those is done to all."""
        reads = frozenset({_key(operation.within)}) if isinstance(operation, Command) else frozenset[str]()
        shared = (_keys_of(each.shared) for each in before)
        return Footprint(reads, frozenset[str]().union(map(_key, _paths(steps)), *shared))

    # --- Doing ------------------------------------------------------------------------------------------------------

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. What is new is made ready, durably."""
        if isinstance(operation, Command):
            steps = steps_from(plan.kept["steps"])
        else:
            planned = self._data(operation)
            steps = planned.steps
            folder = self._fresh_folder(action)
            try:
                for new in planned.new:
                    _make(folder, new)
            except OSError as error:
                self.discard(action)
                raise HostError(f"{folder}: what is new cannot be made ready ({error.strerror})") from None
        sync_directory(self._stash / action)
        sync_directory(self._stash)
        steps = [self._with_inodes(step, self._stash / action) for step in steps]
        before = {path: survey(path, self._scope) for path in _paths(steps)}
        taken = [before[step.path].num_bytes for step in steps if step.do in ("take", "exchange")]
        reversal = self._reversal(operation, before)
        return {
            "steps": [step.to_json() for step in steps],
            "before": {path: each.fingerprint for path, each in before.items()},
            "kept_bytes": 0 if reversal else sum(taken),
            **({"reversal": reversal} if reversal else {}),
            "asked": [(access.verb, access.resource) for access in self.asks(operation).accesses],
            "guarantee": plan.guarantee,
            "parents": self._times_around(steps),
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def _reversal(self, operation: Config, paths: Iterable[str]) -> Json | None:
        """How an undo by a command goes, and what it has to bring back."""
        if not isinstance(operation, Command) or (undo := undoing_command(operation)) is None:
            return None
        outlines = {path: outline(path, self._scope, undo.undo_compared) for path in paths}
        return {"operation": undo.model_dump(mode="json"), "outlines": outlines}

    def execute(self, action: str, started: Json) -> Json:
        steps = steps_from(started["steps"])
        with self._stash_of(action) as stash:
            take_steps(steps, self._scope, stash)
        return self.accept(action, started)

    def find_out(self, action: str, started: Json) -> Json | None:
        """See `Manager`: what was begun is always put back."""
        return None

    def accept(self, action: str, started: Json) -> Json:
        steps = [self._as_it_is(step) for step in steps_from(started["steps"])]
        after = self._fingerprints(started["before"])
        plain = [step.to_json() for step in steps]
        return {
            **started,
            "steps": plain,
            "after": after,
            "parents_after": self._times_around(steps),
        }

    def put_back(self, action: str, started: Json) -> bool:
        steps = steps_from(started["steps"])
        with self._stash_of(action) as stash:
            for step in reversed(steps):
                if step.do == "set_facts" or has_happened(step, self._scope, stash):
                    with contextlib.suppress(InputError):  # it shows below
                        take_steps([step.inverse()], self._scope, stash)
        self._set_times(started["parents"])
        return not self._changed(started["before"])

    def keep(self, action: str, receipt: Json) -> None:
        """See `Manager`. What Git can keep whole goes there, and the rest stays in the stash; with an undo of its own,
        nothing does.
        """
        if "reversal" in receipt:
            self._fresh_folder(action)
            return
        if self._history is None or not self._keeps_in_git:
            return
        with Scope(self._stash / action) as stash:
            taken = [step for step in steps_from(receipt["steps"]) if step.do in ("take", "exchange")]
            before = [Place(step.path, stash, step.stash) for step in taken]
            before = [each for each in before if can_keep(each)]
            after = [Place(path, self._scope, path) for path in receipt["after"]]
            self._history.keep(action, before, after, self._tree_bytes)
        for each in before:
            place = self._stash / action / each.found_at
            gone = place.with_name(f"{place.name}.gone")
            remove_tree_or_file(gone)  # of a try before that died
            place.rename(gone)  # first: what is half removed must not be taken for the whole
            remove_tree_or_file(gone)

    @cached_property
    def _tree_bytes(self) -> int:
        """How much content the tree had when it was first asked for."""
        return tree_bytes(self._scope.root)

    def _with_restored(self, action: str, steps: Sequence[Step]) -> list[Step]:
        """The steps of an action, after what Git keeps of it has been brought back to the stash."""
        if self._history is None or not self._history.has(action):
            return list(steps)
        found: list[Step] = []
        for step in steps:
            if step.do in ("take", "exchange"):
                place = self._stash / action / step.stash
                if not os.path.lexists(place):
                    making = place.with_name(f"{place.name}.new")
                    remove_tree_or_file(making)  # of a try before that died
                    self._history.restore(action, step.path, making)
                    making.rename(place)
                inode = place.lstat().st_ino
                step = replace(step, inode=inode) if step.do == "take" else replace(step, old_inode=inode)
            found.append(step)
        sync_file_system(self._stash)
        return found

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
        if self._history is not None:
            self._history.forget(action)

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: the lines of text files that differ, and what else does."""
        new: dict[str, bytes] = {}
        if receipt is not None:
            steps = (
                self._with_restored(action, steps_from(receipt["steps"])) if is_done else steps_from(receipt["steps"])
            )
        else:
            planned = self._data(operation)
            steps, new = planned.steps, {each.stash: each.content for each in planned.new if each.entry.kind == "file"}
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
                if not meet({_key(path)}, seen)
                if (now := survey(path, self._scope)).fingerprint != was
                if not meet(_keys_of(now.shared), seen)
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
        steps = self._with_restored(action, steps_from(receipt["steps"]))
        found = self._fingerprints(receipt["after"])
        kept = self._changed_in_stash(action, receipt)
        changed = {path for path, was in receipt["after"].items() if found[path] != was}
        changed |= {path for path in kept if choices.get(path, default) in (Choice.REFUSE, Choice.SKIP)}
        undoing = undo_steps(action, steps, changed, lambda path: choices.get(path, default), self._scope)
        self._require_kept(action, undoing.steps)
        return {
            "steps": [self._on_what_is_there(step).to_json() for step in undoing.steps],
            "found": found,
            "wanted": {
                path: kept.get(path, was)
                for path, was in receipt["before"].items()
                if not meet({path}, {*undoing.skipped, *undoing.edited})
            },
            "times": self._times_before(steps, receipt, undone_with),
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
        capture, _ = self._commands.run(cast("Command", OPERATIONS[given["do"]].model_validate(given)), folder)
        own = receipt["before"]
        if beyond := [path for path in _paths(capture.steps) if not any(_is_within(path, each) for each in own)]:
            raise InputError(f"its undo would change {_named(beyond)}, which it did not touch; nothing was taken back")
        steps = [self._with_inodes(step, folder) for step in capture.steps]
        return {
            "steps": [step.to_json() for step in steps],
            "found": found,
            "wanted": {},
            "outlines": receipt["reversal"]["outlines"],
            "compared": given["undo_compared"],
            "times": self._times_before(steps, receipt, undone_with),
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
            back = [step.inverse() for step in reversed(steps_from(undoing["steps"]))]
            with self._stash_of(action) as stash:
                take_steps(self._pending(back, stash), self._scope, stash)
            raise NotUndone(f"after its undo {_named(wrong)} would not be as before; it stands as it was done")

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        steps = steps_from(undoing["steps"])
        self._go_on(action, steps, undoing["found"], is_late=is_late)
        self._require_outlines(action, undoing)
        self._set_times(undoing["times"])
        self._require_same(undoing["wanted"], "was taken back, but is not as it was before")
        paths = {*undoing["found"], *_paths(steps)}
        return {**undoing, "undone": self._fingerprints(paths)}

    def plan_redo(self, action: str, undone: Json) -> Json:
        if changed := self._changed(undone["undone"]):
            raise InputError(f"action {action}: {_named(changed)} changed since it was undone; nothing was done")
        steps = [step.inverse() for step in reversed(steps_from(undone["steps"]))]
        return {
            "steps": [self._on_what_is_there(step).to_json() for step in steps],
            "found": undone["undone"],
            "wanted": undone["found"],
            "parents": self._times_around(steps),
        }

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """See `Manager`."""
        accesses = [Access(verb, resource) for verb, resource in receipt["asked"]]
        with Scope(self._stash / action) as stash:
            for step in steps_from(redoing["steps"]):
                new = survey(step.stash, stash) if step.do in ("put", "exchange") else Survey()
                accesses += self._accesses(step, survey(step.path, self._scope), new)
        return Request(tuple(accesses))

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        self._go_on(action, steps_from(redoing["steps"]), redoing["found"], is_late=is_late)
        self._require_same(redoing["wanted"], "was done again, but is not as it was then")
        times = {"parents": redoing["parents"], "parents_after": self._times_around(steps_from(receipt["steps"]))}
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

    def _as_it_is(self, step: Step) -> Step:
        """A step that has happened, with the inode of what is where it brought something."""
        if step.do == "take":
            return step
        return replace(step, inode=inode_at(step.to or step.path, self._scope) or step.inode)

    def _on_what_is_there(self, step: Step) -> Step:
        """A step that is about to happen, with the inode of what it takes away.

        That is another one than was recorded, where an undo of a later action has made it anew out of Git.
        """
        if step.do == "put":
            return step
        own = inode_at(step.path, self._scope)
        return (
            replace(step, old_inode=own or step.old_inode)
            if step.do == "exchange"
            else replace(step, inode=own or step.inode)
        )

    def _with_inodes(self, step: Step, folder: Path) -> Step:
        if step.do == "put":
            return replace(step, inode=(folder / step.stash).lstat().st_ino)
        own = inode_at(step.path, self._scope)
        if own is None:
            raise InputError(f"path {step.path!r}: there is nothing")
        if step.do == "exchange":
            return replace(step, inode=(folder / step.stash).lstat().st_ino, old_inode=own)
        return replace(step, inode=own)

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

    def _times_around(self, steps: Sequence[Step]) -> dict[str, int]:
        """When the folders in which steps change names were changed last."""
        parents = {path.rpartition("/")[0] for step in steps for path in step.paths}
        times: dict[str, int] = {}
        for parent in sorted(parents):
            with contextlib.suppress(NothingThere), self._folder(parent) as folder:  # else the action makes it
                times[parent] = os.stat(".", dir_fd=folder).st_mtime_ns
        return times

    def _times_before(self, steps: Sequence[Step], receipt: Json, undone_with: UndoneWith) -> dict[str, int]:
        """When the folders would have been changed last if this action had not been done.

        That is before it. If that time is due to an action that has been undone meanwhile, it is before that one. Where
        somebody has changed something since, the time stays.
        """
        times = self._times_around(steps)
        for path, now in times.items():
            if now == receipt["parents_after"].get(path) and path in receipt["parents"]:
                times[path] = _time_before(path, receipt["parents"][path], undone_with)
        return times

    def _set_times(self, times: Mapping[str, int]) -> None:
        for parent, mtime_ns in times.items():
            with contextlib.suppress(InputError, PermissionError), self._folder(parent) as folder:
                about = os.stat(".", dir_fd=folder)
                os.utime(".", ns=(about.st_atime_ns, mtime_ns), dir_fd=folder)

    @contextlib.contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        """A descriptor that names a folder, which need not be one that can be read."""
        with self._scope.parent_of(f"{path}/any" if path else "any") as (descriptor, _):
            yield descriptor


def _time_before(folder: str, time_ns: int, undone_with: UndoneWith) -> int:
    """When a folder was changed last before all that is undone, out of the time that one of the undone left it with."""
    seen: set[int] = set()
    while time_ns not in seen:
        seen.add(time_ns)
        for undone in undone_with(f"{time_ns}"):
            before = undone["parents"].get(folder, time_ns)
            if undone["parents_after"].get(folder) == time_ns != before:
                time_ns = before
                break
    return time_ns


def _guarantee(operation: Config) -> Guarantee:
    """What becomes of the folder can be taken back; what a command asked of a service cannot, as far as we know."""
    if not isinstance(operation, Command):
        return Guarantee.EXACT
    if operation.secrets:
        return Guarantee.NONE
    if operation.undo:
        return Guarantee.EQUIVALENT if operation.undo_compared == "content" else Guarantee.COMPENSATING
    return Guarantee.EXACT


def _programs(operation: Command) -> list[str]:
    """The names of what it runs, its undo included."""
    if isinstance(operation, Python):
        return ["python"]
    commands = [operation.command, *([operation.undo] if operation.undo else [])]
    return list(dict.fromkeys(command[0].rpartition("/")[2] for command in commands))


def steps_from(plain: Sequence[Json]) -> list[Step]:
    """Steps out of JSON data."""
    return [Step(**step) for step in plain]


def _paths(steps: Sequence[Step]) -> list[str]:
    return sorted({path for step in steps for path in step.paths})


def _is_within(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def _key(path: str) -> str:
    return f"{_ROOT}/{path}" if path else _ROOT


def _keys_of(inodes: Iterable[int]) -> set[str]:
    return {f"inodes/{inode}" for inode in inodes}


def _named(paths: Sequence[str]) -> str:
    return ", ".join(map(repr, paths))


def _words(step: Step) -> str:
    verb = {"put": "create", "take": "delete", "exchange": "modify", "move": "rename", "set_facts": "set_mode"}[step.do]
    return f"{verb} {step.path!r}" + (f" -> {step.to!r}" if step.to else "")


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
