"""A real evaluation of Inspect with its mock model, scored by the judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoclave.integrations.scoring import _kept_scorer, scorer_of_process

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

PROBLEM = json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})
RIGHT, WRONG = "```python\nprint(input())\n```", "```python\nprint(2)\n```"
SETTINGS = ("judge.workers=1",)


@pytest.fixture(autouse=True)
def _judges_are_closed():
    yield
    scorer_of_process(SETTINGS, "binary").close()
    _kept_scorer.cache_clear()


def evaluated(folder: Path, answers: list[str], **options: object):
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from autoclave.integrations.inspect_ai import sealed_judge

    samples = [Sample(input="Print it.", metadata={"problem": PROBLEM}) for _ in answers]
    outputs = [ModelOutput.from_content("mockllm/model", answer) for answer in answers]
    for output in outputs:
        output.usage = ModelUsage()  # else tokens are counted with a vocabulary from the network
    task = Task(dataset=samples, scorer=sealed_judge(SETTINGS))
    model = get_model("mockllm/model", custom_outputs=outputs)
    return eval(task, model=model, log_dir=str(folder), display="none", max_samples=1, **options)[0]


def test_an_evaluation_counts_the_programs_that_pass(tmp_path: Path):
    log = evaluated(tmp_path, [RIGHT, WRONG, "no program", RIGHT])
    assert log.status == "success"
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
    scores = [sample.scores["sealed_judge"] for sample in log.samples]
    assert [score.value for score in scores] == ["C", "I", "I", "C"]
    assert [score.answer for score in scores] == ["print(input())", "print(2)", None, "print(input())"]
    assert [score.metadata["status"] for score in scores][:3] == ["accepted", "wrong_answer", "bad_format"]


def test_a_fault_is_an_error_of_the_sample(tmp_path: Path):
    for sandbox in scorer_of_process(SETTINGS, "binary")._judge._sandboxes:
        sandbox.close()
    log = evaluated(tmp_path, [RIGHT, "no program"], fail_on_error=False)
    faulty = next(sample for sample in log.samples if sample.error)
    assert "no verdict" in faulty.error.message
    assert not faulty.scores
    assert sum(bool(sample.scores) for sample in log.samples) == 1
    assert evaluated(tmp_path, [RIGHT]).status == "error"
