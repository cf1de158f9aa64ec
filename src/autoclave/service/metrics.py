"""Metrics of a server for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from autoclave.core import Verdict

_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
disable_created_metrics()


class Metrics:
    """Counters of one server. Safe to use from several threads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._verdicts = Counter("autoclave_verdicts", "Verdicts by status.", ["status"], registry=registry)
        self._responses = Counter("autoclave_requests", "Responses.", ["method", "status"], registry=registry)
        self._seconds = Histogram(
            "autoclave_judging_seconds", "Seconds in the judge.", buckets=_BUCKETS_S, registry=registry
        )
        self._gauges: dict[str, Gauge] = {}

    def note_verdict(self, verdict: Verdict, seconds: float) -> None:
        """Count a verdict, and the seconds that the judge had the program."""
        self._verdicts.labels(verdict.status.value if verdict.status else "none").inc()
        self._seconds.observe(seconds)

    def note_response(self, method: str, status: int) -> None:
        self._responses.labels(method, status).inc()

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics in the text format, with these values of gauges."""
        for name, value in gauges.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(f"autoclave_{name}", name.replace("_", " "), registry=self._registry)
            self._gauges[name].set(value)
        return generate_latest(self._registry).decode()
