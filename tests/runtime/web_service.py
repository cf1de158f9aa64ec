"""A real HTTPS service on this machine, which keeps what it was asked and echoes it in every form it can."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import ssl
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from autoclave.runtime.vault.authority import Authority


def _zipped(content: bytes) -> bytes:
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first.txt", "nothing")
        archive.writestr("notes.txt", content)
    return packed.getvalue()


def _raw_deflated(content: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(content) + packing.flush()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip-twice": lambda content: gzip.compress(content[:15]) + gzip.compress(content[15:]),
    "zlib": zlib.compress,
    "zlib-fast": lambda content: zlib.compress(content, 1),
    "deflate": _raw_deflated,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE),
    "zip": _zipped,
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")


@dataclass(slots=True)
class Asked:
    """A request; names of headers in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class WebService:
    """Answers `/echo` with what it was asked, `/away` with a redirect, `/huge` without an end, others with 404.

    `/packed` answers with the bytes that it was sent, in which `KEY` becomes the key, compressed in the ways of
    `?ways=`, and labelled as the header X-Coding says.
    """

    asked: list[Asked] = field(default_factory=list[Asked])
    place: str = ""
    certificate: bytes = b""
    verify: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    _server: ThreadingHTTPServer | None = None

    def __post_init__(self) -> None:
        authority = Authority()
        handler = type(
            "Handler", (_Handler,), {"service": self, **{f"do_{method}": _Handler.answer for method in _METHODS}}
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.socket = authority.context_for("localhost").wrap_socket(self._server.socket, server_side=True)
        self.place = f"localhost:{self._server.server_address[1]}"
        self.certificate = authority.certificate
        self.verify = ssl.create_default_context(cadata=authority.certificate.decode())
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        assert self._server
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    service: WebService
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.service.asked.append(
            Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        )
        key = self.headers.get("Authorization", "").removeprefix("Bearer ") or self.headers.get("X-Key", "")
        if self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", f"https://elsewhere.example/?key={key}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/huge"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            piece = b"x" * (1 << 20)
            for _ in range(80):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        elif self.path.startswith("/packed?ways="):
            content = body.replace(b"KEY", key.encode())
            for way in self.path.partition("=")[2].split(","):
                content = PACKED[way](content)
            self.send_response(200)
            if coding := self.headers.get("X-Coding"):
                self.send_header("Content-Encoding", coding)
            self.send_header("Content-Length", f"{len(content)}")
            self.end_headers()
            self.wfile.write(content)
        elif self.path.startswith("/echo"):
            spelled = [key, json.dumps({"key": key}), base64.b64encode(f"user:{key}".encode()).decode(), self.path]
            content = "\n".join(spelled).encode() + b"\n" + body
            self.send_response(200)
            self.send_header("X-Echo", key)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(content), 7):  # no value comes in one piece
                piece = content[start : start + 7]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_error(404)


@contextmanager
def watched() -> Iterator[list[bytes]]:
    """What all processes of this machine show of themselves meanwhile."""
    seen: list[bytes] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        seen.append((process / name).read_bytes())
                    except OSError:
                        continue

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        is_over.set()
        watcher.join()
