"""Engines that sample responses. May import `models`, `problems` and below; knows nothing of rewards or training.

Engines are imported from their own files, so that a caller of `Sampler` needs none of their libraries.
"""

from autoclave.rollout.collection import Collection, CollectionTimes
from autoclave.rollout.interface import (
    AdapterEngine,
    Engine,
    EngineStats,
    InspectableEngine,
    Request,
    RewardFunction,
    Sampler,
    SamplingParameters,
    SleepingEngine,
)

__all__ = [
    "AdapterEngine",
    "Collection",
    "CollectionTimes",
    "Engine",
    "EngineStats",
    "InspectableEngine",
    "Request",
    "RewardFunction",
    "Sampler",
    "SamplingParameters",
    "SleepingEngine",
]
