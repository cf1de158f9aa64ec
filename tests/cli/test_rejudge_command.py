"""`autoclave rejudge`: what changes, why, and what the advantages would have been."""

import gzip
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.config import Override, TrainConfig, dump, load
from autoclave.core import Status, Verdict
from autoclave.core.json import to_plain
from autoclave.integrations.rejudging import advantage_changes, advantages
from autoclave.runs.rollouts import ROLLOUT_FORMAT

from .conftest import ADD, Ended

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rejudge.md"

WriteLines = Callable[..., Path]
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
SEVEN = "```python\nprint(7)\n```"
FLOATS = "```python\nprint(sum(map(int, input().split())) + 1e-9)\n```"
QUICK = ("judge.workers=2", "judge.time_limit_range=[0.5, 1]")


def row(response: str, score: float, **more: Any) -> dict[str, Any]:
    """A row as verl dumps it."""
    truth = json.dumps({"inputs": ["3 4\n", "1 1\n"], "outputs": ["7\n", "2\n"]})
    return {"input": "Add two numbers.", "output": response, "gts": truth, "score": score, "step": 1} | more


def rejudged(*words: object) -> tuple[int, dict[str, Any]]:
    """Exit code and result."""
    done = CliRunner().invoke(cli, ["rejudge", *map(str, words), *QUICK, "--json"])
    assert done.stdout, done.exception
    return done.exit_code, json.loads(done.stdout)


def test_each_cause_is_counted_and_has_an_example(write_lines: WriteLines):
    path = write_lines(
        "1.jsonl",
        row(SEVEN, 1.0, id="constant"),
        row(FLOATS, 1.0),
        row(RIGHT, 0.0),
        row("```python\nwhile True: pass\n```", 1.0),
        row("I do not know.", 1.0),
        row("```python\nprint(f'{sum(map(int, input().split()))}.0')\n```", 0.0),
        row(RIGHT, 1.0),
    )
    code, found = rejudged(path)
    assert code == 1
    causes = ("false_positive", "stricter_rule", "false_negative", "time_limit", "extraction", "looser_rule")
    assert found["causes"] == dict.fromkeys(causes, 1)
    by_cause = {each["cause"]: each for each in found["examples"]}
    assert by_cause["false_positive"] == {
        "cause": "false_positive",
        "detail": "test 1: the output does not match",
        "where": "1.jsonl:1",
        "id": "constant",
        "response": SEVEN,
        "recorded": 1.0,
        "now": 0.0,
        "status": "wrong_answer",
    }
    assert by_cause["stricter_rule"]["detail"] == "accepted with checker float"
    assert (found["rollouts"], found["unchanged"], found["groups"], found["sign_changes"]) == (7, 1, 1, 1)


def test_nothing_changes_under_the_same_tests_and_a_weak_checker_is_found(write_lines: WriteLines):
    write_lines("problems.jsonl", ADD)
    unordered = "```python\nprint(*sorted(map(int, input().split()))[::-1], sep='\\n')\n```"
    rows = [row(RIGHT, 1.0), row(SEVEN, 0.0), row(unordered, 0.0)]
    path = write_lines("1.jsonl", *rows)
    problems = path.with_name("problems.jsonl")
    assert rejudged(path, "--problems", problems)[0] == 0
    sort = ADD | {"checker": "unordered"}
    sort["tests"] = {"kind": "stdin", "cases": [{"input": "3 4\n", "output": "3\n4\n"}]}
    write_lines("problems.jsonl", sort)
    code, found = rejudged(write_lines("1.jsonl", row(unordered, 1.0)), "--problems", problems, "--checker", "lcb")
    assert (code, found["examples"][0]["detail"]) == (1, "accepted with checker unordered")


def test_weak_tests_are_found_with_the_whole_ones(write_lines: WriteLines):
    weak = json.dumps({"inputs": ["3 4\n"], "outputs": ["7\n"]})
    path = write_lines("1.jsonl", row(SEVEN, 1.0, gts=weak), row(RIGHT, 1.0, gts=weak))
    assert rejudged(path)[0] == 0
    code, found = rejudged(path, "--problems", write_lines("problems.jsonl", ADD))
    assert (code, found["causes"]) == (1, {"false_positive": 1})


def test_a_growing_file_is_read_up_to_its_last_complete_line(tmp_path: Path):
    lines = "".join(json.dumps(row(RIGHT, 1.0)) + "\n" for _ in range(3))
    (tmp_path / "1.jsonl").write_text(lines + json.dumps(row(SEVEN, 1.0))[:40])
    (tmp_path / "2.parquet").write_bytes(b"PAR1 begun")
    code, found = rejudged(tmp_path)
    assert (code, found["unchanged"], len(found["left_out"])) == (0, 3, 2)
    assert list(found["left_out"].values()) == [["1.jsonl:4"], ["2.parquet"]]


def test_the_completions_of_trl_are_read(tmp_path: Path, write_lines: WriteLines):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    user, answer = {"role": "user", "content": "Add two numbers."}, {"role": "assistant", "content": SEVEN}
    table = {"step": [1, 1], "prompt": [[user]] * 2, "completion": [[answer]] * 2, "check": [1.0, 0.0]}
    (tmp_path / "out" / "completions").mkdir(parents=True)
    parquet.write_table(
        arrow.table(table | {"advantage": [0.7, -0.7]}), tmp_path / "out" / "completions" / "completions_00001.parquet"
    )
    code, found = rejudged(tmp_path / "out", "--problems", write_lines("problems.jsonl", ADD))
    assert (code, found["causes"], found["unchanged"]) == (1, {"false_positive": 1}, 1)


def test_a_row_that_cannot_be_judged_is_reported_and_the_others_are_compared(write_lines: WriteLines):
    path = write_lines("1.jsonl", row(RIGHT, 1.0), row(RIGHT, 1.0, gts="42"), row(RIGHT, 1.0, gts=None))
    code, found = rejudged(path)
    assert (code, found["unchanged"], found["no_verdict"]) == (1, 1, 2)
    assert sorted(found["left_out"].values()) == [["1.jsonl:2"], ["1.jsonl:3"]]
    assert logging.getLogger("autoclave.integrations.scoring").level == logging.NOTSET


def test_a_name_of_a_function_beside_the_tests_is_read(write_lines: WriteLines):
    truth = json.dumps({"inputs": ["3\n4"], "outputs": ["7"]})
    given = row("```python\ndef f(a, b): return a + b\n```", 1.0, gts=truth)
    code, found = rejudged(write_lines("1.jsonl", given | {"fn_name": "f"}, given | {"metadata": {"func_name": "f"}}))
    assert (code, found["unchanged"]) == (0, 2), found


def test_a_checker_for_a_digest_is_refused(write_lines: WriteLines):
    code, found = rejudged(write_lines("1.jsonl", row(RIGHT, 1.0, gts="0" * 64)), "--checker", "tokens")
    assert (code, found["no_verdict"]) == (1, 1)
    assert "only the digest of its problem" in next(iter(found["left_out"]))


def test_a_statement_of_two_problems_does_not_tell_which(write_lines: WriteLines):
    problems = write_lines("problems.jsonl", ADD, ADD | {"id": "again"})
    rows = write_lines("1.jsonl", row(RIGHT, 1.0, input=ADD["statement"]), row(RIGHT, 1.0, problem_id="again"))
    code, found = rejudged(rows, "--problems", problems)
    assert (code, found["unchanged"], found["no_verdict"]) == (1, 1, 1)
    assert "nor one whose statement the prompt contains" in next(iter(found["left_out"]))


def test_a_sample_has_whole_groups(write_lines: WriteLines):
    rows = [row(RIGHT, 1.0, input=f"prompt {group}") for group in range(10) for _ in range(4)]
    assert [rejudged(write_lines("1.jsonl", *rows), "--sample", n)[1]["groups"] for n in (1, 8, 1000)] == [1, 2, 10]


def test_advantages_are_distances_in_deviations():
    assert advantages([1.0, 1.0, 1.0]) == [0.0, 0.0, 0.0]
    assert advantages([1.0, 0.0]) == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)
    change, signs = advantage_changes([[(1.0, 0.0), (0.0, 0.0)], [(1.0, 1.0), (0.0, 0.0)]])
    assert (change, signs) == (pytest.approx(0.5**0.5 / 2, abs=1e-5), 1)


def test_an_unclear_score_is_an_error_with_its_fix(complaint: Callable[..., tuple[int, str]], write_lines: WriteLines):
    path = write_lines("1.jsonl", {"prompt": "p", "completion": RIGHT, "style": 0.5, "check": 1.0})
    code, said = complaint("rejudge", path)
    assert code == 2
    assert "style, check" in said
    assert "--score COLUMN" in said


def test_the_example_of_the_page_prints_what_it_says(autoclave: Callable[..., Ended], tmp_path: Path):
    rows, printed = re.findall(r"^```(?:json|text)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "rollouts.jsonl").write_text(rows)
    ended = autoclave("rejudge", "rollouts.jsonl")
    assert (ended.returncode, ended.stdout) == (1, printed)
    assert ended.stderr == "Error: 1 of 3 rollouts changed or have no verdict\n"


@pytest.fixture
def run(tmp_path: Path, write_lines: WriteLines) -> Path:
    """A run folder with four rollouts, of which the last has a wrong verdict."""
    write_lines("train.jsonl", ADD)
    write_lines(
        "heldout.jsonl", ADD | {"id": "other", "tests": {"kind": "stdin", "cases": [{"input": "", "output": ""}]}}
    )
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "heldout")}
    settings = [Override("problems", {"name": "files"} | files, "test"), Override("sft.steps", 0, "test")]
    folder = tmp_path / "run"
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.yaml").write_text(dump(load(TrainConfig, None, settings).config))
    statuses = (Status.ACCEPTED, Status.WRONG_ANSWER, Status.BAD_FORMAT, Status.ACCEPTED)
    place = {"format": ROLLOUT_FORMAT, "task": "code_generation", "step": 1, "item": "add", "group": 0}
    lines = [
        place | {"sample": sample, "response": response, "verdict": to_plain(Verdict.of(status))}
        for sample, (response, status) in enumerate(zip((RIGHT, SEVEN, "no", SEVEN), statuses, strict=True))
    ]
    lines += [place | {"verdict": None}, place | {"verdict": None, "task": "execution_semantics"}]
    with gzip.open(folder / "rollouts" / "step-000001.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return folder


def test_a_run_is_judged_with_its_problems_and_settings(run: Path):
    code, found = rejudged(run)
    assert (code, found["unchanged"], found["causes"]) == (1, 3, {"false_positive": 1})
    assert (found["examples"][0]["id"], len(found["left_out"])) == ("add#3", 2)
    code, found = rejudged(run / "rollouts" / "step-000001.jsonl.gz", "tests=longest:1")
    assert (code, found["unchanged"]) == (1, 3)  # the constant passes this test: what was recorded for it twice differs
