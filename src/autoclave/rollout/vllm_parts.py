"""Parts of ours that vLLM imports by name, in whichever process its workers are. Imports vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm  # pyright: ignore[reportMissingImports]
from vllm.v1.sample.logits_processor import LogitsProcessor  # pyright: ignore[reportMissingImports]


class TakesWeights:
    """Methods that every worker of vLLM gets (`worker_extension_cls`)."""

    model_runner: Any

    def take_weights(self, weights: Mapping[str, Tensor] | str) -> None:
        """Load all weights by their Hugging Face names, or from a file of safetensors, into the model in use."""
        found = load_file(weights) if isinstance(weights, str) else weights
        self.model_runner.reload_weights(weights_iterator=iter(found.items()))
        self._pack_output_embedding()

    def _pack_output_embedding(self) -> None:
        """On a CPU, vLLM multiplies by a packed copy of the output embedding; a tied one stays as it was, silently."""
        for module in self.model_runner.get_model().modules():
            if type(module).__name__ == "ParallelLMHead" and hasattr(module, "cpu_linear"):
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)


class _Normalised(LogitsProcessor):
    """Turns logits into log-probs, which changes no distribution.

    vLLM can report what a token had where it was drawn (`processed_logits`): after temperature and nucleus. Normalised
    before the nucleus is cut, that is the log-prob at the sampling temperature, which no mode of vLLM's gives.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        pass

    def update_state(self, batch_update: Any) -> None:
        """Every request is treated alike."""

    def apply(self, logits: Tensor) -> Tensor:
        """(R, V) float32."""
        return logits.log_softmax(-1, dtype=torch.float32)


class BeforeTemperature(_Normalised):
    """For batches that are greedy throughout; these see neither temperature nor what follows."""

    def is_argmax_invariant(self) -> bool:
        """False is what vLLM calls processors that also greedy requests go through."""
        return False


class AtTemperature(_Normalised):
    """For all other batches; greedy requests among them have temperature 1."""

    def is_argmax_invariant(self) -> bool:
        """True is what vLLM calls processors that stand between temperature and nucleus."""
        return True
