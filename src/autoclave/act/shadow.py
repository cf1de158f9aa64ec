"""Pre-images of a tree: a copy of each file, and what is known of each entry, kept up to date by looking at the tree.

Theory of operation. `copies/` has a copy of the content of each file (a reflink where the file system offers it; a hard
link would be no pre-image, since programs write in place). `index.sqlite` has a row for each entry: the facts it had
when it was copied. A look (`scan.py`) that finds the same facts proves that the entry is unchanged: a file is copied
only when its last change is older than the resolution of the clock, so each later change has another time. Whatever
differs is a change since the last refresh. Copies of one file with several names are one copy.

The index survives the death of the process at any point: rows are replaced in one transaction, after the copies exist
and before old ones are deleted. After a power cut rows may be older than the copies; what is missing then is reported.
"""

import contextlib
import errno
import fcntl
import json
import os
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from autoclave.core import HostError, InputError
from autoclave.core.closing import Closing
from autoclave.core.scan import Facts, facts_of, packed, unpacked
from autoclave.core.sqlite_files import open_database, transaction
from autoclave.runtime.files.scope import TICK_NS, Scope, attributes_of, open_file
from autoclave.runtime.files.tree_digest import scan_of
from autoclave.runtime.footprints import with_those_above

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    path BLOB PRIMARY KEY, facts TEXT NOT NULL, attributes TEXT NOT NULL, target BLOB NOT NULL, copy TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FICLONE = 0x40049409
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.ENOTTY, errno.EPERM)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_PIECE = 1 << 20
_NUM_TOGETHER = 2000
"""Entries that are copied before their rows are written."""
_MOST_PASSES = 4

Attributes = tuple[tuple[str, str], ...]


class Row(NamedTuple):
    """An entry as it was: extended attributes as hexadecimal text, target of a link, and name of the copy of a file.

    A file without a copy could not be read.
    """

    facts: Facts
    attributes: Attributes = ()
    target: str = ""
    copy: str = ""


class Change(NamedTuple):
    """An entry that differs from its row. `old`: None where nothing was; `new`: None where nothing is."""

    path: str
    old: Row | None
    new: Facts | None


class Look(NamedTuple):
    """What one look found: entries by folder, folders it could not list, and the folder itself."""

    entries: dict[str, bytes]
    unlisted: frozenset[str]
    top: Facts


class Shadow(Closing):
    """The pre-images of the tree of `scope`, in the folder `place` on the same file system. One process at a time."""

    def __init__(self, scope: Scope, place: Path) -> None:
        self.scope, self.copies = scope, place / "copies"
        self.copies.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._connection = open_database(place / "index.sqlite", "NORMAL")
        self._connection.executescript(_SCHEMA)
        self.rows: dict[str, dict[str, Row]] = {}
        self._seen: dict[str, bytes] = {}
        self._unlisted: frozenset[str] = frozenset()
        self._is_seen = False
        self._users = Counter[str]()
        self._linked: dict[int, Row] = {}  # by inode: the copies of files with several names
        self._may_clone, self._number = True, 0
        self._load()

    def close(self) -> None:
        self._connection.close()

    def _load(self) -> None:
        decoder = json.JSONDecoder()
        for path, facts, attributes, target, copy in self._connection.execute("SELECT * FROM rows"):
            known = tuple(map(tuple, decoder.decode(attributes))) if attributes != "[]" else ()
            row = Row(Facts(*decoder.decode(facts)), known, os.fsdecode(target), copy)
            self._place(os.fsdecode(path), row)
            if row.copy and row.facts.num_links > 1:
                self._linked[row.facts.inode] = row
        for each in os.scandir(self.copies):
            if each.name not in self._users:
                os.unlink(each.path)  # a refresh that did not end
            self._number = max(self._number, int(each.name, 16))

    def note(self, name: str) -> Any:
        """Return the JSON data kept under a name; None if there is none."""
        found = self._connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return json.loads(found[0]) if found else None

    def keep_note(self, name: str, value: Any) -> None:
        """Keep JSON data under a name, durably against the death of the process; None deletes it."""
        if value is None:
            self._connection.execute("DELETE FROM notes WHERE name = ?", (name,))
        else:
            self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value)))

    @property
    def top(self) -> Facts | None:
        """The folder of the tree itself, at the last refresh; None before the first."""
        found = self.note("top")
        return Facts(*found) if found else None

    @property
    def has_names_outside(self) -> bool:
        """Return whether a file has more names than the tree has, by which others may change it."""
        return any(row.facts.num_links > self._users[row.copy] for row in self._linked.values())

    def row(self, path: str) -> Row | None:
        folder, _, name = path.rpartition("/")
        return self.rows.get(folder, {}).get(name)

    def folders(self) -> dict[int, str]:
        """Return the folders of the tree at the last refresh, by inode."""
        found = {os.fstat(self.scope.descriptor).st_ino: ""}
        for folder, rows in self.rows.items():
            for name, row in rows.items():
                if row.facts.is_folder:
                    found[row.facts.inode] = f"{folder}/{name}" if folder else name
        return found

    def look(self) -> Look:
        """Look at all entries of the tree. Raises HostError where that fails."""
        try:
            found = scan_of("", self.scope)
            return Look(found.folders, frozenset(found.unlisted), facts_of(os.fstat(self.scope.descriptor)))
        except OSError as error:
            raise HostError(f"{self.scope.root}: cannot be scanned ({error.strerror})") from None

    def look_at(self, folders: frozenset[str]) -> Look | None:
        """Look at the entries of some folders; the others count as unchanged. None where those are not all known."""
        if not self._is_seen or not folders <= self._seen.keys():
            return None
        entries = dict(self._seen)
        with contextlib.suppress(InputError):
            for folder in folders | {each.rpartition("/")[0] for each in folders}:
                with self.scope.folder(folder) as descriptor:
                    entries[folder] = packed(descriptor)
            return Look(entries, self._unlisted, facts_of(os.fstat(self.scope.descriptor)))
        return None

    def changes(self, look: Look) -> list[Change]:
        """Return what differs from the rows, folders before what is in them. What cannot be listed is left out."""
        found: list[Change] = []
        for folder in look.entries.keys() | self.rows.keys():
            entries = look.entries.get(folder)
            if entries is not None and entries == self._seen.get(folder):
                continue
            if entries is None and any(each in look.unlisted for each in with_those_above(folder)):
                continue
            old, new = self.rows.get(folder, {}), dict(unpacked(entries)) if entries else {}
            for name in old.keys() | new.keys():
                row, facts = old.get(name), new.get(name)
                if row is None or row.facts != facts:
                    found.append(Change(f"{folder}/{name}" if folder else name, row, facts))
        return sorted(self._with_other_names(found), key=lambda each: each.path.split("/"))

    def _with_other_names(self, changes: list[Change]) -> list[Change]:
        """Add the other names of changed files: where a folder was renamed, they look as before."""
        copies = Counter(each.old.copy for each in changes if each.old and each.old.copy)
        partly = {copy for copy, number in copies.items() if number < self._users[copy]}
        if not partly:
            return changes
        known = {each.path for each in changes}
        rows = (
            (f"{folder}/{name}" if folder else name, row)
            for folder, of in self.rows.items()
            for name, row in of.items()
        )
        return changes + [
            Change(path, row, row.facts) for path, row in rows if row.copy in partly and path not in known
        ]

    def refresh(self, look: Look, changes: Iterable[Change]) -> list[str]:
        """Make the rows and copies those of the tree as it is; `changes` are those of `look`.

        Returns what could not be copied, in words.
        """
        self._seen, self._unlisted, self._is_seen = look.entries, look.unlisted, True
        self._linked = {inode: row for inode, row in self._linked.items() if self._users[row.copy]}
        problems: list[str] = []
        due = {each.path: each.new for each in changes}
        for number in range(_MOST_PASSES):
            newest = max((facts.ctime_ns for facts in due.values() if facts), default=0)
            time.sleep(max(0, min(TICK_NS, newest + TICK_NS - time.time_ns())) / 1e9)
            due, problems = self._pass(due, is_last=number == _MOST_PASSES - 1)
            if not due:
                break
        self.keep_note("top", look.top)
        self.keep_note("unlisted", sorted(look.unlisted) or None)
        return problems

    def _pass(self, due: dict[str, Facts | None], *, is_last: bool) -> tuple[dict[str, Facts | None], list[str]]:
        """Copy entries; return those that have changed meanwhile, with their facts, and what could not be copied."""
        changed: dict[str, Facts | None] = {}
        problems: list[str] = []
        folders: dict[str, list[str]] = {}
        for path in due:
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append(name)
        rows: list[tuple[str, Row | None]] = []
        for folder, names in folders.items():
            with contextlib.ExitStack() as opened:
                try:
                    descriptor = opened.enter_context(self.scope.folder(folder))
                except InputError:
                    descriptor = -1  # gone, or no folder any more
                for name in names:
                    path = f"{folder}/{name}" if folder else name
                    row, problem = self._copied(descriptor, name) if descriptor >= 0 else (None, "")
                    now = row.facts if row else None
                    if now != due[path]:
                        self._seen = {each: entries for each, entries in self._seen.items() if each != folder}
                        self._is_seen = False
                        changed[path] = now
                        if is_last and row:
                            row = row._replace(facts=row.facts._replace(ctime_ns=0))  # unlike any that a look finds
                            problem = "changes while it is copied, so its pre-image may be a mixture"
                    problems += [f"{path!r}: {problem}"] if problem else []
                    rows.append((path, row))
                    if len(rows) >= _NUM_TOGETHER:
                        self._write(rows)
                        rows = []
        self._write(rows)
        return changed, problems

    def _copied(self, folder: int, name: str) -> tuple[Row | None, str]:
        """Return the row of an entry as it is now, with a copy of its content, and why a file has none."""
        try:
            facts = facts_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
            if stat.S_ISLNK(facts.mode):
                return Row(facts, target=os.readlink(name, dir_fd=folder)), ""
            if not (facts.is_file or facts.is_folder):
                return Row(facts), ""
            with open_file(folder, name, _READ) as source:
                attributes = attributes_of(source)
                if facts.is_folder:
                    return Row(facts, attributes), ""
                facts = facts_of(os.fstat(source))
                copy = self._shared(facts) or self._copy(source, facts)
                now = facts_of(os.fstat(source))
                return Row(facts if now == facts else now._replace(ctime_ns=0), attributes, copy=copy), ""
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            if error.errno in NO_SPACE:
                raise HostError(
                    f"{self.copies}: the pre-image of {name!r} cannot be kept ({error.strerror}). Fix: free space"
                ) from None
            found = facts_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
            return Row(found), f"cannot be read ({error.strerror}), so it has no pre-image"

    def _shared(self, facts: Facts) -> str:
        """Return the copy made of another name of a file, if it is of the same state."""
        known = self._linked.get(facts.inode) if facts.num_links > 1 else None
        if known and known.facts == facts and self.copy_of(known).exists():  # else it was moved to the stash
            return known.copy
        return ""

    def _copy(self, source: int, facts: Facts) -> str:
        self._number += 1
        name = f"{self._number:x}"
        target = os.open(self.copies / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not self._cloned(source, target):
                _copy_data(source, target, facts.size)
        except BaseException:
            os.unlink(self.copies / name)
            raise
        finally:
            os.close(target)
        if facts.num_links > 1:
            self._linked[facts.inode] = Row(facts, copy=name)
        return name

    def _cloned(self, source: int, target: int) -> bool:
        if self._may_clone:
            try:
                fcntl.ioctl(target, _FICLONE, source)
                return True
            except OSError as error:
                if error.errno not in _NOT_OFFERED:
                    raise
                self._may_clone = False
        return False

    def copy_of(self, row: Row) -> Path:
        return self.copies / row.copy

    def holds_content_of(self, path: str, row: Row) -> bool:
        """Return whether a file of the tree has the content of the copy of a row."""
        try:
            with (
                self.scope.parent_of(path) as (parent, name),
                open_file(parent, name, _READ) as one,
                open_file(None, self.copy_of(row)) as other,
            ):
                while piece := os.read(one, _PIECE):
                    if piece != os.read(other, len(piece)):
                        return False
                return not os.read(other, 1)
        except (OSError, InputError):
            return False

    def _write(self, rows: Iterable[tuple[str, Row | None]]) -> None:
        """Replace rows, here and in the index; then delete the copies that no row has any more."""
        dropped: set[str] = set()
        with self._transaction():
            for path, row in rows:
                dropped |= self._place(path, row)
                key = os.fsencode(path)
                if row is None:
                    self._connection.execute("DELETE FROM rows WHERE path = ?", (key,))
                    continue
                values = (json.dumps(row.facts), json.dumps(row.attributes), os.fsencode(row.target), row.copy)
                self._connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", (key, *values))
        for copy in dropped:
            if not self._users[copy]:
                with contextlib.suppress(FileNotFoundError):  # moved to the stash
                    os.unlink(self.copies / copy)

    def _place(self, path: str, row: Row | None) -> set[str]:
        """Put a row where it belongs in memory; return the copy of the one before."""
        folder, _, name = path.rpartition("/")
        inside = self.rows.setdefault(folder, {})
        before = inside.pop(name, None)
        if row is not None:
            inside[name] = row
            self._users[row.copy] += 1
        elif not inside:
            del self.rows[folder]
        if before is None:
            return set()
        self._users[before.copy] -= 1
        return {before.copy} if before.copy else set()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with transaction(self._connection):
                yield
        except sqlite3.Error as error:
            raise HostError(f"{self.copies.parent}: the index cannot be written ({error}). Fix: free space") from None


def _copy_data(source: int, target: int, size: int) -> None:
    """Copy the content of a file, without its holes."""
    place = 0
    while place < size:
        try:
            place = os.lseek(source, place, os.SEEK_DATA)
            end = os.lseek(source, place, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing but a hole is left
                raise
            break
        while place < end:
            piece = os.pread(source, min(_PIECE, end - place), place)
            if not piece:  # it was truncated meanwhile
                return
            place += os.pwrite(target, piece, place)
    os.ftruncate(target, size)
