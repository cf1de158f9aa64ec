"""Settings: the models beside the policy that judge what it writes: the critic of PPO, and a reward model."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from autoclave.config.base import Config, PositiveFloat
from autoclave.config.optimizer import OptimizerConfig


class CriticConfig(Config):
    """The critic, which says what reward it expects; only for algorithms that read its values."""

    path: str = ""
    """Folder or hub name of a model whose trunk it begins with, and its head if it has one (a critic that was saved, a
    reward model). Empty: the trunk of the policy that training starts from."""

    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-3)
    """Optimisation of the critic, whose head begins with nothing."""


class RewardModelConfig(Config):
    """A reward model whose score is added to the reward of the judge."""

    path: str = ""
    """Folder or hub name of a sequence classifier with one label. Empty: the verdict alone is the reward."""

    weight: PositiveFloat = 1.0
    """The reward is that of the judge + this x score."""

    @model_validator(mode="after")
    def _weight_is_used(self) -> Self:
        if not self.path and self.weight != type(self).model_fields["weight"].default:
            raise ValueError(f"weight = {self.weight}: there is no reward model; set path, or remove it")
        return self
