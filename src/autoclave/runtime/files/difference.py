"""What steps change, as lines for a person: like a patch for text, in words for the rest. Only looks."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

from autoclave.core import InputError
from autoclave.runtime.files.making import New
from autoclave.runtime.files.scope import Scope, open_file
from autoclave.runtime.files.steps import Step

_MOST_BYTES = 1 << 20
_MOST_NAMES = 50
Content = bytes | str | None
"""A text, words for what is none, or nothing."""


def difference_of(
    steps: Sequence[Step], tree: Scope, stash: Scope | None, new: Mapping[str, New], *, is_done: bool
) -> Iterator[str]:
    """Lines for each step. What is new is in the stash, or in `new` by its name there; once it is done, in the tree."""

    def stashed(step: Step) -> Content:
        if (made := new.get(step.stash)) is not None:
            return _content_of_new(made, tree)
        return _content(stash, step.stash) if stash else None

    def standing(step: Step) -> Content:
        return _content(tree, step.path)

    def modes(step: Step) -> list[int | None]:
        made = new.get(step.stash)
        in_stash = stat.S_IFREG | made.entry.mode if made else _mode(stash, step.stash) if stash else None
        return [in_stash, _mode(tree, step.path)] if is_done else [_mode(tree, step.path), in_stash]

    before, after = (stashed, standing) if is_done else (standing, stashed)
    for step in steps:
        yield from _lines(step, before, after)
        if step.do == "exchange":
            yield from _compared_modes(step.path, *modes(step))


def _lines(step: Step, before: Callable[[Step], Content], after: Callable[[Step], Content]) -> Iterator[str]:
    match step.do:
        case "put":
            yield from _compared(step.path, None, after(step))
        case "take":
            yield from _compared(step.path, before(step), None)
        case "exchange":
            yield from _compared(step.path, before(step), after(step))
        case "move":
            yield f"renamed {step.path!r} to {step.to!r}"
        case "set_facts":
            for name, value in step.facts.items():
                yield f"{name} of {step.path!r}: {_fact(step.old_facts[name])} -> {_fact(value)}"


def _compared_modes(path: str, old: int | None, new: int | None) -> Iterator[str]:
    if old is not None and new is not None and stat.S_IFMT(old) == stat.S_IFMT(new) and old != new:
        yield f"mode of {path!r}: {stat.S_IMODE(old):o} -> {stat.S_IMODE(new):o}"


def _mode(scope: Scope, path: str) -> int | None:
    try:
        with scope.parent_of(path) as (parent, name):
            about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except (OSError, InputError):
        return None
    return about.st_mode


def _content_of_new(new: New, tree: Scope) -> Content:
    if new.copied:
        return _content(tree, new.copied)
    if new.entry.kind == "link":
        return f"a link to {new.entry.target!r}"
    if new.entry.kind == "folder":
        return f"a folder with {new.inside[-1]!r}" if new.inside else "an empty folder"
    return new.content


def _fact(value: object) -> str:
    return f"{value:o}" if isinstance(value, int) and value <= 0o7777 else f"{value}"


def _compared(path: str, old: Content, new: Content) -> Iterator[str]:
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


def _text(content: Content) -> str | None:
    if content is None:
        return ""
    if isinstance(content, str) or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _words(content: Content) -> str:
    return content if isinstance(content, str) else f"{len(content or b'')} bytes that are no text"


def _content(scope: Scope, path: str) -> Content:
    try:
        with scope.parent_of(path) as (parent, name):
            about = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(about.st_mode):
                return f"a link to {os.readlink(name, dir_fd=parent)!r}"
            if stat.S_ISDIR(about.st_mode):
                return _folder_words(scope, path)
            if not stat.S_ISREG(about.st_mode):
                return "a fifo, socket or device"
            if about.st_size > _MOST_BYTES:
                return f"{about.st_size} bytes"
            with open_file(parent, name) as descriptor:
                return os.pread(descriptor, _MOST_BYTES, 0)
    except FileNotFoundError:
        return None
    except (OSError, InputError) as error:
        return f"something that cannot be read ({error})"


def _folder_words(scope: Scope, path: str) -> str:
    names = [each.removeprefix(f"{path}/") for each, _ in scope.walk(path)][1:]
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"a folder with {shown}{more}" if names else "an empty folder"
