"""The first process of a cell: compiles the program, starts one process per test, and cleans up after each.

It is the init of the cell's process namespace: what a test leaves behind becomes its child, and when it ends, the
kernel kills all others. Nothing in the cell may signal, trace or read it. It never sees test data: standard input and
frames go from the judge to the test by descriptor.

On its socket the judge sends `T` with the descriptors of a test, later perhaps `K` to end it early; one report of
fixed size comes back. The judge reads clocks and memory itself; what is reported here can be checked there.
"""

import contextlib
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import types
import warnings
from _socket import CMSG_SPACE, MSG_CTRUNC, MSG_WAITALL
from _socket import socket as Socket  # noqa: N812  the class under the name of a class
from typing import Any

from . import linux
from .process import TestProcess

REPORT = struct.Struct("<idddq")
"""Wait status, user, system and wall seconds, peak memory in KiB. The account of the test follows."""
ACCOUNT_BYTES = 256
SETTING_UP = b"setting up"
"""The account until the runner takes over: a test that ends with it failed through no fault of the program."""
MAX_DESCRIPTORS = 4


class FirstProcess:
    """State of process 1: the compiled program and the socket to the judge."""

    def __init__(self, socket: Socket, runner: Any, main: types.ModuleType, test_id: "int | None") -> None:
        self._socket = socket
        self._runner = runner
        self._main = main
        self._test_id = test_id
        self._owner = os.getuid() if test_id is None else test_id
        self._account = mmap.mmap(-1, mmap.PAGESIZE)
        self._limits: dict[str, Any] = {}
        self._source = ""
        self._program: types.CodeType | None = None

    def prepare(self) -> None:
        """Take limits and source, compile, and say whether that worked."""
        self._limits = json.loads(self._receive_block())
        self._mount_scratch()
        self._limit_self()
        try:
            self._source = self._receive_block().decode("utf-8", "surrogatepass").removeprefix("\ufeff")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._program = compile(self._source, "program.py", "exec", dont_inherit=True)
            answer = {"compile_error": None}
        except SyntaxError as error:
            answer = {"compile_error": f"{type(error).__name__}: {error.msg}", "line": error.lineno}
        except (ValueError, OverflowError, MemoryError, RecursionError) as error:
            answer = {"compile_error": type(error).__name__}
        self._send_block(json.dumps(answer).encode())

    def serve(self) -> None:
        """Run tests until the judge closes the socket."""
        while True:
            order, descriptors = self._receive_order()
            if order == b"T":
                self._run(descriptors)

    def _run(self, descriptors: "list[int]") -> None:
        """One test: start its process, wait for its end or the judge's order, kill the rest, report, clean up."""
        self._account[:] = SETTING_UP.ljust(len(self._account), b"\0")  # all of it: a test may write anywhere
        started = time.monotonic()
        pid = linux.fork()
        if pid == 0:
            try:
                test = TestProcess(self._main, self._program, self._source, self._account, self._limits["cpu_s"])
                test.enter(descriptors, self._test_id)
                self._account[: len(SETTING_UP)] = bytes(len(SETTING_UP))
                self._runner.run(test)
            finally:
                os._exit(70)
        for descriptor in descriptors:
            os.close(descriptor)
        self._await_end(pid)
        status, user_s, system_s, peak_kib = _kill_and_reap(pid)
        wall_s = time.monotonic() - started
        report = REPORT.pack(status, user_s, system_s, wall_s, peak_kib) + self._account[:ACCOUNT_BYTES]
        linux.unmount("/tmp")
        self._mount_scratch()
        self._socket.sendall(report)

    def _await_end(self, pid: int) -> None:
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self._socket.fileno(), select.POLLIN)
        ready = dict(poll.poll())
        os.close(handle)
        if self._socket.fileno() in ready:
            self._receive_order()  # whatever it says, the test is over

    def _mount_scratch(self) -> None:
        size, owner = self._limits["disk_mb"], self._owner
        options = f"mode=0700,uid={owner},gid={owner},size={size}m,nr_inodes={self._limits['files']}"
        linux.mount("scratch", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)

    def _limit_self(self) -> None:
        """Limits that tests inherit; those on time are set in each test."""
        limits = self._limits
        for kind, value in (
            (resource.RLIMIT_AS, limits["address_space"]),
            (resource.RLIMIT_FSIZE, limits["disk_mb"] << 20),
            (resource.RLIMIT_NOFILE, limits["open_files"]),
            (resource.RLIMIT_NPROC, limits["processes"] + (2 if self._test_id is None else 0)),
        ):
            hard = resource.getrlimit(kind)[1]
            lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (lowered, lowered))

    def _receive_order(self) -> "tuple[bytes, list[int]]":
        order, ancillary, flags, _ = self._socket.recvmsg(1, CMSG_SPACE(4 * MAX_DESCRIPTORS))
        if not order:
            os._exit(0)
        if flags & MSG_CTRUNC:  # a descriptor is missing: a test without its streams would be misjudged
            os._exit(71)
        packed = b"".join(data for _, _, data in ancillary)
        return order, [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]

    def _receive_block(self) -> bytes:
        size = int.from_bytes(self._receive_exactly(4), "big")
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        content = self._socket.recv(size, MSG_WAITALL) if size else b""
        if len(content) < size:
            os._exit(0)
        return content

    def _send_block(self, content: bytes) -> None:
        self._socket.sendall(len(content).to_bytes(4, "big") + content)


def _kill_and_reap(pid: int) -> "tuple[int, float, float, int]":
    """Leave no process but this one. Wait status of `pid`; seconds and peak memory of all that ran."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
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


def be_first_process(descriptor: int, runner: Any, main: types.ModuleType, test_id: "int | None") -> None:
    """Run process 1 of a cell. Ends the process when the judge closes its end."""
    linux.die_with_parent()
    linux.set_dumpable(False)
    first = FirstProcess(Socket(fileno=descriptor), runner, main, test_id)
    first.prepare()
    first.serve()
