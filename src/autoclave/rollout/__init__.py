"""Engines that sample responses. May import `models`, `problems` and below; knows nothing of rewards or training.

Engines are imported from their own files, so that a caller of `Sampler` needs none of their libraries.
"""

from autoclave.core.lazy import lazily
from autoclave.rollout.checked_rewards import by_last_turn as by_last_turn
from autoclave.rollout.collection import Collection as Collection
from autoclave.rollout.collection import CollectionTimes as CollectionTimes
from autoclave.rollout.interface import AdapterEngine as AdapterEngine
from autoclave.rollout.interface import Engine as Engine
from autoclave.rollout.interface import EngineStats as EngineStats
from autoclave.rollout.interface import InspectableEngine as InspectableEngine
from autoclave.rollout.interface import NextTurn as NextTurn
from autoclave.rollout.interface import Request as Request
from autoclave.rollout.interface import Sampler as Sampler
from autoclave.rollout.interface import SamplingParameters as SamplingParameters
from autoclave.rollout.interface import SleepingEngine as SleepingEngine

__getattr__ = lazily(__name__)
