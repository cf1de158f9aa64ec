"""A reinforcement-learning run around a schedule: logging, evaluation, checkpoints, and how it ends.

The schedule yields between iterations; only there does anything here happen. Parts are handed in, nothing is chosen.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

from tqdm import tqdm

from autoclave.config import TrainConfig
from autoclave.core import Group, IncompleteError, JudgeFault
from autoclave.core.timeline import Role
from autoclave.environments import Grader
from autoclave.evaluation import Evaluation
from autoclave.planning.accounting.speed import Throughput
from autoclave.runs.folder import MetricsLog, RunFolder
from autoclave.runs.reader import read_metrics
from autoclave.runs.timeline import role_times, share_metrics
from autoclave.training.alignment.alignment import Alignment, NoAlignment
from autoclave.training.alignment.metrics import without_alignment_samples
from autoclave.training.checkpoints import Checkpoints
from autoclave.training.health import Alert, Health, RollbackRequest, overfit_to_sampled_tests
from autoclave.training.learned import Learned
from autoclave.training.metrics import RunStages, Stopwatch, describe_iteration, iteration_metrics
from autoclave.training.request_ledger import RequestLedger
from autoclave.training.saved_groups import Known
from autoclave.training.schedules import Iteration, RunProgress, Schedule
from autoclave.training.stages import Stages
from autoclave.training.watchdog import StopRequest, Watchdog


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run that its loop uses."""

    config: TrainConfig
    folder: RunFolder
    log: MetricsLog
    stages: Stages
    schedule: Schedule
    alignment: Alignment | NoAlignment
    """Items of a run: programs, and alignment samples if there are any."""
    evaluate: Callable[[int, bool], Evaluation]
    """`(step, whole)`: on all held-out problems, or on the pinned few."""
    stopwatch: Stopwatch
    throughput: Throughput
    health: Health
    judge_by_all: Grader | None
    """The reward by all tests of a problem, where training samples some; else None."""
    say: Callable[[str], None]
    pinned: frozenset[str] = frozenset()
    """Ids of the held-out problems of every evaluation, which checkpoints are compared by; empty: all."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Inputs of a checkpoint besides the settings; see `policy_inputs`."""
    evaluate_others: Mapping[str, Callable[[int], Evaluation]] = field(
        default_factory=dict[str, Callable[[int], Evaluation]]
    )
    """By the name of a task, the same after a step on other held-out items."""
    requests: RequestLedger = field(default_factory=RequestLedger)
    """Ledger of all requests."""
    roles: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    """By name, what others say that they do, as the judge; for the watchdog."""


def run_to_end(run: Run, *, done: int, stop: StopRequest, known: Known | None = None) -> None:
    """Go on from `done` iterations to `config.steps`, with what is `known` of the batches of the next ones.

    Raises IncompleteError: a stop was requested; a checkpoint of the last iteration is there. JudgeFault: too many
    rollouts of an iteration have no verdict; the checkpoints before it are there.
    """
    config = run.config
    if done >= config.steps:
        return
    timeline = run.stages.timeline
    if done == 0:
        timeline.begin(0)
        evaluate_and_record(run, 0)
        run.alignment.begin_run()
        run.folder.write_timeline(timeline.recorded())
    else:
        rows = read_metrics(run.folder.path / "metrics.jsonl")["train"]
        run.health.go_on_from([row for row in rows if row["step"] <= done])
    progress = tqdm(total=config.steps, initial=done, desc="RL", unit="step", disable=None, dynamic_ncols=True)
    state = run.stages.saved(run.requests, run.alignment)
    checkpoints = Checkpoints(run.folder.checkpoints, config, state, run.inputs)

    def before_learning(groups: Sequence[Group]) -> None:
        run.alignment.begin(groups)
        if run.stages.saves_before_learning:
            checkpoints.finish()

    stages = RunStages(run.stages, run.requests, before_learning, timeline=timeline)
    with closing(run.requests), watch_over(run, stages, progress, stop), progress, checkpoints:
        timeline.begin(done + 1)
        started = time.monotonic()
        run_progress = RunProgress(done, config.steps, known or {})
        for step, iteration in enumerate(run.schedule(stages, run.alignment.items, run_progress), start=done + 1):
            alignment_samples = run.alignment.settle(step, iteration.ahead.keys(), iteration.learned.groups)
            timeline.end()
            checkpoints.finish(wait=False)
            run.requests.check(iteration.ahead.values())
            spent = stages.stopwatch.take() | {"step": time.monotonic() - started}
            run.stopwatch.seconds["rl"] += spent["step"]
            metrics = measured(run, step, iteration, spent) | alignment_samples
            pausing = record_iteration(run, step, iteration.learned, metrics)
            lengthen(run, step, iteration.learned)
            progress.set_postfix_str(describe_iteration(metrics), refresh=False)
            progress.update()
            is_stopped = stop.is_made or bool(pausing)
            evaluate_and_save(run, step, iteration, checkpoints, is_stopped=is_stopped)
            if step == config.steps:
                return
            if is_stopped:
                why = f"paused by {pausing}, " if pausing else "stopped "
                raise IncompleteError(f"{why}after step {step} of {config.steps}; go on with --resume")
            timeline.begin(step + 1)
            started = time.monotonic()


def watch_over(run: Run, stages: RunStages, progress: Any, stop: StopRequest) -> Watchdog:
    def driver() -> str:
        doing = [*run.stopwatch.running, *stages.stopwatch.running]
        return f"step {progress.n + 1} of {run.config.steps}: {', '.join(doing)}"

    roles = {"driver": driver, "samplers": run.stages.sampler.state, "collections": run.requests.state, **run.roles}
    say, path = run.say, run.folder.path
    return Watchdog(path, roles, stop.end_run, patience_s=run.config.watchdog_s, say=say)


def measured(run: Run, step: int, iteration: Iteration, spent: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an iteration, by its parts; `spent` are seconds by name."""
    learned, timeline = iteration.learned, run.stages.timeline
    metrics = iteration_metrics(iteration.times, learned) | dict(iteration.published)
    metrics |= {f"time/{name}_s": seconds for name, seconds in spent.items()}
    metrics |= run.throughput.metrics(learned.computed, spent.get("learn", 0.0))
    metrics |= share_metrics(role_times(timeline.all_spans(), timeline.recorded().window))
    metrics |= judged_by_all(run, step, learned)
    metrics |= {f"requests/{name}": float(count) for name, count in run.requests.counts().items()}
    metrics |= run.stages.length_schedule.metrics(without_alignment_samples(learned.groups))
    return metrics


def record_iteration(run: Run, step: int, learned: Learned, metrics: Mapping[str, float]) -> Alert | None:
    """Write metrics, rollouts, timeline and alerts of an iteration.

    Returns:
        The alert that pauses the run, if one does.

    Raises:
        JudgeFault: too many rollouts have no verdict.
        IncompleteError: an alert stops the run, or rolls it back (`RollbackRequest`).
    """
    run.log.write("train", step, metrics)
    run.folder.write_rollouts(step, learned.groups, [asdict(entry) for entry in learned.ledger], learned.log_probs)
    run.folder.write_timeline(run.stages.timeline.recorded())
    alerts = run.health.observe(metrics)
    for alert in alerts:
        run.log.write("alert", step, asdict(alert) | {"action": alert.action(run.config.health)})
        run.say(f"step {step:>4}  alert: {alert}")
    if metrics["no_verdict_share"] > run.config.no_verdict_limit:
        raise JudgeFault(
            f"step {step}: {metrics['no_verdict_share']:.0%} of the rollouts have no verdict, more than "
            f"no_verdict_limit = {run.config.no_verdict_limit:.0%}. Causes: {_fault_causes(learned.groups)}"
        )
    return act_on(alerts, step, run.config)


def act_on(alerts: Sequence[Alert], step: int, config: TrainConfig) -> Alert | None:
    """Return the alert that pauses the run, if one does; one that stops it or rolls it back comes before.

    Raises IncompleteError: an alert stops the run, or rolls it back (`RollbackRequest`).
    """
    first = {alert.action(config.health): alert for alert in reversed(alerts)}
    if stops := first.get("stop"):
        raise IncompleteError(f"stopped at step {step} of {config.steps} by {stops}")
    if rolls := first.get("rollback"):
        raise RollbackRequest(step, rolls)
    return first.get("pause")


def evaluate_and_save(run: Run, step: int, iteration: Iteration, checkpoints: Checkpoints, *, is_stopped: bool) -> None:
    """Evaluate and save if that is due after `step`; the checkpoint with which a run ends is waited for."""
    config, timeline, score = run.config, run.stages.timeline, None
    is_end = is_stopped or step == config.steps
    is_evaluated = step == config.steps or bool(config.evaluation.every and step % config.evaluation.every == 0)
    is_saved = is_end or step % config.checkpoint.every == 0
    if is_evaluated:
        score = evaluate_and_record(run, step).pass_at_1_of(run.pinned)
    if is_saved:
        with run.stopwatch.time("checkpoint"), timeline.time(Role.CHECKPOINT, f"step {step}"):
            checkpoints.begin(step, run.stopwatch.so_far(), score, iteration.known())
            if is_end:
                checkpoints.finish()
    if is_evaluated or is_saved:
        run.folder.write_timeline(timeline.recorded())  # again, with what was done since the barrier


def lengthen(run: Run, step: int, learned: Learned) -> None:
    """Decide whether batches that are begun from now on may have longer responses, and say so if they may."""
    limit = run.stages.length_schedule.advance(step, without_alignment_samples(learned.groups))
    if limit is not None:
        stage, all_stages = run.stages.length_schedule.state.stage + 1, len(run.stages.length_schedule.limits)
        run.log.write("length_schedule", step, {"stage": stage, "max_new_tokens": limit})
        run.say(f"step {step:>4}  stage {stage} of {all_stages}: responses of up to {limit} tokens from now on")


def judged_by_all(run: Run, step: int, learned: Learned) -> dict[str, float]:
    """Every so many steps, whether programs that the sampled tests accept hold on the others too."""
    every = run.config.health.overfit_every
    if run.judge_by_all is None or not every or step % every:
        return {}
    with run.stopwatch.time("judging_by_all"):
        return overfit_to_sampled_tests(without_alignment_samples(learned.groups), run.judge_by_all)


def _fault_causes(groups: Sequence[Group]) -> str:
    faults = Counter(
        f"{rollout.reward.verdict.fault.kind}: {rollout.reward.verdict.fault.detail}"
        for group in groups
        for rollout in group.rollouts
        if rollout.reward.verdict is not None and rollout.reward.verdict.fault is not None
    )
    return "; ".join(f"{cause} ({count}x)" for cause, count in faults.most_common(3))


def evaluate_and_record(run: Run, step: int) -> Evaluation:
    """Evaluate the published policy: whole before and after training, on the pinned few in between."""
    whole = step in (0, run.config.steps)
    with run.stopwatch.time("evaluation"), run.stages.timeline.time(Role.EVALUATION, f"step {step}", whole=whole):
        evaluation = run.evaluate(step, whole)
        others = {name: evaluate(step) for name, evaluate in run.evaluate_others.items()}
    metrics = evaluation.to_metrics()
    run.log.write("evaluation", step, {"split": "heldout", **metrics})
    for name, other in others.items():
        run.log.write(f"evaluation/{name}", step, other.to_metrics())
    run.folder.write_evaluation(step, evaluation.to_json())
    run.say(
        f"step {step:>4}  held-out pass@1 {metrics['pass@1']:.3f} [{metrics['pass@1/low']:.3f}, "
        f"{metrics['pass@1/high']:.3f}]  greedy {metrics['greedy']:.3f}  "
        f"pass@{evaluation.samples} {metrics[f'pass@{evaluation.samples}']:.3f}  ({metrics['problems']} problems)"
    )
    if others:
        run.say(f"step {step:>4}  " + "  ".join(f"{name} {other.pass_at_1:.3f}" for name, other in others.items()))
    return evaluation
