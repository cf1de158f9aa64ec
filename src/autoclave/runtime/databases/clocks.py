"""What is done when the time of an open transaction is over, unless its engine was closed before."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Clocks:
    """Calls after a time, each on a thread of its own. None keeps the process from ending."""

    def __init__(self) -> None:
        self._timers: list[threading.Timer] = []
        self._are_stopped = False

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Have something called by and by; not any more once they are stopped."""
        if self._are_stopped:
            return
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def stop(self) -> None:
        """Call nothing any more."""
        self._are_stopped = True
        for timer in self._timers:
            timer.cancel()
