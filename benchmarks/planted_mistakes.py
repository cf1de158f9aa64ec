"""Which mistakes does the health of a run report, and when? Each is planted into a run from one warm start.

    python benchmarks/planted_mistakes.py [--quick] [--json FILE] [--seeds SEED ...] [--only NAME ...] [--out DIR]

Mistakes of settings are settings; those of code replace a choice of the algorithm, or what a batch earned before it is
learned from. A mistake is harmless if held-out pass@1 ends within the interval of healthy runs. Healthy runs of the
other algorithms stand beside them. Health only alerts here, but that it ends a run in which nothing can be trained.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from harness import argument_parser, finish, print_environment, sized
from torch import Tensor

import autoclave.compose.training as composed
from autoclave.algorithms import Algorithm, Column, ColumnFunction, Equation, LossTerm, TokenLoss, clipped_policy_loss
from autoclave.algorithms.choices import CHOICES
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import FaultError, FinishReason, Group, IncompleteError, Reward, Rollout, Status, Verdict
from autoclave.runs.reader import Run, read_run
from autoclave.training.learned import ItemSource
from autoclave.training.metrics import ThreeStages
from autoclave.training.schedules import Iteration, RunProgress, Schedule
from runs import RECIPE, TINY, folder_of_runs

SETTINGS = (
    "sft.steps=800",
    "sft.batch_size=48",
    "steps=16",
    "problems_per_step=16",
    "problems.heldout=200",
    "evaluation.every=0",
    "evaluation.final_samples=2",
    "optimizer.decay=none",
    "model.threads=1",
)
QUICK = ("sft.steps=60", "sft.demonstrations=2000", "steps=3", "problems_per_step=4", "sampler.max_new_tokens=24")
RATE = 4e-4
RolloutChange = Callable[[Rollout], Rollout]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One way to spoil a run."""

    name: str
    settings: tuple[str, ...] = ()
    algorithm: Callable[[Algorithm], Algorithm] | None = None
    rollout: RolloutChange | None = None
    """Changes what is learned from."""
    temperature: float | None = None
    """At which the sampler samples, in place of the trainer's."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one run."""

    name: str
    seed: int
    alerts: tuple[str, ...]
    """`rule (step)`, in order."""
    ended: str
    pass_at_1: float | None
    """Held out, at the end; None if the run was ended early."""
    rewards: tuple[float | None, ...]


# --- Mistakes ------------------------------------------------------------------------------------------------------


def flipped(algorithm: Algorithm) -> Algorithm:
    def loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor) -> TokenLoss:
        found = clipped_policy_loss(log_probs, old_log_probs, advantages, clip_lower=0.2, clip_upper=0.28)
        return TokenLoss(-found.loss, found.means, found.maxima)

    return replace(algorithm, terms=(LossTerm("policy", ColumnFunction(loss), skip_if_zero=Column.ADVANTAGES),))


def _with_advantages(function: Callable[..., Tensor], algorithm: Algorithm) -> Algorithm:
    return replace(algorithm, advantage=(*algorithm.advantage, Equation(Column.ADVANTAGES, ColumnFunction(function))))


def not_normalised(rewards: Tensor, row: Tensor) -> Tensor:
    return rewards.nan_to_num()[row].float()


def shuffled(advantages: Tensor, row: Tensor) -> Tensor:
    of_rows = torch.zeros(int(row.amax()) + 1).index_copy(0, row, advantages.float())
    return of_rows[torch.randperm(len(of_rows), generator=torch.Generator().manual_seed(0))][row].to(advantages.dtype)


def trained_inverted(trains: Tensor, rewards: Tensor) -> Tensor:
    return trains & (rewards == 0)


def wrong_mask(algorithm: Algorithm) -> Algorithm:
    """Only failures train."""
    first, *others = algorithm.advantage
    weighting = algorithm.weighting

    def weights(row: Tensor, trains: Tensor, rewards: Tensor) -> Tensor:
        return weighting({Column.ROW: row, Column.IN_LOSS: trained_inverted(trains, rewards)})

    return replace(algorithm, advantage=(first, *others), weighting=ColumnFunction(weights))


def rewarded(value: Callable[[float], float], rollout: Rollout) -> Rollout:
    earned = rollout.reward
    return rollout if earned.value is None else replace(rollout, reward=replace(earned, value=value(earned.value)))


def judge_off(rollout: Rollout) -> Rollout:
    """Everything is accepted."""
    return replace(rollout, reward=Reward(1.0, "accepted", {}, Verdict.of(Status.ACCEPTED)))


def repeats(rollout: Rollout) -> Rollout:
    """The sampler gives one token until the limit."""
    length, made = rollout.length_limit, rollout.last
    tokens = np.full(length, made.tokens[0], dtype=np.int64)
    version = made.policy_versions[-1][0]
    broken = replace(
        made,
        tokens=tokens,
        log_probs=np.zeros(length, np.float32),
        finish_reason=FinishReason.LENGTH,
        policy_versions=((version, 0, length),),
    )
    return replace(rollout, turns=(broken,), reward=Reward(0.0, "wrong_answer", {}, Verdict.of(Status.WRONG_ANSWER)))


def scaled_log_probs(rollout: Rollout) -> Rollout:
    return replace(rollout, turns=(replace(rollout.last, log_probs=1.3 * rollout.last.log_probs),))


HEALTHY = "healthy"
MISTAKES = (
    Mistake(HEALTHY),  # GRPO+, as all the mistakes
    Mistake("rate x 100", (f"optimizer.learning_rate={100 * RATE}",)),
    Mistake("rate x 30", (f"optimizer.learning_rate={30 * RATE}",)),
    Mistake("rate x 10", (f"optimizer.learning_rate={10 * RATE}",)),
    Mistake("rate / 1000", (f"optimizer.learning_rate={RATE / 1000}",)),
    Mistake("bfloat16 weights, rate / 400", ("model.dtype=bfloat16", "optimizer.learning_rate=1e-6")),
    Mistake("sign of the loss flipped", algorithm=flipped),
    Mistake("advantage not normalised", algorithm=partial(_with_advantages, not_normalised)),
    Mistake("advantages shuffled", algorithm=partial(_with_advantages, shuffled)),
    Mistake("wrong mask: only failures train", algorithm=wrong_mask),
    Mistake("reward constant 0", rollout=partial(rewarded, lambda value: 0.0)),
    Mistake("reward constant 1", rollout=partial(rewarded, lambda value: 1.0)),
    Mistake("reward inverted", rollout=partial(rewarded, lambda value: 1 - value)),
    Mistake("judge off: all accepted", rollout=judge_off),
    Mistake("KL coefficient x 100", ("algorithm.kl_coefficient=4.0",)),
    Mistake("dead sampler: one token repeated", rollout=repeats),
    Mistake("sampler log-probs x 1.3", rollout=scaled_log_probs),
    Mistake("sampler at temperature 2", temperature=2.0),
    Mistake("gradient clip off", ("optimizer.gradient_clip=1e9",)),
)
OTHER_ALGORITHMS = tuple(
    Mistake(f"{HEALTHY}, {name}", (f"algorithm.name={name}",)) for name in CHOICES if name != "grpo_plus"
)
RUNS = (*MISTAKES, *OTHER_ALGORITHMS)
ONE_OF_EACH = ("rate x 100", "sign of the loss flipped", "reward inverted", "sampler at temperature 2")
"""A mistake of each kind: of settings, of the algorithm, of rollouts, of the sampler."""


# --- Runs ----------------------------------------------------------------------------------------------------------


def main() -> None:
    names = [run.name for run in RUNS]
    parser = argument_parser((__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="of the healthy runs; 0, 1, 2 by default")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the runs here, and skip those that are here")
    options = parser.parse_args()
    seeds = options.seeds or ([0] if options.quick else [0, 1, 2])
    only = options.only or sized(options, names, names, ONE_OF_EACH)
    fewer = sized(options, (), QUICK, TINY)
    print_environment()
    rows: list[Row] = []
    with folder_of_runs(options.out) as folder:
        first = _row(MISTAKES[0], seeds[0], folder, fewer)
        start = (*fewer, "sft.steps=0", f"model.path={_folder_of(first, folder) / 'start'}")
        for mistake in (run for run in RUNS if run.name in only):
            for seed in seeds if mistake.name == HEALTHY else seeds[:1]:
                is_first = (mistake.name, seed) == (first.name, first.seed)
                rows.append(first if is_first else _row(mistake, seed, folder, start))
                print(f"{rows[-1].name}, seed {seed}: {', '.join(rows[-1].alerts) or 'no alert'}", flush=True)
    interval = healthy_interval(rows)
    print("\n" + table(rows, interval))
    finish("planted_mistakes", figures_of(rows, interval), options.json)


def _folder_of(run: Row | Mistake, folder: Path, seed: int = 0) -> Path:
    return (folder / f"{re.sub(r'[^a-z0-9]+', '-', run.name.lower())}-seed-{getattr(run, 'seed', seed)}").absolute()


def _row(mistake: Mistake, seed: int, folder: Path, start: Sequence[str]) -> Row:
    changes = (*SETTINGS, *start, f"seed={seed}", *mistake.settings)
    config = load(TrainConfig, RECIPE, [parse_override(text) for text in changes]).config
    out = _folder_of(mistake, folder, seed)
    ended = out.with_suffix(".json")
    if not ended.is_file():
        print(f"\n{mistake.name}, seed {seed}", flush=True)
        how = "at its last step"
        try:
            with planted(mistake, config) as schedule:
                composed.train(config, out, schedule=schedule)
        except (IncompleteError, FaultError) as error:
            if "--resume" in str(error):  # Ctrl-C
                raise
            how = f"{type(error).__name__}: {error}"
        ended.write_text(json.dumps(how), encoding="utf-8")
    return row_of(mistake.name, seed, read_run(out), json.loads(ended.read_text(encoding="utf-8")))


def row_of(name: str, seed: int, run: Run, ended: str) -> Row:
    """The row of a run that has ended."""
    alerts = tuple(f"{event['name']} ({event['step']:.0f})" for event in run.events if event["kind"] == "alert")
    after: Any = (run.summary or {}).get("heldout_pass1_after")
    return Row(name, seed, alerts, ended, after, tuple(row.get("reward/mean") for row in run.train))


@contextmanager
def planted(mistake: Mistake, config: TrainConfig) -> Generator[Schedule | None]:
    """A schedule with the mistake; within the block the choices of the algorithm have it."""
    name = config.algorithm.name
    build, parameters = CHOICES[name], composed.sampling_parameters
    try:
        if mistake.algorithm:
            change = mistake.algorithm
            CHOICES[name] = lambda settings: change(build(settings))
        if mistake.temperature:
            composed.sampling_parameters = lambda settings: replace(
                parameters(settings), temperature=mistake.temperature
            )
        yield partial(synchronous_with, mistake.rollout) if mistake.rollout else None
    finally:
        CHOICES[name], composed.sampling_parameters = build, parameters


def synchronous_with(
    change: RolloutChange, stages: ThreeStages, items: ItemSource, run_progress: RunProgress
) -> Iterator[Iteration]:
    """The synchronous schedule, but each rollout is changed before it is learned from."""
    for iteration in range(run_progress.done, run_progress.total):
        batch = stages.collect(items.at(iteration), iteration)
        groups = [Group(group.item, tuple(map(change, group.rollouts))) for group in batch.result()]
        yield Iteration(stages.learn(groups), batch.times, stages.publish(iteration + 1))


# --- The table -----------------------------------------------------------------------------------------------------


def healthy_interval(rows: Sequence[Row]) -> tuple[float, float]:
    """Two standard deviations around the mean pass@1 of the healthy runs, of one run its value; NaN without any."""
    found = [row.pass_at_1 for row in rows if row.name == HEALTHY and row.pass_at_1 is not None]
    if not found:
        return float("nan"), float("nan")
    spread = 2 * stdev(found) if len(found) > 1 else 0.0
    return mean(found) - spread, mean(found) + spread


def is_harmless(row: Row, interval: tuple[float, float]) -> bool:
    """The run ends as well as a healthy one."""
    return row.pass_at_1 is not None and row.pass_at_1 >= interval[0]


def table(rows: Sequence[Row], interval: tuple[float, float]) -> str:
    """A line per run, in the form of `docs/results.md`."""
    lines = [
        f"Held-out pass@1 of healthy runs: {interval[0]:.3f} to {interval[1]:.3f}.\n",
        "| mistake | seed | alerts (step) | held-out pass@1 | harmless | ended |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        alerts = ", ".join(f"`{alert.partition(' ')[0]}` {alert.partition(' ')[2]}" for alert in row.alerts) or "none"
        passes = "-" if row.pass_at_1 is None else f"{row.pass_at_1:.3f}"
        harmless = "yes" if is_harmless(row, interval) else "no"
        ended = row.ended.partition("; rule")[0]
        lines.append(f"| {row.name} | {row.seed} | {alerts} | {passes} | {harmless} | {ended} |")
    return "\n".join(lines)


def figures_of(rows: Sequence[Row], interval: tuple[float, float]) -> dict[str, float | int | str]:
    """The alerts of each run, and how many harmful mistakes were reported, and how many healthy runs were."""
    planted_rows = [row for row in rows if not row.name.startswith(HEALTHY)]
    harmful = [row for row in planted_rows if not is_harmless(row, interval)]
    alerts = {f"{row.name} seed {row.seed}": ", ".join(row.alerts) or "none" for row in rows}
    return alerts | {
        "healthy_low": interval[0],
        "healthy_high": interval[1],
        "mistakes": len(planted_rows),
        "harmful": len(harmful),
        "harmful_reported": sum(bool(row.alerts) or "Fault" in row.ended for row in harmful),
        "healthy_with_alerts": sum(bool(row.alerts) for row in rows if row.name.startswith(HEALTHY)),
    }


if __name__ == "__main__":
    main()
