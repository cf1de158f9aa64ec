"""A gate that many runs pass side by side, or one alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator


class Gate:
    """Whoever asks to be alone waits for those inside, and later comers wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._num_waiting_alone = 0

    @contextlib.contextmanager
    def shared(self) -> Generator[None, None, None]:
        """Inside together with others."""
        with self._changed:
            while self._num_waiting_alone:
                self._changed.wait()
            self._num_inside += 1
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def alone(self) -> Generator[None, None, None]:
        """Inside with nobody else. Not to be asked for from within `shared`."""
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
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._num_inside -= 1
            self._changed.notify_all()
