"""Results and samples in the formats of LiveCodeBench, EvalPlus, human-eval and CRUXEval, read and written.

Source: the repositories LiveCodeBench/LiveCodeBench (`*_eval_all.json`), evalplus/evalplus (`samples.jsonl`,
`*_eval_results.json`), openai/human-eval (`*_results.jsonl`) and facebookresearch/cruxeval (scored generations).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoclave.core import DataError, InputError, Status
from autoclave.evaluation.benchmark_result import BenchmarkResult, GradedResponse
from autoclave.evaluation.questions import QuestionInfo
from autoclave.evaluation.responses import read_records

_CODES: Mapping[str, tuple[int, str]] = {
    Status.WRONG_ANSWER: (-2, "Wrong Answer"),
    Status.OUTPUT_LIMIT: (-2, "Wrong Answer"),
    Status.TIME_LIMIT: (-3, "Time Limit Exceeded"),
}
_OTHER_CODE = (-4, "Runtime Error")
_TASK = re.compile(r"(HumanEval|Mbpp)/\d+")
_PASSED = ("pass", "passed", True)


def to_livecodebench(result: BenchmarkResult) -> str:
    """Return an `eval_all` array: for each problem its responses, programs and grades.

    LiveCodeBench's own evaluator reads `question_id` and `code_list`.

    Raises InputError: a response has no verdict, for which the format has no value.
    """
    if missing := sum(sample.score is None for sample in result.samples):
        raise InputError(
            f"--format livecodebench: {missing} of {len(result.samples)} responses have no verdict, and the format "
            "has no value for that. Fix: evaluate again, which judges the cached responses"
        )
    return json.dumps([_evaluated(problem, result) for problem in result.problems], indent=4, ensure_ascii=False)


def _evaluated(problem: QuestionInfo, result: BenchmarkResult) -> dict[str, Any]:
    samples = result.by_problem[problem.id]
    return {
        "question_title": problem.title,
        "question_content": problem.statement,
        "platform": problem.source,
        "question_id": problem.id.rpartition("/")[2],
        "contest_id": "",
        "contest_date": f"{problem.released}T00:00:00" if problem.released else "",
        "starter_code": problem.starter_code,
        "difficulty": problem.difficulty,
        "output_list": [sample.response for sample in samples],
        "code_list": [sample.submission or "" for sample in samples],
        "graded_list": [sample.is_right for sample in samples],
        "pass@1": sum(sample.is_right for sample in samples) / len(samples) if samples else 0.0,
        "metadata": [json.dumps(_error(sample)) for sample in samples],
    }


def _error(sample: GradedResponse) -> dict[str, Any]:
    if sample.is_right:
        return {}
    code, message = _CODES.get(sample.status, _OTHER_CODE)
    return {"error_code": code, "error_message": message}


def to_evalplus(result: BenchmarkResult) -> str:
    """Return lines with `task_id` and `solution`: the preamble of the problem and the program of the response.

    A response without a program becomes an empty solution, since every problem needs a sample.

    Raises InputError: a problem is neither of HumanEval nor of MBPP.
    """
    problems = {problem.id: problem for problem in result.problems}
    lines = [
        {"task_id": _task_id(sample.problem_id), "solution": _whole(problems[sample.problem_id], sample)}
        for sample in result.samples
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _task_id(id: str) -> str:
    task = f"Mbpp/{id.rpartition('/')[2]}" if id.startswith("mbpp/") else id
    if not _TASK.fullmatch(task):
        raise InputError(
            f"--format evalplus: problem {id!r} is neither of HumanEval nor of MBPP, which EvalPlus grades"
        )
    return task


def _whole(problem: QuestionInfo, sample: GradedResponse) -> str:
    preamble = problem.preamble.rstrip()
    return f"{preamble}\n\n{sample.submission or ''}" if preamble else sample.submission or ""


EXPORTS: Mapping[str, Callable[[BenchmarkResult], str]] = {"livecodebench": to_livecodebench, "evalplus": to_evalplus}
"""Export formats, by name."""


def recorded_result(path: Path, benchmark: str, model: str) -> BenchmarkResult:
    """Read the grades that a file of another evaluator holds; nothing is judged.

    Formats: `eval_all` of LiveCodeBench (`graded_list`), results of EvalPlus (`eval`) and human-eval (`passed`), and
    lists of grades by id (`scored`), as JSON or JSON lines, also compressed.

    Raises InputError: the file does not exist, or holds no grades. DataError: a record has another format.
    """
    problems: dict[str, QuestionInfo] = {}
    samples: dict[str, list[GradedResponse]] = {}
    for where, record in read_records(path, "results"):
        info, graded = _recorded(record, where)
        problems.setdefault(info.id, info)
        known = samples.setdefault(info.id, [])
        known += [replace(each, sample=len(known) + place) for place, each in enumerate(graded)]
    if not problems:
        raise InputError(f"{path}: holds no grades")
    fewest = min(map(len, samples.values()))
    return BenchmarkResult(
        benchmark,
        model,
        tuple(problems.values()),
        tuple(sample for each in samples.values() for sample in each),
        k=tuple(k for k in (1, 5, 10, 100) if k <= fewest) or (1,),
        tables=tuple(
            table
            for table, name in (("difficulty", "difficulty"), ("month", "released"), ("source", "source"))
            if any(getattr(info, name) for info in problems.values())
        ),
        recorded=True,
    )


def _recorded(row: Mapping[str, Any], where: str) -> tuple[QuestionInfo, list[GradedResponse]]:
    id = next((str(row[name]) for name in ("question_id", "task_id", "id") if row.get(name) is not None), "")
    grades = _grades(row, where)
    if not id or grades is None:
        raise DataError(f"{where}: has no id with grades (graded_list, scored, passed, or base_status)")
    responses, codes = (row.get(name) or [] for name in ("output_list", "code_list"))
    single = row.get("solution") or row.get("completion")
    names = ("difficulty", "contest_date", "platform", "question_title", "question_content", "starter_code")
    difficulty, date, platform, *texts = (str(row.get(name) or "") for name in names)
    info = QuestionInfo(id, difficulty, date[:10], platform, (), *texts)
    samples = [
        GradedResponse(
            id,
            place,
            "accepted" if grade else "failed",
            float(grade),
            str(responses[place]) if place < len(responses) else str(single or ""),
            str(codes[place]) if place < len(codes) else single,
        )
        for place, grade in enumerate(grades)
    ]
    return info, samples


def _grades(row: Mapping[str, Any], where: str) -> Sequence[bool] | None:
    for name in ("graded_list", "scored"):
        if isinstance(row.get(name), list):
            return [_grade(grade, f"{where}: {name}") for grade in row[name]]
    if "passed" in row:
        return [_grade(row["passed"], f"{where}: passed")]
    if "base_status" in row:  # EvalPlus: right is what passes the tests of both sets
        statuses = [row["base_status"], row.get("plus_status") or row["base_status"]]
        return [all(status in _PASSED for status in statuses)]
    return None


def _grade(value: Any, where: str) -> bool:
    """Return whether a response was right; only booleans, 0 and 1 are valid."""
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        raise DataError(f"{where} = {str(value)[:60]!r}: a grade must be true or false")
    return bool(value)
