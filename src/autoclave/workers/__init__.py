"""Worker groups on resource pools, and the packed batch that they exchange (torch).

May import `rollout`, `models`, `algorithms` and below. Knows nothing of schedules, rewards or run folders.
"""

from autoclave.workers.actor import ActorWorker
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, Mesh, register
from autoclave.workers.group import WorkerGroup
from autoclave.workers.placement import open_pools
from autoclave.workers.pool import ResourcePool
from autoclave.workers.sampler import SamplerWorker, WorkerSampler
from autoclave.workers.scoring import NoReference, ReferenceWorker

__all__ = [
    "ActorWorker",
    "Batch",
    "Dispatch",
    "Mesh",
    "NoReference",
    "ReferenceWorker",
    "ResourcePool",
    "SamplerWorker",
    "WorkerGroup",
    "WorkerSampler",
    "open_pools",
    "register",
]
