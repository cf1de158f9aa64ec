"""What the variance reducers of GRPO+ do on synthetic bandits (`bandits.py`), and the updates it needs beside DAPO.

    python benchmarks/grpo_plus.py [--quick] [--json FILE]

The thesis claims of GRPO+ as its introduction describes it that relative-KL clipping and the filter of over-long
responses cut the variance of the gradient by 18 %, and that it reaches DAPO's reward with 12 % fewer updates. It gives
no formulas; ours are in `docs/reference/algorithms/grpo_plus.md`.

Variance. From one policy, many batches are drawn. From each batch every arm makes one update; an update has several
optimizer steps. `gradient_variance_ratio` is the trace of the covariance of the gradients over batches, summed over
the steps, over that of the same algorithm without the two reducers; all arms see the same batches. Whatever scales
gradients down scales their variance down too, so `relative_variance_ratio` is the same of variance / |mean gradient|^2
(both summed over the policies of a seed).
The policies are those that the algorithm without reducers passes on its way to the reward aimed at.

Updates. Every arm is trained until its expected reward, which is computed exactly, is the one aimed at; each with the
learning rate that was best for it on other seeds. `updates_to_reward_ratio_vs_dapo` is of updates, and
`responses_to_reward_ratio_vs_dapo` of responses sampled, which DAPO's dynamic sampling needs more of.

Ratios are geometric means over seeds (each with problems and first weights of its own), with 95 % bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from bandits import Bandits, Kind, Learner, first_weights, sample_groups
from harness import arguments, finish, print_environment, sized
from ratios import Ratio, Ratios, compared, plain, print_table
from tqdm import tqdm

from autoclave.algorithms import build_algorithm
from autoclave.config import OptimizerConfig
from autoclave.config.algorithm import AlgorithmSettings, DapoConfig, GrpoPlusConfig

NO_KL_LIMIT, NO_SHARE_LIMIT = 1e9, 1.0
DAPO = "dapo"
PLAIN = "without_reducers"
BOTH = "both_reducers"
REDUCERS: dict[str, AlgorithmSettings] = {
    PLAIN: GrpoPlusConfig(reading="introduction", group_kl_limit=NO_KL_LIMIT, variance_share_limit=NO_SHARE_LIMIT),
    "kl_clipping": GrpoPlusConfig(reading="introduction", variance_share_limit=NO_SHARE_LIMIT),
    "variance_filter": GrpoPlusConfig(reading="introduction", group_kl_limit=NO_KL_LIMIT),
    BOTH: GrpoPlusConfig(reading="introduction"),
}
RACERS: dict[str, AlgorithmSettings] = {DAPO: DapoConfig(), **REDUCERS, "report": GrpoPlusConfig(reading="report")}

TARGETS: dict[Kind, float] = {"answer": 0.75, "collect": 0.5}
"""Expected rewards aimed at; where nothing is known they are about 0.13 and 0.19."""
STAGES = (0.0, 0.4, 0.7, 1.0)
"""Shares of the target at which the variance is measured; 0 is the first policy."""
NUM_PROBLEMS, GROUP_SIZE, MINIBATCHES = 64, 8, 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done."""

    groups: int = 16
    """Groups of an update."""
    seeds: range = range(8)
    tuning_seeds: range = range(100, 103)
    learning_rates: tuple[float, ...] = (0.05, 0.1, 0.2)
    draws: int = 32
    """Batches drawn at each policy."""
    most_updates: int = 200
    target_share: float = 1.0
    """Of the targets."""


FULL = Plan()
QUICK = Plan(
    seeds=range(2), tuning_seeds=range(0), learning_rates=(0.1,), draws=16, most_updates=40, target_share=0.7, groups=8
)
TINY = Plan(
    seeds=range(2), tuning_seeds=range(0), learning_rates=(0.1,), draws=8, most_updates=1, target_share=1.0, groups=2
)


@dataclass(frozen=True, slots=True)
class Race:
    """What it took to reach the reward."""

    updates: int
    responses: int
    is_reached: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """Gradients of one arm over the batches drawn at one policy, summed over the steps of an update."""

    variance: float
    """Trace of the covariance."""
    signal: float
    """Squared norm of the mean, without the part that the variance adds to it."""
    masked_share: float
    kept_advantage: float


Races = Mapping[str, Sequence[Race]]
"""By the name of the arm; one per seed."""
Spreads = Mapping[str, Sequence[Spread]]
"""Of a seed, by the name of the arm; one per stage."""
AllSpreads = Mapping[str, Sequence[Spreads]]
"""By kind; one per seed."""


def main() -> None:
    options = arguments((__doc__ or "").partition("\n")[0])
    print_environment()
    torch.set_num_threads(1)
    plan = sized(options, FULL, QUICK, TINY)
    rates: dict[str, float] = {}
    races: dict[str, Races] = {}
    spreads: dict[str, list[Spreads]] = {}
    for kind in get_args(Kind):
        of_kind = {name: best_rate(kind, settings, plan) for name, settings in RACERS.items()}
        rates |= {f"learning_rate_{name}_{kind}": rate for name, rate in of_kind.items()}
        races[kind] = {
            name: [race(kind, seed, settings, of_kind[name], plan) for seed in counted(f"{kind}: {name}", plan.seeds)]
            for name, settings in RACERS.items()
        }
        seeds = counted(f"{kind}: variance", plan.seeds)
        spreads[kind] = [spread_of_arms(kind, seed, of_kind[PLAIN], plan) for seed in seeds]
    figures, details = report(races, spreads)
    finish("grpo_plus", figures, options.json, learning_rates=rates, **details)


def counted(label: str, seeds: Sequence[int]) -> Iterable[int]:
    """The seeds, with a progress bar where somebody looks."""
    return tqdm(seeds, desc=label, disable=None, leave=False)


# --- Updates to a reward -------------------------------------------------------------------------------------------


def race(kind: Kind, seed: int, settings: AlgorithmSettings, rate: float, plan: Plan) -> Race:
    """Train from the first weights of a seed until the reward is there."""
    bandits, learner, rng = start(kind, seed, settings, rate)
    responses = 0
    for updates in range(plan.most_updates):
        if bandits.expected_reward(learner.weights) >= plan.target_share * TARGETS[kind]:
            return Race(updates, responses, is_reached=True)
        groups, num_sampled = sample_groups(bandits, learner.weights, plan.groups, GROUP_SIZE, learner.algorithm, rng)
        responses += num_sampled
        learner.learn(groups)
    return Race(plan.most_updates, responses, is_reached=False)


def best_rate(kind: Kind, settings: AlgorithmSettings, plan: Plan) -> float:
    """The learning rate with the fewest updates on the tuning seeds."""
    if len(plan.learning_rates) == 1:
        return plan.learning_rates[0]
    needed = {
        rate: np.mean([race(kind, seed, settings, rate, plan).updates for seed in plan.tuning_seeds])
        for rate in plan.learning_rates
    }
    return min(needed, key=lambda rate: needed[rate])


def start(
    kind: Kind, seed: int, settings: AlgorithmSettings, rate: float
) -> tuple[Bandits, Learner, np.random.Generator]:
    """The problems of a seed, a policy that knows nothing of them, and the random numbers of its training."""
    rng = np.random.default_rng(seed)
    bandits, weights = Bandits.drawn(kind, NUM_PROBLEMS, rng), first_weights(rng)
    return (
        bandits,
        Learner(bandits, build_algorithm(settings), weights, OptimizerConfig(learning_rate=rate), MINIBATCHES),
        rng,
    )


# --- Variance of the gradient --------------------------------------------------------------------------------------


def spread_of_arms(kind: Kind, seed: int, rate: float, plan: Plan) -> Spreads:
    """For each arm its spread at each stage of a training without reducers."""
    bandits, learner, rng = start(kind, seed, REDUCERS[PLAIN], rate)
    found: dict[str, list[Spread]] = {name: [] for name in REDUCERS}
    for stage in STAGES:
        for _ in range(plan.most_updates):
            if bandits.expected_reward(learner.weights) >= stage * plan.target_share * TARGETS[kind]:
                break
            groups, _ = sample_groups(bandits, learner.weights, plan.groups, GROUP_SIZE, learner.algorithm, rng)
            learner.learn(groups)
        batches = [
            sample_groups(bandits, learner.weights, plan.groups, GROUP_SIZE, learner.algorithm, rng)[0]
            for _ in range(plan.draws)
        ]
        for name, settings in REDUCERS.items():
            updates = [learner.copy(build_algorithm(settings)).learn(groups) for groups in batches]
            variance, signal = spread(torch.stack([update.gradients.flatten(1) for update in updates]))
            found[name].append(
                Spread(
                    variance,
                    signal,
                    masked_share=float(np.mean([update.masked_share for update in updates])),
                    kept_advantage=float(np.mean([update.kept_advantage for update in updates])),
                )
            )
    return found


def spread(gradients: torch.Tensor) -> tuple[float, float]:
    """Variance and squared mean of gradients (draws, steps, parameters), summed over steps and parameters; unbiased."""
    variance = gradients.var(dim=0).sum()
    return float(variance), float(gradients.mean(dim=0).square().sum() - variance / len(gradients))


# --- Figures -------------------------------------------------------------------------------------------------------


def variance_ratios(spreads: AllSpreads) -> Ratios:
    """Of the variances, to those of the arm without reducers: the mean over the policies of a seed."""
    return compared(
        {
            name: {
                kind: [float(np.mean(variance_logs(found[name], found[PLAIN]))) for found in part]
                for kind, part in spreads.items()
            }
            for name in REDUCERS
        }
    )


def variance_by_stage(spreads: AllSpreads) -> dict[str, list[Ratio]]:
    """The same by arm at each of `STAGES`, over all kinds."""
    logs = {
        name: [variance_logs(found[name], found[PLAIN]) for part in spreads.values() for found in part]
        for name in REDUCERS
    }
    return {name: [Ratio.of(at_stage) for at_stage in zip(*rows, strict=True)] for name, rows in logs.items()}


def variance_logs(own: Sequence[Spread], plain: Sequence[Spread]) -> list[float]:
    """For each policy of a seed the logarithm of the ratio of the variances."""
    return [float(np.log(a.variance / b.variance)) for a, b in zip(own, plain, strict=True)]


def relative_ratios(spreads: AllSpreads) -> Ratios:
    """Of variance over squared mean, both summed over the policies of a seed."""

    def noise(found: Sequence[Spread]) -> float:
        return sum(spread.variance for spread in found) / sum(spread.signal for spread in found)

    return compared(
        {
            name: {
                kind: [float(np.log(noise(found[name]) / noise(found[PLAIN]))) for found in part]
                for kind, part in spreads.items()
            }
            for name in REDUCERS
        }
    )


def race_ratios(races: Mapping[str, Races], count: Literal["updates", "responses"]) -> Ratios:
    """Of what was needed to reach the reward, to what DAPO needed. A race that was not finished counts as if it was."""
    return compared(
        {
            name: {
                kind: [
                    float(np.log(getattr(own, count) / getattr(dapo, count)))
                    for own, dapo in zip(part[name], part[DAPO], strict=True)
                ]
                for kind, part in races.items()
            }
            for name in RACERS
        }
    )


def report(races: Mapping[str, Races], spreads: AllSpreads) -> tuple[dict[str, float], dict[str, Any]]:
    """Print the tables; the figures of both reducers together and of each alone, and everything in detail."""
    tables = {
        "gradient_variance_ratio": variance_ratios(spreads),
        "relative_variance_ratio": relative_ratios(spreads),
        "updates_to_reward_ratio_vs_dapo": race_ratios(races, "updates"),
        "responses_to_reward_ratio_vs_dapo": race_ratios(races, "responses"),
    }
    figures: dict[str, float] = {}
    for figure, by_arm in tables.items():
        print_table(figure, [*TARGETS, "all"], {name: list(of_kinds.values()) for name, of_kinds in by_arm.items()})
        for name, of_kinds in by_arm.items():
            ratio = of_kinds["all"]
            if name == BOTH:
                figures |= {figure: ratio.value, f"{figure}_low": ratio.low, f"{figure}_high": ratio.high}
            elif ratio.low < ratio.high:  # not the arm that all are compared with
                figures[f"{figure}_{name}"] = ratio.value
    by_stage = variance_by_stage(spreads)
    print_table("gradient_variance_ratio on the way", [f"{stage:.0%} of target" for stage in STAGES], by_stage)
    acts = {name: acting(name, spreads) for name in REDUCERS}
    print_table(
        "what the reducers did", list(acts[BOTH]), {name: list(shares.values()) for name, shares in acts.items()}
    )
    needed = {
        name: {f"{what}_{kind}": value for kind, part in races.items() for what, value in summed_up(part[name]).items()}
        for name in RACERS
    }
    print_table("races", list(needed[DAPO]), {name: list(values.values()) for name, values in needed.items()})
    details = {"ratios": plain(tables), "by_stage": plain(by_stage), "reducers": acts, "races": needed}
    return figures | {f"{key}_{BOTH}": value for key, value in acts[BOTH].items()}, details


def acting(name: str, spreads: AllSpreads) -> dict[str, float]:
    """Responses that an arm masked, and the sum of |advantage| that its trust region left; shares, over everything."""
    found = [spread for part in spreads.values() for of_seed in part for spread in of_seed[name]]
    return {
        "masked_share": float(np.mean([spread.masked_share for spread in found])),
        "kept_advantage": float(np.mean([spread.kept_advantage for spread in found])),
    }


def summed_up(races: Sequence[Race]) -> dict[str, float]:
    """Median of the updates, and how many races reached the reward."""
    updates = float(np.median([race.updates for race in races]))
    return {"updates": updates, "reached": float(np.mean([race.is_reached for race in races]))}


if __name__ == "__main__":
    main()
