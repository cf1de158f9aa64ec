"""Every schedule with the embedded policy and a real judge: actor and sampler in processes of their own, a thread each.

The rates at which both work alone are measured in the same run: seconds per iteration are told as multiples of the
larger one of sampling and learning, below which no schedule can come. Not a script; `pipelines.py --real` calls it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from harness import sized

from autoclave.compose.training import train
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core.timeline import Role
from autoclave.runs.timeline import read_steps, role_times, spans_during, timeline_steps
from runs import TINY

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.yaml"
SETTINGS = (
    "model.threads=1",
    "pools.main.executor=spawn",
    "pools.samplers.executor=spawn",
    "workers.sampler=samplers",
    "evaluation.every=0",
    "evaluation.final_samples=1",
    "problems.heldout=200",
    "checkpoint.every=1000",
    "sft.steps=300",
    "sft.demonstrations=6000",
)
QUICK = ("problems_per_step=16", "steps=4", "sft.steps=60", "sft.demonstrations=3000")
WHOLE = ("steps=10",)
SCHEDULES: Mapping[str, Sequence[str]] = {
    "synchronous": ("schedule.name=synchronous",),
    "minibatch_pipeline": ("schedule.name=minibatch_pipeline",),
    "one_off_pipeline": ("schedule.name=one_off_pipeline",),
    "asynchronous_2": ("schedule.name=asynchronous", "schedule.max_staleness=2"),
}


def measure_real(options: argparse.Namespace) -> dict[str, float]:
    """Seconds per iteration over the bound, and over those of the synchronous schedule, by schedule."""
    seconds: dict[str, float] = {}
    busy: dict[str, dict[Role, float]] = {}
    with TemporaryDirectory() as parent:
        for name, settings in SCHEDULES.items():
            words = (*SETTINGS, *sized(options, WHOLE, QUICK, TINY), *settings, f"name={name}")
            config = load(TrainConfig, RECIPE, [parse_override(word) for word in words]).config
            folder = Path(parent) / name
            train(config, folder, say=lambda line: None)
            seconds[name], busy[name] = step_s(folder), busy_s(folder)
    alone = busy["synchronous"]
    bound = max(alone[Role.SAMPLER], alone[Role.TRAINER])
    print(f"\nsynchronous: learning takes {alone[Role.TRAINER] / alone[Role.SAMPLER]:.2f} times as long as sampling")
    print(f"{'schedule':<22}{'over the bound':>16}{'speed-up':>12}{'sampler took':>14}{'trainer took':>14}")
    for name, taken in seconds.items():
        slower = [busy[name][role] / alone[role] for role in (Role.SAMPLER, Role.TRAINER)]
        row = f"{name:<22}{taken / bound:>16.3f}{seconds['synchronous'] / taken:>12.3f}"
        print(row + "".join(f"{ratio:>13.2f}x" for ratio in slower))
    figures = {f"{name}_over_bound": taken / bound for name, taken in seconds.items()}
    return figures | {
        f"{name}_speedup": seconds["synchronous"] / taken for name, taken in seconds.items() if name != "synchronous"
    }


def step_s(run: Path) -> float:
    """The median seconds of a step, without the first two: one warms up, and one fills the pipeline."""
    lines = map(json.loads, filter(None, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()))
    found = [line["time/step_s"] for line in lines if line["kind"] == "train"]
    return median(found[2:-1] or found)


def busy_s(run: Path) -> dict[Role, float]:
    """The median seconds of a step for which each role worked."""
    steps = [step for step in timeline_steps(run) if step]
    times = [role_times(spans_during(run, step), step.window) for step in read_steps(run, steps[2:-1] or steps)]
    return {role: median(each.busy_s[role] for each in times) for role in Role}
