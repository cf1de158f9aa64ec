"""What actions replaced, kept in a Git repository of our own: packed, without doubles, and readable with Git's tools.

Every action has a ref, `refs/actions/NAME`: a commit of what the paths it changed were like before, and on it one of
what they were like after. So `git --git-dir STATE/history.git diff refs/actions/NAME^ refs/actions/NAME` tells what it
did. Beside the files (under `tree/`) each commit has `facts.jsonl`: modes, owners, times, extended attributes, empty
folders, which Git does not keep. What is restored is built of both. Names that Git wants for itself, such as `.git`,
have a `%` before them under `tree/`, and so have those that begin with one.

The repository is written and read as data, without a working tree, an index or hooks; a repository of the user in the
folder is content like any other. The contents of large trees become objects of Git LFS (https://git-lfs.com, pointer
files of version 1).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from autoclave.core import DataError, HostError
from autoclave.runtime.files.capture import remove_tree_or_file
from autoclave.runtime.files.scope import Entry, Scope, digest_of, open_file

_PIECE = 1 << 20
_IN_MEMORY = 16 << 20
_SMALLEST_OBJECT = 1024
"""Smaller files stay in Git: a pointer to them would hardly be smaller (specification of Git LFS)."""
_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n"
_SWEPT_AT_ONCE = 64 << 20
"""Bytes of packs that are written again whenever something is forgotten."""
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsync=all",
    "core.bigFileThreshold=1m",  # no time is spent on finding out that large files are not alike
    "fastimport.unpackLimit=1",
    "gc.autoPackLimit=20",
    "gc.autoDetach=false",
    "repack.writeBitmaps=false",
)
_KINDS = ("file", "folder", "link")
_OF_GIT = re.compile(r"\.git|git~|%", re.IGNORECASE)
"""How names begin that Git refuses in a tree, or reads as settings, on some system or other; and our mark of them."""
_LONGEST = 2048
"""Bytes of a path that can be made again below the stash by its name: the kernel takes 4096."""
_GIT_MODES = {"file": "100644", "link": "120000"}


@dataclass(frozen=True, slots=True)
class Place:
    """Something to keep: what has the path `found_at` in `scope`, and is called `path` in the tree."""

    path: str
    scope: Scope
    found_at: str


class GitStore:
    """The repository in `folder`. `lfs_above` (bytes): of trees with more content than that, files are LFS objects.

    Raises:
        HostError: there is no Git, or it cannot make the repository.
    """

    def __init__(self, folder: Path, lfs_above: int = 200 << 20) -> None:
        self.folder, self.lfs_above = folder, lfs_above
        if not shutil.which("git"):
            raise HostError("versioning git: there is no program `git`. Fix: install it, or choose snapshot")
        if not (folder / "HEAD").is_file():
            self._git("init", "--quiet", "--bare", "--object-format=sha1", "--template=", str(folder))
        names = self._git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/actions")
        self._actions = set(names.decode().split())
        if self._unswept.exists():
            self._sweep()

    def keep(self, action: str, before: Sequence[Place], after: Sequence[Place], tree_bytes: int) -> None:
        """Keep what was there before an action, and record what is there after. Durable when this returns.

        `tree_bytes`: how much content the whole tree has.

        Raises:
            InputError: something cannot be read.
            HostError: Git cannot write it.
        """
        with_lfs = tree_bytes > self.lfs_above
        command = [*self._command, "fast-import", "--quiet", "--force"]
        with tempfile.TemporaryFile() as errors:
            importing = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, env=self._environment
            )
            try:
                with importing:
                    stream = cast("IO[bytes]", importing.stdin)
                    for which, places in (("before", before), ("after", after)):
                        self._write_commit(stream, action, which, places, with_lfs=with_lfs)
            except BrokenPipeError:
                pass  # it says why below
            if importing.returncode:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip()[-500:]
                raise HostError(f"{self.folder}: Git cannot keep what action {action} replaced ({said})")
        self._actions.add(action)
        self._git("gc", "--auto", "--quiet", "--prune=now")

    def has(self, action: str) -> bool:
        """Whether something is kept of an action."""
        return action in self._actions

    def restore(self, action: str, path: str, target: Path) -> None:
        """Make at `target` what was at `path`, and below it, before an action: all but inode numbers and holes.

        Raises:
            DataError: the repository does not have it any more, or not as it was; nothing is at `target`.
            HostError: it cannot be made.
        """
        whole = self._git("cat-file", "blob", f"refs/actions/{action}^:facts.jsonl")
        facts = [json.loads(line) for line in whole.splitlines()]
        wanted = [each for each in facts if each["path"] == path or each["path"].startswith(f"{path}/")]
        if not wanted:
            raise DataError(f"{self.folder}: has nothing of {path!r} for action {action}")
        made = [(_below(target, each["path"].removeprefix(path)), each) for each in wanted]
        try:
            with self._contents() as contents:
                for place, each in made:
                    if each["kind"] == "folder":
                        place.mkdir()
                    elif each["kind"] == "link":
                        place.symlink_to(each["target"])
                    else:
                        self._write_content(place, each, contents)
            for place, each in reversed(made):
                _set_facts(place, each)
        except OSError as error:
            remove_tree_or_file(target)
            raise HostError(f"{target}: what Git kept cannot be made there again ({error.strerror})") from None
        except DataError:
            remove_tree_or_file(target)
            raise

    def forget(self, action: str) -> None:
        """Remove what is kept of an action, and nothing else needs: at once, or from a large repository when it is
        opened next, since all that stays has to be written again.
        """
        if not self.has(action):
            return
        objects = self._objects_of(f"refs/actions/{action}")
        self._unswept.touch()  # first: whoever opens it after a death goes on
        self._git("update-ref", "-d", f"refs/actions/{action}")
        self._actions.remove(action)
        if objects:
            for each in objects - self._objects_of("--all"):
                self._object(each).unlink(missing_ok=True)
        if sum(pack.stat().st_size for pack in (self.folder / "objects/pack").glob("*.pack")) <= _SWEPT_AT_ONCE:
            self._sweep()

    @property
    def _unswept(self) -> Path:
        """Is there while there may be objects that no action needs any more."""
        return self.folder / "unswept"

    def _sweep(self) -> None:
        """Write what is needed into one pack, and remove all others."""
        self._git("repack", "-a", "-d", "--quiet", "--window=0")
        self._git("prune", "--expire=now")
        self._unswept.unlink(missing_ok=True)

    # --- Writing ----------------------------------------------------------------------------------------------------

    def _write_commit(
        self, stream: IO[bytes], action: str, which: str, places: Iterable[Place], *, with_lfs: bool
    ) -> None:
        facts: list[dict[str, Any]] = []
        names: list[tuple[str, str, str]] = []
        oids: list[str] = []
        for place, at, entry in _entries(places):
            path = _renamed(at, place)
            told: dict[str, Any] = {"path": path, **asdict(entry)}
            if entry.kind in _GIT_MODES:
                with _content_of(place.scope, at, entry) as (content, size):
                    if with_lfs and entry.kind == "file" and size >= _SMALLEST_OBJECT:
                        told["object"] = self._keep_object(content, size)
                        oids.append(told["object"])
                        pointer = _POINTER.format(oid=told["object"], size=size).encode()
                        told["blob"] = _write_blob(stream, *_in_memory(pointer))
                    else:
                        told["blob"] = _write_blob(stream, content, size)
                names.append((_GIT_MODES[entry.kind], told["blob"], f"tree/{_marked(path)}"))
            facts.append(told)
        lines = "".join(f"{json.dumps(each)}\n" for each in facts).encode()
        names.append(("100644", _write_blob(stream, *_in_memory(lines)), "facts.jsonl"))
        if oids:
            rule = b"tree/** filter=lfs diff=lfs merge=lfs -text\n"
            names.append(("100644", _write_blob(stream, *_in_memory(rule)), ".gitattributes"))
        told_of = "".join(f"object {oid}\n" for oid in oids)
        message = f"{which} action {action}\n\n{told_of}".encode()
        stream.write(f"commit refs/actions/{action}\n".encode())
        stream.write(b"committer autoclave <autoclave@localhost> %d +0000\n" % time.time())
        stream.write(b"data %d\n%s\ndeleteall\n" % (len(message), message))
        for mode, blob, path in names:
            stream.write(b"M %s %s %s\n" % (mode.encode(), blob.encode(), _quoted(path)))
        stream.write(b"\n")

    def _keep_object(self, content: IO[bytes], size: int) -> str:
        digest = hashlib.sha256()
        for piece in _pieces(content, size):
            digest.update(piece)
        place = self._object(digest.hexdigest())
        if not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = place.with_name(f"{place.name}.new")
            with temporary.open("wb") as file:
                for piece in _pieces(content, size):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(place)
        return digest.hexdigest()

    def _object(self, oid: str) -> Path:
        return self.folder / "lfs/objects" / oid[:2] / oid[2:4] / oid

    # --- Reading ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _contents(self) -> Iterator[Callable[[str, IO[bytes]], None]]:
        """Writes the content of a blob to a file: one Git for all of them."""
        with subprocess.Popen(
            [*self._command, "cat-file", "--batch"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self._environment,
        ) as reading:  # fmt: skip
            asks, answers = cast("IO[bytes]", reading.stdin), cast("IO[bytes]", reading.stdout)

            def write(blob: str, file: IO[bytes]) -> None:
                asks.write(f"{blob}\n".encode())
                asks.flush()
                words = answers.readline().split()
                if len(words) != 3 or words[1] != b"blob":
                    raise DataError(f"{self.folder}: has no content {blob} any more")
                rest = int(words[2])
                while rest and (piece := answers.read(min(rest, _PIECE))):
                    file.write(piece)
                    rest -= len(piece)
                if rest or answers.read(1) != b"\n":
                    raise DataError(f"{self.folder}: the content {blob} breaks off")

            yield write

    def _write_content(self, place: Path, facts: dict[str, Any], contents: Callable[[str, IO[bytes]], None]) -> None:
        with place.open("xb+") as file:
            if oid := facts.get("object"):
                if not self._object(oid).is_file():
                    raise DataError(f"{self._object(oid)}: is gone, which had the content of {facts['path']!r}")
                with self._object(oid).open("rb") as content:
                    shutil.copyfileobj(content, file, _PIECE)
            else:
                contents(facts["blob"], file)
            file.flush()
            if os.fstat(file.fileno()).st_size != facts["size"] or digest_of(file.fileno()) != facts["digest"]:
                raise DataError(f"{self.folder}: what it has of {facts['path']!r} is not what was kept; it is damaged")
            os.fsync(file.fileno())

    def _objects_of(self, revisions: str) -> set[str]:
        """The LFS objects that commits name."""
        messages = self._git("log", "--format=%B", revisions).decode()
        return {line.split()[1] for line in messages.splitlines() if line.startswith("object ")}

    # --- Git --------------------------------------------------------------------------------------------------------

    @property
    def _command(self) -> list[str]:
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        return ["git", "--git-dir", str(self.folder), *settings]

    @property
    def _environment(self) -> dict[str, str]:
        """Nothing that the user has set for Git is heeded."""
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        return {
            **kept,
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "LC_ALL": "C",
        }

    def _git(self, *arguments: str) -> bytes:
        done = subprocess.run(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, env=self._environment, check=False,
        )  # fmt: skip
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            raise HostError(f"{self.folder}: git {' '.join(arguments[:4])} failed ({said})")
        return done.stdout


def can_keep(place: Place) -> bool:
    """Whether Git and our list of facts keep all of something: no pipes, devices, holes, or files with several names.

    And nothing that this user could not make again: what cannot be read, what belongs to others.
    """
    for each, at, entry in _entries([place]):
        unreadable = entry.kind == "folder" and bool(entry.digest)
        if entry.kind not in _KINDS or entry.shared or unreadable or len(os.fsencode(at)) > _LONGEST:
            return False
        if os.geteuid() and (entry.uid, entry.gid) != (os.geteuid(), os.getegid()):
            return False
        if entry.kind == "file":
            with each.scope.parent_of(at) as (parent, name):
                about = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if about.st_blocks * 512 < about.st_size or not os.access(name, os.R_OK, dir_fd=parent):
                    return False
    return True


def tree_bytes(root: Path) -> int:
    """How much content the files below a folder have, in bytes."""
    total = 0
    for above, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(above, name)).st_size
    return total


def _entries(places: Iterable[Place]) -> Iterator[tuple[Place, str, Entry]]:
    for place in places:
        for at, entry in place.scope.walk(place.found_at):
            yield place, at, entry


def _renamed(at: str, place: Place) -> str:
    return f"{place.path}{at.removeprefix(place.found_at)}"


def _marked(path: str) -> str:
    """A path as the tree of Git has it; another one for each."""
    return "/".join(f"%{name}" if _OF_GIT.match(name) else name for name in path.split("/"))


def _below(target: Path, rest: str) -> Path:
    return target / rest.lstrip("/") if rest else target


@contextlib.contextmanager
def _content_of(scope: Scope, at: str, entry: Entry) -> Iterator[tuple[IO[bytes], int]]:
    """The content of a file, or the target of a link, as Git has it; a copy, which nobody changes meanwhile."""
    if entry.kind == "link":
        yield _in_memory(os.fsencode(entry.target))
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
        with scope.parent_of(at) as (parent, name), open_file(parent, name) as descriptor:
            while piece := os.read(descriptor, _PIECE):
                copy.write(piece)
        yield copy, copy.tell()


def _in_memory(content: bytes) -> tuple[IO[bytes], int]:
    return io.BytesIO(content), len(content)


def _write_blob(stream: IO[bytes], content: IO[bytes], size: int) -> str:
    """Give Git a blob; its name."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    stream.write(b"blob\ndata %d\n" % size)
    for piece in _pieces(content, size):
        digest.update(piece)
        stream.write(piece)
    stream.write(b"\n")
    return digest.hexdigest()


def _quoted(path: str) -> bytes:
    """A path as `git fast-import` reads it."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(path))
    return f'"{"".join(plain)}"'.encode("ascii")


def _set_facts(place: Path, facts: Mapping[str, Any]) -> None:
    is_link = facts["kind"] == "link"
    if os.geteuid() == 0:
        os.chown(place, facts["uid"], facts["gid"], follow_symlinks=False)
    for name, value in facts["attributes"]:
        os.setxattr(place, name, bytes.fromhex(value), follow_symlinks=False)
    if not is_link:
        place.chmod(facts["mode"])
    os.utime(place, ns=(facts["mtime_ns"], facts["mtime_ns"]), follow_symlinks=False)


def _pieces(content: IO[bytes], size: int) -> Iterator[bytes]:
    content.seek(0)
    while size > 0 and (piece := content.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece
