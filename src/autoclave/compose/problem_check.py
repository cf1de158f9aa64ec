"""Check of a file of problems, whether they can be judged and trained on: the stages of curation, each finding with its
fix.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from autoclave.compose.benchmark import evaluate_benchmark
from autoclave.compose.curation import open_source, programs_of, verified, with_short_limits
from autoclave.config import BenchmarkConfig, CurateConfig, SourceConfig, StrengthConfig
from autoclave.core import AnswerTests, CallTests, HostError, InputError, StdinTests
from autoclave.core.files import atomic_writer, write_atomically
from autoclave.core.problem import StoredTests
from autoclave.evaluation.benchmark_result import BenchmarkResult
from autoclave.judge.validation import ProblemValidation
from autoclave.problems.candidate import Origin, ProblemCandidate, SkippedRow
from autoclave.problems.curation.comparing import WithoutDuplicates
from autoclave.problems.curation.pipeline import CandidateFile, run_stages
from autoclave.problems.curation.stage import Dropped, ReadableSource
from autoclave.problems.curation.strength import Strength
from autoclave.problems.curation.training_set import PARTS
from autoclave.problems.readers import raw_files
from autoclave.problems.readers.layouts import any_row, read_candidate
from autoclave.problems.readers.row import RawRow
from autoclave.problems.sets import heldout_ids

PASS_RATES = "pass_rates.jsonl"
_FIXES = {
    "id_used_before": "give each problem an id of its own",
    "special_judge": "give the problem a checker, or name the one right answer in the statement",
    "all_solutions_fail": "correct the solutions, or the expected outputs",
    "solution_fails": "correct the solution or remove it, or correct the expected outputs",
    "no_solutions": "add a solution, which shows that the tests are right",
    "not_judgeable": "correct what the judge names",
    "flaky": "remove chance and time from the solution, or lower what it needs",
    "trivial_program_passes": "add tests that this program fails",
    "mutants_pass": "add tests, edge cases first",
    "exact": "remove one of the two",
    "near": "remove one of the two",
    "behaviour": "remove one of the two",
    "zero_variance": "keep problems that are solved sometimes (curate difficulty.pass_rates), or take another model",
}
_WARNINGS = frozenset({"no_solutions", "exact", "near", "behaviour", "zero_variance"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: place, rule, evidence and fix. A warning leaves the problem in the split."""

    place: str
    id: str
    rule: str
    value: str
    fix: str
    is_warning: bool


@dataclass(frozen=True, slots=True)
class ProblemCheck:
    """Findings of a check.

    Attributes:
        problems: lines that were read, or could not be.
        sound: problems without an error.
        stages: after each stage, how many are left.
        findings: by stage, then in the order of the file.
        model: pass@k, zero-variance groups and problems that are never or always solved; None without a model.
        split: problems in each file that was written, by its path.
    """

    problems: int
    sound: int
    stages: Mapping[str, int]
    findings: Sequence[Finding]
    model: Mapping[str, Any] | None
    split: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RowCheck:
    """Rows of a file in the layout of a public set or of a trainer, as the functions for trainers read them.

    Attributes:
        judged: by kind of tests, how many rows, and their least, median and most tests.
        unjudged: by reason, how many rows.
        findings: the rows that cannot be judged.
    """

    rows: int
    judged: Mapping[str, tuple[int, int, float, int]]
    unjudged: Mapping[str, int]
    findings: Sequence[Finding]


def is_other_layout(path: Path) -> bool:
    """Return whether the first row of a file is no line of a problem file. Raises InputError: it cannot be read."""
    first = next((row for row in raw_files(path).rows() if isinstance(row, RawRow)), None)
    return first is not None and "format" not in first.fields


def check_rows(path: Path, config: BenchmarkConfig) -> RowCheck:
    """Read all rows of a file, and check that this machine can judge them. Runs no program.

    Raises InputError: the file cannot be read.
    """
    known, counts = ProblemValidation(config.sandbox, config.judge), dict[str, list[int]]()
    findings: list[Finding] = []
    for row in raw_files(path).rows():
        found = row if isinstance(row, SkippedRow) else read_candidate(any_row, "any", "", row)
        if isinstance(found, ProblemCandidate) and not isinstance(found.problem.tests, StoredTests):
            try:
                known.of(found.problem)
            except (InputError, HostError) as error:
                found = SkippedRow(found.origin.row, "not_judgeable", str(error))
        if isinstance(found, SkippedRow):
            findings.append(_finding(path, Dropped(Origin("", found.row), "", found.reason, found.detail)))
        else:
            tests = found.problem.tests
            count = len(tests.cases) if isinstance(tests, StdinTests | CallTests) else 1
            counts.setdefault(tests.kind, []).append(count)
    judged = {kind: (len(all), min(all), median(all), max(all)) for kind, all in counts.items()}
    reasons = Counter(each.rule for each in findings)
    return RowCheck(sum(map(len, counts.values())) + len(findings), judged, dict(reasons.most_common()), findings)


def check_problems(
    path: Path,
    config: BenchmarkConfig,
    model: str | None,
    split: Path | None,
    *,
    share: float,
    seed: int,
    say: Callable[[str], None],
) -> ProblemCheck:
    """Check the problems of a file: solutions pass, lazy programs and mutants fail, and a model solves some.

    Args:
        config: how programs are judged, and how the model is asked.
        model: as `evaluate_benchmark` takes it.
        split: folder for problems without an error, in two parts.
        share: of these problems, that is held out.
        say: hears what goes on.

    Raises:
        InputError, HostError, FaultError: as curation and evaluation.
    """
    source = SourceConfig(set="autoclave", path=str(path), needs_solutions=False)
    curation = CurateConfig(sources=(source,), judge=config.judge, sandbox=config.sandbox)
    assert curation.deduplication
    with ExitStack() as opened:
        work = Path(opened.enter_context(TemporaryDirectory(prefix="autoclave-check-")))
        programs, quick = programs_of(curation, opened), programs_of(with_short_limits(curation), opened)
        *judged, last = run_stages(
            _Lines(open_source(source)[0]),
            [
                *verified(curation, programs),
                Strength(quick, StrengthConfig().mutants, StrengthConfig().minimum_killed),
                WithoutDuplicates(curation.deduplication, [source.label], programs, work),
            ],
            work,
            say,
        )
        read, sound = judged[0], judged[-1].kept
        if not (lines := sum(read.num_kept.values()) + read.reasons.total()):
            raise InputError(f"{path}: has no problem")
        findings = [_finding(path, one) for result in (*judged, last) for one in result.dropped()]
        findings += [_finding(path, one) for one in map(_unverified, sound) if one]
        measured, count = None, sum(judged[-1].num_kept.values())
        if model and count:
            _write(work / "sound.jsonl", sound)
            asked = source.model_copy(update={"path": str(work / "sound.jsonl")})
            result = evaluate_benchmark(config.model_copy(update={"source": asked}), model, say=say)
            measured = _measured(result)
            if measured["zero_variance_share"] > 0.5:
                value = f"{measured['zero_variance_share']:.0%} of the groups of {path} have no variance"
                findings.append(_finding(path, Dropped(Origin("", path.name), "", "zero_variance", value)))
            if split:
                rates = ({"id": id, "pass_rate": rate} for id, rate in result.rates.items())
                write_atomically(split / PASS_RATES, "".join(json.dumps(each) + "\n" for each in rates))
        parts = _split(sound, split, share, seed) if split else {}
    left = {result.name: sum(result.num_kept.values()) for result in (*judged, last)}
    return ProblemCheck(lines, count, left, findings, measured, parts)


class _Lines:
    """The lines of the file. An id that comes again would be refused by all that reads the file later."""

    name, notes = "read", ()

    def __init__(self, source: ReadableSource) -> None:
        self._source = source
        self.settings: Mapping[str, Any] = source.identity

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        """See `Stage`; there are no candidates before it."""
        yield from candidates
        places: dict[str, str] = {}
        for row in self._source.read():
            if isinstance(row, SkippedRow):
                yield Dropped(Origin(self._source.label, row.row), "", row.reason, row.detail)
            elif row.problem.id in places:
                yield Dropped.of(row, "id_used_before", f"id = {row.problem.id!r}: is that of {places[row.problem.id]}")
            else:
                places[row.problem.id] = row.origin.row
                yield row


def _unverified(candidate: ProblemCandidate) -> Dropped | None:
    if candidate.problem.solutions or isinstance(candidate.problem.tests, AnswerTests):
        return None
    return Dropped.of(candidate, "no_solutions", "nothing shows that its tests are right")


def _finding(path: Path, dropped: Dropped) -> Finding:
    fix = _FIXES.get(dropped.reason, "correct the line (docs/reference/formats.md), or leave it out")
    place = str((path if path.is_dir() else path.parent) / dropped.origin.row)
    return Finding(place, dropped.id, dropped.reason, dropped.detail, fix, dropped.reason in _WARNINGS)


def _measured(result: BenchmarkResult) -> dict[str, Any]:
    """Pass@k, and how many problems have samples that all score the same."""
    groups = [
        scores for each in result.by_problem.values() if (scores := [s.score for s in each if s.score is not None])
    ]
    never, always = (sum(set(scores) == {score} for scores in groups) for score in (0.0, 1.0))
    figures = {f"pass@{k}": result.pass_at(k) for k in result.k}
    same = sum(len(set(scores)) == 1 for scores in groups) / max(1, len(groups))
    return {
        "model": result.model,
        **figures,
        "zero_variance_share": same,
        "never_solved": never,
        "always_solved": always,
    }


def _split(sound: CandidateFile, folder: Path, share: float, seed: int) -> dict[str, int]:
    heldout = heldout_ids(sound, share, seed)
    if not heldout:
        raise InputError(f"--split {folder}: there are no two sound problems that differ, so none can be held out")
    kept = (lambda each: each.problem.id not in heldout, lambda each: each.problem.id in heldout)
    return {
        str(folder / name): _write(folder / name, filter(keep, sound)) for name, keep in zip(PARTS, kept, strict=True)
    }


def _write(path: Path, candidates: Iterable[ProblemCandidate]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with atomic_writer(path) as file:
        for count, candidate in enumerate(candidates, 1):  # noqa: B007
            file.write(json.dumps(candidate.problem.to_json()) + "\n")
    return count
