"""Differences that steps make, as lines for a person: a patch for text, words for the rest. Reads only."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Sequence

from autoclave.core import InputError
from autoclave.runtime.files.scope import Scope, open_file
from autoclave.runtime.files.steps import Step

_MOST_BYTES = 1 << 20
_MOST_NAMES = 50


_Content = list[str] | str | None
"""The content of a path: lines of text, a description of anything else, or None."""


def difference_of(steps: Sequence[Step], tree: Scope, stash: Scope | None, *, is_done: bool) -> Iterator[str]:
    """Yield lines for each step. New content is in the stash; once the action is done, in the tree."""
    for step in steps:
        if step.do == "move":
            yield f"renamed {step.path!r} to {step.to!r}"
        elif step.do == "set_facts":
            for name, value in step.facts.items():
                yield f"{name} of {step.path!r}: {_fact(step.old_facts[name])} -> {_fact(value)}"
        else:
            stashed = _found(stash, step.stash) if stash else (None, 0)
            standing = _found(tree, step.path)
            (old, old_mode), (later, mode) = (stashed, standing) if is_done else (standing, stashed)
            yield from _compared(step.path, old if step.do != "put" else None, later if step.do != "take" else None)
            if step.do == "exchange" and stat.S_IFMT(old_mode) == stat.S_IFMT(mode) and old_mode != mode:
                yield f"mode of {step.path!r}: {stat.S_IMODE(old_mode):o} -> {stat.S_IMODE(mode):o}"


def _fact(value: object) -> str:
    return f"{value:o}" if isinstance(value, int) and value <= 0o7777 else f"{value}"


def _compared(path: str, old: _Content, new: _Content) -> Iterator[str]:
    verb = "created" if old is None else "deleted" if new is None else "changed"
    if isinstance(old, str) or isinstance(new, str):
        yield f"{verb} {path!r}: {' -> '.join(_words(each) for each in (old, new) if each is not None)}"
        return
    if not old and not new and verb != "changed":
        yield f"{verb} {path!r}: an empty file"
    names = (f"a/{path}" if old is not None else "/dev/null", f"b/{path}" if new is not None else "/dev/null")
    for line in difflib.unified_diff(old or [], new or [], *names):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ no line break at the end"


def _words(content: list[str] | str) -> str:
    return content if isinstance(content, str) else f"{len(content)} lines of text"


def _lines(content: bytes) -> list[str] | str:
    try:
        if b"\0" not in content:
            return content.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        pass
    return f"{len(content)} bytes that are not text"


def _found(scope: Scope, path: str) -> tuple[_Content, int]:
    mode = 0
    content: _Content = None
    try:
        with scope.parent_of(path) as (parent, name):
            about = os.stat(name, dir_fd=parent, follow_symlinks=False)
            mode = about.st_mode
            if stat.S_ISLNK(mode):
                content = f"a link to {os.readlink(name, dir_fd=parent)!r}"
            elif stat.S_ISDIR(mode):
                content = _folder_words(scope, path)
            elif not stat.S_ISREG(mode):
                content = "a fifo, socket or device"
            elif about.st_size > _MOST_BYTES:
                content = f"{about.st_size} bytes"
            else:
                with open_file(parent, name) as descriptor:
                    content = _lines(os.pread(descriptor, _MOST_BYTES, 0))
    except FileNotFoundError:
        pass
    except (OSError, InputError) as error:
        content = f"something that cannot be read ({error})"
    return content, mode


def _folder_words(scope: Scope, path: str) -> str:
    names = [each.removeprefix(f"{path}/") for each, _ in scope.walk(path)][1:]
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"a folder with {shown}{more}" if names else "an empty folder"
