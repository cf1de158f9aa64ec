"""Ends a run in which nothing moves, and says what everybody was doing.

A thread asks each role for its state in words, every few seconds. When no word of it has changed for `patience_s`, it
writes all of it and the stacks of all threads to `stalled-<time>.txt` in the run's folder, and has the main thread
raise `StalledFault`, whatever that waits for. A main thread that does not leave the block within `grace_s` after that,
as one in a library that never returns, cannot be helped: the process is ended with exit code 3.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Self

from autoclave.core import StalledFault
from autoclave.core.files import write_atomically

GRACE_S = 300.0
LOOKS = 20
"""Checks within the time of its patience, at most every `LOOK_S`."""
LOOK_S = 10.0
EXIT_CODE = 3


class Watchdog:
    """To be entered while a run lasts."""

    def __init__(
        self,
        folder: Path,
        roles: Mapping[str, Callable[[], str]],
        end_run: Callable[[BaseException], None],
        *,
        patience_s: float,
        say: Callable[[str], None],
        grace_s: float = GRACE_S,
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        """Watch over `roles`; called from the watchdog's thread, they must not wait.

        Args:
            folder: of the run.
            roles: by name, what each does and has done; as long as nothing moves, the same words.
            end_run: has the main thread raise an error.
            patience_s: seconds without any change; 0 watches over nothing.
            say: hears of it.
            grace_s: seconds for the main thread to leave the block.
            end_process: ends the process with an exit code.
        """
        self._folder, self._roles, self._end_run, self._say = folder, roles, end_run, say
        self._patience_s, self._grace_s, self._end_process = patience_s, grace_s, end_process
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        if self._patience_s:
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        seen, since = self._states(), time.monotonic()
        while not self._is_over.wait(min(LOOK_S, self._patience_s / LOOKS)):
            states = self._states()
            if states != seen:
                seen, since = states, time.monotonic()
            elif time.monotonic() - since >= self._patience_s:
                self._bark(states)
                return

    def _states(self) -> dict[str, str]:
        return {name: _said_by(role) for name, role in self._roles.items()}

    def _bark(self, states: Mapping[str, str]) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        path = self._folder / f"stalled-{stamp}.txt"
        first = f"nothing moved for {self._patience_s:.0f} s (watchdog_s)"
        try:
            write_atomically(path, describe(first, states))
            where = f"what everybody was doing stands in {path}"
        except OSError as error:
            where = f"{path} cannot be written ({error.strerror})"
        waiting = " ".join(states.get("driver", "").split())
        message = f"{first}; the driver: {waiting}; {where}"
        self._say(message)
        self._end_run(StalledFault(message))
        if not self._is_over.wait(self._grace_s):
            print(f"Error: {message}; the process cannot end by itself", file=sys.stderr, flush=True)  # noqa: T201
            self._end_process(EXIT_CODE)


def describe(first: str, states: Mapping[str, str]) -> str:
    """A page about a run that stands still: what each role says, and where each thread is."""
    parts = [first, *(f"{name}\n{_indented(text)}" for name, text in states.items())]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(number, number)}\n{_indented(stack.rstrip())}")
    return "\n\n".join(parts) + "\n"


def _said_by(role: Callable[[], str]) -> str:
    try:
        return role()
    except Exception as error:  # noqa: BLE001  a role that cannot say what it does must not blind the watchdog
        return f"cannot say what it does: {error!r}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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
        os.write(2, b"\nStopping after this step; a second signal stops at once\n")
