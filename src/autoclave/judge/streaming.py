"""Many jobs through a judge with bounded memory, verdicts in the order of the jobs."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar

from autoclave.core import Verdict
from autoclave.judge.interface import Judge, JudgeJob

T = TypeVar("T")
R = TypeVar("R")

_SIGNAL_PATIENCE_S = 0.5


def stream(judge: Judge, jobs: Iterable[JudgeJob], pending_limit: int = 64) -> Iterator[tuple[JudgeJob, Verdict]]:
    """Each job with its verdict, in order. At most `pending_limit` jobs are drawn ahead.

    Raises:
        InputError: a job's problem cannot be judged; what was submitted before is cancelled.
    """
    return in_order(((job, judge.submit(job)) for job in jobs), pending_limit)


def in_order(submitted: Iterable[tuple[T, Future[R]]], pending_limit: int) -> Iterator[tuple[T, R]]:
    """The results of futures in their order, at most `pending_limit` drawn ahead. The rest is cancelled on an error."""
    for item, future in done_in_order(submitted, pending_limit):
        yield item, future.result()


def done_in_order(submitted: Iterable[tuple[T, Future[R]]], pending_limit: int) -> Iterator[tuple[T, Future[R]]]:
    """Yield each future when it and all before it are done. For callers that expect failures."""
    pending: deque[tuple[T, Future[R]]] = deque()
    try:
        for item, future in submitted:
            pending.append((item, future))
            if len(pending) >= pending_limit:
                yield _first_of(pending)
        while pending:
            yield _first_of(pending)
    finally:
        for _, future in pending:
            future.cancel()


def _first_of(pending: deque[tuple[T, Future[R]]]) -> tuple[T, Future[R]]:
    item, future = pending.popleft()
    while not wait([future], timeout=_SIGNAL_PATIENCE_S).done:
        pass  # a signal just before a wait without timeout would be handled only after it
    return item, future
