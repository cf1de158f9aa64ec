"""Processes that are killed at their so-manieth event, of those before and after which what is kept is different.

One process loads what is needed and forks for each death, since starting an interpreter takes longer than all that a
test wants to see.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SERVER = """
import json, os, signal, sys
from pathlib import Path
from autoclave.runtime import journal, opening
from autoclave.runtime.files import git_store, keeping, manager, steps

def dying_at(deadly):
    count = 0
    def dying(call):
        def then(*args, **kwargs):
            nonlocal count
            for _ in range(2):  # before it, and after it
                count += 1
                if count == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
                if _ == 0:
                    result = call(*args, **kwargs)
            return result
        return then
    return dying

def act(deadly, root, what, options, is_journal_alone):
    dying = dying_at(deadly)
    journal.Journal._add = dying(journal.Journal._add)
    journal.Journal.seal = dying(journal.Journal.seal)
    if is_journal_alone:
        dying = lambda call: call
    libc = steps._libc
    steps._libc = type("Libc", (), {"renameat2": staticmethod(dying(libc.renameat2)), "syncfs": libc.syncfs})
    steps._set_facts = dying(steps._set_facts)
    manager.make = dying(manager.make)
    manager.remove_tree = dying(manager.remove_tree)
    keeping.remove_tree_or_file = dying(keeping.remove_tree_or_file)
    for name in ("keep", "restore", "forget", "_write_content"):
        setattr(git_store.GitStore, name, dying(getattr(git_store.GitStore, name)))
    with opening.open_session(root, root.parent / "state", **options) as opened:
        for name in ("undo", "undo_to", "redo", "commit"):
            if name in what and "do" not in what:
                return getattr(opened, name)(what[name])
        proposal = opened.propose(what)
        opened.run(proposal.action, proposal.plan.digest)

for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        code = 1
        try:
            act(given["deadly"], Path(given["root"]), given["what"], given["options"], given["is_journal_alone"])
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Deaths:
    """Forks processes that die, for as long as the block lasts."""

    def __enter__(self) -> Deaths:
        words = [sys.executable, "-c", _SERVER]
        self._server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=120)

    def dies_at(
        self, deadly: int, root: Path, what: dict[str, Any], *, is_journal_alone: bool = False, **options: Any
    ) -> bool:
        """Whether a process that is killed at its so-manieth event came so far. `options`: see `open_session`.

        Events are before and after each record, checkpoint, and (but for `is_journal_alone`) change of what is kept.

        `what` is an operation, or `{"undo": ACTION}`, and likewise `undo_to`, `redo` and `commit`.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        given = {"deadly": deadly, "root": str(root), "what": what, "options": options}
        given["is_journal_alone"] = is_journal_alone
        self._server.stdin.write(json.dumps(given) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        assert code in (0, -signal.SIGKILL)
        return code != 0


def dies_within(deadly: int, work: Callable[[Callable[..., Any]], object]) -> bool:
    """Whether a fork of this process that does some work is killed at its so-manieth event.

    `work` is given what makes a function into one whose beginning and end are events.
    """
    child = os.fork()
    if child == 0:
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
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0
