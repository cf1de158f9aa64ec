"""The judge as a deployment of Ray Serve: one application, in as many replicas as there are requests for.

Ray starts, watches and ends the replicas and gives requests out; every replica is a node on the common store, which has
all that must survive: a replica that dies leaves its programs to the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import ray
from fastapi import FastAPI
from ray import serve
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import LoggingConfig

from autoclave.compose.service import check_usable, open_parts, url_of
from autoclave.config import ServeConfig
from autoclave.core import HostError
from autoclave.service.server import create_app
from autoclave.service.serving import listen
from autoclave.workers.ray_cluster import connect

NAME = "autoclave-judge"
_MOST_REQUESTS = 1000
"""Of one replica at a time; more wait at the proxy."""
_END_S = 15.0
"""What a replica may take to end, after its requests have ended or had `drain_s` for it."""
_START_S = 60.0
_LOOK_BACK_S = 15.0
"""Requests are counted as the mean over it; more than the ten seconds between two counts."""
_QUIET = LoggingConfig(log_level="WARNING", enable_access_log=False)


@serve.deployment(name=NAME)
@serve.ingress()
class JudgeReplica:
    """One server. Its judge, and all else that it holds, ends with the application."""

    def __init__(self, config: ServeConfig) -> None:
        self._opened = contextlib.ExitStack()
        self._parts = self._opened.enter_context(open_parts(config))

    def __serve_build_asgi_app__(self) -> FastAPI:
        app = create_app(self._parts)
        app.router.lifespan_context = self._closing(app.router.lifespan_context)
        return app

    def check_health(self) -> None:
        """Ray replaces a replica for which this raises."""
        if not self._parts.dispatcher.is_alive:
            raise RuntimeError("its dispatcher has ended")

    def _closing(self, running: Any) -> Any:
        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
            try:
                async with running(app):
                    yield
            finally:
                await asyncio.to_thread(self._opened.close)

        return lifespan


def run_on_ray(config: ServeConfig, announce: Callable[[str], None]) -> None:
    """Serve until a signal ends it. `announce` is given the address of the proxy on this machine.

    Raises:
        ConfigError: nobody could use the servers, or their certificate.
        InputError: the store cannot be used.
        HostError: the database or the cluster does not answer, the replicas do not start, or nothing listens there.
    """
    assert config.ray
    check_usable(config)
    is_own = connect()
    is_stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_stopped.set())
    try:
        port = _start(config)
        announce(url_of(config, port))
        is_stopped.wait()
    finally:
        serve.delete(NAME)
        if is_own:
            serve.shutdown()
            ray.shutdown()


def _start(config: ServeConfig) -> int:
    """Start the replicas, and proxies where none run; the port."""
    scaling = config.ray
    assert scaling
    with contextlib.closing(listen(config.host, config.port)) as listening:
        port = listening.getsockname()[1]
    tls = config.tls
    encryption = (
        {
            "ssl_certfile": str(Path(tls.certificate_file).absolute()),
            "ssl_keyfile": str(Path(tls.key_file).absolute()),
        }
        if tls.certificate_file
        else {}
    )
    serve.start(
        proxy_location="EveryNode" if scaling.proxies == "nodes" else "HeadOnly",
        http_options={"host": config.host, "port": port, **encryption},
        logging_config=_QUIET,
    )
    audit = config.audit.model_copy(update={"file": str(config.audit_file.absolute())})
    deployment = JudgeReplica.options(
        autoscaling_config=AutoscalingConfig(
            min_replicas=scaling.min_replicas,
            max_replicas=scaling.max_replicas,
            target_ongoing_requests=scaling.ongoing_requests,
            upscale_delay_s=scaling.upscale_delay_s,
            downscale_delay_s=scaling.downscale_delay_s,
            look_back_period_s=_LOOK_BACK_S,
        ),
        ray_actor_options={"num_cpus": config.judge.workers},
        max_ongoing_requests=_MOST_REQUESTS,
        graceful_shutdown_timeout_s=config.drain_s + _END_S,
        logging_config=_QUIET,
    )
    try:
        serve.run(deployment.bind(config.model_copy(update={"audit": audit})), name=NAME)
    except RuntimeError as error:
        raise HostError(f"ray: the replicas do not start: {error}") from None
    _require_answer(url_of(config, port))
    return port


def _require_answer(url: str) -> None:
    """Proxies that ran already listen where they did."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/v1/health", trust_env=False, verify=False).status_code == 200:
                return
        time.sleep(0.2)
    raise HostError(
        f"ray: nothing answers at {url}. Does Serve already run on this cluster with another address? "
        "Mend: give host and port of that one, or end it"
    )
