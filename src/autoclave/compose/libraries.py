"""Settings as libraries and engines take them."""

from __future__ import annotations

import os

import torch
from transformers.utils import logging

from autoclave.config import SamplerConfig, TrainConfig
from autoclave.rollout import SamplingParameters


def settle_libraries(config: TrainConfig, *, processes: int = 1) -> None:
    """Set what libraries keep per process, in each before it computes; `processes` share the cores of a machine."""
    torch.set_num_threads(config.model.threads or max(1, len(os.sched_getaffinity(0)) // processes))
    settle_determinism(config.deterministic)
    logging.disable_progress_bar()  # one line per file read or written says nothing to our users


def settle_determinism(is_on: bool) -> None:
    """Allow, or not, operations of torch whose result depends on the order in which threads of a GPU come along.

    Where they are not allowed, one that has no other form raises a RuntimeError.
    """
    if is_on:
        # Without it cuBLAS may choose its work space, and so the order of sums, from call to call. Read with its first.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(is_on)
    torch.backends.cudnn.deterministic = is_on
    torch.backends.cudnn.benchmark = False


def sampling_parameters(config: SamplerConfig) -> SamplingParameters:
    """How responses are sampled in training."""
    return SamplingParameters(config.temperature, config.top_p, config.max_new_tokens, config.stops)
