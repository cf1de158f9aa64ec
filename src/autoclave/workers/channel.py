"""Frames between the driver and a process on this machine: a small object, and parcels whose memory is not copied."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from autoclave.workers.shared_memory import Descriptor, Parcel
from autoclave.workers.wire import Message, pack

_HEAD = struct.Struct("=QQ")  # bytes of the frame, descriptors that follow it
_PIECE = 1 << 20


class Channel:
    """One end of a Unix socket. Frames arrive whole and in order."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self) -> None:
        """Close this end; whoever reads at the other one is told so."""
        self._end.close()

    def send(self, content: Any, parcels: Sequence[Parcel]) -> None:
        """Send a frame.

        Raises:
            OSError: the other end is closed.
        """
        frame = pack((content, [(parcel.body, parcel.sizes) for parcel in parcels])).body
        descriptors = [parcel.memory.number for parcel in parcels if parcel.memory]
        self._end.sendall(_HEAD.pack(len(frame), len(descriptors)))
        self._end.sendall(frame)
        if descriptors:
            socket.send_fds(self._end, [b"\0"], descriptors)

    def receive(self) -> tuple[Any, list[Parcel]]:
        """The next frame; waits for it.

        Raises:
            EOFError: the other end is closed.
        """
        length, num_descriptors = _HEAD.unpack(self._read(_HEAD.size))
        content, contents = Message(self._read(length), ()).fetch()
        memories = self._read_descriptors(num_descriptors)
        return content, [Parcel(body, sizes, next(memories) if sizes else None) for body, sizes in contents]

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            try:
                parts.append(self._end.recv(min(size, _PIECE)))
            except ConnectionError as error:
                raise EOFError from error
            if not parts[-1]:
                raise EOFError
            size -= len(parts[-1])
        return b"".join(parts)

    def _read_descriptors(self, count: int) -> Iterator[Descriptor]:
        if not count:
            return iter(())
        data, numbers, _, _ = socket.recv_fds(self._end, 1, count, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise EOFError
        return iter([Descriptor(number) for number in numbers])
