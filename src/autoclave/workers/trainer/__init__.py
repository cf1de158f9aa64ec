"""The models of a run as workers: actor and critic, which learn, and frozen reference and reward model (torch).

Imported by name, not by `autoclave.workers`, so that a worker process loads only the libraries that its worker needs.
"""

from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.critic import CriticWorker, NoCritic
from autoclave.workers.trainer.reference import (
    NoReference,
    NoRewardModel,
    ReferenceWorker,
    RewardModelWorker,
    SharedReference,
)

__all__ = [
    "ActorWorker",
    "CriticWorker",
    "NoCritic",
    "NoReference",
    "NoRewardModel",
    "ReferenceWorker",
    "RewardModelWorker",
    "SharedReference",
]
