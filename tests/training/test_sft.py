"""The warm start: every demonstration is seen once per epoch, too long ones are left out, and the loss falls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoclave.algorithms import supervised
from autoclave.config import OptimizerConfig, SftConfig, TrainConfig
from autoclave.core import IncompleteError, InputError
from autoclave.models import Policy
from autoclave.problems import Demonstration
from autoclave.training.checkpoints import Checkpoints, SavedState, latest_checkpoint
from autoclave.training.metrics import Stopwatch
from autoclave.training.sft import (
    Epochs,
    Sequences,
    bucketed,
    digest,
    encode_demonstrations,
    filled,
    fine_tune,
    packed,
    report_progress,
)
from autoclave.training.watchdog import StopRequest
from autoclave.workers import Batch, ResourcePool, WorkerGroup
from autoclave.workers.trainer.actor import ActorWorker
from tests.training_parts import plain_log_probs, tiny_policy


def demonstration(number: int, response: str | None = None) -> Demonstration:
    messages = ({"role": "user", "content": f"Say {number}."},)
    return Demonstration(str(number), messages, response or f"```python\nprint({number})\n```", True)


def settings(**given) -> SftConfig:
    return SftConfig.model_validate(given)


def sequences_of(lengths: Sequence[int]) -> Sequences:
    """Sequences of these lengths, each with a prompt of one token, its own number."""
    return [(np.array([n]), np.full(length - 1, n, dtype=np.int64)) for n, length in enumerate(lengths)]


def rows_of(batch: Batch) -> list[int]:
    return batch.tokens[batch.offsets[:-1]].tolist()


# --- Batches -------------------------------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(2, 50), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 9), st.integers(0, 5))
def test_an_epoch_shows_every_demonstration_once(lengths, batch_size, seed):
    batches = iter(Epochs(sequences_of(lengths), settings(batch_size=batch_size), seed))
    for _ in range(2):
        shown: list[int] = []
        while len(shown) < len(lengths):
            rows = rows_of(next(batches))
            assert 1 <= len(rows) <= batch_size
            shown += rows
        assert sorted(shown) == list(range(len(lengths)))


@given(LENGTHS, st.integers(2, 120), st.integers(0, 5))
def test_a_budget_of_tokens_is_kept_but_by_a_demonstration_that_is_longer_alone(lengths, budget, seed):
    batches = filled(np.random.default_rng(seed).permutation(len(lengths)), np.array(lengths), budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert sum(lengths[row] for row in batch) <= budget or len(batch) == 1


def test_little_of_a_budget_is_left_empty():
    lengths = np.random.default_rng(0).integers(5, 400, 2000)
    batches = filled(np.random.default_rng(1).permutation(2000), lengths, 2048)
    assert lengths.sum() / (2048 * len(batches)) > 0.97  # rows as they come, until the next does not fit, fill 0.91


def test_so_many_epochs_have_as_many_steps_as_batches():
    sequences = sequences_of([10] * 21)
    assert Epochs(sequences, settings(epochs=3, batch_size=4), 0).total_steps == 3 * 6
    assert Epochs(sequences, settings(epochs=3, batch_tokens=40), 0).total_steps == 3 * 6
    assert Epochs(sequences, settings(steps=5, batch_size=4), 0).total_steps == 5
    assert Epochs(sequences, settings(), 0).total_steps == 1200
    batches = islice(Epochs(sequences, settings(epochs=3, batch_tokens=40), 0), 18)
    assert sorted(row for batch in batches for row in rows_of(batch)) == sorted([*range(21)] * 3)


def test_rows_of_a_batch_are_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 100, 64)
    batches = bucketed(np.arange(64), lengths, 4)
    assert max(np.ptp(lengths[batch]) for batch in batches) < 25  # of 100, if rows were drawn at random


def test_batches_depend_on_the_seed_alone():
    def first(seed: int) -> list[list[int]]:
        batches = iter(Epochs(sequences_of(range(2, 31)), settings(batch_size=4), seed))
        return [rows_of(next(batches)) for _ in range(10)]

    assert first(3) == first(3)
    assert first(3) != first(4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 5, "epochs": 3}, "steps = 5 and epochs = 3 are two ways"),
        ({"batch_size": 5, "batch_tokens": 300}, "batch_size = 5 and batch_tokens = 300 are two ways"),
    ],
)
def test_two_settings_for_one_thing_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        settings(**given)


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

STEPS = 12


@contextmanager
def actor_of(policy: Policy, total_steps: int = STEPS) -> Iterator[WorkerGroup[ActorWorker]]:
    with closing(ResourcePool("sft")) as pool:
        yield WorkerGroup(
            pool,
            lambda: ActorWorker(
                policy,
                supervised(),
                OptimizerConfig(learning_rate=3e-3, warmup_steps=5),
                total_steps=total_steps,
                temperature=1.0,
                micro_batch_tokens=1 << 20,
            ),
        )


def tune(
    policy: Policy, folder: Path, *, steps: int = STEPS, every: int = 0, stop_at: int = 0, **batching: int
) -> list:
    """Fine-tune on twenty demonstrations, from the newest checkpoint in `folder`; the (step, loss, tokens) of each."""
    config, stop = TrainConfig(), StopRequest()
    sequences = encode_demonstrations(policy, [demonstration(number) for number in range(20)])
    taken: list[tuple[int, float, int]] = []

    def on_step(step: int, metrics: Mapping[str, float], num_tokens: int) -> None:
        taken.append((step, metrics["loss"], num_tokens))
        stop.is_made = step == stop_at

    with actor_of(policy, steps) as actor:
        state = SavedState({"actor": actor})
        found = latest_checkpoint(folder, config)
        if found:
            state.load(found.folder)
        fine_tune(
            actor,
            Epochs(sequences, settings(steps=steps, **batching), 0),
            Checkpoints(folder, config, state),
            done=found.step if found else 0,
            every=every,
            stopwatch=Stopwatch(),
            stop=stop,
            on_step=on_step,
        )
    return taken


def weights_of(policy: Policy) -> torch.Tensor:
    return torch.cat([weights.detach().flatten() for weights in policy.model.parameters()])


@pytest.mark.parametrize("batching", [{"batch_size": 8}, {"batch_tokens": 150}])
def test_the_loss_falls_on_twenty_demonstrations(tmp_path: Path, batching):
    taken = tune(tiny_policy(), tmp_path, steps=60, **batching)
    losses = [loss for _, loss, _ in taken]
    assert len(losses) == 60
    assert np.mean(losses[-5:]) < 0.25 * np.mean(losses[:5])
    if "batch_tokens" in batching:
        assert max(tokens for *_, tokens in taken) <= 150
    assert list(tmp_path.iterdir()) == []


def test_the_loss_is_that_of_the_tokens_of_responses_alone():
    policy = tiny_policy()
    sequences = encode_demonstrations(policy, [demonstration(number) for number in (1, 22, 333)])
    expected = -torch.cat([plain_log_probs(policy, *pair).detach() for pair in sequences]).mean().item()
    with actor_of(policy) as actor:
        metrics = actor.update(packed(sequences), 1).result()
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_warm_start_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path):
    whole, stopped, resumed = tiny_policy(), tiny_policy(), tiny_policy()
    expected = tune(whole, tmp_path / "whole", every=4, batch_size=8)
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["step-000004", "step-000008"]
    with pytest.raises(IncompleteError, match="stopped in the warm start after step 7 of 12; go on with --resume"):
        tune(stopped, tmp_path / "stopped", every=4, stop_at=7, batch_size=8)
    assert tune(resumed, tmp_path / "stopped", every=4, batch_size=8) == expected[7:]
    assert torch.equal(weights_of(resumed), weights_of(whole))


def test_other_demonstrations_have_another_digest():
    policy = tiny_policy()
    one, other = (encode_demonstrations(policy, [demonstration(n), demonstration(3)]) for n in (1, 2))
    assert digest(one) == digest(encode_demonstrations(policy, [demonstration(1), demonstration(3)]))
    assert digest(one) != digest(other)
    assert digest(one) != digest(one[::-1])


# --- Progress ------------------------------------------------------------------------------------------------------


def test_progress_is_said_in_quarters_where_there_is_no_terminal():
    said: list[str] = []
    with report_progress(8, None, said.append) as on_step:
        for step in range(1, 9):
            on_step(step, {"loss": 1.0}, 10)
    assert [line.split("  ")[0] for line in said] == [f"SFT step {step} of 8" for step in (2, 4, 6, 8)]
