"""Run folders with rollouts as training records them, and a small real tokenizer beside them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<end>"
Record = dict[str, Any]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Byte-level BPE that knows a few words."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(["print(3)", "print(4)"] * 50, trainer)
    return core


@pytest.fixture
def rollout(tokenizer: Tokenizer) -> Callable[..., Record]:
    """`rollout("item", 0, "accepted", response="...", ...)`: one line of a rollout file; words replace fields."""

    def make(item: str, sample: int = 0, status: str | None = "accepted", **more: Any) -> Record:
        response = more.get("response", f"print({sample})")
        ids = [*tokenizer.encode(response, add_special_tokens=False).ids, tokenizer.token_to_id(END)]
        reward = None if status is None else float(status == "accepted")
        verdict = {
            "problem_id": item, "id": f"{item}#{sample}", "status": status, "reward": reward, "failing_test": None,
            "tests": [{"index": 0, "status": status or "accepted", "cpu_s": 0.1, "wall_s": 0.2, "memory_mb": 8.0}],
            "level": "sealed", "message": "", "fault": None if status else {"kind": "sandbox", "detail": "no cell"},
        }  # fmt: skip
        return {
            "format": "autoclave-rollout/1", "item": item, "group": item, "sample": sample, "prompt": f"Do {item}.",
            "response": response, "tokens": len(ids), "finish_reason": "stop", "reward": reward,
            "reason": status or "no_verdict", "mask_reason": None if status else "no_verdict",
            "ledger": {"advantage": more.pop("advantage", None if status is None else reward - 0.5)},
            "policy_versions": [[0, 0, len(ids)]],
            "verdict": verdict, "token_ids": ids, "log_prob_kind": "raw", "sampler_log_probs": [-0.5] * len(ids),
            "trainer_log_probs": [-0.5] * len(ids),
        } | more  # fmt: skip

    return make


@pytest.fixture
def record(tmp_path: Path, tokenizer: Tokenizer) -> Callable[..., Path]:
    """`record({1: [line, ...]}, name="run")`: a run folder with these rollouts by step."""

    def write(steps: dict[int, Sequence[Record]], name: str = "run") -> Path:
        folder = tmp_path / name
        (folder / "rollouts").mkdir(parents=True)
        (folder / "start").mkdir()
        tokenizer.save(str(folder / "start" / "tokenizer.json"))
        (folder / "config.yaml").write_text(yaml.safe_dump({"name": "demo"}))
        for step, records in steps.items():
            with gzip.open(folder / "rollouts" / f"step-{step:06d}.jsonl.gz", "wt", compresslevel=1) as file:
                file.writelines(json.dumps({"step": step, **line}) + "\n" for line in records)
        return folder

    return write
