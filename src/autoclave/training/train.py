"""A reinforcement-learning run around a schedule: logging, evaluation, checkpoints, and how it ends.

The schedule yields between iterations; only there does anything here happen. Parts are handed in, nothing is chosen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from autoclave.config import TrainConfig
from autoclave.core import Group, IncompleteError, JudgeFault
from autoclave.core.timeline import Role
from autoclave.evaluation import Evaluation
from autoclave.rollout import RewardFunction
from autoclave.training.accounting import Throughput
from autoclave.training.checkpoints import Checkpoints
from autoclave.training.health import Health, overfit_to_sampled_tests
from autoclave.training.interrupt import StopRequest
from autoclave.training.items import ItemSource
from autoclave.training.learned import Learned
from autoclave.training.metrics import describe_iteration, iteration_metrics
from autoclave.training.pages.run_folder import read_metrics
from autoclave.training.request_ledger import AccountedStages, RequestLedger
from autoclave.training.run_folder import MetricsLog, RunFolder
from autoclave.training.saved_groups import Known
from autoclave.training.schedules import Course, Schedule
from autoclave.training.stages import Stages
from autoclave.training.timeline import role_times, share_metrics
from autoclave.training.timing import Stopwatch, TimedStages
from autoclave.training.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run that its loop uses."""

    config: TrainConfig
    folder: RunFolder
    log: MetricsLog
    stages: Stages
    schedule: Schedule
    items: ItemSource
    evaluate: Callable[[int, bool], Evaluation]
    """`(step, whole)`: on all held-out problems, or on the pinned few."""
    stopwatch: Stopwatch
    throughput: Throughput
    health: Health
    judge_by_all: RewardFunction | None
    """The reward by all tests of a problem, where training samples some; else None."""
    say: Callable[[str], None]
    pinned: frozenset[str] = frozenset()
    """Ids of the held-out problems of every evaluation, which checkpoints are compared by; empty: all."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What a checkpoint is of besides the settings; see `policy_inputs`."""
    requests: RequestLedger = field(default_factory=RequestLedger)
    """What became of all that was asked."""
    roles: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    """By name, what others say that they do, as the judge; for the watchdog."""


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What a checkpoint holds of a run; see `State`."""

    stages: Stages
    requests: RequestLedger

    def begin_save(self, folder: Path) -> None:
        """Copy the state, and begin to write it."""
        self.stages.begin_save(folder)
        self.requests.save(folder)

    def finish_save(self, wait: bool) -> bool:
        """Whether it is written."""
        return self.stages.finish_save(wait)


def run_to_end(run: Run, *, done: int, stop: StopRequest, known: Known | None = None) -> None:
    """Go on from `done` iterations to `config.steps`, with what is `known` of the batches of the next ones.

    Raises:
        IncompleteError: a stop was requested; a checkpoint of the last iteration is there.
        JudgeFault: too many rollouts of an iteration have no verdict; the checkpoints before it are there.
    """
    config = run.config
    if done >= config.steps:
        return
    timeline = run.stages.timeline
    if done == 0:
        timeline.begin(0)
        evaluate_and_record(run, 0)
        run.folder.write_timeline(timeline.recorded())
    else:
        rows = read_metrics(run.folder.path / "metrics.jsonl")["train"]
        run.health.go_on_from([row for row in rows if row["step"] <= done])
    progress = tqdm(total=config.steps, initial=done, desc="RL", unit="step", disable=None, dynamic_ncols=True)
    stages = TimedStages(AccountedStages(run.stages, run.requests), timeline=timeline)
    checkpoints = Checkpoints(run.folder.checkpoints, config, SavedRun(run.stages, run.requests), run.inputs)
    with watch_over(run, stages, progress, stop), progress, checkpoints:
        timeline.begin(done + 1)
        started = time.monotonic()
        course = Course(done, config.steps, known or {})
        for step, iteration in enumerate(run.schedule(stages, run.items, course), start=done + 1):
            learned = iteration.learned
            timeline.end()
            checkpoints.finish(wait=False)
            run.requests.check(iteration.ahead.values())
            spent = stages.stopwatch.take() | {"step": time.monotonic() - started}
            run.stopwatch.seconds["rl"] += spent["step"]
            metrics = iteration_metrics(iteration.times, learned)
            metrics |= {f"time/{name}_s": seconds for name, seconds in spent.items()}
            metrics |= run.throughput.metrics(learned.computed, spent.get("learn", 0.0))
            metrics |= share_metrics(role_times(timeline.all_spans(), timeline.recorded().window))
            metrics |= judged_by_all(run, step, learned)
            metrics |= {f"requests/{name}": float(count) for name, count in run.requests.counts().items()}
            metrics |= run.stages.lengthening.metrics(learned.groups)
            record_iteration(run, step, learned, metrics)
            lengthen(run, step, learned)
            progress.set_postfix_str(describe_iteration(metrics), refresh=False)
            progress.update()
            is_last, is_stopped, score = step == config.steps, stop.is_made, None
            is_evaluated = is_last or bool(config.evaluation.every and step % config.evaluation.every == 0)
            is_saved = is_last or is_stopped or step % config.checkpoint.every == 0
            if is_evaluated:
                score = evaluate_and_record(run, step).pass_at_1_of(run.pinned)
            if is_saved:
                with run.stopwatch.time("checkpoint"), timeline.time(Role.CHECKPOINT, f"step {step}"):
                    checkpoints.begin(step, run.stopwatch.so_far(), score, iteration.known())
                    if is_last or is_stopped:
                        checkpoints.finish()
            if is_evaluated or is_saved:
                run.folder.write_timeline(timeline.recorded())  # again, with what was done since the barrier
            if is_last:
                return
            if is_stopped:
                raise IncompleteError(f"stopped after step {step} of {config.steps}; go on with --resume")
            timeline.begin(step + 1)
            started = time.monotonic()


def watch_over(run: Run, stages: TimedStages, progress: Any, stop: StopRequest) -> Watchdog:
    """A watchdog over all roles of a run."""

    def driver() -> str:
        doing = [*run.stopwatch.running, *stages.stopwatch.running]
        return f"step {progress.n + 1} of {run.config.steps}: {', '.join(doing)}"

    roles = {"driver": driver, "samplers": run.stages.sampler.state, "collections": run.requests.state, **run.roles}
    say, path = run.say, run.folder.path
    return Watchdog(path, roles, stop.end_run, patience_s=run.config.watchdog_s, say=say)


def record_iteration(run: Run, step: int, learned: Learned, metrics: Mapping[str, float]) -> None:
    """Write metrics, rollouts, timeline and alerts of an iteration, and end the run if its judge does not judge."""
    run.log.write("train", step, metrics)
    run.folder.write_rollouts(step, learned)
    run.folder.write_timeline(run.stages.timeline.recorded())
    for alert in run.health.observe(metrics):
        run.log.write("alert", step, asdict(alert))
        run.say(f"step {step:>4}  alert: {alert}")
    if metrics["no_verdict_share"] > run.config.no_verdict_limit:
        raise JudgeFault(
            f"step {step}: {metrics['no_verdict_share']:.0%} of the rollouts have no verdict, more than "
            f"no_verdict_limit = {run.config.no_verdict_limit:.0%}. Causes: {_fault_causes(learned.groups)}"
        )


def lengthen(run: Run, step: int, learned: Learned) -> None:
    """Decide whether batches that are begun from now on may have longer responses, and say so if they may."""
    limit = run.stages.lengthening.advance(step, learned.groups)
    if limit is not None:
        stage, all_stages = run.stages.lengthening.state.stage + 1, len(run.stages.lengthening.limits)
        run.log.write("lengthening", step, {"stage": stage, "max_new_tokens": limit})
        run.say(f"step {step:>4}  stage {stage} of {all_stages}: responses of up to {limit} tokens from now on")


def judged_by_all(run: Run, step: int, learned: Learned) -> dict[str, float]:
    """Every so many steps, whether programs that the sampled tests accept hold on the others too."""
    every = run.config.health.overfit_every
    if run.judge_by_all is None or not every or step % every:
        return {}
    with run.stopwatch.time("judging_by_all"):
        return overfit_to_sampled_tests(learned.groups, run.judge_by_all)


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
    metrics = evaluation.to_metrics()
    run.log.write("evaluation", step, {"split": "heldout", **metrics})
    run.folder.write_evaluation(step, evaluation)
    run.say(
        f"step {step:>4}  held-out pass@1 {metrics['pass@1']:.3f} [{metrics['pass@1/low']:.3f}, "
        f"{metrics['pass@1/high']:.3f}]  greedy {metrics['greedy']:.3f}  "
        f"pass@{evaluation.samples} {metrics[f'pass@{evaluation.samples}']:.3f}  ({metrics['problems']} problems)"
    )
    return evaluation
