"""Warm start: supervised fine-tuning on demonstrations, by the same actor worker as reinforcement learning."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np
from tqdm import tqdm

from autoclave.config import SftConfig
from autoclave.core import IncompleteError, InputError
from autoclave.core.rollout import IntArray
from autoclave.models import Policy, encode_prompt
from autoclave.problems import Demonstration
from autoclave.runs.folder import MetricsLog
from autoclave.training.checkpoints import Checkpoints
from autoclave.training.metrics import Stopwatch
from autoclave.training.watchdog import StopRequest
from autoclave.workers import Batch, WorkerGroup
from autoclave.workers.trainer.actor import ActorWorker

LOG_EVERY = 10
"""Steps between two lines of metrics."""

BUCKET = 16
"""Batches are cut from stretches of this many batches sorted by length, so that little is padding."""

STRETCH = 64
"""Batches of so many tokens are filled from stretches of about this many batches, so that little is left empty."""

Sequences = list[tuple[IntArray, IntArray]]
OnStep = Callable[[int, Mapping[str, float], int], None]
"""Called after each optimizer step with its number, its metrics and the tokens of its batch."""


def encode_demonstrations(policy: Policy, demonstrations: Sequence[Demonstration]) -> Sequences:
    """`(prompt tokens, response tokens with the end token)` of each demonstration that fits into the model's context.

    Raises InputError: none fits.
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


def digest(sequences: Sequences) -> str:
    """Digest of the demonstrations as the model sees them, in order."""
    found = hashlib.sha256()
    for prompt, response in sequences:
        found.update(np.array([len(prompt), len(response), *prompt, *response], dtype=np.int64).tobytes())
    return found.hexdigest()[:16]


class Epochs:
    """The batches of a warm start, shuffled in each epoch; they depend on the seed alone."""

    def __init__(self, sequences: Sequences, settings: SftConfig, seed: int) -> None:
        self._sequences, self._settings, self._seed = sequences, settings, seed
        self._lengths = np.array([len(prompt) + len(response) for prompt, response in sequences])

    @property
    def total_steps(self) -> int:
        """Batches of all epochs, one optimizer step each."""
        epochs = self._settings.epochs or 0
        return self._settings.total_steps(0) if not epochs else sum(len(e) for e in islice(self._epochs(), epochs))

    def __iter__(self) -> Iterator[Batch]:
        for epoch in self._epochs():
            for rows in epoch:
                yield packed([self._sequences[index] for index in rows])

    def _epochs(self) -> Iterator[list[IntArray]]:
        rng = np.random.default_rng(self._seed)
        budget, rows = self._settings.batch_tokens, self._settings.rows_per_step
        while True:
            shuffled = rng.permutation(len(self._lengths))
            batches = filled(shuffled, self._lengths, budget) if budget else bucketed(shuffled, self._lengths, rows)
            yield [batches[index] for index in rng.permutation(len(batches))]


def bucketed(shuffled: IntArray, lengths: IntArray, batch_size: int) -> list[IntArray]:
    """Index arrays of `batch_size`, the last perhaps fewer; rows of a batch are of similar length."""
    stretches = [shuffled[i : i + BUCKET * batch_size] for i in range(0, len(shuffled), BUCKET * batch_size)]
    ordered = np.concatenate([stretch[np.argsort(lengths[stretch], kind="stable")] for stretch in stretches])
    return [ordered[i : i + batch_size] for i in range(0, len(ordered), batch_size)]


def filled(shuffled: IntArray, lengths: IntArray, max_tokens: int) -> list[IntArray]:
    """Index arrays of at most `max_tokens` tokens each, or of one longer row, with little room left in each.

    Rows are taken in stretches of about `STRETCH` batches, and of each stretch the longest first, each into the first
    batch that it fits into (first-fit decreasing: at most 11/9 of the fewest possible batches, and 1 more; Johnson,
    1973).
    """
    batches: list[IntArray] = []
    for stretch in np.split(shuffled, _stretch_starts(lengths[shuffled], STRETCH * max_tokens)):
        batches += _first_fit(stretch[np.argsort(-lengths[stretch], kind="stable")], lengths, max_tokens)
    return batches


def _stretch_starts(lengths: IntArray, max_tokens: int) -> IntArray:
    """Positions to cut at, so that each piece but the last has just as many rows as reach `max_tokens`."""
    number = np.cumsum(lengths) // max_tokens
    return np.flatnonzero(np.diff(number)) + 2


def _first_fit(ordered: IntArray, lengths: IntArray, max_tokens: int) -> list[IntArray]:
    batches: list[list[int]] = []
    room: list[int] = []
    for row in ordered.tolist():
        length = int(lengths[row])
        place = next((n for n, left in enumerate(room) if length <= left), None)
        if place is None:
            batches.append([row])
            room.append(max_tokens - length)
        else:
            batches[place].append(row)
            room[place] -= length
    return [np.array(batch, dtype=np.int64) for batch in batches]


def packed(sequences: Sequences) -> Batch:
    """One optimizer step: every token of a response weighs the same, a token of a prompt nothing."""
    num_tokens = sum(len(response) for _, response in sequences)
    rows = len(sequences)
    return Batch.from_sequences(
        sequences,
        rows={"minibatch": np.zeros(rows, dtype=np.int64)},
        responses={"weights": np.full(num_tokens, 1 / num_tokens, dtype=np.float32)},
    )


def fine_tune(
    actor: WorkerGroup[ActorWorker],
    batches: Epochs,
    checkpoints: Checkpoints,
    *,
    done: int,
    every: int,
    stopwatch: Stopwatch,
    stop: StopRequest,
    on_step: OnStep,
) -> None:
    """Go on from `done` optimizer steps to the last, with a checkpoint every so many.

    Raises IncompleteError: a stop was requested; a checkpoint of the last step is there.
    """
    total = batches.total_steps
    with checkpoints:
        for step, batch in enumerate(islice(batches, done, total), start=done + 1):
            on_step(step, actor.update(batch, 1).result(), len(batch.tokens))
            is_stopped = stop.is_made
            if step < total and (is_stopped or (every and step % every == 0)):
                checkpoints.begin(step, stopwatch.so_far())
            checkpoints.finish(wait=is_stopped)
            if is_stopped and step < total:
                raise IncompleteError(f"stopped in the warm start after step {step} of {total}; go on with --resume")


@contextmanager
def report_progress(
    steps: int, log: MetricsLog | None, say: Callable[[str], None], *, done: int = 0
) -> Iterator[OnStep]:
    """An `on_step` that shows a bar and logs, from step `done` on."""
    started = time.monotonic()
    tokens = 0
    with tqdm(total=steps, initial=done, desc="SFT", unit="step", disable=None, dynamic_ncols=True) as bar:

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

        yield on_step
