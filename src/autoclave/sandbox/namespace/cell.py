"""The judge's end of a cell: hand over the program, start tests, enforce every limit while they run.

The judge holds the far ends of the three standard streams and reads them while the program runs, so a flood costs the
program its life and the judge at most the cap. CPU time and memory are read from the host's /proc; wall time is this
process's clock. The first process of the cell is asked to end a test; if it does not, the whole cell is killed.
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
from dataclasses import asdict
from types import TracebackType
from typing import Self

from autoclave.core import Ended, Outcome, Program, SandboxFault
from autoclave.sandbox.interface import Limits
from autoclave.sandbox.namespace.watch import cpu_seconds, usage_below

_REPORT = struct.Struct("<idddq")
_ACCOUNT_BYTES = 256
_REPORT_BYTES = _REPORT.size + _ACCOUNT_BYTES
_SETTING_UP = "setting up"

_ADDRESS_SPACE_MARGIN_MB = 640
"""Above the memory limit: the interpreter's own maps, and large thread stacks that are reserved but not used."""
_MAX_FILES = 4096
_STOP_TIMEOUT_S = 20.0
_SAMPLE_INTERVAL_S = 0.05
_PIPE_BYTES = 1 << 16


class NamespaceCell:
    """One program in its own process, mount and ipc namespaces."""

    def __init__(
        self, pid: int, connection: socket.socket, limits: Limits, program: Program, end: Callable[[bool], int | None]
    ) -> None:
        """`end(is_sound)` has the zygote kill the cell; it returns the wait status of the first process if it can.

        Raises:
            SandboxFault: the cell does not get as far as compiling.
        """
        self.pid = pid
        self.limits = limits
        self.connection = connection
        self.compile_error: str | None = None
        self._end = end
        self._is_open = True
        self._is_sound = True
        try:
            self._prepare(program)
        except BaseException:
            self.abandon()
            raise

    def run(self, stdin: bytes) -> Outcome:
        with contextlib.closing(RunningTest(self, stdin, has_channel=False)) as test:
            return test.finish()

    def session(self) -> NamespaceSession:
        return NamespaceSession(RunningTest(self, b"", has_channel=True))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.connection.close()
            self._end(self._is_sound)

    def abandon(self) -> None:
        """Close, and trust neither cell nor zygote again."""
        self._is_sound = False
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._is_sound = False
        self.close()

    def _prepare(self, program: Program) -> None:
        limits = self.limits
        settings = asdict(limits) | {
            "address_space": (limits.memory_mb + _ADDRESS_SPACE_MARGIN_MB) << 20,
            "files": _MAX_FILES,
        }
        source = program.source.encode("utf-8", "surrogatepass")
        self.connection.settimeout(limits.wall_s)
        try:
            _send_block(self.connection, json.dumps(settings).encode())
            _send_block(self.connection, source)
            answer = json.loads(_receive_block(self.connection, 1 << 16))
            error = answer["compile_error"]
        except TimeoutError:
            self._blame_compilation()
        except OSError as error:
            self._blame_crash(error)
        except (ValueError, KeyError, TypeError):
            raise SandboxFault("the cell answered nonsense") from None
        else:
            if error is not None:
                line = answer.get("line")
                self.compile_error = f"{_printable(str(error))[:200]}" + (
                    f" (line {line})" if isinstance(line, int) else ""
                )
        self.connection.setblocking(False)

    def _blame_compilation(self) -> None:
        """Nothing came back in time: slow to compile, or a machine too busy to tell."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            if cpu_seconds(self.pid) >= self.limits.cpu_s:
                self._is_sound = False
                self.compile_error = "compilation takes longer than the time limit"
                return
        raise SandboxFault("the cell did not answer in time")

    def _blame_crash(self, error: OSError) -> None:
        """The first process died while compiling: the source's fault when the compiler crashed, else ours."""
        self._is_open = False
        self.connection.close()
        status = self._end(True)
        crashes = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
        if status is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in crashes:
            raise SandboxFault(f"the cell died while starting ({error}, status {status})")
        self.compile_error = "the compiler crashed"


class RunningTest:
    """One test under way: its streams, its deadlines and, in the end, the report."""

    def __init__(self, cell: NamespaceCell, stdin: bytes, *, has_channel: bool) -> None:
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
        self._sent = memoryview(b"")
        self.frames = bytearray()
        self.channel: socket.socket | None = None
        self._poll = select.poll()
        self._start(stdin, has_channel)
        self._started = time.monotonic()
        self._wall_deadline = self._started + self._limits.wall_s
        self._next_sample = self._started + _SAMPLE_INTERVAL_S
        self._stop_deadline: float | None = None

    def _start(self, stdin: bytes, has_channel: bool) -> None:
        theirs = [_stdin_of(stdin)]
        try:
            for reader in (self._out, self._err):
                reader.descriptor, writer = os.pipe2(os.O_CLOEXEC)
                theirs.append(writer)
            if has_channel:
                self.channel, other = socket.socketpair()
                theirs.append(other.detach())
                self.channel.setblocking(False)
            socket.send_fds(self._cell.connection, [b"T"], theirs)
        except OSError as error:
            self.close()
            raise SandboxFault(f"the cell does not take a test ({error})") from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        for reader in (self._out, self._err):
            os.set_blocking(reader.descriptor, False)
            self._poll.register(reader.descriptor, select.POLLIN)
        self._poll.register(self._cell.connection, select.POLLIN)
        if self.channel:
            self._poll.register(self.channel, select.POLLIN)

    @property
    def is_over(self) -> bool:
        return len(self._report) == _REPORT_BYTES

    def send(self, content: bytes) -> None:
        """Have the channel take `content`; what it does with it is up to the program."""
        self._sent = memoryview(content)
        if self.channel:
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

    def advance(self, is_enough: Callable[[], bool]) -> None:
        """Serve the streams and mind the limits until the test is over or `is_enough`.

        Raises:
            SandboxFault: the cell died or does not stop.
        """
        while not self.is_over and not is_enough():
            events = self._poll.poll(self._patience_ms())
            for descriptor, event in events:
                self._serve(descriptor, event)
            if time.monotonic() >= min(self._next_sample, self._wall_deadline) and not self.is_over:
                self._mind_limits()

    def close(self) -> None:
        """Free the descriptors."""
        for reader in (self._out, self._err):
            reader.close()
        if self.channel:
            self.channel.close()
            self.channel = None

    def _patience_ms(self) -> float:
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
        channel = self.channel
        assert channel is not None
        try:
            if event & select.POLLOUT and self._sent:
                self._sent = self._sent[channel.send(self._sent) :]
            if event & (select.POLLIN | select.POLLHUP):
                content = channel.recv(_PIPE_BYTES)
                if not content:
                    raise ConnectionError
                self.frames += content
        except BlockingIOError:
            pass
        except OSError:
            self._sent = memoryview(b"")
            self._poll.unregister(channel)
            channel.close()
            self.channel = None
            return
        self._poll.modify(channel, select.POLLIN | (select.POLLOUT if self._sent else 0))
        if len(self.frames) > self._limits.output_bytes + _PIPE_BYTES:
            self._stop(Ended.OUTPUT)

    def _take_report(self) -> None:
        try:
            content = self._cell.connection.recv(_REPORT_BYTES - len(self._report))
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            raise SandboxFault("the cell died during a test")
        self._report += content

    def _mind_limits(self) -> None:
        now = time.monotonic()
        if self._stop_deadline is not None:
            if now > self._stop_deadline:
                raise SandboxFault("the cell does not stop its test")
            self._next_sample = now + _SAMPLE_INTERVAL_S
            return
        usage = usage_below(self._cell.pid)
        self._peak_mb = max(self._peak_mb, usage.memory_mb)
        self._cpu_s = max(self._cpu_s, usage.cpu_s)
        left_s = self._limits.cpu_s - usage.cpu_s
        self._next_sample = now + min(_SAMPLE_INTERVAL_S, max(left_s / max(usage.num_processes, 1), 0.005))
        if usage.memory_mb > self._limits.memory_mb:
            self._stop(Ended.MEMORY)
        elif left_s <= 0:
            self._stop(Ended.CPU_TIME)
        elif now >= self._wall_deadline:
            self._stop(Ended.WALL_TIME)

    def _stop(self, reason: Ended) -> None:
        """Ask the first process to kill the test; the first reason counts."""
        if self._ended_by is not None:
            return
        self._ended_by = reason
        self._stop_deadline = time.monotonic() + _STOP_TIMEOUT_S
        self._wall_deadline = self._stop_deadline
        with contextlib.suppress(OSError):  # a cell that is gone shows when its report is missing
            self._cell.connection.send(b"K")

    def _outcome(self) -> Outcome:
        status, user_s, system_s, wall_s, peak_kib = _REPORT.unpack_from(self._report)
        account = self._report[_REPORT.size :].rstrip(b"\0").decode("ascii", "replace")
        if account == _SETTING_UP:
            raise SandboxFault(f"the process of a test could not be set up (wait status {status})")
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        cpu_s = max(user_s + system_s, self._cpu_s)
        peak_mb = max(peak_kib / 1024, self._peak_mb)
        return Outcome(
            ended=self._ended_by or self._reason(exit_code, cpu_s, peak_mb, account),
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


class NamespaceSession:
    """Frames to and from one running test: four bytes of length, big-endian, then the content."""

    def __init__(self, test: RunningTest) -> None:
        self._test = test
        self._outcome: Outcome | None = None

    def send(self, frame: bytes) -> None:
        self._test.send(len(frame).to_bytes(4, "big") + frame)

    def receive(self) -> bytes | None:
        frames = self._test.frames
        self._test.advance(lambda: self._is_complete() or self._test.channel is None)
        if not self._is_complete():
            return None
        size = int.from_bytes(frames[:4], "big")
        frame = bytes(frames[4 : 4 + size])
        del frames[: 4 + size]
        return frame

    def close(self) -> Outcome:
        if self._outcome is None:
            try:
                self._outcome = self._test.finish()
            finally:
                self._test.close()
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


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _send_block(connection: socket.socket, content: bytes) -> None:
    connection.sendall(len(content).to_bytes(4, "big") + content)


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
