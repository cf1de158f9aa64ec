"""Checks that models, tokenizers and adapters fit each other, by their settings alone: before weights are loaded."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from autoclave.config import LoraConfig
from autoclave.core import InputError
from autoclave.core.json import shown
from autoclave.models.lora import NAME, target_layers

INCIDENTAL = frozenset(
    {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache", "_commit_hash"}
)
"""Settings in a model's `config.json` that say nothing of the shape or the mathematics of its layers."""


def require_weights(folder: Path, architecture: PretrainedConfig, place: str) -> None:
    """Check that the weights in `folder`, if it is one, are there and have the shapes that `config.json` says.

    Reads the heads of safetensors files; weights in other formats, or under other names, are looked at when they are
    loaded.

    Raises InputError: they are missing, damaged, or of another shape; the message begins with `place`.
    """
    if not folder.is_dir():
        return
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise InputError(f"{place}: no weights in this folder (*.safetensors); download or export the model again")
    expected = _without_weights(architecture, place).state_dict()
    for name, shape in _shapes(folder, place):
        if name in expected and tuple(expected[name].shape) != shape:
            raise InputError(_misfit(place, name, shape, tuple(expected[name].shape)))


def require_loaded(info: Mapping[str, Any], place: str) -> None:
    """Check the account that `from_pretrained` gave: what it did not find in the files it filled with random numbers.

    Raises InputError: there is such a weight; the message begins with `place`.
    """
    if info["missing_keys"]:
        raise InputError(f"{place}: its weights lack {', '.join(sorted(info['missing_keys'])[:3])}")
    for name, found, expected in info["mismatched_keys"]:
        raise InputError(_misfit(place, name, tuple(found), tuple(expected)))


def _without_weights(architecture: PretrainedConfig, place: str) -> PreTrainedModel:
    """The model with weights that have a shape and take no memory."""
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(architecture)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{place}: not a Hugging Face causal language model ({reason})") from None


def _shapes(folder: Path, place: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                yield from ((name, tuple(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InputError(f"{place}: {path.name} is damaged ({error}); download or export the model again") from None


def _misfit(place: str, name: str, found: Sequence[int], expected: Sequence[int]) -> str:
    return (
        f"{place}: weights of another architecture than its config.json: {name} is {_size(found)} in the file and "
        f"{_size(expected)} by config.json; give a folder whose files belong together"
    )


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def require_embedding(tokenizer: PreTrainedTokenizerBase, architecture: PretrainedConfig, place: str) -> None:
    """Check that the model has an embedding for every token. (More embeddings than tokens are padding.)

    Raises InputError: it lacks one; the message begins with `place`.
    """
    token, index = max(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    if index >= architecture.vocab_size:
        raise InputError(
            f"{place}: its tokenizer has token {shown(token)} of id {index}, its model embeddings for ids below "
            f"{architecture.vocab_size}; give a model with its own tokenizer, or resize its embeddings and save it"
        )


def require_same_vocabulary(found: PreTrainedTokenizerBase, expected: PreTrainedTokenizerBase, *, place: str) -> None:
    """Check that a model reads token ids as the policy writes them.

    Args:
        found: the tokenizer of the other model.
        expected: that of the policy.
        place: the setting that names the other model, and its value.

    Raises:
        InputError: they differ; the message begins with `place` and names a token that they disagree on.
    """
    theirs, ours = found.get_vocab(), expected.get_vocab()
    differing = [token for token in ours if theirs.get(token) != ours[token]] + [t for t in theirs if t not in ours]
    if differing:
        token = min(differing, key=lambda token: ours.get(token, len(ours)))
        there, here = ("none" if ids.get(token) is None else ids[token] for ids in (theirs, ours))
        raise InputError(
            f"{place}: another tokenizer than the policy's: token {shown(token)} has id {there} there and {here} in "
            f"the policy's ({len(differing)} tokens differ); give a model with the policy's own tokenizer"
        )


def require_targets(architecture: PretrainedConfig, config: LoraConfig) -> None:
    """Check that a model has the layers that are to get adapters.

    Raises:
        ConfigError: it lacks one.
        InputError: it is no causal language model.
    """
    target_layers(_without_weights(architecture, "trainer.lora"), config)


def adapter_shapes(architecture: PretrainedConfig, config: LoraConfig) -> dict[str, torch.Size]:
    """The shape of each matrix of an adapter of such a model, by name.

    Raises:
        ConfigError: the model lacks a layer that is to get one.
        InputError: it is no causal language model.
    """
    model = _without_weights(architecture, "trainer.lora")
    weights = model.state_dict()
    shapes: dict[str, torch.Size] = {}
    for layer in target_layers(model, config):
        rows, columns = weights[f"{layer}.weight"].shape
        shapes[f"{layer}.lora_A.{NAME}.weight"] = torch.Size([config.rank, columns])
        shapes[f"{layer}.lora_B.{NAME}.weight"] = torch.Size([rows, config.rank])
    return shapes
