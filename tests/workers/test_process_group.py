"""Ranks of a group are ready for collectives and for FSDP2."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from autoclave.workers import Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.spawn_executor import SpawnExecutor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STEPS, ROWS, WIDTH = 10, 8, 16


class Regression:
    """Learns to double its input: a small module, whole on one rank or sharded by FSDP2 over all of its group."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self._model = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, WIDTH))
        self._rank, self._ranks = 0, 1
        if torch.distributed.is_initialized():
            self._rank, self._ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
            mesh = init_device_mesh("cpu", (self._ranks,))
            for layer in (self._model[0], self._model[2], self._model):
                fully_shard(layer, mesh=mesh)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-2)

    @register(Dispatch.ALL_TO_LIST)
    def all_reduced(self, value: float) -> float:
        total = torch.tensor(value * (self._rank + 1))
        torch.distributed.all_reduce(total)
        return total.item()

    @register(Dispatch.ALL_TO_LIST)
    def local_parameters(self) -> int:
        return sum(_local(weight).numel() for weight in self._model.parameters())

    @register(Dispatch.ONE_TO_ALL)
    def train(self, inputs: Tensor) -> float:
        """`inputs` (STEPS, ROWS, WIDTH); each rank takes its share of the rows. The gradient norm of the last step."""
        norm = torch.tensor(0.0)
        for rows in inputs:
            share = rows[self._rank :: self._ranks]
            self._optimizer.zero_grad()
            (self._model(share) - 2 * share).square().mean().backward()
            norm = nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimizer.step()
        return _whole(norm).item()

    @register(Dispatch.ONE_TO_ALL)
    def weights(self) -> dict[str, Tensor]:
        return {name: _whole(tensor.detach()) for name, tensor in self._model.state_dict().items()}


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def test_fsdp_on_two_processes_trains_as_one_process_does():
    inputs = torch.randn(STEPS, ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    pools = ResourcePool("one"), ResourcePool("two", SpawnExecutor([(), ()]))
    try:
        one, two = (WorkerGroup(pool, partial(Regression, 0), process_group=pool.name == "two") for pool in pools)
        start = one.weights().result()
        start = {name: tensor.clone() for name, tensor in start.items()}
        assert two.all_reduced(1.5).result() == [4.5, 4.5]  # 1.5 * (1 + 2)
        (whole,) = one.local_parameters().result()
        assert sum(two.local_parameters().result()) == whole
        norms = one.train(inputs).result(), two.train(inputs).result()
        ours, theirs = one.weights().result(), two.weights().result()
    finally:
        for pool in pools:
            pool.close()
    assert norms[0] == pytest.approx(norms[1], abs=1e-5)
    for name, tensor in ours.items():
        assert (tensor - theirs[name]).abs().max() < 1e-5
        assert (tensor - start[name]).abs().max() > 1e-2
