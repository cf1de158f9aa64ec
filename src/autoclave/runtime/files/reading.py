"""What is read of a tree on request: a file, the names in a folder, lines that contain a string. Changes nothing."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.files.operations import List, Read, ReadOperation, Search
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.tree_text import TreeLimits, tree_text
from autoclave.runtime.policy.grants import has_secret_name, protected_names

_MOST_CHARACTERS = 64 << 10
_MOST_SEARCHED = 4 << 20
"""Bytes of a file; larger ones are not searched."""
_MOST_MATCHES = 200
_LONGEST_LINE = 300
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY|AGE-SECRET-KEY-1|PuTTY-User-Key-File")


def read(operation: ReadOperation, scope: Scope) -> tuple[dict[str, Any], bool]:
    """What an operation reads, as JSON data, and whether a private key is in the file that it reads.

    Raises:
        InputError: there is nothing at the path, or it cannot be read.
    """
    match operation:
        case Read():
            content = scope.content(operation.path)
            return _lines(operation, content), bool(_PRIVATE_KEY.search(content))
        case List():
            with scope.folder(operation.path):
                limits = TreeLimits(depth=operation.depth, names_per_folder=500)
                return {"entries": tree_text(scope, limits, operation.path)}, False
        case Search():
            found = list(_matches(operation, scope))
            return {"matches": found[:_MOST_MATCHES], "is_whole": len(found) <= _MOST_MATCHES}, False


def _lines(operation: Read, content: bytes) -> dict[str, Any]:
    lines = content.decode(errors="backslashreplace").splitlines(keepends=True)
    first = operation.first_line - 1
    text = "".join(lines[first : first + operation.max_lines])
    is_whole = first == 0 and len(lines) <= operation.max_lines and len(text) <= _MOST_CHARACTERS
    return {"content": text[:_MOST_CHARACTERS], "lines_in_file": len(lines), "is_whole": is_whole}


def _matches(operation: Search, scope: Scope) -> Iterator[str]:
    """One line more than is returned, if there are so many. Files that may hold secrets are left out."""
    wanted, count = operation.text.encode("utf-8", "surrogateescape"), 0
    for path in _files(operation.path, scope):
        if protected_names(path) or has_secret_name(path):
            continue
        if not fnmatch.fnmatchcase(path.rpartition("/")[2], operation.names):
            continue
        try:
            content = scope.content(path)
        except InputError:
            continue
        if b"\0" in content[:8192] or wanted not in content or _PRIVATE_KEY.search(content):
            continue
        for number, line in enumerate(content.splitlines(), start=1):
            if wanted in line:
                yield f"{path}:{number}: {line.decode(errors='backslashreplace')[:_LONGEST_LINE]}"
                count += 1
                if count > _MOST_MATCHES:
                    return


def _files(path: str, scope: Scope) -> Iterator[str]:
    """Files that may be searched, at and below a path."""
    if path:
        with scope.parent_of(path) as (parent, name):
            try:
                about = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                raise InputError(f"path {path!r}: there is nothing") from None
        if not stat.S_ISDIR(about.st_mode):
            yield path
            return
    for place, _, inside in scope.folders(path):
        for each in inside:
            if each.is_file(follow_symlinks=False) and each.stat(follow_symlinks=False).st_size <= _MOST_SEARCHED:
                yield f"{place}/{each.name}" if place else each.name
