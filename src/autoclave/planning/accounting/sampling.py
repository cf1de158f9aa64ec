"""Memory of a sampler, by the rule of its engine: on each device, in the phase in which it samples.

`vllm` has a cache of pages of a size that is set, whatever the rows are; what does not fit waits. Engines behind HTTP
hold all on devices of their own. Every other engine keeps whole rows for as many responses as it samples side by side.

Weights are published by the routes of docs/concepts/weights.md; a sampler holds a part of them.
"""

import contextlib
import functools
import math
from dataclasses import dataclass
from pathlib import Path

from autoclave.config import (
    ArithmeticConfig,
    ProblemFilesConfig,
    RemoteEngineSettings,
    SyntheticConfig,
    TrainConfig,
    VllmEngineConfig,
)
from autoclave.core import AutoclaveError
from autoclave.core.files import read_jsonl
from autoclave.planning.accounting.holding import WIDTHS, Holding, learning_of
from autoclave.planning.accounting.memory import (
    decoding_bytes,
    draw_bytes,
    forward_bytes,
    key_value_bytes,
    layer_output_bytes,
)
from autoclave.planning.accounting.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Requests:
    """Size of a sampled batch: tokens of the longest prompt and response, how many, and how many share a prompt."""

    prompt: int
    response: int
    count: int
    of_prompt: int


def requests_of_step(config: TrainConfig, prompt: int, response: int) -> Requests:
    return Requests(prompt, response, config.problems_per_step * config.group_size, config.group_size)


def requests_of_evaluation(config: TrainConfig, prompt: int, response: int) -> Requests:
    """Those of the largest evaluation, which is that of all held-out problems: of each a greedy response too.

    Where the file of these cannot be read yet, they are as many as are sampled side by side.
    """
    samples = max(config.evaluation.samples, config.evaluation.final_samples) + 1
    return Requests(prompt, response, _heldout(config) * samples, samples)


@functools.lru_cache(maxsize=8)
def _num_problems(path: Path, _changed_ns: int) -> int:
    return sum(1 for _ in read_jsonl(path, "problem file"))


def _heldout(config: TrainConfig) -> int:
    problems = config.problems
    if isinstance(problems, SyntheticConfig | ArithmeticConfig):
        return problems.heldout
    if isinstance(problems, ProblemFilesConfig) and (path := problems.heldout or problems.path):
        with contextlib.suppress(AutoclaveError, OSError):  # of a file that is not there yet
            lines = _num_problems(path, path.stat().st_mtime_ns)
            return lines if problems.heldout else math.ceil(lines * problems.heldout_share)
    return config.sampler.engine.batch_size


def devices_of_sampler(config: TrainConfig) -> int:
    """Devices that hold one copy of the model together."""
    engine = config.sampler.engine
    return engine.tensor_parallel if isinstance(engine, VllmEngineConfig) else 1


def share_of_device(config: TrainConfig) -> float:
    """The share of a device that the engine takes for all that it holds; 0 where bytes are set."""
    engine = config.sampler.engine
    return engine.gpu_memory_utilization or 0.0 if isinstance(engine, VllmEngineConfig) else 0.0


def sampling_bytes(config: TrainConfig, shape: ModelShape, requests: Requests) -> dict[str, int]:
    """Memory that sampling takes beside the weights."""
    engine = config.sampler.engine
    if isinstance(engine, RemoteEngineSettings):
        return {}
    if isinstance(engine, VllmEngineConfig):
        width, parts = WIDTHS[config.sampling_dtype], engine.tensor_parallel
        one = math.ceil(key_value_bytes(shape, 1, requests.prompt + requests.response, width) / parts)
        return {
            "KV cache": one if share_of_device(config) else engine.cache_mb << 20,
            "activations": layer_output_bytes(shape, engine.batch_tokens, width, parts),
            "logits": draw_bytes(shape, min(engine.batch_size, requests.count), width),
        }
    return _of_whole_rows(config, shape, requests)


def rows_side_by_side(config: TrainConfig, shape: ModelShape, requests: Requests, cache: int) -> int:
    """Responses, half done on average, that a copy of the model samples at a time with such a cache on each device."""
    rows = min(config.sampler.engine.batch_size, requests.count)
    if not isinstance(config.sampler.engine, VllmEngineConfig):
        return rows
    row = key_value_bytes(shape, 1, requests.prompt + requests.response // 2, WIDTHS[config.sampling_dtype])
    return max(1, min(rows, cache * devices_of_sampler(config) // row))


def _of_whole_rows(config: TrainConfig, shape: ModelShape, requests: Requests) -> dict[str, int]:
    width, whole = WIDTHS[config.sampling_dtype], requests.prompt + requests.response
    rows = min(config.sampler.engine.batch_size, requests.count)
    prompts = math.ceil(rows / requests.of_prompt)  # each distinct one is computed once, before anything is decoded
    # Where requests wait for a place, those that come may be at their beginning when others are at their end.
    spare = requests.response // 4 if requests.count > rows else 0
    cache = key_value_bytes(shape, rows, whole + spare, width)
    moments = (
        {
            "KV cache": key_value_bytes(shape, prompts, whole, width),
            "activations": forward_bytes(shape, prompts, requests.prompt, width),
        },
        {"KV cache": cache, "activations": decoding_bytes(shape, rows, whole, width)},
        {"KV cache": cache, "logits": draw_bytes(shape, rows, width)},
    )
    return max(moments, key=lambda parts: sum(parts.values()))


@dataclass(frozen=True, slots=True)
class Publishing:
    """Bytes of one process, on its device."""

    of_trainer: int
    """The memory that it writes to."""
    of_sampler: int
    """Weights that it samples with. Where it maps what is written on another pool, both versions that are there count;
    memory that a pool maps twice counts once."""
    in_passing_of_trainer: int
    """On top, while weights are written."""
    in_passing_of_sampler: int
    """On top, while weights are taken over."""


def publishing_of(config: TrainConfig, shape: ModelShape, holding: Holding) -> Publishing:
    """By the routes of docs/concepts/weights.md; `holding` is the actor's."""
    whole = shape.parameters * WIDTHS[config.sampling_dtype]
    is_adapter, engine = config.publishes_adapter, config.sampler.engine.name
    merged = shape.largest_tensor * holding.width if config.trainer.lora and not is_adapter else 0
    # An engine that computes with what is published needs nothing besides; one that has no place for adapters is given
    # the sums of these and frozen weights, which are kept.
    is_elsewhere = isinstance(config.sampler.engine, RemoteEngineSettings)
    own = 0 if is_elsewhere else math.ceil(whole / devices_of_sampler(config))
    sums = own if is_adapter and engine not in ("transformers", "vllm") else 0
    kept = own + sums if is_adapter else 0 if engine == "transformers" else own
    if _is_alias(config, holding):
        return Publishing(0, kept, 0, 0)
    published = learning_of(config, shape).adapter if is_adapter else whole
    homes = config.workers.places()
    is_together = homes["sampler"] == homes["actor"]
    if config.model.device == "cpu":
        mapped = 0 if is_together or _is_one_process(config) else 2 * published
        return Publishing(math.ceil(2 * published / holding.parts), kept + mapped, merged, sums)
    gathered = shape.largest_tensor * holding.width if holding.is_gathered else 0
    in_passing = max(merged, gathered)
    if not is_together:
        return Publishing(published, kept + 2 * published, in_passing, sums)
    if config.pools[homes["actor"]].processes == 1:
        return Publishing(2 * published, kept, in_passing, sums)
    return Publishing(0, kept or whole, in_passing, sums or shape.largest_tensor * WIDTHS[config.sampling_dtype])


def _is_one_process(config: TrainConfig) -> bool:
    homes = config.workers.places()
    return all(config.pools[homes[group]].executor == "inline" for group in ("actor", "sampler"))


def _is_alias(config: TrainConfig, holding: Holding) -> bool:
    """Return whether samplers compute with the tensors of the trainer themselves."""
    is_plain = not config.trainer.lora and not config.publish.dtype and not holding.is_gathered
    return _is_one_process(config) and is_plain and config.schedule.is_time_shared
