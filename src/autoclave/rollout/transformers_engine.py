"""Continuous batching with a Transformers model in this process.

Ended sequences leave the running batch, and waiting ones take their places. Random numbers belong to the request. Which
sequences are computed together does not depend on time, unless requests of several calls of `add` mix: equal weights
and requests give equal responses.
"""

import time
from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor

from autoclave.config import LoraConfig
from autoclave.core import Completion, FinishReason
from autoclave.models import Digest, Policy, WeightViews, digests, is_of_adapter, parts_of, with_adapter
from autoclave.rollout.interface import EngineStats, Request
from autoclave.rollout.responses import Responses
from autoclave.rollout.running_batch import RunningBatch, Sampled

SHRINK_AT = 0.75
"""Share of the batch still being sampled at or below which ended rows are dropped and waiting requests admitted."""

SPARE = 4
"""While requests wait, the cache grows by 1 / SPARE of the longest response at a time, since requests that join may be
shorter than those that leave."""


class TransformersEngine:
    """Samples with `policy`, which the engine owns: its weights become those of `update_weights`. See `Engine`."""

    def __init__(
        self, policy: Policy, *, batch_size: int, mixes_batches: bool = False, lora: LoraConfig | None = None
    ) -> None:
        """Sample at most `batch_size` requests at a time; with `mixes_batches`, of several calls of `add` together.

        With `lora`, `update_weights` gets the weights of such an adapter, which has no effect before.
        """
        self._policy, self._batch_size, self._mixes_batches = policy, batch_size, mixes_batches
        self.holds_adapter = lora is not None
        if lora:
            with_adapter(policy.model, lora, seed=0)
        self._views = WeightViews(policy.model, adapter_only=self.holds_adapter)
        self._version = self._newest = 0
        self._waiting: deque[Sampled] = deque()
        self._responses = Responses(policy.tokenizer, policy.end_tokens)
        self._batch = self._empty_batch()
        self._over: list[Sampled] = []
        self._prompt_tokens = self._sampled_tokens = 0

    def add(self, requests: Mapping[int, Request]) -> None:
        """See `Engine`."""
        self._newest += not self._mixes_batches
        self._waiting += [Sampled(number, request, batch=self._newest) for number, request in requests.items()]

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Compute with `weights` themselves where device and number format allow; see `Engine`."""
        self._views.take(weights)
        self._version = version
        # Sequences in flight are recomputed with the new weights, before those that wait.
        self._waiting.extendleft(reversed(self._batch.sequences))
        self._batch = self._empty_batch()

    def weight_digests(self) -> dict[str, Digest]:
        """Digests of what the model computes with; see `InspectableEngine`."""
        state = self._policy.model.state_dict()
        return digests({part.name: state[part.base] for part in parts_of(state)})

    def adapter_digests(self) -> dict[str, Digest]:
        """Digests of the adapter that the model computes with; see `AdapterEngine`."""
        state = self._policy.model.state_dict()
        return digests({name: tensor for name, tensor in state.items() if is_of_adapter(name)})

    @torch.inference_mode()
    def step(self, seconds: float) -> list[tuple[int, Completion]]:
        """See `Engine`."""
        deadline = time.monotonic() + seconds
        while self._batch.sequences or self._waiting:
            self._admit()
            running = len(self._batch.sequences)
            self._over += self._batch.decode(spare=self._spare, shrink_at=SHRINK_AT)
            self._sampled_tokens += running
            if time.monotonic() >= deadline:
                break
        over, self._over = self._over, []
        return [(sequence.number, self._completion(sequence)) for sequence in over]

    @property
    def stats(self) -> EngineStats:
        running = len(self._batch.sequences)
        return EngineStats(running, len(self._waiting), self._prompt_tokens, self._sampled_tokens)

    def close(self) -> None:
        self._waiting.clear()
        self._batch = self._empty_batch()

    def _empty_batch(self) -> RunningBatch:
        return RunningBatch(self._policy, self._responses, self._version)

    def _admit(self) -> None:
        """Fill free places with the requests that have waited longest, once enough places are free."""
        running = self._batch.sequences
        if running and (len(running) > SHRINK_AT * self._batch_size or not self._batch.can_be_joined):
            return
        batch = running[0].batch if running else self._waiting[0].batch
        joining: list[Sampled] = []
        while self._waiting and len(running) + len(joining) < self._batch_size and self._waiting[0].batch == batch:
            joining.append(self._waiting.popleft())
        if joining:
            self._prompt_tokens += self._batch.join(joining, spare=self._spare)

    def _spare(self) -> int:
        longest = max(sequence.request.parameters.max_new_tokens for sequence in self._batch.sequences)
        return max(1, longest // SPARE if self._waiting else longest)

    def _completion(self, sequence: Sampled) -> Completion:
        reason = FinishReason.STOP if sequence.is_ended or sequence.is_stopped else FinishReason.LENGTH
        return self._responses.completion(sequence, reason, "raw")
