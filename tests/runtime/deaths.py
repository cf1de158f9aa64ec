"""Forks that are killed at their so-manieth event, of those before and after which what is kept is different."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoclave.runtime.files import manager, steps
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import open_session

SOME_OR_EACH = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])
"""Of the events, kill at each third one; at each of them in the soak."""
_MOST_S = 120


def dies_at(deadly: int, root: Path, what: dict[str, Any], *, is_journal_alone: bool = False, **options: Any) -> bool:
    """Whether a process that is killed at its so-manieth event came so far. `options`: see `open_session`.

    Events are before and after each record, checkpoint, and (but for `is_journal_alone`) change of what is kept.

    `what` is an operation, or `{"undo": ACTION}`, and likewise `undo_to`, `redo` and `commit`.
    """

    def work(dying: Callable[..., Any]) -> None:
        for owner, name in ((Journal, "_add"), (Journal, "seal")):
            setattr(owner, name, dying(getattr(owner, name)))
        if not is_journal_alone:
            libc = steps._libc
            steps._libc = SimpleNamespace(renameat2=dying(libc.renameat2), syncfs=libc.syncfs)
            for owner, name in ((steps, "_set_facts"), (manager, "make"), (manager, "remove_tree")):
                setattr(owner, name, dying(getattr(owner, name)))
        with open_session(root, root.parent / "state", **options) as opened:
            for name in ("undo", "undo_to", "redo", "commit"):
                if name in what and "do" not in what:
                    getattr(opened, name)(what[name])
                    return
            with opened.atomic() if "atomic" in what else contextlib.nullcontext():
                for each in what.get("atomic", [what]):
                    proposal = opened.propose(each)
                    opened.run(proposal.action, proposal.plan.digest)

    return dies_within(deadly, work)


def dies_within(deadly: int, work: Callable[[Callable[..., Any]], object]) -> bool:
    """Whether a fork of this process that does some work is killed at its so-manieth event.

    `work` is given what makes a function into one whose beginning and end are events.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(_MOST_S)
        count = 0

        def event() -> None:
            nonlocal count
            count += 1
            if count == deadly:
                os.kill(os.getpid(), signal.SIGKILL)

        def dying(call: Callable[..., Any]) -> Callable[..., Any]:
            def then(*args: Any, **kwargs: Any) -> Any:
                event()
                found = call(*args, **kwargs)
                event()
                return found

            return then

        try:
            work(dying)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0
