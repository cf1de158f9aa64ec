"""A sampler's side of a publish: the calls of its worker, which load no model library before weights come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoclave.rollout import AdapterEngine, Engine
from autoclave.workers.dispatch import Dispatch, register

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from autoclave.models import Digest
    from autoclave.workers.weights.broadcast import Rendezvous
    from autoclave.workers.weights.buffer_descriptor import Buckets, BufferDescriptor
    from autoclave.workers.weights.receivers import Receiver
    from autoclave.workers.weights.routes import Endpoint, Route


class ReceivesWeights:
    """A worker whose engine, `_engine`, samples with what a trainer publishes. It computes on `device`, or the CPU."""

    _engine: Engine
    _receiver: Receiver | None = None
    _unread: int | None = None  # frozen weights that the engine cannot report; None until they were compared
    device: torch.device | None = None

    @register(Dispatch.ALL_TO_LIST)
    def weights_endpoint(self) -> Endpoint:
        from autoclave.workers.weights.routes import Endpoint

        return replace(Endpoint.of(self.device), holds_adapter=self._holds_adapter)

    @register(Dispatch.EACH)
    def open_receiver(
        self, place: tuple[Route, int], descriptor: BufferDescriptor | None, name: str, frozen: Buckets | None
    ) -> None:
        """Get ready for weights; the engine stays as it is.

        Args:
            place: by which route they come, and the number of the seat that is this rank's.
            offer: what the trainer writes to; None if its own tensors come.
            name: what messages call this sampler.
            frozen: weights that adapters are added to, if these are all that comes.

        Raises:
            HostError: the memory of the offer cannot be opened here.
        """
        from autoclave.workers.weights.receivers import open_receiver

        route, number = place
        self._receiver, self._unread = open_receiver(descriptor, route, name, number, frozen, self.device), None

    @register(Dispatch.ONE_TO_ALL)
    def close_receiver(self) -> None:
        """Let go of the weights that came in; the engine must not compute until others do."""
        if self._receiver:
            self._receiver.close()
        self._receiver = None

    @register(Dispatch.EACH)
    def join(self, member: int | None, rendezvous: Rendezvous) -> None:
        """Enter a broadcast group, as the member of this number, which receives; None: this rank is none."""
        if self._receiver and member is not None:
            self._receiver.join(rendezvous, member)

    @register(Dispatch.ALL_TO_LIST)
    def take_weights(self, version: int, sent: Any, published: Mapping[str, Digest] | None = None) -> int:
        """Sample with the weights of `version` from now on; if they cannot be taken, with those of before.

        Args:
            version: what tokens are stamped with from now on.
            sent: what the trainer handed over, if the memory does not have it.
            published: digests of the trainer's weights; the engine's are compared with them if they are given.

        Returns:
            How many weights the engine cannot report, so that they were not compared.

        Raises:
            FaultError: they are not there whole, or the engine computes with others.
            InputError: they do not fit the engine's model.
        """
        if self._receiver is None:
            raise RuntimeError("this sampler has no way for weights to come in: `open_receiver` comes first")
        weights = self._receiver.take(version, sent)
        is_taken = False
        try:
            self._engine.update_weights(version, weights)
            is_taken = True
        finally:
            self._receiver.settle(is_taken)
        if published is None:
            return 0
        from autoclave.workers.weights.verification import verify_frozen, verify_weights

        if not self._holds_adapter:
            return verify_weights(self._engine, weights, self._receiver.arrived(weights), published)
        from autoclave.models import is_of_adapter

        if self._unread is None:  # they stay as they are
            frozen = {name: digest for name, digest in published.items() if not is_of_adapter(name)}
            self._unread = verify_frozen(self._engine, frozen)
        sent = {name: digest for name, digest in published.items() if is_of_adapter(name)}
        return self._unread + verify_weights(self._engine, weights, weights, sent)

    @property
    def _holds_adapter(self) -> bool:
        return isinstance(self._engine, AdapterEngine) and self._engine.holds_adapter
