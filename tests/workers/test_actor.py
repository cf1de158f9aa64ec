"""The actor's step: what moves the weights, what does not, and that saved state goes on bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from autoclave.algorithms import ColumnFunction, LossTerm, TokenLoss, build_algorithm, clipped_policy_loss
from autoclave.algorithms.choices import supervised
from autoclave.config import GrpoConfig, GrpoPlusConfig, OptimizerConfig, TruncatedCorrectionConfig
from autoclave.core import FaultError
from autoclave.models import Policy, load_policy
from autoclave.workers import Batch
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.reference import ReferenceWorker
from autoclave.workers.trainer.trained_model import learning_rate_share
from tests.training_parts import given_gradients, plain_log_probs, tiny_policy

SEQUENCES = [
    ([2, 9, 3], [40, 41, 1]),
    ([2, 3], [77, 1]),
    ([2, *range(30, 40), 3], [5, 6, 7, 8, 9, 1]),
    ([2, 9, 3], [50, 51, 52, 53]),
    ([2, 8, 8, 3], [60]),
    ([2, 3], [61, 62, 63]),
]
ADVANTAGES = np.array([1.0, -1.0, 0.5, -0.5, 2.0, -2.0], dtype=np.float32)
TEMPERATURE = 0.8


def batch_of(minibatch=(0, 0, 0, 0, 0, 0), *, weights: np.ndarray | None = None) -> Batch:
    """Six rollouts whose old log-probs are about those of the fresh policy; weights are the mean over tokens."""
    lengths = [len(response) for _, response in SEQUENCES]
    noise = np.random.default_rng(0).normal(0, 0.3, sum(lengths))
    policy = tiny_policy()
    old = [plain_log_probs(policy, *map(np.array, pair), TEMPERATURE).detach().numpy() for pair in SEQUENCES]
    return Batch.from_sequences(
        [(np.array(prompt), np.array(response)) for prompt, response in SEQUENCES],
        rows={"minibatch": np.array(minibatch)},
        responses={
            "weights": np.full(sum(lengths), 1 / sum(lengths), dtype=np.float32) if weights is None else weights,
            "advantages": np.repeat(ADVANTAGES, lengths),
            "old_log_probs": (np.concatenate(old) + noise).astype(np.float32),
        },
    )


def actor_on(policy: Policy, *, algorithm=None, micro_batch_tokens: int = 1 << 20, total_steps: int = 10, **optimizer):
    settings = {"learning_rate": 1e-3, "decay": "none", "gradient_clip": 1e9} | optimizer
    return ActorWorker(
        policy,
        algorithm or build_algorithm(GrpoPlusConfig()),
        OptimizerConfig(**settings),
        total_steps=total_steps,
        temperature=TEMPERATURE,
        micro_batch_tokens=micro_batch_tokens,
    )


def flat_weights(policy: Policy) -> torch.Tensor:
    return torch.cat([weights.detach().flatten() for weights in policy.model.parameters()])


def gradient_of_update(policy: Policy, batch: Batch, **settings) -> tuple[torch.Tensor, dict[str, float]]:
    """What the optimizer is given in an update of one step, and the metrics."""
    with given_gradients(policy.model.parameters()) as found:
        metrics = actor_on(policy, **settings).update(batch, 1)
    (gradient,) = found
    return gradient, metrics


# --- What a step does ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batch_tokens", [1, 20, 40])
def test_the_size_of_micro_batches_does_not_change_an_update(micro_batch_tokens):
    whole, cut = tiny_policy(dtype=torch.float64), tiny_policy(dtype=torch.float64)
    expected = actor_on(whole).update(batch_of((0, 0, 0, 1, 1, 1)), 2)
    metrics = actor_on(cut, micro_batch_tokens=micro_batch_tokens).update(batch_of((0, 0, 0, 1, 1, 1)), 2)
    assert (flat_weights(cut) - flat_weights(whole)).abs().max() < 1e-6
    assert metrics == pytest.approx(expected, rel=1e-6)


def test_each_minibatch_is_a_step_of_its_own():
    policy, other = tiny_policy(dtype=torch.float64), tiny_policy(dtype=torch.float64)
    batch = batch_of((0, 0, 0, 1, 1, 1))
    actor_on(policy).update(batch, 2)
    actor = actor_on(other)
    for rows in ([0, 1, 2], [3, 4, 5]):
        part = batch.select(np.array(rows))
        actor.update(part.with_rows(minibatch=np.zeros(3, dtype=np.int64)), 1)
    assert torch.equal(flat_weights(policy), flat_weights(other))


def test_an_update_makes_good_responses_likelier_and_bad_ones_less_likely():
    policy = tiny_policy()
    actor = actor_on(policy, learning_rate=1e-4)
    batch = actor.log_probs(batch_of())
    actor.update(batch, 1)
    change = actor.log_probs(batch).responses["old_log_probs"] - batch.responses["old_log_probs"]
    assert (change * batch.responses["advantages"]).sum() > 0


def test_log_probs_are_those_of_each_sequence_alone_in_any_micro_batch():
    policy = tiny_policy()
    expected = [plain_log_probs(policy, *map(np.array, pair), TEMPERATURE).detach() for pair in SEQUENCES]
    for micro_batch_tokens in (1, 30, 1 << 20):
        found = actor_on(policy, micro_batch_tokens=micro_batch_tokens).log_probs(batch_of())
        assert found.responses["old_log_probs"] == pytest.approx(torch.cat(expected).numpy(), abs=1e-5)


def test_a_row_of_weight_0_moves_nothing_whatever_it_holds():
    lengths = [len(response) for _, response in SEQUENCES]
    weights = np.where(np.repeat(np.arange(6), lengths) == 2, 0, 0.1).astype(np.float32)
    policy, other = tiny_policy(), tiny_policy()
    batch = batch_of(weights=weights)
    actor_on(policy).update(batch, 1)
    spoilt = {name: np.where(weights == 0, np.nan, batch.responses[name]) for name in ("advantages", "old_log_probs")}
    actor_on(other).update(batch.with_responses(**{n: c.astype(np.float32) for n, c in spoilt.items()}), 1)
    assert torch.equal(flat_weights(policy), flat_weights(other))


def test_agreement_of_gradient_and_advantage_is_1_and_with_the_wrong_sign_of_the_loss_less_than_0():
    def flipped(log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor) -> TokenLoss:
        return TokenLoss(
            -clipped_policy_loss(log_probs, old_log_probs, advantages, clip_lower=0.2, clip_upper=0.2).loss
        )

    right = build_algorithm(GrpoConfig(kl_coefficient=0.0))
    wrong = replace(right, terms=(LossTerm("policy", ColumnFunction(flipped)),))
    found = [actor_on(tiny_policy(), algorithm=a).update(batch_of(), 1) for a in (right, wrong)]
    assert [metrics["credit/gradient_advantage"] for metrics in found] == pytest.approx([1.0, -1.0])


def test_the_share_that_is_raised_is_by_weight_and_size_of_the_advantage():
    advantages = batch_of().responses["advantages"]
    weights = np.where(advantages > 0, 0.1, 0.2).astype(np.float32)
    sizes = weights * np.abs(advantages)
    both = actor_on(tiny_policy()).update(batch_of(weights=weights), 1)
    assert both["credit/raised_share"] == pytest.approx(sizes[advantages > 0].sum() / sizes.sum(), rel=1e-5)
    failures_alone = np.where(advantages > 0, 0, 0.1).astype(np.float32)
    assert actor_on(tiny_policy()).update(batch_of(weights=failures_alone), 1)["credit/raised_share"] == 0


def test_the_pull_of_a_penalty_rises_with_its_coefficient():
    batch = batch_of()
    batch = batch.with_responses(reference_log_probs=batch.responses["old_log_probs"] + np.float32(0.1))
    found = [
        actor_on(tiny_policy(), algorithm=build_algorithm(GrpoConfig(kl_coefficient=coefficient))).update(batch, 1)
        for coefficient in (0.0, 0.04, 4.0)
    ]
    penalties = [metrics["credit/penalty"] for metrics in found]
    assert penalties[0] == 0 < penalties[1]
    assert penalties[2] == pytest.approx(100 * penalties[1], rel=1e-3)


def test_a_batch_of_weight_0_has_no_gradient_at_all():
    gradient, _ = gradient_of_update(tiny_policy(), batch_of(weights=np.zeros(19, dtype=np.float32)))
    assert gradient.abs().max() == 0


def test_the_gradient_is_clipped_to_its_norm():
    gradient, metrics = gradient_of_update(tiny_policy(), batch_of(), gradient_clip=0.01)
    assert gradient.norm().item() == pytest.approx(0.01, rel=1e-3)
    assert metrics["gradient_norm"] > 0.01  # the norm before it was clipped


def test_after_an_update_there_are_no_gradients():
    policy = tiny_policy()
    actor_on(policy).update(batch_of((0, 0, 0, 1, 1, 1)), 2)
    assert all(weights.grad is None for weights in policy.model.parameters())


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("column", ["advantages", "old_log_probs"])
def test_a_column_that_is_not_finite_is_named_with_the_step_and_leaves_the_weights(column: str, value: float):
    policy = tiny_policy()
    before = flat_weights(policy)
    batch = batch_of()
    spoilt = batch.responses[column].copy()
    spoilt[0] = value
    with pytest.raises(FaultError, match=rf"before optimizer step 1: not finite: {column} \(1 of 19\)"):
        actor_on(policy).update(batch.with_responses(**{column: spoilt}), 1)
    assert torch.equal(flat_weights(policy), before)


def test_tokens_that_do_not_train_may_hold_anything():
    batch = batch_of()
    weights, advantages = (batch.responses[name].copy() for name in ("weights", "advantages"))
    weights[0], advantages[0] = 0.0, math.nan
    metrics = actor_on(tiny_policy()).update(batch.with_responses(weights=weights, advantages=advantages), 1)
    assert math.isfinite(metrics["gradient_norm"])


def test_a_policy_that_gives_nan_is_found_before_its_loss_reaches_a_weight():
    policy = tiny_policy()
    with torch.no_grad():
        policy.model.model.layers[0].mlp.up_proj.weight[0, 0] = math.nan
    before = flat_weights(policy)
    with pytest.raises(FaultError, match=r"optimizer step 1: not finite: log_probs \(19 of 19\), entropy"):
        actor_on(policy).update(batch_of(), 1)
    assert torch.allclose(flat_weights(policy), before, rtol=0, atol=0, equal_nan=True)


def test_a_gradient_that_is_not_finite_is_named_by_its_parameter_and_leaves_the_weights():
    policy = tiny_policy()
    before = flat_weights(policy)
    spoilt = policy.model.model.layers[1].mlp.down_proj.weight
    spoilt.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([0]), math.inf))
    name = r"gradient of model\.layers\.1\.mlp\.down_proj\.weight \(\d+ of \d+\), norm of the gradient"
    with pytest.raises(FaultError, match=f"optimizer step 1: not finite: {name}"):
        actor_on(policy).update(batch_of(), 1)
    assert torch.equal(flat_weights(policy), before)


def test_metrics_tell_of_the_step_and_of_the_gap_to_the_sampler():
    batch = batch_of()
    gap = np.zeros_like(batch.responses["old_log_probs"])
    gap[3] = 0.25
    batch = batch.with_responses(sampler_log_probs=batch.responses["old_log_probs"] - gap)
    metrics = actor_on(tiny_policy()).update(batch, 1)
    assert metrics["log_prob_mismatch"] == pytest.approx(0.25)
    assert {"loss", "loss_policy", "entropy", "ratio_max", "gradient_norm", "learning_rate"} <= metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())


# --- Minibatches without rows --------------------------------------------------------------------------------------


def test_a_minibatch_without_rows_changes_no_weight_but_advances_the_course_of_the_learning_rate():
    policy, other = tiny_policy(), tiny_policy()
    course = {"decay": "linear", "total_steps": 4}
    metrics = actor_on(policy, **course).update(batch_of((1,) * 6), 2)
    waiting = actor_on(other, **course)
    before = flat_weights(other)
    assert waiting.update(batch_of((0,) * 6).select(np.zeros(0, dtype=np.int64)), 1) == {}
    assert torch.equal(flat_weights(other), before)
    waiting.update(batch_of(), 1)
    assert torch.equal(flat_weights(policy), flat_weights(other))
    assert metrics["learning_rate"] == pytest.approx(1e-3 * 3 / 4)  # that of the second of four steps


# --- The course of the learning rate -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"decay": "none"}, [1, 1, 1, 1]),
        ({"decay": "linear"}, [1, 3 / 4, 1 / 2, 1 / 4]),
        ({"decay": "linear", "final_fraction": 0.2}, [1, 0.8, 0.6, 0.4]),
        ({"decay": "linear", "warmup_steps": 2}, [1 / 2, 1, 1, 1 / 2]),
        ({"decay": "cosine"}, [1, (1 + math.sqrt(0.5)) / 2, 1 / 2, (1 - math.sqrt(0.5)) / 2]),
        ({"decay": "none", "warmup_steps": 4}, [1 / 4, 1 / 2, 3 / 4, 1]),
    ],
)
def test_the_share_of_the_peak_at_each_of_four_steps(settings, expected):
    config = OptimizerConfig(**settings)
    assert [learning_rate_share(config, step, 4) for step in range(4)] == pytest.approx(expected)


def test_after_the_planned_steps_the_learning_rate_stays_at_its_end():
    assert learning_rate_share(OptimizerConfig(decay="cosine", final_fraction=0.1), 9, 4) == pytest.approx(0.1)


def test_a_warm_up_longer_than_the_run_still_rises():
    config = OptimizerConfig(decay="linear", warmup_steps=8)
    assert [learning_rate_share(config, step, 4) for step in range(4)] == pytest.approx([1 / 8, 2 / 8, 3 / 8, 4 / 8])


# --- Weights and state ---------------------------------------------------------------------------------------------


def test_exported_weights_are_a_copy():
    policy = tiny_policy()
    actor = actor_on(policy)
    exported = actor.export_weights()
    before = {name: tensor.clone() for name, tensor in exported.items()}
    actor.update(batch_of(), 1)
    assert exported.keys() == policy.model.state_dict().keys()
    assert all(torch.equal(exported[name], before[name]) for name in before)
    assert not torch.equal(exported["model.embed_tokens.weight"], policy.model.get_input_embeddings().weight)


def test_saved_state_goes_on_bit_for_bit(tmp_path: Path):
    policy = tiny_policy()
    actor = actor_on(policy, decay="linear", learning_rate=1e-2)
    for _ in range(3):
        actor.update(batch_of(), 1)
    actor.begin_save(tmp_path)
    assert actor.finish_save(True)
    resumed_policy = tiny_policy(seed=1)
    resumed = actor_on(resumed_policy, decay="linear", learning_rate=1e-2)
    resumed.load(tmp_path)
    for _ in range(3):
        assert actor.update(batch_of(), 1) == resumed.update(batch_of(), 1)
    assert torch.equal(flat_weights(policy), flat_weights(resumed_policy))


def test_without_the_state_of_the_optimizer_it_would_not_go_on_alike(tmp_path: Path):
    policy = tiny_policy()
    actor = actor_on(policy, learning_rate=1e-2)
    actor.update(batch_of(), 1)
    actor.export(tmp_path)
    other = load_policy(tmp_path, device="cpu")
    actor.update(batch_of(), 1)
    actor_on(other, learning_rate=1e-2).update(batch_of(), 1)
    assert not torch.equal(flat_weights(policy), flat_weights(other))


# --- Other algorithms and the reference ----------------------------------------------------------------------------


def test_supervised_steps_make_every_response_likelier():
    policy = tiny_policy()
    actor = actor_on(policy, algorithm=supervised(), learning_rate=1e-3)
    losses = [actor.update(batch_of(), 1)["loss"] for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_an_entropy_bonus_raises_the_entropy():
    policy = tiny_policy()
    config = GrpoConfig(kl_coefficient=0.0, entropy_coefficient=1.0)
    actor = actor_on(policy, algorithm=build_algorithm(config), learning_rate=1e-3)
    batch = batch_of()
    batch = batch.with_responses(advantages=np.zeros_like(batch.responses["advantages"]))
    entropies = [actor.update(batch, 1)["entropy"] for _ in range(5)]
    assert entropies == sorted(entropies)


def test_the_reference_scores_by_weights_that_nobody_trains():
    policy = tiny_policy()
    reference = ReferenceWorker(policy, temperature=TEMPERATURE, micro_batch_tokens=30)
    scored = reference.log_probs(batch_of())
    expected = [plain_log_probs(policy, *map(np.array, pair), TEMPERATURE).detach() for pair in SEQUENCES]
    assert scored.responses["reference_log_probs"] == pytest.approx(torch.cat(expected).numpy(), abs=1e-5)
    assert not any(weights.requires_grad for weights in policy.model.parameters())


def test_an_empty_batch_has_no_log_probs_and_no_steps():
    actor = actor_on(tiny_policy())
    empty = batch_of().select(np.zeros(0, dtype=np.int64))
    assert actor.log_probs(empty).responses["old_log_probs"].shape == (0,)
    assert actor.update(empty, 2) == {}


# --- Log-probs that the update finds itself ------------------------------------------------------------------------


def without_old_log_probs(batch: Batch) -> Batch:
    return replace(batch, responses={n: column for n, column in batch.responses.items() if n != "old_log_probs"})


@pytest.mark.parametrize("micro_batch_tokens", [20, 1 << 20])
@pytest.mark.parametrize(("minibatch", "steps"), [((0,) * 6, 1), ((0, 1, 0, 1, 2, 2), 3), ((1, 1, 1, 2, 2, 2), 3)])
def test_an_update_that_finds_log_probs_itself_is_one_that_was_given_them(minibatch, steps, micro_batch_tokens):
    batch = without_old_log_probs(batch_of(minibatch))
    policy, other = tiny_policy(dtype=torch.float64), tiny_policy(dtype=torch.float64)
    finds = actor_on(policy, micro_batch_tokens=micro_batch_tokens)
    given = actor_on(other, micro_batch_tokens=micro_batch_tokens)
    scored = given.log_probs(batch)
    expected = given.update(scored, steps)
    assert finds.update(batch, steps) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert (flat_weights(policy) - flat_weights(other)).abs().max() < 1e-5  # the column is float32
    found = finds.with_log_probs(batch).responses["old_log_probs"]
    assert found == pytest.approx(scored.responses["old_log_probs"], abs=1e-6)


def test_scores_are_ahead_of_the_update_where_the_algorithm_reads_them_there():
    batch = without_old_log_probs(batch_of())
    config = GrpoPlusConfig(correction=TruncatedCorrectionConfig())
    ahead = actor_on(tiny_policy(), algorithm=build_algorithm(config)).old_log_probs(batch)
    assert "old_log_probs" in ahead.responses
    assert "old_log_probs" not in actor_on(tiny_policy()).old_log_probs(batch).responses
    actor = actor_on(tiny_policy())
    assert actor.with_log_probs(ahead) is ahead


def test_the_gap_to_the_sampler_is_known_when_the_update_finds_the_log_probs():
    policy = tiny_policy()
    batch = without_old_log_probs(batch_of())
    scored = actor_on(policy).log_probs(batch).responses["old_log_probs"].copy()
    scored[2] += 0.125
    metrics = actor_on(policy).update(batch.with_responses(sampler_log_probs=scored), 1)
    assert metrics["log_prob_mismatch"] == pytest.approx(0.125, abs=1e-5)


def test_weights_that_a_step_makes_nan_are_named_at_that_step(monkeypatch: pytest.MonkeyPatch):
    step = torch.optim.AdamW.step

    def broken(self, *args, **kwargs):
        step(self, *args, **kwargs)
        self.param_groups[0]["params"][0].data.view(-1)[0] = math.nan

    monkeypatch.setattr(torch.optim.AdamW, "step", broken)
    with pytest.raises(FaultError, match=r"after optimizer step 1: not finite: \S+ \(1 of \d+\)\. The step itself"):
        actor_on(tiny_policy()).update(batch_of(), 1)
