"""Undos that came with commands: used where a test proved that one restores what its command changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.runtime.files.commands import CommandRunner, undoing_command
from autoclave.runtime.files.folder_times import times_around, times_before
from autoclave.runtime.files.operations import OPERATIONS, Command
from autoclave.runtime.files.plans import paths_of
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import located
from autoclave.runtime.files.tree_digest import Survey, tree_digest_of_names, tree_digest_with_times
from autoclave.runtime.interface import Json, UndoneWith


class SuppliedUndo:
    """For the tree of `scope`; what such an undo brings is in the folder of its action in `stash`."""

    def __init__(self, scope: Scope, stash: Path, commands: CommandRunner) -> None:
        self._scope, self._stash, self._commands = scope, stash, commands

    def recorded(self, operation: Config, tested: Json, before: Mapping[str, Survey]) -> Json | None:
        """Return what a receipt holds of it; None if its test did not say that it is to be used."""
        if not isinstance(operation, Command) or "is_exact" not in tested:
            return None
        if any(each.shared for each in before.values()):
            return None  # a command cannot restore that a file has several names
        undo = undoing_command(operation)
        assert undo is not None
        digest = _digest_for(tested)
        digests = {path: digest(path, self._scope) for path in before}
        return {"operation": undo.model_dump(mode="json"), "is_exact": tested["is_exact"], "digests": digests}

    def plan(self, action: str, receipt: Json, found: Mapping[str, str], undone_with: UndoneWith) -> dict[str, Any]:
        """Run the command that undoes an action over the tree as it is now; the steps that do what it did.

        What it brings is beside what is kept, in a folder of its own.

        Raises:
            InputError: it failed, or would change something else.
        """
        given, folder = receipt["reversal"]["operation"], self._stash / action
        name = next(f"undo{number}" for number in itertools.count() if not (folder / f"undo{number}").exists())
        (folder / name).mkdir()
        undo = cast("Command", OPERATIONS[given["do"]].model_validate(given))
        ran = self._commands.run(undo, folder / name)
        if self._commands.seen_by(undo) != ran.seen:
            raise InputError("somebody changed the folder while the undo of the action ran")
        captured = [replace(step, stash=f"{name}/{step.stash}") if step.stash else step for step in ran.capture.steps]
        beyond = [path for path in paths_of(captured) if not any(_is_within(path, each) for each in receipt["before"])]
        if beyond:
            raise InputError(f"the undo of the action would change {named(beyond)}, which the action did not")
        new = [step.path for step in captured if step.do in ("put", "exchange")]
        if new and receipt["reversal"]["is_exact"]:
            raise InputError(f"the undo of the action would bring new inodes to {named(new)}")
        steps = [located(step, self._scope, folder) for step in captured]
        return {
            "steps": [step.to_json() for step in steps],
            "found": found,
            "wanted": {},
            "reversal": receipt["reversal"],
            "is_preferred": True,
            "times": times_before(steps, receipt, undone_with, self._scope),
            "around": times_around(steps, self._scope),
            "skipped": [],
        }

    def wrong_after(self, reversal: Json) -> list[str]:
        """Return the paths that are not as they were before the action."""
        digest = _digest_for(reversal)
        return [path for path, was in reversal["digests"].items() if digest(path, self._scope) != was]


def named(paths: Iterable[str]) -> str:
    """Return paths as they stand in a message."""
    return ", ".join(map(repr, paths))


def _digest_for(reversal: Json) -> Callable[[str, Scope], str]:
    return tree_digest_with_times if reversal["is_exact"] else tree_digest_of_names


def _is_within(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")
