"""A clock that jumps from event to event, and processes that wait for signals.

A process is a generator that yields the signals it waits for, so that it reads like the code that it stands for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator

Process = Generator["Signal", None, None]


class Signal:
    """Something that happens once."""

    __slots__ = ("_waiting", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: list[Callable[[], None]] = []

    def set(self) -> None:
        """It has happened; who waits goes on now, in order."""
        self.is_set = True
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def then(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when it happens, or now if it has."""
        if self.is_set:
            go_on()
        else:
            self._waiting.append(go_on)


class Clock:
    """Simulated seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Let `event` happen at `time`; those of one moment happen in the order in which they were asked for."""
        heapq.heappush(self._events, (max(time, self.now), self._number, event))
        self._number += 1

    def after(self, seconds: float) -> Signal:
        """A signal that is set when so much time has passed."""
        signal = Signal()
        self.at(self.now + seconds, signal.set)
        return signal

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()


def start(process: Process) -> Signal:
    """Run `process` up to the first signal that it has to wait for; the signal given back is set when it ends."""
    ended = Signal()

    def go_on() -> None:
        for signal in process:
            if not signal.is_set:
                signal.then(go_on)
                return
        ended.set()

    go_on()
    return ended
