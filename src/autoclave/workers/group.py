"""A group of identical workers on a pool, called as one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from autoclave.workers.dispatch import dispatch_of, join, split
from autoclave.workers.pool import ResourcePool

W = TypeVar("W")


class WorkerGroup(Generic[W]):
    """Calls every worker of the group; each registered method of the worker is a method here that returns a Future.

    Arguments may be futures of earlier calls: they are resolved where the worker is, so that what passes from one
    group to another never goes through the caller.
    """

    def __init__(self, pool: ResourcePool, make_worker: Callable[[], W]) -> None:
        """Build the workers on the pool; an exception of `make_worker` is raised here."""
        self.pool = pool
        self._workers: list[W] = [pool.submit(make_worker).result() for _ in range(pool.devices)]

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        method = getattr(type(self._workers[0]), name, None)
        dispatch = dispatch_of(method)
        if dispatch is None:
            raise AttributeError(f"{type(self._workers[0]).__name__}.{name} is not a registered worker method")

        def call(*args: Any) -> Future[Any]:
            return self.pool.submit(self._run, name, dispatch, *args)

        return call

    def _run(self, name: str, dispatch: Any, *args: Any) -> Any:
        parts = split(dispatch, args, len(self._workers))
        results = [getattr(worker, name)(*part) for worker, part in zip(self._workers, parts, strict=True)]
        return join(dispatch, results)
