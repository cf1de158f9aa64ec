"""The process of a test from the moment it is confined, and what its runner is handed."""

import gc
import types
from collections.abc import Callable
from typing import Any

LAST_NAME = "__name__"
"""The last key of the module before the program adds its own; see `forget_program`."""


class TestProcess:
    """Interface for a runner: the prepared program, the module it runs in, and a place for a short account.

    An account says what happened, for messages; it can only explain a failure, never excuse one.
    """

    __test__ = False  # not a test class of pytest

    def __init__(self, main: types.ModuleType, program: Any, tell: Callable[[bytes], None]) -> None:
        self.main = main
        self.program = program
        self._tell = tell

    def tell(self, text: str) -> None:
        """Leave an account of how the test ended."""
        self._tell(text.encode("ascii", "replace"))

    def forget_program(self) -> None:
        """Drop what the program defined, so that its finalizers run.

        Not the preamble's names: touching a thousand objects would copy their pages, for nothing.
        """
        namespace = self.main.__dict__
        own: list[str] = []
        for name in reversed(namespace):
            if name == LAST_NAME:
                break
            own.append(name)
        while own:
            namespace.pop(own.pop(), None)


def be_test(runner: Any, main: types.ModuleType, program: Any, tell: Callable[[bytes], None]) -> None:
    """Hand the process to the runner, which does not come back."""
    gc.enable()
    runner.run(TestProcess(main, program, tell))
