"""Settings of the learning algorithms. Each has exactly the keys that it uses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config, NonNegativeFloat


class GrpoConfig(Config):
    """GRPO (Shao et al., arXiv:2402.03300): group-normalised advantages, symmetric clip, KL to a reference policy."""

    name: Literal["grpo"] = "grpo"
    """The algorithm."""

    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Half-width of the trust region of the probability ratio, on both sides."""

    kl_coefficient: NonNegativeFloat = 0.04
    """Weight of the KL term (k3 estimator) to the policy that training started from."""

    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""


class GrpoPlusConfig(Config):
    """GRPO+ (the DeepCoder report): GRPO without KL and entropy terms, higher upper clip, overlong filtering."""

    name: Literal["grpo_plus"] = "grpo_plus"
    """The algorithm."""

    clip_lower: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The ratio is clipped below at 1 - this."""

    clip_upper: Annotated[float, Field(gt=0)] = 0.28
    """The ratio is clipped above at 1 + this."""

    mask_overlong: bool = True
    """Responses cut by the length limit do not train: neither good nor bad."""


AlgorithmConfig = Annotated[GrpoConfig | GrpoPlusConfig, Field(discriminator="name")]
