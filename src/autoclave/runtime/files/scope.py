"""The folder that file actions are confined to, and how things in it are looked at.

Every path is walked from the folder's own descriptor, one name at a time, without following a symbolic link and without
leaving the mount: nobody who changes the tree meanwhile can lead out of it. What links point to is text, here.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autoclave.core import InputError
from autoclave.core.closing import Closing

Kind = Literal["file", "folder", "link", "fifo", "socket", "device"]
_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_UNREADABLE = "unreadable, inode "
_LONGEST = 1 << 16
_PIECE = 1 << 20
_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_EMPTY_PATH, _MOUNT_ID = 0x1000, 0x1000  # statx(2)
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not block


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing of a tree, as far as it can be put back: all but its inode number and times other than `mtime_ns`.

    `digest` is the sha256 of a file's content, `target` what a link says, `device` the number of a device; `attributes`
    are extended attributes (access control lists among them), as hexadecimal text. What its mode does not let be read
    has its inode number in place of the digest, and nothing is known of what is in such a folder.
    """

    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int = 0
    digest: str = ""
    target: str = ""
    device: int = 0
    attributes: tuple[tuple[str, str], ...] = ()
    shared: int = field(default=0, compare=False)
    """The inode number of what has other names as well; else 0."""

    @property
    def is_open_folder(self) -> bool:
        """Whether it is a folder that can be listed."""
        return self.kind == "folder" and not self.digest


class NothingThere(InputError):
    """A path leads through a folder that does not exist."""


class Scope(Closing):
    """A folder, by a descriptor that stays its own when it is renamed.

    Raises:
        InputError: it is no folder, or cannot be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        try:
            self.descriptor = os.open(self.root, _WALK & ~os.O_PATH | os.O_RDONLY)
        except OSError as error:
            raise InputError(f"{root}: must be a folder that can be read ({error.strerror})") from None
        self.mount = mount_of(self.descriptor)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @contextlib.contextmanager
    def parent_of(self, path: str) -> Generator[tuple[int, str]]:
        """A descriptor of the folder that a path is in, and its last name.

        Raises:
            NothingThere: a folder on the way does not exist.
            InputError: the path is none within the scope, or leads over a link, a file, or another file system.
        """
        *folders, name = parts_of(path)
        place = os.dup(self.descriptor)
        try:
            for folder in folders:
                above = place
                try:
                    place = os.open(folder, _WALK, dir_fd=above)
                except FileNotFoundError:
                    raise NothingThere(f"path {path!r}: there is no folder {folder!r}") from None
                except OSError as error:
                    raise InputError(
                        f"path {path!r}: {folder!r} is no folder that can be entered ({error.strerror}); links are not "
                        "followed"
                    ) from None
                os.close(above)  # one is enough, however deep it is
                if mount_of(place) != self.mount:
                    raise InputError(f"path {path!r}: {folder!r} is another file system, which is not in scope")
            yield place, name
        finally:
            os.close(place)

    def entry(self, path: str) -> Entry | None:
        """What is at a path; None if nothing is.

        Raises:
            InputError: as `parent_of`; or it changes while it is read, or cannot be read.
        """
        try:
            with self.parent_of(path) as (parent, name):
                return entry_at(parent, name, path)
        except NothingThere:
            return None

    def walk(self, path: str) -> Iterator[tuple[str, Entry]]:
        """What is at a path and below it, folders before what is in them, in an order that depends on names alone.

        Raises:
            InputError: as `entry`.
        """
        found = self.entry(path)
        if found is None:
            return
        yield path, found
        folders = [path] if found.is_open_folder else []
        with self._descent() as opened:
            while folders:
                place = folders.pop()
                inside = self._entries_of(opened(place), place)
                yield from inside
                folders += [each for each, entry in inside if entry.is_open_folder]

    def entries_in(self, path: str) -> list[tuple[str, Entry]]:
        """The paths and entries of what is in a folder, by name; in the scope's own with the path "".

        Raises:
            InputError: as `entry`; or it is no folder.
        """
        with self.folder(path) as descriptor:
            return self._entries_of(descriptor, path)

    @staticmethod
    def _entries_of(descriptor: int, path: str) -> list[tuple[str, Entry]]:
        paths = [(name, f"{path}/{name}" if path else name) for name in sorted(os.listdir(descriptor))]
        found = [(each, entry_at(descriptor, name, each)) for name, each in paths]
        return [(each, entry) for each, entry in found if entry is not None]

    @contextlib.contextmanager
    def _descent(self) -> Generator[Callable[[str], int]]:
        """Gives a descriptor of each folder that it is called with, good until the next call.

        One that is in the folder before it is opened from there, so that going down costs no more the deeper it is.
        """
        with contextlib.ExitStack() as last:
            before: dict[str, int] = {}

            def opened(path: str) -> int:
                above, _, name = path.rpartition("/")
                with contextlib.ExitStack() as opening:
                    if path and above in before:
                        descriptor = opening.enter_context(self._folder_in(before[above], name, path))
                    else:
                        descriptor = opening.enter_context(self.folder(path))
                    last.close()
                    last.push(opening.pop_all())
                before.clear()
                before[path] = descriptor
                return descriptor

            yield opened

    @contextlib.contextmanager
    def folder(self, path: str) -> Generator[int]:
        """A descriptor of a folder, that it can be listed by; of the scope's own with the path "".

        Raises:
            NothingThere: a folder on the way does not exist.
            InputError: the path is none within the scope, or is no folder that can be read.
        """
        with contextlib.ExitStack() as opened:
            parent, name = opened.enter_context(self.parent_of(path)) if path else (self.descriptor, ".")
            yield opened.enter_context(self._folder_in(parent, name, path))

    @contextlib.contextmanager
    def _folder_in(self, parent: int, name: str, path: str) -> Generator[int]:
        try:
            descriptor = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            raise NothingThere(f"path {path!r}: there is no such folder") from None
        except OSError as error:
            raise InputError(f"path {path!r}: cannot be read as a folder ({error.strerror})") from None
        try:
            if mount_of(descriptor) != self.mount:
                raise InputError(f"path {path!r}: is another file system, which is not in scope")
            yield descriptor
        finally:
            os.close(descriptor)

    def folders(self, path: str) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
        """Folders at and below a path, those above first: the path of each, a descriptor, and what is in it.

        Those that cannot be read are left out. A descriptor is good until the next one is asked for.
        """
        waiting = [path]
        with self._descent() as opened:
            while waiting:
                place = waiting.pop()
                try:
                    descriptor = opened(place)
                except InputError:
                    continue
                with os.scandir(descriptor) as found:
                    inside = sorted(found, key=lambda each: each.name)
                names = [each.name for each in inside if each.is_dir(follow_symlinks=False)]
                waiting += [f"{place}/{name}" if place else name for name in names]
                yield place, descriptor, inside


def mount_of(descriptor: int) -> tuple[int, ...]:
    """What tells one mounted file system from another, also from the same one at another place.

    Where the kernel does not number mounts (before 5.8), it is that of the device alone.
    """
    about = ctypes.create_string_buffer(256)
    if _libc.statx(descriptor, b"", _EMPTY_PATH, _MOUNT_ID, about):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return struct.unpack_from("=IIQ", about, 136)  # major and minor number of the device, number of the mount


def parts_of(path: str) -> list[str]:
    """The names of a path within a scope.

    Raises:
        InputError: it is absolute, has `.`, `..` or empty names, or is too long.
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts) or len(path) > _LONGEST:
        raise InputError(f"path {path[:200]!r}: must be relative to the folder, without '.', '..' and empty names")
    return parts


def entry_at(parent: int, name: str, path: str) -> Entry | None:
    """What has this name in the folder with the descriptor `parent`; `path` is for messages.

    Raises:
        InputError: it changes while it is read, or cannot be read.
    """
    try:
        for _ in range(3):
            before = os.stat(name, dir_fd=parent, follow_symlinks=False)
            found = _read(parent, name, path, before)
            if _same(before, os.stat(name, dir_fd=parent, follow_symlinks=False)):
                return found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"path {path!r}: cannot be read ({error.strerror})") from None
    raise InputError(f"path {path!r}: changes while it is read")


def _read(parent: int, name: str, path: str, about: os.stat_result) -> Entry:
    kind = _KINDS[stat.S_IFMT(about.st_mode)]
    content: dict[str, Any] = {}
    if kind in ("file", "folder"):
        size = about.st_size if kind == "file" else 0
        try:
            with open_file(parent, name) as descriptor:
                if mount_of(descriptor) != mount_of(parent):
                    raise InputError(f"path {path!r}: is another file system, which is not in scope")
                digest = digest_of(descriptor) if kind == "file" else ""
                content = {"size": size, "digest": digest, "attributes": _attributes(descriptor)}
        except PermissionError:
            content = {"size": size, "digest": f"{_UNREADABLE}{about.st_ino}"}
    elif kind == "link":
        content = {"target": os.readlink(name, dir_fd=parent)}
    elif kind == "device":
        content = {"device": about.st_rdev}
    if kind != "folder" and about.st_nlink > 1:
        content["shared"] = about.st_ino
    return Entry(kind, stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid, about.st_mtime_ns, **content)


@contextlib.contextmanager
def open_file(parent: int, name: str) -> Generator[int]:
    """A descriptor to read a file by."""
    descriptor = os.open(name, _LOOK, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def digest_of(descriptor: int) -> str:
    """The sha256 of what a descriptor reads, from the beginning."""
    digest, place = hashlib.sha256(), 0
    while piece := os.pread(descriptor, _PIECE, place):
        digest.update(piece)
        place += len(piece)
    return digest.hexdigest()


def _attributes(descriptor: int) -> tuple[tuple[str, str], ...]:
    try:
        return tuple((name, os.getxattr(descriptor, name).hex()) for name in sorted(os.listxattr(descriptor)))
    except OSError:  # a file system without them
        return ()


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    facts = ("st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_uid", "st_gid")
    return all(getattr(one, fact) == getattr(other, fact) for fact in facts)
