"""Settings: when a run is not healthy, and what happens then."""

from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config, Fraction, NonNegative, NonNegativeFloat, Positive, PositiveFloat

HealthAction = Literal["alert", "pause", "rollback", "stop"]
"""`alert`: the run goes on. `pause`: write a checkpoint and end the run. `rollback`: go on from a checkpoint that is at
least three steps older, with other samples. `stop`: end the run without another checkpoint."""


class HealthActions(Config):
    """Action when the alert of a rule begins."""

    kl_limit: HealthAction = "alert"
    """The policy moved too far in one step, in KL."""
    update_limit: HealthAction = "alert"
    """An optimizer step changed the weights too much."""
    mismatch_limit: HealthAction = "alert"
    """Sampler and trainer disagree about log-probs."""
    truncation_limit: HealthAction = "alert"
    """Too many responses are cut by the limit of new tokens."""
    masked_limit: HealthAction = "alert"
    """Too many rollouts are masked."""
    entropy_floor: HealthAction = "alert"
    """Entropy is too low."""
    entropy_ceiling: HealthAction = "alert"
    """Entropy is too high."""
    reward_contradicts_verdict: HealthAction = "alert"
    """Accepted responses earn no more than others."""
    advantage_contradicts_reward: HealthAction = "alert"
    """Advantages do not rise with rewards."""
    gradient_contradicts_advantage: HealthAction = "alert"
    """The loss does not raise log-probs of tokens with a positive advantage."""
    nothing_raised: HealthAction = "alert"
    """Almost no trained token has a positive advantage."""
    penalty_limit: HealthAction = "alert"
    """Penalty terms of the loss outweigh the policy term."""
    nothing_trained: HealthAction = "stop"
    """No step had anything to train on for a while."""
    reward_collapse: HealthAction = "alert"
    """Reward fell far below its best."""
    rate_below_format: HealthAction = "alert"
    """Most weights do not change, because the update is smaller than the spacing of their number format."""
    policy_stands_still: HealthAction = "alert"
    """The policy hardly moves."""
    gradient_norm_spike: HealthAction = "alert"
    """The gradient norm is far above its median."""
    kl_spike: HealthAction = "alert"
    """A KL metric is far above its median."""
    entropy_collapse: HealthAction = "alert"
    """Entropy fell far below where it began."""
    entropy_growth: HealthAction = "alert"
    """Entropy rose far above where it began."""
    length_without_reward: HealthAction = "alert"
    """Responses become longer, and rewards do not rise."""
    overfit_to_sampled_tests: HealthAction = "alert"
    """Accepted programs fail tests that were not sampled."""


class HealthConfig(Config):
    """Alerts of a training run, and their actions. A number that is not finite always ends the run."""

    actions: HealthActions = HealthActions()
    """Action when an alert begins, by rule."""
    max_rollbacks: NonNegative = 2
    """Number of rollbacks of a run; the next one ends it."""
    kl_limit: PositiveFloat = 0.1
    """Alert when `policy/approx_kl`, which is of one step, is above this, in nats per token. From the first step on."""
    reference_kl_limit: PositiveFloat = 2.0
    """The same for `policy/reference_kl`, the distance from the reference."""
    update_limit: PositiveFloat = 0.02
    """Alert when an optimizer step changes the weights by more than this share of their norm."""
    mismatch_limit: PositiveFloat = 0.2
    """Alert when log-probs of sampler and trainer differ by more than this on average, in nats per token."""
    log_prob_mismatch_limit: PositiveFloat = 10.0
    """Alert when they differ by more than this at any token, in nats."""
    truncation_limit: Fraction = 0.8
    """Alert when a larger share of the responses is cut by the limit of new tokens."""
    masked_limit: Fraction = 0.9
    """Alert when a larger share of the rollouts is masked."""
    entropy_floor: NonNegativeFloat = 0.001
    """Alert when entropy is below this, in nats per token."""
    entropy_ceiling: PositiveFloat = 4.0
    """Alert when entropy is above this, in nats per token."""
    advantage_reward_minimum: Annotated[float, Field(ge=-1, le=1)] = 0.2
    """Alert when the correlation of advantages with rewards is below this."""
    gradient_advantage_minimum: Annotated[float, Field(ge=-1, le=1)] = 0.5
    """Alert when the loss pulls log-probs in the direction of their advantages less than this; 1 is always."""
    raised_minimum: Fraction = 0.02
    """Alert when a smaller share of trained tokens, by weight and size of the advantage, has a positive advantage."""
    penalty_limit: PositiveFloat = 0.1
    """Alert when penalty terms such as KL have more than this share of the policy gradient by log-probs."""
    dead_steps: Positive = 8
    """Alert when so many steps in a row had nothing to train on: no gradient, all masked, or all rewards equal."""
    reward_collapse: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Alert when the mean reward of up to three steps is below this share of the best before, beyond chance."""
    changed_minimum: Fraction = 0.5
    """Alert when an optimizer step changes a smaller share of the weights that have a gradient."""
    kl_minimum: NonNegativeFloat = 1e-8
    """Alert when `policy/approx_kl` stays below this over the window: 1,000 such steps in one direction would move the
    policy by 0.01 nats per token."""
    window: Annotated[int, Field(ge=3)] = 10
    """Steps that a step is compared with: those just before it for spikes, the first ones of the run for entropy."""
    gradient_norm_spike: Annotated[float, Field(gt=1)] = 10.0
    """Alert when the gradient norm is more than this times its median over the window before."""
    kl_spike: Annotated[float, Field(gt=1)] = 10.0
    """Alert when a KL metric is more than this times its median over the window before, and above `kl_floor`."""
    kl_floor: PositiveFloat = 0.01
    """KL, in nats per token, below which no rise is a spike."""
    entropy_collapse: Fraction = 0.1
    """Alert when entropy falls below this share of its mean over the first window; 0 never."""
    entropy_growth: Annotated[float, Field(gt=1)] = 2.0
    """Alert when entropy rises above this times its mean over the first window."""
    length_growth: Annotated[float, Field(gt=1)] = 1.3
    """Alert when responses of the last window are longer than this times those of the window before, and their reward
    is not higher."""
    overfit_every: NonNegative = 10
    """Steps between two judgings of accepted programs by all tests, where `task.tests` samples some; 0 means never.
    With `task.tests: all` there is nothing more to judge by."""
    overfit_limit: Fraction = 0.05
    """Alert when more than this share of the programs accepted by the sampled tests fails others."""
