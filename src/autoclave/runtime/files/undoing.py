"""The steps that undo an action, even where others have changed what it left; and the times of the folders around it.

An undo also restores the modification times of the folders in which its steps change names.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoclave.core import InputError
from autoclave.runtime.files.scope import NothingThere, Scope
from autoclave.runtime.files.steps import Step, facts_at, inode_at
from autoclave.runtime.interface import Choice, Json, NothingLeft, UndoneWith


@dataclass(slots=True)
class Undoing:
    """Steps in order, paths that stay as they are, and paths that come back with edits of others."""

    steps: list[Step] = field(default_factory=list[Step])
    skipped: list[str] = field(default_factory=list[str])
    edited: list[str] = field(default_factory=list[str])


def undo_steps(
    action: str, steps: Sequence[Step], changed: Collection[str], choose: Callable[[str], Choice], scope: Scope
) -> Undoing:
    """Return the steps that undo `steps`, where others have changed the paths in `changed`.

    Their version is never lost: it stays (`skip`), goes to the stash (`force`), or gets another name (`save_aside`).

    Raises InputError: a choice is to refuse, or something that would have to go back is gone. NothingLeft: all of it is
    skipped.
    """
    found = Undoing()
    for unit in _units(steps)[::-1]:
        paths = list(dict.fromkeys(path for step in unit for path in step.paths))
        choices = {path: choose(path) for path in paths if path in changed}
        if refused := [path for path, choice in choices.items() if choice is Choice.REFUSE]:
            raise InputError(f"path {refused[0]!r}: somebody else has changed it since")
        if Choice.SKIP in choices.values():
            found.skipped += [path for path in paths if path not in found.skipped]
        elif not choices:
            found.steps += [step.inverse() for step in reversed(unit)]
        else:
            *made_room, last = unit
            _take_back(action, last, choices, scope, found)
            found.steps += [step.inverse() for step in made_room]
    if found.skipped and not found.steps:
        raise NothingLeft(
            f"nothing of it is left to take back: others have changed {', '.join(map(repr, found.skipped))}"
        )
    return found


def _units(steps: Sequence[Step]) -> list[Sequence[Step]]:
    """Return groups of steps to undo together: a move, with the removal of what was in its way."""
    found: list[Sequence[Step]] = []
    for step in steps:
        last = found[-1][-1] if found else None
        if last is not None and last.do == "take" and step.do == "move" and step.to == last.path:
            found[-1] = [last, step]
        else:
            found.append([step])
    return found


def _take_back(action: str, step: Step, choices: dict[str, Choice], scope: Scope, found: Undoing) -> None:
    """Add the steps that undo one, where others have changed what it left."""
    here = inode_at(step.path, scope)
    there = inode_at(step.to, scope) if step.to else None
    if step.do == "move" and there is None:
        raise InputError(f"path {step.to!r}: is gone, so it cannot be moved back; skip it")
    is_in_the_way = step.path in choices if step.do == "move" else step.do != "set_facts"
    if here is not None and is_in_the_way:
        if choices.get(step.path) is Choice.SAVE_ASIDE:
            found.steps.append(Step("move", step.path, to=_free_name(step.path, f".kept-{action}", scope), inode=here))
        else:
            found.steps.append(Step("take", step.path, f"theirs{len(found.steps)}", inode=here))
    match step.do:
        case "put":
            pass
        case "take":
            found.steps.append(step.inverse())
        case "exchange":
            found.steps.append(Step("put", step.path, step.stash, inode=step.old_inode))
        case "move":
            found.edited += step.paths
            found.steps.append(replace(step.inverse(), inode=there or 0))
        case "set_facts":
            found.edited.append(step.path)
            if here is not None:
                now_facts = facts_at(step.path, step.facts, scope)
                found.steps.append(replace(step.inverse(), inode=here, old_facts=now_facts))


def _free_name(path: str, ending: str, scope: Scope) -> str:
    above, slash, name = path.rpartition("/")
    found = stem = f"{above}{slash}{name[:56]}{ending}"  # a name has at most 255 bytes, a character up to four
    number = 1
    while inode_at(found, scope) is not None:
        number += 1
        found = f"{stem}-{number}"
    return found


def times_around(steps: Sequence[Step], scope: Scope, others: Iterable[str] = ()) -> dict[str, int]:
    """Return the mtimes in ns of the folders in which steps change names, and of `others`, without missing ones."""
    parents = {path.rpartition("/")[0] for step in steps for path in step.paths} | set(others)
    times: dict[str, int] = {}
    for parent in sorted(parents):
        with contextlib.suppress(NothingThere), _folder(parent, scope) as folder:  # else the action makes it
            times[parent] = os.stat(".", dir_fd=folder).st_mtime_ns
    return times


def left_with(times: Mapping[str, int]) -> Json:
    """Return the part of a receipt with the mtimes of folders after an action, and marks to find it by them."""
    return {"parents_after": times, "marks": [str(time_ns) for time_ns in times.values()]}


def times_before(steps: Sequence[Step], receipt: Json, undone_with: UndoneWith, scope: Scope) -> dict[str, int]:
    """Return the mtimes that folders would have if this action had not been done.

    Those are from before it, or from before an earlier action that set them and has been undone meanwhile. Where others
    have changed something since, the time stays.
    """
    times = times_around(steps, scope, receipt.get("around", ()))
    for path, now in times.items():
        if now == receipt["parents_after"].get(path) and path in receipt["parents"]:
            times[path] = _time_before(path, receipt["parents"][path], undone_with)
    return times


def set_times(times: Mapping[str, int], scope: Scope) -> None:
    """Set the mtimes of those folders that exist."""
    for parent, mtime_ns in times.items():
        with contextlib.suppress(InputError, PermissionError), _folder(parent, scope) as folder:
            about = os.stat(".", dir_fd=folder)
            os.utime(".", ns=(about.st_atime_ns, mtime_ns), dir_fd=folder)


@contextlib.contextmanager
def _folder(path: str, scope: Scope) -> Iterator[int]:
    """Yield a descriptor of a folder, which need not be readable."""
    with scope.parent_of(f"{path}/any" if path else "any") as (descriptor, _):
        yield descriptor


def _time_before(folder: str, time_ns: int, undone_with: UndoneWith) -> int:
    """Return the mtime of a folder before all undone actions, from the time that one of them left it with."""
    seen: set[int] = set()
    while time_ns not in seen:
        seen.add(time_ns)
        for undone in undone_with(f"{time_ns}"):
            before = undone["parents"].get(folder, time_ns)
            if undone["parents_after"].get(folder) == time_ns != before:
                time_ns = before
                break
    return time_ns
