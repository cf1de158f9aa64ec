"""The history of a folder as a Git repository: a commit for each action, out of the journal and what the stash keeps.

A view, to be read with Git's tools; the journal is the record. The files as they are now are the last commit, and each
commit before it is computed by undoing one more action. Git keeps files, links and executable bits;
other modes, owners, times, empty folders and what has a name of Git's own (`.git`) are left out. What a committed
action replaced is not kept, so its commit is empty.
"""

import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from autoclave.core import HostError, InputError
from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.files.plans import steps_from
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.session import Session
from autoclave.runtime.states import STANDING, ActionState

_OF_GIT = re.compile(r"(^|/)(\.git|git~\d+)(/|$)", re.IGNORECASE)
_MODES = {(False, True): "100755", (False, False): "100644", (True, True): "120000"}  # of links, and programs
_Kept = tuple[str, Scope, str]  # the mode that Git gives a file, and where its content is


def export_git(session: Session, out: Path) -> int:
    """Write a bare repository to the new folder `out`, with a branch `main`; return its number of actions.

    Raises InputError where the folder exists or something cannot be read, and HostError where Git is missing or fails.
    """
    if out.exists():
        raise InputError(f"{out}: exists already. Fix: name a new folder")
    actions, files = session.actions, session.actions.managers["write"]
    assert isinstance(files, FileManager)
    found = session.journal.standings((*STANDING, ActionState.COMMITTED))
    found = [each for each in found if actions.manager_of(each) is files]
    done = {each.action: actions.last_record(each.action, (ActionState.EXECUTED, ActionState.REDONE)) for each in found}
    found.sort(key=lambda each: done[each.action].number)
    with ExitStack() as opened, tempfile.TemporaryFile() as stream:
        tree = dict(_files("", files.scope, ""))
        changes: list[Mapping[str, _Kept | None]] = []
        for each in reversed(found):
            after = dict(tree)
            if each.state in STANDING:
                stash = opened.enter_context(Scope(files.stash / each.action))
                for step in reversed(steps_from(done[each.action].body["steps"])):
                    _undo(step, tree, stash)
            changes.append({path: after.get(path) for path in tree | after if tree.get(path) != after.get(path)})
        _write_commit(stream, "before the first action", done[found[0].action].at if found else 0.0, tree)
        for each, changed in zip(found, reversed(changes), strict=True):
            told = f"{each.proposed['operation']['do']}: action {each.action}, by {each.proposed['by']}"
            _write_commit(stream, told, done[each.action].at, changed)
        stream.seek(0)
        _git("init", "--quiet", "--bare", "--initial-branch=main", "--template=", str(out))
        _git("--git-dir", str(out), "fast-import", "--quiet", stdin=stream)
    return len(found)


def _files(at: str, scope: Scope, path: str) -> Iterator[tuple[str, _Kept]]:
    """Yield the files and links at and below `at`, with their paths as if `at` were called `path`."""
    for found, entry in scope.walk(at):
        named = f"{path}{found.removeprefix(at)}"
        if entry.kind in ("file", "link") and not _OF_GIT.search(named):
            yield named, (_MODES[entry.kind == "link", bool(entry.mode & stat.S_IXUSR)], scope, found)


def _undo(step: Step, tree: dict[str, _Kept], stash: Scope) -> None:
    if step.do == "set_facts":
        if step.path in tree and "mode" in step.old_facts:
            tree[step.path] = (_MODES[False, bool(step.old_facts["mode"] & stat.S_IXUSR)], *tree[step.path][1:])
        return
    place = step.to or step.path
    below = {each: tree.pop(each) for each in list(tree) if each == place or each.startswith(f"{place}/")}
    if step.do == "move":
        tree |= {f"{step.path}{each.removeprefix(place)}": kept for each, kept in below.items()}
    elif step.do in ("take", "exchange"):
        tree |= dict(_files(step.stash, stash, step.path))


def _write_commit(stream: IO[bytes], message: str, at: float, changed: Mapping[str, _Kept | None]) -> None:
    told = message.encode("utf-8", "backslashreplace")
    stream.write(b"commit refs/heads/main\ncommitter autoclave <autoclave@localhost> %d +0000\n" % at)
    stream.write(b"data %d\n%s\n" % (len(told), told))
    for path in (each for each, kept in changed.items() if kept is None):  # first: one may be a folder now
        stream.write(b"D %s\n" % _quoted(path))
    for path, (mode, scope, found) in ((path, kept) for path, kept in changed.items() if kept is not None):
        entry = scope.entry(found)
        content = os.fsencode(entry.target) if entry and mode == "120000" else scope.content(found)
        stream.write(b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), _quoted(path), len(content), content))


def _quoted(path: str) -> bytes:
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(path))
    return f'"{"".join(plain)}"'.encode("ascii")


def _git(*words: str, stdin: IO[bytes] | int = subprocess.DEVNULL) -> None:
    environment = {"PATH": os.environ.get("PATH", ""), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    try:
        done = subprocess.run(["git", *words], stdin=stdin, capture_output=True, env=environment, check=False)
    except FileNotFoundError:
        raise HostError("the history cannot be exported: there is no program `git`. Fix: install it") from None
    if done.returncode:
        raise HostError(f"git {words[0]} failed ({done.stderr.decode(errors='replace').strip()[-500:]})")
