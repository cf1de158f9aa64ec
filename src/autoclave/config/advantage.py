"""Settings of advantage estimators, which an algorithm can take in place of its own."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from autoclave.config.base import Config, Fraction, NonNegativeFloat, PositiveFloat


class AdvantageSettings(Config):
    """Settings that every estimator has. Settings of an estimator of another package derive from this."""

    name: Any
    """The estimator: in each a literal of its own."""
    compares_group: ClassVar[bool] = False
    """Rollouts are compared with others of their group, so a group needs two."""
    needs_critic: ClassVar[bool] = False
    """Values of a critic are read, which is trained along with the policy."""
    needs_reference: ClassVar[bool] = False
    """Log-probs of the reference policy are read."""


class GroupAdvantageSettings(AdvantageSettings):
    """Settings of estimators that compare the rollouts of a group."""

    compares_group: ClassVar[bool] = True


class GaeSettings(Config):
    """The generalised advantage estimate, and the loss of the critic that it reads."""

    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Gamma: worth of a reward one token later."""
    gae_lambda: Fraction = 0.95
    """Lambda of the generalised advantage estimate: 0 trusts the critic, 1 the rewards."""
    turn_discount: Annotated[float, Field(gt=0, le=1)] | None = None
    """Discount from the end of a turn to the next one; null: that of a token."""
    turn_lambda: Fraction | None = None
    """Lambda from the end of a turn to the next one: at 0 the value there stands for all later turns; null: that of a
    token."""
    whiten: bool = True
    """Advantages are brought to mean 0 and deviation 1 over the tokens of the batch."""
    value_clip: PositiveFloat | None = 0.2
    """The critic's loss lets values change by at most this per step, in units of reward; null: no bound."""


class GaeAdvantageConfig(GaeSettings, AdvantageSettings):
    """Of `ppo`: rewards of tokens against the values of a critic (Schulman et al., arXiv:1506.02438)."""

    needs_critic: ClassVar[bool] = True
    name: Literal["gae"] = "gae"


class GrpoAdvantageConfig(GroupAdvantageSettings):
    """Of `grpo`: the reward minus the mean of the group, divided by the deviation of the group."""

    name: Literal["grpo"] = "grpo"


class DrGrpoAdvantageConfig(GroupAdvantageSettings):
    """Of `dr_grpo`: the reward minus the mean of the group."""

    name: Literal["dr_grpo"] = "dr_grpo"


class RlooAdvantageConfig(GroupAdvantageSettings):
    """Of `rloo`: the reward minus the mean of the other rollouts of the group."""

    name: Literal["rloo"] = "rloo"


class ReinforcePlusPlusAdvantageConfig(AdvantageSettings):
    """Of `reinforce_plus_plus`: the rewards from each token on, normalised over the whole batch."""

    name: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"


class ReinforcePlusPlusBaselineAdvantageConfig(GroupAdvantageSettings):
    """Of `reinforce_plus_plus` with `baseline: group`: as `dr_grpo`, normalised over the whole batch."""

    name: Literal["reinforce_plus_plus_baseline"] = "reinforce_plus_plus_baseline"


class MaxRlAdvantageConfig(GroupAdvantageSettings):
    """MaxRL: the reward minus the mean of the group, divided by that mean (Tajwar et al., arXiv:2602.02710)."""

    name: Literal["max_rl"] = "max_rl"


class DistillationAdvantageConfig(GroupAdvantageSettings):
    """On-policy distillation: log-prob of each token by the teacher (`teacher.path`) minus that by the policy."""

    needs_reference: ClassVar[bool] = True
    name: Literal["distillation"] = "distillation"
    reward_weight: NonNegativeFloat = 0.0
    """Weight of the reward minus the mean of the group, which is added; 0: the teacher alone."""


ADVANTAGES = (
    GaeAdvantageConfig,
    GrpoAdvantageConfig,
    DrGrpoAdvantageConfig,
    RlooAdvantageConfig,
    ReinforcePlusPlusAdvantageConfig,
    ReinforcePlusPlusBaselineAdvantageConfig,
    MaxRlAdvantageConfig,
    DistillationAdvantageConfig,
)
