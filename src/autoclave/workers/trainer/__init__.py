"""The models of a run as workers: the actor, which learns, and the frozen reference (torch).

Imported by name, not by `autoclave.workers`, so that a worker process loads only the libraries that its worker needs.
"""

from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.reference import NoReference, ReferenceWorker, SharedReference

__all__ = ["ActorWorker", "NoReference", "ReferenceWorker", "SharedReference"]
