"""`ZygotePool`: the sandbox of every backend. A cell for each program, from a small stock of warm zygotes."""

import contextlib
import json
import os
import signal
import socket
import struct
import threading
import time
from functools import lru_cache
from typing import Self

from autoclave.config.levels import Level
from autoclave.core import Outcome, SandboxFault
from autoclave.core.outcome import LIMITS
from autoclave.sandbox.exhaustion import named_faults
from autoclave.sandbox.interface import Limits, Profile, Runner
from autoclave.sandbox.launch import Launcher
from autoclave.sandbox.report import REPORT_BYTES, Observed, outcome_of, printable
from autoclave.sandbox.running_test import MAX_FILES, SHORT_TEST_MS, CellSession, RunningTest
from autoclave.sandbox.streams import Printed, run_tests, start_test
from autoclave.sandbox.zygote import Zygote

_MAX_IDLE = 4


class ZygotePool:
    """A `Sandbox`. Each open cell has a zygote to itself; idle ones are kept warm."""

    def __init__(self, launcher: Launcher) -> None:
        self.level: Level = launcher.level
        self._launcher = launcher
        self._lock = threading.Lock()
        self._idle: list[Zygote] = []
        self._busy: set[Zygote] = set()
        self._is_closed = False

    def open(self, content: bytes, profile: Profile, limits: Limits, runner: Runner) -> "ZygoteCell":
        return ZygoteCell(self, profile, content, limits, runner)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            zygotes = [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
        for zygote in zygotes:
            zygote.kill()

    def take(self, profile: Profile) -> Zygote:
        """Return a zygote for the time of one cell.

        Raises HostError: a package or path of the profile is missing on the host. SandboxFault: none can be started.
        """
        while idle := self._take_idle(profile):
            try:
                idle.settle()
            except SandboxFault:  # e.g. the last cell's memory was its end: another one serves as well
                self._discard(idle)
            else:
                return idle
        zygote = Zygote(self._launcher.launch(profile), profile)
        with self._lock:
            if not self._is_closed:
                self._busy.add(zygote)
                return zygote
        zygote.kill()
        raise SandboxFault("the sandbox is closed")

    def _take_idle(self, profile: Profile) -> Zygote | None:
        with self._lock:
            if self._is_closed:
                raise SandboxFault("the sandbox is closed")
            for zygote in self._idle:
                if zygote.profile == profile:
                    self._idle.remove(zygote)
                    self._busy.add(zygote)
                    return zygote
        return None

    def end(self, zygote: Zygote) -> None:
        """Kill the cell of a zygote, which is kept for another one."""
        try:
            zygote.close_cell()
        except SandboxFault:
            self._discard(zygote)
            return
        with self._lock:
            self._busy.discard(zygote)
            self._idle.append(zygote)
            surplus = self._idle.pop(0) if len(self._idle) > _MAX_IDLE or self._is_closed else None
        if surplus:
            surplus.kill()

    def abandon(self, zygote: Zygote) -> int | None:
        """End a zygote and its cell. Return the wait status of the cell's first process, if known."""
        status = None
        with contextlib.suppress(SandboxFault):
            zygote.close_cell()
            status = zygote.wait_status()
        self._discard(zygote)
        return status

    def _discard(self, zygote: Zygote) -> None:
        """End a zygote that is not to be trusted any more."""
        with self._lock:
            self._busy.discard(zygote)
        zygote.kill()


_SCRATCH, _KERNEL_LIMIT = struct.Struct("<3Q"), struct.Struct("<2Q")
"""See `SCRATCH` and `KERNEL_LIMIT` in `guest/loops.py`."""
_MAX_ERROR_BYTES = 1 << 16


class ZygoteCell:
    """One program, held by a first process that starts a process for each test.

    If the memory use of a test kills the first process, the test has its outcome, and the next gets a new cell.
    """

    def __init__(self, pool: ZygotePool, profile: Profile, content: bytes, limits: Limits, runner: Runner) -> None:
        """Have it made by a zygote of `pool`.

        Raises SandboxFault: the cell fails before it has prepared its program.
        """
        self.limits = limits
        self.compile_error: str | None = None
        self._pool = pool
        self._profile = profile
        self._message = _settings_of(limits) + _block(content)
        self._runner = runner
        self._fault: SandboxFault | None = None  # of a test that followed others, whose outcomes came first
        self._begin()

    def _begin(self) -> None:
        self._zygote = self._pool.take(self._profile)
        self._is_open = True
        self._is_sound = True
        self.is_dead = False  # its first process has ended; the next test needs a new cell
        try:
            self.meter = self._zygote.meter()
            self.meter.begin_cell(self.limits)
            self.connection, num_sent = self._zygote.open(self._runner, self._message)
        except BaseException:
            self._pool.abandon(self._zygote)
            raise
        try:
            self._prepare(memoryview(self._message)[num_sent:])
        except BaseException:
            self._is_sound = False
            self.close()
            raise

    def _revive(self) -> None:
        if self._fault:
            raise self._fault
        if self.is_dead:
            self.close()
            self._begin()

    def run(self, stdin: bytes) -> Outcome:
        return self.run_ahead([(stdin, b"")])[0]

    def run_ahead(self, tests: list[tuple[bytes, ...]]) -> list[Outcome]:
        self._revive()
        self.meter.begin_test()
        limits, meter, started = self.limits, self.meter, time.monotonic()
        runs = run_tests(self.connection, tests, REPORT_BYTES, limits.output_bytes, SHORT_TEST_MS, meter.kills)
        *earlier, (report, out, err) = runs
        started = time.monotonic() - SHORT_TEST_MS / 1000 if earlier else started
        outcomes: list[Outcome] = []
        with contextlib.ExitStack() as stack:
            running = None  # closed whatever becomes of the tests before it
            if len(report) < REPORT_BYTES:
                running = RunningTest(self, (out, err), started=started, report=report)
                stack.callback(running.close)
            try:
                for run in earlier:
                    outcomes.append(outcome_of(run[0], Observed(), limits, None, Printed(*run[1]), Printed(*run[2])))
                if running:
                    outcomes.append(running.finish())
                else:
                    outcomes.append(outcome_of(report, Observed(), limits, meter, Printed(*out), Printed(*err)))
            except SandboxFault as fault:
                if not outcomes:
                    raise
                self._fault, self._is_sound = fault, False
        return outcomes

    def exchange(self, frame: bytes | None, stdin: bytes = b"") -> tuple[Outcome, bytes | None]:
        started, streams, channel, unsent = self._start(stdin, b"" if frame is None else _block(frame))
        test = RunningTest(self, streams, started=started, channel=channel, reads_late=not unsent)
        session = CellSession(test)
        try:
            if unsent:
                test.send(unsent)
        finally:
            outcome = session.close()
        return outcome, session.receive()

    def session(self, stdin: bytes = b"") -> CellSession:
        started, streams, channel, _ = self._start(stdin)
        return CellSession(RunningTest(self, streams, started=started, channel=channel))

    def _start(self, stdin: bytes, frames: bytes = b"") -> tuple[float, tuple[int, int], socket.socket, bytes]:
        """Start a test. Return the time, its streams, its channel, and the rest of `frames`, which did not fit."""
        self._revive()
        self.meter.begin_test()
        with named_faults("the cell does not take a test"):
            ours, theirs = socket.socketpair()
            with theirs:
                started = time.monotonic()
                try:
                    ours.setblocking(False)
                    unsent = frames[ours.send(frames) :] if frames else b""
                    return started, start_test(self.connection, stdin, theirs.fileno()), ours, unsent
                except BaseException:
                    ours.close()
                    raise

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.connection.close()
            if self._is_sound:
                self._pool.end(self._zygote)
            else:
                self._pool.abandon(self._zygote)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._is_sound = False
        self.close()

    def _prepare(self, unsent: memoryview) -> None:
        self.connection.settimeout(self.limits.wall_s)
        try:
            self.connection.sendall(unsent)
            message = _receive_block(self.connection, _MAX_ERROR_BYTES)
            if message:
                self.compile_error = _error_in(message)
        except TimeoutError:
            self._blame_preparation()
        except OSError as error:
            self._blame_crash(error)
        self.connection.setblocking(False)

    def _blame_preparation(self) -> None:
        """Attribute a timeout to the source if compiling used its CPU limit, else raise a fault."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            if self.meter.preparing_cpu_s() >= self.limits.cpu_s:
                self._is_sound = False
                self.compile_error = "compilation takes longer than the time limit"
                return
        raise SandboxFault("the cell did not answer in time")

    def _blame_crash(self, error: OSError) -> None:
        """Attribute the death of the first process to the source if the compiler crashed, else raise a fault."""
        if self.meter.is_memory_exceeded():
            self.compile_error = "compilation takes more memory than the limit"
            return
        self._zygote.first_process()  # raises when there never was one
        self._is_open = False
        self.connection.close()
        status = self._pool.abandon(self._zygote)
        crashes = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
        if status is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in crashes:
            raise SandboxFault(f"the cell died while starting ({error}, status {status})")
        self.compile_error = "the compiler crashed"


@lru_cache
def _settings_of(limits: Limits) -> bytes:
    kernel = [(limit.kernel, getattr(limits, limit.setting)) for limit in LIMITS.values()]
    bounds = [_KERNEL_LIMIT.pack(known[0], int(known[1] * value) + known[2]) for known, value in kernel if known]
    return _SCRATCH.pack(limits.disk_mb << 20, MAX_FILES, len(bounds)) + b"".join(bounds)


def _error_in(message: bytes) -> str:
    """Return the compile error in the answer of a first process."""
    try:
        answer = json.loads(message)
        line = answer["line"]
        where = f" (line {line})" if isinstance(line, int) else ""
        return printable(str(answer["compile_error"]))[:200] + where
    except (ValueError, KeyError, TypeError):
        raise SandboxFault("the cell answered nonsense") from None


def _block(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def _receive_block(connection: socket.socket, limit: int) -> bytes:
    size = int.from_bytes(_receive_exactly(connection, 4), "big")
    if size > limit:
        raise SandboxFault("the cell answered too much")
    return _receive_exactly(connection, size)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionError("end of stream")
        content += part
    return content
