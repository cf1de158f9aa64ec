"""The standard streams of a command, read and written without blocking."""

import os
import selectors
import socket
import subprocess
from collections.abc import Callable
from typing import Any

_PIECE_BYTES = 1 << 16


class CommandStreams:
    """The three streams of a command. Keeps `output_bytes` of each output and counts the rest.

    `on_output` gets the name of an output, and each piece that is kept of it.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: bytes,
        output_bytes: int,
        on_output: Callable[[str, bytes], object] | None = None,
    ) -> None:
        self._on_output = on_output
        self.printed = {"stdout": bytearray(), "stderr": bytearray()}
        self.cut = {"stdout": 0, "stderr": 0}
        self.is_reported = False
        self._output_bytes, self._unsent = output_bytes, memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        for name in ("stdout", "stderr", "stdin"):
            stream = getattr(process, name)
            os.set_blocking(stream.fileno(), False)
            event = selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ
            self._selector.register(stream, event, name)
        self._stdin = process.stdin
        if not stdin:
            self._end_stdin()

    @property
    def is_over_limit(self) -> bool:
        """True if an output exceeds the limit."""
        return any(self.cut.values())

    def watch(self, link: socket.socket) -> None:
        """Set `is_reported` when `link` is readable."""
        self._selector.register(link, selectors.EVENT_READ, "link")

    def transfer(self, timeout_s: float) -> None:
        """Wait at most `timeout_s`, then read and write what does not block."""
        for key, _ in self._selector.select(timeout_s):
            if key.data == "link":
                self._selector.unregister(key.fileobj)
                self.is_reported = True
            elif key.data == "stdin":
                self._write()
            else:
                self._read(key.fileobj, key.data)

    def drain(self) -> None:
        """Read the rest of the pipes, after the last writer has ended."""
        while any(key.data in self.printed for key in list(self._selector.get_map().values())):
            before = len(self._selector.get_map())
            self.transfer(0.0)
            if not self._selector.select(0.0) and len(self._selector.get_map()) == before:
                break
        self._selector.close()

    def _read(self, stream: Any, name: str) -> None:
        try:
            piece = os.read(stream.fileno(), _PIECE_BYTES)
        except BlockingIOError:
            return
        if not piece:
            self._selector.unregister(stream)
            return
        room = self._output_bytes - len(self.printed[name])
        self.printed[name] += piece[:room]
        if self._on_output and room > 0:
            self._on_output(name, piece[:room])
        self.cut[name] += max(0, len(piece) - room)

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent[:_PIECE_BYTES]) :]  # pyright: ignore
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._end_stdin()

    def _end_stdin(self) -> None:
        assert self._stdin is not None
        self._selector.unregister(self._stdin)
        self._stdin.close()
