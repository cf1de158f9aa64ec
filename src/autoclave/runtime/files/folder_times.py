"""When the folders in which steps change names were changed last, and would have been without an action."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

from autoclave.core import InputError
from autoclave.runtime.files.scope import NothingThere, Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.interface import Json, UndoneWith


def times_around(steps: Sequence[Step], scope: Scope) -> dict[str, int]:
    """When the folders in which steps change names were changed last, in ns; those that are not there are left out."""
    parents = {path.rpartition("/")[0] for step in steps for path in step.paths}
    times: dict[str, int] = {}
    for parent in sorted(parents):
        with contextlib.suppress(NothingThere), _folder(parent, scope) as folder:  # else the action makes it
            times[parent] = os.stat(".", dir_fd=folder).st_mtime_ns
    return times


def left_with(times: Mapping[str, int]) -> Json:
    """Return the part of a receipt that says when folders were changed last after an action, and finds it by that."""
    return {"parents_after": times, "marks": [str(time_ns) for time_ns in times.values()]}


def times_before(steps: Sequence[Step], receipt: Json, undone_with: UndoneWith, scope: Scope) -> dict[str, int]:
    """When the folders would have been changed last if this action had not been done.

    That is before it. If that time is due to an action that has been undone meanwhile, it is before that one. Where
    somebody has changed something since, the time stays.
    """
    times = times_around(steps, scope)
    for path, now in times.items():
        if now == receipt["parents_after"].get(path) and path in receipt["parents"]:
            times[path] = _time_before(path, receipt["parents"][path], undone_with)
    return times


def set_times(times: Mapping[str, int], scope: Scope) -> None:
    """Set when folders were changed last, of those that are there."""
    for parent, mtime_ns in times.items():
        with contextlib.suppress(InputError, PermissionError), _folder(parent, scope) as folder:
            about = os.stat(".", dir_fd=folder)
            os.utime(".", ns=(about.st_atime_ns, mtime_ns), dir_fd=folder)


@contextlib.contextmanager
def _folder(path: str, scope: Scope) -> Iterator[int]:
    """A descriptor that names a folder, which need not be one that can be read."""
    with scope.parent_of(f"{path}/any" if path else "any") as (descriptor, _):
        yield descriptor


def _time_before(folder: str, time_ns: int, undone_with: UndoneWith) -> int:
    """When a folder was changed last before all that is undone, out of the time that one of the undone left it with."""
    seen: set[int] = set()
    while time_ns not in seen:
        seen.add(time_ns)
        for undone in undone_with(f"{time_ns}"):
            before = undone["parents"].get(folder, time_ns)
            if undone["parents_after"].get(folder) == time_ns != before:
                time_ns = before
                break
    return time_ns
