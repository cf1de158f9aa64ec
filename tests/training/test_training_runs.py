"""Whole runs of `autoclave train` on a few one-line problems, by the real judge; killed, interrupted and resumed."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForSequenceClassification

from autoclave.config import SandboxConfig, TrainConfig, load
from autoclave.core import IsolationError, Problem, StdinCase, StdinTests
from autoclave.core.json import to_plain
from autoclave.models import HeadModel, load_policy, save_model
from autoclave.planning.accounting.plan import plan_for
from autoclave.sandbox import open_sandbox
from benchmarks.metrics import undocumented
from tests.training import train_server
from tests.training_parts import tiny_reward_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = 5
RECIPE: dict[str, Any] = {
    "name": "micro",
    "seed": 3,
    "steps": STEPS,
    "problems_per_step": 4,
    "group_size": 4,
    "minibatches": 2,
    "model": {
        "tiny": {"hidden_size": 32, "layers": 1, "heads": 2, "vocabulary": 300, "context": 96},
        "device": "cpu",
        "threads": 1,
    },
    "sft": {
        "steps": 80,
        "batch_size": 8,
        "checkpoint_every": 30,
        "optimizer": {"learning_rate": 1e-2, "warmup_steps": 5},
    },
    "task": {"template": "plain"},
    "sampler": {"max_new_tokens": 24},
    "judge": {"workers": 1, "time_limit_range": [2, 4]},
    "evaluation": {"every": 2, "samples": 2, "final_samples": 4, "problems": 4},
    "checkpoint": {"every": 2, "keep_best": 0},
}
GRPO = {"algorithm": {"name": "grpo", "kl_coefficient": 0.5}}


# --- Runs ----------------------------------------------------------------------------------------------------------


class Trainings:
    """Runs commands in children of one server, with a recipe and a cache of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        environment = os.environ | {
            "AUTOCLAVE_CACHE": str(self.cache),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "0",
        }
        self._server = subprocess.Popen(
            [sys.executable, train_server.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name, plain in (("train", "Say {}."), ("heldout", "Say {} again.")):
            problems = [problem(plain.format(number), number, name) for number in range(8)]
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(to_plain(each)) + "\n" for each in problems))

    def run(
        self, name: str, *options: str, command: str = "train", changes: dict[str, Any] | None = None, **moment: str
    ) -> int:
        """The exit code of `autoclave train` into the folder `name`; `at` and `do` as the server takes them."""
        recipe = self.folder / f"{name}.yaml"
        files = {"name": "files", **{part: str(self.folder / f"{part}.jsonl") for part in ("train", "heldout")}}
        recipe.write_text(json.dumps(RECIPE | {"problems": files} | (changes or {})))
        return self.call(name, command, str(recipe), "--out", str(self.path(name)), *options, **moment)

    def call(self, name: str, *arguments: str, **moment: str) -> int:
        """The exit code of `autoclave`, with its output in the log of `name`."""
        order = {"arguments": arguments, "log": str(self.folder / f"{name}.log"), **moment}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the server died"
        return int(answer)

    def path(self, name: str) -> Path:
        return self.folder / name

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()


def problem(statement: str, number: int, source: str) -> Problem:
    return Problem(
        id=f"{source}-{number}",
        statement=statement,
        tests=StdinTests("stdin", [StdinCase("" if source == "train" else "again", f"{number}\n")]),
        solutions=[f"print({number})"],
        tags=["odd" if number % 2 else "even"],
    )


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    try:
        open_sandbox(SandboxConfig()).close()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    made = Trainings(tmp_path_factory.mktemp("trainings"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole(trainings: Trainings) -> Path:
    """The folder of a run that nothing disturbed."""
    assert trainings.run("whole") == 0, trainings.log("whole")
    return trainings.path("whole")


@pytest.fixture(scope="module")
def whole_grpo(trainings: Trainings) -> Path:
    """The same with a KL term to the policy that RL started from."""
    assert trainings.run("whole-grpo", changes=GRPO) == 0, trainings.log("whole-grpo")
    return trainings.path("whole-grpo")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def trained_weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    """Of a checkpoint, which shares them between two names less than `weights` does."""
    found: dict[str, torch.Tensor] = {}
    for shard in (run / "checkpoints" / f"step-{step:06d}" / "actor").glob("*.safetensors"):
        found |= load_file(shard)
    return {name.removeprefix("model."): tensor for name, tensor in found.items() if name.startswith("model.")}


Weights = dict[str, torch.Tensor]


def same_weights(run: Path | Weights, other: Path | Weights) -> bool:
    ours, theirs = (weights(each) if isinstance(each, Path) else each for each in (run, other))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def rollouts(run: Path, steps: int = STEPS) -> list[dict[str, Any]]:
    """Every rollout of a run, less what is measured in seconds and MiB."""
    found = []
    for step in range(1, steps + 1):
        with gzip.open(run / "rollouts" / f"step-{step:06d}.jsonl.gz", "rt") as file:
            found += [json.loads(line) for line in file]
    for line in found:
        line["verdict"].pop("tests")
    return found


def metrics(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if line)
    return [line for line in lines if line["kind"] == kind]


# --- A run that nothing disturbs -----------------------------------------------------------------------------------


def test_a_run_learns_something_from_sealed_programs(trainings, whole):
    found = rollouts(whole)
    assert {line["verdict"]["level"] for line in found if line["reason"] != "bad_format"} == {"sealed"}
    rewards = [line["reward"] for line in found]
    assert 0 < sum(rewards) < len(rewards) == STEPS * 16  # else the tests below would show nothing
    assert not all(torch.equal(weights(whole)[name], start) for name, start in warm_start(whole).items())


def test_every_metric_of_a_run_with_a_judge_is_on_the_page_of_metrics(whole):
    assert undocumented(whole / "metrics.jsonl") == set()


def warm_start(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "start" / "model.safetensors")


def test_the_summary_holds_what_was_measured(whole):
    summary = json.loads((whole / "summary.json").read_text())
    for when in ("before", "after"):
        low, high = summary[f"heldout_pass1_interval_{when}"]
        assert 0 <= low <= summary[f"heldout_pass1_{when}"] <= high <= 1
    assert (summary["heldout_problems"], summary["steps"], summary["seed"]) == (8, STEPS, 3)
    assert summary["seconds_total"] >= summary["seconds_training"] > 0
    assert summary["best_step"] in (4, STEPS)
    assert 0 <= summary["best_pass1"] <= 1


def test_metrics_are_finite_numbers_of_every_step(whole):
    train = metrics(whole, "train")
    assert [line["step"] for line in train] == list(range(1, STEPS + 1))
    numbers = [value for line in train + metrics(whole, "sft") for value in line.values() if not isinstance(value, str)]
    assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
    assert max(line.get("policy/log_prob_mismatch", 0) for line in train) < 1e-4
    assert [line["step"] for line in metrics(whole, "evaluation")] == [0, 2, 4, 5]


def test_rollouts_are_stamped_with_the_version_that_sampled_them(whole):
    assert all(line["policy_versions"] == [[line["step"] - 1, 0, line["tokens"]]] for line in rollouts(whole))


def test_there_is_a_report_and_nothing_half_written(whole):
    assert (whole / "report.html").stat().st_size > 1000
    assert [path for path in whole.rglob("*") if "partial" in path.name] == []


def test_the_policy_of_any_checkpoint_can_be_exported(trainings, whole):
    for which, step in (("last", STEPS), ("4", 4)):
        out = trainings.path(f"exported-{which}")
        assert trainings.call("export", "export", str(whole), "--step", which, "--out", str(out)) == 0
        exported, trained = load_file(out / "model.safetensors"), trained_weights(whole, step)
        assert all(torch.equal(exported[name], trained[name]) for name in exported)
        assert {path.name for path in out.iterdir()} == {path.name for path in (whole / "model").iterdir()}
    assert same_weights(load_file(trainings.path("exported-last") / "model.safetensors"), whole)
    out = str(trainings.path("exported-4"))
    assert trainings.call("export", "export", str(whole), "--out", out) == 2
    assert f"--out {out}: exists already" in trainings.log("export")
    assert trainings.call("export", "export", str(whole), "--step", "3", "--out", f"{out}-3") == 2
    assert "no checkpoint '3'; there are: 4 (0." in trainings.log("export")


# --- Repeated ------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_rollouts_and_the_old_run_is_moved_aside(trainings, whole):
    trainings.path("twice").mkdir()
    (trainings.path("twice") / "summary.json").write_text("of an old run")
    assert trainings.run("twice", "--fresh") == 0
    assert same_weights(trainings.path("twice"), whole)
    assert rollouts(trainings.path("twice")) == rollouts(whole)
    (aside,) = trainings.folder.glob("twice.2*")
    assert (aside / "summary.json").read_text() == "of an old run"


def test_a_changed_solution_is_not_served_by_an_old_warm_start(trainings, whole):
    lines = (trainings.folder / "train.jsonl").read_text()
    try:
        (trainings.folder / "train.jsonl").write_text(lines.replace("print(1)", "print( 1 )"))
        assert trainings.run("edited", "--steps", "1") == 0
    finally:
        (trainings.folder / "train.jsonl").write_text(lines)
    assert "taken from" not in trainings.log("edited")


# --- Killed --------------------------------------------------------------------------------------------------------

MOMENTS = {  # and every fsync and rename of a checkpoint: test_checkpoints.py
    "in the warm start": r"said SFT step 40 of 80",
    "while the warm start is written": r"os.rename .*cache/sft/\..*partial",
    "in the first evaluation": r"open .*evaluations/\.step-000000",
    "before the first checkpoint": r"open .*rollouts/\.step-000002",
    "after an iteration without a checkpoint": r"open .*rollouts/\.step-000003",
    "while the weights of a checkpoint are written": r"open .*\.step-000004\.partial/actor/shard-",
    "while the model is written": r"open .*/\.model\.partial/",
    "before the summary": r"open .*\.summary\.json",
}
FEW_MOMENTS = (  # a death in the warm start has a test of its own
    "while the warm start is written",
    "in the first evaluation",
    "while the weights of a checkpoint are written",
    "before the summary",
)


@pytest.mark.parametrize(
    "moment", [pytest.param(each, marks=[] if each in FEW_MOMENTS else pytest.mark.soak) for each in MOMENTS]
)
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_weights_and_rollouts(trainings, whole, moment):
    name = moment.replace(" ", "-")
    fresh = ["--fresh"] if "warm start" in moment else []
    assert trainings.run(name, *fresh, at=MOMENTS[moment], do="kill") == -9, trainings.log(name)
    assert not (trainings.path(name) / "summary.json").exists()
    assert trainings.run(name, "--resume") == 0, trainings.log(name)
    assert same_weights(trainings.path(name), whole)
    assert rollouts(trainings.path(name)) == rollouts(whole)
    summary = json.loads((trainings.path(name) / "summary.json").read_text())
    assert summary["seconds_total"] >= summary["seconds_training"]  # those before the kill included


def test_a_warm_start_that_is_killed_or_stopped_goes_on_where_it_was(trainings, whole):
    assert trainings.run("warm", "--fresh", at=r"os.rename .*\.step-000060\.partial$", do="kill") == -9
    assert trainings.run("warm", "--resume", "--fresh", at=r"said SFT step 60 of 80", do="interrupt") == 1
    assert "warm start: going on after step 30 of 80" in trainings.log("warm")
    assert "Error: stopped in the warm start after step 60 of 80; go on with --resume" in trainings.log("warm")
    assert trainings.run("warm", "--resume", "--fresh", at=r"open .*\.start\.partial/", do="kill") == -9, trainings.log(
        "warm"
    )
    assert "warm start: going on after step 60 of 80" in trainings.log("warm")
    assert trainings.run("warm", "--resume", "--steps", "1") == 0, trainings.log("warm")
    assert same_weights(warm_start(trainings.path("warm")), warm_start(whole))
    assert not (trainings.path("warm") / "warm_start").exists()


def test_fine_tuning_alone_that_is_killed_goes_on_where_it_was(trainings, whole):
    moment = {"at": r"os.rename .*\.step-000060\.partial$", "do": "kill"}
    assert trainings.run("alone", command="sft", **moment) == -9, trainings.log("alone")
    assert trainings.run("alone", command="sft") == 2
    assert "exists already; give a new folder; or go on with --resume" in trainings.log("alone")
    assert trainings.run("alone", "--resume", command="sft") == 0, trainings.log("alone")
    assert "warm start: going on after step 30 of 80" in trainings.log("alone")
    assert same_weights(load_file(trainings.path("alone") / "model.safetensors"), warm_start(whole))
    assert not (trainings.path("alone") / "warm_start").exists()
    assert trainings.run("alone", "--resume", command="sft") == 2
    assert "holds no warm start that was ended early" in trainings.log("alone")


def test_with_a_kl_term_a_resumed_run_keeps_the_reference_that_it_began_with(trainings, whole, whole_grpo):
    code = trainings.run("killed-grpo", changes=GRPO, at=r"open .*rollouts/\.step-000004", do="kill")
    assert code == -9
    assert trainings.run("killed-grpo", "--resume", changes=GRPO) == 0, trainings.log("killed-grpo")
    assert same_weights(trainings.path("killed-grpo"), whole_grpo)
    assert not same_weights(whole_grpo, whole)
    assert metrics(whole_grpo, "train")[-1]["policy/reference_kl"] > 0


# --- Workers in processes of their own -----------------------------------------------------------------------------

SPAWNED = {"pools": {"main": {"executor": "spawn"}, "apart": {}}, "workers": {"sampler": "apart"}}
"""The actor in a process of its own, the sampler in this one."""


def test_workers_elsewhere_do_the_same_and_one_that_is_killed_is_replaced(trainings, whole):
    changes = SPAWNED | {"worker_restarts": 1}
    moment = {"at": r"os.mkdir .*\.step-000004\.partial", "do": "kill a worker"}
    assert trainings.run("replaced", changes=changes, **moment) == 0, trainings.log("replaced")
    assert "rank 0 of worker group 'actor'" in trainings.log("replaced")
    assert "going on after step 2 with new workers" in trainings.log("replaced")
    assert not list(trainings.path("replaced").rglob("*.partial"))
    assert same_weights(trainings.path("replaced"), whole)
    assert rollouts(trainings.path("replaced")) == rollouts(whole)


def test_two_processes_that_share_the_actor_learn_what_one_learns(trainings, whole):
    pools = {"pools": {"main": {"executor": "spawn", "processes": 2}, "apart": {}}, "workers": {"sampler": "apart"}}
    assert trainings.run("shared", changes=pools) == 0, trainings.log("shared")
    ours, theirs = weights(trainings.path("shared")), weights(whole)
    assert ours.keys() == theirs.keys()
    assert max((ours[name] - theirs[name]).abs().max().item() for name in ours) < 1e-3


def test_without_restarts_a_killed_worker_stops_the_run_which_can_be_resumed_on_other_pools(trainings, whole):
    moment = {"at": r"open .*rollouts/\.step-000003", "do": "kill a worker"}
    assert trainings.run("bereft", changes=SPAWNED, **moment) == 1, trainings.log("bereft")
    last = trainings.log("bereft").splitlines()[-1]
    assert last.startswith("Error: rank 0 of worker group 'actor' on node ")
    assert "was killed by signal 9" in last
    assert trainings.run("bereft", "--resume") == 0, trainings.log("bereft")
    assert same_weights(trainings.path("bereft"), whole)


def test_a_placement_that_cannot_be_is_refused_before_any_work(trainings):
    changes = {"pools": {"main": {"executor": "spawn", "devices_per_process": 1000}}}
    assert trainings.run("too-much", changes=changes) == 3
    assert "GPUs for pools that spawn processes, they need 1000 (1000 for pools.main)" in trainings.log("too-much")
    assert not trainings.path("too-much").exists()


# --- With a critic -------------------------------------------------------------------------------------------------

PPO = {"algorithm": {"name": "ppo"}}
APART = {"pools": {"main": {}, "apart": {"executor": "spawn"}}, "workers": {"critic": "apart"}}
"""The critic in a process of its own, all others in this one."""


@pytest.fixture(scope="module")
def whole_ppo(trainings: Trainings) -> Path:
    assert trainings.run("whole-ppo", changes=PPO) == 0, trainings.log("whole-ppo")
    return trainings.path("whole-ppo")


def same_critic(run: Path, other: Path) -> bool:
    first, second = (load_file(path / "critic/model.safetensors") for path in (run, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_policy_and_critic_of_a_run_that_is_killed_and_resumed_are_those_of_one_that_was_not(trainings, whole_ppo):
    code = trainings.run("killed-ppo", changes=PPO, at=r"open .*rollouts/\.step-000004", do="kill")
    assert code == -9
    assert trainings.run("killed-ppo", "--resume", changes=PPO) == 0, trainings.log("killed-ppo")
    assert same_weights(trainings.path("killed-ppo"), whole_ppo)
    assert same_critic(trainings.path("killed-ppo"), whole_ppo)
    assert metrics(whole_ppo, "train")[-1]["critic/value_error"] >= 0


def test_a_critic_elsewhere_does_the_same_and_one_that_is_killed_is_replaced(trainings, whole_ppo):
    changes = PPO | APART | {"worker_restarts": 1}
    moment = {"at": r"open .*rollouts/\.step-000003", "do": "kill a worker"}
    assert trainings.run("critic-apart", changes=changes, **moment) == 0, trainings.log("critic-apart")
    assert "rank 0 of worker group 'critic'" in trainings.log("critic-apart")
    assert same_weights(trainings.path("critic-apart"), whole_ppo)
    assert same_critic(trainings.path("critic-apart"), whole_ppo)
    log = trainings.log("critic-apart")
    assert "peak memory: actor, reference, sampler (with the driver and the warm start) " in log
    summary = json.loads((trainings.path("critic-apart") / "summary.json").read_text())
    peaks = {group: ranks[0] for group, ranks in summary["peak_memory_mib"].items()}
    assert peaks.keys() == {"actor", "reference", "critic", "sampler"}
    assert peaks["critic"]["process"] != peaks["actor"]["process"] == peaks["sampler"]["process"]
    assert all(peak["resident"] > peak["grown"] >= 0 for peak in peaks.values())
    assert peaks["critic"]["resident"] - peaks["critic"]["grown"] > 300  # MiB of libraries


LARGER: dict[str, Any] = {
    **GRPO,
    "steps": 1,
    "model": RECIPE["model"]
    | {"tiny": {"hidden_size": 256, "layers": 6, "heads": 4, "vocabulary": 300, "context": 96}},
    "sft": {"steps": 0},
    "evaluation": {"every": 0, "final_samples": 1},
    "trainer": {"packing": "never"},  # as it is planned
}


@pytest.mark.parametrize(
    ("name", "phase", "changes"),
    [
        ("peak-of-checkpoint", "checkpoint", {"checkpoint": {"every": 1}}),
        pytest.param(
            "peak-of-update",
            "update",
            {"steps": 2, "group_size": 12, "minibatches": 1, "sampler": {"max_new_tokens": 64}},
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_process_takes_what_is_planned_the_driver_included(
    trainings: Trainings, name: str, phase: str, changes: dict[str, Any]
):
    files = {"name": "files", **{part: str(trainings.folder / f"{part}.jsonl") for part in ("train", "heldout")}}
    recipe = trainings.folder / f"{name}.yaml"
    recipe.write_text(json.dumps(RECIPE | {"problems": files} | LARGER | changes))
    # A process of its own: one that was forked does not have all that its libraries take.
    command = [sys.executable, "-m", "autoclave", "train", str(recipe), "--out", str(trainings.path(name))]
    subprocess.run(
        command, check=True, env=os.environ | {"AUTOCLAVE_CACHE": str(trainings.cache), "OMP_NUM_THREADS": "1"}
    )
    config = load(TrainConfig, trainings.path(name) / "config.yaml").config
    longest = max(line["tokens"] for line in rollouts(trainings.path(name), 1))
    (pool,) = plan_for(config, prompt_tokens=12, response_tokens=longest).pools
    (peak, *_) = json.loads((trainings.path(name) / "summary.json").read_text())["peak_memory_mib"]["actor"]
    assert pool.peak.name == phase
    assert peak["grown"] * 2**20 == pytest.approx(pool.peak.total, rel=0.15)


def test_a_plan_that_needs_more_memory_than_a_pool_may_take_is_refused_before_any_work(trainings):
    cap = {"memory_gb": 2e-3}
    together = {"pools": {"main": cap}}
    assert trainings.run("too-large", changes=PPO | together) == 2
    assert "Error: pools.main.memory_gb = 0.002: its groups (actor, sampler, reference, critic) need" in trainings.log(
        "too-large"
    )
    assert not trainings.path("too-large").exists()


def test_a_reward_model_is_added_to_the_verdicts_and_one_of_another_policy_is_refused(trainings, whole):
    folder = trainings.folder / "reward_model"
    policy = load_policy(whole / "start", device="cpu")
    settings = policy.model.config
    settings.num_labels = 1
    torch.manual_seed(0)
    save_model(HeadModel(LlamaForSequenceClassification(settings), policy.tokenizer), folder)
    changes = {"steps": 1, "reward_model": {"path": str(folder), "weight": 0.5}}
    assert trainings.run("scored", changes=changes) == 0, trainings.log("scored")
    (line, *_) = rollouts(trainings.path("scored"), 1)
    assert line["reward"] == pytest.approx(line["reward_parts"]["verdict"] + line["reward_parts"]["reward_model"])
    assert line["verdict"]["reward"] == line["reward_parts"]["verdict"]
    assert line["ledger"]["reward"] == pytest.approx(line["reward"])
    train = metrics(trainings.path("scored"), "train")[0]
    assert train["reward/mean"] == pytest.approx(train["reward/verdict"] + train["reward/reward_model"])

    other = tiny_reward_model()
    save_model(other, folder)
    assert trainings.run("mistaken", changes=changes) == 2
    assert "another tokenizer than the policy's" in trainings.log("mistaken").splitlines()[-1]


# --- An adapter ----------------------------------------------------------------------------------------------------

LORA = GRPO | {"trainer": {"lora": {"rank": 4}}, "optimizer": {"learning_rate": 1e-2}}


def test_a_run_of_an_adapter_goes_on_bit_for_bit_beside_its_reference_and_refuses_another(trainings):
    assert trainings.run("adapter", changes=LORA) == 0, trainings.log("adapter")
    whole, cut = trainings.path("adapter"), trainings.path("adapter-cut")
    assert max(line.get("policy/reference_kl", 0) for line in metrics(whole, "train")) > 0
    assert max(line.get("policy/log_prob_mismatch", 0) for line in metrics(whole, "train")) < 1e-4
    assert trainings.run("adapter-cut", changes=LORA, at=r"open .*rollouts/\.step-000004", do="kill") == -9
    assert trainings.run("adapter-cut", "--resume", changes=LORA) == 0, trainings.log("adapter-cut")
    assert same_weights(cut, whole)
    name = "model/adapter/adapter_model.safetensors"
    assert (cut / name).read_bytes() == (whole / name).read_bytes()
    assert rollouts(cut) == rollouts(whole)
    shutil.copy(whole / "model/model.safetensors", cut / "start")
    assert trainings.run("adapter-cut", "--resume", changes=LORA) == 2
    assert "made with frozen_weights = " in trainings.log("adapter-cut").splitlines()[-1]


# --- Ended early ---------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_at_a_checkpoint_with_exit_code_1_and_says_how_to_go_on(trainings, whole):
    assert trainings.run("stopped", at=r"open .*rollouts/\.step-000003", do="interrupt") == 1
    assert trainings.log("stopped").splitlines()[-1] == "Error: stopped after step 3 of 5; go on with --resume"
    assert trained_weights(trainings.path("stopped"), 3)
    assert not (trainings.path("stopped") / "model").exists()
    assert trainings.run("stopped", "--resume") == 0
    assert same_weights(trainings.path("stopped"), whole)
    assert rollouts(trainings.path("stopped")) == rollouts(whole)


def test_ctrl_c_in_the_warm_start_ends_it_with_exit_code_1(trainings):
    left_by_others = {*trainings.cache.rglob("*.partial")}
    assert trainings.run("stopped-early", "--fresh", at="said SFT step 20 of 80", do="interrupt") == 1
    assert "Error: stopped in the warm start after step 2" in trainings.log("stopped-early").splitlines()[-1]
    assert trainings.run("stopped-early", "--resume", changes={"seed": 4}) == 2
    assert "made with seed = 3, now it is 4" in trainings.log("stopped-early").splitlines()[-1]
    assert {*trainings.cache.rglob("*.partial")} == left_by_others


def test_a_finished_run_is_prolonged_to_the_weights_of_a_longer_one(trainings):
    constant = {"optimizer": RECIPE.get("optimizer", {}) | {"decay": "none"}}
    shorter = constant | {"steps": 3}
    assert trainings.run("long", changes=constant) == 0, trainings.log("long")
    assert trainings.run("short", changes=shorter) == 0, trainings.log("short")
    assert trainings.run("short", "--resume", "--steps", "5", changes=shorter) == 0, trainings.log("short")
    assert same_weights(trainings.path("short"), trainings.path("long"))
    assert rollouts(trainings.path("short")) == rollouts(trainings.path("long"))
    assert trainings.run("short", "--resume", "--steps", "2", changes=shorter) == 2
    assert "made with steps = 5, now it is 2" in trainings.log("short").splitlines()[-1]


def test_a_full_disk_in_a_checkpoint_is_a_fault_of_the_host_and_the_older_one_serves(trainings, whole):
    moment = {"at": r"os.mkdir .*\.step-000004\.partial", "do": "fill the disk"}
    assert trainings.run("full", **moment) == 3, trainings.log("full")
    last = trainings.log("full").splitlines()[-1]
    assert last.startswith("Error: ")
    assert "cannot be written" in last
    assert "Traceback" not in trainings.log("full")
    assert trainings.run("full", "--resume") == 0
    assert same_weights(trainings.path("full"), whole)


def test_a_checkpoint_of_another_configuration_is_refused_with_exit_code_2(trainings, whole):
    assert trainings.run("whole", "--resume", changes={"group_size": 8}) == 2
    assert "made with group_size = 4, now it is 8" in trainings.log("whole").splitlines()[-1]


def test_a_checkpoint_of_another_architecture_is_refused_before_a_model_is_loaded(trainings, whole):
    other = trainings.path("other")
    shutil.copytree(whole, other)
    description = json.loads((other / "start" / "config.json").read_text())
    (other / "start" / "config.json").write_text(json.dumps(description | {"hidden_size": 64}))
    assert trainings.run("other", "--resume") == 2
    assert "made with architecture.hidden_size = 32, now it is 64" in trainings.log("other").splitlines()[-1]


def test_a_damaged_shard_is_named_and_the_older_checkpoint_serves(trainings, whole):
    damaged = trainings.path("damaged")
    shutil.copytree(whole, damaged)
    (shard,) = (damaged / "checkpoints" / "step-000005" / "actor").glob("shard-*")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert trainings.run("damaged", "--resume") == 2
    last = trainings.log("damaged").splitlines()[-1]
    assert f"{shard}: damaged (its checksum" in last
    assert last.endswith(f"Fix: move {shard.parent.parent} away to resume from step-000004")
    shard.parent.parent.rename(damaged / "away")
    assert trainings.run("damaged", "--resume") == 0, trainings.log("damaged")
    assert same_weights(damaged, whole)


def test_a_run_that_is_complete_can_be_resumed_and_its_figures_stay(trainings, whole):
    def figures() -> dict[str, Any]:
        summary = json.loads((whole / "summary.json").read_text())
        return {key: value for key, value in summary.items() if key.startswith("heldout")}

    before = figures(), weights(whole)
    assert trainings.run("whole", "--resume") == 0, trainings.log("whole")
    assert figures() == before[0]
    assert all(torch.equal(before[1][name], tensor) for name, tensor in weights(whole).items())
