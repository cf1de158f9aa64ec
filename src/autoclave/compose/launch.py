"""Files that start a run on a cluster: a batch script of Slurm, or a RayJob of KubeRay.

The templates beside this module have `{{name}}` where a value goes.
"""

import json
import re
import shlex
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from textwrap import indent
from typing import Any

from autoclave.config import TrainConfig, dump
from autoclave.config.model import PACKAGED_MODELS, packaged_model_folder
from autoclave.core import ConfigError
from autoclave.core.files import write_atomically

OPTIONS: dict[str, dict[str, Any]] = {
    "slurm": {"time": "24:00:00", "grace": 1800, "setup": ()},
    "rayjob": {"image": "", "claim": "autoclave"},
}
"""Options of each kind of cluster besides its nodes, with their defaults."""


def write_launch_files(
    config: TrainConfig, kind: str, out: Path, nodes: int | None, gpus: int, cpus: int, given: Mapping[str, Any]
) -> list[str]:
    """Write the recipe and what starts it to folder `out`, and return lines that say how to.

    Args:
        kind: a key of `OPTIONS`.
        nodes: nodes of the cluster; None: as few as its pools fit on.

    Raises:
        ConfigError: the run cannot be started so; the message has the fix.
    """
    if ignored := [name for name in given if name not in OPTIONS[kind]]:
        raise ConfigError(f"--{ignored[0]}: is ignored with --{kind}. Fix: remove it")
    demands = pool_demands(config, gpus)
    needed = count_nodes(demands, gpus, cpus)
    if nodes is not None and nodes < needed:
        parts = " + ".join(f"{processes} x {each} for pools.{name}" for name, (processes, each) in demands.items())
        raise ConfigError(
            f"--nodes {nodes}: the GPUs of all pools ({parts}) take {needed} nodes of {gpus} GPUs and {cpus} cores. "
            f"Fix: --nodes {needed}"
        )
    name = re.sub(r"[^a-z0-9]+", "-", config.name.lower())[:40].strip("-") or "run"
    run = shlex.quote(f"runs/{config.name}")
    values = OPTIONS[kind] | dict(given) | {"name": name, "run": run, "gpus": gpus, "cpus": cpus}
    values["nodes"] = nodes or needed
    recipe = out / "recipe.yaml"
    path, start = _write_slurm(config, out, values) if kind == "slurm" else _write_rayjob(config, out, values)
    write_atomically(recipe, _portable(config))
    return [
        f"nodes: {values['nodes']}, each with {gpus} GPUs and {cpus} cores; run folder {values['run']}",
        *(f"pools.{pool}: {processes} processes, each with {each} GPUs" for pool, (processes, each) in demands.items()),
        f"memory of each: autoclave plan {recipe}",
        f"start it: {start} {path}",
    ]


def pool_demands(config: TrainConfig, gpus: int) -> dict[str, tuple[int, int]]:
    """Processes of each pool and GPUs of each process, on nodes of `gpus` GPUs.

    Raises ConfigError: a pool is not one of Ray, or a process needs more than a node has.
    """
    usual = 1 if gpus and config.model.device != "cpu" else 0
    found: dict[str, tuple[int, int]] = {}
    for name, pool in config.pools.items():
        if pool.executor != "ray":
            raise ConfigError(
                f"pools.{name}.executor = {pool.executor}: the pools of a cluster are those of Ray. "
                f"Fix: pools.{name}.executor=ray"
            )
        given = config.devices_per_process(name) if usual else pool.devices_per_process
        each = usual if given is None else given
        if each > gpus:
            raise ConfigError(
                f"pools.{name}.devices_per_process = {each}: the GPUs of a process are on one node, and a node has "
                f"{gpus}. Fix: pools.{name}.devices_per_process={gpus} or less with more processes, or --gpus-per-node"
            )
        found[name] = pool.processes, each
    return found


def count_nodes(demands: Mapping[str, tuple[int, int]], gpus: int, cpus: int) -> int:
    """Return how many nodes hold all processes, each with its GPUs and a core; the largest are placed first."""
    free: list[list[int]] = []
    for each in sorted((each for processes, each in demands.values() for _ in range(processes)), reverse=True):
        node = next((node for node in free if node[0] >= each and node[1]), None)
        if node is None:
            free.append(node := [gpus, cpus])
        node[0], node[1] = node[0] - each, node[1] - 1
    return len(free)


def _write_slurm(config: TrainConfig, out: Path, values: dict[str, Any]) -> tuple[Path, str]:
    setup = list(values["setup"])
    if variable := config.judge.remote.token_variable:
        setup.append(f': "${{{variable}:?must hold the token of the judge servers. Fix: export it before sbatch}}"')
    values |= {
        "setup": "\n".join(setup),
        "folder": shlex.quote(str(Path.cwd())),
        "bin": shlex.quote(f"{sys.prefix}/bin"),
        "recipe": shlex.quote(str((out / "recipe.yaml").absolute())),
    }
    text = _filled("slurm.sh", values)
    if not values["gpus"]:
        text = text.replace("#SBATCH --gpus-per-node=0\n", "")
    write_atomically(out / "run.sbatch", text)
    return out / "run.sbatch", "sbatch"


def _write_rayjob(config: TrainConfig, out: Path, values: dict[str, Any]) -> tuple[Path, str]:
    if not values["image"]:
        raise ConfigError("--rayjob: needs an image with autoclave and its extras. Fix: --image REGISTRY/NAME:TAG")
    if config.judge.backend == "local":
        raise ConfigError(
            "judge.backend = local: the pods of a RayJob cannot seal programs. Fix: apply deploy/kubernetes/judge.yaml "
            "and add judge.backend=remote judge.remote.urls=[http://judge:8750] judge.remote.token_variable=JUDGE_TOKEN"
        )
    plain = {"AUTOCLAVE_CACHE": "/workspace/cache", "RAY_USAGE_STATS_ENABLED": "0"}
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items()]
    if variable := config.judge.remote.token_variable:
        secret = {"secretKeyRef": {"name": "judge-token", "key": "token"}}
        env.append({"name": variable, "valueFrom": secret})
    values |= {name: json.dumps(values[name]) for name in ("image", "claim")}
    values |= {"env": json.dumps(env), "recipe": indent(_portable(config), "    "), "workers": values["nodes"] - 1}
    write_atomically(out / "rayjob.yaml", _filled("rayjob.yaml", values))
    return out / "rayjob.yaml", "kubectl apply -f"


def _portable(config: TrainConfig) -> str:
    """The settings, with a packaged model by its name: its folder is in the cache of another machine."""
    path = config.model.path
    name = next((name for name in PACKAGED_MODELS if path == str(packaged_model_folder(name))), path)
    return dump(config.model_copy(update={"model": config.model.model_copy(update={"path": name})}))


def _filled(template: str, values: Mapping[str, Any]) -> str:
    text = (files("autoclave.compose") / template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(values[found[1]]), text)
