"""A real server on a free port that speaks OpenAI's chat and completions: what it says is decided by the prompt, and it
can be told to misbehave.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """`say` makes the text of a response from the body of its request. `trouble`: for the next requests, in order, a
    status code, "truncated" (half an answer), "damaged" (JSON that is cut), "page" (no JSON), "silent", "empty" (no
    choices), or a choice to answer with.
    """

    def __init__(self, say: Callable[[dict[str, Any]], str], *, models: tuple[str, ...] = ("m",)) -> None:
        self.say, self.models = say, models
        self.trouble: list[int | str | dict[str, Any]] = []
        self.retry_after = "0"
        self.pause_s = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.begun: list[float] = []
        self.answered: Counter[tuple[str, int]] = Counter()
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"served": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: ChatServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._reply(200, {"data": [{"id": name} for name in self.served.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.served.lock:
            self.served.bodies.append(body)
            self.served.keys.append(self.headers.get("Authorization", ""))
            self.served.begun.append(time.monotonic())
            trouble = self.served.trouble.pop(0) if self.served.trouble else None
        if body["model"] not in self.served.models:
            self._reply(404, {"error": {"message": f"The model `{body['model']}` does not exist."}})
            return
        if isinstance(trouble, int):
            self._reply(trouble, {"error": {"message": "trouble"}})
            return
        if trouble == "silent":
            time.sleep(3)
            return
        if trouble == "page":
            self._send(200, b"<html>busy</html>", 17)
            return
        if isinstance(trouble, dict):
            self._reply(200, {"choices": [trouble], "usage": {"prompt_tokens": "7", "completion_tokens": None}})
            return
        time.sleep(self.served.pause_s)
        text = self.served.say(body)
        choice = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        usage = {"prompt_tokens": 7, "completion_tokens": len(text.split())}
        answer = {"choices": [] if trouble == "empty" else [{**choice, "finish_reason": "stop"}], "usage": usage}
        content = json.dumps(answer).encode()
        if trouble == "truncated":
            self._send(200, content[: len(content) // 2], len(content))
        elif trouble == "damaged":
            self._send(200, content[: len(content) // 2], len(content) // 2)
        else:
            with self.served.lock:
                asked = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
                self.served.answered[str(asked), body.get("seed")] += 1
            self._send(200, content, len(content))

    def _reply(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self._send(status, content, len(content))

    def _send(self, status: int, content: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        if status == 429:
            self.send_header("Retry-After", self.served.retry_after)
        self.end_headers()
        self.wfile.write(content)
