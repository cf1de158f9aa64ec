"""What actions took out of the tree, from the stash to Git once they are done, and back to the stash for an undo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from autoclave.runtime.files.capture import remove_tree_or_file
from autoclave.runtime.files.git_store import GitStore, Place, can_keep, tree_bytes
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step, sync_file_system


class Keeping:
    """`history` is looked into for what the stash does not have; with `is_used`, what was done goes there."""

    def __init__(self, scope: Scope, stash: Path, history: GitStore | None, *, is_used: bool) -> None:
        self._scope, self._stash, self._history, self._is_used = scope, stash, history, is_used

    def keep(self, action: str, steps: Sequence[Step]) -> None:
        """Give Git what it can keep whole of what steps took out of the tree. The rest stays in the stash.

        Raises:
            InputError, HostError: that cannot be now; all stays in the stash.
        """
        if self._history is None or not self._is_used:
            return
        with Scope(self._stash / action) as stash:
            before = [Place(step.path, stash, step.stash) for step in steps if step.do in ("take", "exchange")]
            before = [each for each in before if can_keep(each)]
            brought = [step.path for step in steps if step.do in ("put", "exchange")]
            after = [Place(path, self._scope, path) for path in brought]
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

    def with_restored(self, action: str, steps: Sequence[Step]) -> list[Step]:
        """The steps of an action, after what Git keeps of it has been brought back to the stash.

        Raises:
            DataError, HostError: it cannot be.
        """
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

    def forget(self, action: str) -> None:
        """Remove what Git keeps of an action."""
        if self._history is not None:
            self._history.forget(action)
