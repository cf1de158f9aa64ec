"""The numbers of a decoder-only language model that decide what it costs, from settings or from its `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.config import ModelConfig, TinyModelConfig
from autoclave.core import InputError
from autoclave.core.json import shown

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "starcoder2")
"""Values of `model_type` whose layers are known here."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A stack of equal layers: attention with shared key-value heads, then a feed-forward network."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    key_value_heads: int
    head_width: int
    vocabulary: int
    context: int
    """Most positions."""
    ties_embeddings: bool
    """Input and output embedding are one tensor."""
    is_gated: bool = True
    """Three matrices in the feed-forward network (gate, up, down) instead of two."""
    norm_parameters: int = 1
    """Vectors of a normalisation: 1 for RMSNorm, 2 for LayerNorm (weight and bias)."""
    has_query_key_norm: bool = False
    """Queries and keys are normalised per head."""
    has_query_key_value_bias: bool = False
    has_output_bias: bool = False
    """Of the projection after attention."""
    has_feed_forward_bias: bool = False

    @property
    def query_width(self) -> int:
        """Numbers in the queries of one token."""
        return self.heads * self.head_width

    @property
    def key_value_width(self) -> int:
        """Numbers in the keys of one token; as many in its values."""
        return self.key_value_heads * self.head_width

    @property
    def layer_matrices(self) -> int:
        """Weights of the matrices that one layer multiplies each token with."""
        attention = 2 * self.hidden_size * (self.query_width + self.key_value_width)
        return attention + (3 if self.is_gated else 2) * self.hidden_size * self.intermediate_size

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden_size

    @property
    def layer_parameters(self) -> int:
        vectors = 2 * self.norm_parameters * self.hidden_size
        if self.has_query_key_value_bias:
            vectors += self.query_width + 2 * self.key_value_width
        if self.has_output_bias:
            vectors += self.hidden_size
        if self.has_feed_forward_bias:
            vectors += self.hidden_size + (2 if self.is_gated else 1) * self.intermediate_size
        if self.has_query_key_norm:
            vectors += 2 * self.head_width
        return self.layer_matrices + vectors

    @property
    def outer_parameters(self) -> int:
        """All weights outside of the layers: embeddings and the last normalisation; a shared embedding counts once."""
        embeddings = self.embedding * (1 if self.ties_embeddings else 2)
        return embeddings + self.norm_parameters * self.hidden_size

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.outer_parameters

    @property
    def largest_tensor(self) -> int:
        return max(
            self.embedding, self.hidden_size * max(self.intermediate_size, self.query_width, self.key_value_width)
        )


def shape_of(model: ModelConfig) -> ModelShape:
    """The shape of the model that the settings name: the embedded one, a folder, or a name on the Hugging Face hub.

    Of a name on the hub only `config.json` is fetched, unless it is in the cache.

    Raises InputError: there is no such model, or its family is unknown here.
    """
    return shape_at(model.path) if model.path else tiny_shape(model.tiny)


def shape_at(path: str, setting: str = "model.path") -> ModelShape:
    """The shape of the model in a folder or of a name on the hub; `setting` is what gave it, for messages.

    Raises InputError: as `shape_of`.
    """
    if Path(path).is_dir() or path.startswith((".", "/", "~")):
        return read_shape(Path(path), setting)
    from huggingface_hub import hf_hub_download

    try:
        found = hf_hub_download(path, "config.json")
    except (OSError, ValueError) as error:  # also what the library raises without a network, or for a wrong name
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{setting} = {shown(path)}: neither a folder nor on the hub ({reason})") from None
    return read_shape(Path(found).parent, setting)


def tiny_shape(tiny: TinyModelConfig) -> ModelShape:
    return ModelShape(
        hidden_size=tiny.hidden_size,
        intermediate_size=tiny.hidden_size * 8 // 3,
        layers=tiny.layers,
        heads=tiny.heads,
        key_value_heads=tiny.heads,
        head_width=tiny.hidden_size // tiny.heads,
        vocabulary=tiny.vocabulary,
        context=tiny.context,
        ties_embeddings=True,
    )


def read_shape(folder: Path, setting: str = "model.path") -> ModelShape:
    """The shape of the model in `folder`, from its `config.json`.

    Raises InputError: the file is missing, is not JSON, lacks a number, or is of a family unknown here.
    """
    path = folder / "config.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        return _shape(settings)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {setting} must be the folder of a model") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not the settings of a model ({' '.join(str(error).split())[:160]})") from None
    except KeyError as error:
        raise InputError(f"{path}: {error.args[0]} is missing") from None


def _shape(settings: Mapping[str, Any]) -> ModelShape:
    family = settings["model_type"]
    if family not in FAMILIES:
        raise ValueError(f"model_type = {shown(family)}: layers of this family are unknown, known are {FAMILIES}")
    heads, hidden = int(settings["num_attention_heads"]), int(settings["hidden_size"])
    has_bias = bool(settings.get("use_bias", True)) if family == "starcoder2" else False
    attention_bias = has_bias or bool(settings.get("attention_bias", False))
    return ModelShape(
        hidden_size=hidden,
        intermediate_size=int(settings["intermediate_size"]),
        layers=int(settings["num_hidden_layers"]),
        heads=heads,
        key_value_heads=int(settings.get("num_key_value_heads") or heads),
        head_width=int(settings.get("head_dim") or hidden // heads),
        vocabulary=int(settings["vocab_size"]),
        context=int(settings["max_position_embeddings"]),
        ties_embeddings=bool(settings.get("tie_word_embeddings", family == "starcoder2")),
        is_gated=family != "starcoder2",
        norm_parameters=2 if family == "starcoder2" else 1,
        has_query_key_norm=family == "qwen3",
        has_query_key_value_bias=attention_bias or family == "qwen2",
        has_output_bias=attention_bias,
        has_feed_forward_bias=has_bias or bool(settings.get("mlp_bias", False)),
    )
