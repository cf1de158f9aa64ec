"""The steps that file actions are made of: each a single rename, so that it has happened or not, and has an inverse.

What an action takes out of the tree is not copied but moved into a stash on the same file system, as it is: content,
owner, modes, times, extended attributes, hard links and holes stay. What it brings in is made ready there first. So
undo is exact and costs the same for a file as for a folder of any size.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from autoclave.core import HostError, InputError
from autoclave.runtime.scope import NothingThere, Scope

_NOREPLACE, _EXCHANGE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a tree. `inode` is that of what it moves, by which one that has happened is recognised; `old_inode`
    that of what changes places with it.

    `take`: what is at `path` goes to the place `stash`. `put`: what is at that place goes to `path`, where nothing is.
    `exchange`: both change places. `move`: what is at `path` goes to `to`, where nothing is. `set_mode`: the mode of
    `path` becomes `mode`; it was `old_mode`.
    """

    do: Literal["take", "put", "exchange", "move", "set_mode"]
    path: str
    stash: str = ""
    to: str = ""
    inode: int = 0
    old_inode: int = 0
    mode: int = 0
    old_mode: int = 0

    def inverse(self) -> Step:
        """The step that takes it back."""
        match self.do:
            case "take":
                return replace(self, do="put")
            case "put":
                return replace(self, do="take")
            case "exchange":
                return replace(self, inode=self.old_inode, old_inode=self.inode)
            case "move":
                return replace(self, path=self.to, to=self.path)
            case "set_mode":
                return replace(self, mode=self.old_mode, old_mode=self.mode)

    def to_json(self) -> dict[str, Any]:
        """As JSON data, without what it does not need."""
        return {name: value for name, value in asdict(self).items() if value}


def take_step(step: Step, scope: Scope, stash: int) -> None:
    """Change the tree of `scope` as `step` says; `stash` is a descriptor of the folder that stashed things are in.

    Durable when this returns.

    Raises:
        InputError: the tree is not as the step needs it.
        HostError: the file system cannot do it.
    """
    with scope.parent_of(step.path) as (parent, name):
        match step.do:
            case "take":
                _rename(parent, name, stash, step.stash, _NOREPLACE, step)
            case "put":
                _rename(stash, step.stash, parent, name, _NOREPLACE, step)
            case "exchange":
                _rename(parent, name, stash, step.stash, _EXCHANGE, step)
            case "move":
                with scope.parent_of(step.to) as (other, new):
                    _rename(parent, name, other, new, _NOREPLACE, step)
                    _sync(other)
            case "set_mode":
                _set_mode(parent, name, step)
        _sync(parent)
    _sync(stash)


def has_happened(step: Step, scope: Scope, stash: int) -> bool:
    """Whether the tree is as it is after the step, which was begun when a process died."""
    if step.do == "take":
        return _inode(stash, step.stash) == step.inode
    try:
        with scope.parent_of(step.to or step.path) as (parent, name):
            return _mode(parent, name) == step.mode if step.do == "set_mode" else _inode(parent, name) == step.inode
    except NothingThere:
        return False


def is_possible(step: Step, scope: Scope, stash: int) -> bool:
    """Whether the tree is as it was before the step: what it moves is there, and nothing else in its way."""
    try:
        with scope.parent_of(step.path) as (parent, name):
            match step.do:
                case "take":
                    return _inode(parent, name) == step.inode
                case "put":
                    return _inode(parent, name) is None and _inode(stash, step.stash) == step.inode
                case "exchange":
                    return _inode(parent, name) == step.old_inode and _inode(stash, step.stash) == step.inode
                case "set_mode":
                    return _mode(parent, name) == step.old_mode
                case "move":
                    with scope.parent_of(step.to) as (other, new):
                        return _inode(parent, name) == step.inode and _inode(other, new) is None
    except NothingThere:
        return False


def _inode(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def _mode(folder: int, name: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def _rename(parent: int, name: str, other: int, new: str, flags: int, step: Step) -> None:
    names = os.fsencode(name), os.fsencode(new)
    if _libc.renameat2(parent, names[0], other, names[1], flags) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EXDEV):
        raise HostError(
            f"path {step.path!r}: the file system cannot move it at once ({os.strerror(number)}). Mend: give a state "
            "folder on the same file system as the tree (--state)"
        )
    raise InputError(f"path {step.path!r}: {step.do} failed ({os.strerror(number)})")


def _set_mode(parent: int, name: str, step: Step) -> None:
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{descriptor}", step.mode)  # also of a file that cannot be opened
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"path {step.path!r}: its mode cannot be set ({error.strerror})") from None


def _sync(folder: int) -> None:
    """Make a folder durable, of which there may be only a descriptor that names it."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
