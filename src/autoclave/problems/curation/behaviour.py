"""Problems that are one because their solutions do the same: each passes the tests of the other.

Programs run in the judge that is handed in; what the judge could not decide is reported and means nothing. Only pairs
that `deduplication.py` found worth it are run, the most similar first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autoclave.config.curation import DeduplicationConfig
from autoclave.core import CallTests, CheckTests, Problem, Program, Verdict
from autoclave.judge import JudgeJob
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.deduplication import Duplicate, DuplicateReason, Duplicates, Name, WeakPair
from autoclave.problems.curation.traits import cases_of

VerdictsOf = Callable[[Iterable[JudgeJob]], Iterator[Verdict]]
_TELLING_OUTPUTS = 3
"""Different outputs that the tests of a problem need; what prints one of two words passes too easily."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A pair that the judge had no verdict on, with what it said."""

    better: Name
    other: Name
    detail: str


@dataclass(frozen=True, slots=True)
class BehaviourReport:
    """What running solutions found.

    Attributes:
        duplicates: those found before and those found here, by set and row.
        undecided: pairs without a verdict, because of faults of the judge.
        num_pairs: how many pairs were run.
        num_left_out: how many were not, beyond the limit or with tests that tell too little.
    """

    duplicates: list[Duplicate]
    undecided: list[Undecided]
    num_pairs: int
    num_left_out: int


def compare_behaviour(
    found: Duplicates, candidates: Iterable[Candidate], verdicts_of: VerdictsOf, config: DeduplicationConfig
) -> BehaviourReport:
    """Run the first solution of each problem of a weak pair on the tests of the other.

    Args:
        found: what deduplication found in the same candidates.
        candidates: the same again; those of weak pairs are kept in memory.
        verdicts_of: judges programs, in their order.
        config: how many pairs, and how many tests of each.

    Raises:
        InputError: a problem of a pair cannot be judged.
        HostError: the judge's host lacks what its profile or language needs.
    """
    weak = found.weak[: config.judged_pairs]
    wanted = {name for pair in weak for name in (pair.better, pair.other)}
    problems = {name: each.problem for each in candidates if (name := Name.of(each)) in wanted}
    telling = {name for name, problem in problems.items() if _tells(problem)}
    pairs = [pair for pair in weak if pair.better in telling and pair.other in telling]
    verdicts = list(verdicts_of(_jobs(pairs, problems, config.judged_tests)))
    both = list(zip(pairs, zip(verdicts[::2], verdicts[1::2], strict=True), strict=True))
    return BehaviourReport(
        duplicates=_merged(found.dropped, [pair for pair, two in both if all(each.is_accepted for each in two)]),
        undecided=[_undecided(pair, two) for pair, two in both if any(_is_in_doubt(each) for each in two)],
        num_pairs=len(pairs),
        num_left_out=len(found.weak) - len(pairs),
    )


def _is_in_doubt(verdict: Verdict) -> bool:
    """Whether the judge failed; where the fault is the problem's, nothing says that the two are one."""
    return verdict.fault is not None and verdict.fault.kind != "problem"


def _tells(problem: Problem) -> bool:
    return len({expected for _, expected in cases_of(problem)}) >= _TELLING_OUTPUTS


def _jobs(pairs: Sequence[WeakPair], problems: Mapping[Name, Problem], num_tests: int) -> Iterator[JudgeJob]:
    """Two jobs for each pair."""
    for pair in pairs:
        better, other = problems[pair.better], problems[pair.other]
        for author, problem in ((better, other), (other, better)):
            yield JudgeJob(problem, _as_answer(author, problem), tests=f"longest:{num_tests}")


def _as_answer(author: Problem, problem: Problem) -> Program:
    """The first solution of `author`, under the name that the tests of `problem` call."""
    source = author.solutions[0]
    if isinstance(author.tests, (CallTests, CheckTests)) and isinstance(problem.tests, (CallTests, CheckTests)):
        source = f"{author.tests.preamble}\n{source}\n{_renaming(author.tests.entry_point, problem.tests.entry_point)}"
    return Program(source, author.language)


def _renaming(known: str, wanted: str) -> str:
    """A line that gives what is called `known` the name `wanted`; nothing where one is a method and the other not."""
    if known == wanted or ("." in known) != ("." in wanted):
        return ""
    owner, wanted_owner = known.partition(".")[0], wanted.partition(".")[0]
    method = f"{owner}.{wanted.partition('.')[2]} = {known}\n" if "." in known else ""
    return method + (f"{wanted_owner} = {owner}\n" if owner != wanted_owner else "")


def _undecided(pair: WeakPair, two: tuple[Verdict, Verdict]) -> Undecided:
    faults = [f"{each.fault.kind}: {each.fault.detail}" for each in two if each.fault]
    return Undecided(pair.better, pair.other, "; ".join(faults))


def _merged(dropped: Sequence[Duplicate], same: Sequence[WeakPair]) -> list[Duplicate]:
    """All drops, each with the problem that stands for it now; a better one is never dropped for the other."""
    kept_for: dict[Name, Duplicate] = {}
    for pair in same:
        drop = Duplicate(pair.other, pair.better, pair.better, DuplicateReason.BEHAVIOUR, pair.evidence)
        kept_for.setdefault(pair.other, drop)
    everything = (replace(each, kept=_root(each.kept, kept_for)) for each in (*dropped, *kept_for.values()))
    return sorted(everything, key=lambda each: (each.dropped.set, each.dropped.row))


def _root(name: Name, kept_for: Mapping[Name, Duplicate]) -> Name:
    while name in kept_for:
        name = kept_for[name].kept
    return name
