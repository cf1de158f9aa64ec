"""Engines that sample responses. May import `models`, `problems` and below; knows nothing of rewards or training."""

from autoclave.rollout.interface import Deliver, Engine, Request, Sampler, SamplingParameters
from autoclave.rollout.transformers_engine import TransformersEngine

__all__ = ["Deliver", "Engine", "Request", "Sampler", "SamplingParameters", "TransformersEngine"]
