"""Training runs that differ in a few settings: the arms of an experiment, each with the same seeds.

The runs of one seed begin with the same policy (warm starts are cached by what decides them) and ask the same problems
in the same order. A finished run is a folder with a summary; with `--out` it is not run again, and one that was
interrupted goes on from its newest checkpoint.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from harness import argument_parser, sized

from autoclave.compose.training import train
from autoclave.config import TrainConfig, dump, load, parse_override
from autoclave.runs.reader import read_run
from autoclave.training.schedules import Schedule

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.yaml"
QUICK = (
    "sft.steps=60",
    "sft.demonstrations=3000",
    "problems.heldout=200",
    "steps=2",
    "problems_per_step=8",
    "sampler.max_new_tokens=32",
    "evaluation.final_samples=1",
)
TINY = (
    "problems.train=64",
    "problems.heldout=200",  # no fewer are valid
    "sft.steps=1",
    "sft.demonstrations=64",
    "steps=1",
    "problems_per_step=2",
    "group_size=2",
    "sampler.max_new_tokens=16",
    "evaluation.every=0",
    "evaluation.final_samples=1",
    "evaluation.max_new_tokens=16",
    "model.threads=1",
)
"""A training run of a second or two that passes through everything."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to train."""

    name: str
    settings: tuple[str, ...]
    """On top of the recipe, as on the command line: `path=value`."""
    schedule: Schedule | None = None
    """In place of the configured one."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a run left behind."""

    arm: str
    config: TrainConfig
    summary: Mapping[str, Any]
    """`summary.json`."""
    steps: Sequence[Mapping[str, Any]]
    """The metrics of each step."""
    evaluations: Sequence[Mapping[str, Any]]
    """Those of each evaluation."""
    entropies: Sequence[float]
    """Of each step, nats per token, as `sampled_entropy` estimates it."""
    task_evaluations: Mapping[str, Sequence[Mapping[str, Any]]] = field(
        default_factory=dict[str, Sequence[Mapping[str, Any]]]
    )
    """As `evaluations`, on held-out items of other tasks, by their names."""

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def gain(self) -> float:
        """Held-out pass@1 after less before."""
        return self.summary["heldout_pass1_after"] - self.summary["heldout_pass1_before"]

    @property
    def rises(self) -> bool:
        """The interval after lies above that before."""
        return self.summary["heldout_pass1_interval_after"][0] > self.summary["heldout_pass1_interval_before"][1]

    @property
    def num_sampled(self) -> int:
        """Responses that were sampled, also those of groups that were then replaced (dynamic sampling)."""
        config = self.config
        kept = config.problems_per_step * config.group_size * config.steps
        return kept + config.group_size * int(sum(row["groups/resampled"] for row in self.steps))


def experiment_arguments(description: str, arms: Sequence[Arm], tiny: str = "") -> argparse.Namespace:
    """The arguments of every experiment; `only` holds the names of the arms to run.

    With --tiny that is the arm `tiny`, or the last one.
    """
    names = [arm.name for arm in arms]
    parser = argument_parser(description)
    parser.add_argument("--steps", type=int, metavar="N", help="steps of each run, in place of the recipe's")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="seeds of each arm; 0 and 1 by default")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the runs here, and skip those that are here")
    options = parser.parse_args()
    options.seeds = options.seeds or ([0] if options.quick else [0, 1])
    if options.tiny and options.only == names:
        options.only = [tiny or names[-1]]
    return options


def run_arms(
    arms: Sequence[Arm],
    options: argparse.Namespace,
    *,
    recipe: Path = RECIPE,
    quick: Sequence[str] = QUICK,
    tiny: Sequence[str] = TINY,
) -> Generator[FinishedRun]:
    """The runs of the arms that are asked for, each as it is finished; `quick` is set on top of `recipe` by --quick,
    and `tiny` by --tiny.
    """
    sizes = sized(options, (), quick, tiny)
    with folder_of_runs(options.out) as folder:
        for arm in (arm for arm in arms if arm.name in options.only):
            for seed in options.seeds:
                yield _run(arm, _settings(arm, seed, options, recipe, sizes), folder / f"{arm.name}-seed-{seed}")


def _settings(arm: Arm, seed: int, options: argparse.Namespace, recipe: Path, sizes: Sequence[str]) -> TrainConfig:
    steps = () if options.steps is None else (f"steps={options.steps}",)
    changes = (*sizes, *steps, f"name={arm.name}", f"seed={seed}", *arm.settings)
    return load(TrainConfig, recipe, [parse_override(text) for text in changes]).config


def _run(arm: Arm, config: TrainConfig, folder: Path) -> FinishedRun:
    written = folder / "config.yaml"
    is_begun = written.is_file()
    if is_begun and written.read_text(encoding="utf-8") != dump(config):
        raise SystemExit(f"{folder} is of a run with other settings ({written}); give another --out, or remove it")
    if not (folder / "summary.json").is_file():
        print(f"\n{arm.name}, seed {config.seed}", flush=True)
        train(config, folder, resume=is_begun, schedule=arm.schedule)
    finished = read_run(folder)
    entropies = [sampled_entropy(path) for path in finished.rollout_files]
    return FinishedRun(
        arm.name,
        config,
        finished.summary or {},
        finished.train,
        finished.evaluations,
        entropies,
        finished.task_evaluations,
    )


def sampled_entropy(rollouts: Path) -> float:
    """Entropy of the policy in a step, nats per token: the mean of -log p over the tokens that it sampled.

    The metric `entropy` is exact but of the tokens that were computed for the loss, which are others in each algorithm.
    """
    log_probs: list[float] = []
    with gzip.open(rollouts, "rt", encoding="utf-8") as file:
        for line in file:
            log_probs += json.loads(line)["sampler_log_probs"]
    return -mean(log_probs)


@contextmanager
def folder_of_runs(given: Path | None) -> Generator[Path]:
    """The folder that keeps runs; without one a folder that is removed."""
    if given:
        yield given
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
