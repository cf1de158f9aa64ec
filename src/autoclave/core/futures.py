"""Futures that have their result, and futures of a function of another one's result."""

from collections.abc import Callable, Collection
from concurrent.futures import Future
from itertools import count
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


class MeteredFuture(Future[T], Generic[T]):
    """A future with the CPU seconds of all that ran for its result, such as a compiler; None if they are unknown."""

    cpu_s: float | None = None


def completed(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future


def attempted(call: Callable[[], Future[T]]) -> Future[T]:
    """Return the future of a call; if the call raises, one that fails with that."""
    try:
        return call()
    except BaseException as error:  # noqa: BLE001  it is raised where the result is waited for
        failed: Future[T] = Future()
        failed.set_exception(error)
        return failed


def gathered(futures: Collection[Future[Any]]) -> Future[None]:
    """Return a future that is done when all of `futures`, which are distinct, are done or failed."""
    arrived, done = count(1), Future[None]()

    def arrive(_: object) -> None:
        if next(arrived) == len(futures):  # one step in C, so that no two threads get the same number
            done.set_result(None)

    for each in futures:
        each.add_done_callback(arrive)
    return done if futures else completed(None)


def linked(future: Future[T], then: Callable[[Future[T]], Future[R]]) -> Future[R]:
    """Return the future of what `then` returns for `future`, done or failed, in the thread that completes it."""
    following: Future[R] = Future()

    def settle(done: Future[R]) -> None:
        if done.cancelled():
            following.cancel()
        elif error := done.exception():
            following.set_exception(error)
        else:
            following.set_result(done.result())

    future.add_done_callback(lambda done: attempted(lambda: then(done)).add_done_callback(settle))
    return following


def chained(future: Future[T], then: Callable[[T], R]) -> Future[R]:
    """Return the future of `then` applied to the result, in the thread that completes `future`.

    It fails or is cancelled with `future`.
    """
    return linked(future, lambda done: cast("Future[R]", done) if done.cancelled() else completed(then(done.result())))
