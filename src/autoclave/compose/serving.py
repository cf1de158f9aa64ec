"""Run the judge service that settings describe: one server here, or replicas on Ray."""

import contextlib
from collections.abc import Callable

from autoclave.compose.service import open_parts, url_of
from autoclave.config import ServeConfig
from autoclave.core.install import needing


def run_server(config: ServeConfig, announce: Callable[[str], None]) -> None:
    """Serve until a signal ends it. `announce` is given the address once it listens.

    Raises HostError: it cannot listen there.
    """
    if config.ray:
        with needing("ray", "serve-ray"):
            from autoclave.compose.ray_service import run_on_ray
        run_on_ray(config, announce)
        return
    from autoclave.service.server import create_app
    from autoclave.service.serving import listen, serve

    listening = listen(config.host, config.port)
    with contextlib.closing(listening), open_parts(config) as parts:
        announce(url_of(config, listening.getsockname()[1]))
        serve(create_app(parts), parts, listening)
