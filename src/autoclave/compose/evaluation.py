"""Evaluation of a policy: during training, and by itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import autoclave.evaluation
from autoclave.compose.host import build_judge
from autoclave.compose.libraries import settle_libraries
from autoclave.compose.tasks import build_task
from autoclave.compose.workers import Workers
from autoclave.config import TrainConfig
from autoclave.core import TaskItem, read_problems
from autoclave.core.files import write_atomically
from autoclave.evaluation import Evaluation
from autoclave.models import encode_prompt
from autoclave.problems import ProblemSets, require_fitting
from autoclave.rollout import SamplingParameters
from autoclave.tasks import Task

EVALUATION = 1
"""Fourth number of the seeds of evaluation, so that they differ from those of training."""


def evaluate_during_training(
    config: TrainConfig, workers: Workers, task: Task, heldout: Sequence[TaskItem], step: int, whole: bool
) -> Evaluation:
    """Evaluate what the sampler holds at temperature 1: on all of `heldout`, or on the same few of it each time."""
    settings = config.evaluation
    return _evaluate(
        workers,
        task,
        heldout if whole else pinned(config, heldout),
        SamplingParameters(1.0, 1.0, config.sampler.max_new_tokens, config.sampler.stops),
        samples=settings.final_samples if whole else settings.samples,
        seed=(config.seed, step, EVALUATION),
    )


def pinned(config: TrainConfig, heldout: Sequence[TaskItem]) -> Sequence[TaskItem]:
    """The items of every evaluation: the same for every run and seed, spread over all of `heldout`."""
    count = min(config.evaluation.problems, len(heldout))
    return random.Random("pinned").sample(heldout, count) if count else heldout


def evaluate(
    config: TrainConfig, model: Path, *, problems: Path | None, samples: int | None, out: Path | None
) -> dict[str, Any]:
    """Measure the policy in folder `model` on held-out problems, or on those of a file.

    Returns:
        The figures, as in metrics files. With `out`, that file gets them and the result of every problem.

    Raises:
        InputError: the model or the problem file cannot be used.
    """
    settle_libraries(config)
    asked = list(read_problems(problems)) if problems else ProblemSets(config).heldout
    require_fitting(asked, config.task.name, f"--problems {problems}")
    with build_judge(config.judge, config.sandbox) as judge:
        task = build_task(config.task, judge)
        workers = Workers(config, model)
        try:
            evaluation = _evaluate(
                workers,
                task,
                [task.item(problem) for problem in asked],
                SamplingParameters(1.0, 1.0, config.sampler.max_new_tokens, config.sampler.stops),
                samples=samples or config.evaluation.final_samples,
                seed=(config.seed, 0, EVALUATION),
            )
        finally:
            workers.close()
    if out:
        write_atomically(out, evaluation.to_json() + "\n")
    return evaluation.to_metrics()


def _evaluate(
    workers: Workers,
    task: Task,
    items: Sequence[TaskItem],
    parameters: SamplingParameters,
    *,
    samples: int,
    seed: tuple[int, ...],
) -> Evaluation:
    return autoclave.evaluation.evaluate(
        items,
        sampler=workers.sampler,
        reward=task.reward,
        encode=lambda item: encode_prompt(workers.tokenizer, item.messages),
        family=lambda item: item.payload.tags[0] if item.payload.tags else "all",
        parameters=parameters,
        samples=samples,
        with_greedy=True,
        seed=seed,
    )
