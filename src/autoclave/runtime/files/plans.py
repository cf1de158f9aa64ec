"""Plans of file operations: steps, what they bring, and a digest. Changes no tree.

The digest covers the operation, what is at the paths that its steps touch, what it brings, and, for a command,
everything that it saw.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.operations import (
    Append,
    Command,
    DataOperation,
    Delete,
    Edit,
    List,
    MakeFolder,
    MakeLink,
    Move,
    Python,
    Read,
    ReadOperation,
    Search,
    SetMode,
    Write,
    key_of,
)
from autoclave.runtime.files.planning import New, require_no_new_way_out, steps_of
from autoclave.runtime.files.reading import read
from autoclave.runtime.files.scope import Scope, parts_of
from autoclave.runtime.files.steps import Step
from autoclave.runtime.files.tree_digest import Survey, is_by_inode, survey, survey_by_inode
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Json, Plan
from autoclave.runtime.packages import normalised_name
from autoclave.runtime.policy.request import Access, Request


@dataclass(frozen=True, slots=True)
class Planned:
    """Steps without inodes, what they bring by its name in the stash, what to prepare for that, and for a command its
    output and a digest of what it saw.
    """

    steps: Sequence[Step]
    brought: Mapping[str, Survey]
    new: Sequence[New] = ()
    output: Json | None = None
    seen: str = ""


class Planner:
    """Plans for the tree of `scope`; the results of a command are kept in the folder of its action in `stash`."""

    def __init__(self, scope: Scope, stash: Path, commands: CommandRunner) -> None:
        self._scope, self._stash, self._commands = scope, stash, commands
        self.latest: Mapping[str, Survey] = {}
        """Surveys of the paths of the latest plan."""

    def of_data(self, operation: Config) -> Planned:
        steps, new = steps_of(cast("DataOperation", operation), self._scope)
        brought = {each.stash: Survey("", 1 + len(each.inside), len(each.content), each.inside) for each in new}
        return Planned(steps, brought, new)

    def of_command(self, action: str, operation: Command) -> Planned:
        """Run a command over the tree as it is. Its results go to the folder of the action, which must be empty."""
        folder = self._stash / action
        steps, told, seen = self._commands.run(operation, folder)
        with Scope(folder) as made:
            require_no_new_way_out(steps, made, self._scope, operation.within)
        return Planned(steps, self._surveyed(action), output=told, seen=seen)

    def of_command_before(self, action: str, operation: Command, kept: Json, seen: str = "") -> Planned:
        """Return the earlier result of a command (`kept`), with a digest of what it would see now (or `seen`)."""
        if not (self._stash / action).is_dir():
            raise InputError(f"action {action}: the result of its command is no longer kept; propose it again")
        steps = steps_from(kept["steps"])
        seen = seen or self._commands.seen_by(action, operation, steps)
        return Planned(steps, self._surveyed(action), output=kept["output"], seen=seen)

    def _surveyed(self, action: str) -> dict[str, Survey]:
        with Scope(self._stash / action) as made:
            return {name: survey(name, made) for name, _ in made.entries_in("")}

    def plan_of_read(self, operation: ReadOperation) -> Plan:
        output, holds_secret = read(operation, self._scope)
        told = canonical_json([operation.model_dump(mode="json"), output])
        return Plan(
            digest=hashlib.sha256(told).hexdigest(),
            changes=(),
            request=Request(tuple(replace(each, holds_secret=holds_secret) for each in asked_by(operation).accesses)),
            footprint=Footprint(frozenset({key_of(operation.path)})),
            guarantee=Guarantee.EXACT,
            output=output,
            is_read=True,
        )

    def plan_of(self, operation: Config, planned: Planned) -> Plan:
        before = self.latest = surveys_of(planned.steps, self._scope)
        is_command, output = isinstance(operation, Command), planned.output or {}
        guarantee = guarantee_of(operation)
        plain = [step.to_json() for step in planned.steps]
        return Plan(
            digest=digest_of(operation, planned, before),
            changes=(
                *output.get("hidden", ()),
                *(step.words for step in planned.steps),
                *output.get("left_out", ()),
                *output.get("undo", ()),
            ),
            request=Request(
                tuple(
                    access
                    for step in planned.steps
                    for access in accesses_of(
                        step, before[step.path], planned.brought.get(step.stash, Survey()), self._scope
                    )
                ),
                guarantee,
            ),
            footprint=_footprint(operation, planned.steps, before.values()),
            guarantee=guarantee,
            kept={"steps": plain, "output": planned.output, "seen": planned.seen} if is_command else {},
            output=output,
        )


def digest_of(operation: Config, planned: Planned, before: Mapping[str, Survey]) -> str:
    told = [
        operation.model_dump(mode="json"),
        sorted((path, each.digest) for path, each in before.items()),
        [step.to_json() for step in planned.steps],
        sorted((name, each.digest) for name, each in planned.brought.items()),
        planned.seen,
    ]
    return hashlib.sha256(canonical_json(told)).hexdigest()


def _footprint(operation: Config, steps: Sequence[Step], before: Iterable[Survey]) -> Footprint:
    """Return paths, and files with several names: a change to one name changes all."""
    reads = frozenset({key_of(operation.within)}) if isinstance(operation, Command) else frozenset[str]()
    shared = (keys_of(each.shared) for each in before)
    return Footprint(reads, frozenset[str]().union(map(key_of, paths_of(steps)), *shared))


def keys_of(inodes: Iterable[int]) -> set[str]:
    """Return the keys in footprints of files with several names."""
    return {f"inodes/{inode}" for inode in inodes}


def surveys_of(steps: Sequence[Step], scope: Scope, latest: Mapping[str, Survey] | None = None) -> dict[str, Survey]:
    """Survey the paths that steps change; by inode where they go to the stash.

    Surveys by inode in `latest` are reused: when a step is taken, what it took is compared with them.
    """
    stashed = {step.path for step in steps if step.do in ("take", "exchange")}
    known = {path: each for path, each in (latest or {}).items() if path in stashed and is_by_inode(each.digest)}
    return {
        path: known.get(path) or (survey_by_inode if path in stashed else survey)(path, scope)
        for path in paths_of(steps)
    }


def steps_from(plain: Sequence[Json]) -> list[Step]:
    return [Step(**step) for step in plain]


def paths_of(steps: Sequence[Step]) -> list[str]:
    return sorted({path for step in steps for path in step.paths})


def asked_by(operation: Config) -> Request:
    """Return the accesses that planning makes: a command is run to see what it would do."""
    if isinstance(operation, Read | Edit):  # an edit shows whether a text is in the file
        return Request((Access("read", key_of(operation.path)),))
    if isinstance(operation, List | Search):
        return Request((Access("read", f"{key_of(operation.path)}/**"),))
    if not isinstance(operation, Command):
        return Request(())
    packages = operation.packages if isinstance(operation, Python) else ()
    return Request(
        (
            *(Access("run", f"programs/{name}") for name in _programs(operation)),
            Access("read", f"{key_of(operation.within)}/**"),
            *(Access("import", f"packages/{normalised_name(name)}") for name in packages),
            *(Access("use", f"services/{name}") for name in operation.secrets),
            *([Access("use", "network/host")] if operation.network else []),
        ),
        guarantee_of(operation),
    )


_NEEDED: Mapping[type[Config], Sequence[tuple[str, str]]] = {
    Write: (("path", "create modify"),),
    Append: (("path", "modify"),),
    MakeFolder: (("path", "create"),),
    MakeLink: (("path", "create"),),
    Delete: (("path", "delete"),),
    Move: (("path", "read"), ("path", "rename"), ("to", "rename")),
    SetMode: (("path", "set_mode"),),
}
"""Fields with paths of operations, each with verbs, one of which every plan has."""


def needed_by(operation: Config, scope: Scope) -> list[tuple[Access, ...]]:
    """See `Manager.needs`. Each group has a path as it is given, its real place, and the first folder missing there.

    Raises as `parts_of`.
    """
    found: list[tuple[Access, ...]] = []
    for field, verbs in _NEEDED.get(type(operation), ()):
        parts = parts_of(path := getattr(operation, field))
        above = ("/".join(parts[:number]) for number in range(1, len(parts)))
        first = next((each for each in above if not os.path.lexists(scope.root / each)), path)
        places = dict.fromkeys((key_of(path), _resource(path, scope), _resource(first, scope)))
        found.append(tuple(Access(verb, place) for place in places for verb in verbs.split()))
    return found


def guarantee_of(operation: Config) -> Guarantee:
    """Return the guarantee of an operation: the folder is restored exactly, requests to others are not undone."""
    has_network = isinstance(operation, Command) and (operation.secrets or operation.network)
    return Guarantee.NONE if has_network else Guarantee.EXACT


def accesses_of(step: Step, old: Survey, new: Survey, scope: Scope) -> Iterator[Access]:
    """Yield the accesses of a step. A move also reads: what is moved can be read at its new place."""
    resource = _resource(step.path, scope)
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
            yield Access("read", resource, tuple(f"{resource}/{name}" for name in inner))
            for place in (resource, _resource(step.to, scope)):
                yield Access("rename", place, tuple(f"{place}/{name}" for name in inner), max(1, len(inner) + 1))
        case "set_facts":
            yield Access("set_mode", resource, (), 1)


def _resource(path: str, scope: Scope) -> str:
    """Return the resource of a path in the policy: its real place, with links resolved."""
    above, _, name = path.rpartition("/")
    place = os.path.join(os.path.realpath(scope.root / above), name)
    within = os.path.relpath(place, scope.root)
    return f"outside{place}" if within.startswith("..") else key_of(within)


def _programs(operation: Command) -> list[str]:
    """Return the names of the programs that it runs, including its undo."""
    if isinstance(operation, Python):
        return ["python"]
    commands = [operation.command, *([operation.undo] if operation.undo else [])]
    return list(dict.fromkeys(command[0].rpartition("/")[2] for command in commands))
