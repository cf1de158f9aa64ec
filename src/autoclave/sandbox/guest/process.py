"""The process of a test after its confinement, and the interface of its runner."""

import gc
import types
from collections.abc import Callable
from typing import Any

LAST_NAME = "__name__"
"""The last key of the module before the program adds its own; see `forget_program`."""


class TestProcess:
    """Interface for a runner: the prepared program, the module it runs in, and a place for a short account.

    An account explains a failure, for messages; it cannot turn a failure into a success.
    """

    __test__ = False  # not a test class of pytest

    def __init__(self, main: types.ModuleType, program: Any, report: Callable[[bytes], None]) -> None:
        self.main = main
        self.program = program
        self._report = report

    def report(self, text: str) -> None:
        """Leave an account of how the test ended."""
        self._report(text.encode("ascii", "replace"))

    def forget_program(self) -> None:
        """Drop the definitions of the program, so that their finalizers run.

        Keeps the preamble's names: touching a thousand objects would copy their pages.
        """
        namespace = self.main.__dict__
        own: list[str] = []
        for name in reversed(namespace):
            if name == LAST_NAME:
                break
            own.append(name)
        while own:
            namespace.pop(own.pop(), None)


def be_test(runner: Any, main: types.ModuleType, program: Any, report: Callable[[bytes], None]) -> None:
    """Run the runner, which ends the process."""
    gc.enable()
    runner.run(TestProcess(main, program, report))
