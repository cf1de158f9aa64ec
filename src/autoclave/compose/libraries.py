"""Settings as libraries and engines take them."""

from __future__ import annotations

import os

import torch
from transformers.utils import logging

from autoclave.config import ModelConfig, SamplerConfig
from autoclave.rollout import SamplingParameters


def settle_libraries(config: ModelConfig, *, processes: int = 1) -> None:
    """Set what libraries keep per process; `processes` share the cores of a machine."""
    torch.set_num_threads(config.threads or max(1, len(os.sched_getaffinity(0)) // processes))
    logging.disable_progress_bar()  # one line per file read or written says nothing to our users


def sampling_parameters(config: SamplerConfig) -> SamplingParameters:
    """How responses are sampled in training."""
    return SamplingParameters(config.temperature, config.top_p, config.max_new_tokens, config.stops)
