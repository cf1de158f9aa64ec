"""GPUs that a plan is held against: their memory, and the dense bfloat16 rate that MFU is measured by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU."""

    name: str
    device_names: tuple[str, ...]
    """Names that drivers give it."""
    memory_mib: int
    """As its driver reports it."""
    peak_flops: float
    """Multiply-adds of bfloat16 matrices without sparsity, two operations each, per second."""
    bandwidth: float
    """Of its memory, in bytes per second."""

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.memory_mib << 20


GPUS = (
    Gpu("L4", ("NVIDIA L4",), 23034, 121e12, 300e9),
    Gpu("A10", ("NVIDIA A10",), 23028, 125e12, 600e9),
    Gpu("RTX 4090", ("NVIDIA GeForce RTX 4090",), 24564, 165e12, 1008e9),
    Gpu("A100 40 GB", ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), 40960, 312e12, 1555e9),
    Gpu("L40S", ("NVIDIA L40S",), 46068, 362e12, 864e9),
    Gpu("A100 80 GB", ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"), 81920, 312e12, 1935e9),
    Gpu("H100 PCIe", ("NVIDIA H100 PCIe",), 81559, 756e12, 2000e9),
    Gpu("H100 SXM", ("NVIDIA H100 80GB HBM3",), 81559, 989e12, 3350e9),
    Gpu("H200", ("NVIDIA H200",), 143771, 989e12, 4800e9),
    Gpu("B200", ("NVIDIA B200",), 183359, 2250e12, 7700e9),
)
"""By memory. Rates are those of the vendor's data sheets, halved where a sheet counts sparsity, of several cards that
share a name the lower one."""


def peak_flops(device_name: str, dtype: str) -> float | None:
    """Operations per second that a device can do at most, or None where that is not known.

    `device_name` is that of the driver (`torch.cuda.get_device_name`). Rates are known for bfloat16 alone.
    """
    rates = (gpu.peak_flops for gpu in GPUS if device_name in gpu.device_names)
    return next(rates, None) if dtype == "bfloat16" else None
