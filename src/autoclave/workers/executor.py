"""Protocol of an executor, and the one that runs workers in this process.

A pool calls its executor from one thread, one call at a time; a call returns when all ranks have answered. Another
thread may kill the ranks meanwhile.

    inline   this module               one rank, in this process, on the pool's thread
    spawn    `spawn_executor.py`       a process per rank and group, on this machine
    ray      `ray_executor.py`         an actor per rank and group, in a Ray cluster
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autoclave.core import WorkerDied
from autoclave.workers.dispatch import CallPlan, Dispatch, registered_methods
from autoclave.workers.failures import locate
from autoclave.workers.wire import Held

ONLOAD, OFFLOAD = "onload", "offload"
"""Methods that a worker may have: called when its group's turn on the devices of the pool begins, and when it ends."""


@dataclass(frozen=True)
class Value(Held):
    """A result that is here."""

    value: Any

    def fetch(self) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Interface:
    """Interface of a worker class: its registered methods, and which of the hooks it has."""

    worker: str
    methods: Mapping[str, Dispatch]
    hooks: frozenset[str]

    @staticmethod
    def of(worker: type) -> "Interface":
        hooks = frozenset(name for name in (ONLOAD, OFFLOAD) if callable(getattr(worker, name, None)))
        return Interface(worker.__name__, registered_methods(worker), hooks)


class Ranks(Protocol):
    """The running workers of one group, one for each rank."""

    interface: Interface

    @property
    def nodes(self) -> Sequence[str]:
        """The machine of each rank."""
        ...

    @property
    def are_alive(self) -> bool:
        """True if calls can succeed; False after a death or `kill`, until the group is restarted."""
        ...

    def call(self, method: str, plan: CallPlan) -> list[Held]:
        """Call `method` on all ranks and return the results of those that answer, in the order of the plan.

        Arguments may be `Held` results of any executor.

        Raises Exception: what a worker raised, with its traceback as the cause and a note of group, rank and node.
        WorkerDied: the process of a rank ended, or was ended. The others were ended too.
        """
        ...

    def kill(self) -> None:
        """Have the workers ended, whatever they do; a call in progress fails. From any thread; does not wait for it."""

    def end(self) -> None:
        """End the workers; they hold nothing afterwards. On the thread of calls."""


class Executor(Protocol):
    """Starts the workers of the groups of one pool, on devices that no other pool has."""

    @property
    def processes(self) -> int:
        """Ranks of each group."""
        ...

    def start(self, group: str, make_worker: Callable[[], Any], *, process_group: bool) -> Ranks:
        """Make a worker on each rank, in one `torch.distributed` process group if `process_group`.

        Raises Exception: as `Ranks.call`, from the making of a worker.
        """
        ...

    def kill(self) -> None:
        """Have all workers ended, whatever they do; calls in progress fail. From any thread; does not wait for it."""

    def close(self) -> None:
        """End what is left of all groups, and free the devices."""


# --- In this process -----------------------------------------------------------------------------------------------


class InlineExecutor:
    """One rank, in this process, without a process group."""

    processes = 1

    def __init__(self) -> None:
        self._started: list[_InlineRanks] = []

    def start(self, group: str, make_worker: Callable[[], Any], *, process_group: bool = False) -> Ranks:
        ranks = _InlineRanks(group, make_worker)
        self._started = [*(each for each in self._started if each.are_alive), ranks]
        return ranks

    def kill(self) -> None:
        """A call in progress goes on, since nothing can end it."""

    def close(self) -> None:
        for ranks in self._started:
            ranks.end()


class _InlineRanks:
    def __init__(self, group: str, make_worker: Callable[[], Any]) -> None:
        self._group, self.nodes, self.are_alive = group, [socket.gethostname()], True
        self._worker: Any = self._located(make_worker)
        self.interface = Interface.of(type(self._worker))

    def call(self, method: str, plan: CallPlan) -> list[Held]:
        worker = self._worker  # read before `are_alive`, which `kill` clears before it lets the worker go
        if not self.are_alive:
            raise WorkerDied.of(self._group, 0, self.nodes[0], "was ended")
        args = [arg.fetch() if isinstance(arg, Held) else arg for arg in plan.arguments[0]]
        return [Value(self._located(getattr(worker, method), *args))]

    def _located(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except BaseException as error:
            locate(error, self._group, 0, self.nodes[0])
            raise

    def kill(self) -> None:
        """A call in progress goes on, since nothing can end it; it is the last."""
        self.are_alive = False
        self._worker = None

    def end(self) -> None:
        """Let the worker go, and have it close what another process would end with."""
        worker = self._worker
        self.kill()
        if close := getattr(worker, "close", None):
            close()
