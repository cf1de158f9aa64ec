"""The figures of a finished run: `summary.json`."""

import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from autoclave import __version__
from autoclave.config import TrainConfig
from autoclave.planning.accounting.fitting import excess
from autoclave.planning.accounting.memory import size_text
from autoclave.runs.folder import RunFolder
from autoclave.training.checkpoints import best_checkpoint
from autoclave.workers.memory import MemoryPeak


def describe(summary: Mapping[str, Any]) -> str:
    """The result in a few lines, for people."""
    others = [
        f"{name} {_figure(summary[f'{key}_before'])} -> {_figure(summary[f'{key}_after'])}"
        for name, key in (("greedy", "heldout_greedy"), *_pass_at_k(summary))
    ]
    return (
        f"held-out pass@1 at temperature 1: {_gain(summary)}\n"
        f"{', '.join(others)}; {summary['heldout_problems']} held-out problems\n"
        f"warm start {summary['seconds_sft']:.0f} s, reinforcement learning {summary['seconds_rl']:.0f} s, "
        f"evaluation {summary['seconds_evaluation']:.0f} s"
    )


def _gain(summary: Mapping[str, Any]) -> str:
    """From before to after, with the intervals; without those where there are too few verdicts."""
    before, after = summary["heldout_pass1_before"], summary["heldout_pass1_after"]
    low, high = summary["heldout_pass1_interval_before"]
    new_low, new_high = summary["heldout_pass1_interval_after"]
    if None in (before, after, low, high, new_low, new_high):
        return f"{_figure(before)} -> {_figure(after)}; too few verdicts to compare"
    apart = "do not overlap" if high < new_low or new_high < low else "overlap"
    return (
        f"{before:.3f} [{low:.3f}, {high:.3f}] -> {after:.3f} [{new_low:.3f}, {new_high:.3f}], {after - before:+.3f}; "
        f"the intervals {apart}"
    )


def _figure(value: float | None) -> str:
    """A figure; a dash where there were too few verdicts for one."""
    return "-" if value is None else f"{value:.3f}"


def _pass_at_k(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    keys = [key.removesuffix("_after") for key in summary if key.startswith("heldout_pass") and key.endswith("_after")]
    numbers = [key.removeprefix("heldout_pass") for key in keys if "interval" not in key]
    return [(f"pass@{number}", f"heldout_pass{number}") for number in numbers if number != "1"]


def summarise(
    config: TrainConfig, folder: RunFolder, seconds: Mapping[str, float], heldout_description: str, level: str
) -> dict[str, Any]:
    """Held-out figures before and after, with 95 % intervals, and what they cost; seconds over all resumptions."""
    figures: dict[str, Any] = {}
    for when, step in (("before", 0), ("after", config.steps)):
        metrics = folder.read_evaluation(step)
        samples = metrics["samples"]
        figures |= {
            f"heldout_pass1_{when}": metrics["pass@1"],
            f"heldout_pass1_interval_{when}": [metrics["pass@1/low"], metrics["pass@1/high"]],
            f"heldout_greedy_{when}": metrics["greedy"],
            f"heldout_pass{samples}_{when}": metrics[f"pass@{samples}"],
            "heldout_problems": metrics["problems"],
        }
    best = best_checkpoint(folder.checkpoints)
    figures |= {"best_step": best and best.step, "best_pass1": best and best.score}
    spent = {name: seconds.get(name, 0.0) for name in ("total", "sft", "rl", "evaluation")}
    return {
        "name": config.name,
        "seed": config.seed,
        "steps": config.steps,
        **figures,
        "seconds_total": spent["total"],
        "seconds_training": spent["sft"] + spent["rl"] + spent["evaluation"],
        "seconds_sft": spent["sft"],
        "seconds_rl": spent["rl"],
        "seconds_evaluation": spent["evaluation"],
        "heldout_description": heldout_description,
        "sandbox_level": level,
        "versions": versions(),
        "machine": machine(),
        "started": datetime.fromtimestamp(time.time() - spent["total"], UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["autoclave", *sys.argv[1:]]),
    }


def versions() -> dict[str, str]:
    """Versions of what decides results."""
    return {
        "autoclave": __version__,
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
