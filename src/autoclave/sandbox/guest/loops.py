"""The two loops inside the sandbox: the zygote's over cells, and a first process's over tests, with measurements.

`CompiledLoops` is `_cell.c`; `PythonLoops` does the same for hosts without it and for every other confinement.

On the control socket, a message each: `O` and the number of a runner, with the socket of a new cell -> process number;
`C` -> wait status of the cell that is killed. On the socket of a cell: settings, then the content as a block (four
bytes of length, big-endian); an answer block, empty when the program is prepared; then per test `T` with the
descriptors, perhaps `K` to end it early, and one report of fixed size. Settings are `SCRATCH`, then each kernel limit
as `KERNEL_LIMIT`; one that the kernel does not know ends the cell.
"""

import os
import sys
import time
from typing import Any, NoReturn

from . import linux
from .confinement import Confinement, Sealed

SCRATCH = "<3Q"
"""Bytes and files of scratch, and the number of kernel limits that follow."""
KERNEL_LIMIT = "<2Q"
"""Number (`RLIMIT_...`) and value. That of CPU time is for each test, the others are for the cell."""
REPORT = "<idddq"
"""Wait status, user, system and wall seconds, peak memory in KiB. The account of the test follows."""
ACCOUNT_BYTES = 256
SETTING_UP = b"setting up"
"""The account before the runner starts: a test that ends with it is a fault, not a failure of the program."""
_MAX_DESCRIPTORS = 4
_MESSAGE_BYTES = 1 << 18


class CompiledLoops:
    """The loops of `_cell.c`."""

    def __init__(self, confinement: Sealed) -> None:
        self._confinement = confinement

    def next_cell(self, control: int, judge: int) -> "tuple[int, int] | bytes":
        """Return, in the first process of a new cell, its socket and runner; in the zygote, any other message."""
        return linux.compiled.serve_cells(control, judge, self._confinement.clone_flags)

    def begin_cell(self, socket: int) -> bytes:
        """Confine this first process and receive the content."""
        test_id = self._confinement.test_id
        return linux.compiled.begin_cell(socket, -1 if test_id is None else test_id)

    def serve_tests(self) -> None:
        """Run tests until the judge has ended. Returns only in the process of a test."""
        linux.compiled.serve_tests()

    def report(self, account: bytes) -> None:
        """Leave an account of how the test ended."""
        linux.compiled.tell(account)


class PythonLoops:
    """The same loops in Python."""

    def __init__(self, confinement: Confinement) -> None:
        import mmap
        import resource
        import select
        import struct
        from _socket import CMSG_SPACE, MSG_CTRUNC, MSG_WAITALL, socket

        self._confinement = confinement
        self._resource, self._poll, self._socket_class = resource, select.poll, socket
        self._cmsg_space, self._is_cut, self._wait_all = CMSG_SPACE(4 * _MAX_DESCRIPTORS), MSG_CTRUNC, MSG_WAITALL
        self._scratch, self._kernel_limit = struct.Struct(SCRATCH), struct.Struct(KERNEL_LIMIT)
        self._report = struct.Struct(REPORT)
        self._account = mmap.mmap(-1, mmap.PAGESIZE)
        self._cpu_s = 0
        self._cell = 0
        self._socket: Any = None

    def next_cell(self, control: int, judge: int) -> "tuple[int, int] | bytes":
        socket = self._socket_class(fileno=control)
        try:
            while True:
                if judge in self._await_either(judge, control):
                    self._leave()
                message, descriptors = self._receive(socket, _MESSAGE_BYTES)
                if message[:1] == b"O":
                    if self._start_cell(control, judge, descriptors[0]):
                        return descriptors[0], message[1]
                elif message == b"C":
                    os.write(control, self._end_cell().to_bytes(4, sys.byteorder))
                else:
                    return message
        finally:
            socket.detach()

    def begin_cell(self, socket: int) -> bytes:
        self._socket = self._socket_class(fileno=socket)
        disk_bytes, num_files, num_limits = self._scratch.unpack(self._receive_exactly(self._scratch.size))
        kernel_limits = self._receive_exactly(num_limits * self._kernel_limit.size)
        self._confinement.begin_cell(disk_bytes, num_files)
        for kind, value in self._kernel_limit.iter_unpack(kernel_limits):
            if kind == self._resource.RLIMIT_CPU:
                self._cpu_s = value
            elif kind == self._resource.RLIMIT_NPROC:
                self._lower_limit(kind, value + self._confinement.num_own_processes)
            else:
                self._lower_limit(kind, value)
        return self._receive_exactly(int.from_bytes(self._receive_exactly(4), "big"))

    def serve_tests(self) -> None:
        self._socket.sendall(bytes(4))
        while True:
            order, descriptors = self._receive(self._socket, 1)
            if order == b"T" and self._run_test(descriptors):
                return

    def report(self, account: bytes) -> None:
        content = account[:ACCOUNT_BYTES]
        self._account[: len(content)] = content

    def _start_cell(self, control: int, judge: int, descriptor: int) -> bool:
        """Return whether this is the first process of the new cell."""
        try:
            pid = self._confinement.start_cell()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            os.close(control)
            os.close(judge)
            return True
        os.close(descriptor)
        self._cell = max(pid, 0)
        os.write(control, pid.to_bytes(4, sys.byteorder, signed=True))
        return False

    def _end_cell(self) -> int:
        if not self._cell:
            return 0
        status = self._confinement.end_cell(self._cell)
        self._cell = 0
        return status

    def _run_test(self, descriptors: "list[int]") -> bool:
        """Return True in the process of the test; False in the first process, after the report."""
        self._account[:] = SETTING_UP.ljust(
            len(self._account), b"\0"
        )  # all of it: a test may write anywhere in the page
        started = time.monotonic()
        pid = linux.clone()
        if pid == 0:
            self._enter_test(descriptors)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        self._await_end(pid)
        status, user_s, system_s, peak_kib = self._kill_and_reap(pid)
        report = self._report.pack(status, user_s, system_s, time.monotonic() - started, peak_kib)
        report += self._account[:ACCOUNT_BYTES]
        self._confinement.renew_scratch()
        self._socket.sendall(report)
        return False

    def _enter_test(self, descriptors: "list[int]") -> None:
        """Become the test: own session, only the given descriptors, a limit on time, no privilege."""
        is_ready = False
        try:
            os.setsid()
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
            own = self._confinement.own_descriptor
            os.closerange(len(descriptors), own)
            os.closerange(max(len(descriptors), own + 1), 1 << 20)
            self._lower_limit(self._resource.RLIMIT_CPU, self._cpu_s)
            self._confinement.enter_test()
            self._account[: len(SETTING_UP)] = bytes(len(SETTING_UP))
            is_ready = True
        finally:
            if not is_ready:
                os._exit(70)

    def _lower_limit(self, kind: int, value: int) -> None:
        """Never raise a limit that the host set."""
        hard = self._resource.getrlimit(kind)[1]
        lowered = value if hard == self._resource.RLIM_INFINITY else min(value, hard)
        self._resource.setrlimit(kind, (lowered, lowered))

    def _await_end(self, pid: int) -> None:
        handle = os.pidfd_open(pid)
        ready = self._await_either(handle, self._socket.fileno())
        os.close(handle)
        if self._socket.fileno() in ready:
            self._receive(self._socket, 1)  # any message ends the test

    def _kill_and_reap(self, pid: int) -> "tuple[int, float, float, int]":
        """Kill and reap all other processes. Return the wait status of `pid`, and seconds and peak memory of all."""
        self._confinement.kill_all()
        status, user_s, system_s, peak_kib = 0, 0.0, 0.0, 0
        while True:
            try:
                reaped, reaped_status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                return status, user_s, system_s, peak_kib
            if reaped == pid:
                status = reaped_status
            user_s += usage.ru_utime
            system_s += usage.ru_stime
            peak_kib = max(peak_kib, usage.ru_maxrss)

    def _await_either(self, *descriptors: int) -> "set[int]":
        poll = self._poll()
        for descriptor in descriptors:
            poll.register(descriptor, 1)
        return {descriptor for descriptor, _ in poll.poll()}

    def _receive(self, socket: Any, size: int) -> "tuple[bytes, list[int]]":
        """Return a message and its descriptors."""
        try:
            message, ancillary, flags, _ = socket.recvmsg(size, self._cmsg_space)
        except ConnectionError:  # the judge has ended with unread reports
            self._leave()
        if not message:
            self._leave()
        if flags & self._is_cut:  # a descriptor is missing: the test would run without a stream
            os._exit(71)
        packed = b"".join(data for _, _, data in ancillary)
        return message, [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]

    def _leave(self) -> NoReturn:
        """End after the judge has ended."""
        try:
            if self._socket is None:  # in the zygote
                self._confinement.leave()
        finally:
            os._exit(0)

    def _receive_exactly(self, size: int) -> bytes:
        try:
            content = self._socket.recv(size, self._wait_all) if size else b""
        except ConnectionError:
            content = b""
        if len(content) < size:
            os._exit(0)
        return content


Loops = CompiledLoops | PythonLoops


def loops_for(confinement: Confinement) -> Loops:
    """Return the compiled loops if there are any for this confinement."""
    if linux.compiled and isinstance(confinement, Sealed):
        return CompiledLoops(confinement)
    return PythonLoops(confinement)
