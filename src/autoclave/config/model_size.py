"""Parameters of the model that settings name, and the defaults that follow from them."""

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from autoclave.config.choices import AlgorithmConfig

EMBEDDED = 10_000_000
"""Models with fewer parameters have the defaults of the embedded policy."""
LORA_FACTOR = 10
"""Learning rate of adapters over that of all weights (Schulman et al., "LoRA Without Regret", 2025)."""
HEAD_FACTOR = 10
"""Learning rate of a critic, and of the warm start, over that of reinforcement learning; that of the critic as in verl
(1e-5 and 1e-6) and OpenRLHF (9e-6 and 1e-6)."""
MICRO_BATCH_TOKENS = 4096
_MOST_HEADER_BYTES = 100 << 20
_NAMED_SIZE = re.compile(r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SizeDefaults:
    """Defaults of models with up to so many parameters."""

    parameters: float
    learning_rate: float
    max_new_tokens: int
    batch_size: int
    """Of the Transformers engine."""

    def rate(self, factor: int) -> float:
        """Return a multiple of the learning rate, without rounding noise."""
        return float(f"{factor * self.learning_rate:g}")


BY_SIZE = (
    SizeDefaults(250e6, 1e-5, 512, 64),
    SizeDefaults(1e9, 5e-6, 512, 64),
    SizeDefaults(math.inf, 1e-6, 1024, 16),
)
"""1e-6 as in DeepCoder, CodeRL+, verl and TRL; 1e-5 was measured on SmolLM2-135M; 5e-6 lies between."""


def has_pretrained_size(path: str) -> bool:
    """Return whether `path` names a pretrained model: one of `EMBEDDED` parameters, or OWNER/NAME of unknown size."""
    parameters = parameters_of(path) if path else 0
    if parameters is None:  # what is wrong with a folder is reported when the model is read
        return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path) is not None and not Path(path).is_dir()
    return parameters >= EMBEDDED


def parameters_of(path: str) -> int | None:
    """Return the parameters of the model in a folder, or of a name on the hub, without network access.

    Of a folder, the headers of its safetensors files count, else `config.json`; of a name on the hub, the size in it
    (7B, 135M). None: neither tells.
    """
    folder = Path(path)
    try:
        if files := sorted(folder.glob("model*.safetensors")):
            return sum(map(_parameters_in, files))
        if folder.is_dir():
            return count_parameters(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not (found := _NAMED_SIZE.search(folder.name)):
        return None
    experts, number, unit = found.groups()
    return round(int(experts or 1) * float(number) * (1e9 if unit in "bB" else 1e6))


def count_parameters(settings: Mapping[str, Any]) -> int:
    """Return the parameters of the matrices of a decoder-only model with this `config.json`.

    Raises KeyError: a number is missing.
    """
    own = settings.get("text_config") or settings
    width, heads = own["hidden_size"], own["num_attention_heads"]
    key_values = width * (own.get("num_key_value_heads") or heads) // heads
    inner = own.get("moe_intermediate_size") or own.get("intermediate_size") or 4 * width
    experts = own.get("num_experts") or own.get("num_local_experts") or own.get("n_routed_experts") or 1
    embeddings = (1 if own.get("tie_word_embeddings") else 2) * own.get("vocab_size", 0) * width
    return embeddings + own["num_hidden_layers"] * width * (2 * (width + key_values) + 3 * inner * experts)


def _parameters_in(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(size, _MOST_HEADER_BYTES)))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def size_in_words(parameters: int) -> str:
    """Return a number of parameters as people write it: 494M, 7.62B."""
    return f"{parameters / 1e9:.3g}B" if parameters >= 1e9 else f"{parameters / 1e6:.3g}M"


def rate_limit(parameters: int) -> float:
    """Return the highest learning rate of reinforcement learning that is accepted for all weights of a model.

    A third of the peak rate at which GPT-3 models of this size are pretrained (Brown et al., arXiv:2005.14165, table
    2.1): 6e-4 for 125M parameters, and as the inverse cube root of the size for others. The third is ours.
    """
    return 6e-4 / 3 * (125e6 / parameters) ** (1 / 3)


def defaults_for(parameters: int | None) -> SizeDefaults:
    """Return the row of `BY_SIZE`; the last for a model of unknown size."""
    return next((row for row in BY_SIZE if parameters is not None and parameters <= row.parameters), BY_SIZE[-1])


def defaults_by_size(tree: Mapping[str, Any], stated: Collection[str]) -> Mapping[str, Any]:
    """Return the defaults of a training run that differ from those of the embedded policy, by path.

    Args:
        tree: the settings, not validated yet.
        stated: paths of those that were given.
    """
    path = value_at(tree, "model.path")
    if not isinstance(path, str) or not has_pretrained_size(path):
        return {}
    row = defaults_for(parameters_of(path))
    adapter = LORA_FACTOR if value_at(tree, "trainer.lora") is not None else 1
    found: dict[str, Any] = {
        "optimizer.learning_rate": row.rate(adapter),
        "sft.optimizer.learning_rate": row.rate(HEAD_FACTOR),
        "micro_batch_tokens": MICRO_BATCH_TOKENS,
    }
    if _has_critic(tree.get("algorithm")):
        found["critic.optimizer.learning_rate"] = row.rate(adapter * HEAD_FACTOR)
    if not tree.get("length_schedule"):
        found["sampler.max_new_tokens"] = row.max_new_tokens
    if value_at(tree, "sampler.engine.name") == "transformers":
        found["sampler.engine.batch_size"] = row.batch_size
    if "sft.epochs" not in stated:
        found["sft.steps"] = 0
    if not any(each.startswith("problems") for each in stated):
        found["problems.name"] = "none"
    return found


def _has_critic(algorithm: Any) -> bool:
    try:
        return TypeAdapter(AlgorithmConfig).validate_json(json.dumps(algorithm), strict=True).needs_critic
    except ValidationError:  # reported when the whole tree is validated
        return False


def value_at(tree: Mapping[str, Any], path: str) -> Any:
    """Return the setting at a dotted path of settings that are not validated yet; None if it is missing."""
    value: Any = tree
    for name in path.split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value
