"""Futures that have their result, and futures of a function of another one's result."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class MeteredFuture(Future[T], Generic[T]):
    """A future with the CPU seconds of all that ran for its result, such as a compiler; None if they are unknown."""

    cpu_s: float | None = None


def completed(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future


def chained(future: Future[T], then: Callable[[T], R]) -> Future[R]:
    """Return the future of `then` applied to the result, in the thread that completes `future`.

    It fails or is cancelled with `future`.
    """
    following: Future[R] = Future()

    def finish(done: Future[T]) -> None:
        if done.cancelled():
            following.cancel()
            return
        try:
            following.set_result(then(done.result()))
        except BaseException as error:  # noqa: BLE001  it is raised where the result is waited for
            following.set_exception(error)

    future.add_done_callback(finish)
    return following
