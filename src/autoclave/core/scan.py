"""One look at all entries of a tree: inode, size, times, mode, links and owner of each. Reads no content.

The look is compiled (`_scan.c`) where there is a compiler; else folders are looked at one by one (`packed`). The
entries of a folder are packed bytes, sorted by name, so that folders without changes are found by comparing bytes.
"""

import contextlib
import hashlib
import importlib
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

LAYOUT = struct.Struct("<QQqqIIIIQH")

compiled: Any = None
with contextlib.suppress(ImportError):  # no compiler when the package was built
    compiled = importlib.import_module("autoclave.core._scan")


class Scan(NamedTuple):
    """A look at a tree.

    `folders` has the packed entries of each folder at and below the top, by its path ("" is the top itself); `unlisted`
    the paths of folders that cannot be listed, or are another file system; `linked` those of folders with files that
    have several names.
    """

    folders: dict[str, bytes]
    unlisted: list[str]
    linked: list[str]

    def digest(self) -> str:
        """Return a digest that any change in the tree changes, unless a clock is set back.

        Times of inodes are left out for files with several names, since they change with the other names.
        """
        found, linked = hashlib.sha256(), set(self.linked)
        for path, entries in sorted(self.folders.items()):
            if path in linked:
                entries = repr([(name, facts.without_names) for name, facts in unpacked(entries)]).encode()
            found.update(b"%s\0%d\0%s" % (os.fsencode(path), len(entries), entries))
        return found.hexdigest()


def scan_from(folders: dict[str, bytes]) -> Scan:
    found = Scan(folders, [], [])
    for path, entries in folders.items():
        inside = list(unpacked(entries))
        below = (f"{path}/{name}" if path else name for name, facts in inside if facts.is_folder)
        found.unlisted.extend(each for each in below if each not in folders)
        if any(facts.num_links > 1 and not facts.is_folder for _, facts in inside):
            found.linked.append(path)
    return found


class Facts(NamedTuple):
    """The facts of an entry. Every change of the entry changes `ctime_ns`, unless a clock is set back."""

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

    @property
    def without_names(self) -> "Facts":
        """These facts without what changes with the other names of a file."""
        has_names = self.num_links > 1 and not self.is_folder
        return self._replace(ctime_ns=0, num_links=2) if has_names else self


def facts_of(about: os.stat_result) -> Facts:
    return Facts(
        *(about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_mode),
        *(about.st_nlink, about.st_uid, about.st_gid, about.st_rdev),
    )


def packed(folder: int) -> bytes:
    """Return the entries of one folder, packed as `scan` does."""
    parts = list[bytes]()
    for name in sorted(map(os.fsencode, os.listdir(folder))):
        with contextlib.suppress(FileNotFoundError):
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
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
