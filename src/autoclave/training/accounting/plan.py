"""The plan of a run: how much it asks for, and what that takes on each device, phase by phase.

Upper bounds for the lengths that it is given: every response is sampled to the end, every rollout trains. The warm
start and what libraries take for themselves are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoclave.config import TrainConfig
from autoclave.core import InputError
from autoclave.training.accounting.flops import forward_flops, learning_flops
from autoclave.training.accounting.memory import (
    activation_bytes,
    adam_bytes,
    decoding_bytes,
    draw_bytes,
    export_bytes,
    forward_bytes,
    key_value_bytes,
    logits_bytes,
)
from autoclave.training.accounting.shape import ModelShape, shape_of

WIDTHS = {"float32": 4, "bfloat16": 2}
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the longest prompt and the longest response that are planned for."""

    prompt: int
    response: int

    @property
    def whole(self) -> int:
        return self.prompt + self.response


@dataclass(frozen=True, slots=True)
class Phase:
    """A moment of an iteration: bytes on one device by what they are for."""

    name: str
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What one device of a pool holds."""

    name: str
    workers: tuple[str, ...]
    devices: int
    phases: tuple[Phase, ...]

    @property
    def peak(self) -> Phase:
        """The phase that takes most."""
        return max(self.phases, key=lambda phase: phase.total)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run in plain units. Counts of an iteration, then of the run, each at most."""

    shape: ModelShape
    dtype: str
    lengths: Lengths
    iterations: int
    prompts: int
    samples: int
    sampled_tokens: int
    optimizer_steps: int
    micro_batches: int
    """Forward and backward passes of an iteration."""
    micro_batch_rows: int
    sampling_flops: float
    learning_flops: float
    pools: tuple[PoolPlan, ...]


PROMPT_TOKENS = 1024
"""Planned for where nobody says how long prompts are, if the context has room for it."""


def plan_for(config: TrainConfig, *, prompt_tokens: int | None = None, response_tokens: int | None = None) -> RunPlan:
    """The plan of `config` for the model that it names.

    Args:
        config: the settings.
        prompt_tokens: of the longest prompt; None for what a response leaves of the context, at most `PROMPT_TOKENS`.
        response_tokens: of the longest response; None for `sampler.max_new_tokens`.

    Raises:
        InputError: the model cannot be found or is of an unknown family, or its context is too short.
    """
    shape = shape_of(config.model)
    response = response_tokens or config.sampler.max_new_tokens
    prompt = prompt_tokens or max(1, min(PROMPT_TOKENS, shape.context - response))
    return plan_run(config, shape, Lengths(prompt, response))


def plan_run(config: TrainConfig, shape: ModelShape, lengths: Lengths) -> RunPlan:
    """The plan of `config` with a model of `shape`, for prompts and responses of at most `lengths`.

    Raises:
        InputError: a prompt and a response do not fit into the context of the model together.
    """
    if lengths.whole > shape.context:
        raise InputError(
            f"prompts of {lengths.prompt} and responses of {lengths.response} tokens are {lengths.whole} together, "
            f"more than the model's context of {shape.context}; lower sampler.max_new_tokens, or plan for shorter ones "
            "(--prompt-tokens, --response-tokens)"
        )
    samples = config.problems_per_step * config.group_size
    rows = _micro_batch_rows(config, lengths)
    has_reference = _has_reference(config)
    whole, response = (np.full(samples, tokens, dtype=np.int64) for tokens in (lengths.whole, lengths.response))
    return RunPlan(
        shape=shape,
        dtype=config.model.dtype,
        lengths=lengths,
        iterations=config.steps,
        prompts=config.problems_per_step,
        samples=samples,
        sampled_tokens=samples * lengths.response,
        optimizer_steps=config.minibatches,
        micro_batches=config.minibatches * math.ceil(samples // config.minibatches / rows),
        micro_batch_rows=rows,
        sampling_flops=forward_flops(shape, whole, response),
        learning_flops=learning_flops(shape, whole, response, scoring_passes=2 if has_reference else 1),
        pools=tuple(_pool_plan(config, shape, lengths, name) for name in config.pools),
    )


def _micro_batch_rows(config: TrainConfig, lengths: Lengths) -> int:
    in_minibatch = config.problems_per_step // config.minibatches * config.group_size
    return max(1, min(in_minibatch, config.micro_batch_tokens // lengths.whole))


def _has_reference(config: TrainConfig) -> bool:
    """Every algorithm that compares with a reference has this setting, and 0 means that it does not."""
    return config.algorithm.model_dump().get("kl_coefficient", 0.0) > 0


def _pool_plan(config: TrainConfig, shape: ModelShape, lengths: Lengths, name: str) -> PoolPlan:
    pool, width = config.pools[name], WIDTHS[config.model.dtype]
    weights = shape.parameters * width
    resident: dict[str, int] = {}
    phases: list[tuple[str, dict[str, int]]] = []
    places = config.workers.places()
    groups = [group for group, place in places.items() if place == name]
    if not _has_reference(config):
        groups = [group for group in groups if group != "reference"]
    trainer = _trainer_phases(config, shape, lengths)
    if "actor" in groups:
        resident |= {"weights (actor)": weights, "gradients": weights, "optimizer": adam_bytes(shape, width)}
        phases += trainer
    if "reference" in groups:
        resident["weights (reference)"] = weights
        phases = phases or trainer[:1]
    if "sampler" in groups:
        resident["weights (sampler)"] = weights
        phases.insert(0, ("sample", _sampling(config, shape, lengths)))
    found = tuple(
        Phase(phase, {part: size for part, size in (resident | parts).items() if size}) for phase, parts in phases
    )
    return PoolPlan(name, tuple(groups), pool.processes, found)


def _trainer_phases(config: TrainConfig, shape: ModelShape, lengths: Lengths) -> list[tuple[str, dict[str, int]]]:
    """What comes on top of what stays, phase by phase; a part of the same name replaces it."""
    width, rows = WIDTHS[config.model.dtype], _micro_batch_rows(config, lengths)
    weights, tokens, chunk = (
        shape.parameters * width,
        rows * lengths.response,
        config.trainer.chunk_for(shape.vocabulary),
    )
    in_minibatch = config.problems_per_step // config.minibatches * config.group_size
    # The layers have passed when logits are made: what is left of them is the last hidden state, and its response part.
    hidden = (rows * lengths.whole + tokens) * shape.hidden_size * width
    score = _larger(
        {"activations": forward_bytes(shape, rows, lengths.whole, width)},
        {"activations": hidden, "logits": logits_bytes(shape, tokens, width, chunk=chunk)},
    )
    update = {
        # Freed before the first micro-batch, whole from the second one on.
        "gradients": weights if in_minibatch > rows else 0,
        "activations": activation_bytes(shape, rows, lengths.whole, width) + tokens * shape.hidden_size * width,
        "logits": logits_bytes(shape, tokens, width, chunk=chunk),
    }
    # AdamW makes a root and a quotient of each tensor in turn on a CPU, and the roots of all together on a GPU.
    at_once = 2 * shape.largest_tensor if config.model.device == "cpu" else shape.parameters
    return [
        ("log-probs", score),
        ("update", update),
        ("optimizer step", {"work space": at_once * width}),
        ("publish", {"copy of the weights": export_bytes(shape, width)}),
    ]


def _sampling(config: TrainConfig, shape: ModelShape, lengths: Lengths) -> dict[str, int]:
    width = WIDTHS[config.model.dtype]
    rows = min(config.sampler.engine.batch_size, config.problems_per_step * config.group_size)
    prompts = math.ceil(rows / config.group_size)  # each distinct one is computed once, before anything is decoded
    cache = key_value_bytes(shape, rows, lengths.whole, width)
    return _larger(
        {
            "KV cache": key_value_bytes(shape, prompts, lengths.whole, width),
            "activations": forward_bytes(shape, prompts, lengths.prompt, width),
        },
        {"KV cache": cache, "activations": decoding_bytes(shape, rows, lengths.whole, width)},
        {"KV cache": cache, "logits": draw_bytes(shape, rows, width)},
    )


def _larger(*moments: dict[str, int]) -> dict[str, int]:
    """The one that takes most of several moments of a phase."""
    return max(moments, key=lambda parts: sum(parts.values()))
