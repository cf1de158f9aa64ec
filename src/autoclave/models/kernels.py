"""The Triton kernels of liger-kernel in place of the layers of a model. They run on a GPU only."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from transformers import PreTrainedModel

from autoclave.core import ConfigError, HostError
from autoclave.core.install import install_command


def require_liger(device: torch.device) -> None:
    """Find out before models are loaded that liger-kernel cannot be used.

    Raises:
        ConfigError: the models run on another device than a GPU.
        HostError: the package is not installed.
    """
    if device.type != "cuda":
        raise ConfigError(
            f"trainer.liger = true: its kernels run on a GPU, and the models run on {device.type}; "
            "set trainer.liger=false, or model.device=cuda"
        )
    if find_spec("liger_kernel") is None:
        raise HostError(
            f"trainer.liger = true: liger-kernel is not installed. Fix: {install_command('liger')}, "
            "or set trainer.liger=false"
        )


def apply_liger(model: PreTrainedModel, device: torch.device) -> None:
    """Give `model`, which is to compute on `device`, the kernels that liger-kernel has for its family.

    Log-probs stay ours.

    Raises:
        ConfigError, HostError: as `require_liger`.
    """
    require_liger(device)
    from transformers.integrations.liger import apply_liger_kernel

    apply_liger_kernel(model, {"fused_linear_cross_entropy": False, "cross_entropy": False})
