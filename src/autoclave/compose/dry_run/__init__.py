"""`autoclave train --dry-run`: a recipe is checked as it is, then trained in miniature by the code that trains it."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from autoclave.compose.dry_run.miniature import shrunk, write_parts
from autoclave.compose.dry_run.table import Row, check_recipe, describe, exercised, to_json
from autoclave.compose.training import train
from autoclave.config import PoolConfig, TrainConfig, VllmEngineConfig
from autoclave.core import InputError

__all__ = ["describe", "dry_run", "to_json"]


def dry_run(config: TrainConfig, out: Path, *, say: Callable[[str], None]) -> tuple[TrainConfig, list[Row]]:
    """Check `config` as it is, then train it in miniature in the folder `out`, with a checkpoint and a resumption.

    Returns:
        The settings of the miniature, and the table of what was exercised and what was not.

    Raises:
        AutoclaveError: as `train`; settings that cannot work are an error although they are of the whole recipe.
    """
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise InputError(f"--out {out}: exists already. Fix: give a new folder for the dry run")
    say("dry run: checking the recipe as it is")
    found = check_recipe(config, out)
    small = shrunk(config, out, local_judge=bool(found.unreachable_judge), is_llama=not found.architecture)
    with _inside(out), _own_cluster(small):
        say("dry run: making a tiny model and problems")
        write_parts(small, out, found.architecture)
        run, last = out / "run", small.steps
        train(small.model_copy(update={"steps": last - 1}), run, say=say)
        say("dry run: resuming from the checkpoint, in one process for each group")
        train(_in_one_process(small), run, resume=True, say=say)
    say(f"dry run: done in {time.monotonic() - began:.0f} s")
    return small, exercised(config, small, run, found)


def _in_one_process(config: TrainConfig) -> TrainConfig:
    """`config` with one process for each group, here if it can be: a checkpoint does not depend on them.

    vLLM needs torch's process group for itself, and models in mixed precision have one.
    """
    is_vllm = isinstance(config.sampler.engine, VllmEngineConfig)
    pool = PoolConfig(executor="spawn", devices_per_process=0) if is_vllm else PoolConfig()
    return config.model_copy(update={"pools": dict.fromkeys(config.pools, pool)})


@contextmanager
def _inside(folder: Path) -> Generator[None]:
    """Keep models that `train` caches in `folder`."""
    before = os.environ.get("AUTOCLAVE_CACHE")
    os.environ["AUTOCLAVE_CACHE"] = str(folder / "cache")
    try:
        yield
    finally:
        del os.environ["AUTOCLAVE_CACHE"]
        if before is not None:
            os.environ["AUTOCLAVE_CACHE"] = before


@contextmanager
def _own_cluster(config: TrainConfig) -> Generator[None]:
    """A Ray cluster of this machine alone, if settings have Ray pools; none that others use is touched."""
    processes = sum(pool.processes for pool in config.pools.values() if pool.executor == "ray")
    if not processes:
        yield
        return
    from autoclave.workers.ray_cluster import own_cluster

    with own_cluster(processes):
        yield
