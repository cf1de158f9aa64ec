"""The composition root: builds judge, sampler and workers from a configuration. The only place that chooses.

Everything heavy is imported inside the functions that need it, so that judging never loads a tensor library.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoclave import __version__
from autoclave.config import CurriculumConfig, JudgeConfig, ModelConfig, SamplerConfig, SandboxConfig, TrainConfig, dump
from autoclave.core import ConfigError, InputError, IsolationError, TaskItem, WorkerDied, read_problems
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
    from autoclave.training.checkpoints import Checkpoint
    from autoclave.training.interrupt import StopRequest
    from autoclave.training.run_folder import MetricsLog, RunFolder
    from autoclave.training.schedules import Schedule
    from autoclave.training.stages import Stages
    from autoclave.training.timing import Stopwatch
    from autoclave.training.train import Run
    from autoclave.workers import ResourcePool, WorkerGroup
    from autoclave.workers.sampler import SamplerWorker
    from autoclave.workers.trainer import ActorWorker, NoReference, ReferenceWorker, SharedReference

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
    from autoclave.workers import ResourcePool, WorkerGroup
    from autoclave.workers.trainer import ActorWorker

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


@contextmanager
def open_pools(config: TrainConfig) -> Generator[dict[str, ResourcePool]]:
    """The resource pools of a configuration, by name; their workers end with the block.

    Raises:
        ConfigError: a worker group cannot live where the settings put it.
        HostError: a pool asks for more than there is; the message names what is missing.
    """
    from autoclave.algorithms import build_algorithm
    from autoclave.models import resolve_device
    from autoclave.workers import open_pools

    if config.algorithm.needs_critic:
        raise ConfigError(
            f"algorithm.name = {config.algorithm.name}: reads the values of a critic, and no worker trains "
            "one yet; choose an algorithm that needs none, as docs/algorithms/index.md lists them"
        )
    workers, actors = config.workers, config.pools[config.workers.actor].processes
    if actors > 1:
        raise ConfigError(
            f"pools.{workers.actor}.processes = {actors}: the actor is not sharded, and runs in one process; "
            "set workers.actor to a pool of one"
        )
    if workers.reference and not build_algorithm(config.algorithm).needs_reference:
        raise ConfigError(
            f"workers.reference = {workers.reference!r}: {config.algorithm.name} has no KL term here, so there is no "
            "reference; remove it"
        )
    has_devices = resolve_device(config.model.device).type == "cuda"
    pools = open_pools(config.pools, devices_per_process=1 if has_devices else 0)
    try:
        yield pools
    finally:
        for pool in pools.values():
            pool.close()


class Workers:
    """The worker groups of a configuration, with the policy of one folder on all but the reference."""

    def __init__(
        self,
        config: TrainConfig,
        model: Path,
        *,
        start: Path | None = None,
        adapter: Path | None = None,
        pools: Mapping[str, ResourcePool] | None = None,
    ) -> None:
        """Start them with the policy in folder `model`; the reference is that in `start`, or the same.

        With `trainer.lora` the actor has the weights in `start`, and the adapter in folder `adapter` or a new one.
        They run on `pools`, or on pools of their own.

        Raises:
            ConfigError, HostError: as `open_pools`.
            InputError: `model` is not the folder of a policy.
        """
        from autoclave.algorithms import build_algorithm
        from autoclave.models import load_tokenizer

        self._config = config
        self.algorithm = build_algorithm(config.algorithm)
        self.tokenizer = load_tokenizer(model)
        with ExitStack() as opened:
            self._start(pools or opened.enter_context(open_pools(config)), model, start or model, adapter)
            self._opened = opened.pop_all()

    def _start(self, pools: Mapping[str, ResourcePool], model: Path, start: Path, adapter: Path | None) -> None:
        from autoclave.workers import WorkerGroup

        config, places = self._config, self._config.workers.places()
        self._frozen = start
        self.actor: WorkerGroup[ActorWorker] = WorkerGroup(
            pools[places["actor"]], self._actor_factory(model, adapter), name="actor"
        )
        self.reference = self._choose_reference(pools[places["reference"]], start)
        self.sampler: WorkerGroup[SamplerWorker] = WorkerGroup(
            pools[places["sampler"]], partial(_make_sampler, config, model), name="sampler"
        )

    def _choose_reference(
        self, pool: ResourcePool, start: Path
    ) -> WorkerGroup[ReferenceWorker] | SharedReference | NoReference:
        from autoclave.workers import WorkerGroup
        from autoclave.workers.trainer import NoReference, SharedReference

        if not self.algorithm.needs_reference:
            return NoReference()
        if self._config.trainer.lora:
            return SharedReference(self.actor)
        return WorkerGroup(pool, partial(_make_reference, self._config, start), name="reference")

    def _actor_factory(self, model: Path, adapter: Path | None) -> Callable[[], ActorWorker]:
        if self._config.trainer.lora is None:
            return partial(_make_actor, self._config, model)
        return partial(_make_actor, self._config, self._frozen, adapter)

    def restart(self, model: Path, adapter: Path | None = None) -> None:
        """Make all workers anew, with the policy in folder `model`; the reference is the one that it was."""
        from autoclave.workers import WorkerGroup

        restarts = [
            self.actor.restart(self._actor_factory(model, adapter)),
            self.sampler.restart(partial(_make_sampler, self._config, model)),
        ]
        if isinstance(self.reference, WorkerGroup):
            restarts.append(self.reference.restart())
        for restart in restarts:
            restart.result()

    def close(self) -> None:
        """End all workers, unless that is left to whoever opened the pools."""
        self._opened.close()


# Workers are made where they run, which may be in another process: by functions that can be imported there.


def _make_actor(config: TrainConfig, model: Path, adapter: Path | None = None) -> ActorWorker:
    from autoclave.algorithms import build_algorithm
    from autoclave.models import load_adapter, with_adapter
    from autoclave.workers.trainer import ActorWorker

    policy = _load(config, model)
    if config.trainer.lora:
        with_adapter(policy.model, config.trainer.lora, seed=config.seed)
        if adapter:
            load_adapter(policy.model, adapter)
    return ActorWorker(
        policy,
        build_algorithm(config.algorithm),
        config.optimizer,
        total_steps=config.steps * config.minibatches,
        temperature=config.sampler.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
    )


def _make_reference(config: TrainConfig, model: Path) -> ReferenceWorker:
    from autoclave.workers.trainer import ReferenceWorker

    return ReferenceWorker(
        _load(config, model),
        temperature=config.sampler.temperature,
        micro_batch_tokens=config.micro_batch_tokens,
    )


def _make_sampler(config: TrainConfig, model: Path) -> SamplerWorker:
    from autoclave.rollout import TransformersEngine
    from autoclave.workers.sampler import SamplerWorker

    return SamplerWorker(TransformersEngine(_load(config, model), batch_size=config.sampler.engine.batch_size))


def _load(config: TrainConfig, folder: Path) -> Policy:
    from autoclave.models import load_policy

    own = [pool.processes for pool in config.pools.values() if pool.executor != "inline"]
    _settle_libraries(config.model, processes=sum(own) + (len(own) < len(config.pools)))
    return load_policy(folder, dtype=config.model.dtype, device=config.model.device)


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
    require_usable_models(config, existing, checkpoint)  # before anything is written
    with (
        build_judge(config.judge, config.sandbox) as judge,
        open_pools(config) as pools,
        StopRequest() as stop,
        stopwatch.time("total"),
    ):
        problems = ProblemSets(config)
        folder = existing or RunFolder.create(out)
        folder.write_config(dump(config))
        say(
            f"run {folder.path}: {len(problems.train)} problems to learn from, {len(problems.heldout)} held out; "
            f"programs run {judge.level}"
        )
        log = MetricsLog(folder)
        try:
            if checkpoint:
                say(f"resuming {out} after step {checkpoint.step} of {config.steps}")
                stopwatch.seconds.update(checkpoint.seconds)
            elif resume:
                say(f"{out} has no checkpoint yet: starting from the beginning")
            with stopwatch.time("sft"):
                if not folder.start.is_dir():
                    folder.keep_start(_warm_started(config, problems, log, say, stop, fresh=fresh))
            model = checkpoint.model if checkpoint else folder.start
            adapter = checkpoint.adapter if checkpoint else None
            workers = Workers(config, model, start=folder.start, adapter=adapter, pools=pools)
            run = _run(config, workers, problems, judge, folder, log, stopwatch, say, schedule)
            for restarts_left in range(config.worker_restarts, -1, -1):
                try:
                    if checkpoint:
                        workers.actor.load_optimizer(checkpoint.folder).result()
                        run.stages.adaptation.load(checkpoint.folder)
                        run.stages.publish(checkpoint.step)
                    run_to_end(run, done=checkpoint.step if checkpoint else 0, stop=stop)
                    break
                except WorkerDied as death:
                    if not restarts_left:
                        raise
                    checkpoint = latest_checkpoint(folder.checkpoints, config)
                    say(f"{death}; going on after step {checkpoint.step if checkpoint else 0} with new workers")
                    model = checkpoint.model if checkpoint else folder.start
                    workers.restart(model, checkpoint.adapter if checkpoint else None)
                    run.stages.adaptation.begin_anew()
                    run.health.go_on_from([])
        finally:
            log.close()
    summary = summarise(config, folder, stopwatch.seconds, problems.heldout_description, judge.level)
    folder.write_summary(summary)
    say(describe(summary))
    say(f"report: {write_report(folder.path)}")
    return summary


def require_usable_models(config: TrainConfig, existing: RunFolder | None, checkpoint: Checkpoint | None) -> None:
    """Find out, before weights are loaded, whether the models of a run fit each other and the settings.

    Raises:
        InputError: the policy cannot be used, or a checkpoint is of another model than the run.
    """
    from autoclave.models import (
        load_architecture,
        load_tokenizer,
        require_same_architecture,
        require_same_tokens,
        require_targets,
        tiny_architecture,
    )

    path, tiny = config.model.path, config.model.tiny
    architecture = load_architecture(path) if path else tiny_architecture(tiny, tiny.vocabulary)
    if path:
        load_tokenizer(path)
    if config.trainer.lora:
        require_targets(architecture, config.trainer.lora)
    if existing and checkpoint:
        mend = "put the model back that was there, or start another run with --out"
        for other in (str(existing.start), *([path] if path else [])):
            require_same_architecture(
                load_architecture(checkpoint.model),
                load_architecture(other),
                place=str(checkpoint.model),
                against=f"that of {other}, which the run began with",
                mend=mend,
            )
            tokenizers = load_tokenizer(other), load_tokenizer(checkpoint.model)
            require_same_tokens(*tokenizers, place=other, mend=mend)


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
    return Throughput(
        shape, peak, scoring_passes=2 if workers.algorithm.needs_reference else 1, weights_learn=not config.trainer.lora
    )


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
    from autoclave.workers.sampler import WorkerSampler

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


def _settle_libraries(config: ModelConfig, *, processes: int = 1) -> None:
    """Set what libraries keep per process; `processes` share the cores of a machine."""
    import torch
    from transformers.utils import logging

    torch.set_num_threads(config.threads or max(1, len(os.sched_getaffinity(0)) // processes))
    logging.disable_progress_bar()  # one line per file read or written says nothing to our users
