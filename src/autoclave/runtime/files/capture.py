"""Steps for the changes of a command, from comparing the folder that it wrote to with the tree that it saw.

Two ways to let a command run over a tree without touching it: in an overlay, whose upper folder then holds only what
was changed (and marks of what was deleted), or on a copy of the whole tree. Here both become the same steps. Whatever
stands in the folder was made by the command, and is walked without following links.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.files.scope import Entry, Scope, entry_at
from autoclave.runtime.files.steps import Step, facts_at, sync_file_system
from autoclave.runtime.files.tree_digest import OVERLAY, without_marks

_ORIGIN = f"{OVERLAY}origin"
"""The mark of a file that an overlay copied up; a file without it was created by the command."""
_OPAQUE = (f"{OVERLAY}opaque", b"y".hex())


@dataclass(slots=True)
class Capture:
    """Steps, descriptions of what they leave out, and the places in the written folder of what they bring."""

    steps: list[Step] = field(default_factory=list[Step])
    left_out: list[str] = field(default_factory=list[str])
    brought: dict[str, str] = field(default_factory=dict[str, str])


def captured(written: Scope, tree: Scope, within: str, top: Entry, *, is_whole: bool) -> Capture:
    """Return the steps that change `tree`, at and below the folder `within`, to what a command wrote.

    `is_whole`: `written` is a complete copy, in which missing things were deleted. Else it is the upper folder of an
    overlay. `top` is the written folder itself before the command. A changed file with several names is brought as a
    new file, so that its other names stay as they are. Steps have no inodes yet. O(what is in
    `written`). Raises InputError where something cannot be read, or changes meanwhile.
    """
    found = Capture()
    linked = _linked(written, tree, within, is_whole=is_whole)
    folders = [""]
    facts = list(_changed_top(within, top, written, tree, found))
    while folders:
        folder = folders.pop()
        inside = dict(written.entries_in(folder))
        if is_whole:
            gone = [each for each, _ in tree.entries_in(joined(within, folder)) if _below(each, within) not in inside]
            for path in gone:
                found.steps.append(_take(path, found))
        for place, entry in inside.items():
            path = joined(within, place)
            old, new = tree.entry(path), without_marks(entry)
            if entry.kind == "device" and entry.device == 0:  # the overlay mark of a deletion
                if old is not None:
                    found.steps.append(_take(path, found))
            elif old is not None and old.kind == new.kind == "folder" and _OPAQUE not in entry.attributes:
                folders.append(place)
                facts += changed_facts(path, old, new)
            elif (
                old is None
                or _is_other_thing(old, new)
                or entry.shared in linked
                or (not is_whole and _is_new_file(entry))
                or (old.shared and any(changed_facts(path, old, new)))
            ):
                stash = f"{len(found.brought)}"
                found.brought[stash] = place
                found.steps.append(Step("put" if old is None else "exchange", path, stash))
            else:
                facts += changed_facts(path, old, new)
    found.steps += reversed(facts)  # folders last, parents after children
    return found


def claim(written: Scope, capture: Capture, stash: Path) -> None:
    """Move what is brought in from the written folder to the stash, durably and without overlay marks."""
    for name, place in capture.brought.items():
        with written.parent_of(place) as (parent, last):
            _clean(parent, last)
            for _, folder, inside in written.folders(place):
                for each in inside:
                    _clean(folder, each.name)
            try:
                os.rename(last, stash / name, src_dir_fd=parent)
            except PermissionError as error:
                raise InputError(f"path {place!r}: was made so that it cannot be moved ({error.strerror})") from None
    sync_file_system(stash)


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours, if it exists, with all its content, whatever the modes of folders in it.

    Nested folders are first moved up to the top level, so that no path is too long.
    """
    if not folder.is_dir():
        return
    token, found = secrets.token_hex(8), [folder]
    for place in found:  # it grows
        with os.scandir(place) as inside:
            each_of = list(inside)
        for each in each_of:
            if not each.is_dir(follow_symlinks=False):
                os.unlink(each.path)
                continue
            if not os.access(each.path, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(each.path, 0o700)  # before it is moved and looked into
            found.append(folder / f"{token}-{len(found)}")
            os.rename(each.path, found[-1])
    for place in reversed(found):
        place.rmdir()


def _take(path: str, found: Capture) -> Step:
    return Step("take", path, f"t{len(found.steps)}")


def joined(one: str, other: str) -> str:
    return f"{one}/{other}" if one and other else one or other


def _below(path: str, within: str) -> str:
    return path.removeprefix(f"{within}/") if within else path


def _is_new_file(entry: Entry) -> bool:
    """Return whether a file in the upper folder of an overlay is new, and not a copy of the one below."""
    return entry.kind == "file" and not any(name == _ORIGIN for name, _ in entry.attributes)


def _is_other_thing(old: Entry, new: Entry) -> bool:
    """Return whether the kind, content, target or device differs, so that setting facts is not enough."""
    if old.kind != new.kind or new.kind == "folder":
        return True
    return (old.size, old.digest, old.target, old.device) != (new.size, new.digest, new.target, new.device)


def changed_facts(path: str, old: Entry, new: Entry) -> Iterator[Step]:
    """Yield the step that sets mode, owner, time and attributes where they differ."""
    names = ["mode", "uid", "gid"] if new.kind != "link" else ["uid", "gid"]
    if new.kind != "folder":  # of a folder it changes with what is in it
        names.append("mtime_ns")
    old = without_marks(old)
    changed = {name for name in names if getattr(old, name) != getattr(new, name)}
    if changed & {"uid", "gid"} and new.kind != "link":
        changed.add("mode")  # another owner clears bits of it
    facts: dict[str, Any] = {name: getattr(new, name) for name in sorted(changed)}
    old_facts: dict[str, Any] = {name: getattr(old, name) for name in sorted(changed)}
    one, other = dict(old.attributes), dict(new.attributes)
    if differing := sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name)):
        facts["attributes"] = {name: other.get(name) for name in differing}
        old_facts["attributes"] = {name: one.get(name) for name in differing}
    if facts:
        yield Step("set_facts", path, facts=facts, old_facts=old_facts)


def _changed_top(within: str, old: Entry, written: Scope, tree: Scope, found: Capture) -> Iterator[Step]:
    """Yield the changes to the top folder itself; those of the root of the scope are only reported."""
    for step in changed_facts(within, old, own_entry(written)):
        if within:
            yield replace(step, old_facts=facts_at(within, step.facts, tree))
        else:
            found.left_out.append(f"not done: {', '.join(step.facts)} of the folder itself, which is not its content")


def own_entry(written: Scope) -> Entry:
    """Return the entry of the folder of a scope itself, without overlay marks."""
    found = entry_at(written.descriptor, ".", ".")
    assert found is not None
    return without_marks(found)


def _linked(written: Scope, tree: Scope, within: str, *, is_whole: bool) -> set[int]:
    """Return the inodes of files to which the command gave several names: they must stay one file."""
    found = _names_of_one(written, "")
    before = set(_names_of_one(tree, within).values()) if is_whole else set[frozenset[str]]()
    return {inode for inode, names in found.items() if names not in before}


def _names_of_one(scope: Scope, folder: str) -> dict[int, frozenset[str]]:
    """Return by inode the names, relative to a folder, of each file below it that has several."""
    found: dict[int, set[str]] = {}
    for place, _, inside in scope.folders(folder):
        for each in inside:
            if not each.is_dir(follow_symlinks=False):
                found.setdefault(each.inode(), set()).add(_below(joined(place, each.name), folder))
    return {inode: frozenset(names) for inode, names in found.items() if len(names) > 1}


def _clean(folder: int, name: str) -> None:
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if about.st_rdev == 0 and stat.S_ISCHR(about.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    place = f"/proc/self/fd/{folder}/{name}"
    for each in os.listxattr(place, follow_symlinks=False):
        if each.startswith(OVERLAY):
            os.removexattr(place, each, follow_symlinks=False)
