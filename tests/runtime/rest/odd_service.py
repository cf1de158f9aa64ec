"""A real HTTP service on this machine that does what Kinto does not: tokens, limits, redirects, late answers."""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from autoclave.core.closing import Closing
from autoclave.runtime.rest import ServiceConnection
from autoclave.runtime.session import Session
from autoclave.runtime.vault import Secret
from tests.runtime.rest.acting import connection, opened
from tests.runtime.rest.catalogues import written

CATALOGUE: dict[str, Any] = yaml.safe_load("""
service: odd
refusals: {/ok: false}
read_backs:
  lamp: {path: /rpc/show, method: POST, body: {id: $request.path.id}, absent_when: {/error: [no such lamp]}}
  item: {path: "/items/{id}", volatile: [/at, /echo]}
  file: {path: "/files/{id}", form: bytes}
operations:
  get: {method: GET, path: "/items/{id}"}
  go: {method: GET, path: "/go/{where}", parameters: {note: {place: header, is_required: false}}}
  put:
    method: PUT
    path: "/items/{id}"
    body: {}
    read_back: item
    spend: $request.body#/cost
    undo:  # pinned, here and below: we answer for these compensating requests, since this module is the service
      - {operation: delete, arguments: &id {id: $request.path.id}, when: absent, grade: exact, status: pinned}
      - &item_again
        operation: put
        arguments: {id: $request.path.id, body: {of: $before.body, without: [/at, /echo]}}
        when: existed
        status: pinned
  delete: {method: DELETE, path: "/items/{id}", read_back: item, undo: [*item_again]}
  put_file:
    method: PUT
    path: "/files/{id}"
    body: {content_type: application/octet-stream}
    read_back: file
    undo:
      - {operation: delete_file, arguments: *id, when: absent, status: pinned}
      - &file_again {operation: put_file, arguments: {id: $request.path.id, body: $before.body}, status: pinned}
  delete_file: {method: DELETE, path: "/files/{id}", read_back: file, undo: [*file_again]}
  "on":
    method: POST
    path: /rpc/on
    verb: modify
    body: {form: {type: object, required: [id]}}
    read_back: lamp
    subject: &lamp {id: $request.body#/id}
    undo: [{operation: "off", arguments: {body: *lamp}, when: existed, status: pinned}]
  "off":
    method: POST
    path: /rpc/off
    verb: modify
    body: {}
    read_back: lamp
    subject: *lamp
    undo: [{operation: "on", arguments: {body: *lamp}, when: existed, status: pinned}]
  send: {method: POST, path: /mails, body: {}, summary: Send a mail}
""")


@dataclass(slots=True)
class OddService(Closing):
    """Keeps items and files. What is set here it does from then on."""

    tokens: set[str] = field(default_factory=set[str])
    """Those that it accepts."""
    num_limited: int = 0
    """So many of the next requests it refuses with `limit_status`."""
    limit_status: int = 429
    retry_after: str = "0"
    limits_methods: tuple[str, ...] = ("PUT", "DELETE")
    num_late: int = 0
    """So many of the next read-backs show what there was before."""
    num_refused_read_backs: int = 0
    """So many of the next read-backs of lamps it refuses with a good status."""
    items: dict[str, Any] = field(default_factory=dict[str, Any])
    lamps: dict[str, bool] = field(default_factory=dict[str, bool])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list[tuple[str, str, dict[str, str]]])
    old: dict[str, Any] = field(default_factory=dict[str, Any])
    port: int = 0
    _server: ThreadingHTTPServer | None = None

    def __post_init__(self) -> None:
        verbs = ("GET", "PUT", "POST", "DELETE")
        handler = type("Handler", (_Handler,), {"service": self, **{f"do_{verb}": _Handler.answer for verb in verbs}})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Handler(BaseHTTPRequestHandler):
    service: OddService

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self) -> None:
        service, path = self.service, self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        service.asked.append((self.command, self.path, {key.lower(): value for key, value in self.headers.items()}))
        key = self.headers.get("Authorization", "")
        if service.tokens and key.removeprefix("Bearer ") not in service.tokens:
            self._say(401, {"error": "no such token", "echo": key})
        elif service.num_limited > 0 and self.command in service.limits_methods:
            service.num_limited -= 1
            self._say(service.limit_status, {"error": "slow down"}, **{"Retry-After": service.retry_after})
        elif path.startswith("/items/"):
            status, told = self._item(self.command, path.removeprefix("/items/"), body)
            self._say(status, told, Link=key)
        elif path.startswith("/files/"):
            self._file(path.removeprefix("/files/"), body)
        elif path.startswith("/rpc/"):
            self._say(200, self._called(path.removeprefix("/rpc/"), json.loads(body or b"{}")))
        elif path.startswith("/go/"):
            self._go(path.removeprefix("/go/"))
        else:
            self._say(202 if path == "/mails" else 404, {"path": path})

    def _called(self, name: str, given: Any) -> Any:
        service, lamp = self.service, given.get("id", "")
        if name == "show" and service.num_refused_read_backs > 0:
            service.num_refused_read_backs -= 1
            return {"ok": False, "error": "ratelimited"}
        if lamp not in service.lamps:
            return {"ok": False, "error": "no such lamp"}
        if name in ("on", "off"):
            service.lamps[lamp] = name == "on"
        return {"ok": True, "is_on": service.lamps[lamp]}

    def _item(self, verb: str, name: str, body: bytes) -> tuple[int, Any]:
        service = self.service
        if verb == "GET":
            shown = service.items
            if service.num_late > 0:
                service.num_late, shown = service.num_late - 1, service.old
            if name not in shown:
                return 404, {"error": "nothing"}
            return 200, {**shown[name], "at": len(service.asked), "echo": self.headers.get("Authorization", "")}
        service.old = dict(service.items)
        if verb == "DELETE":
            return (200, {}) if service.items.pop(name, None) is not None else (404, {})
        service.items[name] = json.loads(body)
        return 200, service.items[name]

    def _file(self, name: str, body: bytes) -> None:
        files = self.service.files
        if self.command == "PUT":
            files[name] = body
        elif name not in files:
            self._say(404, {})
            return
        content = files[name]
        if self.command == "DELETE":
            del files[name]
        self._begin(200, "application/octet-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.protocol_version = "HTTP/1.1"
        self.end_headers()
        for start in range(0, len(content), 1000):
            piece = content[start : start + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _go(self, where: str) -> None:
        if where in ("here", "elsewhere"):
            host = f"http://127.0.0.1:{self.service.port}" if where == "elsewhere" else ""
            self._say(302, {}, Location=f"{host}/items/x")
            return
        content = b"0" * (1 << 28 if where == "bomb" else 1 << 21 if where == "large" else 100)
        packed = gzip.compress(content) if where in ("bomb", "packed") else content
        self._begin(200, "text/plain")
        if where in ("bomb", "packed", "strange"):
            self.send_header("Content-Encoding", "br" if where == "strange" else "gzip")
        self.send_header("Content-Length", f"{len(packed)}")
        self.end_headers()
        self.wfile.write(packed)

    def _begin(self, status: int, content_type: str) -> None:
        self.protocol_version = "HTTP/1.1"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")

    def _say(self, status: int, told: Any, **headers: str) -> None:
        content = json.dumps(told).encode()
        self._begin(status, "application/json")
        for name, value in {**headers, "Content-Length": f"{len(content)}"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def opened_on(
    service: Any, folder: Path, catalogue: Any = CATALOGUE, key: Secret | None = None, **others: Any
) -> Session:
    """A session on a service of this machine; `others` are settings of the connection, or arguments of the manager."""
    settings = {name: others.pop(name) for name in list(others) if name in ServiceConnection.model_fields}
    given = {"catalogue": written(folder, catalogue), "secret": "odd" if key else "", "queue_s": 0.0, **settings}
    return opened(folder, {"odd": connection(service.port, **given)}, key, **others)
