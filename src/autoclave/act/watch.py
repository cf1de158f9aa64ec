"""Where something has changed in a tree since a look at it, by inotify, so that looks can be small or left out.

Theory of operation. Each folder has a watch. Events are taken right before a look; if none has arrived since, and
every folder was watched already when that look began, the tree is as it found it. What inotify does not report are
writes through a mapping of a process that goes on, through a name outside of the tree, and on file systems that others
change too (those are not watched). So after each tool use there is a look at everything, but the host need not wait
for it.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from autoclave.core.closing import Closing
from autoclave.runtime.footprints import with_those_above

_libc = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("iIII")
_IGNORED, _IS_FOLDER, _SELF = 0x8000, 0x40000000, 0x0400 | 0x0800
_CHANGES = 0x0002 | 0x0004 | 0x0008 | 0x0040 | 0x0080 | 0x0100 | 0x0200 | 0x0400 | 0x0800
"""MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF and MOVE_SELF."""
_ONLY_FOLDERS = 0x01000000 | 0x02000000  # ONLYDIR, DONT_FOLLOW
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs")
_MOST = 50_000
_PIECE = 1 << 16


class Happened(NamedTuple):
    """Folders in which files have changed, and those in which anything may have, at any depth ("": the whole tree)."""

    folders: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()

    def covers(self, path: str) -> bool:
        """Return whether a path may be among what has changed."""
        parent = path.rpartition("/")[0]
        return parent in self.folders or "" in self.trees or any(each in self.trees for each in with_those_above(path))


class Watch(Closing):
    """Watches folders below the folder of a descriptor. Where that is not possible, nothing is ever quiet."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if _is_local(root) else -1
        self._watched: dict[int, int] = {}  # watch descriptors by the inodes of folders
        self._paths: dict[int, str] = {}  # of folders, by watch descriptor
        self.is_complete = False
        """Whether every folder is watched."""
        self._is_sure = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_quiet(self) -> bool:
        """Return whether certainly nothing has happened since the last look."""
        return self._is_sure and self._take() == Happened()

    def begin_look(self) -> Happened | None:
        """Return what has happened since the last look, None where that is unknown: another look begins."""
        was_sure, found = self._is_sure, self._take()
        self._is_sure = self.is_complete
        return found if was_sure else None

    def cover(self, folders: Mapping[int, str]) -> None:
        """Watch these folders, paths by inode. Where one is new, only a look from now on is sure."""
        if self._descriptor < 0 or len(folders) > _MOST:
            return
        for inode in self._watched.keys() - folders.keys():
            _libc.inotify_rm_watch(self._descriptor, self._watched.pop(inode))
        for inode, path in folders.items():
            if inode not in self._watched:
                self._is_sure = False
                place = os.fsencode(f"/proc/self/fd/{self._root}/{path}")
                found = _libc.inotify_add_watch(self._descriptor, place, _CHANGES | _ONLY_FOLDERS)
                if found >= 0:
                    self._watched[inode] = found
                    self._paths[found] = path
        self.is_complete = len(self._watched) == len(folders)

    def _take(self) -> Happened:
        """Read all events."""
        content = b""
        with contextlib.suppress(BlockingIOError, OSError):
            while self._descriptor >= 0 and (piece := os.read(self._descriptor, _PIECE)):
                content += piece
        place, folders, trees = 0, set[str](), set[str]()
        while place < len(content):
            watch, kind, _, length = _EVENT.unpack_from(content, place)
            place += _EVENT.size + length
            if kind & _IGNORED:
                self._watched = {inode: each for inode, each in self._watched.items() if each != watch}
                self.is_complete = False
            (trees if kind & (_IGNORED | _IS_FOLDER | _SELF) else folders).add(self._paths.get(watch, ""))
            trees |= {""} if watch not in self._paths else set()  # events were lost
        self._is_sure = self._is_sure and not content
        return Happened(frozenset(folders), frozenset(trees))


def _is_local(root: int) -> bool:
    """Return whether a folder is on a file system of which this kernel sees every change."""
    about = os.fstat(root)
    device = f"{os.major(about.st_dev)}:{os.minor(about.st_dev)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            fields, _, rest = line.partition(" - ")
            if fields.split(" ")[2] == device:
                return rest.split(" ")[0] in _LOCAL
    return False
