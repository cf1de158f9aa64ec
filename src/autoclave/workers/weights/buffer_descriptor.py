"""Messages between trainer and samplers about weights."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from autoclave.workers.weights.memory import Address
from autoclave.workers.weights.table import WeightTable


@dataclass(frozen=True, slots=True)
class Form:
    """In which form weights are published."""

    dtype: torch.dtype | None = None
    """The number format of floating-point weights; None: that of the trainer."""
    adapter_only: bool = False
    """The matrices of adapters alone, in the trainer's format; `dtype` is that of the frozen weights, which samplers
    have."""

    @property
    def sent_dtype(self) -> torch.dtype | None:
        """The number format of what is sent at every publish; None: that of the trainer."""
        return None if self.adapter_only else self.dtype


AS_TRAINED = Form()
"""All weights, in the number format in which they learn."""


@dataclass(frozen=True, slots=True)
class BufferDescriptor:
    """The memory that the trainer writes weights to."""

    table: WeightTable
    address: Address
    scale: float | None
    """Of adapters, if they are all that is published."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """All weights of `table` as numpy arrays (uint8) of whole weights, by the bytes of the buffer that they are."""

    version: int
    table: WeightTable
    pieces: Mapping[tuple[int, int], np.ndarray]
