"""A server that stands for the models of Claude Code and Codex: it asks for the given tool uses in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@contextmanager
def scripted_model(uses: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Serve the Messages and the Responses API on a loopback port; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(b"{}", "application/json")

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.startswith("/v1/responses"):
                self._stream(list(responses_events(asked, uses)))
            elif "count_tokens" in self.path:
                self._answer(b'{"input_tokens": 1}', "application/json")
            else:
                self._stream(list(messages_events(asked, uses)))

        def _stream(self, events: list[dict[str, Any]]) -> None:
            content = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
            self._answer(content.encode(), "text/event-stream")

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content if self.command != "HEAD" else b"")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def messages_events(asked: dict[str, Any], uses: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the events of an answer of Anthropic's Messages API."""
    parts = [part for each in asked["messages"] if isinstance(each["content"], list) for part in each["content"]]
    number = sum(part["type"] == "tool_result" for part in parts)
    if number < len(uses) and any(tool.get("name") == uses[number][0] for tool in asked.get("tools", ())):
        tool, given = uses[number]
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": {}}
        delta, reason = {"type": "input_json_delta", "partial_json": json.dumps(given)}, "tool_use"
    else:
        block, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn"
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": message | {"usage": {"input_tokens": 1, "output_tokens": 1}}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def responses_events(asked: dict[str, Any], uses: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the events of an answer of OpenAI's Responses API."""
    number = sum(each.get("type") == "function_call_output" for each in asked["input"])
    if number < len(uses):
        tool, given = uses[number]
        call = {"type": "function_call", "id": f"f{number}", "call_id": f"c{number}", "name": tool}
        item: dict[str, Any] = call | {"arguments": json.dumps(given)}
    else:
        text = [{"type": "output_text", "text": "done"}]
        item = {"type": "message", "id": "m", "role": "assistant", "content": text}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {"id": f"r{number}"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": f"r{number}", "usage": usage}}
