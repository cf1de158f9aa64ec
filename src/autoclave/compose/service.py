"""Build the judge server from its settings. Free of torch; the libraries of the extra `serve` load when needed."""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from autoclave.config import ServeConfig, TlsConfig
from autoclave.config.service import is_database
from autoclave.core import ConfigError, Verdict
from autoclave.core.files import alone_with, existing_file
from autoclave.core.install import needing
from autoclave.judge import PlainRunner, ProcessJudge

if TYPE_CHECKING:
    from autoclave.service.audit import AuditLog
    from autoclave.service.dispatcher import Observer
    from autoclave.service.metrics import Metrics
    from autoclave.service.parts import Parts
    from autoclave.service.store.records import StartedJob
    from autoclave.service.store.sql import Store


def open_store(place: str | Path) -> Store:
    """Open the store in a file, or in the database that a URL names.

    Raises InputError: it cannot be used. HostError: the database does not respond, or its library is not installed.
    """
    if not is_database(str(place)):
        from autoclave.service.store.sqlite import SqliteStore

        return SqliteStore(Path(place))
    with needing("store: PostgreSQL", "serve-postgres"):
        from autoclave.service.store.postgres import PostgresStore
    return PostgresStore(str(place))


@contextlib.contextmanager
def _exclusive(place: str) -> Generator[None]:
    """Lock a store that is a file, or raise InputError: a second server would claim the jobs of the first."""
    if is_database(place):
        yield
        return
    complaint = f"store {place}: another server has it; give another file, or a PostgreSQL database to share"
    with alone_with(Path(place), complaint):
        yield


@contextlib.contextmanager
def open_parts(config: ServeConfig) -> Generator[Parts]:
    """Open the parts of a server.

    Raises:
        ConfigError: no token is valid, or the certificate cannot be used.
        InputError: the store or the audit file cannot be used.
        HostError: the database does not respond.
        IsolationError: this host does not support the requested isolation level.
    """
    from autoclave.service.audit import AuditLog, JsonLog
    from autoclave.service.dispatcher import Dispatcher
    from autoclave.service.leases import Leases
    from autoclave.service.loop_thread import Notices
    from autoclave.service.metrics import Metrics
    from autoclave.service.nodes import Node
    from autoclave.service.parts import Parts
    from autoclave.service.problem_cache import ProblemCache
    from autoclave.service.rates import TokenBuckets
    from autoclave.service.run_queue import RunQueue
    from autoclave.service.store.records import Bounds

    admission = config.admission
    _require_certificate(config.tls)
    with contextlib.ExitStack() as opened:
        opened.enter_context(_exclusive(config.store))
        store = opened.enter_context(contextlib.closing(open_store(config.store)))
        _require_valid_token(config, store)
        audit = opened.enter_context(contextlib.closing(AuditLog(config.audit_file, sources=config.audit.sources)))
        access_log = None
        if config.access_log:
            log = JsonLog(Path(config.access_log), "access_log")
            access_log = opened.enter_context(contextlib.closing(log))
        judge = opened.enter_context(ProcessJudge(config.sandbox, config.judge))
        slots = config.judge.workers or len(os.sched_getaffinity(0))
        notices, metrics = Notices(), Metrics()
        problems = ProblemCache(store, config.cached_problems_mb * 2**20)
        dispatcher = Dispatcher(
            judge,
            store,
            notices,
            Bounds(admission.queue_limit, admission.client_queue_limit),
            problems,
            slots=slots,
            keep_results_s=config.keep_results_s,
            observe=_observer(metrics, audit),
        )
        yield Parts(
            config=config,
            judge=judge,
            runner=opened.enter_context(PlainRunner(config.sandbox, config.judge)),
            store=store,
            dispatcher=dispatcher,
            node=Node(store, dispatcher, config.node_lease_s),
            notices=notices,
            problems=problems,
            audit=audit,
            access_log=access_log,
            metrics=metrics,
            buckets=TokenBuckets(admission.requests_per_s, admission.request_burst),
            run_queue=RunQueue(
                admission.concurrent_runs or slots, admission.waiting_runs, lambda: dispatcher.is_draining
            ),
            leases=Leases(store),
        )


def url_of(config: ServeConfig, port: int) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.tls.certificate_file else 'http'}://{host}:{port}"


def check_usable(config: ServeConfig) -> None:
    """Check that a server with these settings can start, without starting one.

    Raises:
        ConfigError: no token is valid, or the certificate cannot be used.
        InputError: the store cannot be used.
        HostError: the database does not respond.
    """
    _require_certificate(config.tls)
    with contextlib.closing(open_store(config.store)) as store:
        _require_valid_token(config, store)


def _require_certificate(tls: TlsConfig) -> None:
    if not tls.certificate_file:
        return
    certificate = existing_file(Path(tls.certificate_file), "tls.certificate_file")
    key = existing_file(Path(tls.key_file), "tls.key_file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror or "no PEM"
        raise ConfigError(
            f"tls: {certificate} and {key} cannot be used ({reason.lower().replace('_', ' ')}); give a certificate and "
            "its own private key, without a password, in PEM"
        ) from None


def _require_valid_token(config: ServeConfig, store: Store) -> None:
    if config.require_token and not any(token.is_valid(time.time()) for token in store.tokens()):
        raise ConfigError(
            f"require_token = true: no valid token is in {config.shown_store}; make one: "
            f"autoclave serve token create --scope judge --scope problems:write store={config.shown_store}"
        )


def _observer(metrics: Metrics, audit: AuditLog) -> Observer:
    def observe(job: StartedJob, verdict: Verdict, seconds: float, cpu_s: float) -> None:
        metrics.note_verdict(job, verdict, seconds, cpu_s)
        status = verdict.status.value if verdict.status else None
        what = {"problem": job.spec.digest, "batch": job.batch, "job": job.id, "status": status}
        audit.note(job.client, "verdict", source=job.spec.source, request=job.request, **what)

    return observe
