"""Worlds of episodes: a folder and SQLite databases, prepared once, reset by undo, and forked by layers.

Theory of operation. A world is a folder of its own:

    world/files/      the folder that an episode acts on
    world/NAME.db     its databases, out of reach of commands
    state/            the journal of the runtime, with what actions replaced
    forks/            the layers of forks
    prepared.json     the digest of `world` as it was prepared, written last

An episode acts through a session of the runtime, so each change is journalled with what it replaced, and a reset undoes
the journal: its cost grows with the changes, not with the world. A process that is killed in a reset leaves a journal
that the next one completes. Between episodes no grant exists, so nothing can change the world; then it can be forked: a
fork is a workspace whose commands run on a layer over `world`, which stays as it is.
"""

import contextlib
import json
import os
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from autoclave.act.session import Session, session
from autoclave.core import HostError, Outcome, UsageError
from autoclave.core.closing import Closing
from autoclave.core.files import alone_with, write_atomically
from autoclave.environments.world_state import databases_in, digest_of
from autoclave.runtime.files.capture import remove_tree
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.states import IN_DOUBT, STANDING
from autoclave.workspaces import CommandLimits, SealedCommand, overlay_problem, run_command

_NAME, _PREPARED = "episode", "prepared"


class World(Closing):
    """A world in the folder `place`, which `build` makes the first time: it fills `files`, and adds `NAME.db` beside.

    Each `check_every`-th reset compares all of the world with its preparation, and begins a new journal. For one
    process at a time, and in it for one episode at a time.
    """

    def __init__(self, place: Path, build: Callable[[Path], object], *, check_every: int = 100) -> None:
        self.place, self.tree = place.resolve(), place.resolve() / "world"
        self._check_every, self._num_resets, self._num_forks = check_every, 0, 0
        self._is_at_rest = True
        self._opened = contextlib.ExitStack()
        place.mkdir(parents=True, exist_ok=True)
        try:
            self._opened.enter_context(alone_with(place / "lock", f"{place}: another process has this world open"))
            prepared = self.place / "prepared.json"
            if not prepared.exists():
                for name in ("world", "state", "forks"):
                    remove_tree(self.place / name)
                (self.tree / "files").mkdir(parents=True)
                build(self.tree)
                write_atomically(prepared, json.dumps({"digest": digest_of(self.tree)}))
            self._digest = json.loads(prepared.read_text(encoding="utf-8"))["digest"]
            remove_tree(self.place / "forks")  # of a process that died
            self._session = self._open()
            self._opened.callback(lambda: self._session.close())
            self.reset()
            self.check()
        except BaseException:
            self._opened.close()
            raise

    def close(self) -> None:
        """Leave the world as it is; the next process that opens it resets it."""
        self._opened.close()

    @property
    def session(self) -> Session:
        """The session through which an episode acts; after a reset it may be another one."""
        return self._session

    def begin(self, grants: Iterable[Grant]) -> None:
        """Begin an episode, which may do what `grants` permit. Raises UsageError before a reset, or with open forks."""
        if not self._is_at_rest or self._num_forks:
            raise UsageError(f"{self.place}: is in use by an episode or a fork. Fix: reset it, or close its forks")
        self._is_at_rest = False
        episode = secrets.token_hex(4)  # what an earlier one has used of a grant does not count
        with self._session.opened() as found:
            for each in grants:
                names = {name: f"{value}-{episode}" for name in ("id", "parent") if (value := getattr(each, name))}
                found.permissions.grant(each.model_copy(update={"session": _NAME, **names}))

    def reset(self) -> list[str]:
        """End the episode and undo all that it did; return the ids of the actions, in the order of their undo.

        Raises HostError: the world is not as it was prepared, or cannot be shown to be. No episode may use it then.
        """
        with self._session.opened() as found:
            for grant in found.permissions.grants():
                found.permissions.revoke(grant.id)
            undone = self._session.undo_to(_PREPARED)
            if left := found.journal.standings((*STANDING, *IN_DOUBT)):
                raise HostError(f"{self.place}: action {left[0].action} is {left[0].state} after a reset")
            for action in found.journal.kept_actions():  # nothing is redone
                found.actions.discard(action, found.actions.manager_of_action(action))
        if (self._num_resets + 1) % self._check_every == 0:
            self.check()
            self._session.close()
            os.rename(self.place / "state", self.place / "state.old")
            self._session = self._open()
        self._num_resets += 1  # after the check: one that fails is made again
        self._is_at_rest = True
        return undone

    def check(self) -> None:
        """Compare all of the world with its preparation. Raises HostError where they differ."""
        if (found := digest_of(self.tree)) != self._digest:
            raise HostError(
                f"{self.place}: differs from its preparation after a reset (digest {found[:12]}, prepared "
                f"{self._digest[:12]}), so something outside of its session changes it. Fix: remove this folder"
            )

    def snapshot(self) -> str:
        """Return the name of a savepoint, to which `restore` returns in this episode."""
        return self._session.savepoint()

    def restore(self, snapshot: str) -> list[str]:
        """Undo what was done since a snapshot; return the ids of the actions, in the order of their undo."""
        return self._session.undo_to(snapshot)

    @contextlib.contextmanager
    def fork(self) -> Generator["Fork"]:
        """Yield a fork of the world as it was prepared. Raises UsageError in an episode."""
        if not self._is_at_rest:
            raise UsageError(f"{self.place}: is in use by an episode, so it cannot be forked. Fix: reset it first")
        self._num_forks += 1
        try:
            with Fork(self.tree, self.place / "forks") as fork:
                yield fork
        finally:
            self._num_forks -= 1

    def _open(self) -> Session:
        remove_tree(self.place / "state.old")
        databases = {each.stem: {"engine": "sqlite", "path": str(each)} for each in databases_in(self.tree)}
        opened = session(
            self.tree / "files", self.place / "state", name=_NAME, databases=databases, exclusive=True, lives_on=False
        )
        with opened.opened() as inner:
            if not inner.journal.records(_PREPARED):
                inner.savepoint(_PREPARED)
        return opened


class Fork(Closing):
    """A workspace on a layer over the folder `tree`, which others must leave as it is; layers are kept in `folder`."""

    def __init__(self, tree: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._tree, self._layers = tree, Path(tempfile.mkdtemp(dir=folder))
        self._method: Literal["overlay", "copy"] = _method_in(folder)
        self.reset()

    def close(self) -> None:
        remove_tree(self._layers)

    def run(self, argv: Sequence[str], limits: CommandLimits | None = None, stdin: bytes = b"") -> Outcome:
        """Run a command, sealed, in the folder; see `workspaces.run_command`."""
        command = SealedCommand(tuple(argv), self._tree, self._layers, method=self._method, stdin=stdin)
        return run_command(command, limits)

    def reset(self) -> None:
        """Discard all changes."""
        self._begin()
        if self._method == "copy":
            _copy(self._tree, self._layers / "upper")
        else:
            (self._layers / "upper").chmod(stat.S_IMODE(self._tree.stat().st_mode))

    def snapshot(self) -> str:
        """Copy the changes; return a name for `restore`."""
        place = Path(tempfile.mkdtemp(dir=self._layers, prefix="snapshot-"))
        _copy(self._layers / "upper", place)
        return place.name

    def restore(self, snapshot: str) -> None:
        """Replace the changes by those of a snapshot."""
        self._begin()
        _copy(self._layers / snapshot, self._layers / "upper")

    def _begin(self) -> None:
        for name in ("upper", "work"):
            remove_tree(self._layers / name)
            (self._layers / name).mkdir()


@cache
def _method_in(folder: Path) -> Literal["overlay", "copy"]:
    """Return the way in which forks in a folder get a tree of their own on this host."""
    return "copy" if overlay_problem(folder) else "overlay"


def _copy(source: Path, to: Path) -> None:
    """Copy the content of a folder with all facts, such as marks of an overlay."""
    done = subprocess.run(["cp", "-a", "--", f"{source}/.", str(to)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(f"{to}: layers cannot be copied there ({done.stderr.strip()[-300:]})")
