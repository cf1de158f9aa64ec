"""Checks that the models of a run can be used, before any of them is loaded."""

from pathlib import Path

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from autoclave.config import TrainConfig
from autoclave.core import ConfigError
from autoclave.models import require_full_attention, tiny_architecture
from autoclave.models.compatibility import require_same_vocabulary, require_targets
from autoclave.models.heads import load_head_tokenizer
from autoclave.models.policy import context_of, encode_observation, load_architecture, load_tokenizer


def require_usable_models(config: TrainConfig) -> None:
    """Find out whether the models of a run fit each other and the settings.

    Raises InputError: a model cannot be used, or its chat template not for several turns. ConfigError: responses may be
    longer than its context, or prompts cannot be shared.
    """
    path, template, architecture = config.model.path, config.model.chat_template, policy_architecture(config)
    tokenizer = load_tokenizer(path, template) if path else None
    check_tokens(config, tokenizer)
    if tokenizer and config.most_turns > 1:
        asked = ({"role": "user", "content": "question"},)
        encode_observation(tokenizer, asked, asked, ended_by=None)
    require_context(config, architecture)
    teacher = load_architecture(config.teacher.path) if config.teacher.path else architecture
    require_context(config, teacher, "teacher.path" if config.teacher.path else "")
    if config.trainer.packing == "shared_prompts":
        require_full_attention(architecture)
        require_full_attention(teacher)
    if config.trainer.lora:
        require_targets(architecture, config.trainer.lora)
        if config.critic.path:
            require_targets(load_architecture(config.critic.path), config.trainer.lora)


def policy_architecture(config: TrainConfig) -> PretrainedConfig:
    """Return what `config.json` says of the policy that training starts from. Raises InputError: no policy is there."""
    tiny = config.model.tiny
    return load_architecture(config.model.path) if config.model.path else tiny_architecture(tiny, tiny.vocabulary)


def require_context(config: TrainConfig, architecture: PretrainedConfig, place: str = "") -> None:
    """Check that responses and the engine fit into the context of the model at `place`, if its `config.json` has one.

    It is that of the policy by default.

    Raises ConfigError: one does not.
    """
    context, place = context_of(architecture), place or ("model.path" if config.model.path else "model.tiny")
    if context is None:
        return
    for name, limit in config.length_limits.items():
        if limit >= context:
            raise ConfigError(
                f"{name} = {limit}: must be below the context of {place}, which is {context} tokens. "
                f"Fix: {name}={context // 2}, or a model with a longer context (rope_scaling in its config.json)"
            )
    wanted = getattr(config.sampler.engine, "context", 0)
    if wanted > context:
        raise ConfigError(
            f"sampler.engine.context = {wanted}: at most the context of {place}, which is {context} tokens. "
            f"Fix: sampler.engine.context={context}"
        )


def context_for(config: TrainConfig, model: Path) -> int | None:
    """Tokens of a prompt and a response together, as far as that is known."""
    own = context_of(load_architecture(model))
    limits = [limit for limit in (own, getattr(config.sampler.engine, "context", None)) if limit]
    return min(limits, default=None)


def check_tokens(config: TrainConfig, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Check that teacher, critic and reward model, where they are others, read tokens as the policy writes them.

    Raises InputError: one does not, or is not there; without a `tokenizer` only the latter is looked for.
    """
    for role in ("critic", "reward_model", "teacher"):
        if path := getattr(config, role).path:
            own = load_head_tokenizer(role, path)
            if tokenizer:
                require_same_vocabulary(own, tokenizer, place=f"{role}.path = {path!r}")
