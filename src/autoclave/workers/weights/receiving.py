"""A sampler's side of a publish: weights as they come in by each route, and the engine that takes them over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from autoclave.core import FaultError
from autoclave.models import added
from autoclave.rollout import Engine
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.weights import device_memory
from autoclave.workers.weights.broadcast import BUCKET_BYTES, BroadcastGroup, Meeting
from autoclave.workers.weights.memory import WeightMemory
from autoclave.workers.weights.offer import Buckets, Offer
from autoclave.workers.weights.routes import Route, Seat

ALL_SLOTS = (1 << 63) - 1


class Inlet(Protocol):
    """Where weights come in."""

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """The weights of `version`, by name; they stay as they are until a later version is settled.

        Raises:
            FaultError: they are not there whole.
        """
        ...

    def settle(self, is_taken: bool) -> None:
        """Let go of the former version if the engine has taken the new one over, else of that."""
        ...


class OwnTensors:
    """Route `alias`: what was sent are the trainer's tensors."""

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """See `Inlet`."""
        return sent

    def settle(self, is_taken: bool) -> None:
        """They are the trainer's; there is nothing to let go."""


class MappedMemory:
    """Routes `memory` and `device`: views of a slot, which is held as long as the engine uses it."""

    def __init__(self, offer: Offer, name: str, number: int) -> None:
        """Map the memory, with seat `number` there, as `name`.

        Raises:
            HostError: it cannot be opened here.
        """
        slots = device_memory.opened(offer.address.token, offer.handles) if offer.handles else None
        self._memory = WeightMemory.open(offer.table, offer.address, slots=slots)
        self._number = number
        self._held, self._taken = 0, 0  # bit masks of slots
        self._memory.control.sit(number, name)

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """See `Inlet`."""
        slot = self._memory.control.hold(self._number, version)
        self._taken = 1 << slot
        return self._memory.views(slot)

    def settle(self, is_taken: bool) -> None:
        """See `Inlet`."""
        if is_taken:
            self._held = self._taken
        self._memory.control.let_go(self._number, ALL_SLOTS & ~self._held)


class FetchedBuckets:
    """Route `buckets`: what was sent are arrays that belong to this process."""

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """See `Inlet`."""
        if not isinstance(sent, Buckets) or sent.version != version:
            raise FaultError(f"weights of version {version} were announced, and others came: {_version_of(sent)}")
        return unpacked(sent)

    def settle(self, is_taken: bool) -> None:
        """The arrays are freed with the last view of them."""


class ReceivedBroadcast:
    """Route `broadcast`: two buffers of this process, of which the one that the engine does not use is filled."""

    def __init__(self, offer: Offer, device: torch.device) -> None:
        self._table, self._device = offer.table, device
        self._slots = torch.empty((2, offer.table.num_bytes), dtype=torch.uint8, device=device)
        self._used = 0
        self._group: BroadcastGroup | None = None

    def meet(self, meeting: Meeting, member: int) -> None:
        """Enter a group, in place of the one before."""
        self._group = None
        self._group = BroadcastGroup(meeting, member, self._device)

    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """See `Inlet`; waits for the sender."""
        if self._group is None:
            raise FaultError(f"version {version}: this sampler is in no broadcast group; attach it anew")
        slot = self._slots[1 - self._used]
        self._group.broadcast(slot, self._table.buckets(BUCKET_BYTES))
        return self._table.views(slot)

    def settle(self, is_taken: bool) -> None:
        """See `Inlet`."""
        self._used = 1 - self._used if is_taken else self._used


class AddedAdapter:
    """Weights that are kept, with the adapter that comes in by another inlet added to them."""

    def __init__(self, inlet: Inlet, kept: Mapping[str, Tensor], scale: float) -> None:
        self._inlet, self._kept, self._scale = inlet, kept, scale

    @torch.no_grad()
    def take(self, version: int, sent: Any) -> Mapping[str, Tensor]:
        """See `Inlet`. What is returned beside the kept weights is new memory."""
        adapter = self._inlet.take(version, sent)
        whole = dict(self._kept)
        for down in [name for name in adapter if ".lora_A." in name]:
            layer = down.partition(".lora_A.")[0]
            up = down.replace(".lora_A.", ".lora_B.")
            whole[f"{layer}.weight"] = added(
                self._kept[f"{layer}.weight"], adapter[down], adapter[up], scale=self._scale
            )
        return whole

    def settle(self, is_taken: bool) -> None:
        """See `Inlet`."""
        self._inlet.settle(True)  # the sums are copies: nothing of the adapter's memory is in use


def unpacked(sent: Buckets) -> dict[str, Tensor]:
    """The weights in `sent`, by all their names, as views of its arrays."""
    return sent.table.views_of_buckets({piece: torch.from_numpy(array) for piece, array in sent.pieces.items()})


def _version_of(sent: Any) -> str:
    return f"version {sent.version}" if isinstance(sent, Buckets) else "none"


def open_inlet(offer: Offer | None, route: Route, name: str, number: int, device: torch.device) -> Inlet:
    """The inlet of a route.

    Raises:
        HostError: the memory of the offer cannot be opened here.
    """
    if offer is None:
        return OwnTensors()
    if route is Route.BUCKETS:
        return FetchedBuckets()
    return ReceivedBroadcast(offer, device) if route is Route.BROADCAST else MappedMemory(offer, name, number)


class ReceivesWeights:
    """A worker whose engine, `_engine`, samples with what a trainer publishes. It computes on `device`."""

    _engine: Engine
    _inlet: Inlet | None = None
    _broadcast: ReceivedBroadcast | None = None
    device = torch.device("cpu")

    @register(Dispatch.ONE_TO_ALL)
    def weights_seat(self) -> Seat:
        """Where the engine is."""
        return Seat.of(self.device)

    @register(Dispatch.ONE_TO_ALL)
    def open_inlet(self, offer: Offer | None, route: Route, name: str, number: int, frozen: Buckets | None) -> None:
        """Get ready for weights; the engine stays as it is. `frozen` are those that adapters are added to.

        Raises:
            HostError: the memory of the offer cannot be opened here.
        """
        inlet = open_inlet(offer, route, name, number, self.device)
        self._broadcast = inlet if isinstance(inlet, ReceivedBroadcast) else None
        if offer is not None and offer.scale is not None and frozen is not None:
            inlet = AddedAdapter(inlet, unpacked(frozen), offer.scale)
        self._inlet = inlet

    @register(Dispatch.ONE_TO_ALL)
    def meet(self, meeting: Meeting, member: int) -> None:
        """Enter a broadcast group, as one that receives."""
        if self._broadcast:
            self._broadcast.meet(meeting, member)

    @register(Dispatch.ONE_TO_ALL)
    def take_weights(self, version: int, sent: Any) -> None:
        """Sample with the weights of `version` from now on; if anything fails, with those of before.

        Raises:
            FaultError: they are not there whole.
            InputError: they do not fit the engine's model.
        """
        if self._inlet is None:
            raise RuntimeError("this sampler has no way for weights to come in: its publisher must attach it")
        weights = self._inlet.take(version, sent)
        is_taken = False
        try:
            self._engine.update_weights(version, weights)
            is_taken = True
        finally:
            self._inlet.settle(is_taken)
