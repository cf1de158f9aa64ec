"""Settings of the learning algorithms. Each has exactly the keys that it uses.

`docs/reference/algorithms/` defines what every key means, and names the sources.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from autoclave.config.advantage import ADVANTAGES, AdvantageSettings, GaeSettings
from autoclave.config.base import Config, Fraction, NonNegative, NonNegativeFloat, Positive, PositiveFloat
from autoclave.config.plugins import with_plugins

KlEstimator = Literal["k1", "k2", "k3"]
if TYPE_CHECKING:
    AdvantageConfig = AdvantageSettings
else:  # which classes there are is known only here
    AdvantageConfig = with_plugins("autoclave.advantage_settings", ADVANTAGES, AdvantageSettings)
ClipLower = Annotated[float, Field(gt=0, le=1)]
DualClip = Annotated[float, Field(gt=1)] | None


# --- Importance sampling: the sampler's policy is not quite the trainer's --------------------------------------------


class NoCorrectionConfig(Config):
    """No correction: responses count as samples of the trainer's policy at the start of the step."""

    name: Literal["none"] = "none"


class TruncatedCorrectionConfig(Config):
    """Truncated importance sampling: advantages are multiplied by min(ratio, upper)."""

    name: Literal["truncated"] = "truncated"
    level: Literal["token", "sequence", "geometric"] = "token"
    """Ratio of each token, of the whole response (product of its tokens), or the geometric mean of its tokens."""
    upper: PositiveFloat = 2.0
    """Largest factor."""


class MaskedCorrectionConfig(Config):
    """Masked importance sampling: advantages are multiplied by the ratio where it is within bounds, elsewhere by 0."""

    name: Literal["masked"] = "masked"
    level: Literal["token", "sequence", "geometric"] = "token"
    """Ratio of each token, of the whole response (product of its tokens), or the geometric mean of its tokens."""
    lower: NonNegativeFloat = 0.5
    """Below this ratio the factor is 0."""
    upper: PositiveFloat = 5.0
    """Above this ratio the factor is 0."""

    def broken_rules(self) -> Iterator[str]:
        if not self.lower <= 1 <= self.upper:
            yield f"lower = {self.lower}, upper = {self.upper}: 1, the ratio of equal policies, must lie between"


CorrectionConfig = Annotated[
    NoCorrectionConfig | TruncatedCorrectionConfig | MaskedCorrectionConfig, Field(discriminator="name")
]


class FixedKlConfig(Config):
    """Constant weight of the KL penalty."""

    name: Literal["fixed"] = "fixed"


class AdaptiveKlConfig(Config):
    """The weight of the KL penalty follows the KL (Ziegler et al., arXiv:1909.08593, section 2.2)."""

    name: Literal["adaptive"] = "adaptive"
    target: PositiveFloat = 6.0
    """Target KL to the reference, in nats per response."""
    gain: PositiveFloat = 0.1
    """Relative change per step for an error of 1; errors beyond a fifth count as a fifth."""


KlControllerConfig = Annotated[FixedKlConfig | AdaptiveKlConfig, Field(discriminator="name")]


class AlgorithmSettings(Config):
    """Settings that every algorithm has. Settings of an algorithm of your own derive from this."""

    name: Any
    """The algorithm: in each a literal of its own."""
    mask_overlong: bool = False
    """Mask responses that the length limit cut (overlong filtering)."""
    mask_turn_limit: bool = False
    """Mask episodes that the limit of turns ended, whatever they earned."""
    mask_format: bool = False
    """Mask responses without a program, instead of a reward of 0."""
    correction: CorrectionConfig = NoCorrectionConfig()
    """Importance sampling against the difference between the sampler's and the trainer's probabilities."""

    @property
    def label(self) -> str:
        """Name for messages, with the estimator if it is not the algorithm's own."""
        return self.name

    @property
    def masks_overlong(self) -> bool:
        """True if responses cut by the length limit do not train."""
        return self.mask_overlong

    @property
    def compares_group(self) -> bool:
        """Rollouts are compared with others of their group, so a group needs two."""
        return False

    @property
    def needs_critic(self) -> bool:
        """Values of a critic are read, which is trained along with the policy."""
        return False


class GroupSettings(AlgorithmSettings):
    """Settings of algorithms that compare the rollouts of a group."""

    include_masked_in_baseline: bool = False
    """Masked rollouts with a reward still count in the mean and deviation of their group."""

    @property
    def compares_group(self) -> bool:
        advantage = getattr(self, "advantage", None)  # also where ExchangeableAdvantage is the second base class
        return advantage.compares_group if advantage else True


class ExchangeableAdvantage(AlgorithmSettings):
    """Settings of algorithms whose estimator of advantages can be exchanged."""

    advantage: AdvantageConfig | None = None
    """Estimator of advantages, by its name or as a block with its settings; null: the algorithm's own."""
    own_estimator_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that only the algorithm's own estimator reads."""

    @property
    def label(self) -> str:
        """Name for messages, with the estimator if it is not the algorithm's own."""
        return f"{self.name} with advantage={self.advantage.name}" if self.advantage else self.name

    @property
    def compares_group(self) -> bool:
        return self.advantage.compares_group if self.advantage else super().compares_group

    @property
    def needs_critic(self) -> bool:
        return self.advantage.needs_critic if self.advantage else super().needs_critic

    def broken_rules(self) -> Iterator[str]:
        chosen, keys = self.advantage, self.own_estimator_keys
        if chosen is None:
            return
        for key in keys if chosen.compares_group else (*keys, "include_masked_in_baseline"):
            field = type(self).model_fields.get(key)
            if field and getattr(self, key) != field.default:
                its = f", or set advantage.{key}" if key in type(chosen).model_fields else ""
                yield f"{key} = {getattr(self, key)}: advantage = {chosen.name} does not use it; remove it{its}"


class PpoConfig(GaeSettings, ExchangeableAdvantage):
    """PPO (Schulman et al., arXiv:1707.06347): advantages from a critic, clipped ratio, KL to a reference in reward."""

    name: Literal["ppo"] = "ppo"
    clip_lower: ClipLower = 0.2
    """The ratio is clipped below at 1 - this."""
    clip_upper: PositiveFloat = 0.2
    """The ratio is clipped above at 1 + this."""
    dual_clip: DualClip = None
    """Upper bound of the ratio for negative advantages (dual clip); null: none."""
    kl_coefficient: NonNegativeFloat = 0.02
    """Reward subtracted per nat of KL to the reference; 0: no reference model."""
    kl_estimator: KlEstimator = "k1"
    """Estimator of that KL from the sampled tokens."""
    kl_controller: KlControllerConfig = FixedKlConfig()
    """Controller of the coefficient: fixed, or adaptive from `kl_coefficient` on."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""
    own_estimator_keys: ClassVar[tuple[str, ...]] = tuple(GaeSettings.model_fields)

    @property
    def needs_critic(self) -> bool:
        """With its own estimator, and with those that read values."""
        return not self.advantage or self.advantage.needs_critic

    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if not self.kl_coefficient and self.kl_controller != FixedKlConfig():
            yield "kl_controller is ignored when kl_coefficient = 0; remove it, or let kl_coefficient start above 0"


class GrpoConfig(ExchangeableAdvantage, GroupSettings):
    """GRPO (Shao et al., arXiv:2402.03300): group-normalised advantages, symmetric clip, KL to a reference policy."""

    name: Literal["grpo"] = "grpo"
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The ratio is clipped below at 1 - this and above at 1 + this."""
    kl_coefficient: NonNegativeFloat = 0.04
    """Weight of the KL term to the policy that training started from."""
    kl_estimator: KlEstimator = "k3"
    """Estimator of that KL from the sampled tokens."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""


class GrpoPlusConfig(ExchangeableAdvantage, GroupSettings):
    """GRPO+ (the DeepCoder report): GRPO without KL and entropy terms, higher upper clip, overlong filtering."""

    name: Literal["grpo_plus"] = "grpo_plus"
    reading: Literal["report", "introduction"] = "report"
    """Description of GRPO+ in the thesis that is followed: chapter 4, as in the DeepCoder report, or chapter 1."""
    clip_lower: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The ratio is clipped below at 1 - this."""
    clip_upper: PositiveFloat = 0.28
    """The ratio is clipped above at 1 + this."""
    mask_overlong: bool = True
    """Report: mask responses that the length limit cut (overlong filtering)."""
    kl_coefficient: NonNegativeFloat = 0.0
    """Report: weight of a KL term (k3). GRPO+ has none; above 0 is an ablation."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Report: weight of an entropy bonus. GRPO+ has none; above 0 is an ablation."""
    group_kl_limit: PositiveFloat = 0.01
    """Introduction: KL, in nats per token, beyond which the update of a group is scaled down (relative-KL clipping)."""
    variance_share_limit: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Introduction: share of a minibatch's variance beyond which an over-long response is dropped; 1 drops none."""
    exploration_coefficient: NonNegativeFloat = 0.001
    """Introduction: weight of the entropy bonus until exploration saturates."""
    saturation_steps: Positive = 20
    """Introduction: exploration is saturated once the mean entropy of this many steps is that of as many before."""
    saturation_tolerance: Fraction = 0.02
    """Introduction: relative difference up to which the two means are the same."""
    ONLY_IN: ClassVar[dict[str, tuple[str, ...]]] = {
        "report": ("advantage", "mask_overlong", "kl_coefficient", "entropy_coefficient"),
        "introduction": (
            "group_kl_limit",
            "variance_share_limit",
            "exploration_coefficient",
            "saturation_steps",
            "saturation_tolerance",
        ),
    }
    """Keys that one reading alone uses."""

    @property
    def masks_overlong(self) -> bool:
        return self.mask_overlong and self.reading == "report"

    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        other = "introduction" if self.reading == "report" else "report"
        for key in self.ONLY_IN[other]:
            value = getattr(self, key)
            if value != type(self).model_fields[key].default:
                yield (
                    f"{key} = {getattr(value, 'name', value)}: reading = {self.reading} does not use it; "
                    f"remove it, or set reading = {other}"
                )


class DapoConfig(ExchangeableAdvantage, GroupSettings):
    """DAPO (Yu et al., arXiv:2503.14476): GRPO with a higher upper clip, mean over tokens, a soft length limit."""

    name: Literal["dapo"] = "dapo"
    clip_lower: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The ratio is clipped below at 1 - this."""
    clip_upper: PositiveFloat = 0.28
    """The ratio is clipped above at 1 + this."""
    overlong_buffer: Fraction = 0.2
    """Last part of the length limit over which a response loses up to `overlong_penalty`; 0: it loses nothing."""
    overlong_penalty: PositiveFloat = 1.0
    """Penalty of a response that fills the length limit, in units of reward."""
    max_resamples: NonNegative = 3
    """Dynamic sampling: how often groups with equal rewards are sampled again in one step."""


class DrGrpoConfig(ExchangeableAdvantage, GroupSettings):
    """Dr. GRPO (Liu et al., arXiv:2503.20783): GRPO without division by deviation or length, and without KL."""

    name: Literal["dr_grpo"] = "dr_grpo"
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The ratio is clipped below at 1 - this and above at 1 + this."""


class RlooConfig(ExchangeableAdvantage, GroupSettings):
    """RLOO (Ahmadian et al., arXiv:2402.14740): plain policy gradient, the others of a group as baseline."""

    name: Literal["rloo"] = "rloo"
    kl_coefficient: NonNegativeFloat = 0.05
    """Reward subtracted per nat of KL to the reference; 0: no reference model."""
    kl_estimator: KlEstimator = "k1"
    """Estimator of that KL from the sampled tokens."""


class ReinforcePlusPlusConfig(ExchangeableAdvantage):
    """REINFORCE++ (Hu et al., arXiv:2501.03262): advantages normalised over the whole batch, KL in reward or loss."""

    name: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"
    baseline: Literal["none", "group"] = "none"
    """`group`: the mean of the group is subtracted first, and the KL is a term of the loss."""
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The ratio is clipped below at 1 - this and above at 1 + this."""
    kl_coefficient: NonNegativeFloat = 0.01
    """Cost of a nat of KL to the reference: in reward (k1), or with baseline `group` in loss (k2); 0: no reference."""
    own_estimator_keys: ClassVar[tuple[str, ...]] = ("baseline",)

    @property
    def compares_group(self) -> bool:
        """With a baseline of the group, and with estimators that compare."""
        return self.advantage.compares_group if self.advantage else self.baseline == "group"


class GspoConfig(ExchangeableAdvantage, GroupSettings):
    """GSPO (Zheng et al., arXiv:2507.18071): one clipped ratio per response instead of one per token."""

    name: Literal["gspo"] = "gspo"
    clip_lower: Annotated[float, Field(gt=0, lt=1)] = 3e-4
    """The ratio of a response is clipped below at 1 - this."""
    clip_upper: PositiveFloat = 4e-4
    """The ratio of a response is clipped above at 1 + this."""


class CispoConfig(ExchangeableAdvantage, GroupSettings):
    """CISPO (MiniMax-M1, arXiv:2506.13585): the ratio is a clipped weight of the gradient, so every token keeps one."""

    name: Literal["cispo"] = "cispo"
    clip_lower: ClipLower = 1.0
    """The weight is at least 1 - this; 1 is no bound."""
    clip_upper: PositiveFloat = 4.0
    """The weight is at most 1 + this."""
