"""Ctrl-C and SIGTERM as a request: the run ends at its next safe point. A second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self


class StopRequest:
    """While entered, `is_made` turns true at the first signal instead of an exception."""

    def __init__(self) -> None:
        self.is_made = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._requested)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _requested(self, number: int, frame: FrameType | None) -> None:
        if self.is_made:
            raise KeyboardInterrupt
        self.is_made = True
