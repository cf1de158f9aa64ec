"""One test under way: read what it prints, carry its frames, and enforce every limit while it runs.

The judge holds the far ends of the streams and reads them while the program runs, so a flood of output ends the program
and costs the judge at most the cap. The cell's meter reads CPU time and memory from outside; wall time is this
process's clock. To end a test, the judge sends an order to the first process of the cell; if that does not obey, it
kills the whole cell.

The wall limit is meant for a machine that is not busy: the time that a test waited for a core is added to it, and the
delays of this process. Else the load of the machine would decide whether a program that sleeps is in time.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Protocol

from autoclave.core import Ended, ExhaustedFault, Outcome, SandboxFault
from autoclave.sandbox.interface import Limits
from autoclave.sandbox.launch import Meter
from autoclave.sandbox.report import REPORT_BYTES, Observed, outcome_of, report_of_death
from autoclave.sandbox.streams import PIPE_BYTES, Printed, drain, read_some

SHORT_TEST_MS = 10
"""Until then the output of a program stays in the pipe."""
MAX_FILES = 4096
"""Limit of a test's scratch folder."""
_STOP_TIMEOUT_S = 20.0
_SAMPLE_INTERVAL_S = 0.05
_PUNCTUAL_S = 0.02
"""A sample that is late by less is on time."""


class TestedCell(Protocol):
    """Interface of the cell that a test needs."""

    __test__ = False  # not a test class of pytest

    limits: Limits
    meter: Meter
    connection: socket.socket
    is_dead: bool
    """Its first process has ended; the next test needs a new one."""


class RunningTest:
    """One test under way: its streams, its deadlines and, in the end, the report."""

    def __init__(
        self,
        cell: TestedCell,
        streams: tuple[int, int],
        *,
        started: float,
        report: bytes = b"",
        channel: socket.socket | None = None,
        reads_late: bool = False,
    ) -> None:
        """`report` is the part received of a test that began at `started`. `close` closes `streams` and `channel`.

        With `reads_late`, frames of a short test are read at its end.
        """
        self.frames = bytearray()
        self.channel = channel
        self._cell = cell
        self._limits = cell.limits
        self._out, self._err = (_CappedReader(stream, cell.limits.output_bytes) for stream in streams)
        self._report = report
        self._observed = Observed()
        self._late_s = 0.0
        self._sent = memoryview(b"")
        self._started = started
        self._wall_deadline = started + self._limits.wall_s
        self._next_sample = started + _SAMPLE_INTERVAL_S
        self._stop_deadline: float | None = None
        self._is_watched = False
        self._poll = select.poll()
        self._poll.register(cell.connection, select.POLLIN)
        if channel and not reads_late:
            self._poll.register(channel, select.POLLIN)

    def _watch(self) -> None:
        """Measure and read output from now on while the program runs. A short test ends before, with one wake-up."""
        self._cell.meter.usage()
        self._is_watched = True
        for reader in (self._out, self._err):
            self._poll.register(reader.descriptor, select.POLLIN)
        if self.channel:
            self._poll.register(self.channel, self._channel_events)

    @property
    def _channel_events(self) -> int:
        return select.POLLIN | (select.POLLOUT if self._sent else 0)

    @property
    def is_over(self) -> bool:
        return len(self._report) == REPORT_BYTES

    def send(self, content: bytes) -> None:
        """Send `content` on the channel, as far as the program reads it."""
        self._sent = memoryview(content)
        if self.channel:
            with contextlib.suppress(OSError):  # mostly there is room, and nothing to wait for
                self._sent = self._sent[self.channel.send(self._sent) :]
        if self.channel and self._sent:
            self._poll.modify(self.channel, self._channel_events)
            self.advance(lambda: not self._sent)

    def finish(self) -> Outcome:
        """Wait for the end, by itself or by a limit.

        Raises SandboxFault: the cell died, does not stop, or could not set up the process of the test.
        """
        self.advance(lambda: False)
        printed = self._out.printed(), self._err.printed()
        return outcome_of(self._report, self._observed, self._limits, self._cell.meter, *printed)

    def end(self) -> Outcome:
        """Kill it and return its outcome.

        Raises SandboxFault: the cell died, does not stop, or could not set up the process of the test.
        """
        if not self.is_over:
            self._observed.is_cut_short = True
            self._order_stop()
        return self.finish()

    def advance(self, is_enough: Callable[[], bool]) -> None:
        """Serve the streams and enforce the limits until the test is over or `is_enough`.

        Raises SandboxFault: the cell died or does not stop.
        """
        while not self.is_over and not is_enough():
            events = self._poll.poll(self._patience_ms())
            for descriptor, event in events:
                self._serve(descriptor, event)
            now = time.monotonic()
            is_due = now >= min(self._next_sample, self._wall_deadline)
            if not self._is_watched and (is_due or now - self._started >= SHORT_TEST_MS / 1000):
                self._watch()
            if is_due and not self.is_over:
                self._enforce_limits()
        while self.is_over and self.channel and self._take_frames():  # frames that an ended program left in the socket
            pass

    def close(self) -> None:
        """Free the descriptors."""
        for reader in (self._out, self._err):
            reader.close()
        if self.channel:
            self.channel.close()
            self.channel = None

    def _patience_ms(self) -> float:
        is_watched, watch_from = self._is_watched, self._started + SHORT_TEST_MS / 1000
        until = min(self._next_sample, self._wall_deadline) if is_watched else watch_from
        return max(0.0, until - time.monotonic()) * 1000 + 1

    def _serve(self, descriptor: int, event: int) -> None:
        if descriptor == self._cell.connection.fileno():
            self._take_report()
        elif self.channel and descriptor == self.channel.fileno():
            self._serve_channel(event)
        else:
            reader = self._out if descriptor == self._out.descriptor else self._err
            if not reader.read():
                self._poll.unregister(descriptor)
            elif reader.is_full:
                self._stop(Ended.OUTPUT)

    def _serve_channel(self, event: int) -> None:
        if event & select.POLLOUT and self._sent:
            self._give_frames()
        if event & (select.POLLIN | select.POLLHUP):
            self._take_frames()
        if self.channel:
            self._poll.modify(self.channel, self._channel_events)

    def _give_frames(self) -> None:
        assert self.channel is not None
        try:
            self._sent = self._sent[self.channel.send(self._sent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._close_channel()

    def _take_frames(self) -> bool:
        """Read available frames; return False if there are none. The end of the stream closes the channel."""
        if self.channel is None or len(self.frames) > self._limits.output_bytes + PIPE_BYTES:
            return False
        try:
            content = self.channel.recv(PIPE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            content = b""
        if not content:
            self._close_channel()
            return False
        self.frames += content
        if len(self.frames) > self._limits.output_bytes + PIPE_BYTES:
            self._stop(Ended.OUTPUT)
        return True

    def _close_channel(self) -> None:
        self._sent = memoryview(b"")
        if self.channel:
            with contextlib.suppress(KeyError):  # a short test
                self._poll.unregister(self.channel)
            self.channel.close()
            self.channel = None

    def _take_report(self) -> None:
        try:
            content = self._cell.connection.recv(REPORT_BYTES - len(self._report))
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self._blame_death()
        self._report += content

    def _blame_death(self) -> None:
        """Attribute the death of the first process to the test if that exceeded its memory, else raise a fault."""
        meter = self._cell.meter
        if not meter.is_memory_exceeded():
            if refusal := meter.refusal_of_host():
                raise ExhaustedFault(f"the cell died during a test: {refusal}")
            raise SandboxFault("the cell died during a test")
        self._cell.is_dead = True
        self._observed.ended_by = self._observed.ended_by or Ended.MEMORY
        self._report = report_of_death(time.monotonic() - self._started)

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        if self._stop_deadline is not None:
            if now > self._stop_deadline:
                raise SandboxFault("the cell does not stop its test")
            self._next_sample = now + _SAMPLE_INTERVAL_S
            return
        self._late_s += max(0.0, now - min(self._next_sample, self._wall_deadline) - _PUNCTUAL_S)
        usage, observed = self._cell.meter.usage(), self._observed
        observed.peak_mb = max(observed.peak_mb, usage.memory_mb)
        observed.cpu_s = max(observed.cpu_s, usage.cpu_s)
        observed.wait_s = None if usage.wait_s is None else usage.wait_s + self._late_s
        left_s = self._limits.cpu_s - usage.cpu_s
        self._next_sample = now + min(_SAMPLE_INTERVAL_S, max(left_s / max(usage.num_processes, 1), 0.005))
        if usage.memory_mb > self._limits.memory_mb or self._cell.meter.is_memory_exceeded():
            self._stop(Ended.MEMORY)
        elif left_s <= 0:
            self._stop(Ended.CPU_TIME)
        elif usage.num_processes > self._limits.processes:
            self._stop(Ended.PROCESSES)
        elif usage.disk_mb > self._limits.disk_mb or usage.num_files > MAX_FILES:
            self._stop(Ended.DISK)
        elif now >= self._wall_deadline:
            self._meet_wall(now)

    def _meet_wall(self, now: float) -> None:
        """Give back the time that the test waited for a core or for this process, up to its limit."""
        given_back_s = min(self._observed.wait_s or 0.0, self._limits.most_given_back_s)
        self._wall_deadline = self._started + self._limits.wall_s + given_back_s
        if now >= self._wall_deadline:
            self._stop(Ended.WALL_TIME)

    def _stop(self, reason: Ended) -> None:
        """Order the first process to kill the test; the first reason counts."""
        if self._observed.ended_by is not None:
            return
        self._observed.ended_by = reason
        self._order_stop()

    def _order_stop(self) -> None:
        self._stop_deadline = time.monotonic() + _STOP_TIMEOUT_S
        self._wall_deadline = self._stop_deadline
        if not self.is_over:
            with contextlib.suppress(OSError):  # an ended cell shows as a missing report
                self._cell.connection.send(b"K")


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
    """The reading end of a stream; keeps so many bytes and counts the rest."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self._left = limit
        self._num_cut = 0
        self._parts: list[bytes] = []

    @property
    def is_full(self) -> bool:
        return self._num_cut > 0

    def read(self) -> bool:
        """Read available output. Return False at the end of the stream."""
        content = read_some(self.descriptor)
        if content:
            self._keep(Printed(content[: self._left], max(0, len(content) - self._left)))
        return content != b""

    def printed(self) -> Printed:
        """Return all output after the program has ended."""
        if not self.is_full:
            self._keep(drain(self.descriptor, self._left))
        return Printed(b"".join(self._parts), self._num_cut)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _keep(self, printed: Printed) -> None:
        self._parts.append(printed.content)
        self._left -= len(printed.content)
        self._num_cut += printed.num_cut
