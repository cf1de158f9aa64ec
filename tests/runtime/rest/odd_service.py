"""A real HTTP service on this machine that does what Kinto does not: tokens, limits, redirects, late answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import yaml

from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.session import Session
from autoclave.runtime.vault import Secret
from tests.runtime.rest.acting import connection, opened, written
from tests.runtime.rest.scripted_service import Given, Headers, ScriptedService, answer, told

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


class OddService(ScriptedService):
    """Keeps items and lamps. What is set here it does from then on.

    Attributes:
        tokens: those that it accepts; all if there are none.
        num_limited: so many of the next requests with `limits_methods` it refuses with `limit_status`.
        num_late: so many of the next read-backs of items show what there was before.
        num_refused_read_backs: so many of the next read-backs of lamps it refuses with a good status.
    """

    def __init__(self, **settings: Any) -> None:
        self.tokens: set[str] = set()
        self.num_limited, self.limit_status, self.retry_after = 0, 429, "0"
        self.limits_methods = ("PUT", "DELETE")
        self.num_late = self.num_refused_read_backs = 0
        self.items: dict[str, Any] = {}
        self.lamps: dict[str, bool] = {}
        self.requests: list[tuple[str, str, Headers]] = []
        self._old: dict[str, Any] = {}
        for name, value in settings.items():
            setattr(self, name, value)
        super().__init__(lambda *_: b"")

    def respond(self, method: str, path: str, body: bytes, headers: Headers) -> Given:
        self.requests.append((method, path, headers))
        path, key = path.partition("?")[0], headers.get("authorization", "")
        _, kind, name = f"{path}/".split("/", 2)
        name = name.rstrip("/")
        if self.tokens and key.removeprefix("Bearer ") not in self.tokens:
            return told({"error": "no such token", "echo": key}, status=401)
        if self.num_limited > 0 and method in self.limits_methods:
            self.num_limited -= 1
            return told({"error": "slow down"}, f"Retry-After: {self.retry_after}", status=self.limit_status)
        if kind == "items":
            status, shown = self._item(method, name, body, key)
            return told(shown, f"Link: {key}", status=status)
        if kind == "rpc":
            return told(self._called(name, json.loads(body or b"{}")))
        if kind == "go":
            return self._go(name)
        return told({"path": path}, status=202 if kind == "mails" else 404)

    def _called(self, name: str, given: Any) -> Any:
        lamp = given.get("id", "")
        if name == "show" and self.num_refused_read_backs > 0:
            self.num_refused_read_backs -= 1
            return {"ok": False, "error": "ratelimited"}
        if lamp not in self.lamps:
            return {"ok": False, "error": "no such lamp"}
        if name in ("on", "off"):
            self.lamps[lamp] = name == "on"
        return {"ok": True, "is_on": self.lamps[lamp]}

    def _item(self, method: str, name: str, body: bytes, key: str) -> tuple[int, Any]:
        if method == "GET":
            shown = self.items
            if self.num_late > 0:
                self.num_late, shown = self.num_late - 1, self._old
            if name not in shown:
                return 404, {"error": "nothing"}
            return 200, {**shown[name], "at": len(self.requests), "echo": key}
        self._old = dict(self.items)
        if method == "DELETE":
            return (200, {}) if self.items.pop(name, None) is not None else (404, {})
        self.items[name] = json.loads(body)
        return 200, self.items[name]

    def _go(self, where: str) -> bytes:
        if where in ("here", "elsewhere"):
            host = f"http://127.0.0.1:{self.port}" if where == "elsewhere" else ""
            return told({}, f"Location: {host}/items/x", status=302)
        content = b"0" * (1 << 28 if where == "bomb" else 1 << 21 if where == "large" else 100)
        packed = gzip.compress(content) if where == "bomb" else content
        lines = {"bomb": ["Content-Encoding: gzip"], "strange": ["Content-Encoding: br"]}.get(where, [])
        return answer(packed, "text/plain", *lines)


def opened_on(
    service: Any, folder: Path, catalogue: Any = CATALOGUE, key: Secret | None = None, **others: Any
) -> Session:
    """A session on a service of this machine; `others` are settings of the connection, or arguments of the manager."""
    settings = {name: others.pop(name) for name in list(others) if name in ServiceConnection.model_fields}
    given = {
        "catalogue": catalogue and written(folder, catalogue),
        "secret": "odd" if key else "",
        "queue_s": 0.0,
        **settings,
    }
    return opened(folder, {"odd": connection(service.port, **given)}, key, **others)
