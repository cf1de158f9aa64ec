"""Slots in the memory of a GPU, for readers of other processes that use the same GPU, and of the same process."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from autoclave.core import HostError

_OWN: WeakValueDictionary[str, Tensor] = WeakValueDictionary()
"""Slots of this process by token: CUDA does not open what the same process has made."""


def share(token: str, slots: tuple[Tensor, ...]) -> list[Any]:
    """Handles by which `opened` finds `slots`, which must live as long as they are used anywhere."""
    from torch.multiprocessing.reductions import reduce_tensor  # loads much, and few processes come here

    for number, slot in enumerate(slots):
        _OWN[f"{token}/{number}"] = slot
    return [reduce_tensor(slot) for slot in slots]


def opened(token: str, handles: list[Any]) -> tuple[Tensor, ...]:
    """The slots of `share`.

    Raises:
        HostError: the driver of the GPU does not open them here.
    """
    own = [_OWN.get(f"{token}/{number}") for number in range(len(handles))]
    if all(slot is not None for slot in own):
        return tuple(slot for slot in own if slot is not None)
    try:
        return tuple(rebuild(*arguments) for rebuild, arguments in handles)
    except RuntimeError as error:
        raise HostError(f"published weights on a GPU cannot be opened by CUDA IPC ({error})") from None


def settle(device: torch.device) -> None:
    """Wait until what was written to the device is there for other processes."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
