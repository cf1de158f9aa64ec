"""What each of the four changes of GRPO+ does: it whole, and with one change after the other taken back.

    python benchmarks/ablation.py [--quick] [--json FILE] [--steps N] [--seeds SEED ...] [--only NAME ...] [--out DIR]

All runs have the demo's recipe. Curves of reward, entropy and length are written with `--json` (under `curves`), and
with `--out` also to `curves.csv` there. The table has their means over fifths of the run.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

from harness import finish, print_environment

from runs import Arm, FinishedRun, experiment_arguments, run_arms

ARMS = (
    Arm("grpo_plus", ()),
    Arm("with_entropy_bonus", ("algorithm.entropy_coefficient=0.001",)),
    Arm("with_kl", ("algorithm.kl_coefficient=0.04",)),
    Arm("without_overlong_filter", ("algorithm.mask_overlong=false",)),
    Arm("without_clip_higher", ("algorithm.clip_upper=0.2",)),
)
CURVES = ("reward", "entropy", "length")
NUM_PARTS = 5


def main() -> None:
    options = experiment_arguments((__doc__ or "").partition("\n")[0], ARMS)
    print_environment()
    runs = list(run_arms(ARMS, options))
    print("\n" + table(runs))
    curves = {f"{run.arm}_seed_{run.seed}": curves_of(run) for run in runs}
    if options.out:
        write_curves(runs, options.out / "curves.csv")
    finish("ablation", figures_of(runs), options.json, curves=curves)


def curves_of(run: FinishedRun) -> dict[str, list[float | None]]:
    """Mean reward, entropy in nats per token, and mean length in tokens, of each step."""
    return {
        "reward": [row["reward/mean"] for row in run.steps],
        "entropy": list(run.entropies),
        "length": [row["response_length/mean"] for row in run.steps],
    }


def table(runs: Sequence[FinishedRun]) -> str:
    """For each curve a line per run: held-out figures of the run, and the means of the curve over fifths of it."""
    parts = [f"{number}/{NUM_PARTS}" for number in range(1, NUM_PARTS + 1)]
    heads = ["run", "seed", "pass@1 before", "after", "curve", *parts]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for run in runs:
        before, after = (run.summary[f"heldout_pass1_{when}"] for when in ("before", "after"))
        for name, curve in curves_of(run).items():
            values = " | ".join("" if value is None else f"{value:.3g}" for value in means_of_parts(curve))
            lines.append(f"| {run.arm} | {run.seed} | {before:.3f} | {after:.3f} | {name} | {values} |")
    return "\n".join(lines)


def means_of_parts(curve: Sequence[float | None]) -> list[float | None]:
    """The means of the parts of a curve, as equal as steps allow; None for a part without a value."""
    bounds = pairwise(round(len(curve) * number / NUM_PARTS) for number in range(NUM_PARTS + 1))
    parts = [[value for value in curve[start:stop] if value is not None] for start, stop in bounds]
    return [mean(part) if part else None for part in parts]


def figures_of(runs: Sequence[FinishedRun]) -> dict[str, float | None]:
    """The held-out gain of each run, and the last part of its curves."""
    figures: dict[str, float | None] = {}
    for run in runs:
        figures[f"{run.arm}_gain_seed_{run.seed}"] = run.gain
        for name, curve in curves_of(run).items():
            figures[f"{run.arm}_{name}_end_seed_{run.seed}"] = means_of_parts(curve)[-1]
    return figures


def write_curves(runs: Sequence[FinishedRun], path: Path) -> None:
    """One row per run and step."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "seed", "step", *CURVES])
        for run in runs:
            rows = zip(run.steps, *curves_of(run).values(), strict=True)
            writer.writerows([run.arm, run.seed, metrics["step"], *values] for metrics, *values in rows)


if __name__ == "__main__":
    main()
