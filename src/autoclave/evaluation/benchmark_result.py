"""Result of a model on a benchmark: graded responses, the figures made of them, and the folder that holds both."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autoclave.core import DataError, InputError
from autoclave.core.files import atomic_writer, existing_file, read_jsonl, write_atomically
from autoclave.core.json import finite, from_plain, parse_object, to_plain
from autoclave.evaluation.intervals import mean_or_nan, mean_pass_at_k, share_interval, wilson_interval
from autoclave.evaluation.questions import QuestionInfo

FORMAT = "autoclave-evaluation/1"
RESULT, SAMPLES, REPORT = "result.json", "samples.jsonl", "report.html"


@dataclass(frozen=True, slots=True)
class GradedResponse:
    """One response and its grade; see `Response` and `Grade`."""

    problem_id: str
    sample: int
    status: str
    score: float | None
    response: str
    submission: str | None = None
    tests_passed: float | None = None
    message: str = ""
    finish: str = ""
    tokens: int | None = None

    @property
    def is_right(self) -> bool:
        """True if it counts as solved: its score is 1."""
        return self.score == 1.0


@dataclass(frozen=True)
class BenchmarkResult:
    """Result of a model on a benchmark.

    Attributes:
        benchmark: its name.
        model: name of the model.
        settings: settings that responses and grades depend on, as JSON data.
        problems: in order.
        samples: graded responses, by problem and sample in order.
        k: values for which pass@k is reported.
        tables: properties of problems with a table each.
        score: `all_tests` or `share_of_tests`.
        account: cost of sampling.
        rating: Codeforces rating, if requested.
        lazy: problems whose tests accept lazy programs, with the names of those; None if not tried.
        notes: sentences on problems that were left out.
        recorded: True if the grades were imported from a file.
    """

    benchmark: str
    model: str
    problems: tuple[QuestionInfo, ...]
    samples: tuple[GradedResponse, ...]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    k: tuple[int, ...] = (1,)
    tables: tuple[str, ...] = ()
    score: str = "all_tests"
    account: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rating: Mapping[str, Any] | None = None
    lazy: Mapping[str, Sequence[str]] | None = None
    notes: tuple[str, ...] = ()
    recorded: bool = False

    @cached_property
    def by_problem(self) -> dict[str, list[GradedResponse]]:
        """Responses to each problem, in order; an empty list without any."""
        found: dict[str, list[GradedResponse]] = {problem.id: [] for problem in self.problems}
        for sample in self.samples:
            found[sample.problem_id].append(sample)
        return found

    @cached_property
    def rates(self) -> dict[str, float]:
        """Mean score of each problem over its responses that have a verdict, for problems that have one."""
        scores = {id: [each.score for each in of if each.score is not None] for id, of in self.by_problem.items()}
        return {id: float(np.mean(each)) for id, each in scores.items() if each}

    @property
    def score_name(self) -> str:
        return "mean_score" if self.score == "share_of_tests" else "pass@1"

    def pass_at(self, k: int) -> float:
        """Return unbiased pass@k over the problems with at least k verdicts; NaN without any."""
        return mean_pass_at_k(map(_counts, self.by_problem.values()), k)

    def to_metrics(self) -> dict[str, Any]:
        """Return every figure, NaN if not measured. docs/how-to/evaluation.md defines them."""
        samples = self.samples
        lengths = [sample.tokens for sample in samples if sample.tokens is not None]
        passed = [sample.tests_passed for sample in samples if sample.tests_passed is not None]
        finishes = [sample.finish for sample in samples if sample.finish]
        figures: dict[str, Any] = {
            "problems": len(self.problems),
            "unanswered": sum(not each for each in self.by_problem.values()),
            "responses": len(samples),
            **{f"pass@{k}": self.pass_at(k) for k in self.k},
            **self._intervals(),
            "tests_passed": mean_or_nan(passed) if len(passed) == len(samples) else math.nan,
            "truncated_share": mean_or_nan([finish == "length" for finish in finishes]),
            "filtered_share": mean_or_nan([finish == "filtered" for finish in finishes]),
            "format_error_share": mean_or_nan([sample.status == "bad_format" for sample in samples]),
            "no_verdict_share": mean_or_nan([sample.score is None for sample in samples]),
            "response_length": {
                "mean": mean_or_nan(lengths),
                "median": float(np.median(lengths)) if lengths else math.nan,
                "most": max(lengths, default=None),
            },
            "statuses": dict(sorted(Counter(sample.status or "no_verdict" for sample in samples).items())),
            "tables": {name: self._table(name) for name in self.tables},
            "account": dict(self.account),
        }
        if self.score_name == "mean_score":
            figures["mean_score"] = mean_or_nan(list(self.rates.values()))
        if self.lazy is not None:
            figures["accept_lazy_programs"] = len(self.lazy)
        return figures | ({"rating": dict(self.rating)} if self.rating else {})

    def _intervals(self) -> dict[str, Any]:
        """Return 95 % bounds of the mean score over problems; also Wilson's own if each problem is one trial."""
        rates = list(self.rates.values())
        if not rates:
            return {}
        around = share_interval(rates)
        found = {"interval": [around.lower, around.upper]}
        if all(rate in (0.0, 1.0) for rate in rates) and all(len(each) <= 1 for each in self.by_problem.values()):
            wilson = wilson_interval(int(sum(rates)), len(rates))
            found["wilson_interval"] = [wilson.lower, wilson.upper]
        return found

    def _table(self, name: str) -> dict[str, dict[str, float]]:
        """Return by a property of problems: their number, and the mean score of those with a verdict."""
        keys = _KEYS[name]
        members: dict[str, list[str]] = {}
        for problem in self.problems:
            for key in keys(problem):
                members.setdefault(key or "unknown", []).append(problem.id)
        return {
            key: {
                "problems": len(ids),
                self.score_name: mean_or_nan([self.rates[id] for id in ids if id in self.rates]),
            }
            for key, ids in sorted(members.items())
        }

    def save(self, folder: Path) -> None:
        """Write `samples.jsonl`, then `result.json`, whose presence marks a complete folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULT).unlink(missing_ok=True)  # its samples are replaced first
        with atomic_writer(folder / SAMPLES) as file:
            for sample in self.samples:
                file.write(json.dumps(to_plain(sample), ensure_ascii=False) + "\n")
        kept = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in _KEPT},
            "metrics": finite(self.to_metrics()),
            "problems": [to_plain(problem) for problem in self.problems],
        }
        write_atomically(folder / RESULT, json.dumps(kept, ensure_ascii=False) + "\n")


_KEPT = ("benchmark", "model", "settings", "k", "tables", "score", "account", "rating", "lazy", "notes", "recorded")
_KEYS: Mapping[str, Callable[[QuestionInfo], Sequence[str]]] = {
    "difficulty": lambda problem: (problem.difficulty,),
    "month": lambda problem: (problem.released[:7],),
    "source": lambda problem: (problem.source,),
    "tag": lambda problem: problem.tags or ("",),
}


def load_result(folder: Path) -> BenchmarkResult:
    """Return the result in a folder that `save` wrote.

    Raises InputError: the folder has no result. DataError: a file is damaged.
    """
    path = folder / RESULT
    if not path.is_file():
        raise InputError(
            f"{folder}: has no {RESULT}. Fix: give a folder that `autoclave evaluate --benchmark ... --out` wrote"
        )
    kept = parse_object(existing_file(path, "result").read_text("utf-8"), str(path))
    if kept.get("format") != FORMAT:
        raise InputError(f"{path}: format = {kept.get('format')!r}: must be {FORMAT!r}")
    stored = {name: value for name, value in kept.items() if name not in ("format", "metrics")}
    result = from_plain(BenchmarkResult, {**stored, "samples": []}, str(path))
    return replace(result, samples=tuple(_samples(folder / SAMPLES, {problem.id for problem in result.problems})))


def _samples(path: Path, known: Set[str]) -> Iterator[GradedResponse]:
    for where, line in read_jsonl(path, "graded responses"):
        sample = from_plain(GradedResponse, line, where)
        if sample.problem_id not in known:
            raise DataError(f"{where}: problem_id = {sample.problem_id!r}: {RESULT} beside it has no such problem")
        yield sample


def _counts(samples: Iterable[GradedResponse]) -> tuple[int, int]:
    """Return how many have a verdict, and how many of them are right."""
    judged = [sample.is_right for sample in samples if sample.score is not None]
    return len(judged), sum(judged)
