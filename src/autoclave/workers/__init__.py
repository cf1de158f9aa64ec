"""Worker groups on resource pools, and the packed batch that they exchange.

Torch is loaded when a tensor is sent or the ranks of a group are to meet, and by workers that need it.
`trainer` has the workers that hold models, `sampler` the one that holds an engine. May import `rollout`, `models`,
`algorithms` and below. Knows nothing of schedules, rewards or run folders.
"""

from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, Mesh, register
from autoclave.workers.group import WorkerGroup
from autoclave.workers.placement import open_pools
from autoclave.workers.pool import ResourcePool

__all__ = ["Batch", "Dispatch", "Mesh", "ResourcePool", "WorkerGroup", "open_pools", "register"]
