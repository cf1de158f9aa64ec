"""Metrics of a server for Prometheus."""

import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from autoclave.core import Verdict
from autoclave.service.store.records import StartedJob

_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_MOST_CLIENTS = 100
_OTHERS = "other"
disable_created_metrics()


class Metrics:
    """Counters of one server, for several threads. Clients after the first `_MOST_CLIENTS` are counted together."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._clients: set[str] = set()
        self._verdicts = self._counter("verdicts", "Verdicts by status.", "status", "client")
        self._faults = self._counter("faults", "Programs without a verdict.", "kind", "client")
        self._cpu = self._counter("cpu_seconds", "CPU seconds of judged programs, compilers and checkers.", "client")
        self._responses = self._counter("requests", "Responses.", "method", "status")
        self._refusals = self._counter("refusals", "Refused requests.", "cause", "client")
        self._judging = self._histogram("judging_seconds", "Seconds in the judge.")
        self._queue = self._histogram("queue_seconds", "Seconds from acceptance to the judge.", "client")
        self._latency = self._histogram("request_seconds", "Seconds to the end of the response.", "route")
        self._gauges: dict[str, Gauge] = {}

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"autoclave_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"autoclave_{name}", text, labels, buckets=_BUCKETS_S, registry=self._registry)

    def _known(self, client: str) -> str:
        if client not in self._clients and len(self._clients) < _MOST_CLIENTS:
            self._clients.add(client)
        return client if client in self._clients else _OTHERS

    def note_verdict(self, job: StartedJob, verdict: Verdict, seconds: float, cpu_s: float) -> None:
        """Count a verdict, the seconds that the judge had the program, and CPU seconds."""
        client = self._known(job.client)
        self._verdicts.labels(verdict.status.value if verdict.status else "none", client).inc()
        if verdict.fault is not None:
            self._faults.labels(verdict.fault.kind, client).inc()
        self._cpu.labels(client).inc(cpu_s)
        self._judging.observe(seconds)
        self._queue.labels(client).observe(max(time.time() - seconds - job.created, 0.0))

    def note_response(self, method: str, status: int, route: str, seconds: float) -> None:
        self._responses.labels(method, status).inc()
        self._latency.labels(route).observe(seconds)

    def note_refusal(self, cause: str, client: str) -> None:
        self._refusals.labels(cause, self._known(client)).inc()

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics in the text format, with these values of gauges."""
        for name, value in gauges.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(f"autoclave_{name}", name.replace("_", " "), registry=self._registry)
            self._gauges[name].set(value)
        return generate_latest(self._registry).decode()
