"""One call of an MCP server, inside a cell: start the server, shake hands, call a tool, print the result.

Runs on the bare interpreter of the cell, and imports the standard library alone. Standard input has
`{"tool": NAME, "arguments": {...}}`, or `{}` for the list of tools. The exit code is 1 if the server does not answer,
or answers with a protocol error.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any

_VERSION = "2025-06-18"
_CLOSING_S = 2.0


class _Server:
    """A server over its standard input and output."""

    def __init__(self, sent: IO[bytes], received: IO[bytes]) -> None:
        self._sent, self._received, self._number = sent, received, 0

    def request(self, method: str, parameters: dict[str, Any]) -> Any:
        """Return the result of a request; requests of the server meanwhile are declined. Raises RuntimeError."""
        self._number += 1
        self.send(id=self._number, method=method, params=parameters)
        while line := self._received.readline():
            try:
                message = json.loads(line)
            except ValueError:  # a log on the wrong stream
                continue
            if "method" not in message and message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(message["error"].get("message"))
                return message["result"]
            if "method" in message and "id" in message:
                declined = {"error": {"code": -32601, "message": "not supported"}}
                self.send(id=message["id"], **({"result": {}} if message["method"] == "ping" else declined))
        raise RuntimeError("the server ended without an answer")

    def send(self, **message: Any) -> None:
        self._sent.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._sent.flush()

    def tools(self) -> Iterator[Any]:
        """Yield the tools of all pages."""
        page = self.request("tools/list", {})
        yield from page["tools"]
        while cursor := page.get("nextCursor"):
            page = self.request("tools/list", {"cursor": cursor})
            yield from page["tools"]


def main(command: list[str]) -> int:
    asked = json.load(sys.stdin)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    server = _Server(process.stdin, process.stdout)
    try:
        client = {"name": "autoclave", "version": "1"}
        server.request("initialize", {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": client})
        server.send(method="notifications/initialized")
        if "tool" in asked:
            result = server.request("tools/call", {"name": asked["tool"], "arguments": asked["arguments"]})
        else:
            result = {"tools": list(server.tools())}
    except (RuntimeError, BrokenPipeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            process.kill()
    json.dump(result, sys.stdout)
    return 0
