"""`autoclave probe`, with a policy that writes the same program whatever it is asked, by the real sampler and judge."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from transformers.utils import logging

from autoclave.cli.main import cli
from autoclave.compose.host import build_judge
from autoclave.compose.probe import locate, read, run_programs, without_leaks
from autoclave.config import CodeGenerationConfig, JudgeConfig, SandboxConfig, TrainConfig
from autoclave.core import IncompleteError, Problem, StdinCase, StdinTests
from autoclave.evaluation.probing.subtasks import SubTask
from autoclave.models import Policy, build_tiny_policy, save_model
from autoclave.tasks import CodeGeneration
from tests.training_parts import TEXTS, TINY, completion, reciting_policy, tiny_policy

Complaint = Callable[..., tuple[int, str]]

PROGRAM = "n=int(input());total=n+n;is_n=True;name='n'"
RESPONSE = f"```python\n{PROGRAM}\n ```"
SETTINGS = ("task.template=plain", "sampler.max_new_tokens=12", "model.device=cpu", "model.threads=1", "seed=4")


def reciting() -> Policy:
    """A policy to which the whole program is one token, so that no token of the response occurs twice."""
    shape = TINY.model_copy(update={"vocabulary": 320})
    tokenizer = build_tiny_policy(shape, [RESPONSE] * 50 + [*TEXTS, "Print it again."], seed=0, device="cpu").tokenizer
    return reciting_policy(RESPONSE, tokenizer)


@pytest.fixture(autouse=True)
def no_progress_bars() -> None:
    """Of models that tests save: they are not what the command prints."""
    logging.disable_progress_bar()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with the models `reciting` and `noise`."""
    save_model(reciting(), tmp_path / "reciting")
    save_model(tiny_policy(), tmp_path / "noise")
    return tmp_path


@pytest.fixture
def problems(write_lines: Callable[..., Path]) -> Path:
    """Two problems with ten examples of different size, and one without any."""
    return write_lines("problems.jsonl", adding("small", 1), adding("large", 10**6), answer())


def adding(name: str, size: int) -> dict[str, Any]:
    cases = [{"input": f"{size * n}\n", "output": f"{2 * size * n}\n"} for n in range(10)]
    tests = {"kind": "stdin", "cases": cases}
    return {"format": "autoclave-problem/1", "id": name, "statement": f"Double ({name}).", "tests": tests}


def answer() -> dict[str, Any]:
    source = "def check(candidate): assert candidate(1) == 2"
    tests = {"kind": "check", "entry_point": "f", "source": source, "invocation": "check(f)", "preamble": ""}
    return {"format": "autoclave-problem/1", "id": "unseen", "statement": "Double.", "tests": tests}


@pytest.fixture
def invoke(models: Path, problems: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """invoke("--model", ...): the command on these problems, in this process."""
    monkeypatch.chdir(models)
    words = ["probe", *SETTINGS, "--problems", str(problems)]
    return lambda *more: CliRunner().invoke(cli, [*words, *more])


def test_probes_of_a_model_and_the_same_figures_again(invoke: Callable[..., Result], models: Path):
    ended = invoke("--model", "a=reciting", "--model", "reciting", "--out", "found", "--json", "--epochs", "300")
    assert ended.exception is None
    found = json.loads(ended.stdout)
    assert found == json.loads((models / "found" / "probe.json").read_text())
    first, second = found["models"]
    assert (first["name"], second["name"], found["seed"]) == ("a", "reciting", 4)
    assert first | {"name": "", "path": ""} == second | {"name": "", "path": ""}  # the same model, so the same figures
    assert found["problems"] == {"asked": 3, "with_examples": 2}
    assert first["subtasks"] == {"asked": 20, "train": 16, "test": 4, "left_out": {}}  # 8 to 2 in each problem
    assert (first["examples"]["train"], first["examples"]["test"]) == (32, 8)  # n and total; no bool, no text
    assert [layer["layer"] for layer in first["layers"]] == [0, 1]
    for layer in first["layers"]:  # the hidden states say which token it is and nothing of the input
        assert layer["mse"] == pytest.approx(first["baseline"]["training_mean"]["mse"], rel=0.02)
    page = (models / "found" / "probe.html").read_text()
    assert "Double" not in page
    assert not re.search(r"@import|url\(|https?://|src=", page)


def test_the_example_works_when_pasted(models: Path, problems: Path, monkeypatch: pytest.MonkeyPatch):
    (models / "runs/demo").mkdir(parents=True)
    (models / "runs/demo/start").symlink_to(models / "reciting")
    (models / "runs/demo/model").symlink_to(models / "reciting")
    (models / "recipes").mkdir()
    recipe = f"task: {{template: plain}}\nproblems: {{name: files, train: {problems}, heldout: held.jsonl}}\n"
    (models / "recipes/demo.yaml").write_text(recipe)
    (models / "held.jsonl").write_text(json.dumps(adding("held", 3)))
    text = CliRunner().invoke(cli, ["probe", "--help"], terminal_width=10_000).output
    (example,) = re.findall(r"Example: autoclave (.*?)$", text, re.MULTILINE)
    monkeypatch.chdir(models)
    ended = CliRunner().invoke(cli, shlex.split(example))
    assert ended.exception is None
    assert "before" in ended.stdout
    assert "after" in ended.stdout
    assert sorted(path.name for path in (models / "runs/probe").iterdir()) == ["probe.html", "probe.json"]


def test_a_model_without_programs_is_named_and_other_models_are_measured(invoke: Callable[..., Result], models: Path):
    ended = invoke("--model", "noise", "--model", "reciting")
    assert isinstance(ended.exception, IncompleteError)  # exit code 1
    assert str(ended.exception).startswith("noise: no variable to train or test probes on.")
    assert "noise: 20 sub-tasks: no program" in ended.stdout
    found = json.loads((models / "runs/probe/probe.json").read_text())
    assert [len(model["layers"]) for model in found["models"]] == [0, 2]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--model", "nowhere/at/all"], 2, "Error: model.path"),
        (["--model", "=x"], 2, 'Error: --model "=x": must be FOLDER or NAME=FOLDER'),
        (["--model", "a=x", "--model", "a=y"], 2, 'Error: --model "a=y": is a second model "a". Fix: --model NAME=y'),
        (["--model", "x", "task.name=mathematics", "problems.name=arithmetic"], 2, "Error: task.name = mathematics:"),
        ([], 2, "Error: Missing option '--model'"),
        (["--model", "x", "--test-share", "1"], 2, "Error: Invalid value for '--test-share'"),
        (["--model", "x", "probe.epochs=3"], 2, "Error: probe"),
    ],
)
def test_bad_usage_is_one_line(complaint: Complaint, words: list[str], code: int, error: str):
    found, message = complaint("probe", *words)
    assert (found, message[: len(error)]) == (code, error)


def test_problems_without_examples_are_refused(complaint: Complaint, models: Path, write_lines: Callable[..., Path]):
    code, message = complaint("probe", "--model", "noise", "--problems", write_lines("p.jsonl", answer()))
    assert (code, message.count("\n")) == (2, 1)
    assert "none has an example; give Python problems with tests of kind stdin or call" in message


# --- What a run of a program gives, step by step -------------------------------------------------------------------

HOSTILE = {
    "a = (": "did_not_end_normally",
    "import os\na = 1\nos._exit(0)": "did_not_end_normally",
    "a = 1\nraise SystemExit(1)": "did_not_end_normally",
    "a = 'text'\nb = True\nc = None\nd = float('nan')\ne = 10 ** 600": "no_number",
    "exec('a = 1')": "no_number",  # a name that is not in the source is not a variable
    'exec("""a = 1""")  # a': "no_number",
    "a = 1\nclass int(int): pass\nb = int(2)": None,
    "x = 1\n" + "(" * 3000 + "1" + ")" * 3000: "did_not_end_normally",
}


def subtask(number: int, *, is_test: bool = False, task: int = 0) -> SubTask:
    tests = StdinTests("stdin", [StdinCase(f"{number}\n", "")])
    return SubTask(task, Problem("Any.", tests, id=f"any#{number}"), f"{number}\n", is_test)


@pytest.fixture(scope="module")
def judged():
    """judged([(sub-task, response), ...]): the runs, and why there are not more."""
    with build_judge(JudgeConfig(workers=1), SandboxConfig()) as judge:
        task = CodeGeneration(judge, CodeGenerationConfig(template="plain"))

        def run(answered):
            left_out = Counter[str]()
            pairs = [(each, completion(text=text)) for each, text in answered]
            return list(run_programs(pairs, task, judge, left_out)), left_out

        yield run


def test_programs_that_fail_or_have_no_number_are_counted_and_left_out(judged):
    answered = [(subtask(n), f"```python\n{program}\n```") for n, program in enumerate(HOSTILE)]
    runs, left_out = judged([*answered, (subtask(99), "no program")])
    assert [(run.program, run.numbers) for run in runs] == [("a = 1\nclass int(int): pass\nb = int(2)", {"a": 1.0})]
    assert left_out == Counter(reason for reason in HOSTILE.values() if reason) + Counter(no_program=1)


def test_a_pair_of_program_and_input_in_the_training_set_is_not_tested(judged):
    same = "```python\nn = int(input())\n```"
    sides = [subtask(5), subtask(5, is_test=True, task=1), subtask(6, is_test=True, task=1)]
    runs, _ = judged([(each, same) for each in sides])
    left_out = Counter[str]()
    assert [run.subtask for run in without_leaks(runs, left_out)] == [sides[0], sides[2]]
    assert left_out == {"also_in_training": 1}


def test_a_number_is_read_at_the_last_token_of_the_last_place_of_its_name(judged, models: Path):
    policy = reciting()
    ids = policy.tokenizer.encode(RESPONSE)
    (run,), _ = judged([(subtask(21), RESPONSE)])
    sampled = completion(ids, prompt=[3, 4], text=RESPONSE)
    located = locate(type(run)(run.subtask, sampled, run.place, run.numbers), policy.tokenizer, Counter(), Counter())
    assert located is not None
    assert dict(zip(run.numbers, located.values, strict=True)) == {"n": 21.0, "total": 42.0}
    config = TrainConfig.model_validate({"model": {"device": "cpu"}})
    found = read(config, models / "reciting", [located])
    (place,) = {i for i, token in enumerate(ids) if "total" in policy.tokenizer.decode([token])}
    assert set(located.tokens) == {place}
    assert found.hidden[:, 0].argmax(-1).tolist() == [ids[place]] * 2  # the embedding is the token itself
    assert (found.values.tolist(), found.problems.tolist(), found.is_test.any()) == ([21, 42], [0, 0], np.False_)


def test_ambiguous_names_are_not_read(judged):
    source = "n = 1\ndef main():\n    n = 2\n    k = 3\nmain()"
    (run,), _ = judged([(subtask(0), f"```python\n{source}\n```")])
    assert set(run.numbers) == {"n", "main.n", "main.k"}
    tokenizer, variables_left_out = tiny_policy().tokenizer, Counter[str]()
    sampled = completion(tokenizer.encode(run.completion.text), text=run.completion.text)
    located = locate(type(run)(run.subtask, sampled, run.place, run.numbers), tokenizer, Counter(), variables_left_out)
    assert located is not None
    assert located.values == (3.0,)
    assert variables_left_out == {"shared_name": 2}
    said = tokenizer.decode(sampled.tokens[: located.tokens[0] + 1])
    assert said.endswith("k") or said.rstrip("= 3").endswith("k")
