"""Stages that compare candidates: with each other, and with those of evaluation sets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoclave.config.curation import DecontaminationConfig, DeduplicationConfig
from autoclave.core import IncompleteError
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.behaviour import compare_behaviour
from autoclave.problems.curation.decontamination import Contamination, Decontamination
from autoclave.problems.curation.deduplication import Duplicate, Name, find_duplicates
from autoclave.problems.curation.programs import CandidatePrograms
from autoclave.problems.curation.stage import Dropped


class WithoutDuplicates:
    """Each problem once. With a judge, solutions are also run on the tests of problems that look alike.

    Args:
        config: what counts as the same.
        sources: names of sources, the preferred first.
        programs: runs solutions; None: nothing is run.
        folder: a place for temporary files.
    """

    name = "deduplication"

    def __init__(
        self,
        config: DeduplicationConfig,
        sources: Sequence[str],
        programs: CandidatePrograms | None,
        folder: Path,
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

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`."""
        dropped = {duplicate.dropped: duplicate for duplicate in self._duplicates(candidates)}
        for candidate in candidates:
            duplicate = dropped.get(Name.of(candidate))
            yield candidate if duplicate is None else _as_dropped(candidate, duplicate)

    def _duplicates(self, candidates: Iterable[Candidate]) -> Sequence[Duplicate]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            found = find_duplicates(candidates, self._config, self._sources, Path(folder))
        notes = [f"{found.num_statements} statements were compared"]
        if found.num_large_buckets:
            notes.append(f"in {found.num_large_buckets} large groups of similar ones not all pairs were looked at")
        self.notes = tuple(notes)
        if self._programs is None or not found.weak:
            return found.dropped
        report = compare_behaviour(found, candidates, self._programs.verdicts, self._config)
        notes.append(f"solutions of {report.num_pairs} pairs were run on each other's tests")
        if report.num_left_out:
            notes.append(f"of {report.num_left_out} more pairs they were not")
        self.notes = tuple(notes)
        if report.undecided:
            first = report.undecided[0]
            raise IncompleteError(
                f"{len(report.undecided)} pairs of problems could not be compared, because the judge failed, the first "
                f"is {first.better.id!r} and {first.other.id!r} ({first.detail}); run the same command again"
            )
        return report.duplicates


def _as_dropped(candidate: Candidate, duplicate: Duplicate) -> Dropped:
    kept, found = duplicate.kept, duplicate.evidence
    detail = f"the same as {kept.id!r} ({kept.set}, {kept.row}): {found.similarity:.2f} of the words"
    if found.shared_tests:
        detail += f", {found.shared_tests} inputs of tests, {found.tests}"
    if duplicate.like != kept:
        detail += f"; found by way of {duplicate.like.id!r}"
    return Dropped.of(candidate, duplicate.reason, detail)


class WithoutContamination:
    """Problems that are far enough from those of evaluation sets, whose `identity` stands for their content."""

    name = "decontamination"
    notes: Sequence[str] = ()

    def __init__(self, evaluation: Iterable[Candidate], identity: Any, config: DecontaminationConfig) -> None:
        self._evaluation = evaluation
        self._identity = identity
        self._config = config

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**self._config.model_dump(mode="json"), "evaluation": self._identity}

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`."""
        decontamination = Decontamination(self._evaluation, self._config)
        for candidate in candidates:
            found = decontamination.find(candidate)
            yield candidate if found is None else Dropped.of(candidate, found.rule, _evidence(found))


def _evidence(found: Contamination) -> str:
    if found.evaluation is None:
        return f"released {found.matched}, outside of the window for training"
    evaluation = found.evaluation
    parts = [f"{evaluation.id!r} ({evaluation.set}, {evaluation.row}): {found.matched}"]
    if found.longest_run:
        parts.append(f"{found.share:.2f} of its n-grams, {found.longest_run} words in a row")
    return "; ".join(parts)
