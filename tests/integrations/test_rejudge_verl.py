"""What verl's unmodified grader rewards and should not: its dump of the gauntlet's programs, judged again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.core import CallTests, StdinTests
from gauntlet.entries import fresh_tasks, read_entries

pytestmark = pytest.mark.verl
FAMILIES = {"lying-objects", "comparison"}
SCORING = """
import json, sys
from verl.utils.reward_score import default_compute_score

for line in open(sys.argv[1]):
    row = json.loads(line)
    row["score"] = float(default_compute_score("codecontests", row["output"], row["gts"]))
    print(json.dumps(row), file=open(sys.argv[2], "a"), flush=True)
"""
"""The lines of `trainer.rollout_data_dir`, as verl writes them."""


def truth_of(tests: Any) -> str:
    """Return tests as data sets for verl have them."""
    if isinstance(tests, StdinTests):
        return json.dumps(
            {"inputs": [each.input for each in tests.cases], "outputs": [each.output for each in tests.cases]}
        )
    inputs = ["\n".join(map(json.dumps, each.arguments)) for each in tests.cases]
    outputs = [json.dumps(each.output) for each in tests.cases]
    return json.dumps({"inputs": inputs, "outputs": outputs, "fn_name": tests.entry_point.rpartition(".")[2]})


def undeserving_rows() -> list[dict[str, str]]:
    """Programs that deserve no reward and do no harm to a host: verl's grader runs them without isolation."""
    problems = fresh_tasks().problems
    rows: list[dict[str, str]] = []
    for entry in read_entries():
        attempt = entry.attempts[0]
        problem = problems[attempt.task]
        is_call = isinstance(problem.tests, CallTests) and problem.tests.cases[0].arguments
        is_harmless = entry.family in FAMILIES and not entry.harms
        if is_harmless and problem.checker == "lcb" and (is_call or isinstance(problem.tests, StdinTests)):
            output = f"```python\n{attempt.source({'MARK': '0'})}\n```"
            name, truth = f"{entry.family}/{entry.name}", truth_of(problem.tests)
            rows.append({"input": problem.statement, "output": output, "gts": truth, "id": name})
    return rows


def test_each_false_positive_of_verl_s_grader_is_shown_by_name(tmp_path: Path):
    rows = undeserving_rows()
    assert len(rows) > 30
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-c", SCORING, "rows.json", "1.jsonl"]
    scored = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert scored.returncode == 0, scored.stderr[-2000:]
    undeserved = {row["id"] for row in map(json.loads, (tmp_path / "1.jsonl").open()) if row["score"] == 1}
    assert len(undeserved) >= 5

    words = ["rejudge", str(tmp_path / "1.jsonl"), "judge.time_limit_range=[1, 2]", "--json", "--examples", "1000"]
    found = CliRunner().invoke(cli, words)
    shown = json.loads(found.stdout)
    assert shown["rollouts"] == len(rows)
    assert {each["id"] for each in shown["examples"]} == undeserved
    assert shown["causes"]["false_positive"] >= 4
