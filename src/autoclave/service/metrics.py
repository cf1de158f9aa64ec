"""Counters of a server, in the text form that Prometheus reads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from autoclave.core import Verdict

BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._verdicts: dict[str, int] = {}
        self._answers: dict[tuple[str, int], int] = {}
        self._seconds = [0] * (len(BUCKETS_S) + 1)
        self._sum_s = 0.0

    def note_verdict(self, verdict: Verdict, seconds: float) -> None:
        """A verdict, and how long the judge had the program."""
        status = verdict.status.value if verdict.status else "none"
        with self._lock:
            self._verdicts[status] = self._verdicts.get(status, 0) + 1
            place = next((place for place, edge in enumerate(BUCKETS_S) if seconds <= edge), len(BUCKETS_S))
            self._seconds[place] += 1
            self._sum_s += seconds

    def note_answer(self, method: str, status: int) -> None:
        """An answer to a request."""
        with self._lock:
            self._answers[method, status] = self._answers.get((method, status), 0) + 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """Everything, with some values of this moment."""
        with self._lock:
            lines = [*self._verdict_lines(), *self._answer_lines(), *self._histogram()]
        for name, value in gauges.items():
            lines += [f"# TYPE autoclave_{name} gauge", f"autoclave_{name} {value:g}"]
        return "\n".join(lines) + "\n"

    def _verdict_lines(self) -> Iterable[str]:
        yield "# TYPE autoclave_verdicts_total counter"
        for status, count in sorted(self._verdicts.items()):
            yield f'autoclave_verdicts_total{{status="{status}"}} {count}'

    def _answer_lines(self) -> Iterable[str]:
        yield "# TYPE autoclave_requests_total counter"
        for (method, status), count in sorted(self._answers.items()):
            yield f'autoclave_requests_total{{method="{method}",status="{status}"}} {count}'

    def _histogram(self) -> Iterable[str]:
        yield "# TYPE autoclave_judging_seconds histogram"
        total = 0
        for edge, count in zip((*map(str, BUCKETS_S), "+Inf"), self._seconds, strict=True):
            total += count
            yield f'autoclave_judging_seconds_bucket{{le="{edge}"}} {total}'
        yield f"autoclave_judging_seconds_sum {self._sum_s:.6f}"
        yield f"autoclave_judging_seconds_count {total}"
