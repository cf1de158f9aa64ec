"""A whole run of training, from problems to report."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autoclave.compose.alignment import build_alignment, grader_of_run, heldout_items, task_limits, term_weights
from autoclave.compose.evaluation import evaluate_during_training, pinned
from autoclave.compose.host import build_judge
from autoclave.compose.libraries import sampling_parameters, settle_libraries
from autoclave.compose.models import context_for
from autoclave.compose.preflight import preflight
from autoclave.compose.tasks import AnyTask, build_task_by_all_tests, grader_of, items_of, next_turn_of, open_task
from autoclave.compose.warm_start import RunContext, warm_started
from autoclave.compose.workers import Workers, open_pools
from autoclave.config import TrainConfig, dump
from autoclave.core import EngineFault, IncompleteError, InputError, TaskItem, WorkerDied
from autoclave.core.files import drop_folder
from autoclave.judge import Judge
from autoclave.models import encode_prompt, resolve_device
from autoclave.planning.accounting.shape import read_shape
from autoclave.planning.accounting.speed import Throughput, peak_flops
from autoclave.planning.schedule_plan import PLAN_NAME
from autoclave.problems import ProblemSets
from autoclave.report.run_report import write_report
from autoclave.rollout import NextTurn
from autoclave.runs.folder import MetricsLog, RunFolder
from autoclave.runs.reader import read_events
from autoclave.training.checkpoints import (
    Checkpoint,
    drop_checkpoints,
    latest_checkpoint,
    policy_inputs,
    weights_digest,
)
from autoclave.training.health import Health, RollbackRequest
from autoclave.training.learned import ShuffledItems
from autoclave.training.loggers import open_sinks
from autoclave.training.metrics import Stopwatch
from autoclave.training.saved_groups import load_groups, names_of
from autoclave.training.schedules import Schedule, choose_schedule
from autoclave.training.stages import Stages
from autoclave.training.summary import describe, describe_peaks, peak_figures, summarise
from autoclave.training.train import Run, run_to_end
from autoclave.training.watchdog import StopRequest
from autoclave.workers.weights.sync_check import LIMITS, SyncCheck

Say = Callable[[str], None]

ROLLBACK_SEED = 1 << 32
"""Between the seed of a run and that of its samples after a rollback."""
LEARNERS = ("actor", "critic")
"""Worker groups whose devices together are the trainer's."""


def train(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    fresh: bool = False,
    say: Say = print,
    schedule: Schedule | None = None,
) -> dict[str, Any]:
    """A whole run: problems, warm start, reinforcement learning, evaluation, summary, report.

    Args:
        out: the run's folder.
        resume: go on from the newest checkpoint in `out`.
        fresh: repeat the warm start even if it is in the cache.
        say: receives the lines a user should see.
        schedule: in place of the configured one; for experiments.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        AutoclaveError: see the tree of errors; bad input is found before any work.
    """
    settle_libraries(config)
    stopwatch = Stopwatch()
    existing = RunFolder.existing(out) if resume else None
    checkpoint = _newest_checkpoint(existing, config) if existing else None
    preflight(config, out)
    with (
        build_judge(config.judge, config.sandbox) as judge,
        open_pools(config) as pools,
        StopRequest() as stop,
        stopwatch.time("total"),
    ):
        problems = ProblemSets(config)
        for problem in (*problems.train, *problems.heldout):
            judge.check(problem)
        folder = existing or RunFolder.create(out, keep=PLAN_NAME)
        folder.write_config(dump(config))
        say(
            f"run {folder.path}: {len(problems.train)} training problems, {len(problems.heldout)} held out; "
            f"sandbox level: {judge.level}"
        )
        if checkpoint:
            say(f"resuming {out} after step {checkpoint.step} of {config.steps}")
            stopwatch.seconds.update(checkpoint.seconds)
        elif resume:
            say(f"{out} has no checkpoint of reinforcement learning yet")
        with closing(MetricsLog(folder, open_sinks(config, folder.path), say)) as log:
            with stopwatch.time("sft"):
                if not folder.start.is_dir():
                    around = RunContext(folder.path, say, stop, stopwatch, log)
                    folder.keep_start(warm_started(config, problems, around, fresh=fresh))
                    drop_folder(around.checkpoints)
            with (
                open_task(config.task, judge) as task,
                closing(Workers(config, folder.start, pools=pools, say=say)) as workers,
            ):
                run = _run(config, workers, problems, judge, task, folder, log, stopwatch, say, schedule)
                _learn(run, workers, checkpoint, stop)
                workers.export(folder)
                peaks = workers.peak_memory()
    summary = summarise(config, folder, stopwatch.seconds, problems.heldout_description, judge.level)
    summary |= peak_figures(peaks)
    folder.write_summary(summary)
    for line in (describe(summary), *describe_peaks(config, peaks)):
        say(line)
    say(f"report: {write_report(folder.path)}")
    return summary


def _learn(run: Run, workers: Workers, checkpoint: Checkpoint | None, stop: StopRequest) -> None:
    """Learn to the end; when workers die or an alert rolls the run back, go on with new ones from a checkpoint.

    Raises:
        WorkerDied: more often than settings allow.
        EngineFault: so, where no sampler is left.
        IncompleteError: an alert ends the run, or rolls it back more often than settings allow.
    """
    restarts, is_first = 0, True
    while True:
        try:
            if not is_first:
                _begin_anew(run, workers)
            is_first = False
            run = _with_samples_of_its_own(run)
            if checkpoint:
                run.alignment.load(checkpoint.folder)
            known = load_groups(checkpoint.folder, run.alignment.items) if checkpoint else {}
            if checkpoint:
                run.stages.saved().load(checkpoint.folder)
                run.requests.load(checkpoint.folder, names_of(known))
            done = checkpoint.step if checkpoint else 0
            run.stages.begin(done)
            run_to_end(run, done=done, stop=stop, known=known)
            return
        except RollbackRequest as request:
            if (times := _num_rollbacks(run)) >= run.config.health.max_rollbacks:
                raise IncompleteError(
                    f"stopped at step {request.step} after {times} rollbacks (health.max_rollbacks) by {request.alert}"
                ) from None
            drop_checkpoints(run.folder.checkpoints, newer_than=request.newest)
            checkpoint = _newest_checkpoint(run.folder, run.config)
            to_step = checkpoint.step if checkpoint else 0
            run.log.write("rollback", request.step, {"name": request.alert.name, "to_step": to_step})
            run.say(f"{request}; going on after step {to_step} with other samples")
        except (WorkerDied, EngineFault) as death:
            if restarts == run.config.worker_restarts:
                raise
            restarts += 1
            checkpoint = _newest_checkpoint(run.folder, run.config)
            run.say(f"{death}; going on after step {checkpoint.step if checkpoint else 0} with new workers")


def _num_rollbacks(run: Run) -> int:
    """Number of rollbacks of the run, also before it was resumed."""
    return sum(event["kind"] == "rollback" for event in read_events(run.folder.path / "metrics.jsonl"))


def _with_samples_of_its_own(run: Run) -> Run:
    """`run` with another seed of its samples after each rollback: the same ones would lead to the same failure."""
    seed = (run.config.seed + _num_rollbacks(run) * ROLLBACK_SEED) % 2**63
    return replace(run, stages=replace(run.stages, seed=seed))


def _begin_anew(run: Run, workers: Workers) -> None:
    """Restart all workers, and drop what is in flight."""
    workers.restart()
    run.stages.controllers.restart()
    run.stages.length_schedule.restart()
    run.requests.restart()
    run.alignment.restart()
    run.health.go_on_from([])


def _newest_checkpoint(folder: RunFolder, config: TrainConfig) -> Checkpoint | None:
    """The newest checkpoint of a run, for the policy that the run began with."""
    inputs = _inputs(folder, config) if folder.start.is_dir() else {}
    return latest_checkpoint(folder.checkpoints, config, inputs)


def _inputs(folder: RunFolder, config: TrainConfig) -> dict[str, Any]:
    """Inputs of a checkpoint besides the settings. That of an adapter is nothing without the weights beside it."""
    frozen: dict[str, str] = {}
    if config.trainer.lora:
        frozen["frozen_weights"] = weights_digest(folder.start)
        if config.critic.path:
            frozen["frozen_critic"] = weights_digest(Path(config.critic.path))
    return policy_inputs(folder.start) | frozen


def build_stages(
    config: TrainConfig, workers: Workers, task: AnyTask, items: Sequence[TaskItem], next_turn: NextTurn | None = None
) -> Stages:
    """The three stages on `workers`, with rewards by `task`; `items` are those of training."""
    return Stages(
        actor=workers.actor,
        reference=workers.reference,
        critic=workers.critic,
        reward_model=workers.reward_model,
        sampler=workers.sampler,
        tokenizer=workers.tokenizer,
        grade=grader_of_run(config, task),
        next_turn=next_turn,
        algorithm=workers.algorithm,
        sampling=sampling_parameters(config.sampler),
        group_size=config.group_size,
        minibatches=1 if config.schedule.learns_in_parts else config.minibatches,
        seed=config.seed,
        term_weights=term_weights(config),
        task_limits=task_limits(config),
        saves_before_learning=resolve_device(config.model.device).type == "cpu",
        length_schedule_config=config.length_schedule,
        drains=config.schedule.drains,
        publisher=workers.publisher,
        sync_check=_sync_check(config, workers, items),
        publish_s=config.publish.timeout_s,
    )


def _sync_check(config: TrainConfig, workers: Workers, items: Sequence[TaskItem]) -> SyncCheck | None:
    """The comparison of trainer and samplers after each publish, on the first prompts of the run."""
    settings = config.publish.sync_check
    if settings is None:
        return None
    formats = {config.sampling_dtype, config.model.dtype, config.trainer.mixed_precision} & LIMITS.keys()
    return SyncCheck(
        [encode_prompt(workers.tokenizer, item.messages) for item in items[: settings.prompts]],
        temperature=config.sampler.temperature,
        tokens=min(settings.tokens, config.longest_trained),
        limit=settings.limit or max(LIMITS[name] for name in formats),
        deadline_s=config.publish.timeout_s,
    )


def _run(
    config: TrainConfig,
    workers: Workers,
    problems: ProblemSets,
    judge: Judge,
    task: AnyTask,
    folder: RunFolder,
    log: MetricsLog,
    stopwatch: Stopwatch,
    say: Say,
    schedule: Schedule | None,
) -> Run:
    by_all = build_task_by_all_tests(config.task, judge)
    items, heldout = items_of(task, problems.train), items_of(task, problems.heldout)
    programs = ShuffledItems(items, per_iteration=config.problems_per_step, seed=config.seed)
    context = context_for(config, folder.start)
    others = heldout_items(config, judge, workers.tokenizer, problems.heldout, context)
    next_turn = next_turn_of(task, workers.tokenizer, context, together=config.samples_repeatably)
    if config.alignment and config.alignment.evaluation_items and not others:
        say("alignment.evaluation_items: no solution of a held-out problem can be traced; nothing is measured")
    return Run(
        config=config,
        folder=folder,
        log=log,
        stages=build_stages(config, workers, task, items, next_turn),
        schedule=schedule or choose_schedule(config.schedule, config.minibatches),
        alignment=build_alignment(config, task, judge, workers.tokenizer, programs, problems.train, context=context),
        evaluate=partial(
            evaluate_during_training, config, workers, grader_of_run(config, task), heldout, next_turn=next_turn
        ),
        evaluate_others={
            name: partial(evaluate_during_training, config, workers, grader_of_run(config, task), each, whole=False)
            for name, each in others.items()
        },
        stopwatch=stopwatch,
        throughput=_throughput(config, workers, folder.start),
        health=Health(config.health),
        judge_by_all=grader_of(by_all) if by_all else None,
        say=say,
        pinned=frozenset(item.id for item in pinned(config, heldout)),
        inputs=_inputs(folder, config),
        roles={"judge": judge.state},
    )


def _throughput(config: TrainConfig, workers: Workers, model: Path) -> Throughput:
    """Counter of the speed of training; without operations where the family of the model is unknown."""
    try:
        shape = read_shape(model)
    except InputError:
        shape = None
    device = resolve_device(config.model.device)
    computing = "bfloat16" if config.trainer.mixed_precision == "bfloat16" else config.model.dtype
    peak = peak_flops(torch.cuda.get_device_name(device), computing) if device.type == "cuda" else None
    learners = {group.pool.name: len(group.nodes) for name, group in workers.groups.items() if name in LEARNERS}
    peak = peak and peak * sum(learners.values())
    of_policy = 1.0 if workers.algorithm.needs_old_log_probs else 1 - 1 / config.minibatches
    critic = shape if workers.algorithm.needs_critic and not config.critic.path else None
    passes = of_policy + (
        workers.algorithm.needs_reference and not config.teacher.path
    )  # operations of a teacher: none
    return Throughput(shape, peak, passes, critic, weights_learn=not config.trainer.lora)
