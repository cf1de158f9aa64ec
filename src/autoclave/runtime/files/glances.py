"""A cheap look at trees, which tells whether somebody has changed something since: what `stat` says, and no content.

Whoever changes content, names or facts changes one of inode, size, times and mode of something; only who sets clocks
back can hide it. Of files with several names the time of the last change is left out: it changes with their other
names, too.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from autoclave.runtime.files.scope import NothingThere, Scope


def glance(path: str, scope: Scope) -> str:
    """A digest of what is at a path and below it, which stays the same where only its place changes; empty: nothing."""
    try:
        with scope.parent_of(path) as (parent, name):
            top = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except (NothingThere, FileNotFoundError):
        return ""
    is_folder = stat.S_ISDIR(top.st_mode)
    own = (top.st_ino, top.st_mode, top.st_uid, top.st_gid, *(() if is_folder else (top.st_size, top.st_mtime_ns)))
    inside = _told_inside(path, scope) if is_folder else ()
    return hashlib.sha256(b"".join((repr(own).encode(), *inside))).hexdigest()


def glance_inside(folder: str, scope: Scope) -> str:
    """A digest of all that is below a folder; of the scope's own with the path "". O(what is there), in time."""
    digest = hashlib.sha256()
    for told in _told_inside(folder, scope):
        digest.update(told)
    return digest.hexdigest()


def _told_inside(top: str, scope: Scope) -> Iterator[bytes]:
    """What can be told of each folder at and below one."""
    for place, descriptor, inside in scope.folders(top):
        told: list[object] = [place.removeprefix(top)]
        for each in inside:
            try:
                about = os.stat(each.name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            told += (
                each.name,
                about.st_ino,
                about.st_mode,
                about.st_size,
                about.st_mtime_ns,
                about.st_uid,
                about.st_gid,
            )
            told.append(about.st_ctime_ns if about.st_nlink == 1 or stat.S_ISDIR(about.st_mode) else 0)
        yield repr(told).encode()
