"""What steps change, as lines for a person: like a patch for text, in words for the rest. Only looks."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoclave.core import InputError
from autoclave.runtime.files.making import New
from autoclave.runtime.files.scope import Scope, open_file
from autoclave.runtime.files.steps import Step

_MOST_BYTES = 1 << 20
_MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class _Side:
    """What was or will be at a path: a text, words for what is none, or nothing; with its kind and mode."""

    content: bytes | str | None = None
    mode: int = 0


def difference_of(
    steps: Sequence[Step], tree: Scope, stash: Scope | None, new: Mapping[str, New], *, is_done: bool
) -> Iterator[str]:
    """Lines for each step. What is new is in the stash, or in `new` by its name there; once it is done, in the tree."""
    for step in steps:
        if step.do == "move":
            yield f"renamed {step.path!r} to {step.to!r}"
        elif step.do == "set_facts":
            for name, value in step.facts.items():
                yield f"{name} of {step.path!r}: {_fact(step.old_facts[name])} -> {_fact(value)}"
        else:
            made = new.get(step.stash)
            stashed = _made(made, tree) if made else _found(stash, step.stash) if stash else _Side()
            standing = _found(tree, step.path)
            old, later = (stashed, standing) if is_done else (standing, stashed)
            old, later = _Side() if step.do == "put" else old, _Side() if step.do == "take" else later
            yield from _compared(step.path, old.content, later.content)
            if stat.S_IFMT(old.mode) == stat.S_IFMT(later.mode) and old.mode != later.mode:
                yield f"mode of {step.path!r}: {stat.S_IMODE(old.mode):o} -> {stat.S_IMODE(later.mode):o}"


def _fact(value: object) -> str:
    return f"{value:o}" if isinstance(value, int) and value <= 0o7777 else f"{value}"


def _compared(path: str, old: bytes | str | None, new: bytes | str | None) -> Iterator[str]:
    names = (f"a/{path}" if old is not None else "/dev/null", f"b/{path}" if new is not None else "/dev/null")
    texts = [_text(content) for content in (old, new)]
    if None in texts:
        told = [_words(content) for content in (old, new) if content is not None]
        verb = "changed" if len(told) > 1 else "created" if old is None else "deleted"
        yield f"{verb} {path!r}: {' -> '.join(told)}"
        return
    lines = [(text or "").splitlines(keepends=True) for text in texts]
    is_empty = not any(lines)
    if is_empty:
        yield f"{'created' if old is None else 'deleted'} {path!r}: an empty file"
    for line in difflib.unified_diff(lines[0], lines[1], names[0], names[1]):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ no line break at the end"


def _text(content: bytes | str | None) -> str | None:
    if content is None:
        return ""
    if isinstance(content, str) or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _words(content: bytes | str | None) -> str:
    return content if isinstance(content, str) else f"{len(content or b'')} bytes that are no text"


def _made(new: New, tree: Scope) -> _Side:
    mode = stat.S_IFREG | new.entry.mode
    if new.copied:
        return _Side(_found(tree, new.copied).content, mode)
    if new.below:
        return _Side(f"a folder with {new.inside[-1]!r}")
    if new.entry.kind == "file":
        return _Side(new.content, mode)
    return _Side(f"a link to {new.entry.target!r}" if new.entry.kind == "link" else "an empty folder")


def _found(scope: Scope, path: str) -> _Side:
    mode, content = 0, None
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
                    content = os.pread(descriptor, _MOST_BYTES, 0)
    except FileNotFoundError:
        return _Side()
    except (OSError, InputError) as error:
        content = f"something that cannot be read ({error})"
    return _Side(content, mode)


def _folder_words(scope: Scope, path: str) -> str:
    names = [each.removeprefix(f"{path}/") for each, _ in scope.walk(path)][1:]
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"a folder with {shown}{more}" if names else "an empty folder"
