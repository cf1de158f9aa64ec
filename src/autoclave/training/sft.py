"""Warm start: supervised fine-tuning on demonstrations, by the same actor worker as reinforcement learning."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from tqdm import tqdm

from autoclave.core import IncompleteError, InputError
from autoclave.core.rollout import IntArray
from autoclave.models import Policy, encode_prompt
from autoclave.problems import Demonstration
from autoclave.training.interrupt import StopRequest
from autoclave.training.run_folder import MetricsLog
from autoclave.workers import Batch, WorkerGroup
from autoclave.workers.trainer import ActorWorker

LOG_EVERY = 10
"""Steps between two lines of metrics."""

BUCKET = 16
"""Batches are cut from stretches of this many batches sorted by length, so that little is padding."""

Sequences = list[tuple[IntArray, IntArray]]
OnStep = Callable[[int, Mapping[str, float], int], None]
"""Called after each optimizer step with its number, its metrics and the tokens of its batch."""


def encode_demonstrations(policy: Policy, demonstrations: Sequence[Demonstration]) -> Sequences:
    """`(prompt tokens, response tokens with the end token)` of each demonstration that fits into the model's context.

    Raises:
        InputError: none fits.
    """
    context = policy.model.config.max_position_embeddings
    sequences: Sequences = []
    for demonstration in demonstrations:
        prompt = encode_prompt(policy.tokenizer, demonstration.messages)
        response = policy.tokenizer.encode(demonstration.response, add_special_tokens=False)
        if len(prompt) + len(response) < context:
            sequences.append((prompt, np.array([*response, policy.end_token], dtype=np.int64)))
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
    on_step: OnStep,
) -> None:
    """Take `steps` optimizer steps on `sequences`, epoch after epoch."""
    order = _batches([len(prompt) + len(response) for prompt, response in sequences], batch_size, seed)
    for step in range(1, steps + 1):
        batch = _packed([sequences[index] for index in next(order)])
        on_step(step, actor.update(batch, 1).result(), len(batch.tokens))


def _packed(sequences: Sequences) -> Batch:
    num_tokens = sum(len(response) for _, response in sequences)
    rows = len(sequences)
    return Batch.from_sequences(
        sequences,
        rows={"minibatch": np.zeros(rows, dtype=np.int64)},
        responses={"weights": np.full(num_tokens, 1 / num_tokens, dtype=np.float32)},
    )


def _batches(lengths: Sequence[int], batch_size: int, seed: int) -> Iterator[IntArray]:
    """Index arrays of `batch_size`, epoch after epoch, each shuffled anew; rows of a batch are of similar length."""
    rng = np.random.default_rng(seed)
    size = np.asarray(lengths)
    while True:
        shuffled = rng.permutation(len(size))
        stretches = [shuffled[i : i + BUCKET * batch_size] for i in range(0, len(size), BUCKET * batch_size)]
        ordered = np.concatenate([stretch[np.argsort(size[stretch], kind="stable")] for stretch in stretches])
        batches = [ordered[i : i + batch_size] for i in range(0, len(size), batch_size)]
        yield from (batches[index] for index in rng.permutation(len(batches)))


@contextmanager
def report_progress(
    steps: int, log: MetricsLog | None, say: Callable[[str], None], stop: StopRequest
) -> Iterator[OnStep]:
    """An `on_step` that shows a bar, logs, and ends the warm start when asked to.

    Raises:
        IncompleteError: a stop was requested.
    """
    started = time.monotonic()
    tokens = 0
    with tqdm(total=steps, desc="SFT", unit="step", disable=None, dynamic_ncols=True) as bar:

        def on_step(step: int, metrics: Mapping[str, float], num_tokens: int) -> None:
            nonlocal tokens
            tokens += num_tokens
            bar.update()
            if step % LOG_EVERY == 0 or step == steps:
                rate = tokens / (time.monotonic() - started)
                bar.set_postfix_str(f"loss {metrics['loss']:.3f}", refresh=False)
                if log:
                    log.write("sft", step, {**metrics, "tokens_per_s": rate})
            if bar.disable and step % max(1, steps // 4) == 0:
                say(f"SFT step {step} of {steps}  loss {metrics['loss']:.3f}  {time.monotonic() - started:.0f} s")
            if stop.is_made:
                raise IncompleteError(f"stopped in the warm start after step {step} of {steps}; nothing to resume yet")

        yield on_step
