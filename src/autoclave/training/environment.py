"""Environment of a run: versions and machine, for summaries, reports and benchmarks."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch


def versions() -> dict[str, str]:
    """Versions of what decides results."""
    return {
        "autoclave": version("autoclave"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "numpy")},
    }


def machine() -> dict[str, str | int | float]:
    """Processor, cores we may use, memory in GB, kernel, and the GPU if there is one."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
