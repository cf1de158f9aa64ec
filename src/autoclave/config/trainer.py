"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from __future__ import annotations

from autoclave.config.base import Config


class TrainerConfig(Config):
    """How the models that learn are held and computed."""
