"""Evaluation of a policy: during training, and by itself."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

import autoclave.evaluation
from autoclave.compose.host import build_judge
from autoclave.compose.libraries import settle_libraries
from autoclave.compose.models import context_for
from autoclave.compose.tasks import AnyTask, grader_of, items_of, next_turn_of, open_task
from autoclave.compose.workers import Workers, open_samplers
from autoclave.config import TrainConfig
from autoclave.core import MAIN_PROGRAM, AlignmentSample, TaskItem, read_problems
from autoclave.core.files import write_atomically
from autoclave.environments import Grader
from autoclave.evaluation import Evaluation
from autoclave.models import encode_prompt, load_tokenizer
from autoclave.problems import ProblemSets, require_fitting
from autoclave.rollout import NextTurn, SamplingParameters
from autoclave.workers.sampler.pool import SamplerPool

EVALUATION = 1
"""Fourth number of the seeds of evaluation, so that they differ from those of training."""


def evaluate_during_training(
    config: TrainConfig,
    workers: Workers,
    grade: Grader,
    heldout: Sequence[TaskItem],
    step: int,
    whole: bool,
    next_turn: NextTurn | None = None,
) -> Evaluation:
    """Evaluate what the sampler holds at temperature 1: on all of `heldout`, or on the same few of it each time."""
    settings = config.evaluation
    return _evaluate(
        config,
        workers.sampler,
        workers.tokenizer,
        grade,
        heldout if whole else pinned(config, heldout),
        samples=settings.final_samples if whole else settings.samples,
        step=step,
        next_turn=next_turn,
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
    require_fitting(asked, config.task, f"--problems {problems}")
    with build_judge(config.judge, config.sandbox) as judge:
        for problem in asked:
            judge.check(problem)
        with open_task(config.task, judge) as task:
            evaluation = evaluate_items(config, model, items_of(task, asked), grader_of(task), samples, task)
    if out:
        write_atomically(out, evaluation.to_json() + "\n")
    return evaluation.to_metrics()


def evaluate_items(
    config: TrainConfig,
    model: Path,
    items: Sequence[TaskItem],
    grade: Grader,
    samples: int | None = None,
    task: AnyTask | None = None,
) -> Evaluation:
    """Measure the policy in folder `model` on `items`, with so many responses to each at temperature 1.

    Raises InputError: the model cannot be used.
    """
    tokenizer = load_tokenizer(model)
    next_turn = (
        next_turn_of(task, tokenizer, context_for(config, model), together=config.samples_repeatably) if task else None
    )
    with open_samplers(config, model) as samplers:
        number = samples or config.evaluation.final_samples
        return _evaluate(config, samplers, tokenizer, grade, items, samples=number, step=0, next_turn=next_turn)


def _evaluate(
    config: TrainConfig,
    samplers: SamplerPool,
    tokenizer: PreTrainedTokenizerBase,
    grade: Grader,
    items: Sequence[TaskItem],
    *,
    samples: int,
    step: int,
    next_turn: NextTurn | None,
) -> Evaluation:
    return autoclave.evaluation.evaluate(
        items,
        sampler=samplers,
        grade=grade,
        next_turn=next_turn,
        encode=lambda item: encode_prompt(tokenizer, item.messages),
        family=_family,
        parameters=SamplingParameters(1.0, 1.0, config.longest_evaluated, config.sampler.stops),
        samples=samples,
        with_greedy=True,
        seed=(config.seed, step, EVALUATION),
    )


def _family(item: TaskItem) -> str:
    """Row of an item in tables: the first tag of a problem; of an alignment sample how it is run."""
    payload = item.payload
    if isinstance(payload, AlignmentSample):
        return "stdin" if payload.entry == MAIN_PROGRAM else "call"
    return payload.tags[0] if payload.tags else "all"
