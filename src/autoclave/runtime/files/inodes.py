"""By which inodes steps know what they move: of what is in the tree and in the stash now. Only looks."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

from autoclave.core import InputError
from autoclave.runtime.files.scope import NothingThere, Scope
from autoclave.runtime.files.steps import Step


def with_inodes(step: Step, scope: Scope, folder: Path) -> Step:
    """A step that was planned, with the inodes of what it moves; `folder` is that of its action in the stash.

    Raises:
        InputError: the tree is not as the step needs it.
    """
    if step.do == "put":
        return replace(step, inode=(folder / step.stash).lstat().st_ino)
    own = inode_at(step.path, scope)
    if own is None:
        raise InputError(f"path {step.path!r}: there is nothing")
    if step.do == "set_facts" and _has_other_names(step.path, scope):
        raise InputError(f"path {step.path!r}: has several names by now; propose it again")
    if step.do == "exchange":
        return replace(step, inode=(folder / step.stash).lstat().st_ino, old_inode=own)
    return replace(step, inode=own)


def as_it_is(step: Step, scope: Scope) -> Step:
    """A step that has happened, with the inode of what is where it brought something."""
    if step.do == "take":
        return step
    return replace(step, inode=inode_at(step.to or step.path, scope) or step.inode)


def on_what_is_there(step: Step, scope: Scope) -> Step:
    """A step that is about to happen, with the inode of what it takes away.

    That is another one than was recorded, where an undo of a later action has made it anew out of Git.
    """
    if step.do == "put":
        return step
    own = inode_at(step.path, scope)
    if step.do == "exchange":
        return replace(step, old_inode=own or step.old_inode)
    return replace(step, inode=own or step.inode)


def inode_at(path: str, scope: Scope) -> int | None:
    """The inode number of what is at a path; None if nothing is."""
    try:
        with scope.parent_of(path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino
    except (NothingThere, FileNotFoundError):
        return None


def _has_other_names(path: str, scope: Scope) -> bool:
    with scope.parent_of(path) as (parent, name):
        about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode)
