"""What stages of length do: two of them with and without overlong filtering, beside the long window all along.

    python benchmarks/length_schedule.py [--quick] [--json FILE] [--steps N] [--seeds SEED ...] [--only NAME]

The policy learns arithmetic in several steps. Its warm start knows two ways to answer: to write out every step, which
a short window cuts where there are many, and the answer alone, which is mostly wrong. The first stage lasts half of the
run. Held-out problems are always asked with twice the longest window of training.

`lengthening_wallclock_ratio` is the time that the stages with filtering take to a held-out reward over that of the long
window, the reward being the lower of the two at the end; `lengthening_token_ratio` is the same in sampled tokens, which
other load on the machine does not change. The rLLM thesis (introduction) reports 0.79 for 16k -> 32k -> 64k.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from ablation import means_of_parts
from harness import finish, print_environment, sized

from runs import Arm, FinishedRun, experiment_arguments, run_arms

RECIPE = Path(__file__).parent.parent / "recipes" / "length-schedule.yaml"
SHORT, LONG = 32, 64
STEPS = 40
SMOOTHED = 3
"""Evaluations whose mean is one point of a held-out curve."""
QUICK = (
    "sft.steps=60",
    "sft.demonstrations=3000",
    "problems.heldout=200",
    "steps=2",
    "problems_per_step=8",
    "evaluation.final_samples=1",
)
NAMES = ("fixed", "stages", "stages_without_filter")


def arms(steps: int) -> tuple[Arm, ...]:
    """The three ways, in runs of so many steps."""
    stages = f"stages: [{{max_new_tokens: {SHORT}}}, {{max_new_tokens: {LONG}}}]"
    advance = f"advance: {{name: steps, steps: [{max(1, steps // 2)}]}}"
    staged = f"length_schedule={{{stages}, {advance}}}"
    both = f"sampler.max_new_tokens={LONG}", "evaluation.every=5"
    return (
        Arm("fixed", ("length_schedule=null", *both)),
        Arm("stages", (staged, *both)),
        Arm("stages_without_filter", (staged, "algorithm.mask_overlong=false", *both)),
    )


def main() -> None:
    named = [Arm(name, ()) for name in NAMES]
    options = experiment_arguments((__doc__ or "").partition("\n")[0], named)
    print_environment()
    options.steps = num_steps(options)
    runs = list(run_arms(arms(options.steps), options, recipe=RECIPE, quick=QUICK))
    print("\n" + table(runs))
    curves = {f"{run.arm}_seed_{run.seed}": curves_of(run) for run in runs}
    finish("length_schedule", figures_of(runs), options.json, curves=curves)


def num_steps(options: argparse.Namespace) -> int:
    """Steps of each run."""
    return options.steps or sized(options, STEPS, 2, 2)


def curves_of(run: FinishedRun) -> dict[str, list[Any]]:
    """Of each step reward, length, share cut, limit, seconds; of each evaluation step, pass@1, length, share cut."""
    of_steps = {
        "reward": "reward/mean",
        "length": "response_length/mean",
        "truncated": "truncated_share",
        "limit": "length_schedule/max_new_tokens",
        "seconds": "time/step_s",
        "sampled_tokens": "sampled_tokens",
    }
    of_evaluations = {"step": "step", "pass@1": "pass@1", "length": "response_length/mean", "cut": "truncated_share"}
    return {name: [row.get(key) for row in run.steps] for name, key in of_steps.items()} | {
        f"heldout_{name}": [row[key] for row in run.evaluations] for name, key in of_evaluations.items()
    }


def table(runs: Sequence[FinishedRun]) -> str:
    """A line per run: held-out figures before and after, by number of operations, and reward and length by fifths."""
    heads = ["run", "seed", "pass@1 before", "after", "held-out length before", "after", "cut", "by operations"]
    heads += ["reward by fifths", "length by fifths", "minutes", "tokens (M)"]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for run in runs:
        first, last, curves = run.evaluations[0], run.evaluations[-1], curves_of(run)
        families = " ".join(f"{figures['pass@1']:.2f}" for _, figures in sorted(last["families"].items()))
        cells = [run.arm, str(run.seed), f"{first['pass@1']:.3f}", f"{last['pass@1']:.3f}"]
        cells += [f"{row['response_length/mean']:.1f}" for row in (first, last)]
        cells += [f"{last['truncated_share']:.1%}", families]
        cells += [
            " ".join(f"{value or 0:.3g}" for value in means_of_parts(curves[name])) for name in ("reward", "length")
        ]
        cells += [f"{sum(curves['seconds']) / 60:.1f}", f"{sum(curves['sampled_tokens']) / 1e6:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figures_of(runs: Sequence[FinishedRun]) -> dict[str, float | None]:
    """Reward and length at the end of each arm, means over seeds, and what the stages cost beside the long window."""
    figures: dict[str, float | None] = {}
    for name in NAMES:
        of_arm = [run for run in runs if run.arm == name]
        if not of_arm:
            continue
        ends = [run.evaluations[-1] for run in of_arm]
        figures[f"{name}_heldout_pass1"] = fmean(end["pass@1"] for end in ends)
        figures[f"{name}_heldout_length"] = fmean(end["response_length/mean"] for end in ends)
        figures[f"{name}_heldout_truncated"] = fmean(end["truncated_share"] for end in ends)
        figures[f"{name}_reward_end"] = fmean(means_of_parts(curves_of(run)["reward"])[-1] or 0.0 for run in of_arm)
        figures[f"{name}_length_end"] = fmean(means_of_parts(curves_of(run)["length"])[-1] or 0.0 for run in of_arm)
    for figure, key in (("lengthening_wallclock_ratio", "time/step_s"), ("lengthening_token_ratio", "sampled_tokens")):
        ratios = [cost_ratio(ours, theirs, lambda row, key=key: row[key]) for ours, theirs in pairs(runs)]
        figures[figure] = geometric_mean(ratios) if ratios and all(ratios) else None
    return figures


def pairs(runs: Sequence[FinishedRun]) -> list[tuple[FinishedRun, FinishedRun]]:
    """The run in stages with filtering and that with the long window, of each seed that has both."""
    found = {(run.arm, run.seed): run for run in runs}
    seeds = sorted({run.seed for run in runs})
    return [
        (found["stages", seed], found["fixed", seed])
        for seed in seeds
        if ("stages", seed) in found and ("fixed", seed) in found
    ]


def cost_ratio(ours: FinishedRun, theirs: FinishedRun, cost: Callable[[Mapping[str, Any]], float]) -> float:
    """What `ours` cost until the reward that both reach at the end, over what `theirs` did."""
    curves = [smoothed(heldout_curve(run, cost)) for run in (ours, theirs)]
    level = min(curve[-1][1] for curve in curves)
    mine, other = (cost_until(curve, level) for curve in curves)
    return mine / other if other else float("nan")


def heldout_curve(run: FinishedRun, cost: Callable[[Mapping[str, Any]], float]) -> list[tuple[float, float]]:
    """`(cost until then, pass@1)` at each evaluation; evaluations themselves cost nothing."""
    spent = [0.0, *accumulate(cost(row) for row in run.steps)]
    return [(spent[int(row["step"])], float(row["pass@1"])) for row in run.evaluations]


def smoothed(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The first point, then the means of `SMOOTHED` neighbours, each at the last of them."""
    windows = [curve[end - SMOOTHED : end] for end in range(SMOOTHED, len(curve) + 1)] or [curve]
    return [curve[0], *((window[-1][0], fmean(value for _, value in window)) for window in windows)]


def cost_until(curve: Sequence[tuple[float, float]], level: float) -> float:
    """The cost at which the curve first reaches `level`, between points on the line from one to the other."""
    if curve[0][1] >= level:
        return curve[0][0]
    for (before, low), (after, high) in pairwise(curve):
        if high >= level:
            return before + (after - before) * (level - low) / (high - low)
    return float("nan")


if __name__ == "__main__":
    main()
