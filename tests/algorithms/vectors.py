"""The numbers in docs/reference/algorithms: a batch on the index page, and what each algorithm makes of it on its own.

The pages are the data. `python -m tests.algorithms.vectors` (from the root of the repository) writes the results again
from `reference.py`, which is not the code under test, for the settings that stand on each page.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from autoclave.algorithms import build_algorithm
from autoclave.config import AlgorithmConfig, AlgorithmSettings
from autoclave.core import Completion, FinishReason, Reward, Rollout, TaskItem
from tests.algorithms.reference import reference

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "algorithms"
BLOCK = re.compile(r"```json\n(\[.*?\])\n```", re.DOTALL)
TOKEN_COLUMNS = (
    "sampler_log_probs",
    "old_log_probs",
    "log_probs",
    "reference_log_probs",
    "entropy",
    "old_values",
    "values",
)
LENGTH_LIMIT = 5


def page(name: str) -> list[dict[str, Any]]:
    """The JSON on a page."""
    (block,) = BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    return json.loads(block)


def settings_of(vector: dict[str, Any]) -> AlgorithmSettings:
    """The settings of a vector."""
    return TypeAdapter(AlgorithmConfig).validate_json(json.dumps(vector["settings"]))


def rollouts() -> list[Rollout]:
    """The rollouts of the batch, as training would have them."""
    return [_rollout(line) for line in page("index")]


def _rollout(line: dict[str, Any]) -> Rollout:
    nothing = np.zeros(0, dtype=np.int64)
    completion = Completion(
        prompt_tokens=nothing,
        tokens=np.zeros(len(line["log_probs"]), dtype=np.int64),
        log_probs=np.array(line["sampler_log_probs"], dtype=np.float32),
        log_prob_kind="raw",
        finish_reason=FinishReason(line["finish_reason"]),
        text="",
        policy_versions=(),
        submitted_at=0.0,
        finished_at=0.0,
    )
    item = TaskItem("code", line["group"], line["group"], (), None)
    return Rollout(item, 0, (completion,), Reward(line["reward"], "test"), length_limit=8)


def columns(settings: AlgorithmSettings, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """The batch as columns, with the rows masked that an algorithm of these settings masks."""
    lines = page("index")
    masked = build_algorithm(settings).mask(rollouts())
    lengths = torch.tensor([len(line["log_probs"]) for line in lines])
    names = sorted({line["group"] for line in lines})
    rewards = [float("nan") if line["reward"] is None else line["reward"] for line in lines]
    row = torch.arange(len(lines)).repeat_interleave(lengths)
    return {
        "rewards": torch.tensor(rewards, dtype=dtype),
        "group": torch.tensor([names.index(line["group"]) for line in lines]),
        "minibatch": torch.zeros(len(lines), dtype=torch.int64),
        "length_limits": torch.full((len(lines),), LENGTH_LIMIT),
        "in_loss": torch.tensor([rollout.is_trained for rollout in masked]),
        "row": row,
        **{
            name: torch.tensor([number for line in lines for number in line[name]], dtype=dtype)
            for name in TOKEN_COLUMNS
        },
    }


def expected(settings: AlgorithmSettings) -> dict[str, Any]:
    """What the reference makes of the batch, rounded to 7 digits."""
    found = asdict(reference(settings, columns(settings)))
    return {name: _rounded(value) for name, value in found.items() if value is not None and np.any(value)}


def _rounded(value: Any) -> Any:
    return [_rounded(each) for each in value] if isinstance(value, list) else float(f"{value:.7g}") + 0.0


def _written(vectors: list[dict[str, Any]]) -> str:
    """JSON with a key per line."""
    parts = (",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in v.items()) for v in vectors)
    return "[" + ",\n ".join(f"{{{part}}}" for part in parts) + "]"


def rewrite() -> None:
    """Write the results on every page again."""
    for path in sorted(PAGES.glob("*.md")):
        if path.stem == "index":
            continue
        vectors = [{"settings": v["settings"], **expected(settings_of(v))} for v in page(path.stem)]
        text = path.read_text(encoding="utf-8")
        path.write_text(BLOCK.sub(lambda _, new=vectors: f"```json\n{_written(new)}\n```", text), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
