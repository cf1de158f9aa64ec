"""The algorithms and variants of them that every law of algorithms is tested on."""

from __future__ import annotations

import pytest

from autoclave.config import (
    AlgorithmSettings,
    CispoConfig,
    DapoConfig,
    DistillationAdvantageConfig,
    DrGrpoAdvantageConfig,
    DrGrpoConfig,
    GaeAdvantageConfig,
    GrpoAdvantageConfig,
    GrpoConfig,
    GrpoPlusConfig,
    GspoConfig,
    MaskedCorrectionConfig,
    MaxRlAdvantageConfig,
    PpoConfig,
    ReinforcePlusPlusAdvantageConfig,
    ReinforcePlusPlusBaselineAdvantageConfig,
    ReinforcePlusPlusConfig,
    RlooAdvantageConfig,
    RlooConfig,
    TruncatedCorrectionConfig,
)

VARIANTS: dict[str, AlgorithmSettings] = {
    "ppo": PpoConfig(),
    "ppo, every option": PpoConfig(
        clip_lower=0.1,
        clip_upper=0.3,
        dual_clip=1.5,
        discount=0.9,
        gae_lambda=0.5,
        whiten=False,
        value_clip=None,
        kl_estimator="k3",
        entropy_coefficient=0.01,
    ),
    "grpo": GrpoConfig(),
    "grpo, entropy, k2, masked rows in the baseline": GrpoConfig(
        entropy_coefficient=0.01, kl_estimator="k2", include_masked_in_baseline=True
    ),
    "grpo, policy term alone": GrpoConfig(kl_coefficient=0.0, clip=0.1),
    "grpo_plus": GrpoPlusConfig(),
    "grpo_plus, ablated": GrpoPlusConfig(kl_coefficient=0.04, entropy_coefficient=0.01, clip_upper=0.2),
    "grpo_plus, introduction": GrpoPlusConfig(reading="introduction", variance_share_limit=0.1),
    "dapo": DapoConfig(),
    "dapo, masked tokens": DapoConfig(correction=MaskedCorrectionConfig(lower=0.8, upper=1.2)),
    "dr_grpo": DrGrpoConfig(),
    "dr_grpo, truncated sequences": DrGrpoConfig(correction=TruncatedCorrectionConfig(level="sequence", upper=1.5)),
    "rloo": RlooConfig(),
    "rloo, no kl": RlooConfig(kl_coefficient=0.0, include_masked_in_baseline=True),
    "reinforce_plus_plus": ReinforcePlusPlusConfig(),
    "reinforce_plus_plus, baseline": ReinforcePlusPlusConfig(baseline="group"),
    "gspo": GspoConfig(),
    "gspo, wide": GspoConfig(
        clip_lower=0.1, clip_upper=0.2, correction=MaskedCorrectionConfig(level="geometric", lower=0.9, upper=1.1)
    ),
    "ppo, advantage of grpo": PpoConfig(advantage=GrpoAdvantageConfig(), kl_estimator="k2"),
    "ppo, its advantage by name": PpoConfig(advantage=GaeAdvantageConfig(gae_lambda=0.5, value_clip=None)),
    "grpo, advantage of rloo": GrpoConfig(advantage=RlooAdvantageConfig()),
    "dapo, advantage of ppo": DapoConfig(advantage=GaeAdvantageConfig(discount=0.9, whiten=False)),
    "dr_grpo, advantage of reinforce_plus_plus": DrGrpoConfig(advantage=ReinforcePlusPlusAdvantageConfig()),
    "rloo, advantage of ppo": RlooConfig(advantage=GaeAdvantageConfig()),
    "rloo, advantage of reinforce_plus_plus": RlooConfig(advantage=ReinforcePlusPlusAdvantageConfig()),
    "gspo, advantage with a baseline": GspoConfig(advantage=ReinforcePlusPlusBaselineAdvantageConfig()),
    "cispo, advantage of dr_grpo": CispoConfig(advantage=DrGrpoAdvantageConfig()),
    "reinforce_plus_plus, advantage of rloo": ReinforcePlusPlusConfig(advantage=RlooAdvantageConfig()),
    "grpo_plus, advantage of ppo": GrpoPlusConfig(advantage=GaeAdvantageConfig(), kl_coefficient=0.04),
    "grpo, advantage of max_rl": GrpoConfig(advantage=MaxRlAdvantageConfig()),
    "dr_grpo, distillation": DrGrpoConfig(advantage=DistillationAdvantageConfig()),
    "cispo, distillation with rewards": CispoConfig(advantage=DistillationAdvantageConfig(reward_weight=0.5)),
    "cispo": CispoConfig(),
    "cispo, narrow": CispoConfig(clip_lower=0.2, clip_upper=0.3, correction=TruncatedCorrectionConfig(upper=1.1)),
}

EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS)
NAMES = sorted({settings.name for settings in VARIANTS.values()})
