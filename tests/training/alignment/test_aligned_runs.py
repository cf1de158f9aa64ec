"""Whole runs with alignment samples, by the real judge: what they ask, and that a kill loses and changes nothing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.config import SandboxConfig
from autoclave.core import IsolationError, Problem, StdinCase, StdinTests
from autoclave.core.json import to_plain
from autoclave.sandbox import open_sandbox
from tests.training.test_training_runs import RECIPE, Trainings, metrics, same_weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = 5
SHARE = 0.4
CHANGES: dict[str, Any] = {
    "steps": STEPS,
    "problems_per_step": 8,
    "sft": RECIPE["sft"] | {"steps": 150},
    "sampler": {"max_new_tokens": 40},
    "alignment": {
        "share": SHARE,
        "template": "plain",
        "sft_share": 0.4,
        "max_new_tokens": 24,
        "evaluation_items": 4,
    },
}
ONE_OFF = CHANGES | {"schedule": {"name": "one_off_pipeline"}}
IN_ROLLOUTS, IN_CHECKPOINT = r"open .*rollouts/\.step-000004", r"open .*\.step-000004\.partial/alignment"


def problem(number: int, source: str) -> Problem:
    given = range(3) if source == "train" else range(3, 6)
    return Problem(
        id=f"{source}-{number}",
        statement=f"Add {number}.",
        tests=StdinTests("stdin", [StdinCase(f"{n}\n", f"{n + number}\n") for n in given]),
        solutions=[f"n = int(input())\nm = n + {number}\nprint(m)"],
        tags=["add"],
    )


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    try:
        open_sandbox(SandboxConfig()).close()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    made = Trainings(tmp_path_factory.mktemp("aligned"))
    for name in ("train", "heldout"):
        lines = [json.dumps(to_plain(problem(number, name))) + "\n" for number in range(1, 9)]
        (made.folder / f"{name}.jsonl").write_text("".join(lines))
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole(trainings: Trainings) -> Path:
    """The folder of a run that nothing disturbed."""
    assert trainings.run("whole", changes=CHANGES) == 0, trainings.log("whole")
    return trainings.path("whole")


def rollouts(run: Path) -> list[dict[str, Any]]:
    """Every rollout of a run, less what is measured in seconds and MiB."""
    found: list[dict[str, Any]] = []
    for step in range(1, STEPS + 1):
        with gzip.open(run / "rollouts" / f"step-{step:06d}.jsonl.gz", "rt") as file:
            found += [json.loads(line) for line in file]
    for line in found:
        if line["verdict"]:
            line["verdict"].pop("tests")
    return found


def test_the_first_step_asks_for_programs_and_later_ones_mix_in_what_failed(whole):
    rows = metrics(whole, "train")
    asked = [8 * row["alignment/share"] for row in rows]
    assert asked[0] == 0
    assert sum(asked) + sum(row["alignment/short"] for row in rows) == int(SHARE * 8 * STEPS)
    assert max(asked) in (3, 4)
    alignment_samples = [line for line in rollouts(whole) if line["alignment_sample"]]
    assert alignment_samples
    failed = {line["response"] for line in rollouts(whole) if line["reason"] == "wrong_answer"}
    for line in alignment_samples:
        assert line["task"] == "execution_semantics"
        assert line["alignment_sample"]["source"] == "failed"
        assert any(line["alignment_sample"]["program"] in response for response in failed)
        assert line["alignment_sample"]["variables"]
        assert line["verdict"] is None
        assert line["reward"] is not None


def test_true_values_are_what_the_program_computes(whole):
    for line in rollouts(whole):
        if line["alignment_sample"]:
            known = {
                "input": lambda given=line["alignment_sample"]["input"]: given.rstrip("\n"),
                "print": lambda *_: None,
            }
            exec(line["alignment_sample"]["program"], known)  # a line or three of a policy that knows little else
            for name, text in line["alignment_sample"]["variables"].items():
                assert repr(known[name]) == text


def test_every_evaluation_measures_all_tasks(whole):
    for task in ("execution_semantics", "trace_inference", "output_prediction", "test_output_prediction"):
        rows = metrics(whole, f"evaluation/{task}")
        assert [row["step"] for row in rows] == [row["step"] for row in metrics(whole, "evaluation")]
        assert all(row["problems"] == 4 for row in rows)


@pytest.mark.parametrize(
    ("changes", "moment"),
    [
        pytest.param(CHANGES, IN_ROLLOUTS, id="synchronous-rollouts"),
        pytest.param(ONE_OFF, IN_CHECKPOINT, id="one_off-checkpoint"),
        pytest.param(CHANGES, IN_CHECKPOINT, id="synchronous-checkpoint", marks=pytest.mark.soak),
        pytest.param(ONE_OFF, IN_ROLLOUTS, id="one_off-rollouts", marks=pytest.mark.soak),
    ],
)
def test_killed_and_resumed_it_asks_the_same_and_ends_with_the_same_weights(trainings, changes, moment):
    name = changes.get("schedule", {}).get("name", "whole")
    if not (trainings.path(name) / "summary.json").exists():
        assert trainings.run(name, changes=changes) == 0, trainings.log(name)
    killed = f"{name}-{'rollouts' if 'rollouts' in moment else 'checkpoint'}"
    assert trainings.run(killed, changes=changes, at=moment, do="kill") == -9, trainings.log(killed)
    assert trainings.run(killed, "--resume", changes=changes) == 0, trainings.log(killed)
    assert rollouts(trainings.path(killed)) == rollouts(trainings.path(name))
    assert same_weights(trainings.path(killed), trainings.path(name))
    last = [
        json.loads((trainings.path(run) / "checkpoints" / f"step-{STEPS:06d}" / "alignment.json").read_text())
        for run in (killed, name)
    ]
    assert last[0] == last[1]


@pytest.mark.parametrize(
    ("name", "settings", "source"),
    [
        ("random", {"programs": "random"}, "random"),
        ("reference", {"programs": "reference"}, "reference"),
        ("output", {"asks": "output"}, "failed"),
    ],
)
def test_each_ablation_asks_something_else(trainings, name, settings, source):
    changes = CHANGES | {"steps": 3, "alignment": CHANGES["alignment"] | settings}
    assert trainings.run(name, changes=changes) == 0, trainings.log(name)
    found = []
    for path in sorted((trainings.path(name) / "rollouts").glob("*.gz")):
        with gzip.open(path, "rt") as file:
            found += [json.loads(line) for line in file]
    alignment_samples = [line["alignment_sample"] for line in found if line["alignment_sample"]]
    assert alignment_samples
    assert {alignment_sample["source"] for alignment_sample in alignment_samples} == {source}
    if name == "random":
        accepted = {line["response"] for line in found if line["reason"] == "accepted"}
        assert any(
            alignment_sample["program"] in response for alignment_sample in alignment_samples for response in accepted
        )
    if name == "reference":
        assert {alignment_sample["program"] for alignment_sample in alignment_samples} <= {
            problem(n, "train").solutions[0] for n in range(1, 9)
        }
        assert metrics(trainings.path(name), "train")[0]["alignment/share"] > 0
    if name == "output":
        assert all(
            not alignment_sample["variables"] and alignment_sample["result"].strip()
            for alignment_sample in alignment_samples
        )


@pytest.mark.parametrize(
    ("algorithm", "schedule"),
    [
        ("ppo", {"name": "minibatch_pipeline", "order": "prompt"}),
        ("reinforce_plus_plus", {"name": "asynchronous"}),
        pytest.param("ppo", {"name": "asynchronous"}, marks=pytest.mark.soak),
        pytest.param("reinforce_plus_plus", {"name": "minibatch_pipeline", "order": "prompt"}, marks=pytest.mark.soak),
    ],
)
def test_alignment_samples_go_with_other_algorithms_and_schedules(trainings, algorithm, schedule):
    name = f"{algorithm}-{schedule['name']}"
    changes = CHANGES | {"steps": 3, "algorithm": {"name": algorithm}, "schedule": schedule}
    assert trainings.run(name, changes=changes) == 0, trainings.log(name)
    assert metrics(trainings.path(name), "train")[-1]["alignment/share"] > 0
