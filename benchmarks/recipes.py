"""What `autoclave plan` says of the shipped recipes, for the table in docs/how-to/recipes.md. Not a benchmark.

    python -m benchmarks.recipes            print the table
    python -m benchmarks.recipes --write    put it into the page

The models are here as their `config.json` alone, so that nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoclave.config import TrainConfig, load, parse_override
from autoclave.planning.accounting.fitting import USABLE_SHARE, rates_on
from autoclave.planning.accounting.plan import RunPlan, plan_for
from autoclave.planning.accounting.speed import GPUS, Gpu

ROOT = Path(__file__).parents[1]
RECIPES, PAGE = ROOT / "recipes", ROOT / "docs" / "how-to" / "recipes.md"
_HARDWARE = re.compile(r"\A# hardware: (\d+) x (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"(?<=<!-- plans -->\n).*?(?=<!-- /plans -->)", re.DOTALL)
MIB, GIB = 1 << 20, 1 << 30


def _qwen2(hidden: int, feed_forward: int, layers: int, heads: tuple[int, int], **others: object) -> dict[str, object]:
    return {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": feed_forward,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        **others,
    }


_CODER_1_5B = _qwen2(
    1536, 8960, 28, (12, 2), vocab_size=151936, max_position_embeddings=32768, tie_word_embeddings=True
)
MODELS: dict[str, dict[str, object]] = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": _qwen2(
        5120, 13824, 48, (40, 8), vocab_size=152064, max_position_embeddings=131072, tie_word_embeddings=False
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _qwen2(
        1536, 8960, 28, (12, 2), vocab_size=151936, max_position_embeddings=131072, tie_word_embeddings=False
    ),
    "Qwen/Qwen2.5-Coder-7B-Instruct": _qwen2(
        3584, 18944, 28, (28, 4), vocab_size=152064, max_position_embeddings=32768, tie_word_embeddings=False
    ),
    "Qwen/Qwen2.5-Coder-1.5B": _CODER_1_5B,
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": _CODER_1_5B,
    "bigcode/starcoder2-3b": {
        "model_type": "starcoder2",
        "architectures": ["Starcoder2ForCausalLM"],
        "hidden_size": 3072,
        "intermediate_size": 12288,
        "num_hidden_layers": 30,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "vocab_size": 49152,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "max_position_embeddings": 16384,
        "use_bias": True,
        "tie_word_embeddings": True,
    },
}
"""Shapes of the models that recipes name, as the hub has them in `config.json`."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs that the first line of a recipe names."""

    count: int
    gpu: Gpu


def hardware_of(recipe: Path) -> Hardware | None:
    """The GPUs that a recipe is for; None for one that runs on CPU cores."""
    named = _HARDWARE.search(recipe.read_text(encoding="utf-8"))
    return Hardware(int(named[1]), {gpu.name: gpu for gpu in GPUS}[named[2]]) if named else None


TRAINING = sorted(path for path in RECIPES.glob("*.yaml") if not path.name.startswith(("curate-", "evaluate-")))
ON_GPUS = [path for path in TRAINING if hardware_of(path)]


def settings_of(recipe: Path, models: Path, *settings: str) -> TrainConfig:
    """The configuration of a recipe, with its model as `config.json` in the folder `models`."""
    path = load(TrainConfig, recipe).config.model.path
    folder = models / path
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(MODELS[path]), encoding="utf-8")
    return load(TrainConfig, recipe, [parse_override(text) for text in (f"model.path={folder}", *settings)]).config


def plan_of(config: TrainConfig) -> RunPlan:
    """The plan for the longest prompt that the engine takes beside the longest response."""
    context = getattr(config.sampler.engine, "context", 0)
    return plan_for(config, prompt_tokens=context - config.longest_trained if context else None)


def gpus_of(config: TrainConfig, pool: str) -> int:
    """GPUs of all processes of a pool."""
    settings = config.pools[pool]
    return settings.processes * (1 if settings.devices_per_process is None else settings.devices_per_process)


def _rows(models: Path) -> Iterator[str]:
    names = ("recipe", "hardware", "hours", "pool", "GPUs", "memory of a GPU, GiB", "usable, GiB", "largest phase")
    yield f"| {' | '.join(names)} |"
    yield "| --- " * len(names) + "|"
    for recipe in ON_GPUS:
        hardware, config = hardware_of(recipe), settings_of(recipe, models)
        assert hardware
        plan, usable = plan_of(config), hardware.gpu.memory_mib * MIB * USABLE_SHARE / GIB
        hours = f"{rates_on(plan, hardware.gpu).hours:,.0f}"
        for number, pool in enumerate(plan.pools):
            first = ["", "", ""] if number else [f"`{recipe.stem}`", f"{hardware.count} x {hardware.gpu.name}", hours]
            peak = pool.peak
            cells = [pool.name, f"{gpus_of(config, pool.name)}", f"{peak.total / GIB:.1f}", f"{usable:.1f}", peak.name]
            yield f"| {' | '.join([*first, *cells])} |"


def table() -> str:
    """The table, as it stands in the page."""
    with tempfile.TemporaryDirectory() as models:
        return "".join(f"{row}\n" for row in _rows(Path(models)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/how-to/recipes.md")
    if not parser.parse_args().write:
        print(table(), end="")
        return
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_BLOCK.sub(lambda _: table(), page), encoding="utf-8")


if __name__ == "__main__":
    main()
