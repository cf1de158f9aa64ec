"""The embedded policy learns from what the real vLLM samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoclave.compose.training import train
from autoclave.config import TrainConfig, load, parse_override

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore"),  # of vLLM and what it imports
]

RECIPE = Path(__file__).parents[2] / "recipes" / "demo.yaml"
SETTINGS = (
    "sampler.engine.name=vllm",
    "model.tiny.heads=3",
    "model.threads=1",
    "sft.steps=600",
    "sft.demonstrations=10000",
    "steps=8",
    "problems.heldout=200",
    "evaluation.every=0",
    "evaluation.final_samples=3",
)


def test_the_demo_gains_over_its_warm_start_and_log_probs_are_those_of_the_trainer(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path / "cache"))
    config = load(TrainConfig, RECIPE, [parse_override(text) for text in SETTINGS]).config
    summary = train(config, tmp_path / "run", say=lambda line: None)
    before, after = (summary[f"heldout_pass1_interval_{when}"] for when in ("before", "after"))
    assert after[0] > before[1]
    assert summary["heldout_pass1_after"] >= summary["heldout_pass1_before"] + 0.1
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    gaps = [line["policy/log_prob_mismatch"] for line in lines if line["kind"] == "train"]
    assert len(gaps) == config.steps
    assert max(gaps) < 1e-4
