"""The tree of a folder as text for a prompt: names and sizes, within limits, never content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from autoclave.core import InputError
from autoclave.runtime.files.scope import Scope


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """How much of a tree is told."""

    depth: int = 6
    names_per_folder: int = 50
    characters: int = 20_000


def tree_text(scope: Scope, limits: TreeLimits | None = None, path: str = "") -> str:
    """A line for each thing in a folder, indented by its depth, with a line on what is left out. A name cannot pass for
    another line.
    """
    limits = limits or TreeLimits()
    lines: list[str] = []
    room = limits.characters
    for line in _lines(scope, path, 0, limits):
        room -= len(line) + 1
        if room < 0:
            lines.append("... the rest is left out")
            break
        lines.append(line)
    return "\n".join(lines) or "(nothing)"


def _lines(scope: Scope, path: str, depth: int, limits: TreeLimits) -> Iterator[str]:
    indent = "  " * depth
    if depth >= limits.depth:
        yield f"{indent}..."
        return
    try:
        with scope.folder(path) as folder:
            found = [(name, os.stat(name, dir_fd=folder, follow_symlinks=False)) for name in sorted(os.listdir(folder))]
            links = {name: os.readlink(name, dir_fd=folder) for name, about in found if stat.S_ISLNK(about.st_mode)}
    except (OSError, InputError) as error:
        yield f"{indent}(cannot be read: {getattr(error, 'strerror', None) or 'not in scope'})"
        return
    for name, about in found[: limits.names_per_folder]:
        if stat.S_ISDIR(about.st_mode):
            yield f"{indent}{_shown(name)}/"
            yield from _lines(scope, f"{path}/{name}" if path else name, depth + 1, limits)
        elif name in links:
            yield f"{indent}{_shown(name)} -> {_shown(links[name])}"
        else:
            yield f"{indent}{_shown(name)} ({about.st_size} bytes)"
    if len(found) > limits.names_per_folder:
        yield f"{indent}... {len(found) - limits.names_per_folder} more"


def _shown(name: str) -> str:
    return name if name.isprintable() and "  " not in name else repr(name)
