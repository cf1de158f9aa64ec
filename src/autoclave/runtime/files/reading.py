"""Reading of a tree, within limits: its names as text, a file, lines that contain a string. Changes nothing."""

import fnmatch
import itertools
import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.files.operations import List, Read, ReadOperation, Search
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.policy.grants import has_secret_name, protected_names

_MOST_CHARACTERS = 64 << 10
_MOST_SEARCHED = 4 << 20
"""Bytes of a file; larger ones are not searched."""
_MOST_MATCHES = 200
_LONGEST_LINE = 300
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY|AGE-SECRET-KEY-1|PuTTY-User-Key-File")


def read(operation: ReadOperation, scope: Scope) -> tuple[dict[str, Any], bool]:
    """Return what an operation reads, as JSON data, and whether the file contains a private key."""
    match operation:
        case Read():
            content = scope.content(operation.path)
            return _part_of(operation, content), bool(PRIVATE_KEY.search(content))
        case List():
            with scope.folder(operation.path):
                return {"entries": tree_text(scope, operation.path, operation.depth, names_per_folder=500)}, False
        case Search():
            found = list(itertools.islice(_matches(operation, scope), _MOST_MATCHES + 1))
            return {"matches": found[:_MOST_MATCHES], "is_whole": len(found) <= _MOST_MATCHES}, False


def _part_of(operation: Read, content: bytes) -> dict[str, Any]:
    lines = content.decode(errors="backslashreplace").splitlines(keepends=True)
    first = operation.first_line - 1
    text = "".join(lines[first : first + operation.max_lines])
    is_whole = first == 0 and len(lines) <= operation.max_lines and len(text) <= _MOST_CHARACTERS
    return {"content": text[:_MOST_CHARACTERS], "lines_in_file": len(lines), "is_whole": is_whole}


def _matches(operation: Search, scope: Scope) -> Iterator[str]:
    """Yield the lines with the text. Skips files that may hold secrets."""
    wanted = operation.text.encode("utf-8", "surrogateescape")
    for path in _files(operation.path, scope):
        is_secret = protected_names(path) or has_secret_name(path)
        if is_secret or not fnmatch.fnmatchcase(path.rpartition("/")[2], operation.names):
            continue
        try:
            content = scope.content(path)
        except InputError:
            continue
        if b"\0" in content[:8192] or wanted not in content or PRIVATE_KEY.search(content):
            continue
        for number, line in enumerate(content.splitlines(), start=1):
            if wanted in line:
                yield f"{path}:{number}: {line.decode(errors='backslashreplace')[:_LONGEST_LINE]}"


def _files(path: str, scope: Scope) -> Iterator[str]:
    if path:
        found = scope.entry(path)
        if found is None:
            raise InputError(f"path {path!r}: there is nothing")
        if found.kind != "folder":
            yield path
            return
    for place, _, inside in scope.folders(path):
        for each in inside:
            if each.is_file(follow_symlinks=False) and each.stat(follow_symlinks=False).st_size <= _MOST_SEARCHED:
                yield f"{place}/{each.name}" if place else each.name


def tree_text(
    scope: Scope, path: str = "", depth: int = 6, *, names_per_folder: int = 50, most_characters: int = 20_000
) -> str:
    """Return a line for each entry of a folder, indented by depth. A name cannot forge another line."""
    lines: list[str] = []
    room = most_characters
    for line in _tree_lines(scope, path, depth, names_per_folder):
        room -= len(line) + 1
        if room < 0:
            lines.append("... the rest is left out")
            break
        lines.append(line)
    return "\n".join(lines) or "(nothing)"


def _tree_lines(scope: Scope, path: str, depth: int, most_names: int, indent: str = "") -> Iterator[str]:
    if not depth:
        yield f"{indent}..."
        return
    try:
        with scope.folder(path) as folder:
            found = [(name, os.stat(name, dir_fd=folder, follow_symlinks=False)) for name in sorted(os.listdir(folder))]
            links = {name: os.readlink(name, dir_fd=folder) for name, about in found if stat.S_ISLNK(about.st_mode)}
    except (OSError, InputError) as error:
        yield f"{indent}(cannot be read: {getattr(error, 'strerror', None) or 'not in scope'})"
        return
    for name, about in found[:most_names]:
        if stat.S_ISDIR(about.st_mode):
            yield f"{indent}{_shown(name)}/"
            yield from _tree_lines(scope, f"{path}/{name}" if path else name, depth - 1, most_names, f"{indent}  ")
        elif name in links:
            yield f"{indent}{_shown(name)} -> {_shown(links[name])}"
        else:
            yield f"{indent}{_shown(name)} ({about.st_size} bytes)"
    if len(found) > most_names:
        yield f"{indent}... {len(found) - most_names} more"


def _shown(name: str) -> str:
    return name if name.isprintable() and "  " not in name else repr(name)
