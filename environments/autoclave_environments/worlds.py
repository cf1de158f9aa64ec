"""Workspaces whose tools are operations of the runtime on worlds, which an undo resets after each episode."""

import errno
import json
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from autoclave.config.levels import Level
from autoclave.core import EndState, FaultError, HostError, SandboxFault, UsageError
from autoclave.core.closing import Closing
from autoclave.environments.world_state import changes_between, resources_of
from autoclave.environments.worlds import World
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.policy.grants import Grant
from autoclave.workspaces import Declared, Tool, ToolResult, Workspace

CHANGES = "changes.json"
"""The end state of an episode: `changes`, as `changes_between` returns them, and the number of `denied` operations."""
_PERMITTED = Grant(resources=("files/**", "databases/**"), verbs=("*",))
_TOOLS = ("list", "read", "search", "write", "edit", "make_folder", "move", "delete", "sql", "undo")
_WAIT_S = 0.1
"""Time to wait for a world before another one is made: samples of one item wait for each other's turns."""
NUM_ACTING = 4
_FAULTS = frozenset(
    (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
)


class WorldWorkspaces(Closing):
    """Workspaces on equal worlds, each made by `build` when none is free; see `World`.

    Nothing of a policy runs there but operations of the runtime, which are data; they may change the whole world.
    With `most`, episodes wait for one of so many worlds: for episodes of one turn, which never wait for each other.
    """

    level: Level = "sealed"

    def __init__(self, build: Callable[[Path], object], most: int | None = None, *, check_every: int = 100) -> None:
        self._build, self._most, self._check_every, self._num_worlds = build, most, check_every, 0
        self._free, self._opened = SimpleQueue[World | Exception](), ExitStack()
        self._place = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="autoclave-worlds-")))
        first = self._world()
        self.before = resources_of(first.tree)
        self.tools = [Tool(each.name, each.description, each.parameters) for each in first.session.tool_list()]
        self.tools = [each for each in self.tools if each.name in _TOOLS]
        self._free.put(first)
        self._starting, self.acting = ThreadPoolExecutor(1, "start"), ThreadPoolExecutor(NUM_ACTING, "act")

    def start(self, files: Mapping[str, bytes], test_command: str = "") -> Future[Workspace]:
        """Return a workspace on a world of its own. It takes no `files` and no tests: the world has its own."""
        return self._starting.submit(self._start)

    def _start(self) -> Workspace:
        try:
            found = self._free.get(timeout=None if self._num_worlds == self._most else _WAIT_S)
        except Empty:
            found = self._world()
        if isinstance(found, Exception):
            self._free.put(found)  # for all that come later
            raise found
        return WorldWorkspace(self, found)

    def _world(self) -> World:
        self._num_worlds += 1
        made = World(self._place / str(self._num_worlds), self._build, check_every=self._check_every)
        return self._opened.enter_context(made)

    def release(self, world: World) -> None:
        """Reset a world for the next episode. Where that fails, no further one begins."""
        try:
            world.reset()
        except Exception as error:
            self._free.put(error)
            raise
        self._free.put(world)

    def close(self) -> None:
        """Wait for what runs, then remove all worlds."""
        self._free.put(UsageError("worlds: no episode can begin, since they are closed"))
        self._starting.shutdown()
        self.acting.shutdown()
        self._opened.close()


class WorldWorkspace:
    """One episode in a world; see `Workspace`."""

    def __init__(self, of: WorldWorkspaces, world: World) -> None:
        self._of, self._world, self._num_denied, self._is_over = of, world, 0, False
        self.tools: Sequence[Tool] = of.tools
        self._in_use = threading.RLock()
        world.begin([_PERMITTED])

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Future[ToolResult]:
        return self._of.acting.submit(self._call, tool, arguments)

    def end(self, declared: Declared) -> Future[EndState]:
        """Return the changes of the whole world, whatever is declared; the world is reset."""
        return self._of.acting.submit(self._end)

    def close(self) -> None:
        self._of.acting.submit(self._release)

    def _call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        with self._in_use:
            if self._is_over:  # the world is another episode's
                raise SandboxFault(f"{tool} in the world {self._world.place}: the episode is over")
            result = self._world.session.call(tool, arguments)
        if _is_fault(result.error):
            raise SandboxFault(f"{tool} in the world {self._world.place}: {result.error}") from result.error
        self._num_denied += isinstance(result.error, NotPermitted)
        return ToolResult(result.text, is_error=result.is_error)

    def _end(self) -> EndState:
        with self._in_use:
            if self._is_over:
                raise SandboxFault(f"the world {self._world.place} cannot be read: the episode is over")
            try:
                changes = changes_between(self._of.before, resources_of(self._world.tree))
            except OSError as error:
                raise SandboxFault(f"the world {self._world.place} cannot be read: {error}") from error
            finally:
                self._release()
        return EndState({CHANGES: json.dumps({"changes": changes, "denied": self._num_denied}).encode()})

    def _release(self) -> None:
        with self._in_use:
            if not self._is_over:
                self._is_over = True
                self._of.release(self._world)


def _is_fault(error: Exception | None) -> bool:
    """Return True if a call failed by this host, and not by what the policy asked for."""
    return isinstance(error, FaultError | HostError) or (isinstance(error, OSError) and error.errno in _FAULTS)
