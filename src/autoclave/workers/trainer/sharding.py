"""Placement of a model: whole, or by FSDP2, sharded over the ranks of its worker group; and how its layers compute.

FSDP2 holds a model that several ranks share, that computes in another number format than that of its weights, or whose
weights are offloaded; on one rank over a mesh of one. Each decoder layer is a unit that is gathered for its own
computation, all other weights are another. Weights at rest are always sharded, so `zero2` differs from the stage 2 of
DeepSpeed (Rajbhandari et al., ZeRO, arXiv:1910.02054), which keeps them whole: here they are gathered once for a
forward and backward pass, and let go after it.

The weights come from files or from a module in the memory of the host, one layer after the other: no device ever holds
more of them than its own part and one layer, nor does the host where they come from files.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]  its documented place
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from autoclave.config import TrainerConfig
from autoclave.core import ConfigError, HostError, InputError
from autoclave.models import read_part, require_liger
from autoclave.workers.trainer.peers import num_ranks

R = TypeVar("R")

PLAIN = TrainerConfig()
"""Nothing asked for: one process holds the model whole, as an ordinary module."""


@dataclass(frozen=True, slots=True)
class Place:
    """Device of a module, and whether it stays there between computations if no other group needs the memory."""

    device: torch.device
    is_home: bool


def hold(module: nn.Module, settings: TrainerConfig, device: torch.device) -> None:
    """Put `module`, which is in the memory of the host, on `device` as the settings say. In place; of all ranks.

    Raises:
        ConfigError: `cpu_offload` where the device is the host.
        HostError: `compile` where nothing can be compiled.
        InputError: the module has no decoder layers of the library.
    """
    check_device(settings, device)
    layers = decoder_layers(module)
    for layer in layers:
        if settings.activation_checkpointing:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        if settings.compile:
            layer.forward = torch.compile(layer.forward, dynamic=True)
    if num_ranks() > 1 or settings.mixed_precision != "none" or settings.cpu_offload:
        _shard([*layers, module], settings, device)
    else:
        read_part(module, module)
        module.to(device)
    held: Any = module
    held.place = Place(device, is_home=not settings.cpu_offload)


def device_of(module: nn.Module) -> torch.device:
    place = getattr(module, "place", None)
    return place.device if place else next(module.parameters()).device


def check_device(settings: TrainerConfig, device: torch.device) -> None:
    """Find out, before a model is loaded, whether the settings can be had on `device`.

    Raises ConfigError: `cpu_offload` where the device is the host, or `liger` where it is no GPU. HostError: `compile`
    where there is no compiler, or `liger` where it is not installed.
    """
    if settings.liger:
        require_liger(device)
    if settings.cpu_offload and device.type == "cpu":
        raise ConfigError(
            "trainer.cpu_offload = true: models are on the CPU here, so it has no effect; remove it, or use a GPU"
        )
    if settings.compile and device.type == "cpu" and not shutil.which(os.environ.get("CXX", "g++")):
        raise HostError(
            "trainer.compile = true: needs a C++ compiler, and neither $CXX nor g++ is here. "
            "Fix: apt install g++. Or trainer.compile=false"
        )


def decoder_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of its decoder, in order, however they are nested: those that the library can checkpoint.

    Raises InputError: there are none.
    """
    layers: list[nn.Module] = [part for part in module.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise InputError(f"{type(module).__name__} has no decoder layers of transformers; it cannot be trained here")
    return layers


def is_sharded(module: nn.Module) -> bool:
    return isinstance(module, FSDPModule)


def _shard(units: list[nn.Module], settings: TrainerConfig, device: torch.device) -> None:
    """The last unit is the root. It is gathered until the backward pass in any case: its head is needed at once."""
    is_mixed = settings.mixed_precision == "bfloat16"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
    offload = CPUOffloadPolicy() if settings.cpu_offload else OffloadPolicy()
    mesh = _mesh(settings, device)
    for unit in units:
        read_part(unit, units[-1])
        stays = unit is units[-1] or settings.sharding == "zero2"
        fully_shard(unit, mesh=mesh, reshard_after_forward=not stays, mp_policy=policy, offload_policy=offload)
    for unit in _sharded_parts(units[-1]):
        # Weights of tokens are fixed before rows are split: gradients of ranks add up to that of the step.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    root: Any = units[-1]
    root.run_as_forward = MethodType(_run, root)
    register_fsdp_forward_method(root, "run_as_forward")


def _mesh(settings: TrainerConfig, device: torch.device) -> DeviceMesh:
    """Of two dimensions where there are several copies of the model: weights are gathered along the second only."""
    if not torch.distributed.is_initialized():  # one process that needs no other
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    parts = settings.parts(num_ranks())
    if parts == num_ranks():
        return init_device_mesh(device.type, (parts,))
    return init_device_mesh(device.type, (num_ranks() // parts, parts), mesh_dim_names=("replicate", "shard"))


def _sharded_parts(module: nn.Module) -> list[FSDPModule]:
    return [part for part in module.modules() if isinstance(part, FSDPModule)]


def _run(module: nn.Module, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    return function(module, *args, **kwargs)


def run_as_forward(module: nn.Module, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """`function(module, ...)` as a forward pass of `module`: where that is sharded, weights are gathered for it."""
    run = getattr(module, "run_as_forward", None)
    return run(function, *args, **kwargs) if run else function(module, *args, **kwargs)


def reshard(module: nn.Module) -> None:
    """Let go of weights that a forward pass gathered; after one without a backward pass, which does so itself."""
    for part in _sharded_parts(module):
        part.reshard()


def reduce_at_last(module: nn.Module, is_last: bool) -> None:
    """Return whether the next backward pass of an optimizer step is the last: replicas add up gradients only then."""
    for part in _sharded_parts(module):
        part.set_requires_all_reduce(is_last, recurse=False)


def whole(tensor: Tensor) -> Tensor:
    """Gather on each rank the whole of a tensor whose parts the ranks hold. Collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def offload(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Leave the GPU to others: weights and the state of the optimizer go to the memory of the host."""
    _move(module, optimizer, torch.device("cpu"))


def onload(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    _move(module, optimizer, device_of(module))


def _move(module: nn.Module, optimizer: torch.optim.Optimizer | None, device: torch.device) -> None:
    place: Place = getattr(module, "place")  # noqa: B009  modules have no declared attributes
    if place.device.type == "cpu" or not place.is_home:
        return
    module.to(device)
    for state in optimizer.state.values() if optimizer else ():
        for name, value in state.items():
            if isinstance(value, Tensor) and name != "step":  # which the optimizer wants on the host
                state[name] = value.to(device)
    torch.cuda.empty_cache()
