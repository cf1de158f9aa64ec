"""The process of one test, from the fork to the first line of the runner. The runner is handed a `TestProcess`."""

import gc
import mmap
import os
import resource
import types

from . import linux

LAST_NAME = "__name__"
"""The last key of the module before the program adds its own; see `forget_program`."""
_ACCOUNT_BYTES = 256


class TestProcess:
    """What a runner may use: the compiled program, the module it runs in, and a place for a short account.

    An account says what happened, for messages; it can only explain a failure, never excuse one.
    """

    __test__ = False  # not a test class of pytest

    def __init__(
        self, main: types.ModuleType, program: "types.CodeType | None", source: str, account: mmap.mmap, cpu_s: float
    ) -> None:
        self.main = main
        self.program = program
        self.source = source
        self._account = account
        self._cpu_s = cpu_s

    def enter(self, descriptors: "list[int]", test_id: "int | None") -> None:
        """Become the test: own session, given descriptors and no others, limits on time, no privilege."""
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        os.closerange(len(descriptors), 1 << 20)
        seconds, hard = int(self._cpu_s) + 2, resource.getrlimit(resource.RLIMIT_CPU)[1]
        if hard == resource.RLIM_INFINITY or seconds < hard:  # a backstop; the judge is more precise
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        if test_id is None:
            linux.set_dumpable(True)  # or the judge, an ordinary user, could not read its memory use
        else:
            os.setresgid(test_id, test_id, test_id)
            os.setresuid(test_id, test_id, test_id)
        linux.drop_capabilities()
        os.chdir("/tmp")
        gc.enable()

    def tell(self, text: str) -> None:
        """Leave an account of how the test ended."""
        content = text.encode("ascii", "replace")[:_ACCOUNT_BYTES]
        self._account[: len(content)] = content

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
