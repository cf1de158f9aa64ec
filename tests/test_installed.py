"""The built wheel, installed without extras into an empty environment, judges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNREACHABLE = (
    "No matching distribution",
    "Could not find a version",
    "dns error",
    "error sending request",
    "Connection",
)


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=240, check=False, **options
    )


def uv(*words: object) -> None:
    """Run uv. It does not read pip's settings: what pip knows of local wheels is handed on, as in the Makefile."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS", "")
    ended = run("uv", *words, env=os.environ | {"PATH": path, "UV_FIND_LINKS": links})
    if ended.returncode and any(sign in ended.stderr for sign in UNREACHABLE):
        pytest.skip("the package index cannot be reached")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--out-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with nothing but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    uv("pip", "install", "--python", folder / "bin" / "python", wheel)
    return folder


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"autoclave"}
    source = ROOT / "src"
    tracked = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert {name for name in tracked if "__pycache__" not in name} <= set(names)


@pytest.mark.slow
def test_without_extras_there_is_no_heavy_library(environment: Path):
    installed = {path.name for path in environment.glob("lib/python*/site-packages/*")}
    assert installed.isdisjoint({"torch", "transformers", "ray", "jinja2", "fastapi"})


@pytest.mark.slow
def test_an_installation_without_extras_judges(environment: Path, tmp_path: Path):
    tests = {"kind": "stdin", "cases": [{"input": "3 4\n", "output": "7\n"}]}
    problem = {"format": "autoclave-problem/1", "id": "add", "statement": "Add.", "tests": tests}
    program = {"problem_id": "add", "source": "print(sum(map(int, input().split())))"}
    (tmp_path / "problems.jsonl").write_text(json.dumps(problem))
    (tmp_path / "programs.jsonl").write_text(json.dumps(program))
    words = ("judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl")
    ended = run(environment / "bin" / "autoclave", *words, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads((tmp_path / "verdicts.jsonl").read_text())["status"] == "accepted"


@pytest.mark.slow
def test_an_installation_without_extras_runs_programs(environment: Path, tmp_path: Path):
    (tmp_path / "sum.py").write_text("print(sum(map(int, input().split())))")
    ended = run(environment / "bin" / "autoclave", "run", "sum.py", cwd=tmp_path, input="3 4\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("doctor",), ("config", "show"), ("--help",), ("train", "--help")], ids=" ".join)
def test_an_installation_without_extras_answers(environment: Path, tmp_path: Path, words: tuple[str, ...]):
    ended = run(environment / "bin" / "autoclave", *words, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("train",), ("report", "."), ("view", "."), ("evaluate", "model")], ids=" ".join)
def test_what_needs_an_extra_names_it(environment: Path, tmp_path: Path, words: tuple[str, ...]):
    ended = run(environment / "bin" / "autoclave", *words, cwd=tmp_path)
    assert ended.returncode == 3
    assert "pip install" in ended.stderr
    assert "autoclave[train]" in ended.stderr
    assert "Traceback" not in ended.stderr
