"""Where links lead to: out of the folder, or not. Text alone decides it; no link is followed."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoclave.core import InputError
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step


def way_out(path: str, target: str, root: Path) -> str:
    """Where a link at a path leads to outside of the folder `root`; empty if it stays within.

    A `..` after a name counts as leading out: that name may be a link, and then nobody can tell from the text.
    """
    if target.startswith("/"):
        place = posixpath.normpath(target)
        return "" if Path(place).is_relative_to(root) else place
    parts = [part for part in target.split("/") if part not in ("", ".")]
    num_up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    if num_up > path.count("/") or ".." in parts[num_up:]:
        return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return ""


def require_no_new_way_out(steps: Sequence[Step], stash: Scope, tree: Scope, within: str) -> None:
    """Raise InputError if what a command brings has a link that leads out, but for where one led before."""
    found = {
        f"{step.path}{path.removeprefix(step.stash)}": target
        for step in steps
        if step.do in ("put", "exchange")
        for path, target in _links_below(step.stash, stash)
    }
    outward = {path: out for path, target in found.items() if (out := way_out(path, target, tree.root))}
    if not outward:
        return
    known = {way_out(path, target, tree.root) for path, target in _links_below(within, tree)}
    for path, out in outward.items():
        if out not in known:
            raise InputError(
                f"path {path!r}: is made a link to {found[path]!r}, which leads out of the folder; nothing was done"
            )


def require_none_led_out(moved: str, to: str, tree: Scope) -> None:
    """Raise InputError if a link that stays within the folder would lead out of it once it is moved."""
    for path, target in _links_below(moved, tree):
        new = f"{to}{path.removeprefix(moved)}"
        if way_out(new, target, tree.root) and not way_out(path, target, tree.root):
            raise InputError(f"path {path!r}: is a link to {target!r}, which from {new!r} would lead out of the folder")


def _links_below(path: str, scope: Scope) -> Iterator[tuple[str, str]]:
    """The links at a path and below it, with what they say; with the path "" those in the scope."""
    if path:
        with scope.parent_of(path) as (parent, name):
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                yield path, os.readlink(name, dir_fd=parent)
    for place, descriptor, inside in scope.folders(path):
        for each in inside:
            if each.is_symlink():
                yield f"{place}/{each.name}" if place else each.name, os.readlink(each.name, dir_fd=descriptor)
