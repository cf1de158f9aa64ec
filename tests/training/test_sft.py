"""The warm start: every demonstration is seen once per epoch, too long ones are left out, and the loss falls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import supervised
from autoclave.config import OptimizerConfig
from autoclave.core import IncompleteError, InputError
from autoclave.problems import Demonstration
from autoclave.training.interrupt import StopRequest
from autoclave.training.sft import _batches, encode_demonstrations, fine_tune, report_progress
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.trainer import ActorWorker
from tests.training_parts import tiny_policy


def demonstration(number: int, response: str | None = None) -> Demonstration:
    messages = ({"role": "user", "content": f"Say {number}."},)
    return Demonstration(str(number), messages, response or f"```python\nprint({number})\n```", True)


# --- Batches -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 5))
def test_an_epoch_shows_every_demonstration_once(lengths, batch_size, seed):
    batches = _batches(lengths, batch_size, seed)
    for _ in range(2):
        shown: list[int] = []
        while len(shown) < len(lengths):
            batch = next(batches)
            assert 1 <= len(batch) <= batch_size
            shown += batch.tolist()
        assert sorted(shown) == list(range(len(lengths)))


def test_rows_of_a_batch_are_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 100, 64)
    batches = _batches(lengths.tolist(), 4, 0)
    spreads = [np.ptp(lengths[next(batches)]) for _ in range(16)]
    assert max(spreads) < 25  # of 100, if rows were drawn at random


def test_batches_depend_on_the_seed_alone():
    def first(seed: int) -> list[list[int]]:
        batches = _batches(list(range(1, 30)), 4, seed)
        return [next(batches).tolist() for _ in range(10)]

    assert first(3) == first(3)
    assert first(3) != first(4)


# --- Encoding ------------------------------------------------------------------------------------------------------


def test_a_demonstration_is_its_prompt_in_the_template_and_its_response_with_the_end_token():
    policy = tiny_policy()
    ((prompt, response),) = encode_demonstrations(policy, [demonstration(3)])
    assert policy.tokenizer.decode(prompt) == "<user>Say 3.<assistant>"
    assert policy.tokenizer.decode(response) == "```python\nprint(3)\n```<end>"


def test_what_does_not_fit_into_the_context_is_left_out():
    policy = tiny_policy()
    (short,) = encode_demonstrations(policy, [demonstration(1), demonstration(2, "word " * 200)])
    assert policy.tokenizer.decode(short[1]).startswith("```python\nprint(1)")


def test_the_end_token_has_to_fit_as_well():
    policy = tiny_policy()
    prompt, response = encode_demonstrations(policy, [demonstration(1)])[0]
    policy.model.config.max_position_embeddings = len(prompt) + len(response)
    assert len(encode_demonstrations(policy, [demonstration(1)])) == 1
    policy.model.config.max_position_embeddings -= 1
    with pytest.raises(InputError, match="none of 1 demonstrations fits"):
        encode_demonstrations(policy, [demonstration(1)])


# --- Learning ------------------------------------------------------------------------------------------------------


def test_the_loss_falls_on_twenty_demonstrations():
    policy = tiny_policy()
    pool = ResourcePool("sft")
    losses: list[float] = []
    tokens: list[int] = []

    def on_step(step: int, metrics, num_tokens: int) -> None:
        losses.append(metrics["loss"])
        tokens.append(num_tokens)

    try:
        actor = WorkerGroup(
            pool,
            lambda: ActorWorker(
                policy,
                supervised(),
                OptimizerConfig(learning_rate=3e-3, warmup_steps=5),
                total_steps=60,
                temperature=1.0,
                micro_batch_tokens=1 << 20,
            ),
        )
        sequences = encode_demonstrations(policy, [demonstration(number) for number in range(20)])
        fine_tune(actor, sequences, steps=60, batch_size=8, seed=0, on_step=on_step)
    finally:
        pool.close()
    assert len(losses) == 60
    assert np.mean(losses[-5:]) < 0.25 * np.mean(losses[:5])
    assert sum(tokens[:3]) == sum(len(prompt) + len(response) for prompt, response in sequences)


# --- Progress ------------------------------------------------------------------------------------------------------


def test_progress_is_said_in_quarters_where_there_is_no_terminal():
    said: list[str] = []
    with report_progress(8, None, said.append, StopRequest()) as on_step:
        for step in range(1, 9):
            on_step(step, {"loss": 1.0}, 10)
    assert [line.split("  ")[0] for line in said] == [f"SFT step {step} of 8" for step in (2, 4, 6, 8)]


def test_a_stop_ends_the_warm_start_and_says_what_is_lost():
    stop = StopRequest()
    stop.is_made = True
    with report_progress(8, None, print, stop) as on_step, pytest.raises(IncompleteError, match="after step 1 of 8"):
        on_step(1, {"loss": 1.0}, 10)
