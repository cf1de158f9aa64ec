"""Sampling with vLLM, in this process and on the thread that calls.

The engine core of vLLM runs only while `step` runs, so weights change between two of its steps and need no pause.
Several processes exist only with `tensor_parallel` > 1: vLLM's workers, which end with the engine. What vLLM changes in
this process is in `vllm_guest.py`, what it imports from us in `vllm_parts.py`.
"""

import gc
import tempfile
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from autoclave.config import LoraConfig, VllmEngineConfig
from autoclave.core import Completion, ConfigError, EngineFault, FinishReason, InputError
from autoclave.models import Digest, joined_digests
from autoclave.rollout.interface import EngineStats, Request
from autoclave.rollout.responses import Growing, load_responses
from autoclave.rollout.vllm_adapter import HotAdapter
from autoclave.rollout.vllm_guest import Guest, require_vllm

BLOCK_TOKENS = 32
"""Block size of the prefix cache in tokens; the least that vLLM takes on a CPU."""

REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class VllmEngine:
    """Samples with the policy of a folder, later with the weights of `update_weights`. See `Engine`."""

    def __init__(
        self,
        folder: Path,
        settings: VllmEngineConfig,
        *,
        dtype: str = "float32",
        seed: int = 0,
        lora: LoraConfig | None = None,
        shares_gpu: bool = False,
    ) -> None:
        """Start vLLM with the policy in `folder`; with `lora`, `update_weights` gets the weights of such an adapter.

        `shares_gpu`: the engine can `sleep`, which frees the memory of the GPU for other worker groups.

        Raises HostError: vLLM is not installed or does not import; the message has the fix. ConfigError: vLLM cannot
        run this model here.
        """
        has_gpu = torch.cuda.is_available()
        is_eager = not has_gpu if settings.eager is None else settings.eager
        self._settings = settings = settings.model_copy(update={"eager": is_eager})
        self._version, self._failure = 0, ""
        self._can_sleep, self._sleeps = shares_gpu and has_gpu, False
        self._responses = load_responses(folder)
        config = AutoConfig.from_pretrained(str(folder))
        self._tied = {"lm_head.weight"} if config.tie_word_embeddings else set[str]()
        self._names = _stored_names(folder) - self._tied
        self._growing: dict[int, Growing] = {}
        self._over: list[tuple[int, Completion]] = []
        self._prompt_tokens = self._sampled_tokens = 0
        self._adapter = HotAdapter(config, lora) if lora else None
        self._guest = Guest(is_eager=is_eager)
        with self._guest.inside():
            require_vllm()
            _require_head_size(config)
            self._engine: Any = _start(folder, settings, dtype, seed, self._adapter, self._can_sleep)
        self._context = int(self._engine.model_config.max_model_len)

    def add(self, requests: Mapping[int, Request]) -> None:
        """See `Engine`. Raises InputError: vLLM cannot sample one of them; none is added."""
        for number, request in requests.items():
            self._require_possible(number, request)
        with self._calling("add requests"):
            for number, request in requests.items():
                self._growing[number] = Growing(number, request, [(self._version, 0)])
                prompt: dict[str, Any] = {"prompt_token_ids": request.prompt_tokens.tolist()}
                if not self._settings.recompute_on_publish:  # what is cached of older weights stays
                    prompt["cache_salt"] = f"version {self._version}"
                adapter = self._adapter.request if self._adapter else None
                self._engine.add_request(str(number), prompt, self._parameters(request), lora_request=adapter)

    def step(self, seconds: float) -> list[tuple[int, Completion]]:
        """See `Engine`. Raises EngineFault: vLLM died; make another engine."""
        deadline = time.monotonic() + seconds
        with self._calling("sample"):
            while self._growing:
                for output in self._engine.step():
                    self._take(output)
                if time.monotonic() >= deadline:
                    break
        over, self._over = self._over, []
        return over

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """See `Engine`. Weights are loaded in place; requests in flight are recomputed with them, from the prompt.

        Raises InputError: a name is unknown or missing; the weights are unchanged. EngineFault: vLLM died.
        """
        if self._adapter:
            self._adapter.require_names(version, weights)
            with self._calling("take an adapter"):
                self._adapter.load(self._engine, version, weights)
                self._stamp(version)
            return
        new = {name: tensor for name, tensor in weights.items() if name not in self._tied}
        if self._names and new.keys() != self._names:
            missing, unknown = sorted(self._names - new.keys()), sorted(new.keys() - self._names)
            raise InputError(
                f"weights of version {version} are not those of this model: {len(missing)} missing {missing[:3]}, "
                f"{len(unknown)} unknown {unknown[:3]}"
            )
        with self._calling("take weights"), self._as_payload(new) as payload:
            self._engine.collective_rpc("take_weights", args=(payload,))
            self._stamp(version)

    def _stamp(self, version: int) -> None:
        """Stamp later tokens with `version`, except tokens that depend on keys and values of older weights."""
        self._version = version
        if not self._settings.recompute_on_publish:
            return
        self._engine.reset_prefix_cache(reset_running_requests=True)
        for growing in self._growing.values():
            growing.versions.append((version, len(growing.tokens)))

    def sleep(self) -> None:
        """See `SleepingEngine`. Weights move to the host's memory, caches are dropped."""
        if self._can_sleep and not self._sleeps and self._engine is not None and not self._failure:
            with self._calling("sleep"):
                self._engine.reset_prefix_cache(reset_running_requests=True)
                self._engine.sleep(level=1, mode="keep")
            self._sleeps = True

    def wake_up(self) -> None:
        """See `SleepingEngine`. Requests in flight are recomputed from their prompts."""
        if self._sleeps:
            with self._calling("wake up"):
                self._engine.wake_up()
            self._sleeps = False

    def weight_digests(self) -> dict[str, Digest]:
        """Return digests of the weights over all ranks of vLLM; see `InspectableEngine`.

        Raises EngineFault: vLLM died.
        """
        with self._calling("report its weights"):
            return joined_digests(self._engine.collective_rpc("weight_digests"))

    @property
    def holds_adapter(self) -> bool:
        """See `AdapterEngine`."""
        return self._adapter is not None

    def adapter_digests(self) -> dict[str, Digest]:
        """Return digests of the adapter over all ranks of vLLM; see `AdapterEngine`. Raises EngineFault: vLLM died."""
        with self._calling("report its adapter"):
            return self._adapter.digests(self._engine) if self._adapter else {}

    @property
    def stats(self) -> EngineStats:
        """See `Engine`. `prompt_tokens` excludes what was recomputed after an update."""
        running = sum(bool(growing.tokens) for growing in self._growing.values())
        return EngineStats(running, len(self._growing) - running, self._prompt_tokens, self._sampled_tokens)

    def close(self) -> None:
        """End vLLM, its workers and torch's process group; forget all requests."""
        self._growing.clear()
        if (engine := self._engine) is None:
            return
        self._engine = None  # so that it can be freed
        with self._guest.inside(), suppress(Exception):  # it may be dead
            engine.engine_core.shutdown()
        del engine
        gc.collect()  # it refers to itself, and holds weights and caches

    def _require_possible(self, number: int, request: Request) -> None:
        length = len(request.prompt_tokens)
        if length >= self._context:
            raise InputError(
                f"request {number}: a prompt of {length} tokens leaves no room in a context of {self._context}; raise "
                "sampler.engine.context, if the model allows it, or leave out such prompts"
            )

    def _parameters(self, request: Request) -> Any:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import RequestOutputKind  # pyright: ignore[reportMissingImports]

        from autoclave.rollout.vllm_parts import DrawsTokens

        asked = request.parameters
        return SamplingParams(
            temperature=0,  # `DrawsTokens` samples, vLLM takes its token
            extra_args={DrawsTokens.REQUEST: request},
            skip_clone=True,  # no other code refers to them
            max_tokens=asked.max_new_tokens,
            stop=list(asked.stops) or None,
            stop_token_ids=sorted(self._responses.end_tokens),
            logprobs=0,  # of the token that is sampled, and of no other
            flat_logprobs=True,
            detokenize=bool(asked.stops),
            output_kind=RequestOutputKind.DELTA,
        )

    def _take(self, output: Any) -> None:
        """Output of vLLM for a request after one of its steps."""
        number, found = int(output.request_id), output.outputs[0]
        growing = self._growing[number]
        if not growing.tokens:
            self._prompt_tokens += len(growing.request.prompt_tokens) - (output.num_cached_tokens or 0)
        tokens, scores = list(found.token_ids), found.logprobs
        if tokens:
            growing.append(tokens, [scores.logprobs[start] for start in scores.start_indices])
            self._sampled_tokens += len(tokens)
        if output.finished:
            if found.finish_reason not in REASONS:
                raise RuntimeError(f"request {number} ended with {found.finish_reason!r}")
            self._end(number, REASONS[found.finish_reason])

    def _end(self, number: int, reason: FinishReason) -> None:
        growing = self._growing.pop(number)
        self._over.append((number, self._responses.completion(growing, reason, "raw")))

    @contextmanager
    def _calling(self, what: str) -> Generator[None]:
        """A call of vLLM; if it raises, the engine is dead, because what vLLM holds may be half done."""
        if self._failure or self._engine is None:
            raise EngineFault(f"vLLM cannot {what}: {self._failure or 'it was closed'}; make another engine")
        try:
            with self._guest.inside():
                yield
        except BaseException as error:
            self._failure = f"it died ({type(error).__name__}: {' '.join(str(error).split())[:300]})"
            if not isinstance(error, Exception):
                raise
            raise EngineFault(f"vLLM could not {what}: {self._failure}; make another engine") from error

    @contextmanager
    def _as_payload(self, weights: Mapping[str, Tensor]) -> Generator[Mapping[str, Tensor] | str]:
        """Weights as workers take them: as they are in this process, in a file in memory for others."""
        if self._settings.tensor_parallel == 1:
            yield weights
            return
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="autoclave-weights-") as folder:
            path = f"{folder}/weights.safetensors"
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, path)
            yield path


def _start(
    folder: Path, settings: VllmEngineConfig, dtype: str, seed: int, adapter: HotAdapter | None, can_sleep: bool
) -> Any:
    from vllm.engine.arg_utils import EngineArgs  # pyright: ignore[reportMissingImports]
    from vllm.v1.engine.llm_engine import LLMEngine  # pyright: ignore[reportMissingImports]

    from autoclave.rollout.vllm_parts import DrawsTokens, TakesWeights

    arguments = EngineArgs(
        model=str(folder),
        dtype=dtype,  # pyright: ignore[reportArgumentType]
        seed=seed,  # of vLLM's own random numbers, which no request uses
        max_model_len=settings.context or None,
        max_num_seqs=settings.batch_size,
        max_num_batched_tokens=settings.batch_tokens,
        **_cache_size(settings),
        block_size=BLOCK_TOKENS,
        enable_prefix_caching=settings.prefix_caching,
        enable_chunked_prefill=True,
        async_scheduling=False,  # no step is under way between two of ours, so versions of tokens are exact
        enforce_eager=bool(settings.eager),
        enable_sleep_mode=can_sleep,
        tensor_parallel_size=settings.tensor_parallel,
        distributed_executor_backend="mp" if settings.tensor_parallel > 1 else "uni",
        logprobs_mode="processed_logits",
        logits_processors=[DrawsTokens],
        generation_config="vllm",  # what the folder says of sampling is not asked for
        worker_extension_cls=f"{TakesWeights.__module__}.{TakesWeights.__name__}",
        disable_log_stats=True,
        use_tqdm_on_load=False,
        **(adapter.arguments() if adapter else {}),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine = LLMEngine.from_engine_args(arguments)
            if adapter:
                adapter.start(engine)
            return engine
    except ValueError as error:
        text = " ".join(str(error).split())[:400]
        raise ConfigError(f"sampler.engine.name = vllm: vLLM refuses {folder} ({text})") from error


def _cache_size(settings: VllmEngineConfig) -> dict[str, Any]:
    if settings.gpu_memory_utilization:
        return {"gpu_memory_utilization": settings.gpu_memory_utilization}
    return {"kv_cache_memory_bytes": settings.cache_mb << 20}


def _require_head_size(config: PretrainedConfig) -> None:
    """On a CPU, vLLM finds out at the first request that it has no attention for this model, and dies."""
    from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]

    if not current_platform.is_cpu():
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend  # pyright: ignore[reportMissingImports]

    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        raise ConfigError(
            f"sampler.engine.name = vllm: attention heads of {size} numbers; on a CPU vLLM has {sizes}. The embedded "
            "model has hidden_size / heads: model.tiny.heads=3 gives 32. Or use sampler.engine.name=transformers"
        )


def _stored_names(folder: Path) -> set[str]:
    """Names of the tensors in the folder; none if they are not in safetensors."""
    names: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as stored:
            names |= set(stored.keys())
    return names
