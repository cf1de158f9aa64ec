"""Stages that compare candidates: with each other, and with those of evaluation sets."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoclave.config.curation import DecontaminationConfig, DeduplicationConfig
from autoclave.core import CallTests, CheckTests, IncompleteError, Problem, Program, Verdict
from autoclave.judge import JudgeJob
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.decontamination import Contamination, Decontamination
from autoclave.problems.curation.deduplication import (
    CandidateKey,
    Duplicate,
    DuplicateReason,
    Duplicates,
    WeakPair,
    find_duplicates,
)
from autoclave.problems.curation.features import cases_of
from autoclave.problems.curation.programs import CandidatePrograms
from autoclave.problems.curation.stage import Dropped


class WithoutDuplicates:
    """Stage that keeps one of each group of duplicates. With a judge, solutions also run on tests of similar problems.

    Args:
        sources: names of sources, the preferred first.
        programs: runs solutions; None: nothing runs.
    """

    name = "deduplication"

    def __init__(
        self, config: DeduplicationConfig, sources: Sequence[str], programs: CandidatePrograms | None, folder: Path
    ) -> None:
        self._config = config
        self._sources = sources
        self._programs = programs
        self._folder = folder
        self.notes: tuple[str, ...] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            **self._config.model_dump(mode="json"),
            "sources": list(self._sources),
            "judge": self._programs.judge_identity if self._programs else None,
        }

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        dropped = {duplicate.dropped: duplicate for duplicate in self._duplicates(candidates)}
        for candidate in candidates:
            duplicate = dropped.get(CandidateKey.of(candidate))
            yield candidate if duplicate is None else _as_dropped(candidate, duplicate)

    def _duplicates(self, candidates: Iterable[ProblemCandidate]) -> Sequence[Duplicate]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            found = find_duplicates(candidates, self._config, self._sources, Path(folder))
        notes = [f"{found.num_statements} statements were compared"]
        if found.num_large_buckets:
            notes.append(
                f"in {found.num_large_buckets} large groups of similar statements only some pairs were compared"
            )
        self.notes = tuple(notes)
        if self._programs is None or not found.weak:
            return found.dropped
        report = compare_behaviour(found, candidates, self._programs.verdicts, self._config)
        notes.append(f"solutions of {report.num_pairs} pairs were run on each other's tests")
        if report.num_left_out:
            notes.append(f"solutions of {report.num_left_out} more pairs were not run")
        self.notes = tuple(notes)
        if report.inconclusive:
            first, faults = report.inconclusive[0]
            raise IncompleteError(
                f"{len(report.inconclusive)} pairs of problems could not be compared, because the judge failed, the "
                f"first is {first.better.id!r} and {first.other.id!r} ({faults}); run the same command again"
            )
        return report.duplicates


def _as_dropped(candidate: ProblemCandidate, duplicate: Duplicate) -> Dropped:
    kept, found = duplicate.kept, duplicate.evidence
    detail = f"the same as {kept.id!r} ({kept.set}, {kept.row}): {found.similarity:.2f} of the words"
    if found.tests.shared:
        detail += f", {found.tests.shared} inputs of tests, {found.tests.relation}"
    if duplicate.matched != kept:
        detail += f"; found by way of {duplicate.matched.id!r}"
    return Dropped.of(candidate, duplicate.reason, detail)


class WithoutContamination:
    """Stage that drops problems too close to those of evaluation sets, whose content has the digest `identity`."""

    name = "decontamination"
    notes: Sequence[str] = ()

    def __init__(self, evaluation: Iterable[ProblemCandidate], identity: Any, config: DecontaminationConfig) -> None:
        self._evaluation = evaluation
        self._identity = identity
        self._config = config

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**self._config.model_dump(mode="json"), "evaluation": self._identity}

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        decontamination = Decontamination(self._evaluation, self._config)
        for candidate in candidates:
            found = decontamination.find(candidate)
            yield candidate if found is None else Dropped.of(candidate, found.rule, _evidence(found))


def _evidence(found: Contamination) -> str:
    if found.evaluation is None:
        return f"released {found.matched}, outside the window for training"
    evaluation = found.evaluation
    parts = [f"{evaluation.id!r} ({evaluation.set}, {evaluation.row}): {found.matched}"]
    if found.longest_run:
        parts.append(f"{found.share:.2f} of its n-grams, {found.longest_run} words in a row")
    return "; ".join(parts)


VerdictsOf = Callable[[Iterable[JudgeJob]], Iterator[Verdict]]
_DISTINCTIVE_OUTPUTS = 3
"""Different outputs that the tests of a problem need; programs with two outputs pass by chance."""


@dataclass(frozen=True, slots=True)
class BehaviourReport:
    """Result of running solutions on the tests of other problems.

    Attributes:
        duplicates: found before or by this run, by set and row.
        inconclusive: pairs without a verdict, each with the faults of the judge.
        num_pairs: number of pairs that were run.
        num_left_out: number of pairs beyond the limit, or with too few different outputs.
    """

    duplicates: list[Duplicate]
    inconclusive: list[tuple[WeakPair, str]]
    num_pairs: int
    num_left_out: int


def compare_behaviour(
    found: Duplicates, candidates: Iterable[ProblemCandidate], verdicts_of: VerdictsOf, config: DeduplicationConfig
) -> BehaviourReport:
    """Run the first solution of each problem of a weak pair on the tests of the other.

    Args:
        found: result of deduplication of the same candidates.
        candidates: those of weak pairs are kept in memory.
        verdicts_of: judges programs, in their order.
        config: limits of pairs and of tests of each.

    Raises:
        InputError: a problem of a pair cannot be judged.
        HostError: the judge's host misses something that its profile or language needs.
    """
    weak = found.weak[: config.judged_pairs]
    wanted = {name for pair in weak for name in (pair.better, pair.other)}
    problems = {name: each.problem for each in candidates if (name := CandidateKey.of(each)) in wanted}
    distinctive = {name for name, problem in problems.items() if _has_distinctive_tests(problem)}
    pairs = [pair for pair in weak if pair.better in distinctive and pair.other in distinctive]
    verdicts = list(verdicts_of(_jobs(pairs, problems, config.judged_tests)))
    both = list(zip(pairs, zip(verdicts[::2], verdicts[1::2], strict=True), strict=True))
    return BehaviourReport(
        duplicates=_merged(found.dropped, [pair for pair, two in both if all(each.is_accepted for each in two)]),
        inconclusive=[(pair, _faults(two)) for pair, two in both if any(_is_inconclusive(each) for each in two)],
        num_pairs=len(pairs),
        num_left_out=len(found.weak) - len(pairs),
    )


def _is_inconclusive(verdict: Verdict) -> bool:
    """Return whether the judge failed; a fault of the problem itself does not count, the two then stay separate."""
    return verdict.fault is not None and verdict.fault.kind != "problem"


def _has_distinctive_tests(problem: Problem) -> bool:
    return len({expected for _, expected in cases_of(problem)}) >= _DISTINCTIVE_OUTPUTS


def _jobs(pairs: Sequence[WeakPair], problems: Mapping[CandidateKey, Problem], num_tests: int) -> Iterator[JudgeJob]:
    for pair in pairs:
        better, other = problems[pair.better], problems[pair.other]
        for author, problem in ((better, other), (other, better)):
            yield JudgeJob(problem, _as_answer(author, problem), tests=f"longest:{num_tests}")


def _as_answer(author: Problem, problem: Problem) -> Program:
    """Return the first solution of `author`, under the name that the tests of `problem` call."""
    source = author.solutions[0]
    if isinstance(author.tests, (CallTests, CheckTests)) and isinstance(problem.tests, (CallTests, CheckTests)):
        source = f"{author.tests.preamble}\n{source}\n{_renaming(author.tests.entry_point, problem.tests.entry_point)}"
    return Program(source, author.language)


def _renaming(known: str, new: str) -> str:
    """Return lines that alias `known` as `new`; empty if only one of them is a method."""
    if known == new or ("." in known) != ("." in new):
        return ""
    owner, new_owner = known.partition(".")[0], new.partition(".")[0]
    method = f"{owner}.{new.partition('.')[2]} = {known}\n" if "." in known else ""
    return method + (f"{new_owner} = {owner}\n" if owner != new_owner else "")


def _faults(verdicts: Iterable[Verdict]) -> str:
    return "; ".join(f"{each.fault.kind}: {each.fault.detail}" for each in verdicts if each.fault)


def _merged(dropped: Sequence[Duplicate], same: Sequence[WeakPair]) -> list[Duplicate]:
    """Return all duplicates, each with the problem that is finally kept."""
    kept_for: dict[CandidateKey, Duplicate] = {}
    for pair in same:
        drop = Duplicate(pair.other, pair.better, pair.better, DuplicateReason.BEHAVIOUR, pair.evidence)
        kept_for.setdefault(pair.other, drop)
    everything = (replace(each, kept=_root(each.kept, kept_for)) for each in (*dropped, *kept_for.values()))
    return sorted(everything, key=lambda each: (each.dropped.set, each.dropped.row))


def _root(name: CandidateKey, kept_for: Mapping[CandidateKey, Duplicate]) -> CandidateKey:
    while name in kept_for:
        name = kept_for[name].kept
    return name
