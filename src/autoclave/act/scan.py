"""One look at all entries of a tree: inode, size, times, mode, links and owner of each. Reads no content.

The look exists twice: in C (`_scan.c`), built with the package where there is a compiler, and here in Python. The
entries of a folder are packed bytes, so that folders without changes are found by comparing bytes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from autoclave.runtime.files.scope import mount_of

LAYOUT = struct.Struct("<QQqqIIIIQH")
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_compiled: Any = None
with contextlib.suppress(ImportError):  # no compiler when the package was built
    _compiled = importlib.import_module("autoclave.act._scan")


class Facts(NamedTuple):
    """What a look tells of an entry. Every change of the entry changes `ctime_ns`, unless a clock is set back."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    num_links: int
    uid: int
    gid: int
    device: int

    @property
    def kind(self) -> int:
        """The bits of `mode` that say what it is, as `stat.S_IFREG`."""
        return stat.S_IFMT(self.mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


def facts_of(about: os.stat_result) -> Facts:
    return Facts(
        *(about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_mode),
        *(about.st_nlink, about.st_uid, about.st_gid, about.st_rdev),
    )


def scan(folder: int) -> tuple[dict[str, bytes], list[str]]:
    """Return the packed entries of each folder at and below a descriptor, by its path ("" is the folder itself).

    Also the paths of folders that cannot be listed, or are another file system. Raises OSError where the look fails as
    a whole, as when folders are nested more deeply than files can be open.
    """
    return _compiled.scan(folder) if _compiled else scan_in_python(folder)


def scan_in_python(folder: int) -> tuple[dict[str, bytes], list[str]]:
    """Do what the compiled `scan` does."""
    found, unlisted = dict[str, bytes](), list[str]()
    mount = mount_of(folder)

    def look(path: str, descriptor: int) -> None:
        if mount_of(descriptor) != mount:
            unlisted.append(path)
            return
        found[path] = packed(descriptor)
        for name in [name for name, facts in unpacked(found[path]) if facts.is_folder]:
            place = f"{path}/{name}" if path else name
            try:
                inner = os.open(name, _OPEN, dir_fd=descriptor)
            except PermissionError:
                unlisted.append(place)
            except (FileNotFoundError, NotADirectoryError):
                continue
            else:
                try:
                    look(place, inner)
                finally:
                    os.close(inner)

    look("", folder)
    return found, unlisted


def packed(folder: int) -> bytes:
    """Return the entries of one folder, packed as `scan` does."""
    parts = list[bytes]()
    with os.scandir(folder) as inside:
        for each in inside:
            with contextlib.suppress(FileNotFoundError):
                about, name = each.stat(follow_symlinks=False), os.fsencode(each.name)
                parts.append(LAYOUT.pack(*facts_of(about), len(name)) + name)
    return b"".join(parts)


def unpacked(entries: bytes) -> Iterator[tuple[str, Facts]]:
    """Yield the names and facts of packed entries."""
    place, size = 0, LAYOUT.size
    while place < len(entries):
        *facts, length = LAYOUT.unpack_from(entries, place)
        place += size
        yield os.fsdecode(entries[place : place + length]), Facts(*facts)
        place += length
