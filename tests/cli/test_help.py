"""Every command helps: what it does, an example that works when pasted, and no heavy import before it is needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli

from .conftest import ADD, RIGHT, Ended

ROOT = Path(__file__).parents[2]


def commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands and groups with the words that call them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, *path, name)


ALL = dict(commands(cli))


def examples(words: tuple[str, ...]) -> list[str]:
    text = " ".join(CliRunner().invoke(cli, [*words, "--help"], terminal_width=10_000).output.split("\n"))
    return re.findall(r"Example: (.*?)(?:  |$)", text)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_shows_an_example(words: tuple[str, ...]):
    found = examples(words)
    assert len(found) == 1
    assert f"autoclave {' '.join(words)}".strip() in found[0]


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_an_example_stands_on_a_line_of_its_own(words: tuple[str, ...]):
    lines = CliRunner().invoke(cli, [*words, "--help"], terminal_width=10_000).output.split("\n")
    assert not any("\\b" in line for line in lines)
    assert any(line.startswith("  Example: ") for line in lines)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_has_help(words: tuple[str, ...]):
    options = [parameter for parameter in ALL[words].params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("words", [(), ("judge",), ("config", "show")], ids=" ".join)
def test_both_names_of_help_work(words: tuple[str, ...]):
    long, short = (CliRunner().invoke(cli, [*words, option]) for option in ("--help", "-h"))
    assert long.exit_code == short.exit_code == 0
    assert long.output == short.output


@pytest.mark.parametrize(
    "words", [("doctor",), ("judge",), ("run",), ("trace",), ("plan",), ("config", "show")], ids=" ".join
)
def test_the_example_works_when_pasted(words: tuple[str, ...], write_lines: Callable[..., Path], tmp_path: Path):
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl", RIGHT)
    (tmp_path / "sum.py").write_text(RIGHT["source"])
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    script = f'autoclave() {{ "{sys.executable}" -m autoclave "$@"; }}; {examples(words)[0]}'
    ended = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_examples_of_training_have_settings_that_exist():
    for words in (("train",), ("sft",), ("evaluate",), ("probe",)):
        example = examples(words)[0].split()
        settings = [word for word in example if ("=" in word and "/" not in word) or word.endswith(".yaml")]
        shown = CliRunner().invoke(cli, ["config", "show", *settings])
        assert shown.exit_code == 0, shown.exception


@pytest.mark.parametrize(
    "words", [["--help"], ["doctor"], ["judge"], ["run"], ["trace"], ["plan"], ["config", "show"]], ids=" ".join
)
def test_commands_without_tensors_load_no_tensor_library(
    words: list[str], write_lines: Callable[..., Path], tmp_path: Path
):
    arguments: dict[str, list[Any]] = {
        "judge": [write_lines("problems.jsonl", ADD), write_lines("programs.jsonl", RIGHT), "--out", tmp_path / "out"],
        "run": [write_lines("sum.py", RIGHT["source"])],
        "trace": [tmp_path / "sum.py"],
    }
    script = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from autoclave.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, *words, *map(str, arguments.get(words[0], []))]
    ended = subprocess.run(command, input="3 4\n", capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0
    loaded = json.loads(ended.stderr)
    assert {"torch", "transformers", "ray", "vllm"}.isdisjoint(loaded)
    if words[0] in arguments:  # without settings or a recipe
        others = {"numpy", "yaml", "httpx", "autoclave.config.training"}
        assert others.isdisjoint(loaded)


@pytest.mark.parametrize("command", ["judge", "run", "trace"])
def test_the_help_of_a_command_that_runs_programs_loads_no_judge_and_no_settings(command: str):
    script = "import sys; from autoclave.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", script, command, "-h"], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "yaml", "importlib.metadata", "autoclave.judge", "autoclave.config.base", "autoclave.sandbox"}
    assert heavy.isdisjoint(ended.stderr.split())


def test_the_list_of_commands_loads_no_command_and_no_settings():
    script = "import sys; from autoclave.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "yaml", "importlib.metadata", "autoclave.core.json", "autoclave.cli.train", "autoclave.judge"}
    assert heavy.isdisjoint(ended.stderr.split())
    listed = ended.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == [words[0] for words in ALL if len(words) == 1]
    assert all(line.endswith(".") and not line.endswith("..") for line in listed)


def test_a_command_loads_no_other_command():
    script = "import sys; from autoclave.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", script, "report", "-h"], capture_output=True, text=True, check=True)
    loaded = {name for name in ended.stderr.split() if name.startswith("autoclave.cli.")}
    assert "autoclave.cli.run_folder" in loaded
    assert {"autoclave.cli.act", "autoclave.cli.train", "autoclave.cli.programs"}.isdisjoint(loaded)


def test_without_a_command_the_help_comes_on_standard_error(autoclave: Callable[..., Ended]):
    ended = autoclave()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Commands:" in ended.stderr


def test_the_version_is_that_of_the_package(autoclave: Callable[..., Ended]):
    from autoclave import __version__

    assert autoclave("--version").stdout == f"autoclave, version {__version__}\n"
