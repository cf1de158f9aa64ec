"""Memory and compute of models beside the policy: critic and reward model, a trunk with a head of one number each."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from autoclave.config import TrainConfig
from autoclave.planning.accounting.holding import (
    Holding,
    Learning,
    gathered_gradients,
    gathered_weights,
    kept_bytes,
    learning_of,
    work_space_bytes,
)
from autoclave.planning.accounting.memory import adam_bytes, forward_bytes
from autoclave.planning.accounting.shape import ModelShape, shape_at

REWARD_MODEL = "weights (reward model)"

Phases = list[tuple[str, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class Heads:
    """Shapes of the trunks of the models beside the policy; None where a run has no such model."""

    critic: ModelShape | None
    reward_model: ModelShape | None
    teacher: ModelShape | None

    @staticmethod
    def of(config: TrainConfig, policy: ModelShape) -> "Heads":
        """Those that the settings name; by default the critic has the trunk of the policy.

        Raises InputError: a model cannot be found, or its family is unknown.
        """
        own = config.critic.path
        critic = shape_at(own, "critic.path") if own else policy
        path, teacher = config.reward_model.path, config.teacher.path
        return Heads(
            critic=critic if config.algorithm.needs_critic else None,
            reward_model=shape_at(path, "reward_model.path") if path else None,
            teacher=shape_at(teacher, "teacher.path") if teacher else None,
        )


def trunk_of(shape: ModelShape) -> ModelShape:
    return replace(shape, ties_embeddings=True)


def head_parameters(shape: ModelShape) -> int:
    """Weights of the trunk, with one number for each of its outputs."""
    return trunk_of(shape).parameters + shape.hidden_size


def learning_of_critic(config: TrainConfig, shape: ModelShape) -> Learning:
    """All its weights learn, or its adapters and its head.

    Raises ConfigError: trainer.lora names a layer that the model does not have.
    """
    learning = learning_of(config, trunk_of(shape))
    parameters = learning.parameters + shape.hidden_size
    return replace(learning, parameters=parameters, adapter=learning.adapter and parameters * learning.width)


def held_by_heads(config: TrainConfig, heads: Heads, groups: Collection[str], holding: Holding) -> dict[str, int]:
    """Bytes that stay, for those of the heads that are among `groups`."""
    held: dict[str, int] = {}
    if heads.critic and "critic" in groups:
        learning = learning_of_critic(config, heads.critic)
        held = {
            "weights (critic)": holding.at_rest(head_parameters(heads.critic) * holding.width + learning.adapter),
            "optimizer (critic)": holding.at_rest(adam_bytes(learning.parameters, learning.width)),
        }
    if heads.reward_model and "reward_model" in groups:
        held[REWARD_MODEL] = head_parameters(heads.reward_model) * holding.width
    return held


def phases_of_heads(
    config: TrainConfig,
    heads: Heads,
    groups: Collection[str],
    holding: Holding,
    *,
    rows: int,
    length: int,
    in_minibatch: int,
) -> Phases:
    """Memory on top of what stays, phase by phase; a part of the same name replaces it.

    Args:
        groups: that live on the pool.
        holding: how its processes hold a model that learns.
        rows: of a micro-batch.
        length: tokens of the longest prompt and response together.
        in_minibatch: rows of an optimizer step.
    """
    phases: Phases = []
    if heads.reward_model and "reward_model" in groups:
        computed = forward_bytes(heads.reward_model, rows, length, holding.width)
        phases.append(("reward model", {"activations": computed}))
    if heads.critic and "critic" in groups:
        shape, learning, width = trunk_of(heads.critic), learning_of_critic(config, heads.critic), holding.compute_width
        gradients = holding.at_rest(learning.size)
        gathered = gathered_weights(shape, holding)
        update = {
            "gradients (critic)": gradients if in_minibatch > rows else 0,
            "gathered gradients": gathered_gradients(config, shape, holding),
            "activations": kept_bytes(config, shape, rows, length, width),
        }
        work_space = holding.at_rest(work_space_bytes(config, learning))
        phases += [
            ("values", {"activations": forward_bytes(shape, rows, length, width)} | gathered),
            ("critic update", update | gathered),
            ("critic step", {"gradients (critic)": gradients, "work space": work_space}),
        ]
    return phases
