"""The figures of a finished run: `summary.json`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from autoclave.config import TrainConfig
from autoclave.training.environment import machine, versions
from autoclave.training.run_folder import RunFolder


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
