"""The functions of verl 0.9.1 beside ours, on the same numbers: where they agree, and where ours differ on purpose.

verl needs other versions of our libraries, so it has an environment of its own: `make test-verl`. Its batches are
padded, (B, L) with a mask; ours are packed. verl is Apache-2.0, https://github.com/verl-project/verl; what is called
here is public in `verl.trainer.ppo.core_algos`.
"""

from __future__ import annotations

import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autoclave.algorithms import (
    adapted_kl_coefficient,
    budget_mean,
    build_algorithm,
    clipped_policy_loss,
    entropy,
    generalised_advantages,
    group_token_advantages,
    k1,
    k2,
    k3,
    outcome_token_rewards,
    policy_gradient_loss,
    returns,
    reward_to_go,
    sequence_clipped_policy_loss,
    sequence_mean,
    sequence_sum,
    token_mean,
    value_loss,
    weighted_policy_loss,
    whitened,
)
from autoclave.config import (
    AlgorithmSettings,
    CispoConfig,
    DapoConfig,
    DrGrpoConfig,
    GrpoConfig,
    GrpoPlusConfig,
    GspoConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
)

pytestmark = pytest.mark.verl

LIMIT = 7
"""Most tokens of a response, and the width of a padded batch."""
NO_DUAL_CLIP = 1e9
"""verl always has a dual clip; so high it never binds."""
Columns = dict[str, Tensor]

close = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-6, check_dtype=False)


@pytest.fixture(scope="module")
def verl() -> Any:
    """`verl.trainer.ppo.core_algos`, with the two classes of settings that it takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that there is no accelerator
        from verl.trainer.config import AlgoConfig
        from verl.trainer.ppo import core_algos
        from verl.utils import torch_functional
        from verl.workers.config import ActorConfig

    def actor(lower: float, upper: float, dual_clip: float = NO_DUAL_CLIP) -> Any:
        bounds = {"clip_ratio_low": lower, "clip_ratio_high": upper, "clip_ratio_c": dual_clip}
        return ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1, **bounds)

    return SimpleNamespace(core=core_algos, tensors=torch_functional, actor=actor, algorithm=AlgoConfig(gamma=1.0))


@pytest.fixture(params=range(3))
def batch(request: pytest.FixtureRequest) -> Columns:
    """Three groups of two to five rollouts of one to seven tokens, off policy; all train."""
    generator = torch.Generator().manual_seed(request.param)
    sizes = torch.randint(2, 6, (3,), generator=generator)
    group = torch.arange(3).repeat_interleave(sizes)
    lengths = torch.randint(1, LIMIT + 1, group.shape, generator=generator)
    row = torch.arange(len(group)).repeat_interleave(lengths)
    noise = [torch.randn(row.shape, generator=generator, dtype=torch.float64) for _ in range(6)]
    old = -noise[0].abs() - 0.1
    return {
        "group": group,
        "row": row,
        "in_loss": torch.ones(group.shape, dtype=torch.bool),
        "in_baseline": torch.ones(group.shape, dtype=torch.bool),
        "rewards": torch.randint(0, 3, group.shape, generator=generator).double() / 2,
        "minibatch": torch.zeros_like(group),
        "length_limits": torch.full_like(group, LIMIT),
        "old_log_probs": old,
        "log_probs": old + 0.3 * noise[1],  # about half of the ratios are outside the clip
        "reference_log_probs": old + 0.5 * noise[2],
        "sampler_log_probs": old,
        "entropy": noise[3].abs(),
        "old_values": noise[4],
        "values": noise[4] + 0.5 * noise[5],
        "advantages": torch.randn(row.shape, generator=generator, dtype=torch.float64),
    }


# --- From packed to padded and back ----------------------------------------------------------------------------------


def mask_of(batch: Columns) -> Tensor:
    """(B, LIMIT) float64: 1 where there is a token."""
    lengths = torch.bincount(batch["row"], minlength=len(batch["group"]))
    return (torch.arange(LIMIT)[None] < lengths[:, None]).double()


def padded(batch: Columns, values: Tensor) -> Tensor:
    """(B, LIMIT) from (N,), 0 where there is no token. Differentiable."""
    mask = mask_of(batch)
    return torch.zeros_like(mask).masked_scatter(mask.bool(), values)


def packed(batch: Columns, values: Tensor) -> Tensor:
    """(N,) from (B, LIMIT)."""
    return values[mask_of(batch).bool()]


def token_rewards(batch: Columns) -> Tensor:
    """(B, LIMIT): the reward at the last token, as verl has it."""
    return padded(batch, outcome_token_rewards(batch["rewards"], batch["row"]))


def groups_of(batch: Columns) -> np.ndarray:
    return batch["group"].numpy()


# --- Advantages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["std", "none"])
def test_advantages_of_groups_are_those_of_verl(verl, batch, scale):
    theirs, _ = verl.core.compute_grpo_outcome_advantage(
        token_rewards(batch), mask_of(batch), groups_of(batch), norm_adv_by_std_in_grpo=scale == "std"
    )
    ours = group_token_advantages(batch["rewards"], batch["group"], batch["in_baseline"], batch["row"], scale=scale)
    close(ours, packed(batch, theirs))


def test_advantages_against_the_others_are_those_of_verl(verl, batch):
    theirs, _ = verl.core.compute_rloo_outcome_advantage(token_rewards(batch), mask_of(batch), groups_of(batch))
    ours = group_token_advantages(
        batch["rewards"], batch["group"], batch["in_baseline"], batch["row"], baseline="leave_one_out", scale="none"
    )
    close(ours, packed(batch, theirs))


def test_advantages_normalised_over_the_batch_are_those_of_verl(verl, batch):
    theirs, _ = verl.core.compute_reinforce_plus_plus_outcome_advantage(
        token_rewards(batch), mask_of(batch), config=verl.algorithm
    )
    earned = outcome_token_rewards(batch["rewards"], batch["row"])
    ours = whitened(reward_to_go(earned, batch["row"], batch["in_loss"]), batch["row"], batch["in_loss"])
    close(ours, packed(batch, theirs))


def test_advantages_with_a_baseline_normalised_over_the_batch_are_those_of_verl(verl, batch):
    theirs, _ = verl.core.compute_reinforce_plus_plus_baseline_outcome_advantage(
        token_rewards(batch), mask_of(batch), groups_of(batch)
    )
    centred = group_token_advantages(batch["rewards"], batch["group"], batch["in_baseline"], batch["row"], scale="none")
    close(whitened(centred, batch["row"], batch["in_loss"]), packed(batch, theirs))


@pytest.mark.parametrize(("discount", "gae_lambda"), [(1.0, 1.0), (1.0, 0.95), (0.9, 0.5), (0.99, 0.0)])
def test_generalised_advantages_and_returns_are_those_of_verl(verl, batch, discount, gae_lambda):
    advantages, theirs = verl.core.compute_gae_advantage_return(
        token_rewards(batch), padded(batch, batch["old_values"]), mask_of(batch), discount, gae_lambda
    )
    earned = outcome_token_rewards(batch["rewards"], batch["row"])
    ours = generalised_advantages(
        earned, batch["old_values"], batch["row"], batch["in_loss"], discount=discount, gae_lambda=gae_lambda
    )
    close(returns(ours, batch["old_values"]), packed(batch, theirs))
    close(whitened(ours, batch["row"], batch["in_loss"]), packed(batch, advantages))


# --- Losses ----------------------------------------------------------------------------------------------------------

MEANS = {
    "token-mean": token_mean,
    "seq-mean-token-mean": sequence_mean,
    "seq-mean-token-sum": sequence_sum,
    "seq-mean-token-sum-norm": budget_mean,  # verl's constant is the width of the batch, which is the limit here
}


def weights_of(batch: Columns, mean: str) -> Tensor:
    limits = (batch["length_limits"],) if MEANS[mean] is budget_mean else ()
    return MEANS[mean](batch["row"], batch["in_loss"], *limits)


def with_gradient(batch: Columns, name: str) -> Tensor:
    return batch[name].clone().requires_grad_()


def assert_equal_gradients(ours: Tensor, our_leaf: Tensor, theirs: Tensor, their_leaf: Tensor) -> None:
    """Equal values, and equal gradients by the tokens of the leaf."""
    close(ours, theirs)
    close(*torch.autograd.grad(ours, our_leaf), *torch.autograd.grad(theirs, their_leaf))


def compare_policy_loss(verl: Any, batch: Columns, name: str, mean: str, config: Any, ours: Any) -> None:
    mine, other = with_gradient(batch, "log_probs"), with_gradient(batch, "log_probs")
    theirs, _ = verl.core.get_policy_loss_fn(name)(
        padded(batch, batch["old_log_probs"]),
        padded(batch, other),
        padded(batch, batch["advantages"]),
        mask_of(batch),
        loss_agg_mode=mean,
        config=config,
    )
    loss = (weights_of(batch, mean) * ours(mine).loss).sum()
    assert_equal_gradients(loss, mine, theirs, other)


@pytest.mark.parametrize("mean", MEANS)
def test_every_mean_is_that_of_verl(verl, batch, mean):
    mine, other = with_gradient(batch, "log_probs"), with_gradient(batch, "log_probs")
    theirs = verl.core.agg_loss(
        padded(batch, -batch["advantages"] * other), mask_of(batch), mean, loss_scale_factor=LIMIT
    )
    ours = (weights_of(batch, mean) * policy_gradient_loss(mine, batch["advantages"]).loss).sum()
    assert_equal_gradients(ours, mine, theirs, other)


@pytest.mark.parametrize("dual_clip", [None, 3.0, 1.2])
@pytest.mark.parametrize("mean", ["token-mean", "seq-mean-token-mean"])
def test_the_clipped_loss_is_that_of_verl(verl, batch, dual_clip, mean):
    ours = partial(
        clipped_policy_loss,
        old_log_probs=batch["old_log_probs"],
        advantages=batch["advantages"],
        clip_lower=0.2,
        clip_upper=0.28,
        dual_clip=dual_clip,
    )
    compare_policy_loss(verl, batch, "vanilla", mean, verl.actor(0.2, 0.28, dual_clip or NO_DUAL_CLIP), ours)


@pytest.mark.parametrize("clips", [(0.1, 0.2), (3e-4, 4e-4)])
def test_the_loss_clipped_by_response_is_that_of_verl(verl, batch, clips):
    lower, upper = clips
    ours = partial(
        sequence_clipped_policy_loss,
        old_log_probs=batch["old_log_probs"],
        advantages=batch["advantages"],
        row=batch["row"],
        clip_lower=lower,
        clip_upper=upper,
    )
    compare_policy_loss(verl, batch, "gspo", "seq-mean-token-mean", verl.actor(lower, upper), ours)


@pytest.mark.parametrize("clips", [(0.2, 0.28), (1.0, 4.0)])
def test_the_loss_with_a_clipped_weight_is_that_of_verl(verl, batch, clips):
    lower, upper = clips
    ours = partial(
        weighted_policy_loss,
        old_log_probs=batch["old_log_probs"],
        advantages=batch["advantages"],
        clip_lower=lower,
        clip_upper=upper,
    )
    compare_policy_loss(verl, batch, "cispo", "token-mean", verl.actor(lower, upper), ours)


def test_the_loss_of_the_critic_is_that_of_verl(verl, batch):
    mine, other = with_gradient(batch, "values"), with_gradient(batch, "values")
    theirs, _ = verl.core.compute_value_loss(
        padded(batch, other),
        padded(batch, batch["advantages"]),
        padded(batch, batch["old_values"]),
        mask_of(batch),
        cliprange_value=0.2,
    )
    loss = value_loss(mine, batch["old_values"], batch["advantages"], clip=0.2).loss
    assert_equal_gradients((weights_of(batch, "token-mean") * loss).sum(), mine, theirs, other)


# --- KL and entropy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["k1", "k2", "k3"])
def test_estimators_of_kl_are_those_of_verl_near_the_reference(verl, batch, name):
    mine, other = with_gradient(batch, "log_probs"), with_gradient(batch, "log_probs")
    ours = {"k1": k1, "k2": k2, "k3": k3}[name](mine, batch["reference_log_probs"])
    theirs = verl.core.kl_penalty(other, batch["reference_log_probs"], name)
    close(ours, theirs)
    assert_equal_gradients(ours.sum(), mine, theirs.sum(), other)


def test_the_adaptive_kl_coefficient_is_that_of_verl(verl):
    theirs = verl.core.AdaptiveKLController(0.1, target_kl=6.0, horizon=10_000)
    state = (0.1,)
    for kl in (9.0, 5.5, 0.0, 6.3):
        theirs.update(kl, n_steps=1000)
        state = adapted_kl_coefficient(state, {"reward_kl_per_response": kl}, target=6.0, gain=1000 / 10_000)
        assert state[0] == pytest.approx(theirs.value, rel=1e-12)


def test_the_entropy_of_a_token_is_that_of_verl(verl):
    logits = torch.randn(5, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    close(entropy(logits), verl.tensors.entropy_from_logits(logits))


# --- Whole algorithms ------------------------------------------------------------------------------------------------


def by_group(scale: bool) -> Any:
    return lambda verl, batch: verl.core.compute_grpo_outcome_advantage(
        token_rewards(batch), mask_of(batch), groups_of(batch), norm_adv_by_std_in_grpo=scale
    )[0]


def rewards_less_kl(verl: Any, batch: Columns, coefficient: float) -> Tensor:
    """(B, LIMIT): verl's rewards of tokens with a KL penalty."""
    old, reference = (padded(batch, batch[name]) for name in ("old_log_probs", "reference_log_probs"))
    return verl.core.compute_rewards(token_rewards(batch), old, reference, coefficient)


def without_baseline(verl: Any, batch: Columns) -> Tensor:
    earned = rewards_less_kl(verl, batch, 0.01)
    return verl.core.compute_reinforce_plus_plus_outcome_advantage(earned, mask_of(batch), config=verl.algorithm)[0]


def with_baseline(verl: Any, batch: Columns) -> Tensor:
    return verl.core.compute_reinforce_plus_plus_baseline_outcome_advantage(
        token_rewards(batch), mask_of(batch), groups_of(batch)
    )[0]


def by_critic(verl: Any, batch: Columns) -> Tensor:
    earned, values = rewards_less_kl(verl, batch, 0.02), padded(batch, batch["old_values"])
    return verl.core.compute_gae_advantage_return(earned, values, mask_of(batch), 1.0, 0.95)[0]


# settings, verl's advantages, its loss, its mean, its clips, its KL loss
WHOLE: dict[str, tuple[AlgorithmSettings, Any, str, str, tuple[float, float], tuple[float, str] | None]] = {
    "grpo": (GrpoConfig(), by_group(True), "vanilla", "seq-mean-token-mean", (0.2, 0.2), (0.04, "k3")),
    "grpo_plus": (GrpoPlusConfig(), by_group(True), "vanilla", "token-mean", (0.2, 0.28), None),
    "dapo": (DapoConfig(overlong_buffer=0.0), by_group(True), "vanilla", "token-mean", (0.2, 0.28), None),
    "dr_grpo": (DrGrpoConfig(), by_group(False), "vanilla", "seq-mean-token-sum-norm", (0.2, 0.2), None),
    "gspo": (GspoConfig(), by_group(True), "gspo", "seq-mean-token-mean", (3e-4, 4e-4), None),
    "cispo": (CispoConfig(), by_group(True), "cispo", "token-mean", (1.0, 4.0), None),
    "reinforce_plus_plus": (ReinforcePlusPlusConfig(), without_baseline, "vanilla", "token-mean", (0.2, 0.2), None),
    "reinforce_plus_plus, baseline": (
        ReinforcePlusPlusConfig(baseline="group"),
        with_baseline,
        "vanilla",
        "token-mean",
        (0.2, 0.2),
        (0.01, "k2"),
    ),
    "ppo": (PpoConfig(), by_critic, "vanilla", "token-mean", (0.2, 0.2), None),
}


def learnt(settings: AlgorithmSettings, batch: Columns) -> tuple[Tensor, Tensor]:
    """The loss of one of our algorithms, and the log-probs that it is differentiable by."""
    algorithm = build_algorithm(settings)
    given = {name: column for name, column in batch.items() if name not in ("advantages", "in_baseline")}
    coefficients = {
        name: torch.full_like(batch["log_probs"], state[0]) for name, state in algorithm.first_state.items()
    }
    leaf = with_gradient(batch, "log_probs")
    return algorithm.loss(algorithm.prepare(given | coefficients) | {"log_probs": leaf}).total, leaf


@pytest.mark.parametrize("name", WHOLE)
def test_the_update_of_a_whole_algorithm_is_what_the_functions_of_verl_come_to(verl, batch, name):
    settings, advantages, loss_name, mean, clips, kl = WHOLE[name]
    ours, mine = learnt(settings, batch)
    other = with_gradient(batch, "log_probs")
    theirs, _ = verl.core.get_policy_loss_fn(loss_name)(
        padded(batch, batch["old_log_probs"]),
        padded(batch, other),
        advantages(verl, batch),
        mask_of(batch),
        loss_agg_mode=mean,
        config=verl.actor(*clips),
    )
    if kl:
        coefficient, estimator = kl
        penalty = verl.core.kl_penalty(padded(batch, other), padded(batch, batch["reference_log_probs"]), estimator)
        theirs = theirs + coefficient * verl.core.agg_loss(penalty, mask_of(batch), mean)
    assert_equal_gradients(ours, mine, theirs, other)


# --- Where ours differ on purpose ------------------------------------------------------------------------------------


def test_equal_fractional_rewards_teach_nothing_here_and_something_there(verl):
    rewards, group, mask = torch.full((7,), 0.7), torch.zeros(7, dtype=torch.int64), torch.ones(7, 1)
    theirs, _ = verl.core.compute_grpo_outcome_advantage(rewards[:, None], mask, group.numpy())
    ours = group_token_advantages(rewards, group, torch.ones(7, dtype=torch.bool), torch.arange(7))
    assert not ours.any()
    assert theirs.abs().min() > 0.01  # rounding of the mean in float32, divided by epsilon


def test_a_group_of_one_has_advantage_0_here_and_its_reward_there(verl):
    one = torch.ones(1)
    theirs, _ = verl.core.compute_grpo_outcome_advantage(one[:, None].clone(), torch.ones(1, 1), np.zeros(1))
    ours = group_token_advantages(one, one.long(), one.bool(), torch.zeros(1, dtype=torch.int64))
    assert ours.item() == 0
    assert theirs.item() == pytest.approx(1)


def test_a_masked_row_is_in_the_baseline_there_and_not_here(verl):
    rewards, group, mask = torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3, dtype=torch.int64), torch.ones(3, 1)
    mask[2] = 0
    theirs, _ = verl.core.compute_grpo_outcome_advantage(rewards[:, None].clone(), mask, group.numpy())
    ours = group_token_advantages(rewards, group, mask[:, 0].bool(), torch.arange(3))
    close(ours, torch.tensor([1.0, -1.0, 0.0]) / 2**0.5, atol=1e-5)
    close(theirs[:, 0], torch.tensor([2.0, -1.0, 0.0]) / 3**0.5, atol=1e-5)


def test_k3_far_from_the_reference_is_cut_at_10_there(verl):
    far, near = torch.tensor([-8.0]), torch.tensor([-1.0])
    assert k3(far, near).item() == pytest.approx(np.exp(7) - 1 - 7, rel=1e-5)
    assert verl.core.kl_penalty(far, near, "k3").item() == 10


def test_the_dual_clip_is_off_here_and_on_there(verl):
    log_probs, advantages = torch.tensor([[2.0]]), torch.tensor([[-1.0]])  # a ratio of e^2
    ours = clipped_policy_loss(log_probs, 0 * log_probs, advantages, clip_lower=0.2, clip_upper=0.2).loss
    theirs, _ = verl.core.compute_policy_loss_vanilla(
        0 * log_probs, log_probs, advantages, torch.ones(1, 1), config=verl.actor(0.2, 0.2, dual_clip=3.0)
    )
    assert ours.item() == pytest.approx(np.exp(2), rel=1e-5)
    assert theirs.item() == pytest.approx(3)


def test_rloo_is_the_plain_policy_gradient_here_and_the_clipped_loss_there(verl, batch):
    ours, mine = learnt(RlooConfig(kl_coefficient=0.0), batch)
    other = with_gradient(batch, "log_probs")
    advantages, _ = verl.core.compute_rloo_outcome_advantage(token_rewards(batch), mask_of(batch), groups_of(batch))
    given = (padded(batch, batch["old_log_probs"]), padded(batch, other), advantages, mask_of(batch))
    clipped, _ = verl.core.compute_policy_loss_vanilla(*given, config=verl.actor(0.2, 0.2))
    plain = verl.core.agg_loss(padded(batch, -packed(batch, advantages) * other), mask_of(batch), "seq-mean-token-sum")
    assert_equal_gradients(ours, mine, plain, other)
    assert not torch.isclose(ours, clipped)
