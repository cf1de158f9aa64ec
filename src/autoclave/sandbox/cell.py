"""The judge's end of a cell: hand over the program, start tests, enforce every limit while they run.

The judge holds the far ends of the three standard streams and reads them while the program runs, so a flood costs the
program its life and the judge at most the cap. CPU time and memory are what the cell's meter reads outside of it; wall
time is this process's clock. The first process of the cell is asked to end a test; if it does not, the whole cell is
killed.

The wall limit is meant for a machine that is not busy: what a test had to wait for a core is added to it, and so is
what this process came too late. Else neighbours would decide whether a program that sleeps is in time.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from autoclave.core import Ended, ExhaustedFault, Outcome, SandboxFault
from autoclave.sandbox.exhaustion import fault_of
from autoclave.sandbox.interface import Limits, Runner
from autoclave.sandbox.zygote import Zygote

_SETTINGS = struct.Struct("<7Q")
_REPORT = struct.Struct("<idddq")
_ACCOUNT_BYTES = 256
_REPORT_BYTES = _REPORT.size + _ACCOUNT_BYTES
_SETTING_UP = "setting up"

_ADDRESS_SPACE_MARGIN_MB = 640
"""Above the memory limit: the interpreter's own maps, and large thread stacks that are reserved but not used."""
_MAX_FILES = 4096
_MAX_COMPLAINT_BYTES = 1 << 16
_CPU_MARGIN_S = 2
"""The kernel's own limit is so much above ours, which is more precise."""
_STOP_TIMEOUT_S = 20.0
_SAMPLE_INTERVAL_S = 0.05
_PUNCTUAL_S = 0.02
"""A sample that comes so much later than planned is on time."""
_PIPE_BYTES = 1 << 16
_SHORT_TEST_MS = 10
"""Until then what a program prints waits in the pipe."""


class Lease(Protocol):
    """The right to have one cell made by a zygote."""

    zygote: Zygote

    def end(self) -> None:
        """Have the cell killed; the zygote may make others."""
        ...

    def abandon(self) -> int | None:
        """End cell and zygote. The wait status of the cell's first process, if it can be had."""
        ...


class ZygoteCell:
    """One program, held by a first process that starts a process for each test.

    A test whose memory costs that process its life has its verdict; the next one finds a cell made anew.
    """

    def __init__(self, take: Callable[[], Lease], content: bytes, limits: Limits, runner: Runner) -> None:
        """Have it made by a zygote that `take` gives.

        Raises:
            SandboxFault: the cell does not get as far as preparing its program.
        """
        self.limits = limits
        self.compile_error: str | None = None
        self._take = take
        self._message = self._settings() + _block(content)
        self._runner = runner
        self._begin()

    def _begin(self) -> None:
        self._lease = self._take()
        self._is_open = True
        self._is_sound = True
        self.is_dead = False
        zygote = self._lease.zygote
        try:
            self.meter = zygote.meter()
            self.meter.begin_cell(self.limits)
            self.connection, num_sent = zygote.open(self._runner, self._message)
        except BaseException:
            self._lease.abandon()
            raise
        try:
            self._prepare(memoryview(self._message)[num_sent:])
        except BaseException:
            self._is_sound = False
            self.close()
            raise

    def _revive(self) -> None:
        if self.is_dead:
            self.close()
            self._begin()

    def run(self, stdin: bytes) -> Outcome:
        self._revive()
        with contextlib.closing(RunningTest(self, stdin, has_channel=False)) as test:
            return test.finish()

    def session(self, stdin: bytes = b"") -> CellSession:
        self._revive()
        return CellSession(RunningTest(self, stdin, has_channel=True))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.connection.close()
            if self._is_sound:
                self._lease.end()
            else:
                self._lease.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._is_sound = False
        self.close()

    def _settings(self) -> bytes:
        limits = self.limits
        return _SETTINGS.pack(
            int(limits.cpu_s) + _CPU_MARGIN_S,
            (limits.memory_mb + _ADDRESS_SPACE_MARGIN_MB) << 20,
            limits.disk_mb << 20,
            limits.open_files,
            limits.processes,
            limits.disk_mb << 20,
            _MAX_FILES,
        )

    def _prepare(self, unsent: memoryview) -> None:
        self.connection.settimeout(self.limits.wall_s)
        try:
            self.connection.sendall(unsent)
            complaint = _receive_block(self.connection, _MAX_COMPLAINT_BYTES)
            if complaint:
                self.compile_error = _error_in(complaint)
        except TimeoutError:
            self._blame_preparation()
        except OSError as error:
            self._blame_crash(error)
        self.connection.setblocking(False)

    def _blame_preparation(self) -> None:
        """Nothing came back in time: slow to compile, or a machine too busy to tell."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            if self.meter.preparing_cpu_s() >= self.limits.cpu_s:
                self._is_sound = False
                self.compile_error = "compilation takes longer than the time limit"
                return
        raise SandboxFault("the cell did not answer in time")

    def _blame_crash(self, error: OSError) -> None:
        """The first process died while compiling: the source's fault when the compiler crashed, else ours."""
        if self.meter.is_memory_exceeded():
            self.compile_error = "compilation takes more memory than the limit"
            return
        self._lease.zygote.first_process()  # raises when there never was one
        self._is_open = False
        self.connection.close()
        status = self._lease.abandon()
        crashes = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
        if status is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in crashes:
            raise SandboxFault(f"the cell died while starting ({error}, status {status})")
        self.compile_error = "the compiler crashed"


class RunningTest:
    """One test under way: its streams, its deadlines and, in the end, the report."""

    def __init__(self, cell: ZygoteCell, stdin: bytes, *, has_channel: bool) -> None:
        """Start it.

        Raises:
            SandboxFault: the cell is gone.
        """
        self._cell = cell
        self._limits = cell.limits
        self._out = _CappedReader(cell.limits.output_bytes)
        self._err = _CappedReader(cell.limits.output_bytes)
        self._report = b""
        self._ended_by: Ended | None = None
        self._peak_mb = 0.0
        self._cpu_s = 0.0
        self._late_s = 0.0
        self._wait_s: float | None = None
        self._sent = memoryview(b"")
        self.frames = bytearray()
        self.channel: socket.socket | None = None
        self._poll = select.poll()
        self._is_watching_streams = False
        self._start(stdin, has_channel)
        self._started = time.monotonic()
        self._wall_deadline = self._started + self._limits.wall_s
        self._next_sample = self._started + _SAMPLE_INTERVAL_S
        self._stop_deadline: float | None = None
        self._is_cut_short = False

    def _start(self, stdin: bytes, has_channel: bool) -> None:
        theirs: list[int] = []
        self._cell.meter.begin_test()
        try:
            theirs.append(_stdin_of(stdin))
            for reader in (self._out, self._err):
                reader.descriptor, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                theirs.append(writer)
                os.set_blocking(writer, True)
            if has_channel:
                self.channel, other = socket.socketpair()
                theirs.append(other.detach())
                self.channel.setblocking(False)
                self._poll.register(self.channel, select.POLLIN)
            socket.send_fds(self._cell.connection, [b"T"], theirs)
        except OSError as error:
            self.close()
            raise fault_of("the cell does not take a test", error) from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._poll.register(self._cell.connection, select.POLLIN)

    def _watch_streams(self) -> None:
        """From here on read what the program prints while it runs. A short test is over before, with one wake-up."""
        self._is_watching_streams = True
        for reader in (self._out, self._err):
            self._poll.register(reader.descriptor, select.POLLIN)

    @property
    def is_over(self) -> bool:
        return len(self._report) == _REPORT_BYTES

    def send(self, content: bytes) -> None:
        """Have the channel take `content`; what it does with it is up to the program."""
        self._sent = memoryview(content)
        if self.channel:
            with contextlib.suppress(OSError):  # mostly there is room, and nothing to wait for
                self._sent = self._sent[self.channel.send(self._sent) :]
        if self.channel and self._sent:
            self._poll.modify(self.channel, select.POLLIN | select.POLLOUT)
            self.advance(lambda: not self._sent)

    def finish(self) -> Outcome:
        """Wait for the end, by itself or by a limit.

        Raises:
            SandboxFault: the cell died, does not stop, or could not set up the process of the test.
        """
        self.advance(lambda: False)
        self._out.drain()
        self._err.drain()
        return self._outcome()

    def end(self) -> Outcome:
        """Have it killed, whatever it does, and say how it went until then.

        Raises:
            SandboxFault: the cell died, does not stop, or could not set up the process of the test.
        """
        if not self.is_over:
            self._is_cut_short = True
            self._order_stop()
        return self.finish()

    def advance(self, is_enough: Callable[[], bool]) -> None:
        """Serve the streams and mind the limits until the test is over or `is_enough`.

        Raises:
            SandboxFault: the cell died or does not stop.
        """
        while not self.is_over and not is_enough():
            events = self._poll.poll(self._patience_ms())
            for descriptor, event in events:
                self._serve(descriptor, event)
            if not events and not self._is_watching_streams:
                self._watch_streams()
            if time.monotonic() >= min(self._next_sample, self._wall_deadline) and not self.is_over:
                self._mind_limits()
        while self.is_over and self.channel and self._take_frames():  # what the dead left in the socket
            pass

    def close(self) -> None:
        """Free the descriptors."""
        for reader in (self._out, self._err):
            reader.close()
        if self.channel:
            self.channel.close()
            self.channel = None

    def _patience_ms(self) -> float:
        if not self._is_watching_streams:
            return _SHORT_TEST_MS
        until = min(self._next_sample, self._wall_deadline)
        return max(0.0, until - time.monotonic()) * 1000 + 1

    def _serve(self, descriptor: int, event: int) -> None:
        if descriptor == self._cell.connection.fileno():
            self._take_report()
        elif self.channel and descriptor == self.channel.fileno():
            self._serve_channel(event)
        else:
            reader = self._out if descriptor == self._out.descriptor else self._err
            if reader.read() == 0:
                self._poll.unregister(descriptor)
            elif reader.is_full:
                self._stop(Ended.OUTPUT)

    def _serve_channel(self, event: int) -> None:
        if event & select.POLLOUT and self._sent:
            self._give_frames()
        if event & (select.POLLIN | select.POLLHUP):
            self._take_frames()
        if self.channel:
            self._poll.modify(self.channel, select.POLLIN | (select.POLLOUT if self._sent else 0))

    def _give_frames(self) -> None:
        assert self.channel is not None
        try:
            self._sent = self._sent[self.channel.send(self._sent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._close_channel()

    def _take_frames(self) -> bool:
        """Whether there was something; an end of the stream closes the channel."""
        if self.channel is None or len(self.frames) > self._limits.output_bytes + _PIPE_BYTES:
            return False
        try:
            content = self.channel.recv(_PIPE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            content = b""
        if not content:
            self._close_channel()
            return False
        self.frames += content
        if len(self.frames) > self._limits.output_bytes + _PIPE_BYTES:
            self._stop(Ended.OUTPUT)
        return True

    def _close_channel(self) -> None:
        self._sent = memoryview(b"")
        if self.channel:
            self._poll.unregister(self.channel)
            self.channel.close()
            self.channel = None

    def _take_report(self) -> None:
        try:
            content = self._cell.connection.recv(_REPORT_BYTES - len(self._report))
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self._blame_death()
        self._report += content

    def _blame_death(self) -> None:
        """The first process is gone: the test's doing when its memory cost that process its life, else ours."""
        meter = self._cell.meter
        if not meter.is_memory_exceeded():
            if refusal := meter.refusal_of_host():
                raise ExhaustedFault(f"the cell died during a test: {refusal}")
            raise SandboxFault("the cell died during a test")
        self._cell.is_dead = True
        self._ended_by = self._ended_by or Ended.MEMORY
        wall_s = time.monotonic() - self._started
        self._report = _REPORT.pack(signal.SIGKILL, 0.0, 0.0, wall_s, 0) + bytes(_ACCOUNT_BYTES)

    def _mind_limits(self) -> None:
        now = time.monotonic()
        if self._stop_deadline is not None:
            if now > self._stop_deadline:
                raise SandboxFault("the cell does not stop its test")
            self._next_sample = now + _SAMPLE_INTERVAL_S
            return
        self._late_s += max(0.0, now - min(self._next_sample, self._wall_deadline) - _PUNCTUAL_S)
        usage = self._cell.meter.usage()
        self._peak_mb = max(self._peak_mb, usage.memory_mb)
        self._cpu_s = max(self._cpu_s, usage.cpu_s)
        self._wait_s = None if usage.wait_s is None else usage.wait_s + self._late_s
        left_s = self._limits.cpu_s - usage.cpu_s
        self._next_sample = now + min(_SAMPLE_INTERVAL_S, max(left_s / max(usage.num_processes, 1), 0.005))
        if usage.memory_mb > self._limits.memory_mb or self._cell.meter.is_memory_exceeded():
            self._stop(Ended.MEMORY)
        elif left_s <= 0:
            self._stop(Ended.CPU_TIME)
        elif usage.num_processes > self._limits.processes:
            self._stop(Ended.PROCESSES)
        elif usage.disk_mb > self._limits.disk_mb or usage.num_files > _MAX_FILES:
            self._stop(Ended.DISK)
        elif now >= self._wall_deadline:
            self._meet_wall(now)

    def _meet_wall(self, now: float) -> None:
        """Give back what the test had to wait for a core, or for us; but no more than the limit once again."""
        wall_s = self._limits.wall_s
        self._wall_deadline = self._started + wall_s + min(self._wait_s or 0.0, wall_s)
        if now >= self._wall_deadline:
            self._stop(Ended.WALL_TIME)

    def _stop(self, reason: Ended) -> None:
        """Ask the first process to kill the test; the first reason counts."""
        if self._ended_by is not None:
            return
        self._ended_by = reason
        self._order_stop()

    def _order_stop(self) -> None:
        self._stop_deadline = time.monotonic() + _STOP_TIMEOUT_S
        self._wall_deadline = self._stop_deadline
        if not self.is_over:
            with contextlib.suppress(OSError):  # a cell that is gone shows when its report is missing
                self._cell.connection.send(b"K")

    def _outcome(self) -> Outcome:
        status, user_s, system_s, wall_s, peak_kib = _REPORT.unpack_from(self._report)
        account = self._report[_REPORT.size :].rstrip(b"\0").decode("ascii", "replace")
        if account == _SETTING_UP and not self._is_cut_short:
            raise SandboxFault(f"the process of a test could not be set up (wait status {status})")
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        meter = self._cell.meter
        used = meter.end_test(user_s + system_s)
        cpu_s = max(used.cpu_s, self._cpu_s)
        peak_mb = max(peak_kib / 1024, used.peak_mb, self._peak_mb)
        if self._ended_by is None and meter.is_memory_exceeded():
            self._ended_by = Ended.MEMORY
        ended = self._ended_by or self._reason(exit_code, cpu_s, peak_mb, account)
        if (ended, exit_code) != (Ended.EXITED, 0) and (refusal := meter.refusal_of_host()):
            raise ExhaustedFault(refusal)
        return Outcome(
            ended=ended,
            exit_code=exit_code,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            stdout=self._out.content,
            stderr=self._err.content,
            stdout_cut=self._out.num_cut,
            stderr_cut=self._err.num_cut,
            cpu_s=cpu_s,
            wall_s=wall_s,
            memory_mb=peak_mb,
            detail=_printable(account),
            wait_s=self._wait_s,
        )

    def _reason(self, exit_code: int | None, cpu_s: float, peak_mb: float, account: str) -> Ended:
        """Why a test is over that was not stopped. Only for a failure the program's own account is asked."""
        if cpu_s > self._limits.cpu_s:
            return Ended.CPU_TIME
        if peak_mb > self._limits.memory_mb:
            return Ended.MEMORY
        if self._out.is_full or self._err.is_full:
            return Ended.OUTPUT
        if exit_code is None:
            return Ended.SIGNALLED
        limit = account.partition(" ")[0]
        if exit_code != 0 and limit in (Ended.MEMORY, Ended.PROCESSES, Ended.DISK):
            return Ended(limit)
        return Ended.EXITED


class CellSession:
    """Frames to and from one running test: four bytes of length, big-endian, then the content."""

    def __init__(self, test: RunningTest) -> None:
        self._test = test
        self._outcome: Outcome | SandboxFault | None = None

    def send(self, frame: bytes) -> None:
        self._test.send(len(frame).to_bytes(4, "big") + frame)

    def receive(self) -> bytes | None:
        frames = self._test.frames
        self._test.advance(lambda: self._is_complete() or self._test.channel is None)
        if not self._is_complete():
            return None
        size = int.from_bytes(frames[:4], "big")
        with memoryview(frames) as view:
            frame = bytes(view[4 : 4 + size])
        del frames[: 4 + size]
        return frame

    def close(self) -> Outcome:
        return self._ended(self._test.finish)

    def end(self) -> Outcome:
        return self._ended(self._test.end)

    def _ended(self, finish: Callable[[], Outcome]) -> Outcome:
        if self._outcome is None:
            try:
                self._outcome = finish()
            except SandboxFault as fault:
                self._outcome = fault
            finally:
                self._test.close()
        if isinstance(self._outcome, SandboxFault):
            raise self._outcome
        return self._outcome

    def _is_complete(self) -> bool:
        frames = self._test.frames
        return len(frames) >= 4 and len(frames) >= 4 + int.from_bytes(frames[:4], "big")


class _CappedReader:
    """The reading end of a pipe; keeps so many bytes and counts the rest."""

    def __init__(self, limit: int) -> None:
        self.descriptor = -1
        self.content = b""
        self.num_cut = 0
        self._limit = limit
        self._parts: list[bytes] = []

    @property
    def is_full(self) -> bool:
        return self.num_cut > 0

    def read(self) -> int | None:
        """Take what there is now. The number of bytes, 0 at the end of the stream, None when nothing is there."""
        try:
            content = os.read(self.descriptor, _PIPE_BYTES)
        except BlockingIOError:
            return None
        kept = content[: self._limit]
        self._limit -= len(kept)
        self.num_cut += len(content) - len(kept)
        if kept:
            self._parts.append(kept)
        return len(content)

    def drain(self) -> None:
        """Take what is left when the program is dead. Not to the end: a fork of this process may hold it open."""
        while not self.is_full and self.read():
            pass
        self.content = b"".join(self._parts)
        self._parts.clear()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _stdin_of(content: bytes) -> int:
    """A descriptor to read `content` from: a read-only file in memory.

    Not a pipe: the room in one shrinks when a user has many, and then writing to it would never end.
    """
    memory = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(memory, left) :]
        return os.open(f"/proc/self/fd/{memory}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(memory)


def _error_in(complaint: bytes) -> str:
    """What a first process says of a program that cannot be prepared."""
    try:
        answer = json.loads(complaint)
        line = answer["line"]
        where = f" (line {line})" if isinstance(line, int) else ""
        return _printable(str(answer["compile_error"]))[:200] + where
    except (ValueError, KeyError, TypeError):
        raise SandboxFault("the cell answered nonsense") from None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


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
