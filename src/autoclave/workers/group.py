"""A group of identical workers on a pool, called as one."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from autoclave.core import ConfigError, FaultError, WorkerDied
from autoclave.workers.dispatch import Dispatch, Mesh, plan_call
from autoclave.workers.executor import OFFLOAD, ONLOAD, InlineExecutor, Ranks
from autoclave.workers.pool import CallFuture, ResourcePool
from autoclave.workers.wire import Held

W = TypeVar("W")
R = TypeVar("R")

LOOK_S = 1.0
"""Seconds between two checks whether a call that waits for the devices has begun."""


class WorkerGroup(Generic[W]):
    """Calls every worker of the group; each registered method of the worker is a method here that returns a Future.

    Arguments may be futures of earlier calls: they are resolved where the worker is, so that what passes from one
    group to another whole never goes through the caller. (What is split over ranks is split in the driver.)
    """

    def __init__(
        self,
        pool: ResourcePool,
        make_worker: Callable[[], W],
        *,
        name: str = "",
        mesh: Mesh | None = None,
        process_group: bool = False,
    ) -> None:
        """Make a worker on each rank of the pool.

        Args:
            make_worker: is called once on each rank. For executors other than inline, something that can be imported
                there by name, or a `functools.partial` of such a thing.
            name: what messages call the group; the pool's name if it is left out.
            mesh: how the ranks are laid out; data parallel if it is left out.
            process_group: whether the ranks are members of one `torch.distributed` process group when their workers
                are made: gloo for tensors on the CPU, NCCL on GPUs. Has no effect inline: there is one rank.

        Raises:
            ConfigError: the mesh has another number of ranks than the pool.
            Exception: what `make_worker` raised.
        """
        self.pool = pool
        self.name = name or pool.name
        ranks = pool.executor.processes
        self._mesh = mesh or Mesh(data=ranks)
        if self._mesh.size != ranks:
            raise ConfigError(
                f"worker group {self.name!r}: a mesh of {self._mesh.data} data x {self._mesh.tensor} tensor x "
                f"{self._mesh.pipeline} pipeline has {self._mesh.size} ranks, pool {pool.name!r} has {ranks}"
            )
        self._make_worker = make_worker
        self._process_group = process_group
        self._starts = 0
        self._ranks: Ranks
        pool.submit(self._start).result()

    @property
    def nodes(self) -> Sequence[str]:
        return self._ranks.nodes

    @property
    def starts(self) -> int:
        """Number of times that its workers were made; state sent to one of them is lost when it has grown."""
        return self._starts

    @property
    def is_alive(self) -> bool:
        """True if calls can succeed; False from `kill`, or from a death that a call has met with, until `restart`."""
        return self._ranks.are_alive

    def restart(self, make_worker: Callable[[], W] | None = None) -> Future[None]:
        """End the workers, alive or not, and make new ones, which remember nothing; by `make_worker` if it is given."""
        return self.pool.submit(lambda: self._restart(make_worker or self._make_worker))

    def kill(self) -> None:
        """End the workers at once, whatever they do: the call that they carry out fails with `WorkerDied`.

        Returns before that call has failed. A worker in this process cannot be ended: its call goes on, and gives what
        it gives. All later calls fail, until `restart`.
        """
        self._ranks.kill()

    def wait_for(self, call: Future[R], timeout_s: float, what: str, setting: str) -> R:
        """The result of `call`, made to this group. While another group has the devices, time does not count.

        Raises:
            WorkerDied: no answer came in time; the workers were ended. `what` they were to do and `setting`, which
                gives the time, are in its message.
            FaultError: the same of workers in this process, which cannot be ended.
        """
        left_s = timeout_s
        while left_s > 0:
            piece_s, has_begun = min(left_s, LOOK_S), call.running()
            try:
                return call.result(piece_s)
            except TimeoutError:
                if call.done():
                    return call.result()  # it ended just now; or the error is the worker's own
                left_s -= piece_s if has_begun else 0
        self.kill()
        if isinstance(self.pool.executor, InlineExecutor):
            raise FaultError(
                f"worker group {self.name!r} {what} and has not answered for {timeout_s:.0f} s ({setting}); it is in "
                f"this process, which cannot end it. Fix: pools.{self.pool.name}.executor=spawn, which can"
            )
        how = f"{what} and has not answered for {timeout_s:.0f} s ({setting}); it was ended"
        raise WorkerDied.of(self.name, 0, self.nodes[0], how)

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        if name.startswith("_"):
            raise AttributeError(name)
        interface = self._ranks.interface
        dispatch = interface.methods.get(name)
        if dispatch is None:
            raise AttributeError(f"{interface.worker}.{name} is not a registered worker method")

        def call(*args: Any) -> Future[Any]:
            return self.pool.submit(lambda: self._call(name, dispatch, args))

        return call

    # --- On the pool's thread

    def _start(self) -> None:
        self.pool.give_turn(self, self._make_workers)

    def _make_workers(self) -> None:
        start = self.pool.executor.start
        self._ranks = start(self.name, self._make_worker, process_group=self._process_group)
        self._starts += 1

    def _restart(self, make_worker: Callable[[], W]) -> None:
        self._make_worker = make_worker
        self._ranks.end()
        self._start()

    def _call(self, name: str, dispatch: Dispatch, args: Sequence[Any]) -> Any:
        values = [_settled(arg) for arg in args]
        if dispatch in (Dispatch.DATA_PARALLEL, Dispatch.MODEL_3D, Dispatch.EACH):
            values[:1] = [value.fetch() if isinstance(value, Held) else value for value in values[:1]]
        plan = plan_call(dispatch, values, self._mesh)
        self.pool.give_turn(self)
        results = self._ranks.call(name, plan)
        return plan.join([result.fetch() for result in results]) if plan.join else results[0]

    def begin_turn(self) -> None:
        """Called by the pool: the devices are this group's now."""
        self._call_hook(ONLOAD)

    def end_turn(self) -> None:
        """Called by the pool: another group is to have the devices."""
        with suppress(WorkerDied):  # then it holds nothing any more, and the next call to it says so
            self._call_hook(OFFLOAD)

    def _call_hook(self, hook: str) -> None:
        if self._ranks.are_alive and hook in self._ranks.interface.hooks:
            self._ranks.call(hook, plan_call(Dispatch.ONE_TO_ALL, (), self._mesh))


def _settled(arg: Any) -> Any:
    """Value that an argument stands for, left where it is if workers hold it."""
    if isinstance(arg, CallFuture):
        return arg.held()
    return arg.result() if isinstance(arg, Future) else arg
