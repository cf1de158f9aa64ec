"""Compare two models on the same problems: the difference with an interval, and the problems that each wins."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from autoclave.core import InputError
from autoclave.core.json import to_plain
from autoclave.evaluation.benchmark_result import BenchmarkResult, GradedResponse
from autoclave.evaluation.intervals import Interval, bootstrap_interval

_SAME = 1e-12
_THAT_MATTER = (
    *("asks", "prompt", "system", "chat", "thinking_end", "thinking_opened", "extraction", "stops", "tests"),
    *("profile", "profile_with_numpy", "time_limit_s", "temperature", "top_p", "max_new_tokens"),
)
"""Settings that change scores of one and the same model."""


@dataclass(frozen=True, slots=True)
class ProblemPair:
    """A problem on which two models differ: the mean score of each, and a response of each as an example."""

    id: str
    first: float
    second: float
    first_sample: GradedResponse
    second_sample: GradedResponse


@dataclass(frozen=True)
class PairedComparison:
    """Two results over the problems that both have verdicts on.

    Attributes:
        problems: number of these problems.
        left_out: number of problems with verdicts in one result only, or in neither.
        first, second: mean score over them.
        difference: of the second to the first.
        interval: 95 % bootstrap interval of the difference, over problems.
        p_value: of the exact two-sided sign test over won and lost problems; equal ones do not count.
        won, lost: problems on which the second is better, and worse.
        notes: sentences on settings that differ beside the model.
    """

    problems: int
    left_out: int
    first: float
    second: float
    difference: float
    interval: Interval
    p_value: float
    won: tuple[ProblemPair, ...]
    lost: tuple[ProblemPair, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        pairs = {
            name: [{"id": each.id, "first": each.first, "second": each.second} for each in getattr(self, name)]
            for name in ("won", "lost")
        }
        return to_plain(self) | {"interval": [self.interval.lower, self.interval.upper]} | pairs


def compare_results(first: BenchmarkResult, second: BenchmarkResult) -> PairedComparison:
    """Compare two results problem by problem.

    Raises InputError: no problem has verdicts in both, or they use different kinds of scores.
    """
    if first.score != second.score:
        raise InputError(
            f"score = {first.score} in {first.benchmark} of {first.model}, but {second.score} in {second.benchmark} of "
            f"{second.model}. Fix: evaluate both with the same score"
        )
    shared = [id for id in first.rates if id in second.rates]
    if not shared:
        raise InputError(
            f"{first.benchmark} of {first.model} and {second.benchmark} of {second.model} have no problem in common"
        )
    differences = np.array([second.rates[id] - first.rates[id] for id in shared])
    pairs = [
        ProblemPair(
            id, first.rates[id], second.rates[id], _shown(first, id, gained < 0), _shown(second, id, gained > 0)
        )
        for id, gained in zip(shared, differences, strict=True)
    ]
    won = tuple(pair for pair, gained in zip(pairs, differences, strict=True) if gained > _SAME)
    lost = tuple(pair for pair, gained in zip(pairs, differences, strict=True) if gained < -_SAME)
    return PairedComparison(
        len(shared),
        len({*first.by_problem, *second.by_problem}) - len(shared),
        float(np.mean([first.rates[id] for id in shared])),
        float(np.mean([second.rates[id] for id in shared])),
        float(differences.mean()),
        bootstrap_interval(differences),
        sign_test(len(won), len(lost)),
        won,
        lost,
        tuple(_differences(first, second)),
    )


def _differences(first: BenchmarkResult, second: BenchmarkResult) -> Iterator[str]:
    if first.benchmark != second.benchmark:
        yield f"the benchmarks have different names: {first.benchmark} and {second.benchmark}"
    if first.recorded != second.recorded:
        yield "the grades of one were imported, those of the other were made here"
        return
    for name in _THAT_MATTER:
        if name in first.settings and name in second.settings and first.settings[name] != second.settings[name]:
            yield f"{name} differs: {first.settings[name]!r} and {second.settings[name]!r}"


def sign_test(num_won: int, num_lost: int) -> float:
    """Return the exact two-sided p-value of a share this uneven under even chances; 1 without a won or lost problem.

    Source: Dixon and Mood, "The Statistical Sign Test", JASA 41, 1946; for verdicts it is McNemar's exact test.
    """
    number = num_won + num_lost
    tail = sum(comb(number, count) for count in range(min(num_won, num_lost) + 1))
    return min(1.0, 2 * tail / 2**number)


def _shown(result: BenchmarkResult, id: str, wanted: bool) -> GradedResponse:
    """Return a response whose `is_right` is `wanted`, or else the first one."""
    samples = [sample for sample in result.by_problem[id] if sample.score is not None]
    return next((sample for sample in samples if sample.is_right == wanted), samples[0])
