"""A lock that many runs share, or one run holds alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager
from types import TracebackType


class Gate:
    """A run that requests to be alone waits for those inside; later runs wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._num_waiting_alone = 0
        self._shared = _Shared(self)

    def shared(self) -> AbstractContextManager[None]:
        """Hold the gate together with other runs."""
        return self._shared

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
            self.leave()

    def enter(self) -> None:
        """Wait while a run is alone or waits to be, and count as inside."""
        with self._changed:
            while self._num_waiting_alone:
                self._changed.wait()
            self._num_inside += 1

    def leave(self) -> None:
        """Stop counting as inside."""
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
