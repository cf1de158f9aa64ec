"""What critic and reward model hold and compute: the trunk of a language model, and a head of one number on it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from autoclave.config import TrainConfig
from autoclave.training.accounting.adapters import adapter_parameters
from autoclave.training.accounting.memory import ADAM_MOMENTS, activation_bytes, forward_bytes
from autoclave.training.accounting.shape import ModelShape, shape_at

REWARD_MODEL = "weights (reward model)"

Phases = list[tuple[str, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class Heads:
    """Shapes of the trunks of the models beside the policy; None where a run has no such model."""

    critic: ModelShape | None
    reward_model: ModelShape | None

    @staticmethod
    def of(config: TrainConfig, policy: ModelShape) -> Heads:
        """Those that the settings name; by default the critic has the trunk of the policy.

        Raises:
            InputError: a model cannot be found, or its family is unknown.
        """
        own = config.critic.path
        critic = shape_at(own, "critic.path") if own else policy
        path = config.reward_model.path
        return Heads(
            critic=critic if config.algorithm.needs_critic else None,
            reward_model=shape_at(path, "reward_model.path") if path else None,
        )


def head_parameters(shape: ModelShape) -> int:
    """Weights of the trunk, with one number for each of its outputs; a trunk has no output embedding."""
    return replace(shape, ties_embeddings=True).parameters + shape.hidden_size


def learning_parameters(config: TrainConfig, critic: ModelShape) -> int:
    """Weights of a critic that learn: all of them, or its adapters and its head."""
    lora = config.trainer.lora
    return adapter_parameters(critic, lora) + critic.hidden_size if lora else head_parameters(critic)


def held_by_heads(
    config: TrainConfig, heads: Heads, groups: Collection[str], width: int, at_rest: Callable[[int], int]
) -> dict[str, int]:
    """Bytes that stay, for those of the heads that are among `groups`.

    `width` is that of a number; `at_rest` gives what one process keeps of so many bytes of a model that learns.
    """
    held: dict[str, int] = {}
    if heads.critic and "critic" in groups:
        learning = learning_parameters(config, heads.critic) * width
        held = {
            "weights (critic)": at_rest(
                head_parameters(heads.critic) * width + (learning if config.trainer.lora else 0)
            ),
            "optimizer (critic)": at_rest(ADAM_MOMENTS * learning),
        }
    if heads.reward_model and "reward_model" in groups:
        held[REWARD_MODEL] = head_parameters(heads.reward_model) * width
    return held


def phases_of_heads(
    config: TrainConfig,
    heads: Heads,
    groups: Collection[str],
    *,
    rows: int,
    length: int,
    in_minibatch: int,
    width: int,
    at_rest: Callable[[int], int],
) -> Phases:
    """What comes on top of what stays, phase by phase; a part of the same name replaces it.

    Args:
        config: the settings.
        heads: the shapes.
        groups: that live on the pool.
        rows: of a micro-batch.
        length: tokens of the longest prompt and response together.
        in_minibatch: rows of an optimizer step.
        width: bytes of a number.
        at_rest: see `held_by_heads`.
    """
    phases: Phases = []
    if heads.reward_model and "reward_model" in groups:
        phases.append(("reward model", {"activations": forward_bytes(heads.reward_model, rows, length, width)}))
    if heads.critic and "critic" in groups:
        shape, learning = heads.critic, learning_parameters(config, heads.critic)
        at_once = 2 * shape.largest_tensor if config.model.device == "cpu" else learning
        gradients = at_rest(learning * width)
        update = {
            "gradients (critic)": gradients if in_minibatch > rows else 0,
            "activations": activation_bytes(shape, rows, length, width),
        }
        phases += [
            ("values", {"activations": forward_bytes(shape, rows, length, width)}),
            ("critic update", update),
            ("critic step", {"gradients (critic)": gradients, "work space": at_rest(at_once * width)}),
        ]
    return phases
