"""Is the gain honest? The same run with true rewards, and with rewards shuffled among the rollouts of each step.

    python benchmarks/controls.py [--quick] [--json FILE]

Both start from the same warm start and sample from the same problems. Shuffling keeps how many rollouts are rewarded
and breaks which: whatever still rises does not come from the judge's verdicts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from harness import arguments, finish, print_environment, sized

from autoclave.compose.training import train
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import Group
from autoclave.training.learned import ItemSource
from autoclave.training.metrics import ThreeStages
from autoclave.training.schedules import Iteration, RunProgress
from runs import TINY

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.yaml"
QUICK = ("sft.steps=100", "sft.demonstrations=3000", "steps=2", "problems_per_step=16", "evaluation.final_samples=1")


def main() -> None:
    options = arguments(__doc__ or "")
    print_environment()
    config = load(TrainConfig, RECIPE, [parse_override(text) for text in sized(options, (), QUICK, TINY)]).config
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, schedule in (("true", None), ("shuffled", shuffled_rewards)):
            print(f"\nrewards: {name}")
            summary = train(config, Path(folder) / name, schedule=schedule)
            for key in ("heldout_pass1", "heldout_greedy"):
                figures[f"{key}_before"] = summary[f"{key}_before"]
                figures[f"{key}_after_{name}"] = summary[f"{key}_after"]
            figures[f"gain_{name}"] = summary["heldout_pass1_after"] - summary["heldout_pass1_before"]
            low, high = summary["heldout_pass1_interval_after"]
            figures |= {f"after_{name}_low": low, f"after_{name}_high": high}
    finish("controls", figures, options.json)


def shuffled_rewards(stages: ThreeStages, items: ItemSource, run_progress: RunProgress) -> Iterator[Iteration]:
    """The synchronous schedule, but what is learnt from is not what was earned."""
    for iteration in range(run_progress.done, run_progress.total):
        batch = stages.collect(items.at(iteration), iteration)
        learned = stages.learn(shuffle_rewards(batch.result(), np.random.default_rng(iteration)))
        yield Iteration(learned, batch.times, stages.publish(iteration + 1))


def shuffle_rewards(groups: Sequence[Group], rng: np.random.Generator) -> list[Group]:
    """The same rollouts with all rewards shuffled."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    dealt = iter([rollouts[index].reward for index in rng.permutation(len(rollouts))])
    return [
        Group(group.item, tuple(replace(rollout, reward=next(dealt)) for rollout in group.rollouts)) for group in groups
    ]


if __name__ == "__main__":
    main()
