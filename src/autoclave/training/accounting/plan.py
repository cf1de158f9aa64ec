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
from autoclave.training.accounting.adapters import (
    adapter_activation_bytes,
    adapter_parameters,
    largest_adapter_tensor,
)
from autoclave.training.accounting.flops import critic_flops, forward_flops, learning_flops
from autoclave.training.accounting.heads import REWARD_MODEL, Heads, held_by_heads, phases_of_heads
from autoclave.training.accounting.memory import (
    FLOAT32,
    activation_bytes,
    adam_bytes,
    decoding_bytes,
    draw_bytes,
    export_bytes,
    forward_bytes,
    gathered_bytes,
    key_value_bytes,
    logits_backward_bytes,
    logits_bytes,
    reduced_bytes,
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
    learning_parameters: int
    """Of those in `shape`, or of the adapters beside them."""
    iterations: int
    prompts: int
    samples: int
    sampled_tokens: int
    optimizer_steps: int
    micro_batches: int
    """Forward and backward passes of an iteration, of each process."""
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
    """The plan of `config` with a policy of `shape`, for prompts and responses of at most `lengths`.

    Raises:
        InputError: a prompt and a response do not fit into the context of the model together.
        ConfigError: trainer.lora names a layer that the model does not have.
    """
    if lengths.whole > shape.context:
        raise InputError(
            f"prompts of {lengths.prompt} and responses of {lengths.response} tokens are {lengths.whole} together, "
            f"more than the model's context of {shape.context}; lower sampler.max_new_tokens, or plan for shorter ones "
            "(--prompt-tokens, --response-tokens)"
        )
    samples = config.problems_per_step * config.group_size
    rows = _micro_batch_rows(config, lengths)
    has_reference, heads = _has_reference(config), Heads.of(config, shape)
    whole, response = (np.full(samples, tokens, dtype=np.int64) for tokens in (lengths.whole, lengths.response))
    return RunPlan(
        shape=shape,
        dtype=config.model.dtype,
        lengths=lengths,
        learning_parameters=_learning(config, shape).parameters,
        iterations=config.steps,
        prompts=config.problems_per_step,
        samples=samples,
        sampled_tokens=samples * lengths.response,
        optimizer_steps=config.minibatches,
        micro_batches=config.minibatches * math.ceil(_minibatch_rows(config) / rows),
        micro_batch_rows=rows,
        sampling_flops=forward_flops(shape, whole, response),
        learning_flops=learning_flops(
            shape, whole, response, scoring_passes=2 if has_reference else 1, weights_learn=not config.trainer.lora
        )
        + (critic_flops(heads.critic, whole, weights_learn=not config.trainer.lora) if heads.critic else 0.0),
        pools=tuple(_pool_plan(config, shape, heads, lengths, name) for name in config.pools),
    )


def _minibatch_rows(config: TrainConfig) -> int:
    """Of each process of the actor."""
    rows = config.problems_per_step // config.minibatches * config.group_size
    return math.ceil(rows / config.pools[config.workers.actor].processes)


def _micro_batch_rows(config: TrainConfig, lengths: Lengths) -> int:
    return max(1, min(_minibatch_rows(config), config.micro_batch_tokens // lengths.whole))


@dataclass(frozen=True, slots=True)
class _Learning:
    """The weights that learn: all of them, or those of adapters beside them."""

    parameters: int
    width: int
    """Bytes of each, of its gradient and of its moments."""
    largest_tensor: int
    adapter: int
    """Bytes that come on top of the frozen weights."""

    @property
    def size(self) -> int:
        return self.parameters * self.width


def _learning(config: TrainConfig, shape: ModelShape) -> _Learning:
    width, lora = WIDTHS[config.model.dtype], config.trainer.lora
    if lora is None:
        return _Learning(shape.parameters, width, shape.largest_tensor, 0)
    parameters, width = adapter_parameters(shape, lora), max(width, FLOAT32)
    return _Learning(parameters, width, largest_adapter_tensor(shape, lora), parameters * width)


def _has_reference(config: TrainConfig) -> bool:
    """Every algorithm that compares with a reference has this setting, and 0 means that it does not."""
    return config.algorithm.model_dump().get("kl_coefficient", 0.0) > 0


@dataclass(frozen=True, slots=True)
class _Holding:
    """How the processes of a pool hold a model that learns."""

    width: int
    """Bytes of a weight at rest, of its gradient, and of each moment."""
    compute_width: int
    parts: int
    """Processes that weights at rest are split over."""
    is_gathered: bool
    """FSDP2 gathers weights to compute with them."""
    keeps_layers: bool
    is_offloaded: bool
    """Between computations all is in the memory of the host."""

    @staticmethod
    def of(config: TrainConfig, processes: int) -> _Holding:
        trainer, width = config.trainer, WIDTHS[config.model.dtype]
        is_mixed = trainer.mixed_precision != "none"
        return _Holding(
            width,
            WIDTHS["bfloat16"] if is_mixed else width,
            1 if trainer.sharding == "none" else processes,
            processes > 1 or is_mixed or trainer.cpu_offload,
            trainer.sharding == "zero2",
            trainer.cpu_offload,
        )

    def at_rest(self, num_bytes: int) -> int:
        """What each process has on its device of something so large."""
        return 0 if self.is_offloaded else math.ceil(num_bytes / self.parts)


def _pool_plan(config: TrainConfig, shape: ModelShape, heads: Heads, lengths: Lengths, name: str) -> PoolPlan:
    pool, holding = config.pools[name], _Holding.of(config, config.pools[name].processes)
    whole = shape.parameters * holding.width
    weights = holding.at_rest(whole)
    resident: dict[str, int] = {}
    phases: list[tuple[str, dict[str, int]]] = []
    places = config.workers.places()
    absent = {
        # With adapters the frozen weights are the reference.
        "reference": not _has_reference(config) or config.trainer.lora is not None,
        "critic": not heads.critic,
        "reward_model": not heads.reward_model,
    }
    groups = [group for group, place in places.items() if place == name and not absent.get(group)]
    trainer = _trainer_phases(config, shape, lengths, holding)
    if "actor" in groups:
        learning = _learning(config, shape)
        resident |= {"weights (actor)": weights, "adapter": holding.at_rest(learning.adapter)}
        resident["optimizer"] = holding.at_rest(adam_bytes(learning.parameters, learning.width))
        phases += trainer
    if "reference" in groups:
        resident["weights (reference)"] = weights
        phases = phases or trainer[:1]
    resident |= held_by_heads(config, heads, groups, holding.width, holding.at_rest)
    phases += phases_of_heads(
        config,
        heads,
        groups,
        rows=_micro_batch_rows(config, lengths),
        length=lengths.whole,
        in_minibatch=_minibatch_rows(config),
        width=holding.width,
        at_rest=holding.at_rest,
    )
    if "sampler" in groups:
        # On a GPU all but the reward model leave it while the sampler has its turn.
        away = {} if config.model.device == "cpu" else dict.fromkeys(set(resident) - {REWARD_MODEL}, 0)
        resident["weights (sampler)"] = whole
        phases.insert(0, ("sample", away | _sampling(config, shape, lengths)))
    found = tuple(
        Phase(phase, {part: size for part, size in (resident | parts).items() if size}) for phase, parts in phases
    )
    return PoolPlan(name, tuple(groups), pool.processes, found)


def _trainer_phases(
    config: TrainConfig, shape: ModelShape, lengths: Lengths, holding: _Holding
) -> list[tuple[str, dict[str, int]]]:
    """What comes on top of what stays, phase by phase; a part of the same name replaces it."""
    width, rows = holding.compute_width, _micro_batch_rows(config, lengths)
    learning, tokens = _learning(config, shape), rows * lengths.response
    chunk = config.trainer.chunk_for(shape.vocabulary)
    gradients = holding.at_rest(learning.size)
    gathered: dict[str, int] = {}
    if holding.is_gathered:
        gathered = {"gathered weights": gathered_bytes(shape, width, keeps_layers=holding.keeps_layers)}
    # The layers have passed when logits are made: what is left of them is the last hidden state, and its response part.
    hidden = (rows * lengths.whole + tokens) * shape.hidden_size * width
    score = _larger(
        {"activations": forward_bytes(shape, rows, lengths.whole, width)},
        {"activations": hidden, "logits": logits_bytes(shape, tokens, width, chunk=chunk)},
    )
    update = {
        # None before the first micro-batch, whole from the second one on.
        "gradients": gradients if _minibatch_rows(config) > rows else 0,
        "gathered gradients": reduced_bytes(shape, width) if holding.is_gathered and not config.trainer.lora else 0,
        "activations": _kept(config, shape, rows, lengths.whole, width) + tokens * shape.hidden_size * width,
        "logits": _learnt_logits(config, shape, tokens, holding),
    }
    # AdamW makes a root and a quotient of each tensor in turn on a CPU, and the roots of all together on a GPU.
    at_once = 2 * learning.largest_tensor if config.model.device == "cpu" else learning.parameters
    # What was sharded is put together in the memory of the host, tensor by tensor.
    is_elsewhere = holding.is_gathered and config.model.device != "cpu"
    copy = shape.largest_tensor * holding.width if is_elsewhere else export_bytes(shape, holding.width)
    return [
        ("log-probs", score | gathered),
        ("update", update | gathered),
        ("optimizer step", {"gradients": gradients, "work space": holding.at_rest(at_once * learning.width)}),
        ("publish", {"copy of the weights": copy}),
    ]


def _learnt_logits(config: TrainConfig, shape: ModelShape, tokens: int, holding: _Holding) -> int:
    """Logits and what is made from them, or in the backward pass their gradient and that of the output embedding."""
    width, chunk = holding.compute_width, config.trainer.chunk_for(shape.vocabulary)
    forward = logits_bytes(shape, tokens, width, chunk=chunk)
    if config.trainer.lora:  # the output embedding is frozen
        return forward
    counted = shape.embedding * width if holding.is_gathered else 0  # among gathered gradients
    return max(forward, logits_backward_bytes(shape, tokens, width, chunk=chunk) - counted)


def _kept(config: TrainConfig, shape: ModelShape, rows: int, length: int, width: int) -> int:
    """What autograd keeps of the layers."""
    recomputes, lora = config.trainer.activation_checkpointing, config.trainer.lora
    kept = activation_bytes(shape, rows, length, width, recomputes=recomputes)
    layers = 1 if recomputes else shape.layers
    return kept + rows * length * layers * adapter_activation_bytes(shape, lora, width) if lora else kept


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
