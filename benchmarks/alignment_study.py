"""What alignment teaches: runs with alignment samples, without, with alignment samples whose targets are shuffled, and
ablations.

    python benchmarks/alignment_study.py [--quick] [--json FILE] [--out DIR] [--steps N] [--seeds SEED ...] [--only ARM]

Ablations (GRPO): alignment samples of random responses; of solutions, made before training (off-policy); alignment
samples that ask for the result alone; other shares; and no alignment samples beside as many prompts for programs as a
run with alignment samples has. A second table counts what was asked. With `--out` the first seed's runs stand side by
side in `comparison.html` there. All runs of a seed ask problems in the same order, and begin with the same warm start,
except for the one that asks for
results: its warm start saw such alignment samples. Programs are measured on the held-out
problems of the recipe. What programs do is asked of solutions of many more held-out problems, one run of each, so that
intervals are narrow and items independent: final values of variables (execution semantics), output and values together
(trace inference), and the output alone.
Beside the policy stand two that know nothing: `echo` says for each variable a value of the input, in their order, and
`most common` the value that an alignment sample of the run most often has.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from harness import finish, print_environment, sized

from autoclave.compose.alignment import heldout_items
from autoclave.compose.evaluation import evaluate_items
from autoclave.compose.host import build_judge
from autoclave.config import TrainConfig
from autoclave.core import AlignmentSample, TaskItem
from autoclave.core.trace import value_of
from autoclave.models import load_tokenizer
from autoclave.problems import ProblemSets
from autoclave.report.run_report import write_comparison
from autoclave.rollout import by_last_turn
from autoclave.tasks import ExecutionSemantics, OutputPrediction, TraceInference
from autoclave.tasks.final_values import written
from autoclave.training.learned import ItemSource
from autoclave.training.metrics import ThreeStages
from autoclave.training.schedules import Iteration, RunProgress, synchronous
from runs import Arm, FinishedRun, experiment_arguments, run_arms

RECIPE = Path(__file__).parent.parent / "recipes" / "demo-alignment.yaml"
ALGORITHMS = ("grpo", "ppo", "reinforce_plus_plus")
SETTINGS = ("alignment.evaluation_items=200", "evaluation.every=15", "evaluation.final_samples=4")
SAMPLES = 8
TASKS = {task.name: task for task in (ExecutionSemantics("plain"), TraceInference("plain"), OutputPrediction("plain"))}
QUICK = (
    "sft.steps=60",
    "sft.demonstrations=3000",
    "alignment.sft_share=0.1",
    "problems.heldout=200",
    "steps=2",
    "problems_per_step=8",
    "evaluation.final_samples=1",
)


ABLATIONS = {
    "random": ("alignment.programs=random",),
    "off_policy": ("alignment.programs=reference", "alignment.growth=null"),
    "output_only": ("alignment.asks=output",),
    "share_20": ("alignment.share=0.2",),
    "share_60": ("alignment.share=0.6",),
    "same_programs": ("alignment.share=0", "problems_per_step=38"),
}


class ShuffledTargets:
    """Items whose alignment samples have each other's values: what can be learnt from them is no execution."""

    def __init__(self, items: ItemSource) -> None:
        self._items = items
        self.per_iteration = items.per_iteration

    def at(self, iteration: int) -> list[TaskItem]:
        """The items of an iteration; see `ItemSource`."""
        items = self._items.at(iteration)
        places = [place for place, item in enumerate(items) if isinstance(item.payload, AlignmentSample)]
        values = [text for place in places for text in items[place].payload.variables.values()]
        dealt = iter([values[index] for index in np.random.default_rng(iteration).permutation(len(values))])
        for place in places:
            alignment_sample: AlignmentSample = items[place].payload
            shuffled = replace(alignment_sample, variables={name: next(dealt) for name in alignment_sample.variables})
            items[place] = replace(items[place], payload=shuffled)
        return items


def shuffled(stages: ThreeStages, items: ItemSource, run_progress: RunProgress) -> Iterator[Iteration]:
    """The synchronous schedule with shuffled targets."""
    return synchronous(stages, ShuffledTargets(items), run_progress)


def arms() -> list[Arm]:
    """With each algorithm: aligned, without alignment samples, and with shuffled ones; then ablations with the
    first.
    """
    found: list[Arm] = []
    for name in ALGORITHMS:
        chosen = f"algorithm={{name: {name}}}"
        found += [
            Arm(f"{name}_aligned", (*SETTINGS, chosen)),
            Arm(f"{name}_generation", (*SETTINGS, chosen, "alignment.share=0")),
            Arm(f"{name}_shuffled", (*SETTINGS, chosen), shuffled),
        ]
    first = ALGORITHMS[0]
    chosen = f"algorithm={{name: {first}}}"
    return found + [Arm(f"{first}_{name}", (*SETTINGS, chosen, *changes)) for name, changes in ABLATIONS.items()]


def main() -> None:
    options = experiment_arguments((__doc__ or "").partition("\n")[0], arms(), tiny=f"{ALGORITHMS[0]}_aligned")
    print_environment()
    with tempfile.TemporaryDirectory() as temporary:
        options.out = options.out or Path(temporary)  # the policies are measured after all runs
        study(options)


def study(options: argparse.Namespace) -> None:
    """Run the arms, measure their policies, and tell."""
    runs = list(run_arms(arms(), options, recipe=RECIPE, quick=QUICK))
    items = wide_items(runs[0].config, folder_of(runs[0], options.out), sized(options, 3000, 300, 200))
    if options.tiny:
        items = {name: each[:2] for name, each in items.items()}
    found = measured(runs, options.out, items)
    print("\n" + table(runs, found))
    print("\n" + table_of_batches(runs, options.out))
    if not options.quick and len(runs) > 1:
        folders = [folder_of(run, options.out) for run in runs if run.seed == runs[0].seed]
        print(f"\n{write_comparison(folders, options.out / 'comparison.html')}")
    figures = {name: value for run in runs for name, value in figures_of(run, found[id(run)]).items()}
    aligned = next((run for run in runs if run.steps[-1].get("alignment/reward") is not None), None)
    known = baselines(folder_of(aligned, options.out), items[ExecutionSemantics.name]) if aligned else {}
    for name, value in known.items():
        print(f"{name}: {value:.3f} of {len(items[ExecutionSemantics.name])}")
    finish("alignment_study", known | figures, options.json)


def folder_of(run: FinishedRun, out: Path) -> Path:
    return out / f"{run.arm}-seed-{run.seed}"


def wide_items(config: TrainConfig, folder: Path, heldout: int) -> dict[str, list[TaskItem]]:
    """By task, one item of each of many held-out problems."""
    assert config.alignment
    problems = config.problems.model_copy(update={"heldout": heldout})
    alignment = config.alignment.model_copy(update={"evaluation_items": 1000})
    wide = config.model_copy(update={"problems": problems, "alignment": alignment})
    with build_judge(config.judge, config.sandbox) as judge:
        found = heldout_items(wide, judge, load_tokenizer(folder / "start"), ProblemSets(wide).heldout, None)
    return {
        name: list({item.payload.problem_id: item for item in items}.values())
        for name, items in found.items()
        if name in TASKS
    }


def measured(
    runs: Sequence[FinishedRun], out: Path, items: Mapping[str, list[TaskItem]]
) -> dict[int, dict[str, list[Mapping[str, Any]]]]:
    """By run and task, the figures before and after. Runs of a seed begin with one policy, which is measured once."""
    found: dict[int, dict[str, list[Mapping[str, Any]]]] = {}
    before: dict[tuple[object, ...], Mapping[str, Any]] = {}
    for run in runs:
        config = run.config.model_copy(update={"seed": 0})  # all are sampled with the same numbers
        found[id(run)] = {"generation": [run.evaluations[0], run.evaluations[-1]]}
        for name, each in items.items():
            start, end = (
                partial(
                    evaluate_items, config, folder_of(run, out) / part, each, by_last_turn(TASKS[name].reward), SAMPLES
                )
                for part in ("start", "model")
            )
            known = (run.seed, name, config.alignment and config.alignment.asks)  # those decide the warm start
            if known not in before:
                before[known] = start().to_metrics()
            found[id(run)][name] = [before[known], end().to_metrics()]
    return found


def table(runs: Sequence[FinishedRun], found: Mapping[int, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """A line per run and task: held-out accuracy at temperature 1 before and after, with 95 % intervals."""
    lines = ["| run | seed | task | items | before | after | apart | greedy before | after |", f"|{' --- |' * 9}"]
    for run in runs:
        for task, (first, last) in found[id(run)].items():
            apart = "yes" if last["pass@1/low"] > first["pass@1/high"] else "no"
            cells = [run.arm, str(run.seed), task, str(last["problems"]), _figure(first), _figure(last), apart]
            cells += [f"{row['greedy']:.3f}" for row in (first, last)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_batches(runs: Sequence[FinishedRun], out: Path) -> str:
    """A line per run: the share of alignment samples once they have grown, and how many it asked, by what they were
    made from and what they asked for.
    """
    lines = ["| run | seed | share | alignment samples | of | ask for |", f"|{' --- |' * 6}"]
    for run in runs:
        alignment_samples = alignment_samples_in(folder_of(run, out) / "rollouts")
        kinds = [Counter(alignment_sample["source"] for alignment_sample in alignment_samples)]
        kinds.append(
            Counter(
                "output" if alignment_sample["result"] is not None else "variables"
                for alignment_sample in alignment_samples
            )
        )
        texts = [", ".join(f"{name} {count}" for name, count in kind.most_common()) for kind in kinds]
        cells = [run.arm, str(run.seed), f"{mix_of(run):.3f}", str(len(alignment_samples)), *texts]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def alignment_samples_in(rollouts: Path) -> list[Mapping[str, Any]]:
    """The alignment samples that a run asked, each once."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for path in sorted(rollouts.glob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in map(json.loads, file):
                if line["alignment_sample"]:
                    found[path.name, line["item"]] = line["alignment_sample"]
    return list(found.values())


def mix_of(run: FinishedRun) -> float:
    """Mean share of alignment samples among the prompts of a step, once alignment samples have grown."""
    growth = run.config.alignment and run.config.alignment.growth
    warm = run.steps[growth.steps if growth else 1 :]
    return fmean(row["alignment/share"] for row in warm) if warm else 0.0


def figures_of(run: FinishedRun, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Accuracy before and after on each task, the reward of alignment samples in the first and last fifth, and the mix
    once alignment samples have grown.
    """
    name = f"{run.arm}_seed_{run.seed}"
    figures: dict[str, float] = {}
    for task, (before, after) in found.items():
        figures[f"{name}_{task}_before"], figures[f"{name}_{task}_after"] = before["pass@1"], after["pass@1"]
    rewards = [row["alignment/reward"] for row in run.steps if row.get("alignment/reward") is not None]
    if rewards:
        fifth = max(1, len(rewards) // 5)
        figures[f"{name}_alignment_sample_reward_first"], figures[f"{name}_alignment_sample_reward_last"] = (
            fmean(rewards[:fifth]),
            fmean(rewards[-fifth:]),
        )
        figures[f"{name}_mix"] = mix_of(run)
    return figures


def baselines(folder: Path, items: Sequence[TaskItem]) -> dict[str, float]:
    """Accuracy on held-out alignment samples of those that know nothing; the run in `folder` had alignment samples."""
    common = most_common(folder / "rollouts")
    answers: dict[str, Callable[[AlignmentSample], dict[str, Any]]] = {
        "baseline_echo": echo,
        "baseline_most_common": lambda alignment_sample: {
            name: common.get(name, common[""]) for name in alignment_sample.variables
        },
    }
    reward = TASKS[ExecutionSemantics.name].reward
    return {
        name: fmean(reward(item, written(answer(item.payload))).result().value == 1 for item in items)
        for name, answer in answers.items()
    }


def echo(alignment_sample: AlignmentSample) -> dict[str, Any]:
    """The values of the input, one for each variable, the last one again where there are too few."""
    words = [word.strip("(),[]") for word in alignment_sample.input.removeprefix(f"{alignment_sample.entry}(").split()]
    values: list[Any] = [int(word) if word.lstrip("-").isdigit() else word.strip("'\"") for word in words] or [""]
    return {name: values[min(number, len(values) - 1)] for number, name in enumerate(alignment_sample.variables)}


def most_common(rollouts: Path) -> Mapping[str, Any]:
    """By the name of a variable, and "" for all others, the value that alignment samples of a run most often have."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for alignment_sample in alignment_samples_in(rollouts):
        for name, text in alignment_sample["variables"].items():
            counts[name][text] += 1
            counts[""][text] += 1
    values = {name: count.most_common(1)[0][0] for name, count in counts.items()}
    return {name: value_of(text) for name, text in values.items()}


def _figure(row: Mapping[str, Any]) -> str:
    return f"{row['pass@1']:.3f} [{row['pass@1/low']:.3f}, {row['pass@1/high']:.3f}]"


if __name__ == "__main__":
    main()
