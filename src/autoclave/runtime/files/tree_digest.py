"""Digests of trees, for detecting changes. Reads only.

Two depths: all that an undo restores (`survey`), and inodes with their times, which change with content, names and
facts unless a clock is set back (`survey_by_inode`, `scan_of`).
"""

import contextlib
import hashlib
import os
import stat
import time
from dataclasses import dataclass, replace

from autoclave.core.json import canonical_json
from autoclave.core.scan import Scan, compiled, packed, scan_from
from autoclave.runtime.files.scope import TICK_NS, Entry, Scope, entry_at

OVERLAY = "user.overlay."
NOT_COMPARED = (OVERLAY, "security.selinux")
"""Prefixes of attributes that an overlay or the host sets."""


_BY_INODE = "inodes "


@dataclass(frozen=True, slots=True)
class Survey:
    """The tree digest of a path (empty: nothing is there), and its size.

    `inside` are the paths below it, relative to it; `shared` the inodes of files with several names.
    The times of folders are left out of the digest: they change with what is in them.
    """

    digest: str = ""
    num_files: int = 0
    num_bytes: int = 0
    inside: tuple[str, ...] = ()
    shared: frozenset[int] = frozenset()


def survey(path: str, scope: Scope) -> Survey:
    """Survey a path and all below it. Raises InputError for what cannot be read, or changes meanwhile."""
    digest, num_bytes, names, shared = hashlib.sha256(), 0, list[str](), set[int]()
    for each, entry in scope.walk(path):
        names.append(each.removeprefix(f"{path}/"))
        num_bytes += entry.size
        shared |= {entry.shared} if entry.shared else set()
        entry = without_marks(entry)
        facts = replace(entry, mtime_ns=0 if entry.kind == "folder" else entry.mtime_ns, shared=0)
        digest.update(canonical_json([each.removeprefix(path), facts]) + b"\n")
    if not names:
        return Survey()
    return Survey(digest.hexdigest(), len(names), num_bytes, tuple(names[1:]), frozenset(shared))


def survey_by_inode(path: str, scope: Scope) -> Survey:
    """Survey a path that is moved as a whole to or from the stash, with all below it; raises as `survey`.

    The digest is that of `survey` at the path itself; below a folder that of `_survey_inside`.
    """
    top = scope.entry(path)
    if top is None or not top.is_open_folder:
        return survey(path, scope)
    found = _survey_inside(path, scope)
    told = canonical_json([replace(without_marks(top), mtime_ns=0), found.digest])
    digest = f"{_BY_INODE}{hashlib.sha256(told).hexdigest()}"
    return replace(found, digest=digest, num_files=1 + found.num_files)


def scan_of(folder: str, scope: Scope) -> Scan:
    """Look at what is below a folder; with the path "" at all in the scope. A microsecond for each entry."""
    with contextlib.suppress(OSError), scope.folder(folder) as top:  # as where it is deeper than files can be open
        if compiled:
            return Scan(*compiled.scan(top))
    return scan_from({each[len(folder) :].lstrip("/"): packed(inside) for each, inside, _ in scope.folders(folder)})


def _survey_inside(folder: str, scope: Scope) -> Survey:
    """Survey what is below a folder, so that any change from now on has another digest. Raises as `survey`.

    An entry counts by its inode, as in `scan_of`; files with several names are read.
    """
    digest, num_bytes, newest = hashlib.sha256(), 0, 0
    names, shared, unread = list[str](), set[int](), {folder}
    for place, descriptor, inside in scope.folders(folder):
        unread.discard(place)
        within = f"{place}/".removeprefix(f"{folder}/")
        facts: list[object] = [within]
        for each in inside:
            try:
                about = os.stat(each.name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            facts += (each.name, about.st_ino, about.st_mode)
            names.append(within + each.name)
            newest = max(newest, about.st_ctime_ns)
            is_folder = stat.S_ISDIR(about.st_mode)
            if is_folder:
                unread.add(f"{place}/{each.name}" if place else each.name)
            else:
                num_bytes += about.st_size
            if is_folder or about.st_nlink == 1:
                facts.append(about.st_ctime_ns)
                continue
            shared.add(about.st_ino)
            facts += (about.st_size, about.st_mtime_ns, about.st_uid, about.st_gid)
            facts.append(entry_at(descriptor, each.name, f"{place}/{each.name}"))
        digest.update(repr(facts).encode())
    for place in unread:
        scope.entry(place)  # one that may not be listed is left as it is; on another file system it is refused
    time.sleep(max(0, min(TICK_NS, newest + TICK_NS - time.time_ns())) / 1e9)
    return Survey(digest.hexdigest(), len(names), num_bytes, tuple(names), frozenset(shared))


def is_by_inode(digest: str) -> bool:
    return digest.startswith(_BY_INODE)


def tree_digest(path: str, scope: Scope, like: str = "") -> str:
    """Return the digest of `survey`, or of `survey_by_inode` where `like` is one."""
    return (survey_by_inode if is_by_inode(like) else survey)(path, scope).digest


def without_marks(entry: Entry) -> Entry:
    """Return an entry without the attributes that an overlay or the host set."""
    kept = tuple(each for each in entry.attributes if not each[0].startswith(NOT_COMPARED))
    return entry if len(kept) == len(entry.attributes) else replace(entry, attributes=kept)
