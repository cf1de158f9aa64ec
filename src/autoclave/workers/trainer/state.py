"""The state of an optimizer as a file in the folder of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from autoclave.core import HostError


def save_state(state: Mapping[str, Any], path: Path) -> None:
    """Write `state`, which holds tensors and plain values.

    Raises:
        HostError: the disk is full or fails.
    """
    try:
        torch.save(state, path)
    except (OSError, RuntimeError) as error:  # which of the two depends on where in the file it fails
        raise HostError(f"{path}: cannot be written ({error})") from error


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote."""
    return torch.load(path, weights_only=True)
