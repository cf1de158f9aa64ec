"""The GPU kit: every part runs on a CPU with tiny shapes, finished parts stay, and it needs few packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gpu
import pytest

ONLY_WITH_INSTALLATION = """
import importlib.abc, importlib.util, sys
MISSING = {"tensorboard", "peft", "pytest", "pyarrow", "fastapi", "openai", "psycopg", "apsw", "zstandard", "trl"}
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] in MISSING else found(name, package)
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
"""Makes packages that the kit may not need look as if they were not installed, in all processes that have it."""


def kit(out: Path, *words: str, **environment: str) -> str:
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--out", str(out), *words]
    run = subprocess.run(
        command,
        cwd=gpu.ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1", **environment},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
def test_parts_run_without_what_an_installation_brings_and_are_not_run_again(tmp_path: Path, monkeypatch, capsys):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(ONLY_WITH_INSTALLATION)
    parts = ["demo", "speed-0.5b"]
    kit(tmp_path / "out", "--only", *parts, PYTHONPATH=f"{site}:src", XDG_CACHE_HOME=str(tmp_path))
    written = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert list(written["parts"]) == parts
    assert written["parts"]["demo"]["figures"]["sandbox_level"] in ("sealed", "restricted")
    assert written["parts"]["speed-0.5b"]["figures"]["64 tokens: update, tokens/s"] > 0
    assert {"commit", "torch", "gpu"} <= written["environment"].keys()
    assert "| speed-0.5b | 32 tokens: update, s |" in (tmp_path / "out" / "gpu.md").read_text()
    monkeypatch.setattr(
        sys, "argv", ["gpu", "--device", "cpu", "--tiny", "--out", str(tmp_path / "out"), "--only", *parts]
    )
    assert gpu.main() == 0
    assert capsys.readouterr().out.count("finished before") == 2


@pytest.mark.soak
def test_every_part_runs_on_a_cpu(tmp_path: Path):
    kit(tmp_path)
    assert list(json.loads((tmp_path / "gpu.json").read_text())["parts"]) == list(gpu.PARTS)


def test_a_part_that_runs_out_of_time_is_not_finished_and_is_named(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "PART_S", 0.01)
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--tiny", "--only", "vllm", "--out", str(tmp_path)])
    assert gpu.main() == 1
    assert "not finished: vllm" in capsys.readouterr().out
    assert not list(tmp_path.glob("vllm-*.json"))


def test_a_device_that_is_not_there_is_refused_with_the_fix(tmp_path: Path, monkeypatch):
    if gpu.torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cuda", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="Fix:"):
        gpu.main()


def test_the_shapes_are_those_of_qwen():
    assert {name: gpu.qwen(shape, 1024, 151_936).hidden_size for name, shape in gpu.QWEN.items()} == {
        "0.5b": 896,
        "1.5b": 1536,
    }
