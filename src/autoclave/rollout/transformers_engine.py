"""Continuous batching with a Transformers model in this process.

Ended sequences leave the running batch, and waiting ones take their places. Random numbers belong to the request. Which
sequences are computed together does not depend on time, unless requests of several calls of `add` mix: equal weights
and requests give equal responses.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer

from autoclave.config import LoraConfig
from autoclave.core import Completion, FinishReason
from autoclave.models import Digest, Policy, WeightViews, digests, is_of_adapter, parts_of, with_adapter
from autoclave.rollout.drawing import RowParameters, draw
from autoclave.rollout.interface import EngineStats, Request, uniforms
from autoclave.rollout.responses import Growing, Responses


@dataclass(slots=True, eq=False)
class Sampled(Growing):
    """A sequence of the running batch. Sequences of one `batch` were added together."""

    batch: int = 0
    is_over: bool = False
    is_ended: bool = False
    """By an end token."""
    is_stopped: bool = False
    """By a stop string."""
    _random: np.ndarray | None = None

    @property
    def context(self) -> list[int]:
        """The prompt and the tokens so far."""
        return [*self.request.prompt_tokens.tolist(), *self.tokens]

    def uniform(self) -> float:
        """The random number in [0, 1) that the next token is drawn by."""
        if self._random is None:
            self._random = uniforms(self.request.seed, self.request.parameters.max_new_tokens)
        return 0.0 if self.is_over else float(self._random[len(self.tokens)])


class RunningBatch:
    """Rows with a key-value cache, and the logits of the next token of each."""

    def __init__(self, policy: Policy, responses: Responses, version: int) -> None:
        self._responses, self._model, self._version = responses, policy.model, version
        self._ends = torch.tensor(sorted(policy.end_tokens), device=policy.model.device)
        self._rows: list[Sampled] = []
        self._lengths: list[int] = []  # tokens of each row that are in the cache
        self._cache: DynamicCache | None = None
        self._columns = 0  # of the cache; a row has its tokens in the last of them
        self._room = 0  # columns that the cache can take without being copied
        self._logits = torch.zeros(0)
        self._parameters = RowParameters.of([], policy.model.device)

    @property
    def sequences(self) -> list[Sampled]:
        """The sequences that have not ended, in the order of the rows."""
        return [row for row in self._rows if not row.is_over]

    @property
    def can_be_joined(self) -> bool:
        """True if more sequences can join."""
        return self._cache is None or can_be_joined(self._cache)

    def join(self, sequences: Sequence[Sampled], *, spare: Callable[[], int]) -> int:
        """Add sequences to the batch; ended rows leave it.

        Args:
            sequences: with what was sampled of them so far.
            spare: asked when the cache is copied, for how many more tokens of each it gets room at most.

        Returns:
            Tokens that were computed: each distinct context once.
        """
        started_at = time.time()
        contexts = [tuple(sequence.context) for sequence in sequences]
        distinct = {context: place for place, context in enumerate(dict.fromkeys(contexts))}
        fresh, logits = self._prefill(list(distinct))
        numbers = self._index([distinct[context] for context in contexts])
        joining = Rows(fresh, numbers, max(map(len, distinct)))
        alive = self._alive()
        kept, logits_kept = self._kept(alive), self._logits[alive]
        self._rows += sequences
        self._lengths += map(len, contexts)
        self._hold([kept, joining] if kept else [joining], spare)
        self._logits = torch.cat([logits_kept, logits[numbers]]) if kept else logits[numbers]
        for sequence in sequences:
            sequence.started_at = sequence.started_at or started_at
            sequence.versions.append((self._version, len(sequence.tokens)))
        return sum(map(len, distinct))

    def decode(self, *, spare: Callable[[], int], shrink_at: float) -> list[Sampled]:
        """Sample a token for each row, and compute the logits of the next. Return the sequences that ended with it.

        Args:
            spare: see `join`.
            shrink_at: rows that are over leave the batch when at most this share of it goes on.
        """
        numbers = [row.uniform() for row in self._rows]
        uniform = torch.tensor(numbers, dtype=torch.float64, device=self._model.device)[:, None]
        tokens, log_probs = draw(self._logits, uniform, self._parameters)
        ends = torch.isin(tokens, self._ends).tolist()
        drawn = zip(self._rows, tokens.tolist(), log_probs.tolist(), ends, strict=True)
        over = [row for row, *found in drawn if not row.is_over and self._append(row, *found)]
        alive = self._alive()
        if not alive:
            self._rows, self._lengths, self._cache, self._columns, self._room = [], [], None, 0, 0
            return over
        if len(alive) <= shrink_at * len(self._rows) or not self._room:
            if kept := self._kept(alive):
                self._hold([kept], spare)
            tokens = tokens[alive]
        self._forward(tokens)
        return over

    def _alive(self) -> list[int]:
        return [place for place, row in enumerate(self._rows) if not row.is_over]

    def _kept(self, alive: list[int]) -> "Rows | None":
        """The rows `alive` of the cache, without the columns that stand before all of them; None if there are none."""
        self._rows, self._lengths = [self._rows[place] for place in alive], [self._lengths[place] for place in alive]
        if self._cache is None or not alive:
            return None
        columns = max(self._lengths) if can_be_joined(self._cache) else self._columns
        return Rows(self._cache, self._index(alive), columns)

    def _hold(self, parts: "list[Rows]", spare: Callable[[], int]) -> None:
        self._room = min(spare(), max(row.tokens_left for row in self._rows))
        self._columns = max(part.columns for part in parts)
        self._parameters = RowParameters.of([row.request.parameters for row in self._rows], self._model.device)
        self._cache = put_together(parts, self._room)

    def _append(self, row: Sampled, token: int, log_prob: float, is_end: bool) -> bool:
        """Append a token. Return whether the row ends with it."""
        row.tokens.append(token)
        row.log_probs.append(log_prob)
        row.is_ended, row.is_stopped = is_end, not is_end and self._completes_a_stop(row)
        row.is_over = row.is_ended or row.is_stopped or not row.tokens_left
        return row.is_over

    def _completes_a_stop(self, row: Sampled) -> bool:
        stops = row.request.parameters.stops
        if not stops:
            return False
        reach = max(len(stop.encode()) for stop in stops) + 4  # it lies within as many tokens as it has bytes, and some
        tail = self._responses.text(row.tokens[-reach:])
        return any(stop in tail for stop in stops)

    def _index(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._model.device)

    def _prefill(self, contexts: Sequence[Sequence[int]]) -> tuple[DynamicCache, Tensor]:
        """The cache of these contexts, padded on the left, and the logits (C, V) after each."""
        length = max(map(len, contexts))
        ids = torch.zeros((len(contexts), length), dtype=torch.int64)  # what stands on padding is masked
        mask = torch.zeros((len(contexts), length), dtype=torch.int64)
        for row, context in enumerate(contexts):
            ids[row, length - len(context) :] = torch.tensor(context)
            mask[row, length - len(context) :] = 1
        device, cache = self._model.device, growing_cache(self._model.config)
        logits = self._model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return cache, logits

    def _forward(self, tokens: Tensor) -> None:
        """Put `tokens` (R,) into the cache, and compute the logits after them."""
        lengths = self._index(self._lengths)[:, None]
        self._columns += 1
        columns = torch.arange(self._columns, device=self._model.device)[None]
        self._logits = self._model(
            input_ids=tokens[:, None],
            attention_mask=(columns >= self._columns - 1 - lengths).long(),
            position_ids=lengths,
            past_key_values=self._cache,
            use_cache=True,
        ).logits[:, -1]
        self._lengths = [length + 1 for length in self._lengths]
        self._room -= 1


class GrowingLayer(DynamicLayer):
    """Keys and values (B, heads, length, width) as views of buffers with room for further tokens."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._key_buffer: Tensor | None = None
        self._value_buffer: Tensor | None = None

    def hold(self, keys: Tensor, values: Tensor, length: int) -> None:
        """Take these buffers, of which the first `length` columns are filled."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self._key_buffer, self._value_buffer = keys, values
        self.keys, self.values = keys[:, :, :length], values[:, :, :length]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the new states and return all of them; without room left, all is copied."""
        if self._key_buffer is None or self._value_buffer is None:
            self.hold(key_states, value_states, key_states.shape[2])
            return self.keys, self.values
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if end > self._key_buffer.shape[2]:
            self.hold(torch.cat([self.keys, key_states], 2), torch.cat([self.values, value_states], 2), end)
            return self.keys, self.values
        self._key_buffer[:, :, start:end] = key_states
        self._value_buffer[:, :, start:end] = value_states
        self.keys, self.values = self._key_buffer[:, :, :end], self._value_buffer[:, :, :end]
        return self.keys, self.values


def growing_cache(config: PretrainedConfig) -> DynamicCache:
    """An empty cache for a model of this `config`; layers other than plain full attention keep their own kind."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def can_be_joined(cache: DynamicCache) -> bool:
    """Return whether rows of another cache can be put beside those of this one."""
    return all(isinstance(layer, GrowingLayer) for layer in cache.layers)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a cache, by number; a row may be taken several times. Of each the last `columns` count."""

    cache: DynamicCache
    numbers: Tensor
    columns: int


def put_together(parts: list[Rows], room: int) -> DynamicCache:
    """A cache of the rows of all `parts`, in order, with room for so many more tokens; the parts are used up.

    Layers are moved one after the other, so that no more than one of them is there twice. Those that are not
    `GrowingLayer` need a single part, of which all columns count.
    """
    whole = parts[0].cache
    for index, layer in enumerate(whole.layers):
        if isinstance(layer, GrowingLayer):
            _move(layer, [(part, part.cache.layers[index]) for part in parts], room)
        else:
            layer.batch_select_indices(parts[0].numbers)  # pyright: ignore[reportAttributeAccessIssue]  all have it
    return whole


def _move(layer: GrowingLayer, parts: list[tuple[Rows, Any]], room: int) -> None:
    length = max(part.columns for part, _ in parts)
    buffers: list[Tensor] = []
    for name in ("keys", "values"):
        found = [(part, getattr(source, name)) for part, source in parts]
        _, heads, _, width = found[0][1].shape
        rows = sum(len(part.numbers) for part, _ in found)
        buffer = found[0][1].new_empty((rows, heads, length + room, width))
        start = 0
        for part, source in found:
            stop, first = start + len(part.numbers), length - part.columns
            buffer[start:stop, :, :first] = 0  # masked, but 0 x NaN would not be 0
            buffer[start:stop, :, first:length] = source[part.numbers, :, source.shape[2] - part.columns :]
            start = stop
        buffers.append(buffer)
    for _, source in parts[1:]:
        source.hold(buffers[0][:0], buffers[1][:0], 0)  # free what it held
    layer.hold(buffers[0], buffers[1], length)


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
