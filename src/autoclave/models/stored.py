"""Models whose weights are read and written part by part, so that no process ever holds all of them.

Such a model is made on PyTorch's meta device, where weights have a shape and take no memory; `read_part` gives those of
a layer their values.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

FILE_BYTES = 2 << 30
"""Of a file that is written, unless a weight is larger; so much is in memory at a time."""

Place = tuple[nn.Module, str]
"""A module, and the name that it has a weight under."""


class StoredWeights:
    """Place of each weight of a model on disk. One that is tied has several places in the model."""

    def __init__(self, model: nn.Module, files: Mapping[str, Path], new: Collection[str]) -> None:
        """`new` begin the names of weights that are 0 where `files` lack them.

        Raises:
            KeyError: `files` lack another one.
        """
        self._files = files
        names_of: dict[int, list[str]] = {}
        for name, weight in model.named_parameters(remove_duplicate=False):
            names_of.setdefault(id(weight), []).append(name)
        self._known: dict[tuple[int, str], tuple[str, list[Place]]] = {}
        for names in names_of.values():
            stored = next((name for name in names if name in files), names[0])
            if stored not in files and stored.partition(".")[0] not in new:
                raise KeyError(stored)
            places = [(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in names]
            self._known |= {(id(module), key): (stored, places) for module, key in places}

    def read(self, part: nn.Module) -> None:
        """Give the weights of `part` that have no memory yet their values."""
        for module in part.modules():
            for key, weight in list(module.named_parameters(recurse=False)):
                if weight.is_meta:
                    name, places = self._known[id(module), key]
                    value = nn.Parameter(self._value(name, weight), weight.requires_grad)
                    for owner, own in places:
                        owner._parameters[own] = value

    def _value(self, name: str, like: Tensor) -> Tensor:
        value = torch.zeros(like.shape, dtype=like.dtype)
        if path := self._files.get(name):
            with safe_open(path, framework="pt") as file:
                value.copy_(file.get_tensor(name))
        return value


def stored_model(
    kind: Any, path: str | Path, architecture: PretrainedConfig, dtype: torch.dtype, *, new: Collection[str] = ()
) -> PreTrainedModel | None:
    """The model in folder `path`, of a class like `AutoModelForCausalLM`, whose weights `read_part` reads.

    None if the folder has no safetensors files with all of its weights by name; see `StoredWeights` for `new`.
    """
    files: dict[str, Path] = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            files |= dict.fromkeys(opened.keys(), file)
    if not files:
        return None
    with torch.device("meta"):
        model: Any = kind.from_config(architecture, dtype=dtype)
    if model.state_dict().keys() & dict(model.named_buffers()).keys():
        return None  # it has buffers that are stored, as no decoder that we know
    try:
        model.stored = StoredWeights(model, files, new)
    except KeyError:
        return None
    for module in model.modules():
        for name in module._non_persistent_buffers_set:
            module._buffers[name] = torch.empty_like(module._buffers[name], device="cpu")
        if module._non_persistent_buffers_set:
            model._init_weights(module)  # which computes them, as `from_pretrained` does
    if (Path(path) / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(str(path))
    return model


def read_part(part: nn.Module, model: nn.Module) -> None:
    """Read the weights of `part` of a `stored_model`; nothing is done for other models."""
    stored: StoredWeights | None = getattr(model, "stored", None)
    if stored:
        stored.read(part)


def save_in_parts(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """Write `weights`, all of a model like `model` as they come, in Hugging Face form; its own are not looked at.

    All of `weights` are asked for also where writing fails, so that other processes which take part may go on.

    Raises:
        OSError, SafetensorError: the disk is full or fails.
    """
    index: dict[str, str] = {}
    size, pending = 0, iter(weights)
    try:
        for number, part in enumerate(_parts(pending), start=1):
            name = f"model-{number:05}.safetensors"
            size += sum(tensor.nbytes for tensor in part.values())
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as made:
                model.save_pretrained(made, state_dict=part, max_shard_size=1 << 62)
                (Path(made) / "model.safetensors").rename(Path(made) / name)
                with safe_open(Path(made) / name, framework="pt") as file:
                    index |= dict.fromkeys(file.keys(), name)
                for path in Path(made).iterdir():
                    shutil.move(path, folder / path.name)
    finally:
        for _ in pending:
            pass
    if len(set(index.values())) == 1:
        (folder / "model-00001.safetensors").rename(folder / "model.safetensors")
        return
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=2)
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _parts(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    part: dict[str, Tensor] = {}
    for name, tensor in weights:
        if part and sum(each.nbytes for each in part.values()) + tensor.nbytes > FILE_BYTES:
            yield part
            part = {}
        part[name] = tensor
    if part:
        yield part
