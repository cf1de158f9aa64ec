"""The server: tools of one session of `autoclave.act`, over standard input and output or HTTP.

Each call is done in a thread, one after another. A call that has begun is completed even if its client is gone; the
client that comes back sees it in `list_changes`. The server of HTTP is for this machine: it listens on a loopback
address, and answers only requests that have the token, that name it in `Host`, and that come from no web page.
"""

import hmac
import socket
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import anyio
import uvicorn
from anyio.to_thread import run_sync
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ToolDefinition
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autoclave import __version__
from autoclave.act import Result, Session
from autoclave.act.tools import Tool, own_tools
from autoclave.core import HostError, UsageError
from autoclave.integrations.mcp.proxy import Proxy

_INSTRUCTIONS = (
    "Tools act on one folder, and on connected databases and services. Each call is journalled and checked by grants "
    "of the user; a call that is not permitted changes nothing, and only the user can permit it. Results have the id "
    "of the action and the guarantee of its undo: exact, equivalent, compensating or none. list_changes shows what was "
    "done in this session, undo takes it back."
)
_NAMES = {"127.0.0.1": "127.0.0.1", "localhost": "localhost", "::1": "[::1]"}
"""Loopback addresses, as URLs have them."""
_SHORTEST_TOKEN = 16
_BESIDE_PROXY = [each for each in own_tools() if each.name != "explain_blast_radius"]
_MOST_BODY = 8 << 20
"""Bytes of a request."""


def server_of(session: Session, proxy: Proxy | None = None) -> Server[Any]:
    """Return a server whose tools are those of a session, or those of `proxy` and for looking and undo."""
    one_at_a_time = anyio.CapacityLimiter(1)
    others = proxy.tools(session).tools if proxy else []
    names = {each.name for each in others}

    async def on_list_tools(
        context: ServerRequestContext[Any], parameters: PaginatedRequestParams | None
    ) -> ListToolsResult:
        own = _BESIDE_PROXY if proxy else await run_sync(session.tool_list, limiter=one_at_a_time)
        return ListToolsResult(tools=[*others, *(definition_of(each) for each in own if each.name not in names)])

    async def on_call_tool(context: ServerRequestContext[Any], called: CallToolRequestParams) -> CallToolResult:
        name, arguments = called.name, called.arguments or {}
        if proxy and name in names:
            return result_of(*await run_sync(proxy.call, session, name, arguments, limiter=one_at_a_time))
        if proxy and name not in {each.name for each in _BESIDE_PROXY}:
            raise MCPError(INVALID_PARAMS, f"tool {name}: there is none of that name")
        return result_of(await run_sync(session.call, name, arguments, limiter=one_at_a_time))

    return Server(
        "autoclave",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


def definition_of(tool: Tool) -> ToolDefinition:
    """Return a tool as the protocol has it."""
    annotations = ToolAnnotations(
        read_only_hint=tool.is_read_only,
        destructive_hint=tool.is_destructive,
        idempotent_hint=tool.is_idempotent,
        open_world_hint=tool.reaches_outside,
    )
    schema = dict(tool.parameters)
    return ToolDefinition(name=tool.name, description=tool.description, input_schema=schema, annotations=annotations)


def result_of(result: Result, answer: CallToolResult | None = None) -> CallToolResult:
    """Return a result as the protocol has it, or `answer`; its `_meta` has action and guarantee."""
    told = {"autoclave/action": result.action, "autoclave/guarantee": result.guarantee}
    meta = {name: value for name, value in told.items() if value}
    if answer:
        return answer.model_copy(update={"meta": {**(answer.meta or {}), **meta}})
    return CallToolResult(content=[TextContent(text=result.text)], is_error=result.is_error, _meta=meta)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client over standard input and output until it closes them."""
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


def http_app(server: Server[Any], token: str, hosts: Sequence[str]) -> ASGIApp:
    """Return an application with the endpoint `/mcp`. `hosts`: values that the header `Host` may have."""
    security = TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=[])
    app = server.streamable_http_app(transport_security=security, max_request_body_size=_MOST_BODY)
    return _WithToken(app, token)


def serve_http(server: Server[Any], host: str, port: int, token: str, on_ready: Callable[[str], object]) -> None:
    """Serve clients over HTTP until SIGTERM or SIGINT. `on_ready` is called with the URL.

    Raises UsageError: the host is not a loopback address, or the token is too short. HostError: the port is taken.
    """
    if host not in _NAMES:
        known = ", ".join(_NAMES)
        raise UsageError(
            f"--http {host}:{port}: must be one of {known}; put a server with TLS in front of it for others"
        )
    if len(token) < _SHORTEST_TOKEN:
        raise UsageError(f"AUTOCLAVE_MCP_TOKEN: must have {_SHORTEST_TOKEN} characters. Fix: openssl rand -hex 32")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise HostError(f"--http {host}:{port}: {error.strerror}. Fix: give another port") from None
    with listener:
        on_ready(f"http://{_NAMES[host]}:{listener.getsockname()[1]}/mcp")
        app = http_app(server, token, [f"{each}:*" for each in _NAMES.values()])
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
        _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True  # and the signal is not raised again


class _WithToken:
    """Passes on the requests that have the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                return await Response(status_code=401, headers={"www-authenticate": "Bearer"})(scope, receive, send)
        return await self._app(scope, receive, send)
