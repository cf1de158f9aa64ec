"""The steps that a file operation is made of, for the tree as it is. Looks at the tree; changes nothing."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass, replace

from autoclave.core import InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.files.links import require_none_led_out, way_out
from autoclave.runtime.files.making import New
from autoclave.runtime.files.operations import (
    Append,
    DataOperation,
    Delete,
    MakeFolder,
    MakeLink,
    Move,
    SetMode,
    Write,
)
from autoclave.runtime.files.scope import Entry, NothingThere, Scope, open_file, parts_of
from autoclave.runtime.files.steps import Step
from autoclave.runtime.footprints import meet

_MOST_CONTENT = 64 << 20
_MOST_FOLDERS = 2000


_Planned = tuple[list[Step], list[New]]


def steps_of(operation: DataOperation, scope: Scope) -> _Planned:
    """The steps of an operation, without the inodes of what is new, and what must be made ready for them.

    Raises:
        InputError: it cannot be done to this tree; the message names the path and why.
    """
    match operation:
        case Write():
            return _write(operation.path, _bytes_of(operation), operation.mode, scope)
        case Append():
            return _append(operation, scope)
        case MakeFolder():
            return _make_folder(operation, scope)
        case MakeLink():
            return _make_link(operation, scope)
        case Delete():
            return _delete(operation, scope)
        case Move():
            return _move(operation, scope)
        case SetMode():
            return _set_mode(operation, scope)


@dataclass(frozen=True, slots=True)
class Survey:
    """What is at a path and below it: a digest of all that can be put back (empty: nothing is there), and how much.

    `inside` are the paths below it, seen from there; `shared` the inodes of files there that have several names.
    The times of folders are left out of the digest: they change with what is in them.
    """

    fingerprint: str = ""
    num_files: int = 0
    num_bytes: int = 0
    inside: tuple[str, ...] = ()
    shared: frozenset[int] = frozenset()


def survey(path: str, scope: Scope) -> Survey:
    """Look at a path and all below it.

    Raises:
        InputError: something cannot be read, or changes meanwhile.
    """
    digest, num_bytes, names, shared = hashlib.sha256(), 0, list[str](), set[int]()
    for each, entry in scope.walk(path):
        names.append(each.removeprefix(f"{path}/"))
        num_bytes += entry.size
        shared |= {entry.shared} if entry.shared else set()
        told = replace(entry, mtime_ns=0 if entry.kind == "folder" else entry.mtime_ns, shared=0)
        digest.update(canonical_json([each.removeprefix(path), told]) + b"\n")
    if not names:
        return Survey()
    return Survey(digest.hexdigest(), len(names), num_bytes, tuple(names[1:]), frozenset(shared))


def fingerprint(path: str, scope: Scope) -> str:
    """The digest of `survey`."""
    return survey(path, scope).fingerprint


def _bytes_of(operation: Write) -> bytes:
    if operation.content_base64 is None:
        content = operation.content.encode("utf-8", "surrogateescape")
    elif operation.content:
        raise InputError("content_base64: give either content or content_base64")
    else:
        try:
            content = base64.b64decode(operation.content_base64, validate=True)
        except (binascii.Error, ValueError):
            raise InputError("content_base64: is no base64") from None
    if len(content) > _MOST_CONTENT:
        raise InputError(f"path {operation.path!r}: {len(content)} bytes are too many; at most {_MOST_CONTENT} in one")
    return content


def _write(path: str, content: bytes, mode: int | None, scope: Scope) -> _Planned:
    found = _entry_or_room(path, scope)
    if found is None:
        entry = Entry("file", 0o644 if mode is None else mode, os.geteuid(), os.getegid(), 0)
        return [Step("put", path, "0")], [New("0", entry, content)]
    if found.kind != "file":
        raise InputError(f"path {path!r}: is a {found.kind}, not a file; delete or move it first")
    _require_own(path, found)
    entry = Entry("file", found.mode if mode is None else mode, found.uid, found.gid, 0, attributes=found.attributes)
    return [Step("exchange", path, "0")], [New("0", entry, content)]


def _append(operation: Append, scope: Scope) -> _Planned:
    found = _existing(operation.path, scope)
    if found.kind != "file":
        raise InputError(f"path {operation.path!r}: is a {found.kind}, not a file")
    if found.size > _MOST_CONTENT:
        raise InputError(f"path {operation.path!r}: has {found.size} bytes; at most {_MOST_CONTENT} can be added to")
    try:
        with scope.parent_of(operation.path) as (parent, name), open_file(parent, name) as descriptor:
            old = os.pread(descriptor, found.size, 0)
    except PermissionError as error:
        raise InputError(f"path {operation.path!r}: cannot be read ({error.strerror})") from None
    return _write(operation.path, old + operation.content.encode("utf-8", "surrogateescape"), None, scope)


def _make_folder(operation: MakeFolder, scope: Scope) -> _Planned:
    parts = parts_of(operation.path)
    above = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    missing = next((number for number, path in enumerate(above) if not _is_there(path, scope)), None)
    if missing is None:
        raise InputError(f"path {operation.path!r}: is there already")
    chain = tuple(parts[missing + 1 :])
    if len(chain) >= _MOST_FOLDERS:
        raise InputError(f"path {operation.path[:200]!r}: would need {len(chain) + 1} folders; at most {_MOST_FOLDERS}")
    entry = Entry("folder", 0o755, os.geteuid(), os.getegid(), 0)
    return [Step("put", above[missing], "0")], [New("0", entry, chain=chain)]


def _make_link(operation: MakeLink, scope: Scope) -> _Planned:
    is_text = operation.target and "\0" not in operation.target and not operation.target.startswith("/")
    if not is_text or way_out(operation.path, operation.target, scope.root):
        raise InputError(f"target {operation.target[:200]!r}: must be a relative path that stays in the folder")
    if _entry_or_room(operation.path, scope) is not None:
        raise InputError(f"path {operation.path!r}: is there already")
    entry = Entry("link", 0o777, os.geteuid(), os.getegid(), 0, target=operation.target)
    return [Step("put", operation.path, "0")], [New("0", entry)]


def _delete(operation: Delete, scope: Scope) -> _Planned:
    found = _existing(operation.path, scope)
    if found.kind == "folder" and not operation.recursive and len(list(scope.walk(operation.path))) > 1:
        raise InputError(f"path {operation.path!r}: is a folder with something in it; recursive = true deletes it, too")
    return [Step("take", operation.path, "0")], []


def _move(operation: Move, scope: Scope) -> _Planned:
    _existing(operation.path, scope)
    if meet({operation.path}, {operation.to}):
        raise InputError(f"to {operation.to!r}: must not be {operation.path!r}, or one below the other")
    require_none_led_out(operation.path, operation.to, scope)
    target, steps = _entry_or_room(operation.to, scope), list[Step]()
    if target is not None:
        if not operation.replace or target.kind == "folder":
            raise InputError(f"to {operation.to!r}: is there already; replace = true puts it in place of a file")
        steps.append(Step("take", operation.to, "0"))
    return [*steps, Step("move", operation.path, to=operation.to)], []


def _set_mode(operation: SetMode, scope: Scope) -> _Planned:
    found = _existing(operation.path, scope)
    if found.kind not in ("file", "folder"):
        raise InputError(f"path {operation.path!r}: is a {found.kind}, whose mode is not set")
    if found.mode == operation.mode:
        raise InputError(f"path {operation.path!r}: has the mode {operation.mode:o} already")
    if not found.shared:
        return [Step("set_facts", operation.path, facts={"mode": operation.mode}, old_facts={"mode": found.mode})], []
    _require_own(operation.path, found)
    entry = replace(found, mode=operation.mode)  # a copy in its place: other names, maybe outside, stay as they are
    return [Step("exchange", operation.path, "0")], [New("0", entry, copied=operation.path)]


def _require_own(path: str, found: Entry) -> None:
    if (found.uid, found.gid) != (os.geteuid(), os.getegid()) and os.geteuid():
        raise InputError(f"path {path!r}: belongs to user {found.uid}, group {found.gid}, which could not be kept")


def _is_there(path: str, scope: Scope) -> bool:
    try:
        with scope.parent_of(path) as (parent, name):
            os.stat(name, dir_fd=parent, follow_symlinks=False)
    except (NothingThere, FileNotFoundError):
        return False
    return True


def _existing(path: str, scope: Scope) -> Entry:
    found = scope.entry(path)
    if found is None:
        raise InputError(f"path {path!r}: there is nothing")
    return found


def _entry_or_room(path: str, scope: Scope) -> Entry | None:
    """What is at a path; None if nothing is, but it could be.

    Raises:
        InputError: the folder that it would be in is not there.
    """
    with scope.parent_of(path):
        return scope.entry(path)
