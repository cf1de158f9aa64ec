"""Changes that others made to a tree, as an action with steps and a stash like those of an executed one.

What was replaced or deleted goes from the copies of the shadow to the stash of the action, by renames; folders that
were deleted are built again there. Nothing in the tree is touched.
"""

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoclave.act.shadow import NO_SPACE, Attributes, Change, Row, Shadow
from autoclave.core import HostError, InputError
from autoclave.core.files import sync_directory
from autoclave.core.json import canonical_json
from autoclave.core.scan import Facts
from autoclave.runtime.files.capture import changed_facts
from autoclave.runtime.files.operations import key_of
from autoclave.runtime.files.plans import keys_of, paths_of
from autoclave.runtime.files.scope import Entry, Scope, attributes_of, open_file
from autoclave.runtime.files.steps import Step, as_it_is, sync_file_system
from autoclave.runtime.files.tree_digest import NOT_COMPARED, Survey, survey, survey_by_inode, without_marks
from autoclave.runtime.files.undoing import left_with, times_around
from autoclave.runtime.footprints import with_those_above
from autoclave.runtime.guarantee import Guarantee

_MOST_SYNCED_ALONE = 32
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Recording:
    """What is known of an action before anything is moved.

    Attributes:
        steps: what changed the tree, in an order in which it can be undone backwards; without inodes.
        objects: what goes to the stash: place there, and what was there; folders before what is in them.
        moves: the place in the stash of each copy that goes there.
        around: folders with another mtime than before, with that one.
        left_out: what cannot be undone, in words.
        limits: what an undo does not restore exactly, in words.
    """

    steps: list[Step] = field(default_factory=list[Step])
    objects: list[tuple[str, Row]] = field(default_factory=list[tuple[str, Row]])
    moves: dict[str, str] = field(default_factory=dict[str, str])
    around: dict[str, int] = field(default_factory=dict[str, int])
    left_out: list[str] = field(default_factory=list[str])
    limits: list[str] = field(default_factory=list[str])

    @property
    def guarantee(self) -> Guarantee:
        if self.left_out:
            return Guarantee.NONE
        return Guarantee.EQUIVALENT if self.limits else Guarantee.EXACT


class NotKept(HostError):
    """What was at `path` cannot be kept in the stash."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(f"path {path!r}: cannot be kept ({why})")


def recording_of(
    changes: Sequence[Change], top: Facts, shadow: Shadow, *, others: Container[str] = (), unkept: Container[str] = ()
) -> Recording:
    """Return the steps that made these changes; none where content and facts are as before. Changes nothing.

    `top`: the folder of the tree itself, as it is now. `others`: paths at which the changes are those of others; an
    undo does not bring back what was there. `unkept`: paths whose pre-images could not be kept before.
    """
    found, content, facts = Recording(), dict[str, Step](), dict[str, Step]()
    tops, unknown = set[str](), set(shadow.note("unlisted") or ())
    for path, old, new in changes:
        folders = set(with_those_above(path.rpartition("/")[0]))
        if folders & unknown:
            told = f"not covered: {max(folders & unknown)!r} could not be listed before"
            found.left_out += [told] if told not in found.left_out else []
        if folders & (tops | unknown):
            continue
        if path in unkept:
            found.left_out.append(f"not covered: what was at {path!r} cannot be kept")
            tops.add(path)
            continue
        if old and new and old.facts.kind == new.kind and not _is_replaced(path, old, new, shadow):
            for step in _facts_steps(path, old, new, shadow.scope):
                facts[path] = step
            if new.is_folder and old.facts.mtime_ns != new.mtime_ns:
                found.around[path] = old.facts.mtime_ns
        elif (old and _is_lost(old, shadow)) or not (old or new):
            found.left_out.append(f"not covered: {path!r} has no pre-image")
        else:
            if (old and old.facts.is_folder) or (new and new.is_folder):
                tops.add(path)
            content[path] = Step("put" if old is None else "take" if new is None else "exchange", path)
    _keep_links(changes, tops, content, facts, found)
    for number, (path, step) in enumerate(content.items()):
        content[path] = step = replace(step, stash=f"{step.do[0]}{number}")
        if step.do != "put":
            row = shadow.row(path)
            assert row is not None
            for place, each in _objects(step.stash, path, row, shadow, others):
                if _is_lost(each, shadow):
                    found.left_out.append(f"not covered: {path!r} had a file without a pre-image")
                    continue
                found.objects.append((place, each))
                if not _can_restore(each):
                    found.limits.append(f"owner or attributes of {path!r}, which only root may set")
                if each.copy:
                    found.moves.setdefault(each.copy, place)
    opened = [step for step in facts.values() if _gives_access(step)]  # undone last
    found.steps = [*opened, *content.values(), *reversed([step for step in facts.values() if step not in opened])]
    if (before := shadow.top) and before.mtime_ns != top.mtime_ns:
        found.around[""] = before.mtime_ns
    if before and (before.mode, before.uid, before.gid) != (top.mode, top.uid, top.gid):
        found.left_out.append("not covered: mode or owner of the folder itself, which is not its content")
    return found


def _is_lost(row: Row, shadow: Shadow) -> bool:
    return row.facts.is_file and not (row.copy and shadow.copy_of(row).exists())


def _can_restore(row: Row) -> bool:
    """Return whether this user may give a file the owner and attributes that it had."""
    is_own = row.facts.uid == os.geteuid() and row.facts.gid in (os.getegid(), *os.getgroups())
    is_plain = all(name.startswith(("user.", "system.posix_acl", *NOT_COMPARED)) for name, _ in row.attributes)
    return os.geteuid() == 0 or (is_own and is_plain)


def _is_replaced(path: str, old: Row, new: Facts, shadow: Shadow) -> bool:
    """Return whether the content, target or device differs, so that setting facts is not enough."""
    if stat.S_ISREG(new.mode):
        if old.facts.size != new.size:
            return True
        if not old.copy:  # unreadable: as far as its time tells
            return old.facts.mtime_ns != new.mtime_ns
        return not shadow.holds_content_of(path, old)
    if stat.S_ISLNK(new.mode):
        with contextlib.suppress(OSError, InputError), shadow.scope.parent_of(path) as (parent, name):
            return os.readlink(name, dir_fd=parent) != old.target
        return True
    return old.facts.device != new.device


def _facts_steps(path: str, old: Row, new: Facts, scope: Scope) -> Iterator[Step]:
    attributes = old.attributes
    if not stat.S_ISLNK(new.mode) and (new.is_file or new.is_folder):
        with (
            contextlib.suppress(OSError, InputError),
            scope.parent_of(path) as (parent, name),
            open_file(parent, name, _READ) as descriptor,
        ):
            attributes = attributes_of(descriptor)
    yield from changed_facts(path, _entry(old.facts, old.attributes), _entry(new, attributes))


def _entry(facts: Facts, attributes: Attributes) -> Entry:
    kind = "folder" if facts.is_folder else "link" if stat.S_ISLNK(facts.mode) else "file"
    entry = Entry(kind, stat.S_IMODE(facts.mode), facts.uid, facts.gid, facts.mtime_ns, attributes=attributes)
    return without_marks(entry)


def _gives_access(step: Step) -> bool:
    """Return whether names in a folder can be changed only after this step."""
    before, after = step.old_facts.get("mode", 0o300), step.facts.get("mode", 0o300)
    return before & 0o300 != 0o300 and after & 0o300 == 0o300


def _keep_links(
    changes: Sequence[Change], tops: set[str], content: dict[str, Step], facts: dict[str, Step], found: Recording
) -> None:
    """Have all names of a file brought back, if one is, so that they are one file again."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        if change.old and change.old.copy and change.old.facts.num_links > 1:
            groups.setdefault(change.old.copy, []).append(change)
    for group in groups.values():
        inside = {each.path for each in group if any(above in tops for above in with_those_above(each.path))}
        if not inside and not any(each.path in content for each in group):
            continue
        if any(each.old and each.old.facts.num_links > len(group) for each in group):
            found.limits.append(f"{group[0].path!r} has other names outside of the folder, from which it is separated")
        for each in group:
            if each.path not in inside and each.path not in content:
                content[each.path] = Step("exchange", each.path)
                facts.pop(each.path, None)


def _objects(place: str, path: str, row: Row, shadow: Shadow, others: Container[str]) -> Iterator[tuple[str, Row]]:
    """Yield what was at and below a path, without `others`, with places in the stash; folders before their content."""
    waiting = [(place, path, row)]
    while waiting:
        place, path, row = waiting.pop()
        yield place, row
        if row.facts.is_folder:
            inside = shadow.rows.get(path, {}).items()
            waiting += [
                (f"{place}/{name}", f"{path}/{name}", each) for name, each in inside if f"{path}/{name}" not in others
            ]


def build(recording: Recording, shadow: Shadow, folder: Path) -> None:
    """Bring to the folder of an action what it replaced, durably.

    Raises OSError where there is no space, NotKept where something cannot be there.
    """
    folder.mkdir(exist_ok=True)
    is_small, place = len(recording.moves) <= _MOST_SYNCED_ALONE, ""
    paths = {step.stash: step.path for step in recording.steps if step.stash}
    with Scope(folder) as stash:
        for above, inside in _by_folder(recording.objects):
            try:
                with stash.folder(above) as parent:
                    for place, row in inside:
                        _build_one(place, row, recording, shadow, stash, parent, is_synced=is_small)
            except (OSError, InputError) as error:
                if isinstance(error, OSError) and error.errno in NO_SPACE:
                    raise
                raise NotKept(paths[(above or place).partition("/")[0]], f"{error}") from None
        for above, inside in _by_folder(recording.objects[::-1]):  # folders after what is in them
            with stash.folder(above) as parent:
                for place, row in inside:
                    if problem := _set_facts(parent, place.rpartition("/")[2], row):
                        recording.limits.append(problem)
    if is_small and not any(row.facts.is_folder for _, row in recording.objects):
        sync_directory(folder)
    else:
        sync_file_system(folder)


def _by_folder(objects: Sequence[tuple[str, Row]]) -> Iterator[tuple[str, Iterator[tuple[str, Row]]]]:
    return itertools.groupby(objects, key=lambda each: each[0].rpartition("/")[0])


def _build_one(
    place: str, row: Row, recording: Recording, shadow: Shadow, stash: Scope, parent: int, *, is_synced: bool
) -> None:
    """Make one entry of the stash, in its folder `parent`: its path may be longer than the system takes."""
    name = place.rpartition("/")[2]
    if row.facts.is_folder:
        os.mkdir(name, 0o700, dir_fd=parent)
    elif row.facts.is_file:
        if (first := recording.moves[row.copy]) != place:
            with stash.parent_of(first) as (folder, known):
                os.link(known, name, src_dir_fd=folder, dst_dir_fd=parent)
            return
        if is_synced:
            with open_file(None, shadow.copy_of(row), os.O_RDONLY) as descriptor:
                os.fsync(descriptor)
        os.rename(shadow.copy_of(row), name, dst_dir_fd=parent)
    elif stat.S_ISLNK(row.facts.mode):
        os.symlink(row.target, name, dir_fd=parent)
    else:
        os.mknod(name, row.facts.mode, row.facts.device, dir_fd=parent)


def move_back(moves: Mapping[str, str], folder: Path, copies: Path) -> None:
    """Move copies back from the folder of an action. What cannot be moved has no pre-image from now on."""
    with Scope(folder) as stash:
        for copy, place in moves.items():
            with contextlib.suppress(OSError, InputError), stash.parent_of(place) as (parent, name):
                os.chmod(name, 0o600, dir_fd=parent)
                os.rename(name, copies / copy, src_dir_fd=parent)


def _set_facts(parent: int, name: str, row: Row) -> str:
    """Give what was replaced the facts that it had; return what this user may not set."""
    facts = row.facts
    try:
        about = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if (about.st_uid, about.st_gid) != (facts.uid, facts.gid):
            os.chown(name, facts.uid, facts.gid, dir_fd=parent, follow_symlinks=False)
        for attribute, value in row.attributes:
            if not attribute.startswith(NOT_COMPARED):
                os.setxattr(f"/proc/self/fd/{parent}/{name}", attribute, bytes.fromhex(value))
        if not stat.S_ISLNK(facts.mode):
            os.chmod(name, stat.S_IMODE(facts.mode), dir_fd=parent)
        os.utime(name, ns=(facts.mtime_ns, facts.mtime_ns), dir_fd=parent, follow_symlinks=False)
    except PermissionError:
        return f"owner, mode or attributes ({stat.S_IMODE(facts.mode):o}, {facts.uid}:{facts.gid})"
    return ""


def receipt_of(recording: Recording, scope: Scope, folder: Path) -> dict[str, Any]:
    """Return the receipt of an action that was built in `folder`, as `FileManager.execute` returns it."""
    steps = [as_it_is(step, scope, folder) for step in recording.steps]
    before, shared = dict[str, str](), set[int]()
    with Scope(folder) as stash:
        for step in steps:
            found = _before(step, scope, stash)
            if found is not None:
                before[step.path], shared = found.digest, shared | found.shared
        kept_bytes = stash.bytes_on_disk()
    after = {path: survey(path, scope) for path in paths_of(steps)}
    shared = shared.union(*(each.shared for each in after.values()))
    return {
        "is_observed": True,
        "steps": [step.to_json() for step in steps],
        "before": before,
        "after": {path: each.digest for path, each in after.items()},
        "kept_bytes": kept_bytes,
        "asked": [],
        "guarantee": recording.guarantee,
        "left_out": [*recording.left_out, *recording.limits],
        "parents": recording.around,
        "around": sorted(recording.around),
        **left_with(times_around(steps, scope, recording.around)),
        "reads": [],
        "writes": sorted({*map(key_of, after), *keys_of(shared)}),
    }


def _before(step: Step, scope: Scope, stash: Scope) -> Survey | None:
    """Survey what was at a path before a step; None for a folder of which only facts were set."""
    if step.do == "put":
        return Survey()
    if step.do != "set_facts":
        return survey_by_inode(step.stash, stash)
    now = scope.entry(step.path)
    if now is None or now.kind == "folder":
        return None
    told = dict(now.attributes) | dict(step.old_facts.get("attributes", {}))
    kept = tuple(sorted((name, value) for name, value in told.items() if value is not None))
    facts: Mapping[str, Any] = {name: value for name, value in step.old_facts.items() if name != "attributes"}
    then = replace(without_marks(replace(now, attributes=kept, **facts)), shared=0)
    digest = hashlib.sha256(canonical_json(["", then]) + b"\n").hexdigest()
    return Survey(digest, 1, now.size, (), frozenset({now.shared} - {0}))
