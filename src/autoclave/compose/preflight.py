"""What a run needs of this host and of its settings, found out before anything is loaded or written.

Each part contributes a check: a function of the settings that raises ConfigError, InputError or HostError. All checks
run, and everything that is wrong is reported at once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from autoclave.compose.engines import require_trainable
from autoclave.compose.models import require_usable_models
from autoclave.config import TrainConfig, VllmEngineConfig
from autoclave.core import AutoclaveError, ConfigError, HostError, InputError
from autoclave.core.files import cache_folder
from autoclave.models import load_architecture, resolve_device
from autoclave.training.accounting import check_memory
from autoclave.training.loggers import require_loggers
from autoclave.training.run_folder import RunFolder

MOST_PROCESSES_PER_CORE = 4
"""Processes of pools without devices that a core may serve; more of them wait for each other."""
_LEAST_FREE_BYTES = 1 << 28

Check = Callable[[], object]


def preflight(config: TrainConfig, out: Path, existing: RunFolder | None = None) -> None:
    """Run all checks of a training run, whose folder is or will be `out`.

    Raises:
        ConfigError, InputError: settings cannot work, whatever the host has.
        HostError: this host lacks something. The message lists everything that was found.
    """
    report(
        [
            lambda: require_usable_models(config, existing),
            lambda: require_loggers(config.loggers),
            lambda: require_trainable(config),
            lambda: require_packages(config),
            lambda: require_cores(config),
            lambda: require_cache_for_one_request(config),
            lambda: check_memory(config),
            lambda: resolve_device(config.model.device),
            lambda: require_room_on_disk([out, cache_folder()]),
        ]
    )


def report(checks: Sequence[Check]) -> None:
    """Run `checks`, and raise what the first found; with a list, if several found something.

    Raises:
        AutoclaveError: of the first kind that was found, in the order ConfigError, InputError, HostError.
    """
    found: list[AutoclaveError] = []
    for check in checks:
        try:
            check()
        except (ConfigError, InputError, HostError) as error:
            found.append(error)
    if not found:
        return
    kind = next(kind for kind in (ConfigError, InputError, HostError) if any(isinstance(each, kind) for each in found))
    first = next(each for each in found if isinstance(each, kind))
    if len(found) == 1:
        raise first
    raise kind("\n".join([f"{len(found)} things stand in the way of this run:", *(f"- {each}" for each in found)]))


def require_packages(config: TrainConfig) -> None:
    """Check that the packages of the chosen engine, executors and layers are installed.

    Raises:
        HostError: one is missing; the message names the setting that needs it and the extra that has it.
    """
    engine = config.sampler.engine.name
    ray_pools = [name for name, pool in config.pools.items() if pool.executor == "ray"]
    needs = [
        (engine == "vllm", "vllm", "sampler.engine.name = vllm", "vllm"),
        (bool(ray_pools), "ray", f"pools.{next(iter(ray_pools), '')}.executor = ray", "ray"),
        (config.trainer.lora is not None, "peft", "trainer.lora", "train"),
        (config.trainer.liger, "liger_kernel", "trainer.liger = true", "liger"),
    ]
    missing = [(setting, name, extra) for is_needed, name, setting, extra in needs if is_needed and not find_spec(name)]
    if missing:
        texts = [
            f"{setting}: {name} is not installed here. Fix: install the extra {extra!r}"
            for setting, name, extra in missing
        ]
        raise HostError("; ".join(texts))


def require_cores(config: TrainConfig) -> None:
    """Check that pools on this machine have cores to run on. A Ray cluster elsewhere is asked when pools open.

    Raises:
        HostError: more processes are requested than the cores can serve.
    """
    cores = len(os.sched_getaffinity(0))
    is_local_ray = "RAY_ADDRESS" not in os.environ
    for name, pool in config.pools.items():
        most = cores if pool.executor == "ray" else MOST_PROCESSES_PER_CORE * cores
        is_here = pool.executor == "spawn" or (pool.executor == "ray" and is_local_ray)
        if is_here and not pool.devices_per_process and pool.processes > most:
            raise HostError(
                f"pools.{name}.processes = {pool.processes}: this machine has {cores} cores, which serve {most} "
                f"processes of a {pool.executor} pool. Fix: pools.{name}.processes={most}, or set RAY_ADDRESS to a "
                "larger cluster"
            )


def require_cache_for_one_request(config: TrainConfig) -> None:
    """Check that the key-value cache of vLLM holds one request of the longest length.

        bytes of a token = 2 (keys and values) x layers x key-value heads x head size x bytes of a number

    Raises:
        ConfigError: it does not, so that vLLM would refuse to start.
    """
    engine = config.sampler.engine
    if not isinstance(engine, VllmEngineConfig) or not config.model.path:
        return
    architecture = load_architecture(config.model.path)
    heads = getattr(architecture, "num_key_value_heads", None) or architecture.num_attention_heads
    head_size = getattr(architecture, "head_dim", None) or architecture.hidden_size // architecture.num_attention_heads
    number_bytes = 2 if "bfloat16" in (config.model.dtype, config.publish.dtype) else 4
    per_token = 2 * architecture.num_hidden_layers * heads * head_size * number_bytes / engine.tensor_parallel
    tokens = engine.context or getattr(architecture, "max_position_embeddings", 0)
    needed_mb = -(-int(tokens * per_token) // (1 << 20))
    if needed_mb > engine.cache_mb:
        raise ConfigError(
            f"sampler.engine.cache_mb = {engine.cache_mb}: one request of {tokens} tokens needs {needed_mb} MiB of "
            f"key-value cache, so vLLM refuses to start. Fix: sampler.engine.cache_mb={needed_mb}, or a smaller "
            "sampler.engine.context"
        )


def require_room_on_disk(folders: Sequence[Path]) -> None:
    """Check that each folder can be written and has some room.

    Raises:
        HostError: one cannot, or has less than 256 MiB.
    """
    for folder in folders:
        place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        if not os.access(place, os.W_OK | os.X_OK):
            raise HostError(f"{place}: cannot be written. Fix: choose another folder with --out or AUTOCLAVE_CACHE")
        free = shutil.disk_usage(place).free
        if free < _LEAST_FREE_BYTES:
            raise HostError(f"{place}: {free >> 20} MiB are free, a run needs at least 256. Fix: make room")
