"""What holds for every algorithm, whatever its formula."""

from __future__ import annotations

import math
import pickle  # noqa: TID251  what executors do with an algorithm of ours
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.algorithms import (
    Algorithm,
    Column,
    ColumnFunction,
    Equation,
    LossTerm,
    TokenLoss,
    build_algorithm,
    chain,
    group_advantages,
    group_token_advantages,
    k3,
    kl_penalty,
    step_metrics,
    token_kl,
    truncated_importance,
    whitened,
)
from autoclave.algorithms.choices import CHOICES
from autoclave.config import (
    AdaptiveKlConfig,
    GrpoConfig,
    GrpoPlusConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
    TruncatedCorrectionConfig,
)
from autoclave.core import InputError, MaskReason
from tests.algorithms.choices import EVERY_VARIANT, NAMES, VARIANTS

BUILT = {name: build_algorithm(settings) for name, settings in VARIANTS.items()}
GRPO, GRPO_PLUS = build_algorithm(GrpoConfig(entropy_coefficient=0.01)), BUILT["grpo_plus"]
SEEDS = st.integers(0, 10_000)
SOME = settings(max_examples=25)  # for each of twenty variants
SCORES = ("log_probs", "old_log_probs", "reference_log_probs", "sampler_log_probs", "entropy", "values", "old_values")


def tokens(batch, chosen):
    """The part of a batch that holds the chosen tokens."""
    return {name: values[chosen] for name, values in batch.items() if values.shape == batch["row"].shape}


def gradients(batch):
    return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves(batch)]


def leaves(batch):
    return [batch[name] for name in ("log_probs", "entropy", "values")]


def losses(algorithm, batch):
    """The loss, and that of the critic if there is one."""
    of_critic = [algorithm.critic_loss(batch)] if algorithm.needs_critic else []
    return [algorithm.loss(batch), *of_critic]


def backward(algorithm, batch):
    for loss in losses(algorithm, batch):
        loss.total.backward()


# --- What a run must have ------------------------------------------------------------------------------------------


def needs(settings) -> tuple[bool, ...]:
    algorithm = build_algorithm(settings)
    return (
        algorithm.needs_reference,
        algorithm.needs_critic,
        algorithm.needs_entropy,
        algorithm.needs_log_probs,
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # reference, critic, entropy, scores before advantages
        (PpoConfig(), (True, True, False, True)),
        (PpoConfig(kl_coefficient=0.0), (False, True, False, True)),
        (GrpoConfig(entropy_coefficient=0.01), (True, False, True, False)),
        (GrpoConfig(kl_coefficient=0.0), (False, False, False, False)),
        (GrpoPlusConfig(), (False, False, False, False)),
        (GrpoPlusConfig(reading="introduction"), (False, False, True, False)),
        (RlooConfig(), (True, False, False, True)),
        (RlooConfig(kl_coefficient=0.0), (False, False, False, False)),
        (ReinforcePlusPlusConfig(), (True, False, False, True)),
        (ReinforcePlusPlusConfig(baseline="group"), (True, False, False, False)),
    ],
)
def test_what_must_be_computed_follows_from_the_choices(settings, expected):
    assert needs(settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (GrpoConfig(), False),  # its KL term is in the loss
        (GrpoPlusConfig(), False),
        (GrpoPlusConfig(correction=TruncatedCorrectionConfig()), True),
        (GrpoPlusConfig(reading="introduction"), True),  # clips by the KL of a group at each optimizer step
        (PpoConfig(), True),  # a KL penalty on rewards
        (PpoConfig(kl_coefficient=0.0), False),
    ],
)
def test_log_probs_are_needed_ahead_of_the_update_where_something_before_the_loss_reads_them(settings, expected):
    assert build_algorithm(settings).needs_old_log_probs == expected


def test_settings_know_without_torch_what_the_algorithm_needs():
    for chosen in VARIANTS.values():
        assert chosen.needs_critic == build_algorithm(chosen).needs_critic


def test_every_choice_has_settings_of_its_name_and_is_tested_here():
    assert sorted(CHOICES) == NAMES
    assert all(algorithm.name == VARIANTS[name].name for name, algorithm in BUILT.items())


# --- Laws ----------------------------------------------------------------------------------------------------------


@EVERY_VARIANT
def test_an_algorithm_survives_pickling(make_batch, learn, variant):
    algorithm = BUILT[variant]
    batch = learn(algorithm, make_batch(3))
    copy = pickle.loads(pickle.dumps(algorithm))
    assert torch.equal(copy.loss(batch).total, algorithm.loss(batch).total)
    assert (copy.name, copy.reads, copy.first_state) == (algorithm.name, algorithm.reads, algorithm.first_state)


@EVERY_VARIANT
@SOME
@given(seed=SEEDS, num_parts=st.integers(2, 6))
def test_micro_batches_add_up_to_the_whole(make_batch, learn, variant, seed, num_parts):
    algorithm = BUILT[variant]
    whole, split = (learn(algorithm, make_batch(seed)) for _ in range(2))
    expected = losses(algorithm, whole)
    parts = [losses(algorithm, tokens(split, split["row"] % num_parts == part)) for part in range(num_parts)]
    for number, loss in enumerate(expected):
        loss.total.backward()
        shares = [part[number] for part in parts]
        for share in shares:
            share.total.backward()
        assert sum(share.total.item() for share in shares) == pytest.approx(loss.total.item(), abs=1e-6)
        found = step_metrics(share.diagnostics for share in shares)
        assert found == pytest.approx(step_metrics([loss.diagnostics]), abs=1e-6)
    torch.testing.assert_close(gradients(split), gradients(whole), rtol=0, atol=1e-9)


@EVERY_VARIANT
@SOME
@given(seed=SEEDS)
def test_in_float32_a_split_changes_the_gradient_by_less_than_a_millionth(make_batch, learn, variant, seed):
    algorithm = BUILT[variant]
    whole, split = (learn(algorithm, make_batch(seed, torch.float32)) for _ in range(2))
    backward(algorithm, whole)
    for part in range(3):
        backward(algorithm, tokens(split, split["row"] % 3 == part))
    torch.testing.assert_close(gradients(split), gradients(whole), rtol=1e-6, atol=1e-6)


@EVERY_VARIANT
@SOME
@given(seed=SEEDS, random=st.randoms(use_true_random=False))
def test_packing_order_does_not_matter(make_batch, learn, variant, seed, random):
    algorithm, batch = BUILT[variant], make_batch(seed)
    rows = batch["row"].tolist()
    random.shuffle(rows)
    waiting = {row: iter((batch["row"] == row).nonzero().flatten().tolist()) for row in rows}
    order = [next(waiting[row]) for row in rows]  # rows interleave again, tokens of a row stay in order
    packed = {name: values[order] if values.shape == batch["row"].shape else values for name, values in batch.items()}
    straight, shuffled = learn(algorithm, batch), learn(algorithm, packed)
    for each in (straight, shuffled):
        backward(algorithm, each)
    torch.testing.assert_close(shuffled["advantages"], straight["advantages"][order], rtol=0, atol=1e-9)
    for expected, found in zip(gradients(straight), gradients(shuffled), strict=True):
        torch.testing.assert_close(found, expected[order], rtol=0, atol=1e-9)


@EVERY_VARIANT
@SOME
@given(seed=SEEDS, hostile=st.sampled_from([float("nan"), float("inf"), -1e38]))
def test_tokens_that_do_not_train_have_no_gradient_whatever_they_hold(make_batch, learn, variant, seed, hostile):
    algorithm, batch = BUILT[variant], make_batch(seed)
    idle = ~batch["in_loss"][batch["row"]]
    soiled = batch | {name: batch[name].masked_fill(idle, hostile) for name in SCORES}
    clean, dirty = learn(algorithm, batch), learn(algorithm, soiled)
    idle = clean["weights"] == 0  # and what the algorithm itself took out
    for each in (clean, dirty):
        backward(algorithm, each)
    for expected, found in zip(gradients(clean), gradients(dirty), strict=True):
        assert torch.equal(found, expected)
        assert not found[idle].any()


@EVERY_VARIANT
@SOME
@given(seed=SEEDS)
def test_rows_that_need_no_computing_can_be_left_out(make_batch, learn, variant, seed):
    algorithm = BUILT[variant]
    whole, left_out = (learn(algorithm, make_batch(seed)) for _ in range(2))
    compute = algorithm.rows_to_compute(whole)
    assert not (compute & ~whole["in_loss"]).any()
    algorithm.loss(whole).total.backward()
    algorithm.loss(tokens(left_out, compute[left_out["row"]])).total.backward()
    torch.testing.assert_close(gradients(left_out), gradients(whole), rtol=0, atol=0)


@EVERY_VARIANT
@SOME
@given(seed=SEEDS)
def test_where_the_policy_has_not_moved_the_gradient_is_that_of_reinforce(make_batch, learn, variant, seed):
    algorithm, batch = BUILT[variant], make_batch(seed)
    batch = learn(algorithm, batch | {"log_probs": batch["old_log_probs"]})
    policy, *_ = algorithm.terms
    loss = policy.compute({name: values for name, values in batch.items() if values.shape == batch["row"].shape}).loss
    (gradient,) = torch.autograd.grad(loss.sum(), batch["log_probs"])
    torch.testing.assert_close(gradient, -batch["advantages"], rtol=1e-12, atol=0)  # of -A log p


@EVERY_VARIANT
def test_a_step_in_which_nothing_trains_has_a_loss_of_zero(make_batch, learn, variant):
    algorithm, batch = BUILT[variant], make_batch(7)
    batch = learn(algorithm, batch | {"in_loss": torch.zeros_like(batch["in_loss"])})
    assert not batch["advantages"].any()
    for loss in losses(algorithm, batch):
        loss.total.backward()
        assert loss.total.item() == 0.0
        assert set(step_metrics([loss.diagnostics]).values()) == {0.0}
    assert not any(gradient.any() for gradient in gradients(batch))


@EVERY_VARIANT
@SOME
@given(seed=SEEDS)
def test_optimizer_steps_have_weights_of_their_own(make_batch, learn, variant, seed):
    algorithm, batch = BUILT[variant], make_batch(seed)
    first = batch["group"] == batch["group"][0]
    batch["minibatch"] = torch.where(first, 0, 1)
    both = learn(algorithm, batch)
    for number, members in enumerate((first, ~first)):
        inside = members[batch["row"]]
        alone = algorithm.weighting(both | {"in_loss": both["in_loss"] & (batch["minibatch"] == number)})
        assert torch.equal(both["weights"][inside], alone[inside])


def test_equal_rewards_leave_nothing_to_compute_unless_another_term_pulls(make_batch, learn):
    batch = make_batch(5)
    equal = batch | {"rewards": torch.ones_like(batch["rewards"])}
    assert not GRPO_PLUS.rows_to_compute(learn(GRPO_PLUS, equal)).any()
    for options in ({"kl_coefficient": 0.1}, {"kl_coefficient": 0.0, "entropy_coefficient": 0.1}):
        pulled = build_algorithm(GrpoConfig(**options))
        assert torch.equal(pulled.rows_to_compute(learn(pulled, equal)), batch["in_loss"])
    alone = build_algorithm(GrpoConfig(kl_coefficient=0.0))
    assert not alone.rows_to_compute(learn(alone, equal)).any()


def test_a_bonus_that_has_ended_pulls_no_row_into_the_computation(make_batch, learn):
    batch = make_batch(5)
    equal = batch | {"rewards": torch.ones_like(batch["rewards"])}
    prepared = learn(BUILT["grpo_plus, introduction"], equal)
    algorithm = BUILT["grpo_plus, introduction"]
    assert torch.equal(algorithm.rows_to_compute(prepared), batch["in_loss"])
    ended = prepared | {"entropy_coefficient": torch.zeros_like(prepared["entropy_coefficient"])}
    assert not algorithm.rows_to_compute(ended).any()


def test_before_models_are_asked_all_rows_count_that_are_in_loss_or_baseline(make_batch):
    batch = make_batch(5)
    assert torch.equal(BUILT["ppo"].rows_to_compute(batch), batch["in_loss"])
    asked = build_algorithm(RlooConfig(include_masked_in_baseline=True))
    assert torch.equal(asked.rows_to_compute(batch), batch["in_loss"] | batch["rewards"].isfinite())


def test_advantages_carry_no_gradient(make_batch):
    batch = make_batch(11)
    batch["rewards"].requires_grad_()
    assert not GRPO.prepare(batch)["advantages"].requires_grad


def test_more_can_be_observed_over_the_trained_tokens(make_batch, learn):
    batch = learn(GRPO_PLUS, make_batch(13))
    observed = batch["entropy"].detach()
    metrics = step_metrics([GRPO_PLUS.loss(batch, observed={"entropy": observed}).diagnostics])
    assert metrics["entropy"] == pytest.approx(observed[batch["weights"] > 0].mean().item())


# --- From step to step ---------------------------------------------------------------------------------------------


def test_coefficients_follow_the_metrics_and_start_where_the_settings_say():
    adaptive = PpoConfig(kl_coefficient=0.1, kl_controller=AdaptiveKlConfig(target=2.0))
    algorithm = build_algorithm(adaptive)
    assert algorithm.first_state == {"kl_coefficient": (0.1,)}
    (moved,) = algorithm.next_state(algorithm.first_state, {"reward_kl_per_response": 4.0})["kl_coefficient"]
    assert moved == pytest.approx(0.1 * 1.02)  # twice the target: error 1, counted as 0.2, times gain 0.1
    assert BUILT["ppo"].next_state({"kl_coefficient": (0.02,)}, {"reward_kl_per_response": 4.0}) == {
        "kl_coefficient": (0.02,)
    }
    assert GRPO.first_state == {}


# --- Mistakes ------------------------------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_is_refused(make_batch, learn):
    batch = learn(GRPO, make_batch(17))
    without = {name: values for name, values in batch.items() if name not in ("entropy", "old_log_probs")}
    with pytest.raises(ValueError, match="lacks entropy, old_log_probs; it has advantages, "):
        GRPO.loss(without)
    with pytest.raises(ValueError, match=r"entropy has shape \(1,\); must be \(N,\)"):
        GRPO.loss(batch | {"entropy": torch.zeros(1)})
    with pytest.raises(ValueError, match="lacks rewards"):
        GRPO.prepare({name: batch[name] for name in ("group", "in_loss", "row")})
    with pytest.raises(ValueError, match="lacks row"):
        GRPO.rows_to_compute({name: batch[name] for name in ("advantages", "in_loss")})


def _scaled(advantages, factor):
    return advantages * factor


def _misspelt(groups, factor):
    return groups


def _with_default(rewards, in_baseline=None):
    return rewards


def _per_rollout(rewards, row):
    return rewards


def _all_but_scores(in_loss, old_values):
    return in_loss


def test_choices_that_cannot_work_are_refused_when_they_are_made():
    with pytest.raises(ValueError, match=r"_scaled: parameter factor: no such column; columns are rewards, .*partial"):
        ColumnFunction(_scaled)
    with pytest.raises(ValueError, match=r"_misspelt: parameter groups: no such column; did you mean group\?"):
        ColumnFunction(partial(_misspelt, factor=2))
    with pytest.raises(ValueError, match=r"_with_default: parameter in_baseline: a column has no default\. Fix"):
        ColumnFunction(_with_default)
    assert ColumnFunction(partial(_scaled, factor=2)).reads == (Column.ADVANTAGES,)
    ours = GRPO_PLUS
    with pytest.raises(ValueError, match="mine: no equation gives advantages"):
        Algorithm("mine", (), ours.weighting, ours.terms)
    screen = Equation(Column.IN_LOSS, ColumnFunction(_all_but_scores), MaskReason.LENGTH_VARIANCE)
    with pytest.raises(ValueError, match="mine: rows are removed before forward passes"):
        Algorithm("mine", (*ours.advantage, screen), ours.weighting, ours.terms)
    with pytest.raises(ValueError, match="mine: one equation may give in_loss, with its mask_reason"):
        Algorithm("mine", (*ours.advantage, Equation(Column.IN_LOSS, screen.compute)), ours.weighting, ours.terms)


def _entropic(entropy):
    return entropy


def _by_reward(rewards):
    return TokenLoss(rewards)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda: Equation(Column.ADVANTAGES, _scaled),
            r"equation of advantages is _scaled; must be .* ColumnFunction\(",
        ),
        (lambda: LossTerm("mine", partial(_mean)), r"loss term mine is _mean; must be a ColumnFunction"),
        (lambda: replace(GRPO, weighting=_scaled), "grpo: weighting is _scaled; must be a ColumnFunction"),
        (lambda: replace(GRPO, advantage=GRPO.advantage[0]), r"advantage = Equation\(.*must be a tuple of Equation"),
        (lambda: replace(GRPO, terms=GRPO.terms[0]), r"terms = LossTerm\(.*must be a tuple of LossTerm"),
        (lambda: replace(GRPO, terms=GRPO.terms * 2), "loss terms policy, kl, entropy, policy.*a name of its own"),
        (lambda: replace(GRPO, weighting=ColumnFunction(_entropic)), "_entropic reads entropy, which it cannot have"),
        (
            lambda: replace(GRPO, advantage=chain(whitened).equations),
            "grpo: whitened reads advantages, .*; it may read group",
        ),
        (
            lambda: replace(GRPO, terms=(LossTerm("mine", ColumnFunction(_by_reward)),)),
            "grpo: loss term mine: _by_reward reads rewards, .*; it may read advantages",
        ),
    ],
)
def test_an_algorithm_of_unusable_parts_is_refused_when_it_is_made(change, message):
    with pytest.raises(ValueError, match=message):
        change()


@pytest.mark.parametrize(
    ("function", "option", "known"),
    [
        (group_token_advantages, {"scale": "Std"}, "std, mean, none"),
        (group_token_advantages, {"baseline": "median"}, "mean, leave_one_out"),
        (partial(truncated_importance, upper=2.0), {"level": "word"}, "token, sequence, geometric"),
        (partial(kl_penalty, coefficient=0.1), {"estimator": "k4"}, "k1, k2, k3"),
        (token_kl, {"estimator": k3}, "k1, k2, k3"),
    ],
)
def test_an_unknown_word_of_an_option_is_refused_when_it_is_bound(function, option, known):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=rf": {name} = {re.escape(repr(value))}: must be one of {known}"):
        ColumnFunction(partial(function, **option))


def test_an_unknown_word_of_an_option_is_refused_in_a_call(make_batch):
    columns = {name: make_batch(1)[name] for name in ("rewards", "group")}
    with pytest.raises(ValueError, match="scale = 'Std': must be one of std, mean, none"):
        group_advantages(**columns, in_baseline=torch.ones(len(columns["group"]), dtype=torch.bool), scale="Std")
    with pytest.raises(ValueError, match="level = 'word': must be one of"):
        truncated_importance(torch.zeros(1), torch.zeros(1), torch.tensor([0]), level="word", upper=2.0)


COLUMNS = {
    "rewards": torch.tensor([1.0, 0.0]),
    "group": torch.tensor([0, 0]),
    "row": torch.tensor([0, 1, 1]),
    "in_loss": torch.tensor([True, False]),
}


@pytest.mark.parametrize("given", [[0.5, 0.5, 0.5], None])
def test_an_estimator_that_gives_no_tensor_is_refused_with_its_name(given):
    def estimate(rewards):
        return given

    wrong = replace(GRPO, advantage=chain(estimate).equations)
    with pytest.raises(InputError, match=rf"estimate: advantages is a {type(given).__name__}; must be a tensor \(N,\)"):
        wrong.prepare(COLUMNS)


def test_advantages_that_are_not_finite_are_refused_with_the_function_that_gives_them():
    def logarithmic(rewards, row):
        return (rewards[row] - 1).log()

    algorithm = replace(GRPO, advantage=chain(logarithmic, _halved).equations)
    with pytest.raises(InputError, match="grpo: logarithmic gives advantages that are not finite"):
        algorithm.prepare(COLUMNS)
    masked = COLUMNS | {"rewards": torch.tensor([2.0, 0.0])}  # NaN for the second rollout, which does not train
    assert algorithm.prepare(masked)["advantages"].tolist() == [0.0, 0.0, 0.0]


def _halved(advantages):
    return advantages / 2


@pytest.mark.parametrize("weights", [[-0.5, 0.0, 0.0], [math.nan, 0.0, 0.0], [0.5, 0.5, 0.0]])
def test_weights_are_neither_negative_nor_of_tokens_that_do_not_train(weights):
    def weigh(row):
        return torch.tensor(weights)

    with pytest.raises(
        InputError, match=r"grpo: weigh gives a token the weight (-0.5|nan|0.5); must be 0 or more, and 0"
    ):
        replace(GRPO, weighting=ColumnFunction(weigh)).prepare(COLUMNS)


def test_a_column_of_another_shape_is_refused_with_the_function_that_gives_it():
    wrong = replace(GRPO, advantage=(Equation(Column.ADVANTAGES, ColumnFunction(_per_rollout)),))
    columns = {
        "rewards": torch.tensor([1.0, 0.0]),
        "group": torch.tensor([0, 0]),
        "row": torch.tensor([0, 1, 1]),
        "in_loss": torch.tensor([True, True]),
    }
    with pytest.raises(ValueError, match=r"_per_rollout: advantages has shape \(2,\); must be \(N,\) = \(3,\)"):
        wrong.prepare(columns)
    wrong = replace(GRPO, weighting=ColumnFunction(_per_rollout))
    with pytest.raises(ValueError, match=r"_per_rollout: weights has shape \(2,\); must be \(N,\) = \(3,\)"):
        wrong.prepare(columns)


def _tensor(log_probs):
    return -log_probs


def _number(log_probs):
    return TokenLoss(-log_probs, means={"x": 3.0})


def _mean(log_probs):
    return TokenLoss(-log_probs.mean())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_tensor, r"_tensor: loss term mine gives a Tensor\. Fix: return TokenLoss\(loss\), with loss \(N,\)"),
        (_number, r"_number: loss term mine: x is a float; must be a tensor \(N,\) = \(2,\)"),
        (_mean, r"_mean: loss term mine: loss has shape \(\); must be \(N,\) = \(2,\)"),
    ],
)
def test_a_loss_term_that_gives_something_else_is_refused_with_its_name(function, message):
    wrong = replace(GRPO, terms=(LossTerm("mine", ColumnFunction(function)),))
    with pytest.raises(ValueError, match=message):
        wrong.loss({"weights": torch.tensor([0.5, 0.5, 0.0]), "log_probs": torch.zeros(3)})


def test_an_algorithm_cannot_be_changed():
    with pytest.raises(AttributeError):
        GRPO.name = "other"
