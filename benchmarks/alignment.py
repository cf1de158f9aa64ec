"""What alignment costs: an iteration with alignment samples over one without, and judging with traces over judging.

    python benchmarks/alignment.py [--quick] [--json FILE]

Both runs have the same prompts per step, and begin with the same warm start. Iterations are paired by their number,
from the third on: the first asks for programs alone, and libraries warm up. A judge that traces judges the programs of
a step, and then runs as many once more as the run with alignment samples traced; the two take turns on the steps of
that run, of which the first that counts warms the judge up.

With --quick the policy is too weak for its figures to mean anything: most of its programs fail at once, and few are
alignment samples. It shows that everything runs.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import wait
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from harness import arguments, compare, finish, print_environment, seconds, sized

from autoclave.compose.host import build_judge
from autoclave.config import TrainConfig
from autoclave.core import CallTests, Problem, Program, StdinTests
from autoclave.judge import EXTRACTION_RULES, Judge, JudgeJob
from autoclave.problems import ProblemSets
from autoclave.tasks.alignment_samples import is_short_input
from runs import Arm, run_arms

RECIPE = Path(__file__).parent.parent / "recipes" / "demo-alignment.yaml"
SETTINGS = ("evaluation.every=0", "evaluation.final_samples=1", "alignment.evaluation_items=0", "problems.heldout=200")
QUICK = (
    "sft.steps=100",
    "sft.demonstrations=1000",
    "problems_per_step=16",
    "steps=5",
    "alignment.limits={variables: 2}",
    "alignment.growth=null",
)
STEPS, ROUNDS = 12, 2


def main() -> None:
    options = arguments(__doc__ or "")
    print_environment()
    with tempfile.TemporaryDirectory() as folder:
        options.out, options.seeds, options.steps = Path(folder), [0], sized(options, STEPS, None, 4)
        ratios: list[float] = []
        shares: list[float] = []
        for number in range(1 if options.quick else ROUNDS):
            arms = [
                Arm(f"aligned_{number}", SETTINGS),
                Arm(f"generation_{number}", (*SETTINGS, "alignment.share=0")),
            ]
            options.only = [arm.name for arm in arms]
            aligned, plain = run_arms(arms, options, recipe=RECIPE, quick=QUICK)
            pairs = list(zip(aligned.steps, plain.steps, strict=True))[2:]
            ratios += [one["time/step_s"] / other["time/step_s"] for one, other in pairs]
            shares += [row["alignment/share"] for row in aligned.steps[1:]]
        traced = [int(row["alignment/traced"]) for row in aligned.steps]
        judging = judge_time(
            aligned.config, options.out / "aligned_0-seed-0" / "rollouts", traced, sized(options, 5, 2, 1)
        )
    figures = {
        "iteration_time_ratio": median(ratios),
        "iteration_time_ratio_low": min(ratios),
        "iteration_time_ratio_high": max(ratios),
        "judge_time_ratio": judging.median,
        "judge_time_ratio_low": min(judging.ratios),
        "judge_time_ratio_high": max(judging.ratios),
        "mix": sum(shares) / len(shares),
    }
    finish("alignment", figures, options.json)


def judge_time(config: TrainConfig, rollouts: Path, traced: Sequence[int], rounds: int) -> Any:
    """Seconds of judging the programs of the later steps and tracing some, over judging them alone."""
    problems = {problem.id: problem for problem in ProblemSets(config).train}
    steps = [
        programs_of(rollouts / f"step-{step:06d}.jsonl.gz", problems, config) for step in range(3, len(traced) + 1)
    ]

    def judged(*, traces: bool) -> float:
        with build_judge(config.judge, config.sandbox) as judge:  # a new one: a judge knows the verdicts that it gave
            work(judge, 0, 1, traces=True)  # that its interpreters start is no part of a step
            return seconds(lambda: work(judge, 1, len(steps), traces=traces))

    def work(judge: Judge, first: int, end: int, *, traces: bool) -> None:
        for (jobs, failed), count in zip(steps[first:end], traced[2 + first : 2 + end], strict=True):
            wait([judge.submit(job) for job in jobs])
            if traces:
                chosen = sorted(failed[:count], key=lambda run: (run[0].problem.id, run[0].program.source))
                wait([judge.trace(job, test) for job, test in chosen])

    return compare(lambda: judged(traces=True), lambda: judged(traces=False), rounds=rounds)


def programs_of(
    path: Path, problems: dict[str, Problem], config: TrainConfig
) -> tuple[list[JudgeJob], list[tuple[JudgeJob, int]]]:
    """The programs of a step, and the runs of those that failed as a run with alignment samples chooses them: each on
    the test that it failed, then each on others whose input is short.
    """
    assert config.alignment
    jobs: list[JudgeJob] = []
    runs: defaultdict[tuple[str, str], list[tuple[JudgeJob, int]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            source = EXTRACTION_RULES["last_fence"](line["response"]) if line["verdict"] else None
            if source is None:
                continue
            problem, verdict = problems[line["group"]], line["verdict"]
            job = JudgeJob(problem, Program(source), line["item"])
            jobs.append(job)
            if verdict["status"] == "wrong_answer" and (problem.id, source) not in runs:
                assert isinstance(problem.tests, StdinTests | CallTests)
                tests = dict.fromkeys([verdict["failing_test"], *range(len(problem.tests.cases))])
                limits = config.alignment.limits
                if len(source) > limits.program_characters:
                    continue
                fitting = [test for test in tests if is_short_input(problem, test, limits.input_characters)]
                runs[problem.id, source] = [(job, test) for test in fitting[: config.alignment.tests_per_program]]
    return jobs, [run for row in zip_longest(*runs.values()) for run in row if run]


if __name__ == "__main__":
    main()
