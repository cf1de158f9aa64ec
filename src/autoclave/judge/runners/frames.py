"""Frames over the cell's channel: four bytes of length, big-endian, and content.

The supervisor's half is in `judge/special.py` and `judge/plain_run.py`.
"""

import os

_CHANNEL = 3


def receive_frame() -> bytes:
    """Return the content of the next frame. Leaves the process if the channel is closed."""
    return _receive_exactly(int.from_bytes(_receive_exactly(4), "big"))


def _receive_exactly(size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(_CHANNEL, min(size, 1 << 20))
        if not part:
            os._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send_frame(content: bytes) -> None:
    """Raises OSError if the channel is closed."""
    frame = len(content).to_bytes(4, "big") + content
    num_sent = os.write(_CHANNEL, frame)
    while num_sent < len(frame):
        num_sent += os.write(_CHANNEL, memoryview(frame)[num_sent:])
