"""How near the memory that `autoclave plan` names is to what a step takes: on a CPU, phase by phase.

    python benchmarks/memory.py [--quick] [--json FILE]

Each case is a model with random weights in a process of its own, and one iteration with prompts and responses of the
planned lengths. Allocated bytes are those of torch's allocator, from its profiler; resident bytes are what the process
grew by at its peak (VmHWM), measured without the profiler, with glibc's own settings and with those of training.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import arguments, finish, print_environment, sized
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from autoclave.algorithms import build_algorithm
from autoclave.compose.libraries import settle_libraries
from autoclave.config import (
    ModelConfig,
    SamplerConfig,
    TinyModelConfig,
    TrainConfig,
    TrainerConfig,
    TransformersEngineConfig,
)
from autoclave.models import Policy, build_tiny_policy
from autoclave.planning.accounting.plan import LIBRARIES_AT_WORK, Lengths, RunPlan, plan_run
from autoclave.planning.accounting.shape import read_shape
from autoclave.rollout import Request, SamplingParameters
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.workers import Batch
from autoclave.workers.trainer.actor import ActorWorker

PHASES = ("sample", "log-probs", "update", "publish")


@dataclass(frozen=True)
class Case:
    """A model, and the sizes of an iteration."""

    model: Callable[[], PreTrainedModel]
    lengths: Lengths
    config: TrainConfig


def demo_model() -> PreTrainedModel:
    return build_tiny_policy(TinyModelConfig(), ["text"], seed=0, device="cpu").model


def llama_model() -> PreTrainedModel:
    """20 million weights, full heads, untied."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8192,
            hidden_size=384,
            intermediate_size=1024,
            num_hidden_layers=8,
            num_attention_heads=6,
            num_key_value_heads=6,
            tie_word_embeddings=False,
        )
    )


def qwen_model() -> PreTrainedModel:
    """30 million weights, most of them in a large tied vocabulary; heads share keys and values."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=48000,
            hidden_size=448,
            intermediate_size=1216,
            num_hidden_layers=4,
            num_attention_heads=14,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )


def larger_llama_model() -> PreTrainedModel:
    """46 million weights, most of them in layers."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=5000,
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=6,
            num_attention_heads=12,
            tie_word_embeddings=True,
        )
    )


def settings(
    problems: int, group_size: int, micro_batch_tokens: int, dtype: str = "float32", logits_chunk: int = 0
) -> TrainConfig:
    return TrainConfig(
        problems_per_step=problems,
        group_size=group_size,
        micro_batch_tokens=micro_batch_tokens,
        model=ModelConfig(device="cpu", dtype=dtype),
        trainer=TrainerConfig(logits_chunk=logits_chunk, packing="never"),  # as it is planned
        sampler=SamplerConfig(engine=TransformersEngineConfig(batch_size=512)),
    )


CASES = {
    "demo": Case(demo_model, Lengths(48, 24), settings(8, 8, 2048)),
    "llama": Case(llama_model, Lengths(100, 28), settings(4, 4, 1024)),
    "llama, bfloat16": Case(llama_model, Lengths(100, 28), settings(4, 4, 1024, "bfloat16")),
    "llama, short": Case(llama_model, Lengths(8, 8), settings(4, 4, 64)),
    "llama, 46 M": Case(larger_llama_model, Lengths(64, 64), settings(4, 4, 1024)),
    "qwen": Case(qwen_model, Lengths(48, 16), settings(4, 4, 512)),
    "qwen, chunks": Case(qwen_model, Lengths(48, 16), settings(4, 4, 512, logits_chunk=32)),
}
TINY = {"tiny": Case(demo_model, Lengths(8, 2), settings(2, 2, 64))}


class Iteration:
    """The parts of an iteration on the workers that training uses, all responses of full length."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._rng = np.random.default_rng(0)

    def build(self, device: torch.device | None = None) -> None:
        """Actor and sampler, on the CPU where no device is given."""
        case, config = self._case, self._case.config
        tokenizer = build_tiny_policy(TinyModelConfig(), ["text"], seed=0, device="cpu").tokenizer
        dtypes = (getattr(torch, dtype) for dtype in (config.model.dtype, config.sampling_dtype))
        policies = [Policy(case.model().to(dtype).eval(), tokenizer) for dtype in dtypes]
        self._size = policies[0].model.config.vocab_size
        self.actor = ActorWorker(
            policies[0],
            build_algorithm(config.algorithm),
            config.optimizer,
            total_steps=100,
            temperature=config.sampler.temperature,
            micro_batch_tokens=config.micro_batch_tokens,
            trainer=config.trainer,
            device=device,
        )
        policies[1].model.to(device or "cpu")
        self._engine = TransformersEngine(policies[1], batch_size=config.sampler.engine.batch_size)

    def run(self, phase: str) -> None:
        """One phase of the plan."""
        config = self._case.config
        match phase:
            case "sample":
                parameters = SamplingParameters(max_new_tokens=self._case.lengths.response)
                # The second of two neighbours is one token shorter, so that prompts are padded.
                lengths = [self._case.lengths.prompt - i % 2 for i in range(config.problems_per_step)]
                prompts = [self._tokens(length) for length in lengths]
                requests = [
                    Request(p, parameters, (i, n)) for i, p in enumerate(prompts) for n in range(config.group_size)
                ]
                self._engine.add(dict(enumerate(requests)))
                self._engine.step(1e9)
            case "log-probs":
                self.actor.log_probs(self._batch())
            case "update":
                self.actor.update(self._batch(), config.minibatches)
            case "publish":
                self._engine.update_weights(1, self.actor.own_weights())  # as in one process they are published

    def _tokens(self, count: int) -> np.ndarray:
        return self._rng.integers(0, self._size, count)

    def _batch(self) -> Batch:
        config, lengths = self._case.config, self._case.lengths
        rows = config.problems_per_step * config.group_size
        # The second of two neighbours is one token shorter, so that every micro-batch is padded.
        pairs = [(self._tokens(lengths.prompt), self._tokens(lengths.response - row % 2)) for row in range(rows)]
        count = sum(len(response) for _, response in pairs)
        return Batch.from_sequences(
            pairs,
            rows={"minibatch": np.arange(rows) * config.minibatches // rows},
            responses={
                "weights": np.full(count, 1 / count, np.float32),
                "advantages": self._rng.standard_normal(count).astype(np.float32),
                "old_log_probs": np.full(count, -np.log(self._size), np.float32),
            },
        )


def allocated(name: str) -> dict[str, int]:
    """Most bytes that torch held in each phase."""
    torch.set_num_threads(1)
    iteration, held = Iteration(_case(name)), 0

    def peak_of(work: Callable[[], None]) -> int:
        nonlocal held
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        events = profiler.profiler.kineto_results.events()
        changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
        run_progress = held + np.cumsum([size for _, size in changes])
        held = int(run_progress[-1])
        return int(run_progress.max())

    peak_of(iteration.build)
    peak_of(lambda: iteration.run("update"))  # from then on gradients and the optimizer's state are there
    return {phase: peak_of(lambda phase=phase: iteration.run(phase)) for phase in PHASES}


def resident(name: str, *, as_in_training: bool) -> int:
    """Bytes that the process grew by at its peak."""
    if as_in_training:
        settle_libraries(_case(name).config)
    torch.set_num_threads(1)
    _run_all(Case(demo_model, Lengths(2, 2), settings(2, 2, 64)))  # what libraries load at first use
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the high-water mark starts again
    _run_all(_case(name))
    return _status("VmHWM") - before


def _case(name: str) -> Case:
    return (CASES | TINY)[name]


def _run_all(case: Case) -> None:
    iteration = Iteration(case)
    iteration.build()
    for phase in ("publish", "update", *PHASES):
        iteration.run(phase)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) << 10


def planned(name: str) -> RunPlan:
    case = _case(name)
    with tempfile.TemporaryDirectory() as folder:
        case.model().config.save_pretrained(folder)
        return plan_run(case.config, read_shape(Path(folder)), case.lengths)


def in_own_process(work: Callable[..., Any], name: str, **options: bool) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (name,), options)


def main() -> None:
    options = arguments(__doc__ or "")
    print_environment()
    figures: dict[str, float] = {}
    print(f"\n{'case':<18}{'phase':<16}{'planned MiB':>12}{'measured MiB':>14}{'planned/measured':>18}")
    for name in sized(options, list(CASES), list(CASES)[:1], list(TINY)):
        (pool,) = planned(name).pools
        plan = {phase.name: phase.total - LIBRARIES_AT_WORK for phase in pool.phases}
        plan["update"] = max(plan["update"], plan["optimizer step"])
        peak = max(plan[phase] for phase in PHASES)
        peaks = allocated(name) if options.tiny else in_own_process(allocated, name)
        rows = [(phase, plan[phase], peaks[phase]) for phase in PHASES]
        for row, as_in_training in [("peak, glibc", False), ("peak, training", True)][options.tiny :]:
            rows.append((row, peak, in_own_process(resident, name, as_in_training=as_in_training)))
        for phase, expected, found in rows:
            print(f"{name:<18}{phase:<16}{expected / 2**20:>12.1f}{found / 2**20:>14.1f}{expected / found:>18.3f}")
        figures |= {f"{name}/{phase}": expected / found for phase, expected, found in rows}
    allocations = [ratio for name, ratio in figures.items() if "peak" not in name]
    figures["largest_error_of_allocated"] = max(abs(ratio - 1) for ratio in allocations)
    finish("memory", figures, options.json)


if __name__ == "__main__":
    main()
