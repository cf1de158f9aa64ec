"""The loop around a schedule: what it writes, when it saves, and how it ends early and goes on."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from autoclave.config import (
    AdvanceAtStepsConfig,
    AsynchronousConfig,
    CheckpointConfig,
    EvaluationConfig,
    GrpoConfig,
    GrpoPlusConfig,
    HealthActions,
    HealthConfig,
    LengthScheduleConfig,
    LengthStageConfig,
    MinibatchPipelineConfig,
    OneOffPipelineConfig,
    ProblemFilesConfig,
    ScheduleConfig,
    SynchronousConfig,
    TrainConfig,
)
from autoclave.core import HostError, IncompleteError, JudgeFault, Reward, Rollout
from autoclave.environments import Grader
from autoclave.evaluation import Evaluation, ProblemResult
from autoclave.planning.accounting.speed import Throughput
from autoclave.rollout import NextTurn
from autoclave.runs.folder import MetricsLog, RunFolder
from autoclave.runs.reader import read_events
from autoclave.training.alignment.alignment import NoAlignment
from autoclave.training.checkpoints import Checkpoint, find_checkpoint, latest_checkpoint
from autoclave.training.health import Health
from autoclave.training.learned import ShuffledItems
from autoclave.training.metrics import Stopwatch
from autoclave.training.saved_groups import load_groups, names_of
from autoclave.training.schedules import choose_schedule
from autoclave.training.train import Run, run_to_end
from autoclave.training.watchdog import StopRequest
from benchmarks.metrics import undocumented
from tests.training.toy import ITEMS, RewardRule, is_even, toy_stages
from tests.training_parts import earned, settled, tiny_policy

EVALUATION = Evaluation((ProblemResult("p", "f", 2, 1, True),), 2, 1.0, 0.0, 0.0, 3.0, 8)
CONFIG = TrainConfig(
    steps=4,
    problems_per_step=2,
    problems=ProblemFilesConfig(train=Path("train.jsonl"), heldout=Path("heldout.jsonl")),
    evaluation=EvaluationConfig(every=2),
    checkpoint=CheckpointConfig(every=3),
)


@contextmanager
def run_in(
    path: Path,
    rule: RewardRule = is_even,
    *,
    config: TrainConfig = CONFIG,
    evaluate: Callable[[int, bool], Evaluation] = lambda step, whole: EVALUATION,
    goes_on_from: Checkpoint | None = None,
    algorithm: object = GrpoPlusConfig(mask_overlong=False),
    judge_by_all: Grader | None = None,
    say: Callable[[str], None] = lambda line: None,
    schedule: ScheduleConfig | None = None,
    length_schedule: LengthScheduleConfig | None = None,
    learning_rate: float = 1e-2,
    next_turn: NextTurn | None = None,
) -> Generator[Run]:
    """A run of the toy task in the folder `path`, fresh or from a checkpoint."""
    folder = RunFolder(path)
    path.mkdir(exist_ok=True)
    found: dict[str, Any] = {"goes_on_from": goes_on_from.folder} if goes_on_from else {}
    log = MetricsLog(folder)
    try:
        chosen = schedule or SynchronousConfig()
        found |= {"length_schedule": length_schedule, "learning_rate": learning_rate, "next_turn": next_turn}
        with toy_stages(rule, steps=4, algorithm=algorithm, schedule=chosen, **found) as stages:
            source = ShuffledItems(ITEMS, per_iteration=2, seed=0)
            yield Run(
                config=config,
                folder=folder,
                log=log,
                stages=stages,
                schedule=choose_schedule(chosen, config.minibatches),
                alignment=NoAlignment(source),
                evaluate=evaluate,
                stopwatch=Stopwatch(),
                throughput=Throughput(None, None, scoring_passes=1),
                health=Health(config.health),
                judge_by_all=judge_by_all,
                say=say,
            )
    finally:
        log.close()


def go_on(run: Run, checkpoint: Checkpoint | None, stop: StopRequest | None = None) -> None:
    """Run to the end from a checkpoint, whose weights the stages have, or from the beginning."""
    known = load_groups(checkpoint.folder, run.alignment.items) if checkpoint else {}
    if checkpoint:
        run.requests.load(checkpoint.folder, names_of(known))
        run.stages.publish(checkpoint.step)
    run_to_end(run, done=checkpoint.step if checkpoint else 0, stop=stop or StopRequest(), known=known)


def metrics_in(path: Path) -> list[tuple[str, int]]:
    found = (json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines() if line)
    return [(line["kind"], line["step"]) for line in found if line["kind"] != "alert"]


def final_weights(run: Run) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in run.stages.actor.export_weights().result().values()])


# --- A run that ends by itself -------------------------------------------------------------------------------------


def test_a_run_evaluates_trains_and_saves_when_the_settings_say(tmp_path: Path):
    asked: list[tuple[int, bool]] = []

    def evaluate(step: int, whole: bool) -> Evaluation:
        asked.append((step, whole))
        return EVALUATION

    with run_in(tmp_path, evaluate=evaluate) as run:
        run_to_end(run, done=0, stop=StopRequest())
    assert asked == [(0, True), (2, False), (4, True)]
    assert metrics_in(tmp_path) == [
        ("evaluation", 0),
        ("train", 1),
        ("train", 2),
        ("evaluation", 2),
        ("train", 3),
        ("train", 4),
        ("evaluation", 4),
    ]
    assert [path.name for path in sorted(run.folder.checkpoints.iterdir())] == ["step-000003", "step-000004"]
    scores = {step: find_checkpoint(run.folder.checkpoints, step).score for step in ("3", "4")}
    assert scores == {"3": None, "4": EVALUATION.pass_at_1_of(frozenset())}
    assert len(list((tmp_path / "rollouts").iterdir())) == 4


def test_what_became_of_all_requests_is_recorded_with_each_step(tmp_path: Path):
    with run_in(tmp_path) as run:
        run_to_end(run, done=0, stop=StopRequest())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    trained = [line["requests/trained"] for line in lines if line["kind"] == "train"]
    assert trained == [16, 32, 48, 64]  # 2 problems of a step, 8 samples of each


def test_every_metric_of_a_run_is_on_the_page_of_metrics(tmp_path: Path):
    stages = (LengthStageConfig(max_new_tokens=1), LengthStageConfig(max_new_tokens=3))
    length_schedule = LengthScheduleConfig(stages=stages, advance=AdvanceAtStepsConfig(steps=(2,)))
    with run_in(tmp_path, length_schedule=length_schedule) as run:
        run_to_end(run, done=0, stop=StopRequest())
        run.log.write("train", 5, {"policy/a_new_one": 1.0})
    assert undocumented(tmp_path / "metrics.jsonl") == {"policy/a_new_one"}


def test_a_stage_that_begins_is_told_and_recorded(tmp_path: Path):
    told: list[str] = []
    stages = (LengthStageConfig(max_new_tokens=1), LengthStageConfig(max_new_tokens=3))
    length_schedule = LengthScheduleConfig(stages=stages, advance=AdvanceAtStepsConfig(steps=(2,)))
    with run_in(tmp_path, say=told.append, length_schedule=length_schedule) as run:
        run_to_end(run, done=0, stop=StopRequest())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines() if line]
    trained = [line for line in lines if line["kind"] == "train"]
    assert [line["length_schedule/max_new_tokens"] for line in trained] == [1, 1, 3, 3]
    assert [line["length_schedule/stage"] for line in trained] == [1, 1, 2, 2]
    (begun,) = (line for line in lines if line["kind"] == "length_schedule")
    assert (begun["step"], begun["stage"], begun["max_new_tokens"]) == (2, 2, 3)
    assert [line for line in told if "stage" in line] == [
        "step    2  stage 2 of 2: responses of up to 3 tokens from now on"
    ]


def test_a_run_that_was_complete_does_nothing(tmp_path: Path):
    with run_in(tmp_path) as run:
        run_to_end(run, done=4, stop=StopRequest())
    assert metrics_in(tmp_path) == []


def test_seconds_are_carried_by_checkpoints(tmp_path: Path):
    with run_in(tmp_path) as run, run.stopwatch.time("total"):
        run_to_end(run, done=0, stop=StopRequest())
    seconds = latest_checkpoint(run.folder.checkpoints, CONFIG).seconds
    assert seconds["rl"] > 0
    assert seconds["total"] >= seconds["rl"] + seconds["evaluation"]


# --- Stopped and resumed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm", [GrpoPlusConfig(mask_overlong=False), GrpoConfig()], ids=lambda algorithm: algorithm.name
)
def test_a_stop_ends_at_a_checkpoint_from_which_the_run_goes_on_as_if_it_had_not_ended(tmp_path: Path, algorithm):
    stop = StopRequest()

    def stops_in_the_second_step(response: str) -> float:
        stop.is_made = stop.is_made or (tmp_path / "stopped" / "rollouts" / "step-000001.jsonl.gz").exists()
        return is_even(response)

    with run_in(tmp_path / "whole", algorithm=algorithm) as run:
        run_to_end(run, done=0, stop=StopRequest())
        expected = final_weights(run)

    with (
        run_in(tmp_path / "stopped", stops_in_the_second_step, algorithm=algorithm) as run,
        pytest.raises(IncompleteError, match="stopped after step 2 of 4; go on with --resume"),
    ):
        run_to_end(run, done=0, stop=stop)

    checkpoint = latest_checkpoint(run.folder.checkpoints, CONFIG)
    assert checkpoint.step == 2
    with run_in(tmp_path / "stopped", algorithm=algorithm, goes_on_from=checkpoint) as run:
        run_to_end(run, done=2, stop=StopRequest())
        assert torch.equal(final_weights(run), expected)
    start = torch.cat([tensor.flatten() for tensor in tiny_policy().model.state_dict().values()])
    assert not torch.equal(start, expected)


REPEATABLE = (MinibatchPipelineConfig(order="prompt"), OneOffPipelineConfig(), AsynchronousConfig(max_staleness=0))
"""Schedules whose result does not depend on time, beside the synchronous one."""
OTHERS = (
    MinibatchPipelineConfig(order="completion"),
    AsynchronousConfig(max_staleness=2),
    AsynchronousConfig(max_staleness=2, order="completion", partial=False),
)


def name_of(schedule: ScheduleConfig) -> str:
    return "-".join(str(value) for value in schedule.model_dump().values())


@pytest.mark.parametrize("schedule", [*REPEATABLE, *OTHERS], ids=name_of)
def test_a_stop_in_any_schedule_ends_at_a_checkpoint_from_which_all_that_is_left_is_learnt(tmp_path: Path, schedule):
    stop = StopRequest()

    def stops_in_the_second_step(response: str) -> float:
        stop.is_made = stop.is_made or (tmp_path / "stopped" / "rollouts" / "step-000001.jsonl.gz").exists()
        return is_even(response)

    with (
        run_in(tmp_path / "stopped", stops_in_the_second_step, schedule=schedule) as run,
        pytest.raises(IncompleteError, match="go on with --resume"),
    ):
        go_on(run, None, stop)
    checkpoint = latest_checkpoint(run.folder.checkpoints, CONFIG)
    assert checkpoint.step in (2, 3)
    with run_in(tmp_path / "stopped", schedule=schedule, goes_on_from=checkpoint) as run:
        go_on(run, checkpoint)
        counts = run.requests.counts()
        found = final_weights(run)
    ended = sum(count for name, count in counts.items() if name == "trained" or name.startswith("dropped/"))
    assert ended == CONFIG.steps * 2 * 8  # problems of a step, samples of each
    assert counts["open"] == 0
    assert counts["dispatched"] == ended + counts["requeued"]
    if schedule in REPEATABLE:
        with run_in(tmp_path / "whole", schedule=schedule) as run:
            go_on(run, None)
            assert torch.equal(final_weights(run), found)


def test_a_stop_whose_checkpoint_cannot_be_written_says_so(tmp_path: Path):
    stop, limits = StopRequest(), resource.getrlimit(resource.RLIMIT_FSIZE)
    stop.is_made = True
    with run_in(tmp_path) as run:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # bytes; less than the weights
        try:
            with pytest.raises(HostError, match=r"step-000001\.partial/actor: cannot be written"):
                run_to_end(run, done=0, stop=stop)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_stop_in_the_last_step_is_no_early_end(tmp_path: Path):
    stop = StopRequest()

    def evaluate(step: int, whole: bool) -> Evaluation:
        stop.is_made = step == 4
        return EVALUATION

    with run_in(tmp_path, evaluate=evaluate) as run:
        run_to_end(run, done=0, stop=stop)


# --- Alerts --------------------------------------------------------------------------------------------------------

MEMORISED = CONFIG.model_copy(update={"health": HealthConfig(overfit_every=2), "steps": 4})


def lines_of(path: Path, kind: str) -> list[dict]:
    lines = (json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines() if line)
    return [line for line in lines if line["kind"] == kind]


def fails_all(rollout: Rollout) -> Future[Reward]:
    return settled(earned(0.0))


def test_every_so_many_steps_accepted_programs_are_judged_by_all_tests_and_the_alert_is_printed_and_kept(
    tmp_path: Path,
):
    said: list[str] = []
    with run_in(tmp_path, config=MEMORISED, judge_by_all=fails_all, say=said.append) as run:
        run_to_end(run, done=0, stop=StopRequest())
    judged = {line["step"]: line.get("overfit_to_sampled_tests") for line in lines_of(tmp_path, "train")}
    assert judged == {1: None, 2: 1.0, 3: None, 4: 1.0}
    alerts = [line for line in lines_of(tmp_path, "alert") if line["name"] == "overfit_to_sampled_tests"]
    assert [(alert["step"], alert["name"]) for alert in alerts] == [
        (2, "overfit_to_sampled_tests"),
        (4, "overfit_to_sampled_tests"),
    ]
    assert alerts[0]["seen"] == "100.0% of the programs that the sampled tests accept fail others"
    assert [line[:42] for line in said if "alert: overfit" in line] == [
        "step    2  alert: overfit_to_sampled_tests",
        "step    4  alert: overfit_to_sampled_tests",
    ]


def with_health(**settings: object) -> TrainConfig:
    return CONFIG.model_copy(update={"health": HealthConfig(**settings)})


def test_an_alert_that_stops_ends_the_run_without_another_checkpoint(tmp_path: Path):
    config = with_health(dead_steps=2)
    with (
        run_in(tmp_path, lambda response: 0.0, config=config) as run,
        pytest.raises(IncompleteError, match=r"stopped at step 2 of 4 by nothing_trained: nothing to train on for 2 s"),
    ):
        run_to_end(run, done=0, stop=StopRequest())
    (event,) = (event for event in read_events(tmp_path / "metrics.jsonl") if event["action"] == "stop")
    assert (event["step"], event["name"]) == (2, "nothing_trained")
    assert find_steps(run) == []


def test_a_rate_that_is_a_hundred_times_too_high_is_reported_in_the_first_step(tmp_path: Path):
    with run_in(tmp_path, learning_rate=1.0) as run:
        run_to_end(run, done=0, stop=StopRequest())
    first = [event["name"] for event in read_events(tmp_path / "metrics.jsonl") if event["step"] == 1]
    assert {"kl_limit/policy/approx_kl", "update_limit"} <= set(first)


def test_an_alert_that_pauses_leaves_a_checkpoint_from_which_the_run_goes_on_as_if_it_had_not_ended(tmp_path: Path):
    config = with_health(actions=HealthActions(update_limit="pause"), update_limit=1e-4)
    with run_in(tmp_path / "whole") as run:
        run_to_end(run, done=0, stop=StopRequest())
        expected = final_weights(run)
    with (
        run_in(tmp_path / "paused", config=config) as run,
        pytest.raises(IncompleteError, match=r"paused by update_limit: .* after step 1 of 4; go on with --resume"),
    ):
        run_to_end(run, done=0, stop=StopRequest())
    assert find_steps(run) == [1]
    checkpoint = latest_checkpoint(run.folder.checkpoints, config)
    with run_in(tmp_path / "paused", config=config, goes_on_from=checkpoint) as run:
        run_to_end(run, done=1, stop=StopRequest())  # the alert still stands, and does not begin again
        assert torch.equal(final_weights(run), expected)


def find_steps(run: Run) -> list[int]:
    """The steps that have a checkpoint."""
    return sorted(int(path.name.removeprefix("step-")) for path in run.folder.checkpoints.glob("step-*"))


def test_where_all_tests_are_used_nothing_is_judged_again(tmp_path: Path):
    with run_in(tmp_path, config=MEMORISED) as run:
        run_to_end(run, done=0, stop=StopRequest())
    assert not any("overfit_judged" in line for line in lines_of(tmp_path, "train"))


def test_a_resumed_run_knows_the_steps_before_it(tmp_path: Path):
    with run_in(tmp_path) as run:
        run_to_end(run, done=0, stop=StopRequest())
        seen = run.health.history
    checkpoint = Checkpoint(run.folder.checkpoints / "step-000003", 3, {})
    with run_in(tmp_path, goes_on_from=checkpoint) as run:
        run_to_end(run, done=3, stop=StopRequest())
        assert run.health.history == seen


def test_the_speed_of_learning_counts_what_was_computed(tmp_path: Path):
    with run_in(tmp_path) as run:
        run_to_end(run, done=0, stop=StopRequest())
    assert all(line["learned_tokens_per_s"] > 0 for line in lines_of(tmp_path, "train"))


# --- A judge that does not judge -----------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [SynchronousConfig(), *REPEATABLE, *OTHERS], ids=name_of)
def test_too_many_rollouts_without_a_verdict_end_the_run_with_the_causes(tmp_path: Path, schedule):
    with run_in(tmp_path, lambda response: is_even(response) or None, schedule=schedule) as run:
        message = (
            r"step 1: \d+% of the rollouts have no verdict, more than no_verdict_limit = 10%\. Causes: sandbox: no"
        )
        with pytest.raises(JudgeFault, match=message):
            run_to_end(run, done=0, stop=StopRequest())
    assert metrics_in(tmp_path)[-1] == ("train", 1)  # what happened is on record


def test_a_few_rollouts_without_a_verdict_do_not_end_the_run(tmp_path: Path):
    calls = iter(range(10**6))
    with run_in(tmp_path, lambda response: None if next(calls) % 16 == 0 else is_even(response)) as run:
        run_to_end(run, done=0, stop=StopRequest())
    train = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {line["no_verdict_share"] for line in train if line["kind"] == "train"} == {1 / 16}


def test_an_evaluation_in_which_some_figures_could_not_be_measured_does_not_end_the_run(tmp_path: Path):
    poor = Evaluation((ProblemResult("p", "f", 1, 1, None),), 2, 1.0, 0.0, 0.5, 3.0, 8)
    with run_in(tmp_path, evaluate=lambda step, whole: poor) as run:
        run_to_end(run, done=0, stop=StopRequest())
    assert run.folder.read_evaluation(4)["greedy"] is None


@pytest.mark.parametrize("schedule", [SynchronousConfig(), *REPEATABLE, *OTHERS], ids=name_of)
def test_a_failure_in_judging_is_raised_and_no_hang(tmp_path: Path, schedule):
    def fail(response: str) -> float:
        raise OSError("the judge is gone")

    with run_in(tmp_path, fail, schedule=schedule) as run, pytest.raises(OSError, match="the judge is gone"):
        run_to_end(run, done=0, stop=StopRequest())
