"""Receivers of weights in a sampler, one for each route."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from autoclave.core import FaultError
from autoclave.models import added
from autoclave.workers.weights.broadcast import BUCKET_BYTES, BroadcastGroup, Rendezvous
from autoclave.workers.weights.buffer_descriptor import Buckets, BufferDescriptor
from autoclave.workers.weights.memory import WeightMemory
from autoclave.workers.weights.routes import Route

ALL_SLOTS = (1 << 63) - 1


class Receiver(ABC):
    """Receiver of weights."""

    @abstractmethod
    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """The weights of `version`, by name; they stay as they are until a later version is settled.

        Raises FaultError: they are not there whole.
        """

    def arrived(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what the trainer sent for `weights`, those that were taken last."""
        return weights

    def settle(self, is_taken: bool) -> None:  # noqa: B027  most hold nothing
        """Let go of the former version if the engine has taken the new one over, else of that."""

    def close(self) -> None:  # noqa: B027
        """Let go of all: the engine does not compute until weights come in by another inlet."""

    def join(self, rendezvous: Rendezvous, member: int) -> None:  # noqa: B027
        """Enter a broadcast group, in place of the one before, if weights come by broadcast."""


class OwnTensors(Receiver):
    """Route `alias`: what was sent are the trainer's tensors."""

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        return sent


class MappedMemory(Receiver):
    """Routes `memory` and `device`: views of a slot, which is held as long as the engine uses it."""

    def __init__(self, descriptor: BufferDescriptor, name: str, number: int) -> None:
        """Map the memory, with seat `number` there, as `name`. Raises HostError: it cannot be opened here."""
        self._memory = WeightMemory.open(descriptor.table, descriptor.address)
        self._number = number
        self._held, self._taken = 0, 0  # bit masks of slots
        self._memory.control.register(number, name)

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        slot = self._memory.control.hold(self._number, version)
        self._taken = 1 << slot
        return self._memory.views(slot)

    def settle(self, is_taken: bool) -> None:
        if is_taken:
            self._held = self._taken
        self._memory.control.let_go(self._number, ALL_SLOTS & ~self._held)

    def close(self) -> None:
        self._memory.control.let_go(self._number, ALL_SLOTS)


class FetchedBuckets(Receiver):
    """Route `buckets`: what was sent are arrays that belong to this process."""

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        if not isinstance(sent, Buckets) or sent.version != version:
            raise FaultError(f"weights of version {version} were announced, and others came: {_version_of(sent)}")
        return unpacked(sent)


class ReceivedBroadcast(Receiver):
    """Route `broadcast`: two buffers of this process, of which the one that the engine does not use is filled."""

    def __init__(self, descriptor: BufferDescriptor, device: torch.device) -> None:
        self._table, self._device = descriptor.table, device
        self._slots = torch.empty((2, descriptor.table.num_bytes), dtype=torch.uint8, device=device)
        self._used = 0
        self._group: BroadcastGroup | None = None

    def join(self, rendezvous: Rendezvous, member: int) -> None:
        self._group = None
        self._group = BroadcastGroup(rendezvous, member, self._device)

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """See `Receiver`; waits for the sender. One that has come after a broadcast is sent buckets in its place."""
        if isinstance(sent, Buckets):
            return unpacked(sent)
        if self._group is None:
            raise FaultError(f"version {version}: this sampler is in no broadcast group")
        slot = self._slots[1 - self._used]
        self._group.broadcast(slot, self._table.buckets(BUCKET_BYTES))
        return self._table.views(slot)

    def settle(self, is_taken: bool) -> None:
        self._used = 1 - self._used if is_taken else self._used

    def close(self) -> None:
        self._group = None


class AddedAdapter(Receiver):
    """Weights that are kept, with the adapter that comes in by another inlet added to them."""

    def __init__(self, receiver: Receiver, kept: Mapping[str, Tensor], scale: float) -> None:
        self._receiver, self._kept, self._scale = receiver, kept, scale
        self._adapter: Mapping[str, Tensor] = {}

    @torch.no_grad()
    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """See `Receiver`. What is returned beside the kept weights is new memory."""
        self._adapter = adapter = self._receiver.take(version, sent)
        whole = dict(self._kept)
        for down in [name for name in adapter if ".lora_A." in name]:
            layer = down.partition(".lora_A.")[0]
            up = down.replace(".lora_A.", ".lora_B.")
            whole[f"{layer}.weight"] = added(
                self._kept[f"{layer}.weight"], adapter[down], adapter[up], scale=self._scale
            )
        return whole

    def arrived(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {**self._adapter, **self._kept}

    def settle(self, is_taken: bool) -> None:
        self._receiver.settle(True)  # the sums are copies: nothing of the adapter's memory is in use

    def close(self) -> None:
        self._receiver.close()

    def join(self, rendezvous: Rendezvous, member: int) -> None:
        self._receiver.join(rendezvous, member)


def unpacked(sent: Buckets) -> dict[str, Tensor]:
    """The weights in `sent`, by all their names, as views of its arrays."""
    return sent.table.views_of_buckets({piece: torch.from_numpy(array) for piece, array in sent.pieces.items()})


def _version_of(sent: Any) -> str:
    return f"version {sent.version}" if isinstance(sent, Buckets) else "none"


def open_receiver(
    descriptor: BufferDescriptor | None,
    route: Route,
    name: str,
    number: int,
    frozen: Buckets | None,
    device: torch.device | None,
) -> Receiver:
    """The inlet of a route, for a sampler on `device`; see `ReceivesWeights.open_receiver`.

    Raises HostError: the memory of the offer cannot be opened here.
    """
    if descriptor is None:
        return OwnTensors()
    receiver = _receiver(descriptor, route, name, number, device or torch.device("cpu"))
    if descriptor.scale is None or frozen is None:
        return receiver
    return AddedAdapter(receiver, unpacked(frozen), descriptor.scale)


def _receiver(descriptor: BufferDescriptor, route: Route, name: str, number: int, device: torch.device) -> Receiver:
    if route is Route.BUCKETS:
        return FetchedBuckets()
    return ReceivedBroadcast(descriptor, device) if route is Route.BROADCAST else MappedMemory(descriptor, name, number)
