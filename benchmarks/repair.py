"""Does the policy learn to read? The recipe `repair`, against its own first turn and against shuffled feedback.

The control starts from the same warm start, asks the same problems and has as many attempts; but what it reads after a
failure, in training and evaluation, is what another attempt of equal status was told. What it gains from its first to
its last turn, it gains by trying again.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from harness import sized

from autoclave.compose import warm_start
from autoclave.compose.evaluation import evaluate
from autoclave.compose.training import train
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import Observation, TaskItem
from autoclave.core.futures import chained
from autoclave.evaluation.intervals import bootstrap_interval, share_interval
from autoclave.tasks import CodeGeneration
from runs import QUICK, TINY

RECIPE = Path(__file__).parent.parent / "recipes" / "repair.yaml"
SMALLEST = (*TINY, "task.turns=2", "sampler.max_new_tokens=2", "evaluation.max_new_tokens=2")
KEPT = 256
"""Attempts of each status whose feedback is dealt again."""

Rates = dict[str, float]
"""Share of accepted responses of each problem."""


def repair_figures(options: argparse.Namespace) -> dict[str, Any]:
    """Pass@1 on held-out problems, the mean of all seeds, with 95 % intervals over problems."""
    found: dict[str, list[Rates]] = defaultdict(list)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for seed in options.seeds or sized(options, (0, 1), (0,), (0,)):
            settings = (*sized(options, (), (*QUICK, "sft.repair_share=0.3"), SMALLEST), f"seed={seed}")
            config = load(TrainConfig, RECIPE, [parse_override(text) for text in settings]).config
            runs = Path(options.runs or temporary)
            for name in ("read", "control"):  # the first makes the warm start of both
                folder = runs / f"{name}-{seed}"
                print(f"\nseed {seed}, feedback: {'shuffled' if name == 'control' else 'as it is'}", flush=True)
                with nullcontext() if name == "read" else shuffled_feedback():
                    if not (folder / "summary.json").exists():
                        train(config, folder)
                found[name].append(rates_in(folder / "evaluations" / f"step-{config.steps:06d}.json"))
                found[f"{name}_first"].append(rates(one_turn(config), folder / "model"))
            found["before"].append(rates_in(runs / f"read-{seed}" / "evaluations" / "step-000000.json"))
            with shuffled_feedback():
                found["misled"].append(rates(config, runs / f"read-{seed}" / "model"))
            seconds = json.loads((runs / f"read-{seed}" / "summary.json").read_text("utf-8"))["seconds_total"]
            figures["repair_run_s"] = max(seconds, figures.get("repair_run_s", 0.0))
    means = {name: mean_rates(each) for name, each in found.items()}
    for key, name in (
        ("repair_before", "before"),
        ("repair_first_turn", "read_first"),
        ("repair_final_turn", "read"),
        ("repair_control_first_turn", "control_first"),
        ("repair_control_final_turn", "control"),
    ):
        interval = share_interval(list(means[name].values()))
        figures |= {key: mean(means[name]), f"{key}_low": interval.lower, f"{key}_high": interval.upper}
    for key, after, before in (
        ("repair_gain_final_turn", "read", "read_first"),
        ("repair_gain_control", "control", "control_first"),
        ("repair_gain_misled", "misled", "read_first"),
        ("repair_gain_training", "read", "before"),
    ):
        gains = {problem: rate - means[before][problem] for problem, rate in means[after].items()}
        interval = bootstrap_interval(list(gains.values()))
        each = [mean(one) - mean(other) for one, other in zip(found[after], found[before], strict=True)]
        figures |= {key: mean(gains), f"{key}_low": interval.lower, f"{key}_high": interval.upper}
        figures |= {f"{key}_lowest_seed": min(each)}
    return figures


def one_turn(config: TrainConfig) -> TrainConfig:
    """The same settings with one attempt at each problem."""
    return config.model_copy(update={"task": config.task.model_copy(update={"turns": 1, "public_tests": 1})})


def rates(config: TrainConfig, model: Path) -> Rates:
    """Evaluate the policy in a folder on all held-out problems."""
    with tempfile.TemporaryDirectory() as folder:
        evaluate(config, model, problems=None, samples=None, out=Path(folder) / "evaluation.json")
        return rates_in(Path(folder) / "evaluation.json")


def rates_in(evaluation: Path) -> Rates:
    """Read an evaluation."""
    problems = json.loads(evaluation.read_text("utf-8"))["problems"]
    return {problem["id"]: problem["correct"] / problem["judged"] for problem in problems if problem["judged"]}


def mean_rates(of_seeds: list[Rates]) -> Rates:
    """The mean over the seeds for each problem that all of them have."""
    ids = set.intersection(*(set(each) for each in of_seeds))
    return {id: mean({str(n): each[id] for n, each in enumerate(of_seeds)}) for id in sorted(ids)}


def mean(rates: Mapping[str, float]) -> float:
    return float(np.mean(list(rates.values())))


@contextmanager
def shuffled_feedback() -> Generator[None]:
    """Let the policy read, after a failed turn, what was told about an attempt of equal status at another problem."""
    observation, dealer = CodeGeneration.observation, Dealer()

    def dealt(task: CodeGeneration, item: TaskItem, response: str) -> Future[Observation]:
        return chained(observation(task, item, response), lambda told: dealer.deal(item.id, told))

    def demonstrated(*given: Any) -> Any:  # the warm start is that of both runs
        with patch.object(CodeGeneration, "observation", observation):
            return demonstrations(*given)

    demonstrations = warm_start.repair_demonstrations
    with (
        patch.object(CodeGeneration, "observation", dealt),
        patch.object(warm_start, "repair_demonstrations", demonstrated),
    ):
        yield


class Dealer:
    """Deals feedback of earlier attempts, by status and message, which are the first line of it."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[str, Observation]]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._rng, self._lock = random.Random(0), threading.Lock()

    def deal(self, problem: str, told: Observation) -> Observation:
        """Return what is read in place of `told`: of an attempt at another problem, its first line if there is none."""
        if told.is_end:
            return told
        status = told.messages[0]["content"].partition("\n")[0]
        with self._lock:
            others = [observation for id, observation in self._kept[status] if id != problem]
            self._kept[status].append((problem, told))
            return self._rng.choice(others) if others else Observation(({"role": "user", "content": status},))
