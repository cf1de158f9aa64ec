"""Peak memory of the workers of a run: as figures, as lines, and against what pools may take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from autoclave.config import TrainConfig
from autoclave.planning.accounting import excess, size_text
from autoclave.workers.memory import MemoryPeak

Peaks = Mapping[str, Sequence[MemoryPeak]]
"""Of each worker group, by rank."""

MIB = 1 << 20


def peak_figures(peaks: Peaks) -> dict[str, Any]:
    """For `summary.json`: `peak_memory_mib`, for each group a list by rank.

    `resident` is the whole process, `grown` what came after the libraries, `device` what tensors took on its GPU.
    Groups of one `process` have the same figures: they are of the process.
    """
    figures = {
        group: [
            {
                **{name: round(getattr(peak, name) / MIB, 1) for name in ("resident", "grown", "device")},
                "process": peak.process,
            }
            for peak in ranks
        ]
        for group, ranks in peaks.items()
    }
    return {"peak_memory_mib": figures}


def describe_peaks(config: TrainConfig, peaks: Peaks) -> list[str]:
    """A line with the largest peak of each process, and one for each pool that took more than it may."""
    by_process: dict[tuple[int, ...], list[str]] = {}
    for group, ranks in peaks.items():
        by_process.setdefault(tuple(peak.process for peak in ranks), []).append(group)
    parts = [_part(groups, peaks[groups[0]]) for groups in by_process.values()]
    counted = {group: [(peak.process, peak.counted) for peak in ranks] for group, ranks in peaks.items()}
    return [f"peak memory: {'; '.join(parts)}", *(f"warning: {line}" for line in excess(config, counted))]


def _part(groups: Sequence[str], ranks: Sequence[MemoryPeak]) -> str:
    largest = max(ranks, key=lambda peak: peak.resident)
    device = max(peak.device for peak in ranks)
    place = " (with the driver and the warm start)" if largest.process == os.getpid() else ""
    return (
        f"{', '.join(groups)}{place} {size_text(largest.resident)}, {size_text(largest.grown)} of it beside libraries"
        + (f", on the GPU {size_text(device)}" if device else "")
    )
