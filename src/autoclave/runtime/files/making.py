"""Making what is new ready in the stash, durably, before a step brings it into the tree."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.files.scope import Entry, Kind, Scope
from autoclave.runtime.files.steps import sync_file_system

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class New:
    """Something that is made ready in the stash: a file with content, a folder, or a link.

    `copied`: a file of the tree that it is a copy of, but for its mode. `below`: names, each in the
    one before, if it is not at the place itself but under new folders.
    """

    stash: str
    entry: Entry
    content: bytes = b""
    copied: str = ""
    below: tuple[str, ...] = ()

    @property
    def inside(self) -> tuple[str, ...]:
        """The paths below its place, seen from there."""
        return tuple("/".join(self.below[: number + 1]) for number in range(len(self.below)))


def make(folder: Path, new: New, tree: Scope) -> None:
    """Make something ready in a folder of the stash, durably.

    Goes from descriptor to descriptor: a path may be longer than the kernel takes.

    Raises:
        OSError: it cannot be made.
        InputError: the file that it is copied from cannot be read.
    """
    if new.copied:
        _copy_file(new, tree, folder / new.stash)
        return
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
    """Return what something new of this user is like."""
    return Entry(kind, mode, os.geteuid(), os.getegid(), 0, **others)


def _made_folder(parent: int, name: str, entry: Entry) -> int:
    """Make a folder; its descriptor, in place of that of the folder that it is in."""
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


def _copy_file(new: New, tree: Scope, to: Path) -> None:
    with tree.parent_of(new.copied) as (parent, name):
        if problem := copy(parent, name, to):
            raise InputError(f"path {new.copied!r}: has several names, so it is replaced by a copy, but: {problem}")
    os.chmod(to, new.entry.mode)
    with to.open("rb") as file:
        os.fsync(file)


def copy(folder: int, name: str, to: Path) -> str:
    """Copy what has a name in a folder (a descriptor), with facts and holes; why it failed, or the empty text."""
    command = ["cp", "-a", "--reflink=auto", "--", f"./{name}", str(to)]
    done = subprocess.run(command, cwd=f"/proc/self/fd/{folder}", capture_output=True, text=True, check=False)
    return done.stderr.strip()[-300:] if done.returncode else ""


def _set_facts(descriptor: int, entry: Entry) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, entry.uid, entry.gid)
    for name, value in entry.attributes:
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, entry.mode)
