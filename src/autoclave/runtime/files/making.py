"""Making what is new ready in the stash, durably, before a step brings it into the tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from autoclave.core import InputError
from autoclave.runtime.files.scope import Entry, Scope, open_file
from autoclave.runtime.files.steps import sync_file_system

_PIECE = 1 << 24


@dataclass(frozen=True, slots=True)
class New:
    """Something that is made ready in the stash: a file with content, a folder, or a link.

    `copied`: a file of the tree whose content it gets in place of `content`, with its time. `chain`: names of folders,
    each within the one before, of which the first is in the new folder; they are like it.
    """

    stash: str
    entry: Entry
    content: bytes = b""
    copied: str = ""
    chain: tuple[str, ...] = ()

    @property
    def inside(self) -> tuple[str, ...]:
        """The paths below it, seen from there."""
        return tuple("/".join(self.chain[: number + 1]) for number in range(len(self.chain)))


def make(folder: Path, new: New, tree: Scope) -> None:
    """Make something ready in a folder of the stash, durably.

    Raises:
        OSError: it cannot be made.
        InputError: the file that it is copied from cannot be read.
    """
    path, entry = folder / new.stash, new.entry
    if entry.kind == "link":
        path.symlink_to(entry.target)
        return
    if entry.kind == "folder":
        path.mkdir()
        _make_folders(path, new)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if new.copied:
            _copy_content(new.copied, tree, descriptor)
        else:
            _write_all(descriptor, new.content)
        _set_facts(descriptor, entry)
        if new.copied:
            os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folders(path: Path, new: New) -> None:
    """Fill a folder with others, from descriptor to descriptor: their path may be longer than a path may be."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _set_facts(descriptor, new.entry)
        for name in new.chain:
            os.mkdir(name, 0o700, dir_fd=descriptor)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            _set_facts(descriptor, new.entry)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if new.chain:
        sync_file_system(path)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copy_content(path: str, tree: Scope, to: int) -> None:
    """Copy what a file has, holes as holes."""
    try:
        with tree.parent_of(path) as (parent, name), open_file(parent, name) as source:
            size, place = os.fstat(source).st_size, 0
            while place < size and (place := _next_data(source, place, size)) < size:
                end = min(os.lseek(source, place, os.SEEK_HOLE), place + _PIECE)
                place += os.pwrite(to, os.pread(source, end - place, place), place)
            os.ftruncate(to, size)
    except PermissionError as error:
        raise InputError(
            f"path {path!r}: has several names, so it is replaced by a copy, and cannot be read ({error.strerror})"
        ) from None


def _next_data(descriptor: int, place: int, size: int) -> int:
    try:
        return os.lseek(descriptor, place, os.SEEK_DATA)
    except OSError:  # only a hole is left
        return size


def _set_facts(descriptor: int, entry: Entry) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, entry.uid, entry.gid)
    for name, value in entry.attributes:
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, entry.mode)
