"""Tokens per second of the engines, side by side, on the same requests with responses of ragged lengths.

    .venv-vllm/bin/python benchmarks/engines.py [--quick] [--json FILE]      (`make test-vllm` makes .venv-vllm)

Eight responses to each prompt; how long each may become is log-normal. Every side lives in a process of its own with
one thread, and they take turns. `vllm alone` is vLLM's own `LLM.generate`, with log-probs and without seeds; what
`vllm` costs over it is ours. What is not installed is not measured, and named. Nor are engines behind HTTP.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness import arguments, finish, print_environment, sized
from sides import Times, Turn, open_sides

from autoclave.config import SyntheticConfig, TinyModelConfig, VllmEngineConfig

GROUP_SIZE = 8
MEDIAN_TOKENS, SPREAD, FEWEST, MOST = 32, 0.8, 4, 128
"""Of the limits: exp(normal(log(MEDIAN_TOKENS), SPREAD)), cut off below and above."""

BATCH_TOKENS = 65536
"""All prompts fit into one step."""


@dataclass(frozen=True)
class Case:
    """A model, and how many prompts it is asked."""

    model: TinyModelConfig
    prompts: int


CASES = {
    "": Case(TinyModelConfig(heads=3), prompts=64),  # the step of recipes/demo.yaml
    "25M/": Case(TinyModelConfig(hidden_size=512, layers=8, heads=8), prompts=16),
}
TINY = {"": Case(TinyModelConfig(hidden_size=48, layers=1, heads=3), prompts=1)}
"""By the prefix of their figures."""


@dataclass(frozen=True)
class Work:
    """What every side is asked to do, once in each of `rounds`."""

    folder: Path
    prompts: tuple[tuple[int, ...], ...]
    """Of each request; those of a group are equal and stand together."""
    limits: tuple[int, ...]
    rounds: int


# --- The sides -----------------------------------------------------------------------------------------------------


def transformers(work: Work, turn: Turn) -> None:
    """Our continuous batching on a Transformers model."""
    from autoclave.models import load_policy
    from autoclave.rollout.transformers_engine import TransformersEngine

    _serve(work, turn, TransformersEngine(load_policy(work.folder, device="cpu"), batch_size=len(work.prompts)))


def vllm(work: Work, turn: Turn) -> None:
    """Our engine on vLLM."""
    from autoclave.rollout.vllm_engine import VllmEngine

    _serve(
        work, turn, VllmEngine(work.folder, VllmEngineConfig(batch_size=len(work.prompts), batch_tokens=BATCH_TOKENS))
    )


def vllm_alone(work: Work, turn: Turn) -> None:
    """What vLLM does without us."""
    os.environ |= VLLM_QUIET | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

    ours = VllmEngineConfig()
    llm = LLM(
        str(work.folder),
        dtype="float32",
        max_num_seqs=len(work.prompts),
        max_num_batched_tokens=BATCH_TOKENS,
        kv_cache_memory_bytes=ours.cache_mb << 20,
        block_size=32,
        enforce_eager=ours.eager is not False,
        generation_config="vllm",
    )
    prompts = [{"prompt_token_ids": list(prompt)} for prompt in work.prompts]
    asked = [SamplingParams(max_tokens=limit, logprobs=0, detokenize=False) for limit in work.limits]
    for _ in range(work.rounds):
        llm.reset_prefix_cache()
        turn.begin()
        found = llm.generate(prompts, asked, use_tqdm=False)
        turn.end({"tokens": float(sum(len(each.outputs[0].token_ids) for each in found))})


SIDES: Mapping[str, Callable[[Work, Turn], None]] = {
    "transformers": transformers,
    "vllm": vllm,
    "vllm alone": vllm_alone,
}
NEEDS_VLLM = ("vllm", "vllm alone")
VLLM_QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}


def _serve(work: Work, turn: Turn, engine: Any) -> None:
    """Ask an engine of ours. As in training, each round begins with new weights, so that nothing is cached."""
    from autoclave.models import load_policy
    from autoclave.rollout import Request, SamplingParameters

    weights = load_policy(work.folder, device="cpu").model.state_dict()
    prompts = [np.array(prompt, dtype=np.int64) for prompt in work.prompts]
    numbers = iter(range(10**9))
    for version in range(work.rounds):
        asked = {
            next(numbers): Request(prompt, SamplingParameters(max_new_tokens=limit), (version, place))
            for place, (prompt, limit) in enumerate(zip(prompts, work.limits, strict=True))
        }
        engine.update_weights(version, weights)
        turn.begin()
        engine.add(asked)
        done: list[Any] = []
        while len(done) < len(asked):
            done += engine.step(1.0)
        turn.end({"tokens": float(sum(len(completion.tokens) for _, completion in done))})
    engine.close()


# --- What is measured ----------------------------------------------------------------------------------------------


def build_work(case: Case, folder: Path, rounds: int) -> Work:
    """Write a policy with random weights to `folder`, and make up requests for it."""
    from autoclave.models import build_tiny_policy, encode_prompt, save_model
    from autoclave_environments.synthetic import build_synthetic

    statements = [problem.statement for problem in build_synthetic(SyntheticConfig(train=200, heldout=200)).train]
    policy = build_tiny_policy(case.model, statements, seed=0, device="cpu")
    save_model(policy, folder)
    chats = [[{"role": "user", "content": statement}] for statement in statements[: case.prompts]]
    prompts = [tuple(encode_prompt(policy.tokenizer, chat).tolist()) for chat in chats for _ in range(GROUP_SIZE)]
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN_TOKENS), SPREAD, len(prompts))
    return Work(folder, tuple(prompts), tuple(drawn.clip(FEWEST, MOST).astype(int).tolist()), rounds)


@dataclass(frozen=True)
class Measured:
    """What each side did, by round, and the peak of its memory."""

    times: dict[str, list[Times]]
    resident_mb: dict[str, float]

    def rate(self, side: str, per: str) -> float:
        """Tokens per second by the clock (`step`) or of CPU time (`cpu`)."""
        return median(times["tokens"] / times[per] for times in self.times[side])

    def over(self, side: str, other: str, per: str) -> list[float]:
        """The rate of a side over that of another, by round."""
        rounds = zip(self.times[side], self.times[other], strict=True)
        return [(ours["tokens"] / ours[per]) / (theirs["tokens"] / theirs[per]) for ours, theirs in rounds]


def measure(work: Work, names: list[str]) -> Measured:
    """Let the sides take turns; the first round of each loads and warms up."""
    times: dict[str, list[Times]] = {name: [] for name in names}
    with open_sides({name: SIDES[name] for name in names}, work) as sides:
        for side in sides.values():
            side.step()
        for number in range(work.rounds - 1):
            for name in names[:: 1 if number % 2 else -1]:
                times[name].append(sides[name].step())
        found = Measured(times, {name: side.peaks()["resident_mb"] for name, side in sides.items()})
    sampled = [sum(each["tokens"] for each in of_side) for of_side in times.values()]
    if max(sampled) > 1.05 * min(sampled):
        raise SystemExit(f"the sides did not do the same work: {names} sampled {sampled} tokens")
    return found


def print_table(work: Work, found: Measured) -> None:
    """A line per side."""
    tokens = found.times["transformers"][0]["tokens"]
    lengths = f"{min(work.limits)} to {max(work.limits)} tokens, {np.mean(work.limits):.0f} on average"
    print(f"{len(work.prompts)} responses of at most {lengths}; {tokens:.0f} tokens in a round")
    print(
        f"{'engine':<14}{'tokens/s':>10}{'over transformers':>24}{'per CPU s':>12}{'over transformers':>24}{'MiB':>8}"
    )
    for name in found.times:
        row = f"{name:<14}"
        for per, width in (("step", 10), ("cpu", 12)):
            row += f"{found.rate(name, per):>{width}.0f}{_spread(found.over(name, 'transformers', per)):>24}"
        print(f"{row}{found.resident_mb[name]:>8.0f}")


def figures_of(found: Measured) -> dict[str, float]:
    """The rates of each side and their ratios, medians over rounds."""
    figures: dict[str, float] = {}
    for name in found.times:
        key = name.replace(" ", "_")
        figures[f"{key}_tokens_per_s"] = found.rate(name, "step")
        figures[f"{key}_tokens_per_cpu_s"] = found.rate(name, "cpu")
        if name != "transformers":
            figures[f"{key}_over_transformers"] = median(found.over(name, "transformers", "step"))
    if "vllm alone" in found.times:
        figures["vllm_over_vllm_alone"] = median(found.over("vllm", "vllm alone", "step"))
        figures["vllm_over_vllm_alone_in_cpu_time"] = median(found.over("vllm", "vllm alone", "cpu"))
    return figures


def _spread(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} [{min(ratios):.2f} .. {max(ratios):.2f}]"


def main() -> None:
    options = arguments((__doc__ or "").partition("\n")[0])
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes of the sides
    print_environment()
    names = [name for name in SIDES if name not in NEEDS_VLLM or find_spec("vllm")]
    figures: dict[str, float] = {}
    for prefix, case in sized(options, CASES, {"": CASES[""]}, TINY).items():
        with tempfile.TemporaryDirectory() as folder:
            work = build_work(case, Path(folder), rounds=sized(options, 7, 3, 2))
            print(f"\n{prefix.rstrip('/') or 'embedded model'}: ", end="", flush=True)
            found = measure(work, names)
            print_table(work, found)
        figures |= {prefix + name: value for name, value in figures_of(found).items()}
    if missing := [name for name in SIDES if name not in names]:
        print(f"\nNot measured, since vLLM is not installed here: {', '.join(missing)}")
    finish("engines", figures, options.json)


if __name__ == "__main__":
    main()
