from __future__ import annotations

import pickle  # noqa: TID251  what executors do with an algorithm of ours
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import Column, build_algorithm, step_metrics
from autoclave.config.algorithm import GrpoConfig, GrpoPlusConfig

GRPO = build_algorithm(GrpoConfig(entropy_coefficient=0.01))
GRPO_PLUS = build_algorithm(GrpoPlusConfig())
ALGORITHMS = pytest.mark.parametrize("algorithm", [GRPO, GRPO_PLUS], ids=lambda algorithm: algorithm.name)
SEEDS = st.integers(0, 10_000)


def tokens(batch, chosen):
    """The part of a batch that holds the chosen tokens."""
    return {name: values[chosen] for name, values in batch.items() if values.shape == batch["row"].shape}


def gradients(batch):
    return [
        torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in (batch["log_probs"], batch["entropy"])
    ]


def test_what_must_be_computed_follows_from_the_choices():
    assert (GRPO.needs_reference, GRPO.needs_entropy) == (True, True)
    assert (GRPO_PLUS.needs_reference, GRPO_PLUS.needs_entropy) == (False, False)
    without_kl = build_algorithm(GrpoConfig(kl_coefficient=0.0))
    assert (without_kl.needs_reference, without_kl.needs_entropy) == (False, False)
    assert GRPO_PLUS.reads == set(Column) - {Column.REFERENCE_LOG_PROBS, Column.ENTROPY, Column.WEIGHTS}


@ALGORITHMS
def test_an_algorithm_survives_pickling(make_batch, learn, algorithm):
    batch = learn(algorithm, make_batch(3))
    copy = pickle.loads(pickle.dumps(algorithm))
    assert torch.equal(copy.loss(batch).total, algorithm.loss(batch).total)
    assert (copy.name, copy.reads) == (algorithm.name, algorithm.reads)


@ALGORITHMS
@given(seed=SEEDS, num_parts=st.integers(2, 6))
def test_micro_batches_add_up_to_the_whole(make_batch, learn, algorithm, seed, num_parts):
    whole, split = (learn(algorithm, make_batch(seed)) for _ in range(2))
    expected = algorithm.loss(whole)
    expected.total.backward()
    parts = [algorithm.loss(tokens(split, split["row"] % num_parts == part)) for part in range(num_parts)]
    for part in parts:
        part.total.backward()
    assert sum(part.total.item() for part in parts) == pytest.approx(expected.total.item(), abs=1e-6)
    torch.testing.assert_close(gradients(split), gradients(whole), rtol=0, atol=1e-9)
    found = step_metrics(part.diagnostics for part in parts)
    assert found == pytest.approx(step_metrics([expected.diagnostics]), abs=1e-6)


@ALGORITHMS
@given(seed=SEEDS, random=st.randoms(use_true_random=False))
def test_packing_order_does_not_matter(make_batch, learn, algorithm, seed, random):
    batch = make_batch(seed)
    order = list(range(len(batch["row"])))
    random.shuffle(order)
    packed = {name: values[order] if values.shape == batch["row"].shape else values for name, values in batch.items()}
    straight, shuffled = learn(algorithm, batch), learn(algorithm, packed)
    totals = [algorithm.loss(each).total for each in (straight, shuffled)]
    for total in totals:
        total.backward()
    assert totals[0].item() == pytest.approx(totals[1].item(), abs=1e-9)
    for expected, found in zip(gradients(straight), gradients(shuffled), strict=True):
        torch.testing.assert_close(found, expected[order], rtol=0, atol=1e-12)


@ALGORITHMS
@given(seed=SEEDS, hostile=st.sampled_from([float("nan"), float("inf"), -1e38]))
def test_tokens_that_do_not_train_have_no_gradient_whatever_they_hold(make_batch, learn, algorithm, seed, hostile):
    batch = make_batch(seed)
    idle = ~batch["trains"][batch["row"]]
    clean, dirty = learn(algorithm, batch), learn(algorithm, batch)
    for name in ("log_probs", "old_log_probs", "reference_log_probs", "entropy"):
        dirty[name] = batch[name].masked_fill(idle, hostile).requires_grad_()
    for each in (clean, dirty):
        algorithm.loss(each).total.backward()
    for expected, found in zip(gradients(clean), gradients(dirty), strict=True):
        assert torch.equal(found, expected)
        assert not found[idle].any()


@ALGORITHMS
@given(seed=SEEDS)
def test_rows_that_need_no_computing_can_be_left_out(make_batch, learn, algorithm, seed):
    whole, left_out = (learn(algorithm, make_batch(seed)) for _ in range(2))
    compute = algorithm.rows_to_compute(whole)
    assert not (compute & ~whole["trains"]).any()
    algorithm.loss(whole).total.backward()
    algorithm.loss(tokens(left_out, compute[left_out["row"]])).total.backward()
    torch.testing.assert_close(gradients(left_out), gradients(whole), rtol=0, atol=0)


def test_equal_rewards_leave_nothing_to_compute_unless_another_term_pulls(make_batch, learn):
    batch = make_batch(5)
    equal = batch | {"rewards": torch.ones_like(batch["rewards"])}
    assert not GRPO_PLUS.rows_to_compute(learn(GRPO_PLUS, equal)).any()
    for options in ({"kl_coefficient": 0.1}, {"kl_coefficient": 0.0, "entropy_coefficient": 0.1}):
        pulled = build_algorithm(GrpoConfig(**options))
        assert torch.equal(pulled.rows_to_compute(learn(pulled, equal)), batch["trains"])
    alone = build_algorithm(GrpoConfig(kl_coefficient=0.0))
    assert not alone.rows_to_compute(learn(alone, equal)).any()


@ALGORITHMS
def test_a_step_in_which_nothing_trains_has_a_loss_of_zero(make_batch, learn, algorithm):
    batch = make_batch(7)
    batch = learn(algorithm, batch | {"trains": torch.zeros_like(batch["trains"])})
    found = algorithm.loss(batch)
    found.total.backward()
    assert found.total.item() == 0.0
    assert not any(gradient.any() for gradient in gradients(batch))
    assert set(step_metrics([found.diagnostics]).values()) == {0.0}


def test_advantages_carry_no_gradient(make_batch):
    batch = make_batch(11)
    batch["rewards"].requires_grad_()
    assert not GRPO.advantages(batch).requires_grad


def test_what_the_trainer_observes_is_averaged_over_trained_tokens(make_batch, learn):
    batch = learn(GRPO_PLUS, make_batch(13))
    trained = batch["weights"] > 0
    found = GRPO_PLUS.loss(batch, observed={"gap": batch["reference_log_probs"]})
    expected = batch["reference_log_probs"][trained].mean().item()
    assert step_metrics([found.diagnostics])["gap"] == pytest.approx(expected)
    assert found.diagnostics.num_tokens == int(trained.sum())


def test_the_loss_is_the_sum_of_its_terms(make_batch, learn):
    metrics = step_metrics([GRPO.loss(learn(GRPO, make_batch(17))).diagnostics])
    assert metrics["loss"] == pytest.approx(sum(metrics[f"loss_{name}"] for name in ("policy", "kl", "entropy")))


def test_missing_and_misshapen_columns_are_named(make_batch, learn):
    batch = learn(GRPO, make_batch(19))
    without = {name: values for name, values in batch.items() if name not in ("reference_log_probs", "weights")}
    with pytest.raises(ValueError, match="lacks reference_log_probs, weights; it has advantages"):
        GRPO.loss(without)
    with pytest.raises(ValueError, match=r"entropy \(1,\) must be \(N,\)"):
        GRPO.loss(batch | {"entropy": torch.zeros(1)})
    with pytest.raises(ValueError, match="lacks rewards"):
        GRPO.advantages({name: batch[name] for name in ("group", "trains", "row")})
    with pytest.raises(ValueError, match="lacks trains"):
        GRPO.rows_to_compute({name: batch[name] for name in ("advantages", "row")})


@ALGORITHMS
def test_options_are_bound_and_functions_are_shared(algorithm):
    assert all(isinstance(term.compute.function, partial) for term in algorithm.terms)
    with pytest.raises(AttributeError):
        algorithm.name = "other"
