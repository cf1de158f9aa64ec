"""Cells for the conformance suite: settings, limits, runners and fixtures."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from autoclave.config.levels import Level
from autoclave.core import Outcome, SandboxFault
from autoclave.core.outcome import LIMIT_OF_ERRNO
from autoclave.sandbox.interface import Cell, Limits, Profile, Runner, Sandbox

SETTINGS: dict[str, Any] = {"memory_limit_mb": 256, "disk_limit_mb": 8, "process_limit": 16, "open_files_limit": 64}
"""Settings of `SandboxConfig` that a sandbox under test has."""
LIMITS = Limits(cpu_s=2, wall_s=7, memory_mb=256, output_bytes=1 << 20, processes=16, disk_mb=8, open_files=64)
PLAIN = Profile("plain")
MINIMAL = Runner(
    "minimal",
    f"import os, sys\n{LIMIT_OF_ERRNO = }\n"
    "def prepare(content, place):\n"
    "    return compile(content.decode('utf-8', 'surrogatepass'), 'program.py', 'exec', dont_inherit=True)\n"
    "def run(test):\n"
    "    try: exec(test.program, test.main.__dict__)\n"
    "    except OSError as error: test.report(LIMIT_OF_ERRNO.get(error.errno, '-')); raise\n"
    "    sys.stdout.flush(); sys.stderr.flush()\n"
    "    os._exit(0)\n",
)
"""Runs the content as Python, and reports of an exception the limit behind it."""
ECHO = Runner(
    "echo",
    "import os\n"
    "def prepare(content, place):\n"
    "    return compile(content, 'program.py', 'exec')\n"
    "def read(size):\n"
    "    data = b''\n"
    "    while len(data) < size:\n"
    "        part = os.read(3, size - len(data))\n"
    "        if not part: os._exit(0)\n"
    "        data += part\n"
    "    return data\n"
    "def run(test):\n"
    "    exec(test.program, test.main.__dict__)\n"
    "    for _ in range(test.main.frames):\n"
    "        frame = read(int.from_bytes(read(4), 'big'))\n"
    "        answer = memoryview(len(frame).to_bytes(4, 'big') + frame)\n"
    "        while answer: answer = answer[os.write(3, answer):]\n"
    "    os._exit(0)\n",
)
"""Runs the content, which sets `frames`, then echoes that many frames."""
EXECUTE = Runner(
    "execute",
    "import os\n"
    "def prepare(content, place):\n"
    "    return place('program', content)\n"
    "def run(test):\n"
    "    try: os.execv(test.program, ['program', test.program])\n"
    "    except OSError as error: print(error.errno, flush=True)\n"
    "    os._exit(1)\n",
)
"""Places the content as an executable file and executes it."""
Run = Callable[..., Outcome]
OpenCell = Callable[..., Cell]


class CellFixtures:
    """Fixtures of all levels."""

    level: Level = "open"

    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls) -> Iterator[Sandbox]:
        raise NotImplementedError("override the fixture `sandbox`")

    @pytest.fixture
    def open_cell(self, sandbox: Sandbox) -> OpenCell:
        """Function of a source, optionally runner, profile and limits; returns a fresh cell for a `with` statement."""
        return _opener(sandbox)

    @pytest.fixture
    def run(self, open_cell: OpenCell) -> Run:
        """Function of a source, optionally standard input and limits; returns the outcome of a test in a fresh cell."""
        return _running(open_cell)


def check_closing(sandbox: Sandbox) -> None:
    """Close `sandbox` while a test runs: the test is a fault, and there are no cells afterwards. Asserts."""
    cell = _opener(sandbox)("import time; time.sleep(60)", wall_s=60)
    faults: list[SandboxFault] = []

    def judge() -> None:
        try:
            cell.run(b"")
        except SandboxFault as error:
            faults.append(error)

    thread = threading.Thread(target=judge)
    thread.start()
    sandbox.close()
    thread.join(60)
    assert len(faults) == 1
    cell.close()
    with pytest.raises(SandboxFault):
        _opener(sandbox)("pass")


def _opener(sandbox: Sandbox) -> OpenCell:
    def opened(source: str, runner: Runner = MINIMAL, profile: Profile = PLAIN, **limits: float) -> Cell:
        content = source.encode("utf-8", "surrogatepass")
        return sandbox.open(content, profile, replace(LIMITS, **limits), runner)

    return opened


def _running(open_cell: OpenCell) -> Run:
    def run_once(source: str, stdin: bytes = b"", **limits: float) -> Outcome:
        with open_cell(source, **limits) as cell:
            assert cell.compile_error is None
            return cell.run(stdin)

    return run_once
