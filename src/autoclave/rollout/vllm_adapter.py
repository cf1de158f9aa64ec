"""The LoRA adapter of a vLLM engine, replaced in place while requests run."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from autoclave.config import LoraConfig
from autoclave.core import ConfigError, InputError
from autoclave.models import Digest, adapter_shapes, digests, joined_digests, write_matrices

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM makes room for; smaller ones fit."""
NAME, NUMBER = "policy", 1


def _folder_for(size: int) -> str | None:
    """Folder for files of `size` bytes: the memory of the host, or the folder for temporary files if it has no room."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage("/dev/shm").free > 2 * size:
            return "/dev/shm"
    return None


class HotAdapter:
    """vLLM reads each version from a folder in the memory of the host: two small files in the format of `peft`."""

    def __init__(self, architecture: PretrainedConfig, lora: LoraConfig) -> None:
        """For a model of this architecture.

        Raises ConfigError: the rank is more than vLLM has, or a target is not a linear layer of the model.
        """
        if lora.rank > RANKS[-1]:
            raise ConfigError(
                f"trainer.lora.rank = {lora.rank}: vLLM holds ranks up to {RANKS[-1]}. Fix: lower it, or set "
                "publish.content=weights"
            )
        self._lora, self._shapes = lora, adapter_shapes(architecture, lora)
        self._given: Mapping[str, Tensor] = {}
        self.request: Any = None
        """The `LoRARequest` of requests that are sampled with it."""

    def arguments(self) -> dict[str, Any]:
        """Of `EngineArgs`."""
        return {
            "enable_lora": True,
            "max_loras": 1,
            "max_lora_rank": next(rank for rank in RANKS if rank >= self._lora.rank),
        }

    def start(self, engine: Any) -> None:
        """Load an adapter without effect, so that all requests have one."""
        self.load(engine, 0, {name: torch.zeros(shape) for name, shape in self._shapes.items()})

    def load(self, engine: Any, version: int, weights: Mapping[str, Tensor]) -> None:
        """Replace the matrices by these."""
        from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

        size = sum(tensor.nbytes for tensor in weights.values())
        with tempfile.TemporaryDirectory(dir=_folder_for(size), prefix="autoclave-adapter-") as folder:
            # The scale is in B, so alpha / rank is 1 there: vLLM would round B before it multiplies.
            settings = {"peft_type": "LORA", "r": self._lora.rank, "lora_alpha": self._lora.rank, "bias": "none"}
            names = sorted({name.partition(".lora_")[0].rpartition(".")[2] for name in weights})
            text = json.dumps(settings | {"target_modules": names})
            (Path(folder) / "adapter_config.json").write_text(text, encoding="utf-8")
            write_matrices({name: self._scaled(name, tensor).cpu() for name, tensor in weights.items()}, Path(folder))
            engine.add_lora(LoRARequest(NAME, NUMBER, folder, load_inplace=True))
        self._given = weights
        # A path of its own for each version: vLLM tells prompts in its cache apart by it, and reads it no more.
        self.request = LoRARequest(NAME, NUMBER, f"version-{version}")

    def require_names(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Check that `weights` are those of this adapter.

        Raises InputError: one is missing, unknown, or of another shape.
        """
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        if shapes != self._shapes:
            wrong = sorted(name for name, _ in shapes.items() ^ self._shapes.items())
            raise InputError(
                f"weights of version {version} are not those of this model's adapter: {wrong[:3]} are missing, unknown "
                "or of another shape. Fix: trainer.lora must be equal for trainer and sampler"
            )

    def digests(self, engine: Any) -> dict[str, Digest]:
        """Digests of what was given, as far as vLLM's own memory holds that times the scale, rounded to its format."""
        held = joined_digests(engine.collective_rpc("adapter_digests", args=(self._lora.rank,)))
        given = {name: tensor for name, tensor in self._given.items() if name in held}
        expected = digests({name: self._scaled(name, each).to(held[name].dtype) for name, each in given.items()})
        own = digests(given)
        return {name: own[name] if held[name] == expected[name] else held[name] for name in given}

    def _scaled(self, name: str, tensor: Tensor) -> Tensor:
        return tensor * (self._lora.alpha / self._lora.rank) if ".lora_B." in name else tensor
