"""A run folder as the trainer writes it, with made-up numbers that look like those of a run that learns."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

FAMILIES = (
    "filter then map",
    "fold",
    "graph walk",
    "intervals",
    "matrix",
    "number theory",
    "sorting",
    "strings",
    "two pointers",
)
STATUSES = ("accepted", "wrong_answer", "runtime_error", "compile_error", "time_limit", "bad_format")
CONFIG: dict[str, Any] = {
    "name": "demo",
    "seed": 7,
    "steps": 60,
    "problems_per_step": 64,
    "group_size": 8,
    "minibatches": 2,
    "problems": {
        "name": "synthetic",
        "seed": 0,
        "train": 4000,
        "validation": 200,
        "heldout": 300,
        "heldout_share": 0.25,
    },
    "model": {"path": "", "tiny": {"hidden_size": 96, "layers": 3, "heads": 4}, "dtype": "float32", "device": "auto"},
    "sft": {"steps": 1800, "batch_size": 32, "optimizer": {"learning_rate": 3e-3, "betas": [0.9, 0.95]}},
    "task": {"extraction": "last_fence", "reward": "binary", "tests": "all"},
    "sampler": {"engine": {"name": "transformers", "batch_size": 256}, "temperature": 1.0, "top_p": 1.0, "stops": []},
    "algorithm": {"name": "grpo_plus", "clip_lower": 0.2, "clip_upper": 0.28, "mask_overlong": True},
    "optimizer": {"learning_rate": 4e-4, "warmup_steps": 0, "decay": "linear", "betas": [0.9, 0.95]},
    "schedule": {"name": "synchronous"},
    "pools": {"main": {"executor": "inline"}},
    "judge": {"backend": "local", "workers": 0, "time_limit_range": [6.0, 12.0]},
    "sandbox": {"backend": "namespace", "level": "auto", "minimum_level": "sealed", "memory_limit_mb": 512},
    "evaluation": {"every": 10, "samples": 4, "final_samples": 8, "problems": 100},
    "checkpoint": {"every": 10, "keep": 2},
}
PROGRAMS = {
    "accepted": "values = list(map(int, input().split()))\nkept = [v for v in values if v % 2 == 0]\nprint(sum(kept))",
    "wrong_answer": "values = list(map(int, input().split()))\nkept = [v for v in values if v % 2]\nprint(sum(kept))",
    "runtime_error": "values = list(map(int, input().split()))\nprint(values[len(values)])",
    "compile_error": "values = list(map(int, input().split())\nprint(sum(values))",
    "time_limit": "values = list(map(int, input().split()))\nwhile values:\n    values.append(values[0])",
    "bad_format": "The answer is the sum of all even values.",
}
PROMPT = "Read integers separated by blanks from one line. Print the sum of the even ones.\n\nExample\n1 2 4 -> 6"
MESSAGES = {
    "wrong_answer": "line 1 of the output differs",
    "runtime_error": "IndexError: list index out of range (exit code 1)",
    "compile_error": "SyntaxError: '(' was never closed (line 1)",
    "time_limit": "6.0 s of CPU time",
    "bad_format": "no fenced program in the response",
}


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`make_run(steps=60, ...)` writes a run folder; the words are those of `write_run`."""
    return lambda **words: write_run(tmp_path / "demo", **words)


@pytest.fixture
def write_rollouts() -> Callable[[Path, int, list[dict[str, Any]]], Path]:
    """`write_rollouts(folder, step, records)` writes the rollout file of one step."""
    return _write_rollouts


@pytest.fixture
def add_lines() -> Callable[[Path, list[dict[str, Any]]], None]:
    """Append objects to a JSONL file."""

    def append(path: Path, lines: list[dict[str, Any]]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    return append


def write_run(
    folder: Path, *, steps: int = 60, sft: bool = True, evaluated: bool = True, is_finished: bool = True
) -> Path:
    """A run folder that ends after `steps` steps; with `is_finished` also a summary."""
    draw = random.Random(7)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG | {"steps": 60}, sort_keys=False))
    lines = [_sft_line(step) for step in range(0, 1800, 10)] if sft else []
    for step in range(steps + 1):
        if step:
            lines.append(_train_line(step, draw))
        if evaluated and step % 10 == 0:
            lines.append(_evaluation_line(step, is_whole=step in (0, steps) and (is_finished or step == 0)))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "rollouts").mkdir()
    for step in range(10, steps + 1, 10):
        _write_rollouts(
            folder, step, [_rollout(step, group, sample, draw) for group in range(12) for sample in range(8)]
        )
    if is_finished:
        (folder / "summary.json").write_text(json.dumps(_summary(steps)))
    return folder


def _write_rollouts(folder: Path, step: int, records: list[dict[str, Any]]) -> Path:
    """The rollout file of one step."""
    path = folder / "rollouts" / f"step-{step:06d}.jsonl.gz"
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return path


def _learnt(step: int) -> float:
    return 0.31 + 0.36 * (1 - math.exp(-step / 22))


def _sft_line(step: int) -> dict[str, Any]:
    loss = 0.42 + 3.9 * math.exp(-step / 130) + 0.03 * math.sin(step)
    return {
        "kind": "sft",
        "step": step,
        "time": 1.8e9 + step,
        "loss": loss,
        "learning_rate": 3e-3,
        "tokens_per_s": 21000.0,
    }


def _train_line(step: int, draw: random.Random) -> dict[str, Any]:
    accepted = _learnt(step) + draw.gauss(0, 0.025)
    lost = 0.0 if step % 17 else 2 / 512
    rest = 1 - accepted - lost
    shares = dict(zip(STATUSES[1:], (0.56, 0.2, 0.11, 0.04, 0.09), strict=True))
    sample, tail, learn = 4.1 + draw.random(), 0.5 + 0.4 * draw.random(), 3.2 + 0.5 * draw.random()
    length = 41 - 9 * step / 60 + draw.gauss(0, 0.8)
    return {
        "kind": "train", "step": step, "time": 1.8e9 + 10 * step, "reward/mean": accepted, "accepted_share": accepted,
        "response_length/mean": length, "truncated_share": 0.012 * math.exp(-step / 20) + 0.001 * draw.random(),
        "no_verdict_share": lost, "groups/zero_variance_share": 0.28 + 0.2 * step / 60 + draw.gauss(0, 0.03),
        "policy/entropy": 0.42 * math.exp(-step / 45) + draw.gauss(0, 0.008), "policy/loss": draw.gauss(0, 0.02),
        "policy/approx_kl": 2.1e-4 * (1 + draw.random()), "policy/clip_fraction_lower": 0.0009 * draw.random(),
        "policy/clip_fraction_upper": 0.0012 * draw.random(), "policy/gradient_norm": 0.5 + 0.3 * draw.random(),
        "policy/learning_rate": 4e-4 * (1 - step / 60), "time/collect_s": sample + tail + 0.05, "time/learn_s": learn,
        "time/publish_s": 0.04, "time/step_s": sample + tail + learn + 0.2, "time/sample_s": sample,
        "time/judge_tail_s": tail, "time/log_prob_s": 0.9, "sampled_tokens": int(512 * length),
        "sampled_tokens_per_s": 512 * length / sample, "status/accepted": accepted,
        **{f"status/{status}": rest * share for status, share in shares.items()},
    }  # fmt: skip


def _evaluation_line(step: int, *, is_whole: bool) -> dict[str, Any]:
    value, problems = _learnt(step), 300 if is_whole else 100
    half = 0.6 / math.sqrt(problems)
    line: dict[str, Any] = {
        "kind": "evaluation", "step": step, "time": 1.8e9 + 10 * step, "split": "heldout", "problems": problems,
        "samples": 8 if is_whole else 4, "pass@1": value, "pass@1/low": value - half, "pass@1/high": value + half,
        "truncated_share": 0.004, "no_verdict_share": 0.0, "response_length/mean": 37.0,
        "families": {
            family: {
                "problems": problems // len(FAMILIES) + index % 3,
                "pass@1": min(1.0, value * (0.6 + 0.1 * index)),
                "greedy": min(1.0, value * (0.65 + 0.1 * index)),
            }
            for index, family in enumerate(FAMILIES)
        },
    }  # fmt: skip
    if is_whole:
        line |= {"greedy": value + 0.04, "greedy/low": value - 0.02, "greedy/high": value + 0.1, "pass@8": value + 0.22}
    else:
        line |= {"pass@4": value + 0.15}
    return line


def _rollout(step: int, group: int, sample: int, draw: random.Random) -> dict[str, Any]:
    ease = 0.0 if group == 3 else 1.0 if group == 5 else _learnt(step)
    status = "accepted" if draw.random() < ease else draw.choice(STATUSES[1:])
    is_fault, is_cut = group == 0 and sample == 5, sample == 7 and group % 4 == 1
    verdict = _verdict(f"synthetic-{group:04d}", sample, None if is_fault else status, draw)
    program = PROGRAMS[status]
    return {
        "step": step, "item": verdict["problem_id"], "group": f"{step}-{group}", "sample": sample,
        "tokens": 30 + sample, "prompt": PROMPT, "finish_reason": "length" if is_cut else "stop",
        "response": program if status == "bad_format" else f"```python\n{program}\n```",
        "reward": verdict["reward"], "reason": status, "policy_versions": [[step - 1, 0, 30]],
        "mask_reason": "no_verdict" if is_fault else "overlong" if is_cut else None,
        "ledger": {"advantage": None if is_fault or is_cut else draw.gauss(0, 1)}, "verdict": verdict,
    }  # fmt: skip


def _verdict(problem: str, sample: int, status: str | None, draw: random.Random) -> dict[str, Any]:
    tests = ["accepted"] * (10 if status == "accepted" else draw.randrange(6))
    tests += [status] if status in ("wrong_answer", "runtime_error", "time_limit") else []
    measured = {"cpu_s": 0.012, "wall_s": 0.02, "memory_mb": 9.5}
    has_run = status not in (None, "bad_format", "compile_error")
    return {
        "problem_id": problem, "id": f"{problem}#{sample}", "status": status,
        "reward": None if status is None else float(status == "accepted"),
        "failing_test": len(tests) - 1 if has_run and status != "accepted" else None,
        "tests": [{"index": index, "status": name, **measured} for index, name in enumerate(tests)] if has_run else [],
        "level": "sealed", "message": MESSAGES.get(status or "", ""),
        "fault": None if status else {"kind": "SandboxFault", "detail": "the cell did not start"},
    }  # fmt: skip


def _summary(steps: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for when, step in (("before", 0), ("after", steps)):
        line = _evaluation_line(step, is_whole=True)
        figures |= {
            f"heldout_pass1_{when}": line["pass@1"], f"heldout_greedy_{when}": line["greedy"],
            f"heldout_pass8_{when}": line["pass@8"],
            f"heldout_pass1_interval_{when}": [line["pass@1/low"], line["pass@1/high"]],
        }  # fmt: skip
    return figures | {
        "name": "demo", "seed": 7, "steps": steps, "heldout_problems": 300, "sandbox_level": "sealed",
        "seconds_total": 1242.0, "seconds_training": 960.0, "seconds_sft": 402.0, "seconds_rl": 558.0,
        "seconds_evaluation": 241.0,
        "heldout_description": "a quarter of the pairs of adjacent operations occur in no training program; "
        "these problems each contain at least one",
        "versions": {
            "autoclave": "0.1.0", "python": "3.11.2", "torch": "2.13.0", "transformers": "5.16.1", "numpy": "2.3.1",
        },
        "machine": {
            "cpu": "AMD EPYC 7R13", "cores": 2, "memory_gb": 7.6, "kernel": "6.1.0-28-cloud-amd64", "gpu": None,
        },
        "started": "2031-05-06T07:08:09+00:00", "command": "autoclave train --out runs/demo --seed 7",
    }  # fmt: skip
