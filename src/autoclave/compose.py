"""The composition root: builds judge, sampler and workers from a configuration. The only place that chooses.

Everything heavy is imported inside the functions that need it, so that judging never loads a tensor library.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoclave import __version__
from autoclave.config import CurriculumConfig, JudgeConfig, ModelConfig, SamplerConfig, SandboxConfig, TrainConfig, dump
from autoclave.core import InputError, IsolationError, TaskItem, read_problems
from autoclave.core.files import write_atomically
from autoclave.judge import Judge, LocalJudge, examine_languages
from autoclave.problems import Demonstration, ProblemSets
from autoclave.sandbox import HostCheck, examine_backends, open_sandbox
from autoclave.sandbox import examine_host as list_host_checks

if TYPE_CHECKING:
    from autoclave.evaluation import Evaluation
    from autoclave.models import Policy
    from autoclave.rollout import SamplingParameters
    from autoclave.tasks import CodeGeneration
    from autoclave.training.accounting import Throughput
    from autoclave.training.interrupt import StopRequest
    from autoclave.training.run_folder import MetricsLog, RunFolder
    from autoclave.training.schedules import Schedule
    from autoclave.training.stages import Stages
    from autoclave.training.timing import Stopwatch
    from autoclave.training.train import Run

# Threads that spin while they wait make two busy processes on two cores many times slower. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

Say = Callable[[str], None]

EVALUATION = 1
"""Fourth number of the seeds of evaluation, so that they differ from those of training."""


def build_judge(judge: JudgeConfig, sandbox: SandboxConfig) -> Judge:
    """The judge that the settings describe.

    Raises:
        IsolationError: this host cannot give the level of isolation asked for.
    """
    return LocalJudge(sandbox, judge)


def examine_host(config: SandboxConfig, judge: JudgeConfig) -> tuple[list[HostCheck], str | None, str]:
    """What this host offers: the checks, the level of isolation that results, and why none does."""
    checks = [*list_host_checks(), *examine_backends(config), *examine_languages(judge)]
    try:
        sandbox = open_sandbox(config)
    except IsolationError as error:
        return checks, None, str(error)
    level = sandbox.level
    sandbox.close()
    return checks, level, ""


# --- Warm start ----------------------------------------------------------------------------------------------------


def warm_start(
    config: TrainConfig, problems: ProblemSets, folder: Path, log: MetricsLog | None, say: Say, stop: StopRequest
) -> None:
    """Build or load the policy, fine-tune it on demonstrations as `config.sft` says, and write it to `folder`.

    Raises:
        ConfigError: there is nothing to imitate.
        IncompleteError: a stop was requested; nothing was written.
    """
    from autoclave.algorithms import supervised
    from autoclave.models import save_policy
    from autoclave.training.sft import encode_demonstrations, fine_tune, report_progress
    from autoclave.workers import ActorWorker, ResourcePool, WorkerGroup

    sft = config.sft
    demonstrations = problems.demonstrations() if _imitates(config) else []
    policy = _initial_policy(config, demonstrations)
    if sft.steps:
        sequences = encode_demonstrations(policy, demonstrations)
        pool = ResourcePool("sft")
        try:
            actor = WorkerGroup(
                pool,
                lambda: ActorWorker(
                    policy,
                    supervised(),
                    sft.optimizer,
                    total_steps=sft.steps,
                    temperature=1.0,
                    micro_batch_tokens=config.micro_batch_tokens,
                ),
            )
            with report_progress(sft.steps, log, say, stop) as on_step:
                fine_tune(
                    actor, sequences, steps=sft.steps, batch_size=sft.batch_size, seed=config.seed, on_step=on_step
                )
        finally:
            pool.close()
    save_policy(policy, folder)


def _imitates(config: TrainConfig) -> bool:
    """Demonstrations are needed: for the warm start, or for the tokenizer of the embedded model."""
    return bool(config.sft.steps or not config.model.path)


def _initial_policy(config: TrainConfig, demonstrations: Sequence[Demonstration]) -> Policy:
    from autoclave.models import build_tiny_policy, load_policy

    if config.model.path:
        return load_policy(config.model.path, dtype=config.model.dtype, device=config.model.device)
    texts = (
        f"{message['content']}\n{demonstration.response}"
        for demonstration in demonstrations
        for message in demonstration.messages
    )
    return build_tiny_policy(config.model.tiny, texts, seed=config.seed, device=config.model.device)


def fine_tune(config: TrainConfig, out: Path, *, say: Say = print, problems: ProblemSets | None = None) -> None:
    """The warm start alone: a policy in Hugging Face form in the folder `out`.

    `problems` are used in place of those that the settings name; for experiments.

    Raises:
        InputError: `out` exists and is not an empty folder.
    """
    from autoclave.training.interrupt import StopRequest

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out}: exists already; give a new folder")
    _settle_libraries(config.model)
    with StopRequest() as stop:
        warm_start(config, problems or ProblemSets(config), out, None, say, stop)
    say(f"model: {out}")


def _warm_started(
    config: TrainConfig, problems: ProblemSets, log: MetricsLog, say: Say, stop: StopRequest, *, fresh: bool
) -> Path:
    """Folder of the warm-started policy; made if it is not in the cache, or if `fresh`."""
    from autoclave.training.model_cache import cached_model

    decides = ("seed", "problems", "model", "sft", "micro_batch_tokens")
    key = {name: value for name, value in config.model_dump(mode="json").items() if name in decides}
    key["version"] = __version__
    if not isinstance(config.problems, CurriculumConfig) and _imitates(config):
        key["demonstrations"] = problems.demonstrations()
    return cached_model(key, lambda folder: warm_start(config, problems, folder, log, say, stop), fresh=fresh, say=say)


# --- Training ------------------------------------------------------------------------------------------------------


class Workers:
    """The pools and worker groups of a configuration, with the policy of one folder on all but the reference."""

    def __init__(self, config: TrainConfig, model: Path, *, start: Path | None = None) -> None:
        """Start them with the policy in folder `model`; the reference is that in `start`, or the same.

        Raises:
            ConfigError: a pool cannot be had as configured.
            InputError: `model` is not the folder of a policy.
        """
        from autoclave.algorithms import build_algorithm
        from autoclave.models import load_tokenizer
        from autoclave.workers import ResourcePool

        self.algorithm = build_algorithm(config.algorithm)
        self.tokenizer = load_tokenizer(model)
        self._pools = {name: ResourcePool(name, devices=pool.devices) for name, pool in config.pools.items()}
        try:
            self._start(config, model, start or model)
        except BaseException:
            self.close()
            raise

    def _start(self, config: TrainConfig, model: Path, start: Path) -> None:
        from autoclave.models import load_policy
        from autoclave.rollout import TransformersEngine
        from autoclave.workers import ActorWorker, NoReference, ReferenceWorker, SamplerWorker, WorkerGroup

        def policy(folder: Path) -> Policy:
            return load_policy(folder, dtype=config.model.dtype, device=config.model.device)

        place = {worker: self._pools[name] for name, pool in config.pools.items() for worker in pool.workers}
        scoring = {"temperature": config.sampler.temperature, "micro_batch_tokens": config.micro_batch_tokens}
        self.actor = WorkerGroup(
            place["actor"],
            lambda: ActorWorker(
                policy(model),
                self.algorithm,
                config.optimizer,
                total_steps=config.steps * config.minibatches,
                **scoring,
            ),
        )
        self.reference = (
            WorkerGroup(place["actor"], lambda: ReferenceWorker(policy(start), **scoring))
            if self.algorithm.needs_reference
            else NoReference()
        )
        self.sampler = WorkerGroup(
            place["sampler"],
            lambda: SamplerWorker(TransformersEngine(policy(model), batch_size=config.sampler.engine.batch_size)),
        )

    def close(self) -> None:
        """End the threads of all pools."""
        for pool in self._pools.values():
            pool.close()


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
        config: the settings.
        out: the run's folder.
        resume: go on from the newest checkpoint in `out`.
        fresh: do the warm start anew even if the cache has it.
        say: receives the lines a user should see.
        schedule: in place of the configured one; for experiments.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        AutoclaveError: see the tree of errors; bad input is found before any work.
    """
    from autoclave.models import load_tokenizer
    from autoclave.training.checkpoints import latest_checkpoint
    from autoclave.training.interrupt import StopRequest
    from autoclave.training.report import write_report
    from autoclave.training.run_folder import MetricsLog, RunFolder
    from autoclave.training.summary import describe, summarise
    from autoclave.training.timing import Stopwatch
    from autoclave.training.train import run_to_end

    _settle_libraries(config.model)
    stopwatch = Stopwatch()
    existing = RunFolder.existing(out) if resume else None
    checkpoint = latest_checkpoint(existing.checkpoints, config) if existing else None
    if config.model.path:
        load_tokenizer(config.model.path)  # a wrong path is found before anything is written
    with build_judge(config.judge, config.sandbox) as judge, StopRequest() as stop, stopwatch.time("total"):
        problems = ProblemSets(config)
        folder = existing or RunFolder.create(out)
        folder.write_config(dump(config))
        say(
            f"run {folder.path}: {len(problems.train)} problems to learn from, {len(problems.heldout)} held out; "
            f"programs run {judge.level}"
        )
        log = MetricsLog(folder)
        workers = None
        try:
            if checkpoint:
                say(f"resuming {out} after step {checkpoint.step} of {config.steps}")
                stopwatch.seconds.update(checkpoint.seconds)
            elif resume:
                say(f"{out} has no checkpoint yet: starting from the beginning")
            with stopwatch.time("sft"):
                if not folder.start.is_dir():
                    folder.keep_start(_warm_started(config, problems, log, say, stop, fresh=fresh))
            workers = Workers(config, checkpoint.model if checkpoint else folder.start, start=folder.start)
            if checkpoint:
                workers.actor.load_optimizer(checkpoint.folder).result()
            run = _run(config, workers, problems, judge, folder, log, stopwatch, say, schedule)
            if checkpoint:
                run.stages.publish(checkpoint.step)
            run_to_end(run, done=checkpoint.step if checkpoint else 0, stop=stop)
        finally:
            log.close()
            if workers:
                workers.close()
    summary = summarise(config, folder, stopwatch.seconds, problems.heldout_description, judge.level)
    folder.write_summary(summary)
    say(describe(summary))
    say(f"report: {write_report(folder.path)}")
    return summary


def build_stages(config: TrainConfig, workers: Workers, task: CodeGeneration) -> Stages:
    """The three stages on `workers`, with rewards by `task`."""
    from autoclave.training.stages import Stages

    return Stages(
        actor=workers.actor,
        reference=workers.reference,
        sampler=workers.sampler,
        tokenizer=workers.tokenizer,
        reward=task.reward,
        algorithm=workers.algorithm,
        sampling=_sampling(config.sampler),
        group_size=config.group_size,
        minibatches=config.minibatches,
        seed=config.seed,
    )


def _run(
    config: TrainConfig,
    workers: Workers,
    problems: ProblemSets,
    judge: Judge,
    folder: RunFolder,
    log: MetricsLog,
    stopwatch: Stopwatch,
    say: Say,
    schedule: Schedule | None,
) -> Run:
    from autoclave.tasks import CodeGeneration
    from autoclave.training.health import Health
    from autoclave.training.items import ItemSource
    from autoclave.training.schedules import choose_schedule
    from autoclave.training.train import Run

    task = CodeGeneration(judge, config.task)
    items = [task.item(problem) for problem in problems.train]
    heldout = [task.item(problem) for problem in problems.heldout]
    by_all = CodeGeneration(judge, config.task.model_copy(update={"tests": "all", "reward": "binary"}))
    return Run(
        config=config,
        folder=folder,
        log=log,
        stages=build_stages(config, workers, task),
        schedule=schedule or choose_schedule(config.schedule),
        items=ItemSource(items, per_iteration=config.problems_per_step, seed=config.seed),
        evaluate=partial(evaluate_during_training, config, workers, task, heldout),
        stopwatch=stopwatch,
        throughput=_throughput(config, workers, folder.start),
        health=Health(config.health),
        judge_by_all=None if config.task.tests == "all" else by_all.reward,
        say=say,
    )


def _throughput(config: TrainConfig, workers: Workers, model: Path) -> Throughput:
    """How the speed of learning is counted; without operations where the family of the model is unknown."""
    import torch

    from autoclave.models import resolve_device
    from autoclave.training.accounting import Throughput, peak_flops, read_shape

    try:
        shape = read_shape(model)
    except InputError:
        shape = None
    device = resolve_device(config.model.device)
    peak = peak_flops(torch.cuda.get_device_name(device), config.model.dtype) if device.type == "cuda" else None
    return Throughput(shape, peak, scoring_passes=2 if workers.algorithm.needs_reference else 1)


def evaluate_during_training(
    config: TrainConfig, workers: Workers, task: CodeGeneration, heldout: Sequence[TaskItem], step: int, whole: bool
) -> Evaluation:
    """Evaluate what the sampler holds at temperature 1: on all of `heldout`, or on the same few of it each time."""
    from autoclave.rollout import SamplingParameters

    settings = config.evaluation
    return _evaluate(
        workers,
        task,
        heldout if whole or not settings.problems else _pinned(heldout, settings.problems),
        SamplingParameters(1.0, 1.0, config.sampler.max_new_tokens, config.sampler.stops),
        samples=settings.final_samples if whole else settings.samples,
        seed=(config.seed, step, EVALUATION),
    )


def _pinned(items: Sequence[TaskItem], count: int) -> Sequence[TaskItem]:
    """The same `count` items for every run and seed, spread over all of `items`."""
    return random.Random("pinned").sample(items, min(count, len(items)))


def evaluate(
    config: TrainConfig, model: Path, *, problems: Path | None, samples: int | None, out: Path | None
) -> dict[str, Any]:
    """Measure the policy in folder `model` on held-out problems, or on those of a file.

    Returns:
        The figures, as in metrics files. With `out`, that file gets them and the result of every problem.

    Raises:
        InputError: the model or the problem file cannot be used.
    """
    from autoclave.rollout import SamplingParameters
    from autoclave.tasks import CodeGeneration

    _settle_libraries(config.model)
    asked = list(read_problems(problems)) if problems else ProblemSets(config).heldout
    with build_judge(config.judge, config.sandbox) as judge:
        task = CodeGeneration(judge, config.task)
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
    task: CodeGeneration,
    items: Sequence[TaskItem],
    parameters: SamplingParameters,
    *,
    samples: int,
    seed: tuple[int, ...],
) -> Evaluation:
    from autoclave.evaluation import evaluate
    from autoclave.models import encode_prompt
    from autoclave.workers import WorkerSampler

    return evaluate(
        items,
        sampler=WorkerSampler(workers.sampler),
        reward=task.reward,
        encode=lambda item: encode_prompt(workers.tokenizer, item.messages),
        family=lambda item: item.payload.tags[0] if item.payload.tags else "all",
        parameters=parameters,
        samples=samples,
        with_greedy=True,
        seed=seed,
    )


def _sampling(config: SamplerConfig) -> SamplingParameters:
    from autoclave.rollout import SamplingParameters

    return SamplingParameters(config.temperature, config.top_p, config.max_new_tokens, config.stops)


def _settle_libraries(config: ModelConfig) -> None:
    import torch
    from transformers.utils import logging

    torch.set_num_threads(config.threads or len(os.sched_getaffinity(0)))
    logging.disable_progress_bar()  # one line per file read or written says nothing to our users
