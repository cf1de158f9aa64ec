"""The plan of a run: how much it asks for, and what that takes on each device, phase by phase.

Upper bounds for the lengths that it is given: every response is sampled to the end, every rollout trains. The warm
start and what libraries take for themselves are left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoclave.config import TrainConfig
from autoclave.core import InputError
from autoclave.planning.accounting.heads import REWARD_MODEL, Heads, held_by_heads, learning_of_critic, phases_of_heads
from autoclave.planning.accounting.holding import (
    WIDTHS,
    Holding,
    gathered_gradients,
    gathered_weights,
    kept_bytes,
    learning_of,
    work_space_bytes,
)
from autoclave.planning.accounting.memory import (
    adam_bytes,
    forward_bytes,
    key_value_bytes,
    logits_backward_bytes,
    logits_bytes,
)
from autoclave.planning.accounting.sampling import (
    Requests,
    devices_of_sampler,
    publishing_of,
    requests_of_evaluation,
    requests_of_step,
    rows_side_by_side,
    sampling_bytes,
    share_of_device,
)
from autoclave.planning.accounting.shape import ModelShape, shape_of
from autoclave.planning.accounting.speed import critic_flops, forward_flops, learning_flops


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the longest prompt and the longest response that are planned for."""

    prompt: int
    response: int
    evaluated: int = 0
    """Of the longest response of an evaluation, where that is longer."""

    @property
    def whole(self) -> int:
        return self.prompt + self.response


@dataclass(frozen=True, slots=True)
class Phase:
    """A moment of an iteration: bytes on one device by what they are for."""

    name: str
    parts: Mapping[str, int]
    share: float = 0.0
    """Of the device, which the sampler's engine takes for its parts, if these are less."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def total_on(self, memory: int) -> int:
        """The same on a device with so many bytes."""
        others = sum(size for part, size in self.parts.items() if part not in OF_ENGINE) if self.share else 0
        return max(self.total, others + int(self.share * memory))


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Memory of one device of a pool."""

    name: str
    workers: tuple[str, ...]
    devices: int
    phases: tuple[Phase, ...]
    on_first_device: int = 0
    """Bytes of these that only the first device has."""

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)

    def peak_on(self, memory: int) -> Phase:
        """The same on devices with so many bytes."""
        return max(self.phases, key=lambda phase: phase.total_on(memory))


@dataclass(frozen=True, slots=True)
class SamplingWork:
    """Sampling of the tokens of an iteration."""

    copies: int
    """Of the model; each has `devices` of its own."""
    devices: int
    rows: int
    """Responses that each copy samples side by side."""
    weight_bytes: int
    """Of a copy."""
    row_bytes: int
    """Keys and values of a response that is half done."""
    overlaps: bool
    """Samplers are on devices of their own, and the schedule has them sample while others learn."""


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
    device: str
    """Type of device that it is planned for: `cuda` or `cpu`."""
    sampling: SamplingWork

    def devices_of(self, group: str) -> int:
        return next(pool.devices for pool in self.pools if group in pool.workers)


OF_ENGINE = ("weights (sampler)", "KV cache", "activations", "logits")
"""Parts of a phase in which an engine samples that are within its share of the device."""

ON_THEIR_WAY = "weights on their way"
"""Memory that a publish takes only while it goes on."""

LIBRARIES_AT_WORK = 60 << 20
"""Bytes by which a process on a CPU grows beside tensors: code loaded at first use, and what a driver keeps."""

CHECKPOINT_FILE = 1 << 27
"""Bytes of a file of a checkpoint (`workers.trainer.saved_state`), there twice beside the copy."""

PROMPT_TOKENS = 1024
"""Prompt length in tokens where it is unknown, if the context has room for it."""


def plan_for(config: TrainConfig, *, prompt_tokens: int | None = None, response_tokens: int | None = None) -> RunPlan:
    """The plan of `config` for the model that it names.

    Args:
        prompt_tokens: of the longest prompt; None for what a response leaves of the context, at most `PROMPT_TOKENS`.
        response_tokens: of the longest response; None for what the settings allow, in the last stage of a
            `length_schedule`. None also plans for evaluations with longer ones.

    Raises:
        InputError: the model cannot be found or is of an unknown family, or its context is too short.
    """
    shape = shape_of(config.model)
    room = shape.context - PROMPT_TOKENS  # episodes end at the context
    most = [
        min(config.most_turns * each, max(each, room)) for each in (config.longest_trained, config.longest_evaluated)
    ]
    response = response_tokens or most[0]
    evaluated = most[1] if response_tokens is None and most[1] > response else 0
    prompt = prompt_tokens or max(1, min(PROMPT_TOKENS, shape.context - max(response, evaluated)))
    return plan_run(config, shape, Lengths(prompt, response, evaluated))


def plan_run(config: TrainConfig, shape: ModelShape, lengths: Lengths) -> RunPlan:
    """The plan of `config` with a policy of `shape`, for prompts and responses of at most `lengths`.

    Raises InputError: a prompt and a response do not fit into the context of the model together. ConfigError:
    trainer.lora names a layer that the model does not have.
    """
    config = on_device(config, _planned_device(config))
    longest = max(lengths.response, lengths.evaluated)
    if lengths.prompt + longest > shape.context:
        setting = _setting_of(config, longest)
        raise InputError(
            f"prompts of {lengths.prompt} and responses of {longest} tokens are {lengths.prompt + longest} together, "
            f"more than the model's context of {shape.context}; lower {setting}, or plan for shorter ones "
            "(--prompt-tokens, --response-tokens)"
        )
    samples = config.problems_per_step * config.group_size
    processes = config.pools[config.workers.actor].processes
    rows = _micro_batch_rows(config, lengths, processes)
    heads = Heads.of(config, shape)
    own_reference = _has_reference(config) and not heads.teacher
    whole, response = (np.full(samples, tokens, dtype=np.int64) for tokens in (lengths.whole, lengths.response))
    return RunPlan(
        shape=shape,
        dtype=config.model.dtype,
        lengths=lengths,
        learning_parameters=learning_of(config, shape).parameters,
        iterations=config.steps,
        prompts=config.problems_per_step,
        samples=samples,
        sampled_tokens=samples * lengths.response,
        optimizer_steps=config.minibatches,
        micro_batches=config.minibatches * math.ceil(_minibatch_rows(config, processes) / rows),
        micro_batch_rows=rows,
        sampling_flops=forward_flops(shape, whole, response),
        learning_flops=learning_flops(
            shape, whole, response, scoring_passes=2 if own_reference else 1, weights_learn=not config.trainer.lora
        )
        + (forward_flops(heads.teacher, whole, response) if heads.teacher else 0.0)
        + (critic_flops(heads.critic, whole, weights_learn=not config.trainer.lora) if heads.critic else 0.0),
        pools=tuple(_pool_plan(config, shape, heads, lengths, name) for name in config.pools),
        device=config.model.device,
        sampling=_sampling_work(config, shape, requests_of_step(config, lengths.prompt, lengths.response)),
    )


def _sampling_work(config: TrainConfig, shape: ModelShape, requests: Requests) -> SamplingWork:
    places, width = config.workers.places(), WIDTHS[config.sampling_dtype]
    cache = sampling_bytes(config, shape, requests).get("KV cache", 0)
    copies = config.pools[places["sampler"]].processes
    of_copy = replace(requests, count=math.ceil(requests.count / copies))
    row = key_value_bytes(shape, 1, requests.prompt + requests.response // 2, width)
    return SamplingWork(
        copies=copies,
        devices=devices_of_sampler(config),
        rows=min(config.sampler.engine.batch_size, of_copy.count)
        if share_of_device(config)
        else rows_side_by_side(config, shape, of_copy, cache),
        weight_bytes=shape.parameters * width,
        row_bytes=row,
        overlaps=places["sampler"] != places["actor"] and not config.schedule.is_time_shared,
    )


def on_device(config: TrainConfig, device: str) -> TrainConfig:
    """`config` with `model.device` as given, for a plan of that."""
    return config.model_copy(update={"model": config.model.model_copy(update={"device": device})})


def _planned_device(config: TrainConfig) -> str:
    """That of the settings; `auto` is a GPU for a pretrained model, and for the embedded one where one is here."""
    if config.model.device != "auto":
        return config.model.device
    return "cuda" if config.model.path or Path("/dev/nvidiactl").exists() else "cpu"


def _setting_of(config: TrainConfig, limit: int) -> str:
    """The setting that allows responses of `limit` tokens; that of training where none does."""
    named = {tokens: name for name, tokens in config.length_limits.items()}
    return named.get(limit, next(iter(config.length_limits)))


def _minibatch_rows(config: TrainConfig, processes: int) -> int:
    """Of each process of the group that learns."""
    rows = config.problems_per_step // config.minibatches * config.group_size
    return math.ceil(rows / processes)


def _micro_batch_rows(config: TrainConfig, lengths: Lengths, processes: int) -> int:
    return max(1, min(_minibatch_rows(config, processes), config.micro_batch_tokens // lengths.whole))


def _has_reference(config: TrainConfig) -> bool:
    """Every algorithm with a KL to a reference has this setting, and 0 means that it has none; estimators say it."""
    advantage = getattr(config.algorithm, "advantage", None)
    return config.algorithm.model_dump().get("kl_coefficient", 0.0) > 0 or bool(advantage and advantage.needs_reference)


def _pool_plan(config: TrainConfig, shape: ModelShape, heads: Heads, lengths: Lengths, name: str) -> PoolPlan:
    pool, holding = config.pools[name], Holding.of(config, config.pools[name].processes)
    whole = shape.parameters * holding.width
    weights = holding.at_rest(whole)
    resident: dict[str, int] = {}
    phases: list[tuple[str, dict[str, int]]] = []
    places = config.workers.places()
    absent = {
        # With adapters the frozen weights are the reference.
        "reference": not _has_reference(config) or (config.trainer.lora is not None and not heads.teacher),
        "critic": not heads.critic,
        "reward_model": not heads.reward_model,
    }
    groups = [group for group, place in places.items() if place == name and not absent.get(group)]
    trainer = _trainer_phases(config, shape, lengths, holding, pool.processes)
    publishing = publishing_of(config, shape, Holding.of(config, config.pools[places["actor"]].processes))
    if "actor" in groups:
        resident["memory to publish by"] = publishing.of_trainer
        trainer.append(("publish", {ON_THEIR_WAY: publishing.in_passing_of_trainer}))
        learning = learning_of(config, shape)
        resident |= {"weights (actor)": weights, "adapter": holding.at_rest(learning.adapter)}
        resident["optimizer"] = holding.at_rest(adam_bytes(learning.parameters, learning.width))
        phases += trainer
    if "reference" in groups:
        teacher = heads.teacher or shape
        resident["weights (reference)"] = holding.at_rest(teacher.parameters * holding.width)
        if heads.teacher or not phases:
            phases.append(_trainer_phases(config, teacher, lengths, holding, pool.processes)[0])
    in_minibatch = _minibatch_rows(config, pool.processes)
    rows = _micro_batch_rows(config, lengths, pool.processes)
    resident |= held_by_heads(config, heads, groups, holding)
    phases += phases_of_heads(
        config, heads, groups, holding, rows=rows, length=lengths.whole, in_minibatch=in_minibatch
    )
    step = requests_of_step(config, lengths.prompt, lengths.response)
    sampled = sampling_bytes(config, shape, step) if "sampler" in groups else {}
    if copied := _copied_for_checkpoint(config, shape, heads, groups, holding):
        phases.append(("checkpoint", sampled | {"copy for the checkpoint": copied}))
    if "sampler" in groups:
        # On a GPU all but the reward model leave it while the sampler has its turn.
        stays = {REWARD_MODEL, "memory to publish by"}
        away = {} if config.model.device == "cpu" else dict.fromkeys(set(resident) - stays, 0)
        resident["weights (sampler)"] = publishing.of_sampler
        if publishing.in_passing_of_sampler:
            phases.append(("take weights over", {ON_THEIR_WAY: publishing.in_passing_of_sampler}))
        phases.insert(0, ("sample", away | sampled))
        longest = max(lengths.response, lengths.evaluated)
        evaluation = sampling_bytes(config, shape, requests_of_evaluation(config, lengths.prompt, longest))
        if lengths.evaluated or sum(evaluation.values()) > sum(sampled.values()):
            phases.append(("evaluate", away | evaluation))
    if config.model.device == "cpu":
        resident["libraries at work"] = LIBRARIES_AT_WORK
    found = tuple(
        Phase(
            phase,
            {part: size for part, size in (resident | parts).items() if size},
            share_of_device(config) if phase in ("sample", "evaluate") else 0.0,
        )
        for phase, parts in phases
    )
    devices = pool.processes * (devices_of_sampler(config) if groups == ["sampler"] else 1)
    only_first = resident.get("memory to publish by", 0) if config.model.device != "cpu" and devices > 1 else 0
    return PoolPlan(name, tuple(groups), devices, found, only_first)


def _copied_for_checkpoint(
    config: TrainConfig, shape: ModelShape, heads: Heads, groups: Sequence[str], holding: Holding
) -> int:
    """Bytes of what is copied to be written before anything is learnt again, and of the file that is being written.

    On a GPU they are in the memory of the host.
    """
    if config.model.device != "cpu":
        return 0
    learning = [learning_of(config, shape)] if "actor" in groups else []
    if heads.critic and "critic" in groups:
        learning.append(learning_of_critic(config, heads.critic))
    copied = sum(holding.at_rest(each.size + adam_bytes(each.parameters, each.width)) for each in learning)
    return copied + 2 * min(copied, CHECKPOINT_FILE)


def _trainer_phases(
    config: TrainConfig, shape: ModelShape, lengths: Lengths, holding: Holding, processes: int
) -> list[tuple[str, dict[str, int]]]:
    """Memory on top of what stays, phase by phase; a part of the same name replaces it."""
    width, rows = holding.compute_width, _micro_batch_rows(config, lengths, processes)
    learning, tokens = learning_of(config, shape), rows * lengths.response
    chunk = config.trainer.chunk_for(shape.vocabulary)
    gradients = holding.at_rest(learning.size)
    gathered = gathered_weights(shape, holding)
    # The layers have passed when logits are made: what is left of them is the last hidden state, and its response part.
    hidden = (rows * lengths.whole + tokens) * shape.hidden_size * width
    layers = {"activations": forward_bytes(shape, rows, lengths.whole, width)}
    head = {"activations": hidden, "logits": logits_bytes(shape, tokens, width, chunk=chunk)}
    score = max(layers, head, key=lambda parts: sum(parts.values()))
    update = {
        # None before the first micro-batch, whole from the second one on.
        "gradients": gradients if _minibatch_rows(config, processes) > rows else 0,
        "gathered gradients": gathered_gradients(config, shape, holding),
        "activations": kept_bytes(config, shape, rows, lengths.whole, width) + tokens * shape.hidden_size * width,
        "logits": _learnt_logits(config, shape, tokens, holding),
    }
    return [
        ("log-probs", score | gathered),
        ("update", update | gathered),
        ("optimizer step", {"gradients": gradients, "work space": holding.at_rest(work_space_bytes(config, learning))}),
    ]


def _learnt_logits(config: TrainConfig, shape: ModelShape, tokens: int, holding: Holding) -> int:
    """Logits and what is made from them, or in the backward pass their gradient and that of the output embedding."""
    width, chunk = holding.compute_width, config.trainer.chunk_for(shape.vocabulary)
    forward = logits_bytes(shape, tokens, width, chunk=chunk)
    if config.trainer.lora:  # the output embedding is frozen
        return forward
    counted = shape.embedding * width if holding.is_gathered else 0  # among gathered gradients
    return max(forward, logits_backward_bytes(shape, tokens, width, chunk=chunk) - counted)
