"""`autoclave launch`: what it writes meets the schemas of Slurm and KubeRay, and trains."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.config import TrainConfig, load
from autoclave.core import ConfigError
from tests.test_pins import PINS

HERE = Path(__file__).parent
RECIPES = Path(__file__).parents[2] / "recipes"
REMOTE = ("judge.backend=remote", "judge.remote.urls=[http://judge:8750]", "judge.remote.token_variable=JUDGE_TOKEN")
ON_RAY = {"pools": {"main": {"executor": "ray"}, "apart": {"executor": "ray"}}, "workers": {"sampler": "apart"}}
MINIATURE: dict[str, Any] = {
    "name": "miniature",
    "steps": 40,
    "problems": {"name": "files", "train": "train.jsonl", "heldout": "heldout.jsonl"},
    "problems_per_step": 4,
    "group_size": 4,
    "minibatches": 2,
    "model": {
        "tiny": {"hidden_size": 32, "layers": 1, "heads": 2, "vocabulary": 300, "context": 96},
        "device": "cpu",
        "threads": 1,
    },
    "sft": {"steps": 80, "batch_size": 8, "optimizer": {"learning_rate": 1e-2, "warmup_steps": 5}},
    "task": {"template": "plain"},
    "sampler": {"max_new_tokens": 24},
    "judge": {"workers": 1, "time_limit_range": [2, 4]},
    "evaluation": {"every": 0, "final_samples": 1},
    "checkpoint": {"every": 1},
}


def say(number: int, again: str) -> dict[str, Any]:
    return {
        "format": "autoclave-problem/1",
        "statement": f"Say {number}{again}.",
        "tests": {"kind": "stdin", "cases": [{"input": again, "output": f"{number}\n"}]},
        "solutions": [f"print({number})"],
    }


PROBLEMS = {
    "train": [say(number, "") for number in range(8)],
    "heldout": [say(number, " again") for number in range(8)],
}


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """launch("--slurm", ...): what the command prints for a miniature of the demo, from an empty folder."""
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(MINIATURE | ON_RAY))
    for name, problems in PROBLEMS.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    monkeypatch.chdir(tmp_path)

    def run(*words: str, recipe: str = "recipe.yaml") -> str:
        ended = CliRunner().invoke(cli, ["launch", recipe, "--out", "kit", *words])
        if ended.exception:
            raise ended.exception
        return ended.output

    return run


# --- Slurm ---------------------------------------------------------------------------------------------------------

SBATCH_OPTIONS = {
    "job-name": r"[a-z0-9-]+",
    "nodes": r"\d+",
    "ntasks-per-node": "1",
    "cpus-per-task": r"\d+",
    "gpus-per-node": r"\d+",
    "exclusive": "",
    "time": r"(\d+-)?\d+(:\d\d){0,2}",
    "signal": r"B:TERM@\d+",
    "requeue": "",
    "open-mode": "append",
    "output": r"[a-z0-9-]+-%j\.log",
}
"""Options of sbatch(1) that are used, and the form of their values."""


def slurm_options() -> dict[str, str]:
    text = Path("kit/run.sbatch").read_text()
    assert subprocess.run(["bash", "-n", "kit/run.sbatch"], capture_output=True, text=True).stderr == ""
    assert "{{" not in text
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE))
    assert all(re.fullmatch(SBATCH_OPTIONS[name], value) for name, value in options.items())
    return options


@pytest.mark.parametrize(
    ("settings", "words", "nodes", "gpus"),
    [
        ([], ("--gpus-per-node", "0", "--cpus-per-node", "1"), "2", None),
        ([], ("--gpus-per-node", "0", "--cpus-per-node", "2"), "1", None),
        (["pools.main.processes=6", "pools.apart.processes=3"], (), "2", "8"),
        (["pools.main.processes=6", "pools.apart.processes=2"], (), "1", "8"),
        (["pools.main.devices_per_process=5", "pools.apart.devices_per_process=4"], (), "2", "8"),
        (["sampler.engine.name=vllm", "sampler.engine.tensor_parallel=8"], (), "2", "8"),
        ([], ("--nodes", "3"), "3", "8"),
    ],
)
def test_the_batch_script_asks_for_the_nodes_that_the_pools_fill(
    settings: list[str], words: tuple[str, ...], nodes: str, gpus: str | None, launch: Callable[..., str]
):
    launch("--slurm", "model.device=auto", *settings, *words)
    options = slurm_options()
    assert (options["nodes"], options.get("gpus-per-node")) == (nodes, gpus)


def test_the_recipe_in_the_folder_is_what_the_command_line_means(launch: Callable[..., str]):
    launch("--slurm", "steps=7")
    assert load(TrainConfig, Path("kit/recipe.yaml")).config.steps == 7


def test_runs_of_different_names_have_different_folders(launch: Callable[..., str]):
    folders = []
    for name in ("a_b", "a-b", "a" * 50 + "1", "a" * 50 + "2"):
        launch("--slurm", f"name={name}")
        slurm_options()  # the name of the job is short and plain
        folders += re.findall(r"--out (\S+)", Path("kit/run.sbatch").read_text())
    assert folders == ["runs/a_b", "runs/a-b", f"runs/{'a' * 50}1", f"runs/{'a' * 50}2"]


def test_a_packaged_model_is_named_not_placed(launch: Callable[..., str]):
    shutil.copy(RECIPES / "smollm2-135m.yaml", "packaged.yaml")
    launch("--slurm", "pools.main.executor=ray", recipe="packaged.yaml")
    assert yaml.safe_load(Path("kit/recipe.yaml").read_text())["model"]["path"] == "smollm2-135m"


def test_options_and_the_token_of_judges_are_in_the_batch_script(launch: Callable[..., str]):
    launch(
        "--slurm", "--time", "2-00:00:00", "--grace", "60", "--setup", "module load cuda", *REMOTE,
        "judge.workers=0", "judge.time_limit_range=[6, 12]",
    )  # fmt: skip
    options = slurm_options()
    assert (options["time"], options["signal"]) == ("2-00:00:00", "B:TERM@60")
    text = Path("kit/run.sbatch").read_text()
    assert "\nmodule load cuda\n" in text
    assert "${JUDGE_TOKEN:?" in text


def free_job_id() -> int:
    """The number of a job whose port of Ray is free."""
    for job in range(os.getpid(), os.getpid() + 10_000):
        with contextlib.suppress(OSError), socket.create_server(("", 20_000 + job % 10_000)):
            return job
    raise AssertionError("no port from 20000 to 29999 is free")


@pytest.fixture
def submit(launch: Callable[..., str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """submit(NAME="value"): run kit/run.sbatch by stubs of Slurm."""

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        own = {
            "PATH": f"{HERE / 'stubs'}:{os.environ['PATH']}",
            "STUB_FOLDER": str(tmp_path),
            "STUB_JOB_ID": str(free_job_id()),
            "AUTOCLAVE_CACHE": str(tmp_path / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.run(
            ["sbatch", "kit/run.sbatch"],
            env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | own | environment,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )

    return run


@pytest.mark.soak
def test_two_nodes_train_to_the_weights_of_one_process_though_the_job_was_queued_again(
    launch: Callable[..., str], submit: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    launch("--slurm", "--gpus-per-node", "0", "--cpus-per-node", "1")
    ended = submit(STUB_STOP_AT=str(tmp_path / "runs/miniature/checkpoints/step-000001"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "resuming" in ended.stdout
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(MINIATURE))
    subprocess.run(
        [sys.executable, "-m", "autoclave", "train", "plain.yaml", "--out", "plain"], check=True, timeout=120
    )
    weights = {run: Path(run, "model/model.safetensors").read_bytes() for run in ("runs/miniature", "plain")}
    assert weights["runs/miniature"] == weights["plain"]
    assert weights["plain"] != Path("plain/start/model.safetensors").read_bytes()  # it learned


STUB_PROGRAMS = {
    "python": """case "$2" in
*token_hex*) echo secret ;;
*get_node_ip*) echo 10.0.0.1 ;;
*) [ "$RAY_ADDRESS $RAY_AUTH_MODE $RAY_AUTH_TOKEN" = "10.0.0.1:$PORT token secret" ] || exit
   until [ -e "$STUB_FOLDER/head" ] && [ -e "$STUB_FOLDER/worker" ]; do sleep 0.02; done
   rm "$STUB_FOLDER/head" "$STUB_FOLDER/worker" ;;
esac""",
    "ray": """echo "ray $*" >> "$STUB_FOLDER/log"
[ "$2" = --head ] && touch "$STUB_FOLDER/head" || touch "$STUB_FOLDER/worker"
exec sleep 60""",
    "autoclave": """echo "autoclave $*" >> "$STUB_FOLDER/log"
mkdir -p runs/miniature && touch runs/miniature/config.yaml
[[ "$*" == *--resume* ]] && exit ${STUB_CODE:-0}
trap 'kill $! && touch runs/miniature/saved && exit 1' TERM
touch runs/miniature/checkpoint
sleep 60 & wait""",
}
"""Of the environment: what they are called with is in a log, and training saves its state on SIGTERM."""


def test_a_job_at_its_time_limit_saves_its_state_is_queued_again_and_resumes(
    launch: Callable[..., str],
    submit: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    (tmp_path / "bin").mkdir()
    for name, source in STUB_PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{source}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    launch("--slurm", "--cpus-per-node", "1", "--gpus-per-node", "0")
    job = free_job_id()
    port = str(20_000 + job % 10_000)
    ended = submit(STUB_JOB_ID=str(job), PORT=port, STUB_STOP_AT="runs/miniature/checkpoint", STUB_CODE="7")
    assert ended.returncode == 7, ended.stderr  # of the run, once it is not stopped any more
    assert Path("runs/miniature/saved").exists()
    called = [line.split(" --num-cpus=1 --num-gpus=0")[0] for line in Path("log").read_text().splitlines()]
    nodes = ["ray start --address=10.0.0.1:" + port, f"ray start --head --port={port} --include-dashboard=false"]
    train = f"autoclave train {tmp_path}/kit/recipe.yaml --out runs/miniature"
    assert sorted(called) == sorted([*nodes, *nodes, train, f"{train} --resume"])


# --- KubeRay -------------------------------------------------------------------------------------------------------


def block(required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


TEXT, COUNT, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
WORDS = {"type": "object", "additionalProperties": TEXT}
POD = {"type": "object", "required": ["spec"]}
GROUP = {"rayStartParams": WORDS, "template": POD, "resources": WORDS, "labels": WORDS}
RAY_CLUSTER = block(
    "headGroupSpec",
    rayVersion=TEXT,
    authOptions=block("mode", mode={"enum": ["disabled", "token"]}, secretName=TEXT, enableK8sTokenAuth=FLAG),
    suspend=FLAG,
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions={"type": "object"},
    headServiceAnnotations=WORDS,
    headGroupSpec=block("template", serviceType=TEXT, enableIngress=FLAG, headService={"type": "object"}, **GROUP),
    workerGroupSpecs={
        "type": "array",
        "items": block(
            "groupName template maxReplicas minReplicas",
            groupName=TEXT,
            replicas=COUNT,
            minReplicas=COUNT,
            maxReplicas=COUNT,
            numOfHosts=COUNT,
            idleTimeoutSeconds=COUNT,
            suspend=FLAG,
            scaleStrategy={"type": "object"},
            **GROUP,
        ),
    },
)
RAY_JOB = block(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=block("name", name={"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,45}[a-z0-9])?$"}, labels=WORDS),
    spec=block(
        "entrypoint rayClusterSpec",
        activeDeadlineSeconds=COUNT,
        backoffLimit=COUNT,
        rayClusterSpec=RAY_CLUSTER,
        submitterPodTemplate=POD,
        submitterConfig={"type": "object"},
        metadata=WORDS,
        clusterSelector=WORDS,
        managedBy=TEXT,
        deletionStrategy={"type": "object"},
        entrypoint=TEXT,
        runtimeEnvYAML=TEXT,
        jobId=TEXT,
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        entrypointResources=TEXT,
        entrypointNumCpus={"type": "number"},
        entrypointNumGpus={"type": "number"},
        ttlSecondsAfterFinished=COUNT,
        shutdownAfterJobFinishes=FLAG,
        suspend=FLAG,
        preRunningDeadlineSeconds=COUNT,
    ),
)
"""The fields that ray.io/v1 publishes (its API reference, of KubeRay 1.6)."""


@pytest.fixture
def manifest(launch: Callable[..., str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the RayJob of a run on 24 GPUs."""
    shutil.copy(RECIPES / "ppo-apps-starcoder2-3b.yaml", "large.yaml")
    sizes = ("pools.main.processes=16", "pools.apart.processes=8")
    launch("--rayjob", "--image", "registry/autoclave:1", "--claim", "files", *sizes, *REMOTE, recipe="large.yaml")
    settings, job = yaml.safe_load_all(Path("kit/rayjob.yaml").read_text())
    return settings, job


def test_the_ray_job_meets_the_schemas_of_kuberay_and_kubernetes(manifest: tuple[dict[str, Any], dict[str, Any]]):
    settings, job = manifest
    jsonschema.validate(job, RAY_JOB)
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]}
        kubernetes_validate.validate(pod, "1.33", strict=True)
    kubernetes_validate.validate(settings, "1.33", strict=True)


def test_a_wrong_ray_job_is_noticed(manifest: tuple[dict[str, Any], dict[str, Any]]):
    job = manifest[1]
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParam"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, RAY_JOB)


def test_the_ray_job_has_the_nodes_the_recipe_the_claim_and_the_token(manifest: tuple[dict[str, Any], dict[str, Any]]):
    settings, job = manifest
    cluster = job["spec"]["rayClusterSpec"]
    assert [group["replicas"] for group in cluster["workerGroupSpecs"]] == [2]  # and the head: 3 nodes of 8
    pod = cluster["headGroupSpec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert cluster["rayVersion"] == PINS["ray"]
    assert container["image"] == "registry/autoclave:1"
    assert container["resources"]["limits"] == {"cpu": "64", "nvidia.com/gpu": "8"}
    assert {"name": "work", "persistentVolumeClaim": {"claimName": "files"}} in pod["volumes"]
    assert [variable["name"] for variable in container["env"] if "valueFrom" in variable] == ["JUDGE_TOKEN"]
    Path("back.yaml").write_text(settings["data"]["recipe.yaml"])
    assert load(TrainConfig, Path("back.yaml")).config == load(TrainConfig, Path("kit/recipe.yaml")).config


# --- Mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slurm", "pools.main.executor=spawn"], r"pools\.main\.executor = spawn: .* Fix: pools\.main\.executor=ray"),
        (
            ["--slurm", "pools.main.devices_per_process=9"],
            r"pools\.main\.devices_per_process = 9: .* a node has 8\. Fix: pools\.main\.devices_per_process=8",
        ),
        (
            ["--slurm", "--gpus-per-node", "2", "pools.main.devices_per_process=4"],
            r"pools\.main\.devices_per_process = 4: .* a node has 2\. Fix:",
        ),
        (
            ["--slurm", "--nodes", "1", "model.device=auto", "pools.main.processes=8"],
            r"--nodes 1: .*1 x 1 for pools\.apart \+ 8 x 1 for pools\.main\) take 2 nodes of 8.* Fix: --nodes 2",
        ),
        (["--slurm", "--image", "x"], r"--image: is ignored with --slurm\. Fix: remove it"),
        (["--rayjob", "--time", "1:00"], r"--time: is ignored with --rayjob\. Fix: remove it"),
        (["--rayjob"], r"--rayjob: needs an image .* Fix: --image"),
        (["--rayjob", "--image", "x"], r"judge\.backend = local: .* Fix: .*judge\.backend=remote"),
    ],
)
def test_what_cannot_start_is_refused_with_the_fix_and_nothing_is_written(
    words: list[str], message: str, launch: Callable[..., str]
):
    with pytest.raises(ConfigError, match=f"^{message}"):
        launch(*words)
    assert not Path("kit").exists()


def test_the_kind_of_cluster_must_be_given():
    assert "give --slurm or --rayjob" in CliRunner().invoke(cli, ["launch"]).output
