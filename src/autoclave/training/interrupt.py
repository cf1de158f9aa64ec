"""Ctrl-C and SIGTERM as a request: the run ends at its next safe point. A second Ctrl-C ends it at once.

Another thread can end it at once too, with an error that the main thread raises out of whatever it waits for.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class StopRequest:
    """While entered, `is_made` turns true at the first signal instead of an exception."""

    def __init__(self) -> None:
        self.is_made = False
        self._before: dict[int, Any] = {}
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._requested)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end_run(self, error: BaseException) -> None:
        """Have the main thread raise `error` now; while entered, from any thread."""
        self._error = error
        if number := threading.main_thread().ident:
            signal.pthread_kill(number, signal.SIGINT)

    def _requested(self, number: int, frame: FrameType | None) -> None:
        if self._error:
            error, self._error = self._error, None
            raise error
        if self.is_made:
            raise KeyboardInterrupt
        self.is_made = True
