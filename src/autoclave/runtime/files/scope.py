"""The folder that file actions are confined to, and inspection of its entries.

Every path is walked from the folder's own descriptor, one name at a time, without following a symbolic link and without
leaving the mount: concurrent changes to the tree cannot lead out of it. Targets of links are only text here.
"""

import contextlib
import ctypes
import hashlib
import os
import stat
import struct
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
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
_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_EMPTY_PATH, _MOUNT_ID = 0x1000, 0x1000  # statx(2)
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not block
TICK_NS = 20_000_000
"""Two changes of a file within this time, in nanoseconds, may leave it with the same timestamp."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a tree, as far as it can be restored: all but its inode number and times other than `mtime_ns`.

    `digest` is the sha256 of a file's content, `target` that of a link, `device` the number of a device; `attributes`
    are extended attributes (including access control lists), as hexadecimal text. An unreadable entry has its inode
    number in place of the digest; the content of such a folder is unknown.
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
    """The inode number of a file with several names; else 0."""

    @property
    def is_open_folder(self) -> bool:
        return self.kind == "folder" and not self.digest


class NothingThere(InputError):
    """A path leads through a folder that does not exist."""


class Scope(Closing):
    """A folder, by a descriptor that stays valid when it is renamed. Raises InputError where it cannot be read."""

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
        """Yield a descriptor of the parent folder of a path, and its last name.

        Raises NothingThere where a folder on the way does not exist, and InputError where the path is not valid in the
        scope, or leads over a link, a file, or another file system.
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
        """Return the entry at a path; None if there is none. Raises InputError as `parent_of`, or if unreadable."""
        try:
            with self.parent_of(path) as (parent, name):
                return entry_at(parent, name, path)
        except NothingThere:
            return None

    def content(self, path: str) -> bytes:
        """Return the content of a file. Raises InputError where there is none, or it cannot be read."""
        found = self.entry(path)
        if found is None or found.kind != "file":
            raise InputError(f"path {path!r}: {f'is a {found.kind}, not a file' if found else 'there is nothing'}")
        try:
            with self.parent_of(path) as (parent, name), open_file(parent, name) as descriptor:
                return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
        except OSError as error:
            raise InputError(f"path {path!r}: cannot be read ({error.strerror})") from None

    def walk(self, path: str) -> Iterator[tuple[str, Entry]]:
        """Yield the entries at and below a path, folders before their content, in an order by names alone.

        With the path "" all in the scope, without its own folder. Raises InputError as `entry`.
        """
        if path:
            found = self.entry(path)
            if found is None:
                return
            yield path, found
            if not found.is_open_folder:
                return
        for place, descriptor, inside in self.folders(path):
            yield from self._entries_of(descriptor, place, [each.name for each in inside])

    def entries_in(self, path: str) -> list[tuple[str, Entry]]:
        """Return the paths and entries in a folder, by name; with the path "" in the scope's own."""
        with self.folder(path) as descriptor:
            return list(self._entries_of(descriptor, path, sorted(os.listdir(descriptor))))

    @staticmethod
    def _entries_of(descriptor: int, path: str, names: Iterable[str]) -> Iterator[tuple[str, Entry]]:
        for name in names:
            place = f"{path}/{name}" if path else name
            if (entry := entry_at(descriptor, name, place)) is not None:
                yield place, entry

    @contextlib.contextmanager
    def folder(self, path: str) -> Generator[int]:
        """Yield a descriptor for listing a folder; with the path "" of the scope's own.

        Raises NothingThere where a folder on the way does not exist, and InputError where the path is not valid in the
        scope, or not a readable folder.
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
        """Yield the folders at and below a path, parents first: path, descriptor, and content of each.

        Unreadable folders are left out. A descriptor is valid until the next iteration. A child of the previous folder
        is opened from there, so that the cost does not grow with depth.
        """
        waiting, before, descriptor = [path], "", -1
        with contextlib.ExitStack() as last:
            while waiting:
                place = waiting.pop()
                above, _, name = place.rpartition("/")
                is_near = descriptor >= 0 and above == before
                try:
                    with contextlib.ExitStack() as opening:
                        folder = self._folder_in(descriptor, name, place) if is_near else self.folder(place)
                        descriptor = opening.enter_context(folder)
                        last.close()
                        last.push(opening.pop_all())
                except InputError:
                    continue
                before = place
                with os.scandir(descriptor) as found:
                    inside = sorted(found, key=attrgetter("name"))
                names = [each.name for each in inside if each.is_dir(follow_symlinks=False)]
                waiting += [f"{place}/{name}" if place else name for name in names]
                yield place, descriptor, inside

    def bytes_on_disk(self) -> int:
        """Return what the files in the scope occupy: nothing for holes, and a file with several names once."""
        blocks = dict[int, int]()
        for _, _, inside in self.folders(""):
            found = (each.stat(follow_symlinks=False) for each in inside if not each.is_dir(follow_symlinks=False))
            blocks.update((about.st_ino, about.st_blocks) for about in found)
        return 512 * sum(blocks.values())


def mount_of(descriptor: int) -> tuple[int, ...]:
    """Return an identifier of a mount, distinct also for the same file system at another place.

    Where the kernel does not number mounts (before 5.8), it is that of the device alone.
    """
    about = ctypes.create_string_buffer(256)
    if _libc.statx(descriptor, b"", _EMPTY_PATH, _MOUNT_ID, about):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return struct.unpack_from("=IIQ", about, 136)  # major and minor number of the device, number of the mount


def parts_of(path: str) -> list[str]:
    """Split a path within a scope. Raises InputError where it is absolute, too long, or has `.` or `..`."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts) or len(path) > _LONGEST:
        raise InputError(f"path {path[:200]!r}: must be relative to the folder, without '.', '..' and empty names")
    return parts


_facts = attrgetter(
    "st_dev", "st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_ctime_ns"
)
_known: dict[Any, Entry] = {}
"""Cached entries of files, by facts that change with them: every change sets the time of an inode."""
_MOST_KNOWN = 100_000


def entry_at(parent: int, name: str, path: str) -> Entry | None:
    """Return the entry `name` of the folder with the descriptor `parent`; `path` is for messages.

    A file is not read again while its inode has not changed. Raises InputError where it changes while it is read, or
    cannot be read.
    """
    try:
        for _ in range(3):
            about, now_ns = os.stat(name, dir_fd=parent, follow_symlinks=False), time.time_ns()
            facts = _facts(about)
            if known := _known.get(facts):
                return known
            found = _read(parent, name, path, about)
            if _facts(os.stat(name, dir_fd=parent, follow_symlinks=False)) == facts:
                if found.kind == "file" and about.st_ctime_ns + TICK_NS < now_ns:
                    if len(_known) >= _MOST_KNOWN:
                        _known.clear()
                    _known[facts] = found
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
                content = {"size": size, "digest": digest, "attributes": attributes_of(descriptor)}
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
def open_file(parent: int | None, name: str | Path, flags: int = _LOOK) -> Generator[int]:
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def digest_of(descriptor: int) -> str:
    """Return the sha256 of a file, from the position of its descriptor."""
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def attributes_of(descriptor: int) -> tuple[tuple[str, str], ...]:
    """Return the extended attributes of an open entry, as hexadecimal text."""
    try:
        return tuple((name, os.getxattr(descriptor, name).hex()) for name in sorted(os.listxattr(descriptor)))
    except OSError:  # a file system without them
        return ()
