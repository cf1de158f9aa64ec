"""How much faster pipelined schedules are than the synchronous one, and how far from an ideal run of the same schedule.

    python benchmarks/pipelines.py [--profile FILE ...] [--rounds N] [--time-scale N] [--real] [--quick] [--json FILE]

The schedules of `training/schedules.py` run with a process in place of each sampler device, which sleeps as long as a
workload profile says; so do rewards and updates. Profiles are those of `workloads.py`, or FILEs. Each
schedule has the same number of devices: synchronous takes turns on all of them and starts rewards when all is sampled,
the others divide them as is best in the simulation. A round runs every schedule once, and the median round counts.

An ideal run is the simulation of the same work, in which nothing is lost between two stages. With --real the embedded
policy samples and learns and a real judge judges, in processes of their own on the cores of this machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from harness import argument_parser, finish, print_environment, sized
from sleeping_run import Plan, open_devices, run_schedule
from workbook import Scale
from workloads import CODE, MATHEMATICS, Ideal, generate, ideal, on_each_split, read_profile

from autoclave.core.timeline import Role, clipped, seconds, union
from autoclave.planning.profile import Profile
from autoclave.planning.simulation import ScheduleName, ScheduleRun
from autoclave.training.schedules import asynchronous, minibatch_pipeline, one_off_pipeline, synchronous

STALENESS = 2
"""Of the asynchronous schedule."""
TOKENS = 64
"""Tokens of a profile in one that is sent between processes."""
QUICK_ITERATIONS = 4


def main() -> None:
    options = _options()
    print_environment()
    if options.real:
        from real_pipelines import measure_real

        finish("pipelines", measure_real(options), options.json)
        return
    profiles = [read_profile(path) for path in options.profile] or [generate(MATHEMATICS), generate(CODE)]
    if options.quick:
        profiles = [
            replace(each, iterations=each.iterations[: sized(options, None, QUICK_ITERATIONS, 2)]) for each in profiles
        ]
    rounds = options.rounds or (1 if options.quick else 3)
    scale = Scale(options.time_scale * sized(options, 1, 1, 20), TOKENS)
    with open_devices(max(profile.devices for profile in profiles)) as devices:
        found = {profile.profile: measure(profile, scale, rounds, devices) for profile in profiles}
    for name, results in found.items():
        print(f"\n{name}: seconds of the profile, which pass {scale.time:g} times as fast; median of {rounds} rounds")
        print("\n".join(table(results)))
    finish("pipelines", figures_of(found), options.json, schedules=details_of(found))


def _options() -> argparse.Namespace:
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--profile", type=Path, metavar="FILE", action="append", default=[], help="a workload profile")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each schedule runs; 3, or 1 with --quick")
    parser.add_argument("--time-scale", type=float, default=200.0, metavar="N", help="profile seconds in a real one")
    parser.add_argument("--real", action="store_true", help="the embedded policy and a real judge, on this machine")
    return parser.parse_args()


@dataclass(frozen=True)
class Result:
    """A schedule, its ideal run, and the measured ones."""

    expected: Ideal
    runs: Sequence[ScheduleRun]

    @property
    def run(self) -> ScheduleRun:
        """That of the median round; the faster one of two."""
        return sorted(self.runs, key=lambda run: run.steady_s)[(len(self.runs) - 1) // 2]

    @property
    def over_ideal(self) -> float:
        """Seconds per steady iteration over those of the ideal run."""
        return self.run.steady_s / self.expected.run.steady_s


Results = Mapping[ScheduleName, Result]


def measure(profile: Profile, scale: Scale, rounds: int, devices: Sequence) -> Results:
    """Every schedule on `profile`, by its name."""
    longer = _continued(profile, 2 * STALENESS)
    expected = dict(ideal(profile))
    asynchronous_runs = on_each_split(longer, ScheduleName.ASYNCHRONOUS, max_staleness=STALENESS)
    expected[ScheduleName.ASYNCHRONOUS] = min(asynchronous_runs, key=lambda each: each.run.steady_s)
    runs: dict[ScheduleName, list[ScheduleRun]] = {name: [] for name in expected}
    for _ in range(rounds):
        for name, candidate in expected.items():
            work = longer if name is ScheduleName.ASYNCHRONOUS else profile
            runs[name].append(run_schedule(_plan(candidate, profile), work, scale, devices))
    return {name: Result(expected[name], runs[name]) for name in ScheduleName}


def _continued(profile: Profile, more: int) -> Profile:
    """With `more` iterations, which are the first ones again."""
    count = len(profile.iterations) + more
    return replace(profile, iterations=profile.of_at_least(count).iterations[:count])


def _plan(candidate: Ideal, profile: Profile) -> Plan:
    is_mixed = candidate.schedule is ScheduleName.ASYNCHRONOUS
    schedules = {
        ScheduleName.SYNCHRONOUS: synchronous,
        ScheduleName.MINIBATCH_PIPELINE: partial(
            minibatch_pipeline, minibatches=profile.mini_batches, is_in_order=False
        ),
        ScheduleName.ONE_OFF_PIPELINE: one_off_pipeline,
        ScheduleName.ASYNCHRONOUS: partial(asynchronous, max_staleness=STALENESS, is_in_order=True),
    }
    return Plan(
        schedules[candidate.schedule],
        candidate.split.samplers,
        candidate.split.trainers,
        ahead=STALENESS if is_mixed else 0,
        rewards_after_sampling=candidate.schedule is ScheduleName.SYNCHRONOUS,
        mixes_batches=is_mixed,
    )


def table(results: Results) -> Iterator[str]:
    """The results of a profile, a row for each schedule."""
    columns = ("s / iteration", "ideal", "over ideal", "speed-up", "ideal", "sampler busy", "devices busy")
    columns += ("rewards hid", "training hid", "spill-over s")
    yield f"{'':<26}" + "".join(f"{column:>14}" for column in columns)
    base = results[ScheduleName.SYNCHRONOUS]
    for result in results.values():
        run, best = result.run, result.expected.run
        row = f"{result.expected.name:<26}{run.steady_s:>14.1f}{best.steady_s:>14.1f}{result.over_ideal:>14.3f}"
        row += f"{base.run.steady_s / run.steady_s:>14.2f}{base.expected.run.steady_s / best.steady_s:>14.2f}"
        shares = (run.busy_share(Role.SAMPLER), run.sampler_device_share())
        shares += (run.hidden_reward_share(), run.hidden_training_share())
        is_ahead = result.expected.schedule in (ScheduleName.ONE_OFF_PIPELINE, ScheduleName.ASYNCHRONOUS)
        spill_over = "" if is_ahead else f"{spill_over_s(run):>14.1f}"  # else all of training comes after its rewards
        yield row + "".join(f"{share:>14.1%}" for share in shares) + spill_over


def spill_over_s(run: ScheduleRun) -> float:
    """Seconds of training after the last reward of an iteration, on average."""
    total = 0.0
    for number in range(len(run.ends)):
        judged = max(span.end for span in run.of(Role.JUDGE, number))
        spans = (span.interval for span in run.of(Role.TRAINER, number))
        total += seconds(union(clipped(spans, (judged, float("inf")))))
    return total / len(run.ends)


def figures_of(found: Mapping[str, Results]) -> dict[str, float]:
    """The figures of all profiles: ratios to the synchronous schedule by profile, then the worst of all."""
    figures: dict[str, float] = {}
    names = {
        ScheduleName.ONE_OFF_PIPELINE: "one_off",
        ScheduleName.MINIBATCH_PIPELINE: "minibatch",
        ScheduleName.ASYNCHRONOUS: f"asynchronous_{STALENESS}",
    }
    for schedule, short in names.items():
        for profile, results in found.items():
            base = results[ScheduleName.SYNCHRONOUS].run.steady_s
            figures[f"{short}_speedup_{profile}"] = base / results[schedule].run.steady_s
    one_off = [results[ScheduleName.ONE_OFF_PIPELINE] for results in found.values()]
    return figures | {
        "one_off_over_ideal": max(result.over_ideal for result in one_off),
        "sampler_busy": min(result.run.busy_share(Role.SAMPLER) for result in one_off),
        "rewards_hidden": min(result.run.hidden_reward_share() for result in one_off),
        "training_hidden": min(result.run.hidden_training_share() for result in one_off),
        "synchronous_over_ideal": max(results[ScheduleName.SYNCHRONOUS].over_ideal for results in found.values()),
    }


def details_of(found: Mapping[str, Results]) -> dict[str, dict[str, dict[str, object]]]:
    """What the table says, by profile and schedule, and each round."""
    return {
        profile: {
            result.expected.name: {
                "seconds": result.run.steady_s,
                "median": median(run.steady_s for run in result.runs),
                "rounds": [run.steady_s for run in result.runs],
                "ideal": result.expected.run.steady_s,
                "sampler_busy": result.run.busy_share(Role.SAMPLER),
                "devices_busy": result.run.sampler_device_share(),
                "rewards_hidden": result.run.hidden_reward_share(),
                "training_hidden": result.run.hidden_training_share(),
                "spill_over_s": spill_over_s(result.run),
            }
            for result in results.values()
        }
        for profile, results in found.items()
    }


if __name__ == "__main__":
    main()
