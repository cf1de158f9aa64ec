"""The two workers of `weight_sync.py`, where processes of their own can import them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from harness import seconds
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from autoclave.config import TinyModelConfig, VllmEngineConfig
from autoclave.models import Digest, WeightViews, build_tiny_policy, save_model
from autoclave.models import digests as weight_digests
from autoclave.workers import Dispatch, register
from autoclave.workers.trainer.publishing import SendsWeights
from autoclave.workers.weights.memory import settle
from autoclave.workers.weights.receiving import ReceivesWeights


def model(dtype: torch.dtype, shape: Mapping[str, int]) -> LlamaForCausalLM:
    """With random weights, tied embeddings, and layers in the proportions of common models."""
    width = shape["hidden_size"]
    config = LlamaConfig(
        intermediate_size=4 * width, num_attention_heads=width // 64, tie_word_embeddings=True, dtype=dtype, **shape
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def save(folder: Path, dtype: torch.dtype, shape: Mapping[str, int]) -> None:
    """Write the model to `folder`, with a tokenizer."""
    tokenized = build_tiny_policy(TinyModelConfig(), ["Print 3."], seed=0, device="cpu")
    save_model(replace(tokenized, model=model(dtype, shape)), folder)


def digests(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """A sum of the bits of each weight."""
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
    return {name: int(tensor.detach().view(bits[tensor.dtype]).sum()) for name, tensor in weights.items()}


class Trainer(SendsWeights):
    """A model, and two buffers of its size to copy between."""

    def __init__(self, dtype: torch.dtype, shape: Mapping[str, int], device: str = "cpu") -> None:
        torch.set_num_threads(1)
        self._model = model(dtype, shape).to(device)
        size = sum(weights.nbytes for weights in self._model.parameters())
        self._from, self._to = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))

    @register(Dispatch.ONE_TO_ALL)
    def num_weights(self) -> int:
        return sum(weights.numel() for weights in self._model.parameters())

    @register(Dispatch.ONE_TO_ALL)
    @torch.no_grad()
    def learn(self) -> None:
        """Write to all weights."""
        for weights in self._model.parameters():
            weights.mul_(-1)
        settle(self._from.device)

    @register(Dispatch.ONE_TO_ALL)
    def copy_s(self) -> float:
        """Seconds of a copy."""
        if (device := self._from.device).type == "cpu":
            ours, theirs = self._from.numpy(), self._to.numpy()
            np.negative(ours, out=ours)
            return seconds(lambda: np.copyto(theirs, ours))
        self._from.add_(1)
        settle(device)
        return seconds(lambda: (self._to.copy_(self._from), settle(device)))

    @register(Dispatch.ONE_TO_ALL)
    def digests(self) -> dict[str, int]:
        return digests(self._model.state_dict())


class ModelEngine:
    """A Transformers model whose parameters become what is published, as `TransformersEngine` does it."""

    def __init__(self, own: LlamaForCausalLM) -> None:
        self.model, self._views = own, WeightViews(own)

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        self._views.take(weights)

    def weight_digests(self) -> dict[str, Digest]:
        return weight_digests(self.model.state_dict())


class Sampler(ReceivesWeights):
    """An engine that samples nothing here."""

    def __init__(self, dtype: torch.dtype, shape: Mapping[str, int], device: str = "cpu") -> None:
        torch.set_num_threads(1)
        self.device = torch.device(device)
        self._engine = ModelEngine(model(dtype, shape).to(device))

    @register(Dispatch.ONE_TO_ALL)
    def digests(self) -> dict[str, int]:
        return digests(self._engine.model.state_dict())


class VllmSampler(ReceivesWeights):
    """An engine of vLLM that samples nothing here."""

    def __init__(self, folder: Path) -> None:
        from autoclave.rollout.vllm_engine import VllmEngine

        torch.set_num_threads(1)
        self._engine = VllmEngine(folder, VllmEngineConfig())

    @register(Dispatch.ONE_TO_ALL)
    def digests(self) -> None:
        """It holds weights in shapes of its own; what it computes with them is a test's."""
