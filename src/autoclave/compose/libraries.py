"""Settings as libraries and engines take them."""

import ctypes
import os
import platform

import torch
from transformers.utils import logging

from autoclave.config import SamplerConfig, TrainConfig
from autoclave.models import resolve_device
from autoclave.rollout import SamplingParameters

_M_MMAP_THRESHOLD, _RETURNED_BYTES = -3, 1 << 20
"""A parameter of glibc's mallopt, and its value: a freed block so large goes back to the system at once. glibc's own
value grows to 32 MiB, and what it keeps made a process on a CPU up to 1.7 times as large as its tensors."""


def settle_libraries(config: TrainConfig, *, processes: int = 1) -> None:
    """Set what libraries keep per process, in each before it computes; `processes` share the cores of a machine."""
    torch.set_num_threads(config.model.threads or max(1, len(os.sched_getaffinity(0)) // processes))
    settle_determinism(config.deterministic)
    is_on_cpu = config.model.device != "cuda" and resolve_device(config.model.device).type == "cpu"
    if is_on_cpu and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _RETURNED_BYTES)
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
    return SamplingParameters(config.temperature, config.top_p, config.max_new_tokens, config.stops)
