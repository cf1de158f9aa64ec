"""From the folders of runs that were timed to the plan of another one."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autoclave.config.schedule import AsynchronousConfig, OneOffPipelineConfig, ScheduleConfig, SynchronousConfig
from autoclave.config.training import EvaluationConfig, TrainConfig
from autoclave.core import InputError
from autoclave.planning.calibration import Calibration, calibrate
from autoclave.planning.schedule_plan import (
    PLAN_FORMAT,
    STALENESS,
    Candidate,
    SchedulePlan,
    candidate_lines,
    every_split,
    recommend,
    simulate_each,
    split_of,
    work_of,
)
from autoclave.planning.simulation import ScheduleName
from autoclave.runs.reader import read_run
from autoclave.runs.timeline import read_steps, timeline_steps


def calibration_of(run_folder: Path) -> Calibration:
    """The rates that the timeline of a run shows.

    Raises InputError: it is no run folder, or has no timeline of an iteration. DataError: a file is damaged.
    """
    config = read_run(run_folder).config
    steps = [step for step in timeline_steps(run_folder) if step]
    if not steps:
        raise InputError(f"{run_folder}: has no timeline of an iteration; it is recorded by `autoclave train`")
    engine = config["sampler"]["engine"]
    return calibrate(
        read_steps(run_folder, steps),
        split_of(config),
        slots=engine.get("batch_size") or engine["concurrency"],
        judge_slots=config["judge"]["workers"] or len(os.sched_getaffinity(0)),
        group_size=config["group_size"],
    )


def plan_from(config: Mapping[str, Any], run_folders: Sequence[Path], *, devices: int | None = None) -> SchedulePlan:
    """The plan of a run with the settings `config`, by rates of runs of the same recipe.

    A schedule is simulated with the rates of the run that had it, since these depend on it: an engine whose requests
    come one by one computes prompts one by one. Without such a run it has the rates of the synchronous one, or else of
    the first; where sampler and trainer both work, slowed down as in the other runs in which they did.

    Args:
        devices: of sampler and trainer together; those of the settings if it is left out.

    Raises:
        InputError, DataError: as `calibration_of`.
    """
    timed = [
        (ScheduleName(read_run(folder).config["schedule"]["name"]), calibration_of(folder)) for folder in run_folders
    ]
    found = dict(reversed(timed))  # of two runs with one schedule the first counts
    base = found.get(ScheduleName.SYNCHRONOUS, timed[0][1])
    overlapping = [each for name, each in timed if name is not ScheduleName.SYNCHRONOUS]
    slowdown = 1.0
    if ScheduleName.SYNCHRONOUS in found and overlapping:
        slowdown = sum(base.slowdown(each) for each in overlapping) / len(overlapping)
    own = split_of(config)
    splits = dict.fromkeys([own, *every_split(devices or own.samplers + (0 if own.is_shared else own.trainers))])
    bound = config["schedule"].get("max_staleness") or STALENESS[0]
    candidates = [
        candidate
        for name in ScheduleName
        for candidate in simulate_each(
            found.get(name, base).profile(config["minibatches"]),
            name,
            splits,
            staleness=sorted({*STALENESS, bound}),
            overlap_slowdown=1.0 if name in found else slowdown,
        )
    ]
    candidates.sort(key=lambda candidate: candidate.seconds)
    return SchedulePlan(
        format=PLAN_FORMAT,
        work=work_of(config),
        rates=base.rates,
        tokens_per_s=sorted(base.sampling.tokens_per_s.items()),
        start_tokens=base.sampling.start_tokens,
        overlap_slowdown=slowdown,
        calibrated_s=base.iteration_s,
        candidates=candidates,
        chosen=recommend(candidates),
    )


def describe_schedule_plan(plan: SchedulePlan, config: Mapping[str, Any]) -> Iterator[str]:
    """Lines with the measurements, the candidates as a table, and the recommendation."""
    rates = plan.rates
    yield f"tokens/s of one sampler process, by requests running on it; a start takes {plan.start_tokens:.1f} tokens"
    yield "  " + "   ".join(f"{running:.0f}: {rate:.0f}" for running, rate in plan.tokens_per_s)
    yield (
        f"learning {rates.train_ms_per_token:.3g} ms a response token, publish {rates.sync_s:.3g} s, "
        f"{rates.judge_slots} judge slots; {plan.overlap_slowdown:.2f} times as slow while both work"
    )
    yield ""
    yield from candidate_lines(plan)
    yield ""
    own = plan.of(config)
    if own and own != plan.chosen:
        yield f"as configured: {own.name}, {own.seconds:.3g} s an iteration"
    yield f"recommended: {plan.chosen.name}, {plan.chosen.seconds:.3g} s an iteration"
    yield f"  {settings_for(plan.chosen, config)}"


def settings_for(chosen: Candidate, config: Mapping[str, Any]) -> str:
    """Settings that run as recommended, on top of `config`, as they stand on a command line."""
    words = [f"schedule.name={chosen.schedule}"]
    if chosen.schedule is ScheduleName.ASYNCHRONOUS:
        words.append(f"schedule.max_staleness={chosen.max_staleness}")
    split = chosen.split
    if split == split_of(config):
        return " ".join(words)
    learner, home = (config["workers"][name] for name in ("actor", "sampler"))
    if split.is_shared:
        return " ".join([*words, f"workers.sampler={learner}", f"pools.{learner}.processes={split.trainers}"])
    apart = "samplers" if home == learner else home
    words.append(f"workers.sampler={apart}")
    for name, count in ((learner, split.trainers), (apart, split.samplers)):
        executor = config["pools"].get(name, {}).get("executor", "inline")
        words.append(f"pools.{name}.executor={'spawn' if executor == 'inline' else executor}")
        words.append(f"pools.{name}.processes={count}")
    return " ".join(words)


@contextmanager
def calibration_runs(config: TrainConfig, *, iterations: int, say: Callable[[str], None]) -> Generator[list[Path]]:
    """Folders of runs of `config`, so many iterations each, which are gone after the block.

    In the first, sampler and trainer take turns, so that each shows its own rates. Where they have pools of their own,
    both work at once in a second and a third: on devices that share something, such as cores, that makes both slower.
    In the third, requests of several batches mix.

    Raises AutoclaveError: as `train`.
    """
    from autoclave.compose.training import train  # imports torch

    schedules: list[ScheduleConfig] = [SynchronousConfig()]
    if config.workers.places()["sampler"] != config.workers.places()["actor"]:
        is_own = isinstance(config.schedule, AsynchronousConfig) and config.schedule.max_staleness
        schedules += [OneOffPipelineConfig(), config.schedule if is_own else AsynchronousConfig(max_staleness=2)]
    with TemporaryDirectory(prefix="autoclave-calibration-") as parent:
        folders: list[Path] = []
        for schedule in schedules:
            changes = {
                "name": f"calibration-{schedule.name}",
                "steps": iterations,
                "schedule": schedule,
                "evaluation": EvaluationConfig(every=0, samples=1, final_samples=1, problems=1),
                "loggers": (),
            }
            folders.append(Path(parent) / schedule.name)
            train(config.model_copy(update=changes), folders[-1], say=say)
        yield folders
