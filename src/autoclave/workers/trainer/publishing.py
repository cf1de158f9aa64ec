"""The trainer's side of a publish: its memory, and what leaves it by each route."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from autoclave.models import Digest, adapter_scale, joined_digests
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.trainer.peers import gather, num_ranks, this_rank
from autoclave.workers.trainer.sharding import device_of
from autoclave.workers.trainer.sources import AdjacentWeights, Source, source_digests, sources_of, write_sources
from autoclave.workers.weights.broadcast import BUCKET_BYTES, BroadcastGroup, Rendezvous, open_store
from autoclave.workers.weights.buffer_descriptor import Buckets, BufferDescriptor, Form
from autoclave.workers.weights.memory import WeightMemory, settle, this_host
from autoclave.workers.weights.routes import Endpoint
from autoclave.workers.weights.table import WeightTable

R = TypeVar("R")


class Sender:
    """Writes the weights of a model into a memory that samplers read. Of all ranks."""

    def __init__(self, model: nn.Module, form: Form, *, num_slots: int, on_device: bool) -> None:
        """Make the memory, on rank 0; ranks of its host write their own rows into it.

        Raises HostError: there is too little memory. ValueError: adapters alone are wanted of a model that has none.
        """
        self._model, self._form = model, form
        self._device = device_of(model) if on_device else torch.device("cpu")
        sources = self._sources()
        table = WeightTable.of((source.weight for source in sources), form.sent_dtype)
        self._adjacent = AdjacentWeights.of(sources, table) if num_ranks() == 1 and not on_device else None
        self.descriptor = _on_first_rank(lambda: self._made(table, num_slots))
        # A GPU is one rank's; hosts have memories of their own. There each weight is gathered for rank 0 to write.
        self.gathers = on_device or len(set(gather(this_host()))) > 1
        if this_rank() and not self.gathers:
            self._memory = WeightMemory.open(table, self.descriptor.address, is_writer=True)
        self._slot, self._version = 0, 0

    def _made(self, table: WeightTable, num_slots: int) -> BufferDescriptor:
        if not table.entries:
            raise ValueError("no weights to publish: adapters alone are wanted, and this model has none")
        self._memory = WeightMemory.create(table, num_slots, self._device)
        scale = adapter_scale(self._model) if self._form.adapter_only else None
        return BufferDescriptor(table, self._memory.address, scale)

    def _sources(self) -> list[Source]:
        return sources_of(self._model, adapter_only=self._form.adapter_only)

    def write(self, version: int, deadline_s: float) -> None:
        """Write the weights as they are now, as `version`.

        Raises FaultError: a sampler still uses the memory that they are to go to after `deadline_s`; it is named.
        """
        slot = _on_first_rank(lambda: self._memory.control.begin(version, deadline_s))
        self._write(slot)
        settle(self._device)
        gather(None)  # all have written
        if this_rank() == 0:
            self._memory.control.commit(slot)
        self._slot, self._version = slot, version

    def _write(self, slot: int) -> None:
        if self._adjacent and self._adjacent.write(self._memory.slots[slot]):
            return
        places = self._memory.views(slot) if this_rank() == 0 or not self.gathers else {}
        write_sources(self._sources(), places, gathers=self.gathers)

    def packed(self) -> Buckets | None:
        """Weights written last, as arrays; on rank 0."""
        if this_rank():
            return None
        table, slot = self.descriptor.table, self._memory.slots[self._slot]
        pieces = {piece: slot[slice(*piece)].cpu().numpy() for piece in table.buckets(BUCKET_BYTES)}
        return Buckets(self._version, table, pieces)

    def broadcast(self, group: BroadcastGroup) -> None:
        """Send what was written last to the members of `group`."""
        group.broadcast(self._memory.slots[self._slot], self.descriptor.table.buckets(BUCKET_BYTES))


class SendsWeights:
    """A worker whose weights are published, `_model`. Calls are of all ranks; rank 0 answers."""

    _model: Any
    _sender: Sender | None = None
    _store: Any = None
    _group: BroadcastGroup | None = None
    _frozen_digests: Mapping[Form, Mapping[str, Digest]] = {}

    @register(Dispatch.ONE_TO_ALL)
    def survey_weights(self, form: Form) -> tuple[Endpoint, bool]:
        """Endpoint of rank 0, and whether its own tensors are what would be published in this form."""
        is_own = (
            not form.adapter_only and num_ranks() == 1 and all(source.is_plain for source in sources_of(self._model))
        )
        has_format = form.dtype is None or all(
            tensor.dtype == form.dtype for tensor in self._model.parameters() if tensor.is_floating_point()
        )
        return Endpoint.of(device_of(self._model)), is_own and has_format

    @register(Dispatch.ONE_TO_ALL)
    def open_weights(self, form: Form, num_slots: int, on_device: bool) -> BufferDescriptor:
        """Make the memory to publish by, in place of an earlier one; see `Sender`."""
        self._frozen_digests = {}
        self._sender = None  # an earlier memory is free as soon as samplers have let it go
        self._sender = Sender(self._model, form, num_slots=num_slots, on_device=on_device)
        return self._sender.descriptor

    @register(Dispatch.ONE_TO_ALL)
    def write_weights(self, version: int, deadline_s: float) -> None:
        self._opened().write(version, deadline_s)

    @register(Dispatch.ONE_TO_ALL)
    def weight_digests(self, form: Form) -> dict[str, Digest]:
        """Digests of what is published in this form, from the tensors in training themselves.

        Of adapters alone: their matrices, and the frozen weights without them.
        """
        gathers = bool(self._sender and self._sender.gathers)
        sources = sources_of(self._model, adapter_only=form.adapter_only)
        found = joined_digests(gather(source_digests(sources, form.sent_dtype, gathers=gathers)))
        if form.adapter_only and form not in self._frozen_digests:
            frozen = source_digests(self._frozen_sources(), form.dtype, gathers=gathers)
            self._frozen_digests = {form: joined_digests(gather(frozen))}
        return {**found, **self._frozen_digests.get(form, {})}

    def _frozen_sources(self) -> list[Source]:
        return [replace(source, adapter=None) for source in sources_of(self._model)]

    @register(Dispatch.ONE_TO_ALL)
    def own_weights(self) -> Mapping[str, Tensor]:
        """The tensors that learn, themselves, by name: for a sampler of the same process."""
        return {name: tensor.detach() for name, tensor in self._model.state_dict(keep_vars=True).items()}

    @register(Dispatch.ONE_TO_ALL)
    def packed_weights(self) -> Buckets | None:
        return self._opened().packed()

    @register(Dispatch.ONE_TO_ALL)
    def frozen_weights(self, form: Form) -> Buckets | None:
        """A copy of the weights without what adapters learnt, which stay as they are for a whole run."""
        sources = self._frozen_sources()
        table = WeightTable.of((source.weight for source in sources), form.dtype)
        buffer = torch.empty(table.num_bytes if this_rank() == 0 else 0, dtype=torch.uint8)
        write_sources(sources, table.views(buffer) if this_rank() == 0 else {}, gathers=True)
        pieces = {piece: buffer[slice(*piece)].numpy() for piece in table.buckets(BUCKET_BYTES)}
        return Buckets(0, table, pieces) if this_rank() == 0 else None

    @register(Dispatch.ONE_TO_ALL)
    def open_rendezvous(self) -> tuple[str, int]:
        """Address and port where members of broadcast groups meet."""
        if self._store is None and this_rank() == 0:
            self._store = open_store()
        return (self._store.host, self._store.port) if self._store else ("", 0)

    @register(Dispatch.ONE_TO_ALL)
    def join(self, rendezvous: Rendezvous) -> None:
        """Enter a broadcast group, as the one that sends; rank 0 does."""
        if this_rank() == 0:
            self._group = BroadcastGroup(rendezvous, 0, self._opened()._device, self._store)

    @register(Dispatch.ONE_TO_ALL)
    def broadcast_weights(self) -> None:
        """Send what was written last to the group that was entered last."""
        if self._group:
            self._opened().broadcast(self._group)

    def _opened(self) -> Sender:
        if self._sender is None:
            raise RuntimeError("this worker has no memory to publish by yet: its publisher must begin again")
        return self._sender


def _on_first_rank(work: Callable[[], R]) -> R:
    """Return or raise on all ranks what `work` does on rank 0."""
    result: Any = None
    error: Exception | None = None
    if this_rank() == 0:
        try:
            result = work()
        except Exception as found:  # noqa: BLE001  raised on all ranks
            error = found
    result, error = gather((result, error))[0]
    if error is not None:
        raise error
    return result
