"""Steps of file operations for the tree as it is, and preparation in the stash of what they bring.

The tree is only read. No step brings a link that leads out of the folder, judged by the text of the link alone.
"""

import base64
import binascii
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.files.operations import (
    Append,
    DataOperation,
    Delete,
    Edit,
    MakeFolder,
    MakeLink,
    Move,
    SetMode,
    Write,
)
from autoclave.runtime.files.reading import PRIVATE_KEY
from autoclave.runtime.files.scope import Entry, Kind, Scope, parts_of
from autoclave.runtime.files.steps import Step, inode_at, sync_file_system
from autoclave.runtime.footprints import meet

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_CONTENT = 64 << 20
_MOST_FOLDERS = 2000


@dataclass(frozen=True, slots=True)
class New:
    """A file, folder or link prepared in the stash; `below`: nested names if it is under new folders at its place."""

    stash: str
    entry: Entry
    content: bytes = b""
    below: tuple[str, ...] = ()

    @property
    def inside(self) -> tuple[str, ...]:
        """The paths below its place, relative to it."""
        return tuple("/".join(self.below[: number + 1]) for number in range(len(self.below)))


_Planned = tuple[list[Step], list[New]]


def steps_of(operation: DataOperation, scope: Scope) -> _Planned:
    """Return the steps of an operation, without the inodes of what is new, and what to prepare for them."""
    match operation:
        case Write():
            return _write(operation.path, _bytes_of(operation), operation.mode, scope)
        case Append():
            added = operation.content.encode("utf-8", "surrogateescape")
            return _write(operation.path, _content(operation.path, scope) + added, None, scope)
        case Edit():
            return _write(operation.path, _edited(operation, scope), None, scope)
        case MakeFolder():
            if inode_at(operation.path, scope):
                raise InputError(f"path {operation.path!r}: exists already")
            return _put(operation.path, new_entry("folder", 0o755), scope)
        case MakeLink():
            return _make_link(operation, scope)
        case Delete():
            return _delete(operation, scope)
        case Move():
            return _move(operation, scope)
        case SetMode():
            return _set_mode(operation, scope)
        case _:
            raise InputError(f"{operation.do}: is recorded by an observer, and cannot be proposed")


def _bytes_of(operation: Write) -> bytes:
    if operation.content_base64 is None:
        content = operation.content.encode("utf-8", "surrogateescape")
    elif operation.content:
        raise InputError("content_base64: give either content or content_base64")
    else:
        try:
            content = base64.b64decode(operation.content_base64, validate=True)
        except (binascii.Error, ValueError):
            raise InputError("content_base64: is not valid base64") from None
    if len(content) > _MOST_CONTENT:
        raise InputError(f"path {operation.path!r}: {len(content)} bytes are too many; at most {_MOST_CONTENT} in one")
    return content


def _write(path: str, content: bytes, mode: int | None, scope: Scope) -> _Planned:
    found = scope.entry(path)
    if found is None:
        return _put(path, new_entry("file", 0o644 if mode is None else mode), scope, content)
    if found.kind != "file":
        raise InputError(f"path {path!r}: is a {found.kind}, not a file; delete or move it first")
    if (found.uid, found.gid) != (os.geteuid(), os.getegid()) and os.geteuid():
        raise InputError(f"path {path!r}: belongs to user {found.uid}, group {found.gid}, which could not be kept")
    entry = Entry("file", found.mode if mode is None else mode, found.uid, found.gid, 0, attributes=found.attributes)
    return [Step("exchange", path, "0")], [New("0", entry, content)]


def _content(path: str, scope: Scope) -> bytes:
    if (size := _existing(path, scope).size) > _MOST_CONTENT:
        raise InputError(f"path {path!r}: has {size} bytes; at most {_MOST_CONTENT} can be added to or edited")
    return scope.content(path)


def _edited(operation: Edit, scope: Scope) -> bytes:
    path, content = operation.path, _content(operation.path, scope)
    old, new = (text.encode("utf-8", "surrogateescape") for text in (operation.old_string, operation.new_string))
    if PRIVATE_KEY.search(content):
        raise InputError(f"path {path!r}: has a private key, which edits could reveal; write the whole file instead")
    if (first := content.find(old)) < 0:
        raise InputError(f"path {path!r}: old_string does not occur in it; read the file, and give its exact text")
    if first != content.rfind(old) and not operation.replace_all:
        raise InputError(
            f"path {path!r}: old_string occurs several times in it; give more of the text around it, or replace_all"
        )
    return content.replace(old, new)


def _put(path: str, entry: Entry, scope: Scope, content: bytes = b"") -> _Planned:
    """Plan something new, with the missing folders above it, as one step."""
    parts = parts_of(path)
    above = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    missing = next(number for number, each in enumerate(above) if not inode_at(each, scope))
    if len(parts) - missing > _MOST_FOLDERS:
        raise InputError(f"path {path[:200]!r}: would need {len(parts) - missing} folders; at most {_MOST_FOLDERS}")
    with scope.parent_of(above[missing]):  # it can be made there
        return [Step("put", above[missing], "0")], [New("0", entry, content, below=tuple(parts[missing + 1 :]))]


def _make_link(operation: MakeLink, scope: Scope) -> _Planned:
    is_text = operation.target and "\0" not in operation.target and not operation.target.startswith("/")
    if not is_text or way_out(operation.path, operation.target, scope.root):
        raise InputError(f"target {operation.target[:200]!r}: must be a relative path that stays in the folder")
    if _entry_or_room(operation.path, scope) is not None:
        raise InputError(f"path {operation.path!r}: exists already")
    entry = new_entry("link", 0o777, target=operation.target)
    return [Step("put", operation.path, "0")], [New("0", entry)]


def _delete(operation: Delete, scope: Scope) -> _Planned:
    found = _existing(operation.path, scope)
    if found.kind == "folder" and not operation.recursive and len(list(scope.walk(operation.path))) > 1:
        raise InputError(f"path {operation.path!r}: is a folder that is not empty; recursive = true deletes it")
    return [Step("take", operation.path, "0")], []


def _move(operation: Move, scope: Scope) -> _Planned:
    _existing(operation.path, scope)
    if meet({operation.path}, {operation.to}):
        raise InputError(f"to {operation.to!r}: must not be {operation.path!r}, or one below the other")
    require_none_led_out(operation.path, operation.to, scope)
    target, steps = _entry_or_room(operation.to, scope), list[Step]()
    if target is not None:
        if not operation.replace or target.kind == "folder":
            raise InputError(f"to {operation.to!r}: exists already; replace = true puts it in place of a file")
        steps.append(Step("take", operation.to, "0"))
    return [*steps, Step("move", operation.path, to=operation.to)], []


def _set_mode(operation: SetMode, scope: Scope) -> _Planned:
    found = _existing(operation.path, scope)
    if found.kind not in ("file", "folder"):
        raise InputError(f"path {operation.path!r}: is a {found.kind}, whose mode is not set")
    if found.mode == operation.mode:
        raise InputError(f"path {operation.path!r}: has the mode {operation.mode:o} already")
    if found.shared:  # possibly outside the folder
        raise InputError(f"path {operation.path!r}: has several names, whose mode would change as well")
    return [Step("set_facts", operation.path, facts={"mode": operation.mode}, old_facts={"mode": found.mode})], []


def _existing(path: str, scope: Scope) -> Entry:
    found = scope.entry(path)
    if found is None:
        raise InputError(f"path {path!r}: there is nothing")
    return found


def _entry_or_room(path: str, scope: Scope) -> Entry | None:
    """Return the entry at a path; None if there is none. Raises InputError where its folder is missing."""
    with scope.parent_of(path):
        return scope.entry(path)


def make(folder: Path, new: New) -> None:
    """Prepare something in a folder of the stash, durably. Raises OSError where that fails.

    Goes from descriptor to descriptor: a path may be longer than the kernel accepts.
    """
    *above, last = new.stash, *new.below
    place = os.open(folder, _FOLDER)
    try:
        for name in above:
            place = _made_folder(place, name, new_entry("folder", 0o755))
        match new.entry.kind:
            case "link":
                os.symlink(new.entry.target, last, dir_fd=place)
            case "folder":
                place = _made_folder(place, last, new.entry)
            case _:
                _make_file(place, last, new)
        os.fsync(place)
    finally:
        os.close(place)
    if above:
        sync_file_system(folder)


def new_entry(kind: Kind, mode: int, **others: Any) -> Entry:
    """Return the entry of something new that this user owns."""
    return Entry(kind, mode, os.geteuid(), os.getegid(), 0, **others)


def _made_folder(parent: int, name: str, entry: Entry) -> int:
    """Make a folder; close the descriptor of its parent and return its own."""
    os.mkdir(name, 0o700, dir_fd=parent)
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    os.close(parent)
    _set_facts(descriptor, entry)
    return descriptor


def _make_file(parent: int, name: str, new: New) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
    with open(descriptor, "wb") as file:
        file.write(new.content)
        file.flush()
        _set_facts(descriptor, new.entry)
        os.fsync(descriptor)


def _set_facts(descriptor: int, entry: Entry) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, entry.uid, entry.gid)
    for name, value in entry.attributes:
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, entry.mode)


def way_out(path: str, target: str, root: Path) -> str:
    """Return where a link at a path leads outside the folder `root`; empty if it stays within.

    A `..` after a name counts as leading out: that name may be a link, and the text does not show where to.
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
    """Raise InputError if a command brings a link that leads out, unless an existing one led to the same place."""
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
    """Raise InputError if a move would make a link lead out of the folder."""
    for path, target in _links_below(moved, tree):
        new = f"{to}{path.removeprefix(moved)}"
        if way_out(new, target, tree.root) and not way_out(path, target, tree.root):
            raise InputError(f"path {path!r}: is a link to {target!r}, which from {new!r} would lead out of the folder")


def _links_below(path: str, scope: Scope) -> Iterator[tuple[str, str]]:
    """Yield the links at and below a path, with their targets; with the path "" all in the scope."""
    if path:
        with scope.parent_of(path) as (parent, name):
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                yield path, os.readlink(name, dir_fd=parent)
    for place, descriptor, inside in scope.folders(path):
        for each in inside:
            if each.is_symlink():
                yield f"{place}/{each.name}" if place else each.name, os.readlink(each.name, dir_fd=descriptor)
