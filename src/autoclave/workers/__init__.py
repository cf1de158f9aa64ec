"""Worker groups on resource pools, and the packed batch that they exchange (torch).

May import `rollout`, `models`, `algorithms` and below. Knows nothing of schedules, rewards or run folders.
"""

from autoclave.workers.actor import ActorWorker
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.group import WorkerGroup
from autoclave.workers.pool import ResourcePool
from autoclave.workers.sampler import SamplerWorker, WorkerSampler
from autoclave.workers.scoring import NoReference, ReferenceWorker

__all__ = [
    "ActorWorker",
    "Batch",
    "Dispatch",
    "NoReference",
    "ReferenceWorker",
    "ResourcePool",
    "SamplerWorker",
    "WorkerGroup",
    "WorkerSampler",
    "register",
]
