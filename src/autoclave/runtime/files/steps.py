"""The steps that file actions are made of: each a single rename, so that it has happened or not, and has an inverse.

What an action takes out of the tree is not copied but moved into a stash on the same file system, as it is: content,
owner, modes, times, extended attributes, hard links and holes stay. What it brings in is made ready there first. So
undo is exact and costs the same for a file as for a folder of any size. Only `set_facts` changes something in place; it
can be repeated.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from autoclave.core import HostError, InputError
from autoclave.runtime.files.scope import NothingThere, Scope

_NOREPLACE, _EXCHANGE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a tree. `inode` is that of what it moves, by which one that has happened is recognised; `old_inode`
    that of what changes places with it.

    `take`: what is at `path` goes to the place `stash`. `put`: what is at that place goes to `path`, where nothing is.
    `exchange`: both change places. `move`: what is at `path` goes to `to`, where nothing is. `set_facts`: of what is at
    `path` those of `facts` are set, which were `old_facts`: `mode`, `uid`, `gid`, `mtime_ns`, `attributes` (a mapping
    of extended attributes as hexadecimal text, null for those that are not there).
    """

    do: Literal["take", "put", "exchange", "move", "set_facts"]
    path: str
    stash: str = ""
    to: str = ""
    inode: int = 0
    old_inode: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    old_facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

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
            case "set_facts":
                return replace(self, facts=self.old_facts, old_facts=self.facts)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it changes, each with all that is below it."""
        return (self.path, self.to) if self.to else (self.path,)

    def to_json(self) -> dict[str, Any]:
        """As JSON data, without what it does not need."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}


def take_steps(
    steps: Iterable[Step], scope: Scope, stash: int, is_right: Callable[[Step], bool] = lambda _: True
) -> None:
    """Change the tree of `scope` as the steps say; `stash` is a descriptor of the folder that stashed things are in.

    After each it is looked at what has moved: if that is something else, or `is_right` says so, somebody else was
    quicker, and it goes back. Durable when this returns.

    Raises:
        InputError: the tree is not as a step needs it; those before it were taken.
        HostError: the file system cannot do it.
    """
    parents: set[str] = set()
    try:
        for step in steps:
            _take(step, scope, stash)
            parents |= {path.rpartition("/")[0] for path in step.paths}
            if not (_has_arrived(step, scope, stash) and is_right(step)):
                _take(step.inverse(), scope, stash)
                raise changed_meanwhile(step)
    finally:
        for parent in sorted(parents):
            with contextlib.suppress(NothingThere), scope.folder(parent) as folder:  # a later step took it away
                os.fsync(folder)
        os.fsync(stash)


def _take(step: Step, scope: Scope, stash: int) -> None:
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
            case "set_facts":
                _set_facts(parent, name, step)


def changed_meanwhile(step: Step) -> InputError:
    """The error that somebody else was quicker."""
    return InputError(f"path {step.path!r}: somebody else has changed it meanwhile")


def _has_arrived(step: Step, scope: Scope, stash: int) -> bool:
    """Whether what a step took is what it was to take."""
    match step.do:
        case "take":
            return _inode(stash, step.stash) == step.inode
        case "exchange":
            return _inode(stash, step.stash) == step.old_inode
        case "move":
            return has_happened(step, scope, stash)
        case _:
            return True


def rename_problem(folder: Path) -> str:
    """Why things cannot change places at once in a folder of ours; empty if they can. Tries it."""
    for name in ("one", "other"):
        (folder / name).write_text(name)
    parent = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _rename(parent, "one", parent, "other", _EXCHANGE, Step("exchange", "one", "other"))
    except (InputError, HostError) as error:
        return str(error)
    finally:
        os.close(parent)
    return "" if (folder / "one").read_text() == "other" else "names did not change places"


def sync_file_system(folder: Path) -> None:
    """Make all durable that is on the file system of a folder: quicker than file by file where there are many."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(descriptor):
            raise HostError(f"{folder}: cannot be made durable ({os.strerror(ctypes.get_errno())})")
    finally:
        os.close(descriptor)


def has_happened(step: Step, scope: Scope, stash: int) -> bool:
    """Whether the tree is as it is after the step, which was begun when a process died."""
    if step.do == "take":
        return _inode(stash, step.stash) == step.inode
    try:
        with scope.parent_of(step.to or step.path) as (parent, name):
            if step.do == "set_facts":
                return _inode(parent, name) == step.inode and _has_facts(parent, name, step.facts)
            return _inode(parent, name) == step.inode
    except NothingThere:
        return False


def is_untouched(step: Step, scope: Scope, stash: int) -> bool:
    """Whether it is certain that a step has not happened, whatever somebody else has done to the tree.

    The stash tells: nobody else works there.
    """
    match step.do:
        case "take":
            return _inode(stash, step.stash) is None
        case "put" | "exchange":
            return _inode(stash, step.stash) == step.inode
        case _:
            try:
                with scope.parent_of(step.path) as (parent, name):
                    is_there = _inode(parent, name) == step.inode
                    if step.do == "move":
                        return is_there
                    return not is_there or _has_facts(parent, name, step.old_facts)
            except NothingThere:
                return step.do == "set_facts"


def is_possible(step: Step, scope: Scope, stash: int) -> bool:
    """Whether the tree is as it was before the step: what it moves is there, and nothing else in its way."""
    try:
        with scope.parent_of(step.path) as (parent, name):
            match step.do:
                case "take" | "set_facts":
                    return _inode(parent, name) == step.inode
                case "put":
                    return _inode(parent, name) is None and _inode(stash, step.stash) == step.inode
                case "exchange":
                    return _inode(parent, name) == step.old_inode and _inode(stash, step.stash) == step.inode
                case "move":
                    with scope.parent_of(step.to) as (other, new):
                        return _inode(parent, name) == step.inode and _inode(other, new) is None
    except NothingThere:
        return False


def _inode(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


def _rename(parent: int, name: str, other: int, new: str, flags: int, step: Step) -> None:
    names = os.fsencode(name), os.fsencode(new)
    if _libc.renameat2(parent, names[0], other, names[1], flags) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EXDEV):
        raise HostError(
            f"path {step.path!r}: the file system cannot move it at once ({os.strerror(number)}). Fix: give a state "
            "folder on the same file system as the tree (--state)"
        )
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
        raise HostError(f"path {step.path!r}: {step.do} failed ({os.strerror(number)}). Fix: make room on the disk")
    raise InputError(f"path {step.path!r}: {step.do} failed ({os.strerror(number)})")


# --- Facts -----------------------------------------------------------------------------------------------------------


def _has_facts(parent: int, name: str, facts: Mapping[str, Any]) -> bool:
    try:
        with _opened(parent, name) as (about, place):
            return _facts_of(about, place, facts) == dict(facts)
    except OSError:
        return False


def _facts_of(about: os.stat_result, place: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    known = {
        "mode": stat.S_IMODE(about.st_mode),
        "uid": about.st_uid,
        "gid": about.st_gid,
        "mtime_ns": about.st_mtime_ns,
    }
    found: dict[str, Any] = {name: known[name] for name in wanted if name in known}
    if "attributes" in wanted:
        names = set(os.listxattr(place)) if place else set[str]()
        found["attributes"] = {
            each: os.getxattr(place, each).hex() if each in names else None for each in wanted["attributes"]
        }
    return found


def facts_at(path: str, names: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """The facts of what is at a path, of those names that `Step.facts` may have.

    Raises:
        InputError: nothing is there, or it cannot be looked at.
    """
    try:
        with scope.parent_of(path) as (parent, name), _opened(parent, name) as (about, place):
            return _facts_of(about, place, names)
    except OSError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"path {path!r}: cannot be looked at ({error.strerror})") from None


def _set_facts(parent: int, name: str, step: Step) -> None:
    facts = step.facts
    try:
        with _opened(parent, name) as (about, place):
            if step.inode and about.st_ino != step.inode:
                raise changed_meanwhile(step)
            if "uid" in facts or "gid" in facts:  # first: it clears bits of the mode
                os.chown(name, facts.get("uid", -1), facts.get("gid", -1), dir_fd=parent, follow_symlinks=False)
            for each, value in facts.get("attributes", {}).items():
                if value is None:
                    with contextlib.suppress(OSError):
                        os.removexattr(place, each)
                else:
                    os.setxattr(place, each, bytes.fromhex(value))
            if "mode" in facts and place:
                os.chmod(place, facts["mode"])  # also of a file that cannot be opened
            if "mtime_ns" in facts:
                times = (about.st_atime_ns, facts["mtime_ns"])
                os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if isinstance(error, InputError | HostError):
            raise
        raise InputError(f"path {step.path!r}: {', '.join(facts)} cannot be set ({error.strerror})") from None


@contextlib.contextmanager
def _opened(parent: int, name: str) -> Generator[tuple[os.stat_result, str]]:
    """What is known of a thing, and a path that names it whatever its name becomes; the empty one of a link."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        about = os.fstat(descriptor)
        yield about, "" if stat.S_ISLNK(about.st_mode) else f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
