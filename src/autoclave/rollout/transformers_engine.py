"""Continuous batching with a Transformers model in this process.

Sequences that are done leave the batch, and others take their places. Random numbers belong to the request, and what is
computed together depends on what was added, in which order, and not on time: equal weights and requests give equal
responses, as long as requests of several additions do not mix.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from autoclave.config import LoraConfig
from autoclave.core import Completion, FinishReason
from autoclave.models import Digest, Policy, WeightViews, digests, is_of_adapter, parts_of, with_adapter
from autoclave.rollout.interface import EngineStats, Request
from autoclave.rollout.responses import Responses
from autoclave.rollout.running_batch import RunningBatch, Sampled

SHRINK_AT = 0.75
"""Finished rows are dropped, and others take their places, when at most this share of the batch is still sampled."""

SPARE = 4
"""While requests wait, a cache gets room for this part of the longest response at a time: those that join may need less
than those that leave."""


class TransformersEngine:
    """Samples with `policy`, which the engine owns: its weights become those of `update_weights`. See `Engine`."""

    def __init__(
        self, policy: Policy, *, batch_size: int, mixes_additions: bool = False, lora: LoraConfig | None = None
    ) -> None:
        """Sample at most `batch_size` requests at a time; only with `mixes_additions`, those of several additions
        together.

        With `lora` new weights are those of such an adapter, which changes nothing before the first of them.
        """
        self._policy, self._batch_size, self._mixes_additions = policy, batch_size, mixes_additions
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
        """Take these on; see `Engine`."""
        self._newest += not self._mixes_additions
        self._waiting += [Sampled(number, request, addition=self._newest) for number, request in requests.items()]

    def abort(self, numbers: Collection[int]) -> None:
        """End these; see `Engine`."""
        wanted = set(numbers)
        self._over += self._batch.drop(wanted)
        self._over += [sequence for sequence in self._waiting if sequence.number in wanted]
        self._waiting = deque(sequence for sequence in self._waiting if sequence.number not in wanted)

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Compute with `weights` themselves where device and number format allow; see `Engine`."""
        self._views.take(weights)
        self._version = version
        # What was sampled is computed again with the new weights, as soon as it is their turn, which is first.
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
        """Sample on; see `Engine`."""
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
        """Fill the places that are free with those that have waited longest, if it is enough of them."""
        running = self._batch.sequences
        if running and (len(running) > SHRINK_AT * self._batch_size or not self._batch.can_be_joined):
            return
        batch = running[0].addition if running else self._waiting[0].addition
        joining: list[Sampled] = []
        while self._waiting and len(running) + len(joining) < self._batch_size and self._waiting[0].addition == batch:
            joining.append(self._waiting.popleft())
        if joining:
            self._prompt_tokens += self._batch.join(joining, spare=self._spare)

    def _spare(self) -> int:
        longest = max(sequence.request.parameters.max_new_tokens for sequence in self._batch.sequences)
        return max(1, longest // SPARE if self._waiting else longest)

    def _completion(self, sequence: Sampled) -> Completion:
        if sequence.is_ended or sequence.is_stopped:
            reason = FinishReason.STOP
        else:
            reason = FinishReason.ABORT if sequence.tokens_left else FinishReason.LENGTH
        return self._responses.completion(sequence, reason, "raw")
