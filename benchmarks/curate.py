"""What curation costs: verification beside the judge alone, and how the time of deduplication grows, and its memory.

    python benchmarks/curate.py [--quick] [--json FILE]

Verification: the same official solutions, which neither has seen, through the stage and through the judge by itself,
alternating. Deduplication: statements are made up: words by Zipf's law in lengths of real ones, one in ten a reworded
copy of an earlier one. Each size runs in a process of its own, so that the peak of its memory is its own.
"""

from __future__ import annotations

import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness import argument_parser, compare, finish, print_environment, seconds, sized

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.config.curation import DeduplicationConfig
from autoclave.core import Problem, Program, StdinCase, StdinTests
from autoclave.judge import Judge, JudgeJob, LocalJudge, stream
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.deduplication import find_duplicates
from autoclave.problems.curation.programs import CandidatePrograms, VerdictCache
from autoclave.problems.curation.verification import Verification

SIZES = (25_000, 100_000)
TINY_SIZES = (60, 120)
LARGE = 1_000_000
COPY_EVERY = 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Solved:
    """Problems of fifteen tests with two solutions each, that are others each time."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, number: int) -> list[ProblemCandidate]:
        tests = StdinTests("stdin", [StdinCase(f"{a} {a + 1}\n", f"{2 * a + 1}\n") for a in range(15)])
        found: list[ProblemCandidate] = []
        for _ in range(number):
            self._count += 1
            sources = [f"print(sum(map(int, input().split())))  # {self._count} {place}" for place in range(2)]
            problem = Problem("Add.", tests, id=str(self._count), solutions=sources, time_limit_s=6.0)
            found.append(ProblemCandidate(problem, Origin("made", str(self._count))))
        return found


def verification(number: int, rounds: int) -> dict[str, float]:
    """Solutions per second of the stage, over those of the judge."""
    solved = Solved()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalJudge(SandboxConfig(), JudgeConfig()) as judge,
        VerdictCache(Path(folder, "verdicts.sqlite"), {}) as cache,
    ):
        stage = Verification(CandidatePrograms(judge, cache, JudgeConfig().pending_limit), "all", frozenset())

        def by_stage() -> float:
            given = solved.next(number)
            return seconds(lambda: _require(sum(isinstance(one, ProblemCandidate) for one in stage.run(given)), number))

        def by_judge() -> float:
            given = solved.next(number)
            return seconds(lambda: _require(_num_accepted(judge, given), 2 * number))

        found = compare(by_judge, by_stage, rounds=rounds)
    print(f"rate of verification / the judge's own   {found}")
    return {"verify_rate_ratio": found.median}


def _num_accepted(judge: Judge, candidates: Sequence[ProblemCandidate]) -> int:
    jobs = (
        JudgeJob(replace(one.problem, solutions=[]), Program(source))
        for one in candidates
        for source in one.problem.solutions
    )
    return sum(verdict.is_accepted for _, verdict in stream(judge, jobs))


def _require(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"expected {expected} right ones: {found}")


def statements(number: int) -> Iterator[ProblemCandidate]:
    """Made-up problems: every tenth is a copy, with one word in ten another, of the one a few places before."""
    for row in range(number):
        is_copy = row % COPY_EVERY == COPY_EVERY - 1
        original = row - 5 if is_copy else row
        chance = random.Random(original)
        words = [_word(chance) for _ in range(chance.randint(40, 90))]
        if is_copy:
            changes = random.Random(-row)
            words = [_word(changes) if changes.random() < 0.1 else word for word in words]
        cases = [StdinCase(f"{original} {case}", f"{case * original}") for case in range(5)]
        problem = Problem(id=str(row), statement=" ".join(words), tests=StdinTests("stdin", cases))
        yield ProblemCandidate(problem, Origin("synthetic", f"{row:09}"))


def _word(chance: random.Random) -> str:
    """A word by its rank: rank r comes with a chance of about 1/r, among 60 000."""
    rank = int(60_000 ** chance.random())
    letters = ""
    while rank:
        rank, letter = divmod(rank, 26)
        letters += _LETTERS[letter]
    return f"w{letters}"


def one_size(number: int) -> dict[str, float]:
    """Seconds, peak memory in MiB, and how many of the planted copies were found."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = find_duplicates(statements(number), DeduplicationConfig(), [], Path(folder))
    planted = number // COPY_EVERY
    right = sum(int(each.dropped.row) % COPY_EVERY == COPY_EVERY - 1 for each in found.dropped)
    return {
        "seconds": time.perf_counter() - started,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "recall": right / planted,
        "wrong": float(len(found.dropped) - right),
    }


def in_own_process(number: int) -> dict[str, float]:
    """The same, in a fresh process."""
    command = [sys.executable, __file__, "--one-size", str(number)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print the table and the figures."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--one-size", type=int, metavar="N", help="measure N statements and print JSON, nothing else")
    options = parser.parse_args()
    if options.one_size:
        print(json.dumps(one_size(options.one_size)))
        return
    print_environment()
    rates = verification(*sized(options, (150, 7), (30, 3), (1, 1)))
    print(f"\n{'statements':>12}{'seconds':>12}{'us each':>12}{'peak MiB':>12}{'recall':>12}{'wrong':>12}")
    measured: dict[int, dict[str, float]] = {}
    sizes = TINY_SIZES if options.tiny else SIZES
    for number in sizes if options.quick else (*sizes, LARGE):
        measured[number] = of_size = in_own_process(number)
        print(
            f"{number:>12,}{of_size['seconds']:>12.1f}{of_size['seconds'] / number * 1e6:>12.0f}"
            f"{of_size['peak_mib']:>12.0f}{of_size['recall']:>12.3f}{of_size['wrong']:>12.0f}"
        )
    small, large = (measured[number] for number in sizes)
    grown = sizes[1] / sizes[0]
    figures = {
        "dedup_growth_exponent": math.log(large["seconds"] / small["seconds"]) / math.log(grown),
        "dedup_bytes_per_statement": (large["peak_mib"] - small["peak_mib"]) * 2**20 / (sizes[1] - sizes[0]),
        **{f"dedup_seconds_{number}": of_size["seconds"] for number, of_size in measured.items()},
        **{f"dedup_peak_mib_{number}": of_size["peak_mib"] for number, of_size in measured.items()},
    }
    finish("curate", rates | figures, options.json)


if __name__ == "__main__":
    main()
