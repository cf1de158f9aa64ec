"""A pool of devices, and the thread that its calls run on.

Executor `inline`: one dedicated thread per pool, in this process. Calls of one pool run one after the other in the
order they were made, whichever worker group they belong to; calls of two pools overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from autoclave.core import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


class ResourcePool:
    """Devices that the worker groups placed on them share."""

    def __init__(self, name: str, *, devices: int = 1) -> None:
        """Make the pool.

        Raises:
            ConfigError: more than one device; in one process there is one rank.
        """
        if devices != 1:
            raise ConfigError(f"pools.{name}.devices = {devices}: the inline executor runs one worker per pool; use 1")
        self.name = name
        self.devices = devices
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"pool-{name}")

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run `call` on the pool after everything submitted before it. Futures among `args` are waited for there."""
        return self._thread.submit(_resolved, call, args, kwargs)

    def close(self) -> None:
        """Finish what runs, drop what waits, and end the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _resolved(call: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    return call(
        *(arg.result() if isinstance(arg, Future) else arg for arg in args),
        **{name: arg.result() if isinstance(arg, Future) else arg for name, arg in kwargs.items()},
    )
