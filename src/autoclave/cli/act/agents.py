"""`autoclave act mcp`."""

import os
from pathlib import Path

import click

from autoclave.cli.act.common import FOLDER, on_state, require_of_agent, vault_settings
from autoclave.core import UsageError
from autoclave.core.install import needing

TOKEN = "AUTOCLAVE_MCP_TOKEN"


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--session", "name", default="mcp", show_default=True, help="Name under which actions and grants are recorded."
)
@click.option(
    "--in-front-of",
    "is_proxy",
    is_flag=True,
    help="Serve the tools of another server instead: COMMAND starts it, sealed on the folder, for each call.",
)
@click.option("--server-name", help="Name of that server in grants: programs/NAME.  [default: its program]")
@click.option("--show", "shown", type=FOLDER, multiple=True, help="File or folder that it needs to see, read-only.")
@click.option("--http", metavar="HOST:PORT", help="Serve HTTP at this loopback address, not standard input and output.")
@click.argument("command", nargs=-1)
@on_state
def mcp(
    is_proxy: bool,
    server_name: str | None,
    shown: tuple[Path, ...],
    command: tuple[str, ...],
    http: str | None,
    name: str,
    root: Path,
    state: Path | None,
) -> None:
    """Serve reversible actions as tools of the Model Context Protocol (MCP), for agents.

    Agents start it themselves, and talk to it over standard input and output. With --http it listens at
    http://HOST:PORT/mcp for requests with the bearer token in AUTOCLAVE_MCP_TOKEN. Nothing is permitted without a grant
    (`autoclave act grant`). A session undoes its own actions only: give each agent another --session.

    \b
    Example: autoclave act mcp --root project
    """
    require_of_agent(name)
    import anyio

    from autoclave.act import session
    from autoclave.runtime.opening import default_state

    with needing("act mcp", "mcp,databases"):
        from autoclave.integrations.mcp.proxy import Proxy
        from autoclave.integrations.mcp.server import serve_http, serve_stdio, server_of
    token = os.environ.pop(TOKEN, "")
    if http and not token:
        raise UsageError(f"act mcp --http: needs a token in {TOKEN}. Fix: export {TOKEN}=$(openssl rand -hex 32)")
    if is_proxy != bool(command):
        raise UsageError("act mcp: --in-front-of and COMMAND of the other server go together")
    proxy = Proxy(server_name or Path(command[0]).name, command, root, shown) if command else None
    more = proxy.settings(state or default_state(root)) if proxy else {}
    with session(root, state, name=name, by="mcp", **vault_settings(), **more) as opened:
        server = server_of(opened, proxy)
        if not http:
            anyio.run(serve_stdio, server)
            return
        host, _, port = http.rpartition(":")
        if not port.isdecimal():
            raise UsageError(f"--http {http}: must be HOST:PORT, such as 127.0.0.1:8765")
        serve_http(server, host.strip("[]"), int(port), token, lambda url: click.echo(f"Serving at {url}"))
