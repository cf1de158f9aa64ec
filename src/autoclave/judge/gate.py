"""A lock that many runs share, or one run holds alone."""

import contextlib
import threading
from collections.abc import Generator
from typing import Self


class Gate:
    """A run that requests to be alone waits for those inside; later runs wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._num_waiting_alone = 0

    def shared(self) -> Self:
        """Hold the gate together with other runs: for every test, so no generator, which costs three times as much."""
        return self

    @contextlib.contextmanager
    def alone(self) -> Generator[None, None, None]:
        """Hold the gate alone. Must not be entered from within `shared`."""
        with self._changed:
            self._num_waiting_alone += 1
            while self._num_inside:
                self._changed.wait()
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_waiting_alone -= 1
                self._num_inside -= 1
                self._changed.notify_all()

    def __enter__(self) -> None:
        """Wait while a run is alone or waits to be, and count as inside."""
        with self._changed:
            while self._num_waiting_alone:
                self._changed.wait()
            self._num_inside += 1

    def __exit__(self, *error: object) -> None:
        """Stop counting as inside."""
        with self._changed:
            self._num_inside -= 1
            self._changed.notify_all()
