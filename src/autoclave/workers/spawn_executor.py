"""Executor `spawn`: a process of this machine for each rank of each group.

Each process is a fresh interpreter that leads a session of its own: Ctrl-C in the terminal does not reach it, and all
that it started in turn is killed with it. It reads orders from a Unix socket. When the driver's end of that is closed,
for whatever reason, the process kills its session, so that nothing outlives a driver that was killed with -9.
"""

import contextlib
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from autoclave.core.child import ChildProcess
from autoclave.workers.failures import Died, Event, Order, Returned
from autoclave.workers.remote_ranks import RemoteRanks
from autoclave.workers.wire import Descriptor, Held, Message, Parcel, pack
from autoclave.workers.worker_host import RankInfo, WorkerHost

_TUNABLES = "glibc.cpu.x86_non_temporal_threshold=0x100000"
"""Copies of 1 MiB and more go past the caches. Weights are copied one by one to where this process does not read them;
by default each line of the target is read before it is written over, unless one copy is as large as a shared cache."""


class SpawnExecutor:
    """`devices[rank]` are the GPUs of this machine that the processes of a rank see; none runs on the CPU."""

    def __init__(self, devices: Sequence[tuple[str, ...]]) -> None:
        self._devices = devices
        self._started: list[SpawnRanks] = []

    @property
    def processes(self) -> int:
        return len(self._devices)

    def start(self, group: str, make_worker: Callable[[], Any], *, process_group: bool = False) -> "SpawnRanks":
        rank_infos = [RankInfo(rank, self.processes, own) for rank, own in enumerate(self._devices)]
        ranks = SpawnRanks(group, rank_infos)
        self._started.append(ranks)
        ranks.build(make_worker, "127.0.0.1" if process_group else None)
        return ranks

    def kill(self) -> None:
        for ranks in tuple(self._started):
            ranks.kill()

    def close(self) -> None:
        for ranks in self._started:
            ranks.end()


class SpawnRanks(RemoteRanks):
    """The processes of one group."""

    def __init__(self, group: str, rank_infos: Sequence[RankInfo]) -> None:
        super().__init__(group, [socket.gethostname()] * len(rank_infos))
        self._processes = [_Process(rank_info) for rank_info in rank_infos]

    @property
    def process_ids(self) -> list[int]:
        """Of each rank; a process leads a group of this number."""
        return [process.child.id for process in self._processes]

    def _packed(self, value: Any) -> Parcel:
        return value if isinstance(value, Parcel) else _packed(value.fetch() if isinstance(value, Held) else value)

    def _send(self, rank: int, order: Order, args: Sequence[Parcel]) -> None:
        with contextlib.suppress(OSError):  # it is dead: the next event says so
            self._processes[rank].channel.send(order, args)

    def _next_event(self, ranks: set[int], timeout_s: float | None) -> tuple[int, Event] | None:
        ends = {self._processes[rank].child.connection: rank for rank in sorted(ranks)}
        for end in wait(list(ends), timeout_s):
            rank = ends[end]  # pyright: ignore[reportArgumentType]  one of those given
            return rank, self._processes[rank].next_event()
        return None

    def _kill(self) -> None:
        for process in self._processes:
            process.child.kill()

    def _clear_up(self) -> None:
        for process in self._processes:
            process.end()


class _Process:
    """One process, seen from the driver."""

    def __init__(self, rank_info: RankInfo) -> None:
        seat = rank_info.rank, rank_info.world_size, rank_info.devices
        environment = {"GLIBC_TUNABLES": _TUNABLES, **os.environ}
        self.child = ChildProcess("autoclave.workers.spawn_executor", *seat, environment=environment)
        self.channel = Channel(self.child.connection)

    def next_event(self) -> Event:
        try:
            answer, parcels = self.channel.receive()
        except EOFError:
            return Died(_ending(self.end()))
        return Returned(parcels[0]) if isinstance(answer, Returned) else answer

    def end(self) -> int:
        """Kill the process and wait until it is gone; returns how it ended, which may have been before."""
        code = self.child.end()
        self.child.connection.close()
        return code


def _ending(code: int) -> str:
    """End of a process, as the end of a sentence."""
    if code >= 0:
        return f"ended by itself (exit code {code})"
    hint = "; often the kernel, when memory runs out" if -code == signal.SIGKILL else ""
    return f"was killed by signal {-code} ({signal.Signals(-code).name}{hint})"


def _packed(value: Any) -> Parcel:
    return Parcel.of(pack(value))


# --- In the process ------------------------------------------------------------------------------------------------


def serve(end: int, rank: int, world_size: int, devices: Sequence[str]) -> None:
    """Carry out orders that come in at the socket `end`, one after the other, for as long as the driver lives."""
    channel = Channel(Connection(end))
    host = WorkerHost(RankInfo(rank, world_size, tuple(devices)), _packed)
    orders: queue.SimpleQueue[tuple[Order, list[Parcel]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, orders), daemon=True).start()
    while True:
        answer = host.carry_out(*orders.get())
        if isinstance(answer, Returned):
            channel.send(Returned(None), [answer.value])
        else:
            channel.send(answer, [])


def _listen(channel: "Channel", orders: queue.SimpleQueue[tuple[Order, list[Parcel]]]) -> None:
    """Take orders while another is carried out: that the driver has gone must be heard at once."""
    try:
        while True:
            orders.put(channel.receive())
    finally:
        os.killpg(0, signal.SIGKILL)


class Channel:
    """Sends parcels over a connection, with the memory of large arrays as descriptors behind each frame."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, content: Any, parcels: Sequence[Parcel]) -> None:
        """Send a frame. Raises OSError: the other end is closed."""
        self._connection.send_bytes(pack((content, [(parcel.body, parcel.sizes) for parcel in parcels])).body)
        for parcel in parcels:
            if parcel.memory:
                send_handle(self._connection, parcel.memory.number, None)

    def receive(self) -> tuple[Any, list[Parcel]]:
        """The next frame; waits for it. Raises EOFError: the other end is closed."""
        try:
            content, contents = Message(self._connection.recv_bytes(), ()).fetch()
            return content, [Parcel(body, sizes, self._memory() if sizes else None) for body, sizes in contents]
        except OSError as error:  # also in the middle of a frame
            raise EOFError from error

    def _memory(self) -> Descriptor:
        found = Descriptor(recv_handle(self._connection))
        os.set_inheritable(found.number, False)
        return found
