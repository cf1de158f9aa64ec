"""Models with a head of one number on the trunk of a language model: critics and reward models, as folders on disk.

Both are ordinary Hugging Face models (`AutoModelForTokenClassification` and `AutoModelForSequenceClassification` with
one label), so that other tools read what is written here, and published reward models are read here.
"""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from autoclave.core import InputError
from autoclave.models.policy import TokenizedModel, reading, resolve_device
from autoclave.models.stored import stored_model

HeadRole = Literal["critic", "reward_model"]
_CLASSES: Mapping[HeadRole, Any] = {
    "critic": AutoModelForTokenClassification,
    "reward_model": AutoModelForSequenceClassification,
}
_HEADS = ("score", "classifier")
"""Names of the head in model families."""


class HeadModel(TokenizedModel):
    """A critic or a reward model."""

    __slots__ = ()

    @property
    def trunk(self) -> PreTrainedModel:
        """The model without its head."""
        return self.model.base_model  # pyright: ignore[reportReturnType]  declared as any module


def load_critic(path: str | Path, *, dtype: str = "float32", device: str = "auto", in_parts: bool = False) -> HeadModel:
    """A critic: that in folder (or under hub name) `path`, or a new head on the trunk of the model there.

    A new head says 0 everywhere. A reward model is such a trunk with a head, too. `in_parts`: as `load_policy`.

    Raises:
        InputError: nothing usable is there.
        HostError: the device does not exist.
    """
    if in_parts and (stored := _stored_critic(path, dtype)):
        return stored
    found, missing = _load("critic", path, dtype)
    head = _head_of("critic", found.model, path)
    if any(name.endswith("weight") for name in missing):
        nn.init.zeros_(head.weight)
    if head.bias is not None and any(name.endswith("bias") for name in missing):
        nn.init.zeros_(head.bias)
    found.model.to(resolve_device(device))  # pyright: ignore[reportArgumentType]
    return found


def load_reward_model(path: str | Path, *, dtype: str = "float32", device: str = "auto") -> HeadModel:
    """The reward model in the folder (or under the hub name) `path`, which gives one number.

    Raises:
        InputError: nothing usable is there.
        HostError: the device does not exist.
    """
    found, missing = _load("reward_model", path, dtype)
    if missing:
        raise InputError(
            f"reward_model.path = {str(path)!r}: its weights lack {', '.join(missing)}; a reward model is a sequence "
            "classifier with one label"
        )
    _head_of("reward_model", found.model, path)
    found.model.to(resolve_device(device))  # pyright: ignore[reportArgumentType]
    return found


def load_head_tokenizer(role: HeadRole | Literal["teacher"], path: str) -> PreTrainedTokenizerBase:
    """The tokenizer of the model at `path`; cheap, so also the way to find out early whether there is one.

    Raises:
        InputError: there is none.
    """
    with _reading(role, path):
        AutoConfig.from_pretrained(path)
        return AutoTokenizer.from_pretrained(path)


def response_values(model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, response_mask: Tensor) -> Tensor:
    """Values of a critic before each response token is chosen.

    Args:
        model: of a critic.
        input_ids: (B, L) int64, prompt and response, padded on the right.
        attention_mask: (B, L) int64, 1 on real tokens.
        response_mask: (B, L) bool, True on response tokens; never on the first column.

    Returns:
        (N,) float32, in row-major order of `response_mask`: of each token what stands at the one before it.
    """
    values = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits[..., 0]
    return values[:, :-1][response_mask[:, 1:]].float()


def sequence_scores(model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Scores of a reward model for whole sequences, at their last tokens.

    The model's own forward pass takes every token of the padding id for padding, also the one that ends a response.

    Args:
        model: of a reward model.
        input_ids: (B, L) int64, padded on the right.
        attention_mask: (B, L) int64, 1 on real tokens.

    Returns:
        (B,) float32.
    """
    hidden = model.base_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
    last = attention_mask.sum(dim=1) - 1
    rows = torch.arange(len(input_ids), device=hidden.device)
    return _head(model)(hidden[rows, last])[:, 0].float()


def _load(role: HeadRole, path: str | Path, dtype: str) -> tuple[HeadModel, list[str]]:
    """The model with its head, in evaluation mode on the CPU, and the parts of the head that the folder lacks."""
    with _reading(role, path), _quiet():
        config = _critic_architecture(path) if role == "critic" else AutoConfig.from_pretrained(str(path))
        if config.num_labels != 1:
            raise ValueError(f"it has {config.num_labels} labels")
        model, info = _CLASSES[role].from_pretrained(
            str(path), config=config, dtype=getattr(torch, dtype), output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(str(path))
    lost = sorted(name for name in info["missing_keys"] if name.split(".")[0] not in _HEADS)
    if lost:  # they were given random values
        raise InputError(f"{role}.path = {str(path)!r}: its weights lack {', '.join(lost[:3])}")
    return HeadModel(model.eval(), tokenizer), sorted(set(info["missing_keys"]))


def _stored_critic(path: str | Path, dtype: str) -> HeadModel | None:
    with _reading("critic", path):
        tokenizer = AutoTokenizer.from_pretrained(str(path))
        architecture = _critic_architecture(path)
        model = stored_model(_CLASSES["critic"], path, architecture, getattr(torch, dtype), new=_HEADS)
    return HeadModel(model.eval(), tokenizer) if model else None


def _critic_architecture(path: str | Path) -> Any:
    config = AutoConfig.from_pretrained(str(path))
    config.num_labels, config.classifier_dropout = 1, 0.0
    return config


def _head(model: PreTrainedModel) -> nn.Module:
    return next(head for name in _HEADS if (head := getattr(model, name, None)) is not None)


def _head_of(role: HeadRole, model: PreTrainedModel, path: str | Path) -> nn.Linear:
    try:
        head = _head(model)
    except StopIteration:
        head = None
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"{role}.path = {str(path)!r}: the head of {type(model).__name__} is no linear layer called "
            f"{' or '.join(_HEADS)}; choose a model of another family"
        )
    return head


def _reading(role: str, path: str | Path) -> AbstractContextManager[None]:
    if str(path).startswith((".", "/", "~")) and not Path(path).is_dir():
        raise InputError(f"{role}.path = {str(path)!r}: no such folder")
    kinds = {"critic": "model with a trunk for a critic", "reward_model": "reward model with one label"}
    return reading(path, role, kinds.get(role, "causal language model"))


@contextmanager
def _quiet() -> Generator[None]:
    """The library reports a new head, and the output embedding that a critic has no use for, as if they were faults."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
