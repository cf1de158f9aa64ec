"""Engines that sample responses. May import `models`, `problems` and below; knows nothing of rewards or training."""

from autoclave.rollout.collection import Collection, CollectionTimes
from autoclave.rollout.interface import Engine, EngineStats, Request, RewardFunction, Sampler, SamplingParameters
from autoclave.rollout.transformers_engine import TransformersEngine

__all__ = [
    "Collection",
    "CollectionTimes",
    "Engine",
    "EngineStats",
    "Request",
    "RewardFunction",
    "Sampler",
    "SamplingParameters",
    "TransformersEngine",
]
