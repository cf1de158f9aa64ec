"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from __future__ import annotations

from autoclave.config.base import Config, Positive, PositiveFloat


class LoraConfig(Config):
    """Low-rank adapters that learn in place of all weights; without dropout, which makes ratios of policies noisy."""

    rank: Positive = 16
    """Rows of the smaller matrix of an adapter."""

    alpha: PositiveFloat = 32.0
    """Adapters are multiplied by `alpha / rank`."""

    targets: tuple[str, ...] = ()
    """Linear layers that get an adapter, by the last part of their names, for example [q_proj, v_proj]; empty: all but
    the output embedding."""


class TrainerConfig(Config):
    """How the models that learn are held and computed."""

    lora: LoraConfig | None = None
    """Reinforcement learning trains adapters and leaves all other weights as they are; null: it trains all weights. The
    warm start always trains all."""
