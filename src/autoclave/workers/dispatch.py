"""Dispatch: splits a call to a worker group over its ranks, and joins their results. Pure functions.

Ranks stand on a mesh of pipeline stages x data-parallel replicas x tensor-parallel peers, the last counted fastest:

    rank = (pipeline * mesh.data + data) * mesh.tensor + tensor

as `init_device_mesh` numbers a mesh of shape (pipeline, data, tensor), Megatron its ranks, and torchtitan its mesh.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from autoclave.workers.batch import Batch, even_parts

F = TypeVar("F", bound=Callable[..., Any])


class Dispatch(StrEnum):
    """Rule by which arguments go to ranks and results come back."""

    ONE_TO_ALL = "one_to_all"
    """Every rank gets all arguments; the caller gets the result of rank 0."""
    ALL_TO_LIST = "all_to_list"
    """Every rank gets all arguments; the caller gets the list of all results, by rank."""
    DATA_PARALLEL = "data_parallel"
    """Each rank gets its share of the first argument, a batch; batches that come back are joined. Any other result must
    be equal on all ranks, as metrics are that they have reduced; the caller gets that of the first."""
    MODEL_3D = "model_3d"
    """As data parallel over the replicas of the mesh: all ranks of a replica get the same share, and its last pipeline
    stage answers, by its first tensor-parallel rank."""
    EACH = "each"
    """The first argument has a value for each replica of the mesh, whose ranks all get it; the caller gets the list of
    what the replicas answer, in their order. A replica answers as with model 3d."""


def register(dispatch: Dispatch) -> Callable[[F], F]:
    """Mark a worker's method as callable through its group."""

    def mark(method: F) -> F:
        method.__dispatch__ = dispatch  # type: ignore[attr-defined]
        return method

    return mark


def registered_methods(worker: type) -> dict[str, Dispatch]:
    found = {name: getattr(getattr(worker, name), "__dispatch__", None) for name in dir(worker)}
    return {name: dispatch for name, dispatch in found.items() if dispatch is not None}


@dataclass(frozen=True, slots=True)
class Mesh:
    """Number of replicas of the model, and of ranks that hold each."""

    data: int
    tensor: int = 1
    pipeline: int = 1

    @property
    def size(self) -> int:
        return self.pipeline * self.data * self.tensor

    def replica(self, rank: int) -> int:
        return rank // self.tensor % self.data

    @property
    def answering(self) -> list[int]:
        """The rank that answers for each replica: of its last pipeline stage, the first tensor-parallel one."""
        return [((self.pipeline - 1) * self.data + replica) * self.tensor for replica in range(self.data)]


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Arguments to send, ranks whose results are wanted, and the function that joins them."""

    arguments: Sequence[tuple[Any, ...]]
    """Of each rank."""
    answering: Sequence[int]
    """The ranks whose results count, in the order in which `join` takes them."""
    join: Callable[[Sequence[Any]], Any] | None = None
    """From their results to the caller's; None: the only result is the caller's, and stays where it is until read."""


def plan_call(dispatch: Dispatch, args: Sequence[Any], mesh: Mesh) -> CallPlan:
    """Plan a call of all ranks of `mesh` with `args`.

    Raises TypeError: the first argument is nothing that this dispatch can split, or has not one value for each replica.
    """
    if dispatch is Dispatch.ONE_TO_ALL:
        return CallPlan([tuple(args)] * mesh.size, [0])
    if dispatch is Dispatch.ALL_TO_LIST:
        return CallPlan([tuple(args)] * mesh.size, range(mesh.size), list)
    if dispatch is Dispatch.EACH:
        return _plan_each(args, mesh)
    return _plan_split(args, mesh if dispatch is Dispatch.MODEL_3D else Mesh(data=mesh.size))


def _plan_each(args: Sequence[Any], mesh: Mesh) -> CallPlan:
    values, *rest = args
    if len(values) != mesh.data:
        raise TypeError(f"{len(values)} values for {mesh.data} replicas; the first argument has one for each")
    return CallPlan([(values[mesh.replica(rank)], *rest) for rank in range(mesh.size)], mesh.answering, list)


def _plan_split(args: Sequence[Any], mesh: Mesh) -> CallPlan:
    batch, *rest = args
    if not isinstance(batch, Batch):
        raise TypeError(f"the first argument of a data-parallel call is a Batch, not a {type(batch).__name__}")
    if mesh.data == 1:
        return CallPlan([tuple(args)] * mesh.size, mesh.answering)
    stages = batch.rows["minibatch"] if "minibatch" in batch.rows else np.zeros(len(batch), dtype=np.int64)
    rows = even_parts(batch.lengths, stages, mesh.data)
    shares = [batch.select(part) for part in rows]
    order = np.argsort(np.concatenate(rows), kind="stable")

    def join(results: Sequence[Any]) -> Any:
        if not isinstance(results[0], Batch):
            return results[0]
        for replica, (result, part) in enumerate(zip(results, rows, strict=True)):
            if len(result) != len(part):
                raise ValueError(f"replica {replica} was given {len(part)} rows and returned {len(result)}")
        return Batch.concatenate(results).select(order)

    return CallPlan([(shares[mesh.replica(rank)], *rest) for rank in range(mesh.size)], mesh.answering, join)
