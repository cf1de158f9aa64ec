"""Places of the weights of a Hugging Face model in a model of vLLM: packed by layer, and spread over ranks.

Reads attributes of vLLM's layers, and imports nothing of it. Where vLLM has repacked a weight for its kernels (on a CPU
the matrices of linear layers), the parameter is empty and the weight absent here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from autoclave.models import WeightShard
from autoclave.models.lora import NAME as ADAPTER


def shards_of(model: nn.Module, rank: int) -> dict[str, WeightShard]:
    """The part of each weight that `rank` holds, by Hugging Face name; what several ranks hold, the first of them."""
    packed: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    found: dict[str, WeightShard] = {}
    for place, module in model.named_modules(remove_duplicate=False):
        path = place.removesuffix(".base_layer")  # of a layer that can have an adapter
        layer, dot, own = path.rpartition(".")
        for kind, tensor in module.named_parameters(recurse=False):
            names = [f"{layer}{dot}{part}" for part in packed.get(own, [own])] if path else [path]
            for name, shard in zip(names, _shards(module, kind, tensor, len(names), rank), strict=False):
                if shard is not None:
                    found[f"{name}.{kind}" if name else kind] = shard
    return found


def adapter_shards_of(model: nn.Module, rank: int, lora_rank: int) -> dict[str, WeightShard]:
    """The part of each matrix of the only adapter that `rank` holds, by the names of a model with that adapter.

    vLLM holds them with room for other adapters and larger ranks: (adapters, 1, rank, columns), (adapters, 1, rows,
    rank).
    """
    packed: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    found: dict[str, WeightShard] = {}
    for path, module in model.named_modules():
        if not isinstance(getattr(module, "lora_a_stacked", None), tuple):
            continue
        wrapped: Any = module
        layer, dot, own = path.rpartition(".")
        base, names = wrapped.base_layer, packed.get(own, [own])
        columns = getattr(base, "input_size_per_partition", base.input_size)
        for place, name in enumerate(names):
            down = wrapped.lora_a_stacked[place][0, 0, :lora_rank]
            up = wrapped.lora_b_stacked[place][0, 0, :, :lora_rank]
            copies = getattr(base, "num_kv_head_replicas", 1) if place else 1
            parts: dict[str, WeightShard] = {}
            if columns != base.input_size:  # columns are spread over ranks, else rows
                parts["A"] = WeightShard(down, column=rank * columns, num_columns=base.input_size)
            elif not rank:
                parts["A"] = WeightShard(down)
            if columns == base.input_size and wrapped.tp_size > 1 and rank % copies == 0:
                parts["B"] = WeightShard(up, row=rank // copies * len(up))
            elif not rank:
                parts["B"] = WeightShard(up)
            found |= {f"{layer}{dot}{name}.lora_{kind}.{ADAPTER}.weight": part for kind, part in parts.items()}
    return found


def _shards(layer: Any, kind: str, tensor: Tensor, count: int, rank: int) -> Iterator[WeightShard | None]:
    """The `count` weights in a parameter, in order; None for one that another rank reports, or that is repacked."""
    if rank and getattr(layer, "tp_size", 1) == 1:  # all ranks hold it whole
        yield from [None] * count
    elif hasattr(layer, "shard_indices"):  # an embedding, padded at the end
        start, stop = layer.shard_indices.org_vocab_start_index, layer.shard_indices.org_vocab_end_index
        yield WeightShard(tensor[: stop - start], row=start)
    elif hasattr(layer, "input_size_per_partition") and layer.input_size_per_partition != layer.input_size:
        column = rank * layer.input_size_per_partition
        if kind == "weight":
            yield WeightShard(tensor, column=column, num_columns=layer.input_size) if tensor.numel() else None
        else:
            yield None if rank else WeightShard(tensor)
    elif hasattr(layer, "output_partition_sizes") and tensor.numel():
        sizes: Sequence[int] = layer.output_partition_sizes[:count]
        start = 0
        for place, size in enumerate(sizes):
            copies = getattr(layer, "num_kv_head_replicas", 1) if place else 1  # keys and values of few heads
            is_first, row = rank % copies == 0, rank // copies * size
            yield WeightShard(tensor[start : start + size], row=row) if is_first else None
            start += size
    elif tensor.numel():
        yield WeightShard(tensor)
