"""The steps of file actions: each a single rename, so that it is atomic, and has an inverse.

What an action takes out of the tree is not copied but moved into a stash on the same file system, as it is: content,
owner, modes, times, extended attributes, hard links and holes stay. What it brings in is prepared there first. So
undo is exact and costs the same for a file as for a folder of any size. Only `set_facts` changes something in place; it
can be repeated.
"""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from autoclave.core import HostError, InputError
from autoclave.runtime.files.scope import NothingThere, Scope, open_file
from autoclave.runtime.interface import InDoubt

_NOREPLACE, _EXCHANGE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a tree. `inode` is that of what it moves, which shows whether it has happened; `old_inode` that of
    what changes places with it.

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

    def inverse(self) -> "Step":
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
        return (self.path, self.to) if self.to else (self.path,)

    @property
    def words(self) -> str:
        verbs = {"put": "create", "take": "delete", "exchange": "modify", "move": "rename", "set_facts": "set_mode"}
        return f"{verbs[self.do]} {self.path!r}" + (f" -> {self.to!r}" if self.to else "")

    def to_json(self) -> dict[str, Any]:
        """Return JSON data without empty fields."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}


def take_steps(
    steps: Iterable[Step], scope: Scope, stash: Scope, is_right: Callable[[Step], bool] = lambda _: True
) -> None:
    """Apply the steps to the tree of `scope`; `stash` is the folder of stashed things.

    After each, what has moved is checked: if it is something else, or `is_right` returns False, others were quicker,
    and it is moved back. Durable on return.

    Raises InputError: the tree does not fit a step; those before it were taken. HostError: the file system cannot do
    it.
    """
    parents: set[str] = set()
    try:
        for step in steps:
            _take(step, scope, stash)
            parents |= {path.rpartition("/")[0] for path in step.paths}
            if not (_has_arrived(step, scope, stash) and is_right(step)):
                _take(step.inverse(), scope, stash)
                raise InputError(f"path {step.path!r}: {_CHANGED}")
    finally:
        for parent in sorted(parents):
            with contextlib.suppress(NothingThere), scope.folder(parent) as folder:  # removed by a later step
                os.fsync(folder)
        os.fsync(stash.descriptor)


def _take(step: Step, scope: Scope, stash: Scope) -> None:
    with scope.parent_of(step.path) as (parent, name):
        match step.do:
            case "take":
                _rename(parent, name, stash.descriptor, step.stash, _NOREPLACE, step)
            case "put":
                _rename(stash.descriptor, step.stash, parent, name, _NOREPLACE, step)
            case "exchange":
                _rename(parent, name, stash.descriptor, step.stash, _EXCHANGE, step)
            case "move":
                with scope.parent_of(step.to) as (other, new):
                    _rename(parent, name, other, new, _NOREPLACE, step)
            case "set_facts":
                _set_facts(parent, name, step)


def rename_problem(folder: Path) -> str:
    """Return why an atomic exchange in a folder of ours fails; empty if it works. Tries it."""
    for name in ("one", "other"):
        (folder / name).write_text(name)
    try:
        with open_file(None, folder) as parent:
            _rename(parent, "one", parent, "other", _EXCHANGE, Step("exchange", "one", "other"))
    except (InputError, HostError) as error:
        return str(error)
    return "" if (folder / "one").read_text() == "other" else "names did not change places"


def sync_file_system(folder: Path) -> None:
    """Sync the file system of a folder: quicker than file by file where there are many."""
    with open_file(None, folder) as descriptor:
        if _libc.syncfs(descriptor):
            raise HostError(f"{folder}: cannot be made durable ({os.strerror(ctypes.get_errno())})")


_CHANGED = "somebody else has changed it meanwhile"
_NO_FOLDER = -1
"""In place of an inode where the parent folder is missing."""


_Places = tuple[int | None, int | None, int | None]
"""The inodes at the path of a step, at `to`, and at its place in the stash; None where nothing is."""


def _look(step: Step, scope: Scope, stash: Scope) -> _Places:
    at_path, at_to = (_inode_below(path, scope) if path else None for path in (step.path, step.to))
    return at_path, at_to, _inode(stash.descriptor, step.stash) if step.stash else None


def _inode_below(path: str, scope: Scope) -> int | None:
    try:
        with scope.parent_of(path) as (parent, name):
            return _inode(parent, name)
    except InputError:
        return _NO_FOLDER


def _before(step: Step) -> _Places:
    match step.do:
        case "put":
            return None, None, step.inode
        case "exchange":
            return step.old_inode, None, step.inode
        case _:
            return step.inode, None, None


def _has_arrived(step: Step, scope: Scope, stash: Scope) -> bool:
    _, at_to, stashed = _look(step, scope, stash)
    return at_to == step.inode if step.do == "move" else stashed == _before(step.inverse())[2]


def has_happened(step: Step, scope: Scope, stash: Scope) -> bool:
    arrival = {"take": 2, "move": 1}.get(step.do, 0)
    is_there = _look(step, scope, stash)[arrival] == step.inode
    return is_there and (step.do != "set_facts" or _has_facts(step.path, step.facts, scope))


def is_untouched(step: Step, scope: Scope, stash: Scope) -> bool:
    """Return whether a step has certainly not happened, judged by the private stash."""
    found, before = _look(step, scope, stash), _before(step)
    if step.do == "set_facts":
        return found != before or _has_facts(step.path, step.old_facts, scope)
    return found[0] == before[0] if step.do == "move" else found[2] == before[2]


def is_possible(step: Step, scope: Scope, stash: Scope) -> bool:
    """Return whether the tree is as before the step: what it moves is there, and nothing is in its way."""
    return _look(step, scope, stash) == _before(step)


def pending(steps: Iterable[Step], scope: Scope, stash: Scope, failure: type[InputError | InDoubt]) -> Iterator[Step]:
    """Yield each step that has not happened, when those before it have. Raises `failure` if others were quicker."""
    for step in steps:
        if not has_happened(step, scope, stash):
            if not is_possible(step, scope, stash):
                raise failure(f"path {step.path!r}: {_CHANGED}")
            yield step


def inode_at(path: str, scope: Scope) -> int | None:
    """Return the inode number of what is at a path; None if nothing is."""
    try:
        with scope.parent_of(path) as (parent, name):
            return _inode(parent, name)
    except NothingThere:
        return None


def located(step: Step, scope: Scope, folder: Path) -> Step:
    """Return a step that is to be taken with the inodes of what it moves; `folder` is that of its action.

    Inodes in the tree may differ from the recorded ones. What is missing keeps the recorded inode.
    """
    own = inode_at(step.path, scope) or step.inode
    if step.do not in ("put", "exchange"):
        return replace(step, inode=own)
    inode = step.inode or _inode(None, f"{folder / step.stash}") or 0
    return replace(step, inode=inode, old_inode=own if step.do == "exchange" else 0)


def as_it_is(step: Step, scope: Scope, folder: Path) -> Step:
    """Return a step that was taken with the inode of what is now at its target."""
    return located(step.inverse(), scope, folder).inverse()


def require_kept(action: str, steps: Iterable[Step], folder: Path) -> None:
    """Raise InputError if the folder of an action lacks what steps bring from it, as after `resolve`."""
    for step in steps:
        if step.do in ("put", "exchange") and _inode(None, f"{folder / step.stash}") != step.inode:
            raise InputError(f"action {action}: what it replaced at {step.path!r} is not kept, so it stays")


def _inode(folder: int | None, name: str) -> int | None:
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
            f"path {step.path!r}: the file system cannot move it atomically ({os.strerror(number)}). Fix: give a state "
            "folder on the same file system as the tree (--state)"
        )
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
        raise HostError(f"path {step.path!r}: {step.do} failed ({os.strerror(number)}). Fix: free space on the disk")
    raise InputError(f"path {step.path!r}: {step.do} failed ({os.strerror(number)})")


def _has_facts(path: str, facts: Mapping[str, Any], scope: Scope) -> bool:
    try:
        return facts_at(path, facts, scope) == dict(facts)
    except InputError:
        return False


def facts_at(path: str, names: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the facts at a path that `names` lists, as in `Step.facts`."""
    if (entry := scope.entry(path)) is None:
        raise InputError(f"path {path!r}: there is nothing")
    attributes = dict(entry.attributes)
    return {
        name: {each: attributes.get(each) for each in names[name]} if name == "attributes" else getattr(entry, name)
        for name in names
    }


def _set_facts(parent: int, name: str, step: Step) -> None:
    try:
        with open_file(parent, name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) as descriptor:
            _set_facts_of(descriptor, parent, name, step)
    except OSError as error:
        raise InputError(f"path {step.path!r}: {', '.join(step.facts)} cannot be set ({error.strerror})") from None


def _set_facts_of(descriptor: int, parent: int, name: str, step: Step) -> None:
    facts, about = step.facts, os.fstat(descriptor)
    place = f"/proc/self/fd/{descriptor}"  # stays valid when it is renamed
    if step.inode and about.st_ino != step.inode:
        raise InputError(f"path {step.path!r}: {_CHANGED}")
    if "uid" in facts or "gid" in facts:  # first: this clears bits of the mode
        os.chown(name, facts.get("uid", -1), facts.get("gid", -1), dir_fd=parent, follow_symlinks=False)
    for each, value in facts.get("attributes", {}).items():
        if value is None:
            with contextlib.suppress(OSError):
                os.removexattr(place, each)
        else:
            os.setxattr(place, each, bytes.fromhex(value))
    if "mode" in facts and not stat.S_ISLNK(about.st_mode):
        os.chmod(place, facts["mode"])  # also of a file that cannot be opened
    if "mtime_ns" in facts:
        os.utime(name, ns=(about.st_atime_ns, facts["mtime_ns"]), dir_fd=parent, follow_symlinks=False)
