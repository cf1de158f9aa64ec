"""Files of other tools: responses to grade, imported grades, and exported results."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from autoclave.core import DataError, InputError
from autoclave.evaluation.benchmark_result import BenchmarkResult, GradedResponse
from autoclave.evaluation.exchange import recorded_result, to_evalplus, to_livecodebench
from autoclave.evaluation.questions import QuestionInfo
from autoclave.evaluation.responses import ResponseRequest, read_responses
from autoclave.problems.prompts import plain_messages
from autoclave.rollout import SamplingParameters

RESULT = BenchmarkResult(
    "LiveCodeBench",
    "model",
    (
        QuestionInfo(
            "livecodebench/1873_A", "easy", "2023-08-21", "codeforces", title="A. Short Sort", statement="Sort."
        ),
        QuestionInfo("livecodebench/abc301_a", "hard", "2023-05-13", "atcoder"),
    ),
    (
        GradedResponse("livecodebench/1873_A", 0, "accepted", 1.0, "```python\nx\n```", "x"),
        GradedResponse("livecodebench/1873_A", 1, "time_limit", 0.0, "```python\ny\n```", "y"),
        GradedResponse("livecodebench/1873_A", 2, "", None, "```python\nz\n```", "z"),
        GradedResponse("livecodebench/abc301_a", 0, "bad_format", 0.0, "no code", None),
    ),
    tables=("difficulty",),
)
JUDGED = replace(RESULT, samples=tuple(sample for sample in RESULT.samples if sample.score is not None))


def texts(path: Path, ids: list[str], id: str) -> list[tuple[str, str]]:
    """Text and form of each response to a problem."""
    ready = read_responses(path, ids)
    asked = [
        ResponseRequest(id, plain_messages(""), True, SamplingParameters(), sample)
        for sample in range(ready.num_samples(id))
    ]
    return [(given.result().text, given.result().form) for given in ready.respond(asked)]


def test_eval_all_of_livecodebench_has_texts_codes_and_grades():
    first, second = json.loads(to_livecodebench(JUDGED))
    assert first["question_id"] == "1873_A"
    assert first["contest_date"] == "2023-08-21T00:00:00"
    assert first["output_list"] == ["```python\nx\n```", "```python\ny\n```"]
    assert first["code_list"] == ["x", "y"]
    assert first["graded_list"] == [True, False]
    assert first["pass@1"] == 0.5
    assert [json.loads(each) for each in first["metadata"]] == [
        {},
        {"error_code": -3, "error_message": "Time Limit Exceeded"},
    ]
    assert second["code_list"] == [""]


def test_an_exported_result_is_imported_with_equal_figures(tmp_path):
    (path := tmp_path / "eval_all.json").write_text(to_livecodebench(JUDGED), "utf-8")
    found = recorded_result(path, "LiveCodeBench", "model")
    assert found.recorded
    assert found.to_metrics()["pass@1"] == JUDGED.to_metrics()["pass@1"]
    assert found.to_metrics()["tables"]["difficulty"] == JUDGED.to_metrics()["tables"]["difficulty"]
    assert found.problems[0].title == "A. Short Sort"


def test_samples_of_evalplus_are_whole_programs(tmp_path):
    problems = (QuestionInfo("HumanEval/0", preamble="from typing import List\n\n"), QuestionInfo("mbpp/11"))
    samples = (
        GradedResponse("HumanEval/0", 0, "accepted", 1.0, "r", "def f(): ..."),
        GradedResponse("mbpp/11", 0, "bad_format", 0.0, "r", None),
    )
    lines = to_evalplus(BenchmarkResult("b", "m", problems, samples)).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"task_id": "HumanEval/0", "solution": "from typing import List\n\ndef f(): ..."},
        {"task_id": "Mbpp/11", "solution": ""},
    ]
    (tmp_path / "samples.jsonl").write_text("\n".join(lines))
    assert texts(tmp_path / "samples.jsonl", ["HumanEval/0", "mbpp/11"], "mbpp/11") == [("", "submission")]


def test_an_export_without_verdicts_or_known_ids_is_an_error():
    with pytest.raises(InputError, match="1 of 4 responses have no verdict"):
        to_livecodebench(RESULT)
    with pytest.raises(InputError, match="1873_A"):
        to_evalplus(RESULT)


@pytest.mark.parametrize(
    ("text", "pass_at_1"),
    [
        ('[{"question_id": "a", "graded_list": [true, false]}, {"question_id": "b", "graded_list": [true]}]', 0.75),
        ('{"task_id": "a", "completion": "x", "passed": true}\n{"task_id": "a", "passed": false}\n', 0.5),
        ('{"id": "sample_0", "scored": [true, false, false, false]}\n', 0.25),
        ('{"eval": {"a": [{"solution": "x", "base_status": "pass", "plus_status": "fail"}]}}', 0.0),
        ('{"eval": {"a": [{"base_status": "pass", "plus_status": "pass"}, {"base_status": "fail"}]}}', 0.5),
    ],
)
def test_grades_of_other_evaluators_are_imported(tmp_path, text, pass_at_1):
    (tmp_path / "f").write_text(text)
    assert recorded_result(tmp_path / "f", "b", "m").to_metrics()["pass@1"] == pass_at_1


@pytest.mark.parametrize(
    "text",
    [
        '{"task_id": "a", "passed": "false"}',
        '[{"question_id": "a", "graded_list": [-2]}]',
        '[{"id": "a", "scored": [null]}]',
    ],
)
def test_a_grade_that_is_not_boolean_is_an_error(tmp_path, text):
    (tmp_path / "f").write_text(text)
    with pytest.raises(DataError, match="must be true or false"):
        recorded_result(tmp_path / "f", "b", "m")


@pytest.mark.parametrize("text", ['[{"question_id": "a"}]', "[3]", '{"passed": true}\n{"passed": true}\n'])
def test_a_file_without_grades_is_an_error(tmp_path, text):
    (tmp_path / "f").write_text(text)
    with pytest.raises(DataError, match="f"):
        recorded_result(tmp_path / "f", "b", "m")


IDS = ["HumanEval/0", "mbpp/11", "livecodebench/1873_A"]


@pytest.mark.parametrize(
    ("line", "id", "expected"),
    [
        ({"problem_id": "HumanEval/0", "response": "x"}, "HumanEval/0", [("x", "text")]),
        ({"task_id": "HumanEval/0", "completion": "x"}, "HumanEval/0", [("x", "completion")]),
        ({"task_id": "Mbpp/11", "solution": "x"}, "mbpp/11", [("x", "submission")]),
        (
            {"question_id": "1873_A", "code_list": ["x", "y"]},
            "livecodebench/1873_A",
            [("x", "submission"), ("y", "submission")],
        ),
        ({"question_id": "1873_A", "output_list": ["t"], "code_list": ["x"]}, "livecodebench/1873_A", [("t", "text")]),
    ],
)
def test_responses_match_problems_by_the_ids_of_other_tools(tmp_path, line, id, expected):
    (tmp_path / "lines.jsonl").write_text(json.dumps(line))
    (tmp_path / "array.json.gz").write_bytes(gzip.compress(json.dumps([line]).encode()))
    assert texts(tmp_path / "lines.jsonl", IDS, id) == expected
    assert texts(tmp_path / "array.json.gz", IDS, id) == expected


def test_responses_to_another_set_are_an_error(tmp_path):
    (tmp_path / "f.jsonl").write_text('{"task_id": "Mbpp/0", "solution": "x"}')
    with pytest.raises(InputError, match="none of its 1 responses"):
        read_responses(tmp_path / "f.jsonl", ["HumanEval/0"])


def test_an_ambiguous_id_matches_no_problem(tmp_path):
    (tmp_path / "f.jsonl").write_text('{"task_id": "11", "response": "x"}\n{"task_id": "a/11", "response": "y"}')
    ready = read_responses(tmp_path / "f.jsonl", ["a/11", "b/11"])
    assert (ready.num_samples("a/11"), ready.num_samples("b/11")) == (1, 0)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"task_id": "HumanEval/0"}, DataError),
        ({"response": "x"}, DataError),
        ({"task_id": "HumanEval/0", "response": 3}, DataError),
        ({"task_id": "other", "response": "x"}, InputError),
    ],
)
def test_responses_that_cannot_be_used_are_named(tmp_path, line, error):
    (tmp_path / "f.jsonl").write_text(json.dumps(line))
    with pytest.raises(error, match=r"f\.jsonl"):
        read_responses(tmp_path / "f.jsonl", IDS)
