"""Code that vLLM imports by name in its workers' processes. Imports vLLM."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from vllm.distributed import get_tensor_model_parallel_rank  # pyright: ignore[reportMissingImports]
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm  # pyright: ignore[reportMissingImports]
from vllm.v1.sample.logits_processor import LogitsProcessor  # pyright: ignore[reportMissingImports]
from vllm.v1.sample.logits_processor.builtin import process_dict_updates  # pyright: ignore[reportMissingImports]

from autoclave.models import Digest, digests
from autoclave.rollout.drawing import NextUniforms, RowParameters, draw
from autoclave.rollout.interface import Request, uniforms
from autoclave.rollout.vllm_layout import adapter_shards_of, shards_of


class TakesWeights:
    """Methods added to every worker of vLLM (`worker_extension_cls`)."""

    model_runner: Any

    def take_weights(self, weights: Mapping[str, Tensor] | str) -> None:
        """Load all weights by their Hugging Face names, or from a file of safetensors, into the model in use."""
        found = load_file(weights) if isinstance(weights, str) else weights
        self.model_runner.reload_weights(weights_iterator=iter(found.items()))
        self._pack_output_embedding()

    def weight_digests(self) -> dict[str, Digest]:
        """Digests of the weights of this rank in vLLM's own memory; see `vllm_layout`."""
        return digests(shards_of(self.model_runner.get_model(), get_tensor_model_parallel_rank()))

    def adapter_digests(self, lora_rank: int) -> dict[str, Digest]:
        """The same of the adapter's matrices."""
        return digests(adapter_shards_of(self.model_runner.get_model(), get_tensor_model_parallel_rank(), lora_rank))

    def _pack_output_embedding(self) -> None:
        """On a CPU, vLLM multiplies by a packed copy of the output embedding; a tied one stays as it was, silently."""
        for module in self.model_runner.get_model().modules():
            if type(module).__name__ == "ParallelLMHead" and hasattr(module, "cpu_linear"):
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)


class _Row(NamedTuple):
    request: Request
    random: np.ndarray
    """A number in [0, 1) for each token."""
    tokens: list[int]
    """Those so far; vLLM appends to it."""


class DrawsTokens(LogitsProcessor):
    """Draws the next token of each row, which is all that it leaves in the logits; its logit is its log-prob.

    For vLLM every request is greedy, so it takes that token and reports its logit (`processed_logits`): the log-prob
    at the sampling temperature before the nucleus is cut, which no mode of vLLM's gives. A token depends on the random
    numbers of its request and its place alone, also if a prompt is computed in parts or a response again. vLLM's own
    seeds depend on how often it samples, and on a CPU it ends where one meets a prompt that is computed in parts.
    """

    REQUEST = "autoclave"
    """Key of a request in `SamplingParams.extra_args`."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._rows: dict[int, _Row] = {}
        self._parameters = RowParameters.of([], device)
        self._uniforms = NextUniforms([], [])

    def is_argmax_invariant(self) -> bool:
        """False is what vLLM calls processors that greedy requests go through."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow requests as they come, go and move."""
        if process_dict_updates(self._rows, batch_update, self._row):
            rows = [self._rows[place] for place in range(len(self._rows))]
            self._parameters = RowParameters.of([row.request.parameters for row in rows], self._device)
            self._uniforms = NextUniforms([row.random for row in rows], [row.tokens for row in rows])

    def apply(self, logits: Tensor) -> Tensor:
        """(R, V) float32."""
        uniform = torch.from_numpy(self._uniforms.numbers()).to(self._device)[:, None]
        tokens, log_probs = draw(logits, uniform, self._parameters)
        return logits.fill_(-torch.inf).scatter_(1, tokens[:, None], log_probs[:, None])

    def _row(self, parameters: Any, prompt: list[int] | None, tokens: list[int]) -> _Row:
        request: Request = parameters.extra_args[self.REQUEST]
        return _Row(request, uniforms(request.seed, request.parameters.max_new_tokens), tokens)
