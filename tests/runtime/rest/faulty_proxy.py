"""A proxy that does to requests what bad networks and gateways do. One request per connection, as our client has it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Literal, get_args

from autoclave.core.closing import Closing

Fault = Literal[
    "none", "cut_before", "cut_after", "half", "delay", "gateway_before", "gateway_after", "twice", "late", "resent",
    "empty",
]  # fmt: skip
FAULTS: tuple[Fault, ...] = tuple(each for each in get_args(Fault) if each not in ("none", "late"))
_BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FaultyProxy(Closing):
    """Stands before the server at a port of this machine. `choose` says for each request what happens to it.

    cut_before: it does not reach the server. cut_after: its answer does not come back. half: half of the answer does.
    delay: it comes late. gateway_*: the answer is 502, before or after it was done. twice: it reaches the server twice.
    resent: it reaches the server twice, and the second answer comes back. empty: the answer is 200 without a body.
    late: the client is cut off at once, and it reaches the server only then.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self.choose: Callable[[str, str], Fault] = lambda method, path: "none"
        self.seen: list[tuple[str, str, Fault]] = []
        self.before_forwarding: Callable[[str], None] = lambda method: None
        self.delay_s = 0.05
        self._door = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._door.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def faults(self, *faults: Fault, methods: str = "POST PUT PATCH DELETE") -> None:
        """Do these to the next requests with one of these methods, one each."""
        left = list(faults)
        self.choose = lambda method, path: left.pop(0) if left and method in methods.split() else "none"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._accepting.join(5)
        self._door.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(10)
            request = _message(client)
            if not request:
                return
            method, path = request.split(b" ", 2)[:2]
            fault = self.choose(method.decode(), path.decode())
            self.seen.append((method.decode(), path.decode(), fault))
            self._pass_on(client, request, method.decode(), fault)

    def _pass_on(self, client: socket.socket, request: bytes, method: str, fault: Fault) -> None:
        if fault == "cut_before":
            return
        if fault == "gateway_before":
            client.sendall(_BAD_GATEWAY)
            return
        if fault == "late":
            client.shutdown(socket.SHUT_RDWR)
        if fault in ("late", "delay"):
            time.sleep(self.delay_s)  # what these faults are
        self.before_forwarding(method)
        answer = self._asked(request)
        if fault in ("twice", "resent"):
            second = self._asked(request)
            answer = second if fault == "resent" else answer
        match fault:
            case "cut_after" | "late":
                return
            case "half":
                client.sendall(answer[: len(answer) // 2])
            case "gateway_after":
                client.sendall(_BAD_GATEWAY)
            case "empty":
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            case _:
                client.sendall(answer)

    def _asked(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        with socket.create_connection(("127.0.0.1", self._to), timeout=10) as server:
            server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            answer = b""
            while piece := server.recv(1 << 16):
                answer += piece
            return answer


def _message(link: socket.socket) -> bytes:
    """A request, whole."""
    content = b""
    while b"\r\n\r\n" not in content:
        if not (piece := link.recv(1 << 16)):
            return b""
        content += piece
    head, _, body = content.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    missing = int(lines.get(b"content-length", b"0")) - len(body)
    while missing > 0:
        if not (piece := link.recv(1 << 16)):
            return b""
        content, missing = content + piece, missing - len(piece)
    head, _, body = content.partition(b"\r\n\r\n")
    kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join(kept) + b"\r\n\r\n" + body
