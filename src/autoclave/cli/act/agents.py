"""`autoclave act mcp`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from autoclave.cli.act.common import on_state, vault_settings
from autoclave.core import HostError, UsageError
from autoclave.core.install import install_command

TOKEN = "AUTOCLAVE_MCP_TOKEN"


@click.command()
@click.option(
    "--session", "name", default="mcp", show_default=True, help="Name under which actions and grants are recorded."
)
@click.option("--http", metavar="HOST:PORT", help="Serve HTTP at this loopback address, not standard input and output.")
@on_state
def mcp(http: str | None, name: str, root: Path, state: Path | None) -> None:
    """Serve reversible actions as tools of the Model Context Protocol (MCP), for agents.

    Agents start it themselves, and talk to it over standard input and output. With --http it listens at
    http://HOST:PORT/mcp for requests with the bearer token in AUTOCLAVE_MCP_TOKEN. Nothing is permitted without a grant
    (`autoclave act grant`). A session undoes its own actions only: give each agent another --session.

    \b
    Example: autoclave act mcp --root project
    """
    import anyio

    from autoclave.act import session

    try:
        from autoclave.integrations.mcp.server import serve_http, serve_stdio
    except ImportError as error:
        fix = install_command("mcp,databases")
        raise HostError(f"act mcp: needs a library ({error.name}). Fix: {fix}") from None
    token = os.environ.pop(TOKEN, "")
    if http and not token:
        raise UsageError(f"act mcp --http: needs a token in {TOKEN}. Fix: export {TOKEN}=$(openssl rand -hex 32)")
    with session(root, state, name=name, by="mcp", **vault_settings()) as opened:
        if not http:
            anyio.run(serve_stdio, opened)
            return
        host, _, port = http.rpartition(":")
        if not port.isdecimal():
            raise UsageError(f"--http {http}: must be HOST:PORT, such as 127.0.0.1:8765")
        serve_http(opened, host.strip("[]"), int(port), token, lambda url: click.echo(f"Serving at {url}"))
