"""Many jobs through a judge with bounded memory, verdicts in the order of the jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

from autoclave.core import Verdict
from autoclave.judge.interface import Judge, JudgeJob


def stream(judge: Judge, jobs: Iterable[JudgeJob], pending_limit: int = 1024) -> Iterator[tuple[JudgeJob, Verdict]]:
    """Each job with its verdict, in order. At most `pending_limit` jobs are drawn ahead.

    Raises:
        InputError: a job's problem cannot be judged; what was submitted before is cancelled.
    """
    pending: deque[tuple[JudgeJob, Future[Verdict]]] = deque()
    try:
        for job in jobs:
            pending.append((job, judge.submit(job)))
            if len(pending) >= pending_limit:
                oldest, future = pending.popleft()
                yield oldest, future.result()
        while pending:
            oldest, future = pending.popleft()
            yield oldest, future.result()
    finally:
        for _, future in pending:
            future.cancel()
