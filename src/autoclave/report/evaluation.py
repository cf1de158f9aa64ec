"""Pages of evaluations: a result with its responses, and two results side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoclave.evaluation.benchmark_result import BenchmarkResult
from autoclave.evaluation.comparison import PairedComparison
from autoclave.report.html import render_page

_HERE = Path(__file__).parent
_SHOWN_PROBLEMS = 400
"""Problems whose responses are on the page; `samples.jsonl` has all."""
_SHOWN_PAIRS = 100


def result_page(result: BenchmarkResult) -> str:
    """One result: figures, tables, and the first responses of each problem, failed ones first."""
    metrics = result.to_metrics()
    problems = sorted(result.problems, key=lambda problem: result.rates.get(problem.id, -1.0))
    return render_page(
        _HERE / "result.html.j2",
        None,
        result=result,
        metrics=metrics,
        figures=figure_rows(metrics),
        problems=[(problem, result.by_problem[problem.id]) for problem in problems[:_SHOWN_PROBLEMS]],
        left_out=max(0, len(problems) - _SHOWN_PROBLEMS),
    )


def comparison_page(first: BenchmarkResult, second: BenchmarkResult, comparison: PairedComparison) -> str:
    """Two results: the difference, and each problem won or lost with both programs side by side."""
    statements = {problem.id: problem.statement for problem in (*first.problems, *second.problems)}
    return render_page(
        _HERE / "compare.html.j2",
        None,
        first=first,
        second=second,
        comparison=comparison,
        groups=[
            (title, pairs[:_SHOWN_PAIRS], max(0, len(pairs) - _SHOWN_PAIRS))
            for title, pairs in (("Won", comparison.won), ("Lost", comparison.lost))
        ],
        statements=statements,
    )


def figure_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The figures as rows of a table: name and value."""
    rows = [("problems", str(metrics["problems"]))]
    if metrics["unanswered"]:
        rows.append(("problems without a response", str(metrics["unanswered"])))
    if "accept_lazy_programs" in metrics:
        rows.append(("problems that accept a lazy program", str(metrics["accept_lazy_programs"])))
    rows.append(("responses", str(metrics["responses"])))
    around, scored = metrics.get("interval"), "mean_score" if "mean_score" in metrics else "pass@1"
    for name, value in metrics.items():
        if name.startswith("pass@"):
            rows.append((name, _share(value) + (_bounds(around) if name == scored else "")))
    if "mean_score" in metrics:
        rows.append(("mean share of tests passed", _share(metrics["mean_score"]) + _bounds(around)))
    rows += [
        ("truncated", _share(metrics["truncated_share"])),
        ("kept back by the server", _share(metrics["filtered_share"])),
        ("nothing to judge in the response", _share(metrics["format_error_share"])),
        ("without a verdict", _share(metrics["no_verdict_share"])),
    ]
    length = metrics["response_length"]
    if length["most"] is not None:
        rows.append(
            ("tokens of a response", f"mean {length['mean']:.0f}, median {length['median']:.0f}, most {length['most']}")
        )
    rows += [(f"account: {name}".replace("_", " "), f"{value:g}") for name, value in metrics["account"].items()]
    if rating := metrics.get("rating"):
        rows.append(("rating", f"{rating['rating']:.0f} over {rating['contests']} contests"))
        rows.append(("percentile", f"{rating['percentile']:.1f}"))
        if rating["without_standings"]:
            rows.append(("contests without standings, left out", ", ".join(rating["without_standings"])))
    return rows


def _share(value: float) -> str:
    return "not measured" if value != value else f"{100 * value:.2f} %"


def _bounds(around: Sequence[float] | None) -> str:
    return f"   95 % interval [{100 * around[0]:.2f}, {100 * around[1]:.2f}]" if around else ""
