"""The judge as a deployment of Ray Serve: one application, in as many replicas as there are requests for.

Ray starts, watches and ends the replicas and gives requests out; every replica is a node on the common store, which has
all that must survive: a replica that dies leaves its programs to the others.
"""

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
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig
from ray.serve.context import _get_global_client  # nothing public tells where proxies listen
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from autoclave.compose.service import check_usable, open_parts, url_of
from autoclave.config import ServeConfig, TlsConfig
from autoclave.core import HostError
from autoclave.service.server import create_app
from autoclave.service.serving import listen
from autoclave.workers.ray_cluster import connect

NAME = "autoclave-judge"
_MOST_REQUESTS = 1000
"""Of one replica at a time; more wait at the proxy."""
_END_S = 15.0
"""Seconds that Ray may take to end replicas, beside those of requests."""
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
        ConfigError: no client could use the servers, or their certificate.
        InputError: the store cannot be used.
        HostError: the database or the cluster does not answer, Serve is in use there, or the replicas do not start.
    """
    check_usable(config)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as opened:
        if connect():
            opened.callback(ray.shutdown)
            opened.callback(serve.shutdown)
        for number in (signal.SIGTERM, signal.SIGINT):  # in place of the handlers that Ray has just set
            signal.signal(number, _interrupt)
        _require_cpus(config.judge.workers)
        try:
            port = _start_proxies(config)
            if NAME in serve.status().applications:
                raise HostError(f"ray: {NAME} runs on this cluster already. Fix: end it first")
            opened.callback(_end, config.drain_s + 2 * _END_S)
            serve.run(_deployment(config), name=NAME)
        except (RuntimeError, TimeoutError, RayError, RayServeException) as error:
            raise HostError(f"ray: the servers do not start: {error}") from None
        _require_answer(url_of(config, port))
        announce(url_of(config, port))
        threading.Event().wait()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _require_cpus(wanted: int) -> None:
    largest = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
    if wanted > largest:
        raise HostError(
            f"ray: judge.workers = {wanted}: no node of the cluster has more than {largest:g} CPUs; lower it"
        )


def _start_proxies(config: ServeConfig) -> int:
    """Start Serve where it does not run; the port that requests are taken at."""
    assert config.ray
    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        with contextlib.closing(listen(config.host, config.port)) as listening:
            port: int = listening.getsockname()[1]
        serve.start(
            proxy_location="EveryNode" if config.ray.proxies == "nodes" else "HeadOnly",
            http_options={"host": config.host, "port": port, **_encryption(config.tls)},
            logging_config=_QUIET,
        )
        return port
    found = _get_global_client().http_config  # pyright: ignore[reportOptionalMemberAccess]
    wanted = {"host": config.host, "port": config.port or found.port, **_encryption(config.tls)}
    for name in ("host", "port", "ssl_certfile", "ssl_keyfile"):
        value = getattr(found, name)
        if value != wanted.get(name):  # only clients that the settings allow may reach it
            raise HostError(
                f"ray: Serve runs on this cluster with {name} = {value!r}, not {wanted.get(name)!r}. "
                "Fix: give the same, or end it with `serve shutdown`"
            )
    return wanted["port"]


def _encryption(tls: TlsConfig) -> dict[str, Any]:
    if not tls.certificate_file:
        return {}
    files = {"ssl_certfile": tls.certificate_file, "ssl_keyfile": tls.key_file}
    return {name: str(Path(file).absolute()) for name, file in files.items()}


def _deployment(config: ServeConfig) -> Any:
    scaling = config.ray
    assert scaling
    audit = config.audit.model_copy(update={"file": str(config.audit_file.absolute())})
    access_log = config.access_log and str(Path(config.access_log).absolute())
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
        graceful_shutdown_timeout_s=config.drain_s,
        logging_config=_QUIET,
    )
    # Encryption is the proxies' business.
    return deployment.bind(config.model_copy(update={"audit": audit, "access_log": access_log, "tls": TlsConfig()}))


def _end(patience_s: float) -> None:
    serve.delete(NAME, _blocking=False)
    until = time.monotonic() + patience_s
    while NAME in serve.status().applications and time.monotonic() < until:
        time.sleep(0.2)


def _require_answer(url: str) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/v1/health", trust_env=False, verify=False).status_code == 200:
                return
        time.sleep(0.2)
    raise HostError(f"ray: nothing answers at {url}. Fix: start it on a node of the cluster that has a proxy")
