"""Low-rank adapters (LoRA): a few weights that learn beside frozen ones.

    W' = W + (alpha / rank) B A,   A (rank, in), B (out, rank), B = 0 at the start

Source: Hu et al., LoRA, arXiv:2106.09685, section 4.1. The layers are those of `peft`, put into the model in place: it
stays the model that it is, with the same methods. Callers read weights by name through `plain_weights`, and
knows nothing of adapters.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from autoclave.config import LoraConfig
from autoclave.core import ConfigError, HostError
from autoclave.core.json import nearest

NAME = "default"
"""Name that `peft` gives to the one adapter of a model."""
WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Prefix that `peft` puts before the names of a model's weights in files."""


def with_adapter(model: PreTrainedModel, config: LoraConfig, *, seed: int) -> PreTrainedModel:
    """`model` itself, changed in place: all its weights are frozen, and adapters on its linear layers learn.

    The adapter changes nothing until it has learnt: B is 0. A is drawn on the CPU from `seed`, so that it is the same
    on every device and rank. Adapters have the number format of the weights, float32 at least.

    Args:
        model: a causal language model, or the trunk of a critic. Not yet sharded.
        config: rank, scale, and which layers.
        seed: of the numbers in A.

    Raises:
        ConfigError: a target is no linear layer of the model.
    """
    from peft import LoraConfig as PeftConfig  # slow to import, and most processes hold no adapter
    from peft import inject_adapter_in_model

    names = target_layers(model, config)
    settings = PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]  declared as an int, used as a factor
        target_modules=names,
        base_model_name_or_path=model.name_or_path,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):  # the library draws A too
        inject_adapter_in_model(settings, model)
    generator = torch.Generator().manual_seed(seed)
    for layer in _adapted(model):
        down, up = layer.lora_A[NAME], layer.lora_B[NAME]
        drawn = torch.empty(down.weight.shape, dtype=torch.float32)
        nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)  # as the library: uniform in 1/sqrt(in)
        for part, value in ((down, drawn), (up, torch.zeros(up.weight.shape))):
            dtype, device = torch.promote_types(part.weight.dtype, torch.float32), part.weight.device
            # New ones: of a model whose weights are read later they have no memory.
            part.weight = nn.Parameter(value.to("cpu" if device.type == "meta" else device, dtype))
    return model


def target_layers(model: PreTrainedModel, config: LoraConfig) -> list[str]:
    """Full names of the linear layers of `model` that the settings choose. The output embedding is never one.

    Raises ConfigError: a target is no linear layer of the model.
    """
    head = model.get_output_embeddings()
    linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear) and part is not head]
    if not config.targets:
        return linear
    known = list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
    for target in config.targets:
        if target not in known:
            raise ConfigError(
                f"trainer.lora.targets: {target!r} is no linear layer of this model; {nearest(target, known)}"
            )
    return [name for name in linear if name.rpartition(".")[2] in config.targets]


def plain_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The weights by the names of a model without adapters, with what adapters learnt added in.

    Those that no adapter changes share the memory of the model. The model itself stays as it is, also in its last bit.
    """
    return merged(model.state_dict(), adapter_scale(model))


def merged(state: dict[str, Tensor], scale: float) -> Iterator[tuple[str, Tensor]]:
    """The same of `state`, whole tensors of a model by name; `scale` is alpha / rank.

    What is yielded is taken out of `state`, so that no second copy of all weights comes to be; adapters stay in it.
    """
    for part in list(parts_of(state)):
        tensor = state.pop(part.base)
        yield part.name, added(tensor, *(state[name] for name in part.adapter), scale=scale) if part.adapter else tensor


@dataclass(frozen=True, slots=True)
class Part:
    """Parts of a weight of the plain model: `base`, and the names of A and B if an adapter changes it."""

    name: str
    base: str
    adapter: tuple[str, str] | None


def parts_of(names: Iterable[str]) -> Iterator[Part]:
    """The weights of the plain model, from the names of all weights of a model that may have adapters."""
    for name in names:
        layer, is_base, kind = name.rpartition(".base_layer.")
        if is_base:
            adapter = (f"{layer}.lora_A.{NAME}.weight", f"{layer}.lora_B.{NAME}.weight") if kind == "weight" else None
            yield Part(f"{layer}.{kind}", name, adapter)
        elif not is_of_adapter(name):
            yield Part(name, name, None)


def added(base: Tensor, down: Tensor, up: Tensor, *, scale: float) -> Tensor:
    """W + scale B A, in the number format of W: `base` (out, in), `down` A (rank, in), `up` B (out, rank)."""
    return (base + scale * (up @ down)).to(base.dtype)


@contextmanager
def without_adapter(model: PreTrainedModel) -> Generator[None]:
    """Within the block the model computes with its frozen weights alone.

    Raises:
        ValueError: it has no adapter, so it is not what training began with.
    """
    layers = list(_adapted(model))
    if not layers:
        raise ValueError("this model has no adapter: all its weights learn")
    for layer in layers:
        layer._disable_adapters = True  # `enable_adapters` would also change what requires a gradient
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def save_adapter(model: PreTrainedModel, folder: Path, *, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the adapter in the format of `peft`, for use elsewhere. Nothing for a model without one.

    `weights` are all of the model by name, as `state_dict` names them; left out, they are in the model.

    Raises:
        HostError: the disk is full or fails.
    """
    state = model.state_dict() if weights is None else weights
    found = {name: tensor for name, tensor in state.items() if is_of_adapter(name)}
    if not found:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _settings(model)[NAME].save_pretrained(str(folder))
        write_matrices(found, folder)
    except (OSError, SafetensorError) as error:
        raise HostError(f"{folder}: cannot be written ({error})") from error


def write_matrices(adapter: Mapping[str, Tensor], folder: Path) -> None:
    """Write the matrices of an adapter, by the names of a model that has it, to the file that `peft` reads."""
    named = {f"{_PREFIX}{name.replace(f'.{NAME}.', '.')}": tensor for name, tensor in adapter.items()}
    save_file(named, folder / WEIGHTS, metadata={"format": "pt"})


def _adapted(model: PreTrainedModel) -> Iterator[Any]:
    """The layers with an adapter, `peft.tuners.lora.LoraLayer`."""
    return (part for part in model.modules() if hasattr(part, "lora_A"))


def is_of_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def _settings(model: nn.Module) -> Mapping[str, Any]:
    """Settings that `peft` keeps in a model or its trunk, by the name of the adapter; empty for a model without one."""
    return next((part.peft_config for part in model.modules() if hasattr(part, "peft_config")), {})  # pyright: ignore


def adapter_scale(model: nn.Module) -> float:
    """Factor on the product of an adapter's matrices; 0 for a model without adapters."""
    return next((settings.lora_alpha / settings.r for settings in _settings(model).values()), 0.0)
