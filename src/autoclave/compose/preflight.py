"""Pre-flight of a run: needs of this host and of its settings, checked before anything is loaded or written.

Each part contributes a check: a function of the settings that raises ConfigError, InputError or HostError. All checks
run, and everything that is wrong is reported at once.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import PretrainedConfig

from autoclave.algorithms import build_algorithm
from autoclave.compose.engines import require_trainable
from autoclave.compose.models import policy_architecture, require_usable_models
from autoclave.compose.tasks import find_task
from autoclave.config import TrainConfig, TransformersEngineConfig, VllmEngineConfig
from autoclave.config.model_fit import require_problems, require_rates_above_rounding, require_rates_within_limits
from autoclave.config.model_size import count_parameters, parameters_of
from autoclave.core import AutoclaveError, ConfigError, HostError, InputError
from autoclave.core.files import cache_folder
from autoclave.models import context_of, load_architecture, resolve_device
from autoclave.planning.accounting.fitting import check_memory
from autoclave.planning.accounting.holding import WIDTHS
from autoclave.planning.accounting.memory import size_text, token_key_value_bytes
from autoclave.planning.accounting.plan import on_device
from autoclave.training.loggers import require_loggers

MOST_PROCESSES_PER_CORE = 4
"""Processes of pools without devices that a core may serve; more of them wait for each other."""
_LEAST_FREE_BYTES = 1 << 28

Check = Callable[[], object]


def preflight(config: TrainConfig, out: Path, *, run: Callable[[Sequence[Check]], None] | None = None) -> None:
    """Run all checks of a training run, whose folder is or will be `out`, by `run`; left out, by `report`.

    Raises ConfigError, InputError: settings cannot work, whatever the host has. HostError: this host lacks something.
    The message lists everything that was found.
    """
    (run or report)(
        [
            lambda: require_usable_models(config),
            lambda: require_problems(config),
            lambda: require_rates_within_limits(config, count=count_weights),
            lambda: require_rates_above_rounding(config),
            lambda: require_loggers(config.loggers),
            lambda: require_trainable(config),
            lambda: find_task(config.task.name),
            lambda: build_algorithm(config.algorithm),
            lambda: require_packages(config),
            lambda: require_cores(config),
            lambda: require_cache_for_one_request(config),
            lambda: require_batch_that_fits(config),
            lambda: check_memory(on_device(config, resolve_device(config.model.device).type)),
            lambda: require_room_on_disk([out, cache_folder()]),
        ]
    )


def report(checks: Sequence[Check]) -> None:
    """Run `checks`, and raise what the first found; with a list, if several found something.

    Raises AutoclaveError: of the first kind that was found, in the order ConfigError, InputError, HostError.
    """
    by_text: dict[str, AutoclaveError] = {}  # several checks may need what is missing
    for check in checks:
        try:
            check()
        except (InputError, HostError) as error:
            by_text.setdefault(str(error), error)
    found = list(by_text.values())
    if not found:
        return
    kind = next(kind for kind in (ConfigError, InputError, HostError) if any(isinstance(each, kind) for each in found))
    first = next(each for each in found if isinstance(each, kind))
    if len(found) == 1:
        raise first
    raise kind("\n".join([f"{len(found)} things stand in the way of this run:", *(f"- {each}" for each in found)]))


def require_packages(config: TrainConfig) -> None:
    """Check that the packages of the chosen engine, executors and layers are installed.

    Raises HostError: one is missing; the message names the setting that needs it and the extra that has it.
    """
    engine = config.sampler.engine.name
    ray_pools = [name for name, pool in config.pools.items() if pool.executor == "ray"]
    needs = [
        (engine == "vllm", "vllm", "sampler.engine.name = vllm", "vllm"),
        (bool(ray_pools), "ray", f"pools.{next(iter(ray_pools), '')}.executor = ray", "ray"),
        (config.trainer.lora is not None, "peft", "trainer.lora", "train"),
        (bool(getattr(config.problems, "path", None)), "datasketch", "problems.path", "curate"),
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

    Raises HostError: more processes are requested than the cores can serve.
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

    Raises ConfigError: it does not, so that vLLM would refuse to start.
    """
    engine = config.sampler.engine
    if not isinstance(engine, VllmEngineConfig):
        return
    architecture = policy_architecture(config)
    tokens = engine.context or context_of(architecture) or 0
    needed_mb = -(-tokens * _key_value_bytes(architecture, config, engine.tensor_parallel) // (1 << 20))
    if engine.gpu_memory_utilization is None and needed_mb > engine.cache_mb:
        raise ConfigError(
            f"sampler.engine.cache_mb = {engine.cache_mb}: one request of {tokens} tokens needs {needed_mb} MiB of "
            f"key-value cache, so vLLM refuses to start. Fix: sampler.engine.cache_mb={needed_mb}, or a smaller "
            "sampler.engine.context"
        )


def _key_value_bytes(architecture: PretrainedConfig, config: TrainConfig, parts: int = 1) -> int:
    """Return the bytes of the keys and values of a token, where `parts` processes share the heads as far as they go."""
    heads = getattr(architecture, "num_key_value_heads", None) or architecture.num_attention_heads
    head_size = getattr(architecture, "head_dim", None) or architecture.hidden_size // architecture.num_attention_heads
    width = max(1, heads // parts) * head_size
    return token_key_value_bytes(architecture.num_hidden_layers, width, WIDTHS[config.sampling_dtype])


def require_batch_that_fits(config: TrainConfig) -> None:
    """Check that samplers can hold the responses that they sample side by side, each as long as it may become.

    Of the Transformers engine, weights and key-value caches are compared with the memory of a device here, unless
    `pools.NAME.memory_gb` limits the plan. vLLM lets responses wait for its cache.

    Raises ConfigError: they cannot.
    """
    engine, pool = config.sampler.engine, config.pools[config.workers.places()["sampler"]]
    if isinstance(engine, VllmEngineConfig) and engine.batch_size > engine.batch_tokens:
        raise ConfigError(
            f"sampler.engine.batch_size = {engine.batch_size}: a step computes a token of each response, and "
            f"sampler.engine.batch_tokens = {engine.batch_tokens}, so vLLM refuses to start. "
            f"Fix: sampler.engine.batch_tokens={max(8192, engine.batch_size)}, or a smaller batch_size"
        )
    is_elsewhere = pool.executor == "ray" and "RAY_ADDRESS" in os.environ
    if not isinstance(engine, TransformersEngineConfig) or is_elsewhere or pool.memory_gb is not None:
        return
    architecture, turn = policy_architecture(config), max(config.longest_trained, config.longest_evaluated)
    length = min(config.most_turns * turn, max(turn, context_of(architecture) or config.most_turns * turn))
    rows = min(engine.batch_size, -(-config.problems_per_step * config.group_size // pool.processes))
    row = length * _key_value_bytes(architecture, config)
    free = _memory_of_process(config, pool.processes) - _count(architecture) * WIDTHS[config.sampling_dtype]
    if rows * row > free:
        most = max(0, free // row)
        fix = f"sampler.engine.batch_size={most}, or fewer" if most else "a smaller model, or fewer"
        raise ConfigError(
            f"sampler.engine.batch_size = {engine.batch_size}: {rows} responses of {length} tokens have "
            f"{size_text(rows * row)} of keys and values, and this machine has {size_text(max(0, free))} for each "
            f"sampler beside the weights. Fix: {fix} tokens of a response"
        )


def _memory_of_process(config: TrainConfig, processes: int) -> int:
    """Return the memory of the GPU of a process, or its share of that of this machine."""
    device = resolve_device(config.model.device)
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // processes


def count_weights(path: str) -> int:
    """Return the parameters of the model at `path`, of which at most `config.json` is fetched from the hub.

    Raises InputError: there is no model.
    """
    return parameters_of(path) or _count(load_architecture(path))


def _count(architecture: PretrainedConfig) -> int:
    settings = architecture.to_dict()
    aliases = {ours: settings[theirs] for ours, theirs in architecture.attribute_map.items() if theirs in settings}
    return count_parameters(settings | aliases)


def require_room_on_disk(folders: Sequence[Path]) -> None:
    """Check that each folder can be written and has some room.

    Raises HostError: one cannot, or has less than 256 MiB.
    """
    for folder in folders:
        place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        if not os.access(place, os.W_OK | os.X_OK):
            raise HostError(f"{place}: cannot be written. Fix: choose another folder with --out or AUTOCLAVE_CACHE")
        free = shutil.disk_usage(place).free
        if free < _LEAST_FREE_BYTES:
            raise HostError(f"{place}: {free >> 20} MiB are free, a run needs at least 256. Fix: make room")
