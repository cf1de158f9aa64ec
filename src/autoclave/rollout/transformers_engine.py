"""Batched sampling with a Transformers model in this process.

Requests are cut into chunks in order; a chunk computes each distinct prompt once, and drops rows from the batch as
they finish. Random numbers belong to the request, and chunks do not depend on timing, so equal weights and requests
give equal responses.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from autoclave.core import Completion, FinishReason
from autoclave.models import Policy
from autoclave.rollout.interface import Deliver, Request, uniforms
from autoclave.rollout.key_value_cache import growing_cache, repeat_rows

WHOLE = 2.0**48
"""What a probability of 1 is, where tokens are drawn; a float64 has room for it and five bits more."""

SHRINK_AT = 0.75
"""Finished rows are dropped from the batch when at most this share of it is still being sampled."""


class TransformersEngine:
    """Samples with `policy`, which the engine owns: `update_weights` writes into it."""

    def __init__(self, policy: Policy, *, batch_size: int) -> None:
        self._policy = policy
        self._batch_size = batch_size
        self._version = 0

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` in; see `Engine`."""
        self._policy.model.load_state_dict(dict(weights))
        self._version = version

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], deliver: Deliver) -> None:
        """Sample chunk by chunk; see `Engine`."""
        submitted = time.time()
        for start in range(0, len(requests), self._batch_size):
            chunk = requests[start : start + self._batch_size]
            _Chunk(self._policy, chunk, self._version, submitted).run(
                lambda row, completion, start=start: deliver(start + row, completion)
            )


@dataclass(slots=True)
class _Rows:
    """The rows still in the batch. All tensors have one entry per row, in the same order."""

    request: list[int]
    attention: Tensor  # (R, P + room) int64
    position: Tensor  # (R,) int64, of the next token
    uniform: Tensor  # (R, room) float64
    temperature: Tensor  # (R, 1) float32
    greedy: Tensor  # (R,) bool
    top_p: Tensor  # (R, 1) float64
    limit: Tensor  # (R,) int64


class _Chunk:
    def __init__(self, policy: Policy, requests: Sequence[Request], version: int, submitted: float) -> None:
        self._policy, self._requests, self._version, self._submitted = policy, requests, version, submitted
        self._model = policy.model
        self._ends = torch.tensor(sorted(policy.end_tokens), device=self._model.device)
        room = max(request.parameters.max_new_tokens for request in requests)
        self._tokens = np.zeros((len(requests), room), dtype=np.int64)
        self._log_probs = np.zeros((len(requests), room), dtype=np.float32)
        self._room = room

    def run(self, deliver: Deliver) -> None:
        rows, logits, cache, length = self._prefill()
        done = torch.zeros(len(rows.request), dtype=torch.bool, device=self._model.device)
        for step in range(self._room):
            tokens, log_probs = _draw(logits, rows, step)
            self._record(rows, step, tokens, log_probs)
            ended = torch.isin(tokens, self._ends)
            stopped = self._stopped(rows, step, done | ended)
            now = (ended | stopped | (rows.limit == step + 1)) & ~done
            for row in now.nonzero().flatten().tolist():
                is_end, is_stop = bool(ended[row]), bool(stopped[row])
                deliver(rows.request[row], self._completion(rows.request[row], step + 1, is_end, is_stop))
            done |= now
            if bool(done.all()):
                return
            if (~done).float().mean() <= SHRINK_AT:
                keep = (~done).nonzero().flatten()
                rows, tokens, done = _kept(rows, keep), tokens[keep], done[keep]
                cache.batch_select_indices(keep)
            rows.attention[:, length + step] = 1
            logits = self._model(
                input_ids=tokens[:, None],
                attention_mask=rows.attention[:, : length + step + 1],
                position_ids=rows.position[:, None] + step,
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]

    def _prefill(self) -> tuple[_Rows, Tensor, DynamicCache, int]:
        """Compute each distinct prompt once, padded on the left, and spread the result over its samples."""
        distinct: dict[bytes, list[int]] = {}
        for index, request in enumerate(self._requests):
            distinct.setdefault(request.prompt_tokens.tobytes(), []).append(index)
        prompts = [self._requests[members[0]].prompt_tokens for members in distinct.values()]
        length = max(map(len, prompts))
        ids = torch.zeros((len(prompts), length), dtype=torch.int64)  # what stands on padding is masked
        mask = torch.zeros((len(prompts), length), dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, length - len(prompt) :] = torch.from_numpy(prompt)
            mask[row, length - len(prompt) :] = 1
        device = self._model.device
        ids, mask = ids.to(device), mask.to(device)
        cache = growing_cache(self._model.config, self._room)
        logits = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        repeats = torch.tensor([len(members) for members in distinct.values()], device=device)
        if len(prompts) < len(self._requests):
            repeat_rows(cache, repeats)
        order = [index for members in distinct.values() for index in members]
        spread = mask.repeat_interleave(repeats, dim=0)
        room = torch.zeros((len(order), self._room), dtype=torch.int64, device=device)
        rows = self._rows(order, torch.cat([spread, room], dim=1), spread.sum(1))
        return rows, logits.repeat_interleave(repeats, dim=0), cache, length

    def _rows(self, order: list[int], attention: Tensor, position: Tensor) -> _Rows:
        parameters = [self._requests[index].parameters for index in order]
        random = np.stack([uniforms(self._requests[index].seed, self._room) for index in order])
        device = attention.device
        temperature = torch.tensor([p.temperature for p in parameters], device=device)
        return _Rows(
            request=order,
            attention=attention,
            position=position,
            uniform=torch.from_numpy(random).to(device),
            temperature=torch.where(temperature > 0, temperature, 1.0)[:, None],
            greedy=temperature == 0,
            top_p=torch.tensor([p.top_p for p in parameters], dtype=torch.float64, device=device)[:, None],
            limit=torch.tensor([p.max_new_tokens for p in parameters], device=device),
        )

    def _record(self, rows: _Rows, step: int, tokens: Tensor, log_probs: Tensor) -> None:
        self._tokens[rows.request, step] = tokens.cpu().numpy()
        self._log_probs[rows.request, step] = log_probs.cpu().numpy()

    def _stopped(self, rows: _Rows, step: int, over: Tensor) -> Tensor:
        """Which rows have just completed one of their stop strings."""
        stopped = torch.zeros_like(over)
        for row in (~over).nonzero().flatten().tolist():
            stops = self._requests[rows.request[row]].parameters.stops
            if stops:  # a stop that ends now lies within as many tokens as it has bytes, and some
                reach = max(len(stop.encode()) for stop in stops) + 4
                tail = self._text(rows.request[row], max(0, step - reach), step + 1)
                stopped[row] = any(stop in tail for stop in stops)
        return stopped

    def _text(self, index: int, start: int, stop: int) -> str:
        return str(self._policy.tokenizer.decode(self._tokens[index, start:stop].tolist(), skip_special_tokens=True))

    def _completion(self, index: int, length: int, is_end: bool, is_stop: bool) -> Completion:
        request = self._requests[index]
        text = self._text(index, 0, length)
        if is_stop:
            text = text[: min((text.find(stop) for stop in request.parameters.stops if stop in text), default=None)]
        return Completion(
            prompt_tokens=request.prompt_tokens,
            tokens=self._tokens[index, :length].copy(),
            log_probs=self._log_probs[index, :length].copy(),
            log_prob_kind="raw",
            finish_reason=FinishReason.STOP if is_end or is_stop else FinishReason.LENGTH,
            text=text,
            policy_versions=((self._version, 0, length),),
            submitted_at=self._submitted,
            finished_at=time.time(),
        )


def _kept(rows: _Rows, keep: Tensor) -> _Rows:
    return _Rows(
        request=[rows.request[row] for row in keep.tolist()],
        attention=rows.attention[keep],
        position=rows.position[keep],
        uniform=rows.uniform[keep],
        temperature=rows.temperature[keep],
        greedy=rows.greedy[keep],
        top_p=rows.top_p[keep],
        limit=rows.limit[keep],
    )


def _draw(logits: Tensor, rows: _Rows, step: int) -> tuple[Tensor, Tensor]:
    """A token per row by inversion of the distribution function, and its log-prob before top-p.

    Args:
        logits: (R, V).
        rows: parameters and random numbers of the R rows.
        step: which random number to use.
    """
    log_probs = torch.log_softmax(logits.float() / rows.temperature, dim=-1)  # (R, V)
    # Whole numbers, because their sums are the same in whatever order a GPU adds them.
    shares = log_probs.double().exp_().mul_(WHOLE).long()  # (R, V)
    if bool((rows.top_p < 1).any()):
        shares = _nucleus(shares, rows.top_p)
    cumulative = shares.cumsum(-1)
    point = (rows.uniform[:, step, None] * cumulative[:, -1:]).long()
    drawn = torch.searchsorted(cumulative, point, right=True).clamp(max=logits.shape[-1] - 1)
    tokens = drawn[:, 0]
    if bool(rows.greedy.any()):
        tokens = torch.where(rows.greedy, logits.argmax(-1), tokens)
    return tokens, log_probs.gather(1, tokens[:, None])[:, 0]


def _nucleus(shares: Tensor, top_p: Tensor) -> Tensor:
    """(R, V) with zeros outside the smallest set of most likely tokens that holds `top_p` (R, 1); 1 keeps all."""
    ordered, order = shares.sort(dim=-1, descending=True)
    outside = (ordered.cumsum(-1) - ordered >= top_p * WHOLE) & (top_p < 1)  # sums of rounded numbers reach 1 too early
    return shares.masked_fill(outside.scatter(1, order, outside), 0)
