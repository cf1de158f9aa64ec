"""Does each of the nine algorithms learn? All from the same warm start, within the same budget, with two seeds.

    python benchmarks/algorithms.py [--quick] [--json FILE] [--steps N] [--seeds SEED ...] [--only NAME ...] [--out DIR]

The budget is that of the demo's recipe: its steps, problems and responses per step, and its optimizer. (DAPO samples
some groups again, and the table counts these.) Each algorithm has its own defaults, and nothing is tuned for any of
them; so this says that they work, not which is best.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import mean

from harness import finish, print_environment

from runs import Arm, FinishedRun, experiment_arguments, run_arms

NAMES = ("grpo", "grpo_plus", "dapo", "dr_grpo", "rloo", "reinforce_plus_plus", "gspo", "cispo", "ppo")
ARMS = tuple(Arm(name, (f"algorithm.name={name}",)) for name in NAMES)


def main() -> None:
    options = experiment_arguments((__doc__ or "").partition("\n")[0], ARMS)
    print_environment()
    runs = list(run_arms(ARMS, options))
    print("\n" + table(runs))
    finish("algorithms", figures_of(runs), options.json)


def table(runs: Sequence[FinishedRun]) -> str:
    """A line per run, in the form of `docs/results.md`."""
    lines = [
        "| algorithm | seed | pass@1 before | after | gain | greedy | responses sampled | learning |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in runs:
        found = run.summary
        before, after = (
            f"{found[f'heldout_pass1_{when}']:.3f} [{low:.3f}, {high:.3f}]"
            for when in ("before", "after")
            for low, high in (found[f"heldout_pass1_interval_{when}"],)
        )
        greedy = f"{found['heldout_greedy_before']:.3f} to {found['heldout_greedy_after']:.3f}"
        lines.append(
            f"| `{run.arm}` | {run.seed} | {before} | {after} | {run.gain:+.3f} | {greedy} "
            f"| {run.num_sampled} | {found['seconds_rl']:.0f} s |"
        )
    return "\n".join(lines)


def figures_of(runs: Sequence[FinishedRun]) -> dict[str, float | int]:
    """The figures of each run, the mean gain of each algorithm, and how many algorithms rise with every seed."""
    figures: dict[str, float | int] = {}
    num_rising = 0
    for name, of_arm in groupby(runs, key=lambda run: run.arm):
        own = list(of_arm)
        for run in own:
            low, high = run.summary["heldout_pass1_interval_after"]
            figures |= {
                f"{name}_pass1_before_seed_{run.seed}": run.summary["heldout_pass1_before"],
                f"{name}_pass1_after_seed_{run.seed}": run.summary["heldout_pass1_after"],
                f"{name}_pass1_after_low_seed_{run.seed}": low,
                f"{name}_pass1_after_high_seed_{run.seed}": high,
            }
        figures[f"{name}_gain"] = mean(run.gain for run in own)
        num_rising += all(run.rises for run in own)
    return figures | {"algorithms": len({run.arm for run in runs}), "algorithms_rising": num_rising}


if __name__ == "__main__":
    main()
