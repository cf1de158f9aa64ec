"""What a GPU does with Autoclave: tests, the demo, speed and memory of two model shapes, weight sync, vLLM.

    PYTHONPATH=src python -m benchmarks.gpu [--out FOLDER] [--device auto|cuda|cpu] [--only PART ...] [--tiny]

Needs torch, transformers, pydantic, pyyaml, click, tqdm, numpy and safetensors beside the source tree; nothing has to
be installed or compiled. Each part runs in a process of its own for at most eight minutes. The result of a finished
part stays in FOLDER and is not made again; a part that failed or ran out of time is tried again by the next call.
`gpu.json` and `gpu.md` there hold what is known so far, with the device, versions and the commit.

`--device cpu --tiny` runs every part with tiny shapes, so that what is written here runs anywhere.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # its neighbours, as scripts find them

import torch
from harness import environment, seconds

PART_S = 480.0
ROOT = Path(__file__).resolve().parent.parent
QWEN = {
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
"""Shapes of Qwen2.5; the vocabulary has 151,936 tokens, embeddings are tied, two heads hold keys and values."""
TINY_SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
LENGTHS = (2048, 16384)
"""Tokens of prompt and response together."""
NEW_TOKENS = 128
"""Of them sampled: what a token costs at that length, in a time that is bearable."""
Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), metavar="FOLDER", help="results; runs/gpu")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU if there is one")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART", help="parts")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes: does it run?")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)  # the process of one part
    options = parser.parse_args()
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch sees no GPU here. Fix: install a CUDA build of torch, or --device cpu")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part:
        started = time.perf_counter()
        found = PARTS[options.part](options.device, options.tiny)
        result = {"figures": found, "seconds": round(time.perf_counter() - started, 1), "environment": environment()}
        _write(_file(options, options.part), json.dumps(result, indent=2) + "\n")
        return 0
    failed = [name for name in options.only if not run_part(options, name)]
    write_results(options)
    print(f"{options.out / 'gpu.md'} holds the results" + (f"; not finished: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def run_part(options: argparse.Namespace, name: str) -> bool:
    """Run a part in a process of its own, unless its result is there. Returns whether it is there now."""
    if _file(options, name).is_file():
        print(f"{name}: finished before")
        return True
    print(f"{name}: ...", flush=True)
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", name, "--device", options.device]
    command += ["--out", str(options.out.resolve()), *(["--tiny"] if options.tiny else [])]
    log = options.out / f"{name}.log"
    with log.open("w", encoding="utf-8") as file:
        try:
            code = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, check=False, timeout=PART_S).returncode
        except subprocess.TimeoutExpired:
            file.write(f"not finished after {PART_S:.0f} s\n")
            code = 1
    if code:
        print(f"{name}: failed; the end of {log}:\n" + "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:]))
    return code == 0


def _file(options: argparse.Namespace, name: str) -> Path:
    return options.out / f"{name}-{options.device}{'-tiny' if options.tiny else ''}.json"


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a part that is killed while it writes is not finished."""
    beside = path.with_suffix(".partial")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def write_results(options: argparse.Namespace) -> None:
    """One JSON and one table of all parts that are finished on this device."""
    done = {name: _file(options, name) for name in PARTS}
    parts = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in done.items() if file.is_file()}
    _write(options.out / "gpu.json", json.dumps({"parts": parts, "environment": environment()}, indent=2) + "\n")
    lines = ["| part | figure | value |", "| --- | --- | --- |"]
    for name, part in parts.items():
        lines += [f"| {name} | {figure} | {_shown(value)} |" for figure, value in part["figures"].items()]
        lines.append(f"| {name} | seconds | {part['seconds']} |")
    about = "; ".join(f"{name} {value}" for name, value in environment().items())
    _write(options.out / "gpu.md", "\n".join([about, "", *lines]) + "\n")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# --- Tests and demo --------------------------------------------------------------------------------------------------


def tests(device: str, is_tiny: bool) -> Figures:
    """The tests that are marked `gpu`, where pytest is installed."""
    if missing := [name for name in ("pytest", "pytest_timeout", "hypothesis") if find_spec(name) is None]:
        return {"skipped": f"{', '.join(missing)} not installed"}
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-o", "addopts=--import-mode=importlib", "-q", "-rs"]
    places = ["tests/workers/test_sharding.py"] if is_tiny else ["tests/workers", "tests/rollout", "tests/training"]
    run = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, text=True, check=False)
    print(run.stdout, run.stderr)
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", run.stdout)}
    if run.returncode not in (0, 5) or "failed" in counts:
        raise SystemExit("tests failed")
    return counts


def demo(device: str, is_tiny: bool) -> Figures:
    """A shorter demo, with the strongest isolation of rewards that this host has."""
    from autoclave.compose.training import train
    from autoclave.config import TrainConfig, load, parse_override
    from runs import RECIPE, TINY

    size = TINY if is_tiny else ("sft.steps=600", "steps=15", "evaluation.every=0", "evaluation.final_samples=2")
    words = (*size, f"model.device={device}", "sandbox.minimum_level=restricted")
    config = load(TrainConfig, RECIPE, [parse_override(word) for word in words]).config
    with tempfile.TemporaryDirectory() as folder:
        summary = train(config, Path(folder) / "run", fresh=True)
    keep = ("sandbox_level", "heldout_pass1_before", "heldout_pass1_after", "heldout_greedy_after", "seconds_rl")
    return {key: summary[key] for key in keep} | _peak(device)


# --- Speed and memory ------------------------------------------------------------------------------------------------


def speed(size: str, device: str, is_tiny: bool) -> Figures:
    """Updates and sampling of a random Qwen2.5 shape, bfloat16 over float32 weights, beside what `plan` says."""
    figures: Figures = {}
    for length in (32, 64) if is_tiny else LENGTHS:
        try:
            found = speed_at(size, length, device, is_tiny)
        except torch.OutOfMemoryError as error:
            found = {"out of memory": str(error).partition("\n")[0]}
        figures |= {f"{length} tokens: {name}": value for name, value in found.items()}
        if device == "cuda":
            torch.cuda.empty_cache()
    return figures


def speed_at(size: str, length: int, device: str, is_tiny: bool) -> Figures:
    """The same for sequences of so many tokens."""
    import memory
    from transformers import Qwen2ForCausalLM

    from autoclave.config import PublishConfig, TrainerConfig
    from autoclave.planning.accounting.plan import Lengths, plan_run
    from autoclave.planning.accounting.shape import read_shape
    from autoclave.planning.accounting.speed import learning_flops, peak_flops

    new, rows = (8, 4) if is_tiny else (NEW_TOKENS, 8)
    base = memory.settings(rows // 2, 2, 64 if is_tiny else max(LENGTHS))
    config = base.model_copy(
        update={
            "minibatches": 1,
            "model": base.model.model_copy(update={"device": device}),
            "trainer": TrainerConfig(mixed_precision="bfloat16", activation_checkpointing=length > 4096),
            "publish": PublishConfig(dtype="bfloat16"),
        }
    )
    lengths = Lengths(length - new, new)
    model_config = qwen(TINY_SHAPE if is_tiny else QWEN[size], length, 512 if is_tiny else 151_936)
    iteration = memory.Iteration(memory.Case(partial(Qwen2ForCausalLM, model_config), lengths, config))
    iteration.build(torch.device(device))
    with tempfile.TemporaryDirectory() as folder:
        model_config.save_pretrained(folder)
        shape = read_shape(Path(folder))
        (pool,) = plan_run(config, shape, lengths).pools
    planned = {phase.name: phase.total / 2**20 for phase in pool.phases}
    planned["update"] = max(planned["update"], planned["optimizer step"])
    planned["sample"] -= shape.parameters * 2 / 2**20  # a run publishes by turns to two copies; here is one
    figures: Figures = {}
    for phase in ("update", "sample"):
        if phase == "sample":
            iteration.actor.offload()  # as on a pool that both share
        iteration.run(phase)  # warms up
        _reset_peak(device)
        figures[f"{phase}, s"] = seconds(lambda phase=phase: (iteration.run(phase), _settle(device)))
        figures[f"{phase}, planned MiB"] = planned[phase]
        if device == "cuda":
            figures[f"{phase}, peak over planned"] = _peak(device)["peak memory, MiB"] / planned[phase]
    whole, response = (torch.full((rows,), count).numpy() for count in (length, new))
    done = learning_flops(shape, whole, response, scoring_passes=0.0)
    peak = peak_flops(environment()["gpu"], "bfloat16") if device == "cuda" else None
    figures |= {
        "update, tokens/s": rows * length / figures["update, s"],
        "sampling, tokens/s": rows * new / figures["sample, s"],
        "update, model TFLOP/s": done / figures["update, s"] / 1e12,
        "MFU": done / figures["update, s"] / peak if peak else "peak of the device not known",
    }
    return figures


def qwen(shape: Mapping[str, int], context: int, vocabulary: int) -> Any:
    """The configuration of a Qwen2 model."""
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=vocabulary,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=max(context, 1024),
        **shape,
    )


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak(device: str) -> Figures:
    return {"peak memory, MiB": torch.cuda.max_memory_allocated() / 2**20} if device == "cuda" else {}


# --- Weight sync and vLLM --------------------------------------------------------------------------------------------


def sync(device: str, is_tiny: bool) -> Figures:
    """A publish from a trainer to a sampler in another process, both on the device, over a copy of the same bytes."""
    import weight_sync

    figures: Figures = {}
    for name, (dtype, shape) in (weight_sync.TINY if is_tiny else weight_sync.SHAPES).items():
        sampler = partial(weight_sync.Sampler, dtype, shape, device)
        figures |= weight_sync.measure(name, dtype, shape, sampler, rounds=1 if is_tiny else 15, device=device)
    return figures


def vllm(device: str, is_tiny: bool) -> Figures:
    """Sampling beside vLLM's own, and a publish to it, where it is installed."""
    if find_spec("vllm") is None:
        return {"skipped": "vllm is not installed"}
    engines, weight_sync = importlib.import_module("engines"), importlib.import_module("weight_sync")
    with tempfile.TemporaryDirectory() as folder:
        case = next(iter((engines.TINY if is_tiny else engines.CASES).values()))
        work = engines.build_work(case, Path(folder), rounds=3)
        figures = engines.figures_of(engines.measure(work, list(engines.SIDES)))
    return figures | weight_sync.of_vllm(*weight_sync.SHAPES["10m_float32"])


PARTS: Mapping[str, Callable[[str, bool], Figures]] = {
    "tests": tests,
    "demo": demo,
    "speed-0.5b": partial(speed, "0.5b"),
    "speed-1.5b": partial(speed, "1.5b"),
    "weight-sync": sync,
    "vllm": vllm,
}

if __name__ == "__main__":
    sys.exit(main())
