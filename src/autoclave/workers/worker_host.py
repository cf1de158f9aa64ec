"""Host of one worker in its own process, whichever executor started it: its environment and its calls."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoclave.workers.executor import Interface
from autoclave.workers.failures import Answer, Failure, Order, Raised, Returned
from autoclave.workers.wire import Held

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]  its documented place


@dataclass(frozen=True, slots=True)
class RankInfo:
    """A worker's place in its group: rank, how many there are, and the GPUs of this machine that are its own."""

    rank: int
    world_size: int
    devices: tuple[str, ...]

    def settle(self) -> None:
        """Tell libraries in this process, by the variables that they look for. Before any of them looks for devices."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices)
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(self.rank), str(self.world_size)
        os.environ["LOCAL_RANK"] = "0"  # it sees no devices but its own


class WorkerHost:
    """Makes a worker and calls it."""

    def __init__(self, rank_info: RankInfo, packed: Callable[[Any], Held]) -> None:
        """`packed` gives a result the form in which it is sent."""
        rank_info.settle()
        self._rank_info, self._packed = rank_info, packed
        self._worker: Any = None
        self._store: TCPStore | None = None

    def carry_out(self, order: Order, args: Sequence[Held]) -> Answer:
        """Do what is ordered, and answer with the packed result. Whatever is raised is an answer too."""
        try:
            result = self._carry_out(order, [arg.fetch() for arg in args])
            return Returned(self._packed(result if order.is_wanted else None))
        except BaseException as error:  # noqa: BLE001  all of it is raised in the driver
            return Raised(Failure.of(error))

    def _carry_out(self, order: Order, args: list[Any]) -> Any:
        if order.operation == "open_store":
            return self._open_store(*args)
        if order.operation == "build":
            return self._build(*args)
        return getattr(self._worker, order.method)(*args)

    def _open_store(self, address: str) -> tuple[str, int]:
        """Open the store where the ranks of the group meet, on a port that is free."""
        from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

        self._store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
        return address, self._store.port

    def _build(self, make_worker: Callable[[], Any], store: tuple[str, int] | None) -> Interface:
        if store:
            self._join(*store)
        self._worker = make_worker()
        return Interface.of(type(self._worker))

    def _join(self, address: str, port: int) -> None:
        """Enter the process group: gloo for tensors on the CPU, NCCL for those on GPUs."""
        from torch.distributed import TCPStore, init_process_group  # pyright: ignore[reportPrivateImportUsage]

        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)
        init_process_group(
            backend="cpu:gloo,cuda:nccl" if self._rank_info.devices else "gloo",
            store=self._store or TCPStore(address, port, is_master=False),
            rank=self._rank_info.rank,
            world_size=self._rank_info.world_size,
        )
