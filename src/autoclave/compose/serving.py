"""Run the judge service that settings describe: one server here, or replicas on Ray."""

import contextlib
from collections.abc import Callable

from autoclave.compose.service import open_parts, url_of
from autoclave.config import ServeConfig
from autoclave.core import HostError
from autoclave.core.install import install_command


def run_server(config: ServeConfig, announce: Callable[[str], None]) -> None:
    """Serve until a signal ends it. `announce` is given the address once it listens.

    Raises HostError: it cannot listen there.
    """
    if config.ray:
        try:
            from autoclave.compose.ray_service import run_on_ray
        except ImportError as error:
            fix = install_command("serve-ray")
            raise HostError(f"ray: Ray Serve is not installed ({error}). Fix: {fix}") from None
        run_on_ray(config, announce)
        return
    from autoclave.service.server import create_app
    from autoclave.service.serving import listen, serve

    listening = listen(config.host, config.port)
    with contextlib.closing(listening), open_parts(config) as parts:
        announce(url_of(config, listening.getsockname()[1]))
        serve(create_app(parts), parts, listening)
