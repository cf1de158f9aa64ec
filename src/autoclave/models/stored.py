"""Models whose weights are read and written part by part, so that no process ever holds all of them.

Such a model is made on PyTorch's meta device, where weights have a shape and take no memory; `read_part` gives those of
a layer their values.
"""

import json
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

from autoclave.core import InputError
from autoclave.core.json import nearest
from autoclave.models.lora import is_of_adapter

FILE_BYTES = 2 << 30
"""Of a file that is written, unless a weight is larger; so much is in memory at a time."""

Place = tuple[nn.Module, str]
"""A module, and the name that it has a weight under."""


class StoredWeights:
    """Place of each weight of a model on disk. One that is tied has several places in the model."""

    def __init__(self, model: nn.Module, files: Mapping[str, Path], new: Collection[str]) -> None:
        """`new` begin the names of weights that are 0 where `files` lack them.

        Raises KeyError: `files` lack another one.
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

    Raises OSError, SafetensorError: the disk is full or fails.
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


REMEMBERED = 2
"""Sets of weights of which it is remembered where they belong: a publisher writes two in turn."""


class WeightViews:
    """Lets `model` compute with weights that it is given. The same tensors, given again, are taken over quickly."""

    def __init__(self, model: nn.Module, *, adapter_only: bool = False) -> None:
        """With `adapter_only` the matrices of its adapters alone are given; all else stays as it is."""
        self._model, self._adapter_only = model, adapter_only
        self._known: list[_Fitting] = []

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Compute with `weights`, by the names of the model's `state_dict`; nothing changes unless all of them fit.

        A parameter becomes the given tensor itself where device, number format and layout are its own, else a
        converted copy. Parameters that are tied stay so; of their names one is enough. What was there before is let
        go and never written to, since it may be a view of memory that others read.

        Raises:
            InputError: a weight is missing, unknown, of another shape, or two different ones are given for tied names.
        """
        fitting = next((known for known in self._known if known.is_of(weights)), None)
        with torch.inference_mode(False), torch.no_grad():
            if fitting is None:
                state = self._model.state_dict(keep_vars=True)
                if self._adapter_only:
                    state = {name: own for name, own in state.items() if is_of_adapter(name)}
                pairs = [(own, given.detach().to(own).contiguous()) for own, given in _matched(state, weights)]
                fitting = _Fitting(dict(weights), pairs)
                if fitting.is_of_views:
                    self._known = [*self._known, fitting][-REMEMBERED:]
            for own, tensor in fitting.pairs:
                own.data = tensor


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Weights, and each tensor of the model, once, with the one that takes its place."""

    weights: Mapping[str, Tensor]
    pairs: Sequence[tuple[Tensor, Tensor]]

    def is_of(self, weights: Mapping[str, Tensor]) -> bool:
        own = self.weights
        return len(weights) == len(own) and all(weights.get(name) is tensor for name, tensor in own.items())

    @property
    def is_of_views(self) -> bool:
        """True if no tensor is a copy, which would not show what is written to the weights later."""
        places = {tensor.data_ptr() for tensor in self.weights.values()}
        return all(tensor.data_ptr() in places for _, tensor in self.pairs)


def _matched(state: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each tensor of `state`, once, with the one that is to take its place."""
    names_of: dict[int, list[str]] = {}
    for name, own in state.items():
        names_of.setdefault(id(own), []).append(name)
    for name in weights:
        if name not in state:
            raise InputError(f"published weight {name!r}: the sampler's model has none; {nearest(name, list(state))}")
    return [(state[names[0]], _given(state[names[0]], names, weights)) for names in names_of.values()]


def _given(own: Tensor, names: list[str], weights: Mapping[str, Tensor]) -> Tensor:
    found = [name for name in names if name in weights]
    if not found:
        raise InputError(f"{names[0]!r}: this weight of the sampler's model was not published")
    given = weights[found[0]]
    for name in found:
        if weights[name].shape != own.shape:
            raise InputError(
                f"published weight {name!r}: shape {tuple(weights[name].shape)}, the sampler's model has "
                f"{tuple(own.shape)}; trainer and sampler must hold the same architecture"
            )
        if weights[name].data_ptr() != given.data_ptr() and not torch.equal(weights[name], given):
            raise InputError(f"{found[0]!r} and {name!r} are one weight in the sampler's model, and two were published")
    return given
