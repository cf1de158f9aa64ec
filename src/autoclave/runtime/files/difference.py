"""Differences that steps make, as lines for a person: a patch for text, words for the rest. Reads only."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoclave.core import InputError
from autoclave.core.line_diff import Work, lines_of, unified
from autoclave.runtime.files.scope import Scope, open_file
from autoclave.runtime.files.steps import Step

_MOST_BYTES, _MOST_LINES = 1 << 20, 20_000
_MOST_NAMES = 50


_Content = list[str] | str | None
"""The content of a path: lines of text, a description of anything else, or None."""


def difference_of(steps: Sequence[Step], tree: Scope, stash: Scope | None, *, is_done: bool) -> Iterator[str]:
    """Yield lines for each step. New content is in the stash; once the action is done, in the tree.

    After much text the rest is described by its sizes.
    """
    work = Work()
    for step in steps:
        if step.do == "move":
            yield f"renamed {step.path!r} to {step.to!r}"
        elif step.do == "set_facts":
            for name, value in step.facts.items():
                yield f"{name} of {step.path!r}: {_fact(step.old_facts[name])} -> {_fact(value)}"
        else:
            stashed = _found(stash, step.stash, work) if stash else (None, 0)
            standing = _found(tree, step.path, work)
            (old, old_mode), (later, mode) = (stashed, standing) if is_done else (standing, stashed)
            old, later = old if step.do != "put" else None, later if step.do != "take" else None
            yield from _compared(step.path, old, later, work)
            if step.do == "exchange" and stat.S_IFMT(old_mode) == stat.S_IFMT(mode) and old_mode != mode:
                yield f"mode of {step.path!r}: {stat.S_IMODE(old_mode):o} -> {stat.S_IMODE(mode):o}"


def _fact(value: object) -> str:
    return f"{value:o}" if isinstance(value, int) and value <= 0o7777 else f"{value}"


def _compared(path: str, old: _Content, new: _Content, work: Work) -> Iterator[str]:
    verb = "created" if old is None else "deleted" if new is None else "changed"
    if isinstance(old, str) or isinstance(new, str):
        yield f"{verb} {path!r}: {' -> '.join(_words(each) for each in (old, new) if each is not None)}"
        return
    if not old and not new and verb != "changed":
        yield f"{verb} {path!r}: an empty file"
    names = (f"a/{path}" if old is not None else "/dev/null", f"b/{path}" if new is not None else "/dev/null")
    for line in unified(old or [], new or [], *names, work):
        yield from line.split("\n")


def _words(content: list[str] | str) -> str:
    return content if isinstance(content, str) else f"{len(content)} lines of text"


def _lines(content: bytes) -> list[str] | str:
    try:
        if b"\0" not in content:
            text, count = content.decode(), content.count(b"\n")
            return lines_of(text) if count <= _MOST_LINES else f"{count} lines of text"
    except UnicodeDecodeError:
        pass
    return f"{len(content)} bytes that are not text"


@dataclass(frozen=True, slots=True)
class Found:
    """What is at a path: a file, or anything else in words; empty for nothing."""

    told: str = ""
    mode: int = 0
    num_bytes: int = 0
    content: bytes | None = None
    """Of a file that is not too large."""


def found_at(scope: Scope, path: str, most_bytes: int) -> Found:
    """Return what is at a path. Raises OSError or InputError where nothing is, or it cannot be read."""
    with scope.parent_of(path) as (parent, name):
        about = os.stat(name, dir_fd=parent, follow_symlinks=False)
        mode, size = about.st_mode, about.st_size
        if stat.S_ISLNK(mode):
            return Found(f"a link to {os.readlink(name, dir_fd=parent)!r}", mode)
        if stat.S_ISDIR(mode):
            return Found("a folder", mode)
        if not stat.S_ISREG(mode):
            return Found("a fifo, socket or device", mode)
        if size > most_bytes:
            return Found("a file", mode, size)
        with open_file(parent, name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return Found("a file", mode, size, file.read(most_bytes))


def _found(scope: Scope, path: str, work: Work) -> tuple[_Content, int]:
    try:
        found = found_at(scope, path, _MOST_BYTES if work.left > 0 else -1)
    except FileNotFoundError:
        return None, 0
    except (OSError, InputError) as error:
        return f"something that cannot be read ({error})", 0
    if found.content is not None:
        work.left -= 300 + found.num_bytes // 8
        return _lines(found.content), found.mode
    words = f"{found.num_bytes} bytes" if stat.S_ISREG(found.mode) else found.told
    return _folder_words(scope, path) if stat.S_ISDIR(found.mode) else words, found.mode


def _folder_words(scope: Scope, path: str) -> str:
    inside = (f"{above}/{each.name}" for above, _, found in scope.folders(path) for each in found)
    names = [each.removeprefix(f"{path}/") for each in inside]
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"a folder with {shown}{more}" if names else "an empty folder"
