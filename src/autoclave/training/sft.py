"""Warm start: supervised fine-tuning of a policy on demonstrations, by the same actor worker as reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from autoclave.core import InputError
from autoclave.core.rollout import IntArray
from autoclave.models import encode_prompt
from autoclave.problems import Demonstration
from autoclave.workers import ActorWorker, Batch, WorkerGroup

BUCKET = 16
"""Batches are cut from stretches of this many batches sorted by length, so that little is padding."""

Sequences = list[tuple[IntArray, IntArray]]


def encode_demonstrations(tokenizer: Any, demonstrations: Sequence[Demonstration], context: int) -> Sequences:
    """`(prompt tokens, response tokens with the end token)` of each demonstration that fits into `context` tokens.

    Raises:
        InputError: none fits.
    """
    sequences: Sequences = []
    for demonstration in demonstrations:
        prompt = encode_prompt(tokenizer, demonstration.messages)
        response = tokenizer.encode(demonstration.response, add_special_tokens=False)
        if len(prompt) + len(response) < context:
            sequences.append((prompt, np.array([*response, tokenizer.eos_token_id], dtype=np.int64)))
    if not sequences:
        raise InputError(f"none of {len(demonstrations)} demonstrations fits into {context} tokens; raise the context")
    return sequences


def fine_tune(
    actor: WorkerGroup[ActorWorker],
    sequences: Sequences,
    *,
    steps: int,
    batch_size: int,
    seed: int,
    on_step: Callable[[int, Mapping[str, float], int], None],
) -> None:
    """Take `steps` optimizer steps. `on_step(step, metrics, tokens of the batch)` is called after each."""
    order = _batches([len(prompt) + len(response) for prompt, response in sequences], batch_size, seed)
    for step in range(1, steps + 1):
        batch = _packed([sequences[index] for index in next(order)])
        on_step(step, actor.update(batch).result(), len(batch.tokens))


def _packed(sequences: Sequences) -> Batch:
    num_tokens = sum(len(response) for _, response in sequences)
    rows = len(sequences)
    return Batch.from_sequences(
        sequences,
        rows={"minibatch": np.zeros(rows, dtype=np.int64)},
        responses={"weights": np.full(num_tokens, 1 / num_tokens, dtype=np.float32)},
    )


def _batches(lengths: Sequence[int], batch_size: int, seed: int) -> Iterator[IntArray]:
    """Index arrays of `batch_size`, epoch after epoch, each epoch shuffled anew; rows of a batch are of similar length."""
    rng = np.random.default_rng(seed)
    size = np.asarray(lengths)
    while True:
        shuffled = rng.permutation(len(size))
        stretches = [shuffled[i : i + BUCKET * batch_size] for i in range(0, len(size), BUCKET * batch_size)]
        ordered = np.concatenate([stretch[np.argsort(size[stretch], kind="stable")] for stretch in stretches])
        batches = [ordered[i : i + batch_size] for i in range(0, len(size), batch_size)]
        yield from (batches[index] for index in rng.permutation(len(batches)))
