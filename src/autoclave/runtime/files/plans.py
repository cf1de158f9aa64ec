"""What file operations would do: steps, what they bring, and a digest of all that they are about. Changes no tree.

The digest is of the operation, of what is at the paths that its steps touch, of what it brings, and, for a command, of
all that it saw: another tree, another digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.files.accesses import accesses_of, guarantee_of, key_of
from autoclave.runtime.files.commands import CommandRunner
from autoclave.runtime.files.links import require_no_new_way_out
from autoclave.runtime.files.making import New
from autoclave.runtime.files.operations import Command, DataOperation
from autoclave.runtime.files.planning import Survey, steps_of, survey
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.interface import Json, Plan
from autoclave.runtime.policy.request import Request


@dataclass(frozen=True, slots=True)
class Planned:
    """Steps without inodes, what they bring in by its name in the stash, what must be made ready for that, and of a
    command what is to be recorded and a digest of what it saw.
    """

    steps: Sequence[Step]
    brought: Mapping[str, Survey]
    new: Sequence[New] = ()
    output: Json | None = None
    seen: str = ""


class Planner:
    """Plans for the tree of `scope`; what a command makes is kept in the folder of its action in `stash`."""

    def __init__(self, scope: Scope, stash: Path, commands: CommandRunner) -> None:
        self._scope, self._stash, self._commands = scope, stash, commands

    def of_data(self, operation: Config) -> Planned:
        """What an operation that is no command would do.

        Raises:
            InputError: it cannot be done.
        """
        steps, new = steps_of(cast("DataOperation", operation), self._scope)
        brought = {each.stash: Survey("", 1 + len(each.chain), len(each.content), each.inside) for each in new}
        return Planned(steps, brought, new)

    def of_command(self, action: str, operation: Command) -> Planned:
        """What a command did over the tree as it is. What it made is in the folder of the action, empty before.

        Raises:
            InputError: it failed, or may not be done.
        """
        folder = self._stash / action
        ran = self._commands.run(operation, folder)
        with Scope(folder) as made:
            require_no_new_way_out(ran.capture.steps, made, self._scope, operation.within)
        return Planned(ran.capture.steps, self._surveyed(action), output=ran.told, seen=ran.seen)

    def of_command_before(self, action: str, operation: Command, kept: Json, seen: str = "") -> Planned:
        """What a command did when it was planned (`kept`), and a digest of what it would see now (`seen`, if given).

        Raises:
            InputError: what it made is not kept any more.
        """
        if not (self._stash / action).is_dir():
            raise InputError(f"action {action}: what its command made is not kept any more; propose it again")
        seen = seen or self._commands.seen_by(operation)
        return Planned(steps_from(kept["steps"]), self._surveyed(action), output=kept["output"], seen=seen)

    def _surveyed(self, action: str) -> dict[str, Survey]:
        with Scope(self._stash / action) as made:
            return {name: survey(name, made) for name, _ in made.entries_in("")}

    def plan_of(self, operation: Config, planned: Planned) -> Plan:
        """The plan, for the tree as it is now."""
        before = {path: survey(path, self._scope) for path in paths_of(planned.steps)}
        is_command, output = isinstance(operation, Command), planned.output or {}
        plain = [step.to_json() for step in planned.steps]
        return Plan(
            digest=digest_of(operation, planned, before),
            changes=(*map(_words, planned.steps), *output.get("left_out", ())),
            request=Request(
                tuple(
                    access
                    for step in planned.steps
                    for access in accesses_of(
                        step, before[step.path], planned.brought.get(step.stash, Survey()), self._scope
                    )
                ),
                guarantee_of(operation),
            ),
            footprint=_footprint(operation, planned.steps, before.values()),
            guarantee=guarantee_of(operation),
            kept={"steps": plain, "output": planned.output, "seen": planned.seen} if is_command else {},
            output=output,
        )


def digest_of(operation: Config, planned: Planned, before: Mapping[str, Survey]) -> str:
    """The digest of a plan, where what is at its paths is `before`."""
    told = [
        operation.model_dump(mode="json"),
        sorted((path, each.fingerprint) for path, each in before.items()),
        [step.to_json() for step in planned.steps],
        sorted((name, each.fingerprint) for name, each in planned.brought.items()),
        planned.seen,
    ]
    return hashlib.sha256(canonical_json(told)).hexdigest()


def _footprint(operation: Config, steps: Sequence[Step], before: Iterable[Survey]) -> Footprint:
    """Paths, and files with several names: what is done to one of those is done to all."""
    reads = frozenset({key_of(operation.within)}) if isinstance(operation, Command) else frozenset[str]()
    shared = (keys_of(each.shared) for each in before)
    return Footprint(reads, frozenset[str]().union(map(key_of, paths_of(steps)), *shared))


def keys_of(inodes: Iterable[int]) -> set[str]:
    """The keys in footprints of files with several names."""
    return {f"inodes/{inode}" for inode in inodes}


def steps_from(plain: Sequence[Json]) -> list[Step]:
    """Steps out of JSON data."""
    return [Step(**step) for step in plain]


def paths_of(steps: Sequence[Step]) -> list[str]:
    """All paths that steps change."""
    return sorted({path for step in steps for path in step.paths})


def _words(step: Step) -> str:
    verb = {"put": "create", "take": "delete", "exchange": "modify", "move": "rename", "set_facts": "set_mode"}[step.do]
    return f"{verb} {step.path!r}" + (f" -> {step.to!r}" if step.to else "")
