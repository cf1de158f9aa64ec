"""File operations as data, and the steps that each is made of. Looks at the tree; changes nothing but the stash."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import posixpath
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.json import canonical_json, rule_of, to_plain
from autoclave.runtime.scope import Entry, Scope, open_file, parts_of
from autoclave.runtime.steps import Step

_MOST_CONTENT = 64 << 20
_MODE = Annotated[int, Field(ge=0, le=0o7777)]


class Write(Config):
    """Make a file, or give an existing one other content; owner, mode and extended attributes of that stay."""

    do: Literal["write"]
    path: str
    content: str = ""
    """Text."""
    content_base64: str | None = None
    """Bytes, in place of the text."""
    mode: _MODE | None = None
    """Of the file; null: that of the existing one, or 644."""


class Append(Config):
    """Add text to the end of a file."""

    do: Literal["append"]
    path: str
    content: str


class MakeFolder(Config):
    """Make a folder, and those above it that are not there."""

    do: Literal["make_folder"]
    path: str


class MakeLink(Config):
    """Make a symbolic link to something in the same scope."""

    do: Literal["make_link"]
    path: str
    target: str


class Delete(Config):
    """Remove a file, a link, or a folder; `recursive`: with all that is in it."""

    do: Literal["delete"]
    path: str
    recursive: bool = False


class Move(Config):
    """Give something another name; `replace`: in place of a file that has it."""

    do: Literal["move"]
    path: str
    to: str
    replace: bool = False


class SetMode(Config):
    """Set the permission bits of a file or folder."""

    do: Literal["set_mode"]
    path: str
    mode: _MODE


FileOperation = Annotated[Write | Append | MakeFolder | MakeLink | Delete | Move | SetMode, Field(discriminator="do")]
_READER: TypeAdapter[Any] = TypeAdapter(FileOperation)


def operation_from(given: object, where: str) -> FileOperation:
    """The operation that JSON data says.

    Raises:
        InputError: it is none; the message begins with `where`.
    """
    try:
        return _READER.validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "do"
        raise InputError(f"{where}: {place}: {rule_of(first['msg'])}") from None


@dataclass(frozen=True, slots=True)
class New:
    """Something that is made ready in the stash: a file with content, a folder, or a link."""

    stash: str
    entry: Entry
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operation would do to the tree as it is now.

    Attributes:
        steps: in order; inodes are not known yet of what is made ready.
        new: what must be made ready for them.
        before: fingerprints of all paths that it touches, as they are.
        digest: of the operation and of what it would change: another tree, another digest.
    """

    steps: tuple[Step, ...]
    new: tuple[New, ...]
    before: dict[str, str]
    digest: str


def plan_of(operation: FileOperation, scope: Scope) -> Plan:
    """The steps of an operation.

    Raises:
        InputError: it cannot be done to this tree; the message names the path and why.
    """
    match operation:
        case Write():
            steps, new = _write(operation.path, _bytes_of(operation), operation.mode, scope)
        case Append():
            steps, new = _append(operation, scope)
        case MakeFolder():
            steps, new = _make_folder(operation, scope)
        case MakeLink():
            steps, new = _make_link(operation, scope)
        case Delete():
            steps, new = _delete(operation, scope)
        case Move():
            steps, new = _move(operation, scope)
        case SetMode():
            steps, new = _set_mode(operation, scope)
    paths = sorted({path for step in steps for path in (step.path, step.to) if path})
    before = {path: fingerprint(path, scope) for path in paths}
    told = [operation.model_dump(mode="json"), sorted(before.items()), [step.to_json() for step in steps]]
    return Plan(tuple(steps), tuple(new), before, hashlib.sha256(canonical_json(told)).hexdigest())


def fingerprint(path: str, scope: Scope) -> str:
    """A digest of all that is at a path and below it, as far as it can be put back; empty if nothing is there.

    The times of folders are left out: they change with what is in them.

    Raises:
        InputError: something cannot be read, or changes meanwhile.
    """
    digest, is_there = hashlib.sha256(), False
    for each, entry in scope.walk(path):
        is_there = True
        told = to_plain(entry) | ({"mtime_ns": 0} if entry.kind == "folder" else {})
        digest.update(canonical_json([each.removeprefix(path), told]) + b"\n")
    return digest.hexdigest() if is_there else ""


def footprint(steps: tuple[Step, ...]) -> frozenset[str]:
    """The paths that steps change, each with all that is below it."""
    return frozenset(path for step in steps for path in (step.path, step.to) if path)


def meet(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two footprints have something in common: a path, or one that is below another."""
    return any(a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/") for a in one for b in other)


# --- Each operation --------------------------------------------------------------------------------------------------

_Planned = tuple[list[Step], list[New]]


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
    if (found.uid, found.gid) != (os.geteuid(), os.getegid()) and os.geteuid():
        raise InputError(f"path {path!r}: belongs to user {found.uid}, group {found.gid}, which could not be kept")
    entry = Entry("file", found.mode if mode is None else mode, found.uid, found.gid, 0, attributes=found.attributes)
    return [Step("exchange", path, "0")], [New("0", entry, content)]


def _append(operation: Append, scope: Scope) -> _Planned:
    found = _existing(operation.path, scope)
    if found.kind != "file":
        raise InputError(f"path {operation.path!r}: is a {found.kind}, not a file")
    if found.size > _MOST_CONTENT:
        raise InputError(f"path {operation.path!r}: has {found.size} bytes; at most {_MOST_CONTENT} can be added to")
    with scope.parent_of(operation.path) as (parent, name), open_file(parent, name) as descriptor:
        old = os.pread(descriptor, found.size, 0)
    return _write(operation.path, old + operation.content.encode("utf-8", "surrogateescape"), None, scope)


def _make_folder(operation: MakeFolder, scope: Scope) -> _Planned:
    parts = parts_of(operation.path)
    above = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    missing = next((number for number, path in enumerate(above) if scope.entry(path) is None), None)
    if missing is None:
        raise InputError(f"path {operation.path!r}: is there already")
    entry = Entry("folder", 0o755, os.geteuid(), os.getegid(), 0)
    new = [New(str(number), entry) for number in range(len(above) - missing)]
    return [Step("put", path, each.stash) for path, each in zip(above[missing:], new, strict=True)], new


def _make_link(operation: MakeLink, scope: Scope) -> _Planned:
    leads = posixpath.normpath(posixpath.join(posixpath.dirname(operation.path), operation.target))
    if not operation.target or "\0" in operation.target or operation.target.startswith("/") or leads.startswith(".."):
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
    if meet(frozenset({operation.path}), frozenset({operation.to})):
        raise InputError(f"to {operation.to!r}: must not be {operation.path!r}, or one below the other")
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
    return [Step("set_mode", operation.path, mode=operation.mode, old_mode=found.mode)], []


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
