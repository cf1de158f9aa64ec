"""A gate that many runs pass side by side, or one alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager
from types import TracebackType


class Gate:
    """Whoever asks to be alone waits for those inside, and later comers wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._num_waiting_alone = 0
        self._shared = _Shared(self)

    def shared(self) -> AbstractContextManager[None]:
        """Inside together with others."""
        return self._shared

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
            self.leave()

    def enter(self) -> None:
        """Wait until nobody is or wants to be alone, and count as inside."""
        with self._changed:
            while self._num_waiting_alone:
                self._changed.wait()
            self._num_inside += 1

    def leave(self) -> None:
        """Count as inside no longer."""
        with self._changed:
            self._num_inside -= 1
            self._changed.notify_all()


class _Shared:
    """`Gate.shared`, entered for every test: a class, which costs a third of a generator."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.leave()
